//! Decides which files a cache should hold, from the order in which samples will be read.
//!
//! The best file to evict is the one whose next use is furthest away (Bélády, 1966). A plan knows
//! which files the next samples use, up to a horizon. A file that is not used before the horizon
//! counts as one that is never used again.
//!
//! A file need not be in the cache to be read, since samples can be read by range requests. So a
//! cached file is evicted for another one only if at least half of the other file's bytes are used
//! before the cached file is used again. Without this rule, an order that jumps between more files
//! than there is room for would fetch a whole file for each sample.

use std::cmp::Reverse;
use std::collections::VecDeque;

/// The files that the next samples use.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// For each file, the numbers of the samples that use it, counted in the order of the pass, and
    /// the mean number of bytes that such a sample reads from it.
    files: Vec<Uses>,
    /// The samples in the plan, each with the file that it uses.
    samples: VecDeque<(u64, usize)>,
}

#[derive(Clone, Debug, Default)]
struct Uses {
    samples: VecDeque<u64>,
    bytes: u64,
    counted: u64,
}

/// The state of a file in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The file is not in the cache and may be fetched.
    Absent,
    /// The file is not in the cache and can't be fetched.
    Refused,
    /// The file is being fetched.
    Coming,
    /// The file is in the cache.
    Held,
}

/// The next change of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    LetGo(usize),
    Fetch(usize),
}

/// The maximum number of files that are considered for the next fetch.
const LOOKED_AT: usize = 32;

impl Plan {
    pub(super) fn new(files: usize) -> Self {
        Self { files: vec![Uses::default(); files], samples: VecDeque::new() }
    }

    /// Returns the number of samples in the plan, counted once for each file that they use.
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Adds that a sample, which comes after those in the plan, reads this many bytes of a file.
    pub(super) fn add(&mut self, sample: u64, file: usize, bytes: u64) {
        let uses = &mut self.files[file];
        uses.bytes += bytes;
        if uses.samples.back() != Some(&sample) {
            uses.counted += 1;
            uses.samples.push_back(sample);
            self.samples.push_back((sample, file));
        }
    }

    /// Removes the samples before `sample` from the plan, since they were read.
    pub(super) fn read(&mut self, sample: u64) {
        while let Some(&(first, file)) = self.samples.front()
            && first < sample
        {
            self.samples.pop_front();
            self.files[file].samples.pop_front();
        }
    }

    /// Decides on the next step. `room` is the number of free bytes, which is negative if files
    /// must be evicted.
    pub(super) fn next(&self, room: i64, place: impl Fn(usize) -> Place, len: impl Fn(usize) -> u64) -> Option<Step> {
        let next_use = |file: usize| self.files[file].samples.front().copied();
        let absent = (0..self.files.len()).filter(|&file| place(file) == Place::Absent);
        let mut wanted: Vec<_> = absent.filter_map(|file| Some((next_use(file)?, file))).collect();
        wanted.sort_unstable();
        wanted.truncate(LOOKED_AT);
        let held = (0..self.files.len()).filter(|&file| place(file) == Place::Held);
        let furthest =
            held.map(|file| (next_use(file).unwrap_or(u64::MAX), file)).max_by_key(|&(at, file)| (at, Reverse(file)));
        if room < 0 {
            return furthest.map(|(_, held)| Step::LetGo(held));
        }
        for (_, file) in wanted {
            if len(file) <= room as u64 {
                return Some(Step::Fetch(file));
            }
            let Some((next_use, held)) = furthest else { continue };
            let uses = &self.files[file];
            let before = uses.samples.partition_point(|&sample| sample < next_use) as u64;
            if before * (uses.bytes / uses.counted) >= len(file) / 2 {
                return Some(Step::LetGo(held));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a pass over samples of 10 bytes in files of 40 bytes, with room for `room` files.
    /// Returns how often files were fetched, and how many samples were read by range requests.
    fn run(order: &[usize], files: usize, room: usize) -> (usize, usize) {
        const HORIZON: usize = 12;
        let (mut plan, mut places) = (Plan::new(files), vec![Place::Absent; files]);
        let (mut fetched, mut by_range, mut added) = (0, 0, 0);
        for (sample, &file) in order.iter().enumerate() {
            while plan.len() < HORIZON && added < order.len() {
                plan.add(added as u64, order[added], 10);
                added += 1;
            }
            loop {
                let held = places.iter().filter(|&&place| place == Place::Held).count();
                match plan.next(40 * (room - held) as i64, |file| places[file], |_| 40) {
                    Some(Step::Fetch(file)) => {
                        places[file] = Place::Held;
                        fetched += 1;
                    }
                    Some(Step::LetGo(file)) => places[file] = Place::Absent,
                    None => break,
                }
            }
            by_range += usize::from(places[file] != Place::Held);
            plan.read(sample as u64 + 1);
        }
        (fetched, by_range)
    }

    #[test]
    fn files_in_turn_are_each_fetched_once() {
        let order: Vec<usize> = (0..20).flat_map(|file| [file; 4]).collect();
        assert_eq!(run(&order, 20, 2), (20, 0));
    }

    #[test]
    fn a_window_of_files_fits_a_cache_of_its_size() {
        let order: Vec<usize> =
            (0..10).flat_map(|window| [0, 1, 1, 0, 0, 1, 0, 1].map(|file| 2 * window + file)).collect();
        let (fetched, by_range) = run(&order, 20, 3);
        assert!(fetched == 20 && by_range <= 4, "{fetched} {by_range}");
    }

    #[test]
    fn what_is_used_soonest_is_kept() {
        // Files 0 and 1 in turn, with another file now and then.
        let order: Vec<usize> = (0..60).map(|i| if i % 15 == 7 { 2 + i / 15 } else { i % 2 }).collect();
        assert_eq!(run(&order, 6, 2), (2, 4));
    }

    #[test]
    fn files_are_not_fetched_for_single_samples() {
        let order: Vec<usize> = (0..400).map(|i| i * 7 % 20).collect();
        let (fetched, by_range) = run(&order, 20, 5);
        assert!(fetched < 10 && by_range > 200, "{fetched} {by_range}");
    }

    #[test]
    fn a_file_that_is_larger_than_the_room_is_never_fetched() {
        let mut plan = Plan::new(1);
        plan.add(0, 0, 10);
        assert_eq!(plan.next(100, |_| Place::Absent, |_| 101), None);
        assert_eq!(plan.next(101, |_| Place::Absent, |_| 101), Some(Step::Fetch(0)));
        assert_eq!(plan.next(101, |_| Place::Refused, |_| 101), None);
    }
}
