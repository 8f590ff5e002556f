//! Measures how long each stage of reading a sample takes, for the loader's statistics.

use std::cell::Cell;

use crate::sync::{Instant, thread_local};

/// A stage of making a row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Drawing the sample's index, or waiting for a thread that draws it.
    Drawing,
    /// Running the dataset's code, except for the stages below.
    Reading,
    /// Writing the sample into its row, or collating samples.
    Writing,
    Decoding,
    /// Reading files.
    Fetching,
    /// Waiting for a network.
    Downloading,
}

/// All stages, in the order of their numbers.
pub(crate) const STAGES: [Stage; STAGE_COUNT] =
    [Stage::Drawing, Stage::Reading, Stage::Writing, Stage::Decoding, Stage::Fetching, Stage::Downloading];
pub(crate) const STAGE_COUNT: usize = 6;

/// The times measured so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Nanoseconds in each stage, without nested calls and without the time of reading the clock.
    pub(crate) times: [u64; STAGE_COUNT],
    /// The number of calls. Each has read the clock twice.
    pub(crate) calls: u64,
    /// The time in nanoseconds that reading the clock once takes.
    pub(crate) clock_cost: u64,
}

thread_local! {
    /// The times of the current thread; `None` unless its samples are being timed.
    static SPENT: Cell<Option<Spent>> = const { Cell::new(None) };
}

/// Runs code that reads a sample outside of [`Dataset::get`](super::Dataset::get), and returns its
/// result. The time counts as reading.
///
/// By default, the time in which a [`Sample`](crate::Sample) writes itself into its row counts as
/// [writing](crate::loader::WorkerStats::writing) in the loader's statistics. Use this function for
/// a sample that fetches its data only then, because it then knows the destination.
///
/// ```
/// use slotline::BoxError;
/// use slotline::dataset::reading;
/// use slotline::sample::{Fields, Row, Sample};
///
/// /// 16 bytes of a file, read right into the batch.
/// struct Block(std::fs::File);
///
/// impl Sample for Block {
///     type Schema = u8;
///
///     fn declare(&self, fields: &mut Fields) {
///         fields.fixed(slotline::dtype::DType::U8, &[16]);
///     }
///
///     fn write(mut self, row: &mut Row<'_>) -> Result<(), BoxError> {
///         let bytes = row.fill::<u8>(&[16])?;
///         reading(|| std::io::Read::read_exact(&mut self.0, bytes))?;
///         Ok(())
///     }
/// }
/// ```
#[inline]
pub fn reading<T>(read: impl FnOnce() -> T) -> T {
    timed(read, Stage::Reading)
}

/// Runs code that writes a sample inside code that reads it, and returns its result. The code that
/// reads is [`Dataset::get`](super::Dataset::get), a cursor's
/// [`next`](super::IterableDataset::next), or a call of [`reading`].
///
/// The time of `write` counts as writing in the loader's
/// [statistics](crate::loader::WorkerStats::writing), and that of the code around it as reading.
/// Use this function for datasets whose code reads and writes in turn, such as those of the C
/// interface.
///
/// ```
/// use slotline::BoxError;
/// use slotline::dataset::{reading, writing};
/// use slotline::sample::{Fields, Row, Sample};
///
/// /// The next two blocks of a file.
/// struct Blocks(std::fs::File);
///
/// impl Sample for Blocks {
///     type Schema = (u8, u8);
///
///     fn declare(&self, fields: &mut Fields) {
///         fields.fixed(slotline::dtype::DType::U8, &[16]);
///         fields.fixed(slotline::dtype::DType::U8, &[16]);
///     }
///
///     fn write(mut self, row: &mut Row<'_>) -> Result<(), BoxError> {
///         reading(|| {
///             for _ in 0..2 {
///                 let mut block = [0; 16];
///                 std::io::Read::read_exact(&mut self.0, &mut block)?;
///                 writing(|| row.fill::<u8>(&[16]).map(|row| row.copy_from_slice(&block)))?;
///             }
///             Ok(())
///         })
///     }
/// }
/// ```
#[inline]
pub fn writing<T>(write: impl FnOnce() -> T) -> T {
    timed(write, Stage::Writing)
}

