//! Copies rows of a table into a batch, column by column.
//!
//! A part of a table is a range of rows that are decoded together, such as a row group of Parquet
//! or a record batch of Arrow. If all parts that contain the rows fit into memory together, the
//! values are copied from them in the order of the batch. Otherwise each part is decoded once, and
//! the values that the batch needs from it are copied to a buffer first. (In the order of the
//! batch, a part might have to be decoded again for each row.)

use std::io;
use std::sync::Arc;

use slotline::BoxError;
use slotline::dataset::{prefetch, reading};
use slotline::sample::{FieldsMut, RowsMut};

use super::column::Chunk;
use crate::Error;
use crate::files::reserve;
use crate::format::place;
use crate::record::Rows;

/// How many values ahead of the copied one are prefetched: loading a value from main memory takes
/// as long as copying many values.
const AHEAD: usize = 24;

/// Consecutive rows of one part, which are also consecutive in the batch.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The index of the part in [`Gather::parts`]. While [`Gather::new`] has not found all parts,
    /// it is the part's index in the table.
    part: usize,
    first: usize,
    len: usize,
}

/// The rows of a batch, grouped into runs of consecutive rows.
#[derive(Debug)]
pub(super) struct Gather {
    runs: Vec<Run>,
    parts: Vec<usize>,
}

impl Gather {
    /// Finds the parts and rows of samples. `starts` are the indices of the first sample of each
    /// part, followed by the number of all samples.
    pub(super) fn new(starts: &[usize], indices: &[usize]) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for &index in indices {
            if let Some(last) = runs.last_mut() {
                let next = starts[last.part] + last.first + last.len;
                if index == next && index < starts[last.part + 1] {
                    last.len += 1;
                    continue;
                }
            }
            let (part, first) = place(starts, index);
            runs.push(Run { part, first, len: 1 });
        }
        let mut parts: Vec<usize> = runs.iter().map(|run| run.part).collect();
        parts.sort_unstable();
        parts.dedup();
        for run in &mut runs {
            run.part = parts.partition_point(|&part| part < run.part);
        }
        Self { runs, parts }
    }

    /// Returns the indices, in the table, of the parts that are needed, in ascending order.
    pub(super) fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// Writes the rows. Writes none of them if a value is missing that has no default, or if a part
    /// can't be read. `chunk` decodes a part, given its index in the table. If `apart` is true,
    /// only one decoded part is in memory at a time.
    pub(super) fn write(
        &self,
        rows: &mut RowsMut<'_>,
        apart: bool,
        chunk: impl Fn(usize) -> Result<Arc<Chunk>, Error>,
    ) -> Result<(), BoxError> {
        if apart {
            return self.write_apart(rows, chunk);
        }
        let chunks = reading(|| self.parts.iter().map(|&part| chunk(part)).collect::<Result<Vec<_>, _>>())?;
        if self.runs.iter().any(|run| chunks[run.part].is_missing(run.first..run.first + run.len)) {
            return Err("a value is missing".into());
        }
        let mut fields = rows.fields(self.runs.iter().map(|run| run.len).sum())?;
        self.write_fields(&mut fields, &chunks)?;
        Ok(fields.finish()?)
    }

    fn write_fields(&self, fields: &mut FieldsMut<'_, '_>, chunks: &[Arc<Chunk>]) -> Result<(), BoxError> {
        let (runs, columns) = (&self.runs, chunks.first().map_or(0, |chunk| chunk.columns()));
        // The values of each column in each chunk.
        let mut plain = vec![None; columns * chunks.len()];
        for (number, chunk) in chunks.iter().enumerate() {
            (0..columns).for_each(|column| plain[column * chunks.len() + number] = chunk.plain(column));
        }
        let bytes = |column: usize, run: &Run| {
            let (bytes, size): (&[u8], usize) = plain[column * chunks.len() + run.part].unwrap_or_default();
            &bytes[run.first * size..][..run.len * size]
        };
        // Prefetches values that will be written soon, also those of the next column.
        let fetch = |column: usize, number: usize| {
            let next = number.checked_sub(runs.len());
            let (column, number) = next.map_or((column, number), |number| (column + 1, number));
            if let Some(run) = runs.get(number).filter(|_| column < columns) {
                prefetch(bytes(column, run).get(..1).unwrap_or_default());
            }
        };
        for column in 0..columns {
            let dtype = chunks[0].dtype(column);
            if plain[column * chunks.len()..][..chunks.len()].iter().all(Option::is_some) {
                let pieces = runs.iter().enumerate().map(|(number, run)| {
                    fetch(column, number + AHEAD);
                    bytes(column, run)
                });
                fields.write_fixed(dtype, pieces)?;
            } else {
                let values = |run: &Run| {
                    let (chunk, first) = (&chunks[run.part], run.first);
                    (first..first + run.len).map(move |row| chunk.value(column, row))
                };
                fields.write_each(dtype, runs.iter().flat_map(values))?;
            }
        }
        Ok(())
    }

    fn write_apart(
        &self,
        rows: &mut RowsMut<'_>,
        chunk: impl Fn(usize) -> Result<Arc<Chunk>, Error>,
    ) -> Result<(), BoxError> {
        // The runs, sorted by their parts, and the position of the first row of each run in this
        // order.
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|&number| self.runs[number].part);
        let (mut firsts, mut total) = (vec![0; self.runs.len()], 0);
        for &number in &order {
            firsts[number] = total;
            total += self.runs[number].len;
        }
        let (mut aside, mut dtypes): (Vec<Aside>, Vec<_>) = (Vec::new(), Vec::new());
        for of_part in order.chunk_by(|&a, &b| self.runs[a].part == self.runs[b].part) {
            let chunk = reading(|| chunk(self.parts[self.runs[of_part[0]].part]))?;
            aside.resize_with(chunk.columns(), Aside::default);
            dtypes = (0..chunk.columns()).map(|column| chunk.dtype(column)).collect();
            let rows = of_part.iter().flat_map(|&number| {
                let Run { first, len, .. } = self.runs[number];
                first..first + len
            });
            if rows.clone().any(|row| chunk.is_missing(row..row + 1)) {
                return Err("a value is missing".into());
            }
            for (column, aside) in aside.iter_mut().enumerate() {
                rows.clone().try_for_each(|row| aside.push(chunk.value(column, row)))?;
            }
        }
        let mut fields = rows.fields(total)?;
        for (dtype, aside) in dtypes.into_iter().zip(&aside) {
            let values = self.runs.iter().zip(&firsts).flat_map(|(run, &first)| first..first + run.len);
            fields.write_each(dtype, values.map(|row| aside.get(row)))?;
        }
        Ok(fields.finish()?)
    }
}

/// The values of a column, copied from several parts into one buffer.
#[derive(Debug, Default)]
struct Aside {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Aside {
    fn push(&mut self, value: &[u8]) -> io::Result<()> {
        reserve(&mut self.bytes, value.len())?;
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    fn get(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[row]]
    }
}
