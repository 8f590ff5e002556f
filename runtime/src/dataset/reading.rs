//! Measures how long each stage of reading a sample takes, for the loader's statistics.

use std::cell::Cell;

use crate::sync::{Instant, thread_local};

/// What is done with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Drawing its index, or waiting for a thread that does.
    Drawing,
    /// Running the dataset's code, without the stages below.
    Reading,
    /// Writing it into its row, or collating.
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

/// What was timed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Nanoseconds in each stage, without nested calls and without reading the clock.
    pub(crate) times: [u64; STAGE_COUNT],
    /// The number of calls. Each has read the clock twice.
    pub(crate) calls: u64,
    /// The time that one reading of the clock takes, in nanoseconds.
    pub(crate) look: u64,
}

thread_local! {
    /// `None` unless this thread's samples are being timed.
    static SPENT: Cell<Option<Spent>> = const { Cell::new(None) };
}

/// Runs code that reads a sample outside of [`Dataset::get`](super::Dataset::get), and returns its result.
///
/// The time in which a [`Sample`](crate::Sample) writes itself into its row counts as writing in the loader's
/// [statistics](crate::loader::WorkerStats::writing). If a sample fetches its data only then, because it now knows the
/// destination, this function counts that time as reading.
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

/// Runs code that writes a sample while it is being read, in [`Dataset::get`](super::Dataset::get), in a cursor's
/// [`next`](super::IterableDataset::next) or in [`reading`], and returns its result.
///
/// The time of this code counts as writing in the loader's [statistics](crate::loader::WorkerStats::writing), and that of the
/// code around it as reading. It is for datasets whose code reads and writes in turn, such as those of the C interface.
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

/// Runs code that decodes or transforms a sample, wherever it is called from, and returns its result. The time counts as
/// [decoding](crate::loader::WorkerStats::decoding) in the loader's statistics, and not as reading or writing.
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

/// Whether [`reading`], [`writing`] and the like measure anything now: whether this thread is timing its samples one by one. For code that
/// would otherwise call them many times for a sample.
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

/// Adds the time of a call to its stage. `before` is what had been measured when the call began. Nested calls are
/// subtracted, and so is reading the clock: once for this call, and twice for each nested one.
fn record(before: Spent, time: u64, stage: Stage) {
    SPENT.with(|cell| {
        let mut spent = cell.get().unwrap_or(before);
        let inside = spent.sum().saturating_sub(before.sum());
        let looks = 1 + 2 * spent.calls.saturating_sub(before.calls);
        let sum = &mut spent.times[stage as usize];
        *sum = sum.saturating_add(time.saturating_sub(inside).saturating_sub(looks * before.look));
        spent.calls += 1;
        cell.set(Some(spent));
    });
}

impl Spent {
    /// Returns the time of all stages.
    pub(crate) fn sum(&self) -> u64 {
        self.times.iter().fold(0, |sum, &time| sum.saturating_add(time))
    }
}

/// Starts or stops the measurement, and returns what was measured so far.
pub(crate) fn watch(from: Option<Spent>) -> Option<Spent> {
    SPENT.with(|spent| spent.replace(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_call_counts() {
        let begin = Spent { look: 2, ..Spent::default() };
        watch(Some(begin));
        // A read of 51 ns, with a write of 50 ns inside it, and decoding of 20 ns inside that; a clock that takes 2 ns.
        record(begin, 20 + 2, Stage::Decoding);
        record(begin, 50 + 3 * 2, Stage::Writing);
        record(begin, 51 + 5 * 2, Stage::Reading);
        let spent = watch(None).unwrap();
        assert_eq!((spent.times, spent.calls), ([0, 1, 30, 20, 0, 0], 3));
        writing(|| reading(|| ()));
        assert!(watch(None).is_none(), "it was measured although no sample is timed");
    }
}
