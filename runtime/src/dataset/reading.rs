//! Timing of reads outside of `get`, for the statistics.

use std::cell::Cell;

use crate::sync::{Instant, thread_local};

thread_local! {
    /// Nanoseconds spent on reads outside of `get` so far; `None` unless this thread's samples are being timed.
    static READ: Cell<Option<u64>> = const { Cell::new(None) };
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
    let Some(before) = READ.with(Cell::get) else { return read() };
    let begun = Instant::now();
    let value = read();
    let time = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    READ.with(|sum| sum.set(Some(before.saturating_add(time))));
    value
}

/// Starts or stops the measurement, and returns the time measured so far.
pub(crate) fn watch(from: Option<u64>) -> Option<u64> {
    READ.with(|sum| sum.replace(from))
}
