//! Reading outside of `get`, for the statistics.

use std::cell::Cell;

use crate::sync::{Instant, thread_local};

thread_local! {
    /// Nanoseconds of reading outside of `get` so far; `None` unless the samples of this thread are being timed.
    static READ: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs code that reads a sample outside of [`Dataset::get`](super::Dataset::get), and gives what it gives.
///
/// What happens when a [`Sample`](crate::Sample) writes itself into its row counts as writing in the loader's
/// [statistics](crate::loader::WorkerStats::writing). If a sample fetches its data only then, as it knows where to put it,
/// this counts that as reading.
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

/// Begins or ends to count, and gives what was counted so far.
pub(crate) fn watch(from: Option<u64>) -> Option<u64> {
    READ.with(|sum| sum.replace(from))
}
