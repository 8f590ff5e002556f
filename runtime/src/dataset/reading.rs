//! Timing of reads outside of `get`, and of writes inside, for the statistics.

use std::cell::Cell;

use crate::sync::{Instant, thread_local};

/// What was timed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Nanoseconds in [`reading`], without those in [`writing`] inside.
    pub(crate) read: u64,
    /// Nanoseconds in [`writing`], without those in [`reading`] inside.
    pub(crate) written: u64,
    /// The number of times that either was called. Each has read the clock twice.
    pub(crate) calls: u64,
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
    timed(read, |spent| &mut spent.read)
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
    timed(write, |spent| &mut spent.written)
}

/// Whether [`reading`] and [`writing`] measure anything now: whether this thread is timing its samples one by one. For code that
/// would otherwise call them many times for a sample.
#[inline]
pub fn is_timed() -> bool {
    SPENT.with(Cell::get).is_some()
}

#[inline]
fn timed<T>(code: impl FnOnce() -> T, sum: impl FnOnce(&mut Spent) -> &mut u64) -> T {
    let before = SPENT.with(Cell::get).map(|spent| (spent, Instant::now()));
    let value = code();
    if let Some((before, begun)) = before {
        ended(before, begun, sum);
    }
    value
}

#[cold]
fn ended(before: Spent, begun: Instant, sum: impl FnOnce(&mut Spent) -> &mut u64) {
    record(before, u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), sum);
}

/// Adds the time of a call that began at `before` to its sum, without that of the calls inside it.
fn record(before: Spent, time: u64, sum: impl FnOnce(&mut Spent) -> &mut u64) {
    SPENT.with(|cell| {
        let mut spent = cell.get().unwrap_or(before);
        let inside = (spent.read - before.read).saturating_add(spent.written - before.written);
        let sum = sum(&mut spent);
        *sum = sum.saturating_add(time.saturating_sub(inside));
        spent.calls += 1;
        cell.set(Some(spent));
    });
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
        let begin = Spent::default();
        watch(Some(begin));
        // A read of 51 ns, with a write of 50 ns inside it, and a read of 20 ns inside that.
        record(begin, 20, |spent| &mut spent.read);
        record(begin, 50, |spent| &mut spent.written);
        record(begin, 51, |spent| &mut spent.read);
        let spent = watch(None).unwrap();
        assert_eq!((spent.read, spent.written, spent.calls), (21, 30, 3));
        writing(|| reading(|| ()));
        assert!(watch(None).is_none(), "it was measured although no sample is timed");
    }
}
