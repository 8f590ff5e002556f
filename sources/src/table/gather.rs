//! Rows of a table, copied into a batch column by column.

use std::sync::Arc;

use slotline::BoxError;
use slotline::dataset::prefetch;
use slotline::sample::RowsMut;

use super::column::Chunk;
use crate::Error;

/// How many values ahead are fetched: loading one from main memory takes as long as copying many.
const AHEAD: usize = 24;

/// Rows that follow one another in a part of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) part: usize,
    pub(super) first: usize,
    pub(super) len: usize,
}

impl Run {
    /// Returns the runs that samples are, up to `most` of them, and the number of samples in these. `starts` are the numbers
    /// of the first sample of each part, and of all samples.
    pub(super) fn of(starts: &[usize], indices: &[usize], most: usize) -> (Vec<Self>, usize) {
        let mut runs: Vec<Self> = Vec::new();
        for (number, &index) in indices.iter().enumerate() {
            if let Some(last) = runs.last_mut() {
                let next = starts[last.part] + last.first + last.len;
                if index == next && index < starts[last.part + 1] {
                    last.len += 1;
                    continue;
                }
            }
            if runs.len() == most {
                return (runs, number);
            }
            let (part, first) = crate::format::place(starts, index);
            runs.push(Self { part, first, len: 1 });
        }
        (runs, indices.len())
    }
}

/// Writes the rows of these runs, which `chunk` returns the parts of. Writes none of them if a value is missing that must
/// not be, or if a part can't be read.
pub(super) fn write(
    runs: &[Run],
    rows: &mut RowsMut<'_>,
    chunk: impl Fn(usize) -> Result<Arc<Chunk>, Error>,
) -> Result<(), BoxError> {
    let mut parts: Vec<usize> = runs.iter().map(|run| run.part).collect();
    parts.sort_unstable();
    parts.dedup();
    let chunks = parts.iter().map(|&part| chunk(part)).collect::<Result<Vec<_>, _>>()?;
    let place = |run: &Run| (parts.partition_point(|&part| part < run.part), run.first, run.len);
    let runs: Vec<(usize, usize, usize)> = runs.iter().map(place).collect();
    let is_missing = |&(chunk, first, len): &(usize, usize, usize)| chunks[chunk].is_missing(first..first + len);
    if runs.iter().any(is_missing) {
        return Err("a value is missing".into());
    }
    let mut fields = rows.fields(runs.iter().map(|(_, _, len)| len).sum())?;
    let columns = chunks.first().map_or(0, |chunk| chunk.columns());
    // Of each column, its values in each chunk.
    let mut plain = vec![None; columns * chunks.len()];
    for (number, chunk) in chunks.iter().enumerate() {
        (0..columns).for_each(|column| plain[column * chunks.len() + number] = chunk.plain(column));
    }
    let bytes = |column: usize, (chunk, first, len): (usize, usize, usize)| {
        let (bytes, size): (&[u8], usize) = plain[column * chunks.len() + chunk].unwrap_or_default();
        &bytes[first * size..][..len * size]
    };
    // Fetches what will be written soon, also of the next column.
    let fetch = |column: usize, number: usize| {
        let (column, number) = if number < runs.len() { (column, number) } else { (column + 1, number - runs.len()) };
        if let Some(&run) = runs.get(number).filter(|_| column < columns) {
            prefetch(bytes(column, run).get(..1).unwrap_or_default());
        }
    };
    for column in 0..columns {
        let dtype = chunks[0].dtype(column);
        if plain[column * chunks.len()..][..chunks.len()].iter().all(Option::is_some) {
            let pieces = runs.iter().enumerate().map(|(number, &run)| {
                fetch(column, number + AHEAD);
                bytes(column, run)
            });
            fields.write_fixed(dtype, pieces)?;
        } else {
            let values = |&(chunk, first, len): &(usize, usize, usize)| {
                let chunk = &chunks[chunk];
                (first..first + len).map(move |row| chunk.value(column, row))
            };
            fields.write_each(dtype, runs.iter().flat_map(values))?;
        }
    }
    Ok(fields.finish()?)
}
