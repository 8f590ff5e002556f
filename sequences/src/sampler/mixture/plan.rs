//! Computes which sample of a mixture is at a position.

use slotline::sampler::{Cipher, GOLDEN, mix};

use super::Stop;
use super::turns::{Moment, Turns};

/// The number of positions within which the sources are arranged at random.
pub(super) const BLOCK: u64 = 256;

/// The sequence of samples of a mixture: which source and which of its samples is at each position.
#[derive(Debug)]
pub(super) struct Plan {
    /// The sources with weights above 0.
    sources: Vec<Source>,
    phases: Vec<Phase>,
    len: u64,
}

#[derive(Debug)]
struct Source {
    /// The index of the source in the mixture.
    number: u64,
    /// The index of the source's first sample in the concatenated dataset.
    start: usize,
    /// The number of the source's samples, at least 1.
    len: usize,
}

/// A part of a pass in which the same sources take turns.
#[derive(Debug)]
struct Phase {
    start: u64,
    turns: Turns,
    /// For each source of the phase: its index in [`Plan::sources`], and the number of its samples
    /// that come before this phase.
    of: Vec<(u32, u64)>,
}

/// The properties of one pass that its order depends on, besides the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) seed: u64,
    /// Whether the samples of each source are shuffled.
    pub(super) shuffle: bool,
    /// Whether the sources take turns as evenly as possible.
    pub(super) even: bool,
}

impl Plan {
    /// Makes the plan of sources with positive weights, each given by its index in the mixture,
    /// first sample, length and weight. Returns `None` if a pass would be too long.
    pub(super) fn new(parts: &[(usize, usize, usize, f64)], stop: Stop) -> Option<Self> {
        let sources: Vec<_> =
            parts.iter().map(|&(number, start, len, _)| Source { number: number as u64, start, len }).collect();
        let mut plan = Self { sources, phases: Vec::new(), len: 0 };
        let mut of: Vec<(u32, u64)> = (0..parts.len() as u32).map(|place| (place, 0)).collect();
        loop {
            let weights: Vec<f64> = of.iter().map(|&(place, _)| parts[place as usize].3).collect();
            let turns = Turns::new(&weights);
            let left: Vec<u64> = of.iter().map(|&(place, before)| parts[place as usize].2 as u64 - before).collect();
            let ends = |counts: &mut dyn Iterator<Item = u64>| counts.zip(&left).any(|(count, left)| count >= *left);
            let len = match stop {
                Stop::NumSamples(samples) => (samples.get() <= super::turns::MAX).then_some(samples.get()),
                Stop::AllExhausted => turns.first(|counts| counts.zip(&left).all(|(count, left)| count >= *left)),
                Stop::FirstExhausted | Stop::AllExhaustedWithoutReplacement => turns.first(ends),
            }?;
            let end = turns.counts(turns.moment(len));
            let rest: Vec<_> = of.iter().zip(end).map(|(&(place, before), count)| (place, before + count)).collect();
            plan.phases.push(Phase { start: plan.len, turns, of });
            plan.len = plan.len.checked_add(len).filter(|&len| len <= super::turns::MAX)?;
            of = rest.into_iter().filter(|&(place, count)| count < parts[place as usize].2 as u64).collect();
            if stop != Stop::AllExhaustedWithoutReplacement || of.is_empty() {
                break Some(plan);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        // `len` is at most 2⁶².
        self.len as usize
    }

    /// Returns the size of the tables, in bytes.
    pub(super) fn memory(&self) -> usize {
        let phases = self.phases.iter().map(|phase| size_of::<Phase>() + phase.of.len() * size_of::<(u32, u64, u64)>());
        self.sources.len() * size_of::<Source>() + phases.sum::<usize>()
    }

    /// Returns the index of the sample at a position, which must be less than the length.
    pub(super) fn index(&self, position: usize, pass: Pass) -> usize {
        let position = position as u64;
        let number = self.phases.partition_point(|phase| phase.start <= position) - 1;
        let phase = &self.phases[number];
        let end = self.phases.get(number + 1).map_or(self.len, |next| next.start);
        let (place, sample) = phase.sample(position - phase.start, end - phase.start, pass);
        let source = &self.sources[place as usize];
        let (round, offset) = (sample / source.len as u64, (sample % source.len as u64) as usize);
        let seed = pass.seed.wrapping_add((source.number + 1).wrapping_mul(GOLDEN));
        source.start + if pass.shuffle { Cipher::new(source.len, seed, round).index(offset) } else { offset }
    }
}

impl Phase {
    /// Returns the source at a position of the phase, and the number of its samples that come
    /// before the position in the pass.
    fn sample(&self, position: u64, len: u64, pass: Pass) -> (u32, u64) {
        let size = if pass.even { 1 } else { BLOCK };
        let start = position / size * size;
        let moments = [start, len.min(start + size)].map(|position| self.turns.moment(position));
        let mut block = [0_u32; BLOCK as usize];
        let mut filled = 0;
        for (i, (before, after)) in self.between(moments).enumerate() {
            let next = filled + (after - before) as usize;
            block[filled..next].fill(i as u32);
            filled = next;
        }
        // Shuffles the block by Fisher and Yates, only as far as the position.
        let (block, at) = (&mut block[..filled], (position - start) as usize);
        let key = mix(pass.seed ^ mix(self.start + start));
        for i in 0..=at {
            let random = mix(key.wrapping_add(GOLDEN.wrapping_mul(i as u64 + 1)));
            let other = (u128::from(random) * (block.len() - i) as u128) >> 64;
            block.swap(i, i + other as usize);
        }
        let i = block[at];
        let earlier = block[..at].iter().filter(|&&other| other == i).count() as u64;
        let (before, _) = self.between(moments).nth(i as usize).expect("it was found there");
        let (place, count) = self.of[i as usize];
        (place, count + before + earlier)
    }

    /// Returns the number of samples of each source before two moments.
    fn between(&self, [start, end]: [Moment; 2]) -> impl Iterator<Item = (u64, u64)> {
        self.turns.counts(start).zip(self.turns.counts(end))
    }
}