/// Runs code that decodes or transforms a sample, and returns its result. The time counts as
/// [decoding](crate::loader::WorkerStats::decoding) in the loader's statistics, and not as reading
/// or writing, wherever this is called.
///
/// ```
/// use slotline::dataset::{decoding, fetching, from_fn};
///
/// let dataset = from_fn(100, |index, _| {
///     let text = fetching(|| std::fs::read_to_string(format!("{index}.txt")))?;
///     Ok(decoding(|| text.trim().parse::<f32>())?)
/// });
/// ```
#[inline]
pub fn decoding<T>(decode: impl FnOnce() -> T) -> T {
    timed(decode, Stage::Decoding)
}

/// Runs code that reads a file, and returns its result. The time counts as reading in the loader's statistics, and as
/// [fetching](crate::loader::WorkerStats::fetching) within it.
#[inline]
pub fn fetching<T>(fetch: impl FnOnce() -> T) -> T {
    timed(fetch, Stage::Fetching)
}

/// Runs code that waits for a network, and returns its result. The time counts as reading in the loader's statistics, and
/// as [downloading](crate::loader::WorkerStats::downloading) within it.
#[inline]
pub fn downloading<T>(download: impl FnOnce() -> T) -> T {
    timed(download, Stage::Downloading)
}

/// Returns whether this thread is timing its samples, so that [`reading`], [`writing`] and the
/// other functions measure anything. Code that would call them many times for one sample can check
/// this first.
#[inline]
pub fn is_timed() -> bool {
    SPENT.with(Cell::get).is_some()
}

#[inline]
fn timed<T>(code: impl FnOnce() -> T, stage: Stage) -> T {
    let before = SPENT.with(Cell::get).map(|spent| (spent, Instant::now()));
    let value = code();
    if let Some((before, begun)) = before {
        ended(before, begun, stage);
    }
    value
}

#[cold]
fn ended(before: Spent, begun: Instant, stage: Stage) {
    record(before, u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), stage);
}

/// Adds the duration of a call to its stage. `before` is the measurement when the call began. The
/// times of nested calls are subtracted, and so is the time of reading the clock: once for this
/// call, and twice for each nested one.
fn record(before: Spent, time: u64, stage: Stage) {
    SPENT.with(|cell| {
        let mut spent = cell.get().unwrap_or(before);
        let inside = spent.sum().saturating_sub(before.sum());
        let clock_reads = 1 + 2 * spent.calls.saturating_sub(before.calls);
        let sum = &mut spent.times[stage as usize];
        *sum = sum.saturating_add(time.saturating_sub(inside).saturating_sub(clock_reads * before.clock_cost));
        spent.calls += 1;
        cell.set(Some(spent));
    });
}

impl Spent {
    /// Returns the sum of the times of all stages, in nanoseconds.
    pub(crate) fn sum(&self) -> u64 {
        self.times.iter().fold(0, |sum, &time| sum.saturating_add(time))
    }
}

/// Sets the measurement from which this thread continues, or stops measuring if it is `None`, and
/// returns the measurement so far.
pub(crate) fn replace_timing(from: Option<Spent>) -> Option<Spent> {
    SPENT.with(|spent| spent.replace(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_call_counts() {
        let begin = Spent { clock_cost: 2, ..Spent::default() };
        replace_timing(Some(begin));
        // A read of 51 ns that contains a write of 50 ns, which contains decoding of 20 ns. Reading
        // the clock takes 2 ns.
        record(begin, 20 + 2, Stage::Decoding);
        record(begin, 50 + 3 * 2, Stage::Writing);
        record(begin, 51 + 5 * 2, Stage::Reading);
        let spent = replace_timing(None).unwrap();
        assert_eq!((spent.times, spent.calls), ([0, 1, 30, 20, 0, 0], 3));
        writing(|| reading(|| ()));
        assert!(replace_timing(None).is_none(), "it was measured although no sample is timed");
    }
}
