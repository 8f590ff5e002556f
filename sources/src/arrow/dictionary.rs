//! The values of dictionaries, which are read when files are opened.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::row::{Body, value};
use super::schema::Leaf;
use super::walk::{Part, Stream};
use crate::Error;
use crate::files::Files;

/// The values of one batch of a dictionary.
#[derive(Debug)]
pub(super) struct Values {
    /// The index of the first one.
    start: u64,
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u64>,
    /// The numbers of those that are missing.
    missing: Vec<u64>,
}

/// The values of the dictionaries of a file: of each, those of its batches.
pub(super) type Dictionaries = Vec<Vec<Values>>;

/// Reads the dictionaries of a file that are `used`, and adds their size to `spent`, which may be up to `limit`.
pub(super) fn read(
    files: &Files,
    file: usize,
    stream: &Stream,
    used: &[bool],
    (spent, limit): (&AtomicU64, u64),
) -> Result<Dictionaries, Error> {
    let one = |((parts, columns), used): ((&Vec<Part>, &super::schema::Columns), &bool)| {
        let leaf = columns.leaves.first().filter(|_| *used);
        let (mut all, mut next) = (Vec::new(), 0);
        for part in leaf.iter().flat_map(|_| parts) {
            let Some(leaf) = leaf else { break };
            let start = if part.is_delta { next } else { 0 };
            next = start + part.batch.rows;
            all.push(Values::read(files, file, leaf, part, start, (spent, limit))?);
        }
        Ok(all)
    };
    stream.dictionaries.iter().zip(&stream.columns.dictionaries).zip(used).map(one).collect()
}

impl Values {
    fn read(
        files: &Files,
        file: usize,
        leaf: &Leaf,
        Part { batch, .. }: &Part,
        start: u64,
        (spent, limit): (&AtomicU64, u64),
    ) -> Result<Self, Error> {
        let wrong = |problem: String, advice| {
            Error::format(files.path(file).display(), batch.start, format!("a dictionary: {problem}"), advice)
        };
        let body = Body::load(files, file, batch, std::slice::from_ref(leaf), limit)?;
        let place = |buffer, range| body.place(buffer, range).map(Cow::Borrowed);
        let mut values = Self { start, bytes: Vec::new(), ends: Vec::new(), missing: Vec::new() };
        let mut counted = 0;
        for row in 0..batch.rows {
            match value(leaf, batch, row, place, &[]).map_err(|problem| wrong(problem, super::row::DAMAGED))? {
                Some(value) => values.bytes.extend_from_slice(value.bytes()),
                None => values.missing.push(row),
            }
            values.ends.push(values.bytes.len() as u64);
            // Values may share bytes: memory is counted as it grows.
            let bytes = (values.bytes.len() + 8 * (values.ends.len() + values.missing.len())) as u64;
            if spent.fetch_add(bytes - counted, Ordering::Relaxed) + bytes - counted > limit {
                let problem = format!("with the others, of more than {limit} bytes");
                return Err(wrong(problem, "raise `memory_limit`, or leave the column out with `columns`"));
            }
            counted = bytes;
        }
        Ok(values)
    }
}

/// Returns the value at an index of a dictionary of these parts: `None` if it is missing.
pub(super) fn find(parts: &[Values], index: u64) -> Result<Option<&[u8]>, ()> {
    let part = parts.partition_point(|part| part.start <= index).checked_sub(1).ok_or(())?;
    let part = &parts[part];
    let row = usize::try_from(index - part.start).map_err(|_| ())?;
    let end = *part.ends.get(row).ok_or(())? as usize;
    let start = row.checked_sub(1).map_or(0, |before| part.ends[before]) as usize;
    let is_missing = !part.missing.is_empty() && part.missing.binary_search(&(row as u64)).is_ok();
    Ok((!is_missing).then(|| &part.bytes[start..end]))
}
