//! [`Packing`]: the plan that says which pieces of which documents are in which bin.

use std::cmp::Reverse;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;
use std::sync::Arc;

use slotline::dataset::Upcoming;
use slotline::rng::{Generator, RandpermError};
use slotline::sampler::digest;

use super::best_fit::best_fit;
use super::{PackingError, PackingOptions};

/// A plan of bins, each of which has pieces of documents. Made by [`PackingOptions`].
///
/// A plan depends only on the lengths of the documents and the options. It takes 12 bytes for each
/// piece, and 4 for each bin and each document. Clones share this memory.
#[derive(Clone)]
pub struct Packing(Arc<Plan>);

struct Plan {
    capacity: usize,
    /// The number of tokens of each document.
    lengths: Vec<u32>,
    pieces: Vec<Stored>,
    /// The index of the first piece of each bin, and at the end the number of all pieces.
    starts: Vec<u32>,
    /// The maximum number of pieces in a bin.
    most: usize,
}

#[derive(Clone, Copy)]
struct Stored {
    document: u32,
    start: u32,
    len: u32,
}

/// A piece of a document, or a whole one, in a bin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The index of the document.
    pub document: usize,
    /// The range of the document's tokens that are in the bin.
    pub tokens: Range<usize>,
}

impl Packing {
    /// Returns the number of bins.
    pub fn len(&self) -> usize {
        self.0.starts.len() - 1
    }

    /// Whether there are no bins.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of tokens that a bin has room for.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Returns the number of documents that were packed.
    pub fn documents(&self) -> usize {
        self.0.lengths.len()
    }

    /// Returns the maximum number of pieces in a bin.
    pub fn most_pieces(&self) -> usize {
        self.0.most
    }

    /// Returns the number of tokens in all bins.
    pub fn tokens(&self) -> u64 {
        self.0.pieces.iter().map(|piece| u64::from(piece.len)).sum()
    }

    /// Returns the share of the bins' tokens that is not padding, from 0 to 1; 1 if there are no
    /// bins.
    pub fn efficiency(&self) -> f64 {
        let room = self.len() as f64 * self.capacity() as f64;
        if room > 0.0 { self.tokens() as f64 / room } else { 1.0 }
    }

    /// Returns the pieces of bin `i` in order; `None` if it is out of range.
    pub fn bin(
        &self,
        i: usize,
    ) -> Option<impl ExactSizeIterator<Item = Piece> + DoubleEndedIterator + FusedIterator + Clone + '_> {
        let range = *self.0.starts.get(i)? as usize..*self.0.starts.get(i + 1)? as usize;
        Some(self.0.pieces[range].iter().map(|&piece| piece.into()))
    }

    /// Returns the bins in order.
    pub fn bins(&self) -> impl ExactSizeIterator<Item = impl ExactSizeIterator<Item = Piece> + '_> + '_ {
        (0..self.len()).map(|i| self.bin(i).expect("it is a bin"))
    }

    /// Returns a digest of the plan. Different plans almost certainly have different digests.
    pub fn digest(&self) -> u64 {
        let starts = self.0.starts.iter().map(|&start| start.into());
        let pieces = self.0.pieces.iter().flat_map(|piece| [piece.document, piece.start, piece.len]).map(u64::from);
        digest([self.0.capacity as u64].into_iter().chain(starts).chain(pieces))
    }

    /// Returns the number of tokens that a document had when it was packed.
    ///
    /// # Panics
    ///
    /// If there is no such document.
    pub fn length(&self, document: usize) -> usize {
        self.0.lengths[document] as usize
    }

    /// Returns the documents of the upcoming bins. They count documents, whereas `bins` counts bins.
    #[doc(hidden)]
    pub fn upcoming(&self, bins: &Upcoming) -> Upcoming {
        let mut total = 0;
        // For each bin: its first piece, and the number of pieces in the bins before it.
        let bins: Vec<(usize, usize)> = bins
            .positions()
            .filter_map(|position| bins.index(position))
            .map(|bin| {
                let pieces = self.pieces(bin);
                total += pieces.len();
                (pieces.start, total - pieces.len())
            })
            .collect();
        let packing = self.clone();
        Upcoming::new(total, move |place| {
            let (first, before) = bins[bins.partition_point(|&(_, before)| before <= place).checked_sub(1)?];
            packing.document(first + (place - before))
        })
    }

    /// Returns the document of a piece, counted over all bins.
    pub(super) fn document(&self, piece: usize) -> Option<usize> {
        self.0.pieces.get(piece).map(|piece| piece.document as usize)
    }

    /// Returns the range of the pieces of bin `i`, counted over all bins.
    pub(super) fn pieces(&self, i: usize) -> Range<usize> {
        match (self.0.starts.get(i), self.0.starts.get(i + 1)) {
            (Some(&start), Some(&end)) => start as usize..end as usize,
            _ => 0..0,
        }
    }
}

impl From<Stored> for Piece {
    fn from(piece: Stored) -> Self {
        let start = piece.start as usize;
        Self { document: piece.document as usize, tokens: start..start + piece.len as usize }
    }
}

impl fmt::Debug for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packing")
            .field("bins", &self.len())
            .field("capacity", &self.capacity())
            .field("documents", &self.documents())
            .field("pieces", &self.0.pieces.len())
            .finish()
    }
}

/// Packs documents of these lengths.
pub(super) fn plan(
    options: &PackingOptions,
    lengths: impl IntoIterator<Item = usize>,
    fits_best: bool,
) -> Result<Packing, PackingError> {
    let epochs = options.check()?;
    let lengths = lengths.into_iter().enumerate();
    let check = |(document, length)| {
        // Concatenated documents may have any length.
        if fits_best {
            options.check_length(document, length)
        } else {
            PackingOptions::new(1).check_length(document, length)
        }
    };
    let lengths: Vec<u32> = lengths.map(check).collect::<Result<_, _>>()?;
    counted(lengths.len(), "documents")?;
    let mut plan =
        Plan { capacity: options.capacity, lengths: Vec::new(), pieces: Vec::new(), starts: vec![0], most: 0 };
    let mut order: Vec<u32> = Vec::new();
    for epoch in 0..epochs {
        let mut generator = options.generator(epoch);
        match &mut generator {
            Some(generator) => permute(generator, lengths.len(), &mut order)?,
            None if epoch == 0 => order.extend(0..lengths.len() as u32),
            None => {}
        }
        let first = plan.starts.len() - 1;
        if fits_best {
            plan.fill_best(&lengths, &order)?
        } else {
            plan.fill_in_sequence(&lengths, &order, options.drop_last)?
        }
        if let Some(generator) = &mut generator {
            plan.shuffle(first, generator)?;
        }
    }
    plan.lengths = lengths;
    plan.most = plan.starts.windows(2).map(|ends| (ends[1] - ends[0]) as usize).max().unwrap_or(0);
    Ok(Packing(Arc::new(plan)))
}

/// Converts a number of pieces or documents to `u32`, or returns an error.
fn counted(number: usize, what: &str) -> Result<u32, PackingError> {
    let number = u32::try_from(number).ok().filter(|&number| number < u32::MAX);
    number.ok_or_else(|| PackingError::TooMany { what: what.to_owned() })
}

/// Reserves memory for `more` entries of a table.
pub(super) fn reserve<T>(table: &mut Vec<T>, more: usize) -> Result<(), PackingError> {
    let bytes = table.len().saturating_add(more).saturating_mul(size_of::<T>());
    table.try_reserve(more).map_err(|source| PackingError::Memory { bytes, source })
}

/// Returns a table of `len` default values.
pub(super) fn filled<T: Clone + Default>(len: usize) -> Result<Vec<T>, PackingError> {
    let mut table = Vec::new();
    reserve(&mut table, len)?;
    table.resize(len, T::default());
    Ok(table)
}

fn permute(generator: &mut Generator, n: usize, order: &mut Vec<u32>) -> Result<(), PackingError> {
    generator.randperm_into(n, order).map_err(|error| match error {
        RandpermError::Memory { bytes, source, .. } => PackingError::Memory { bytes, source },
        _ => PackingError::TooMany { what: format!("{n} documents") },
    })
}

/// Returns the pieces of documents, at most `capacity` long, from the longest to the shortest.
/// Pieces of equal length keep the order of their documents in `order`.
fn longest_first(lengths: &[u32], order: &[u32], pieces: usize, capacity: u32) -> Result<Vec<Stored>, PackingError> {
    let mut sorted = Vec::new();
    reserve(&mut sorted, pieces)?;
    let all = order.iter().flat_map(|&document| {
        let length = lengths[document as usize];
        let cuts = (0..length).step_by(capacity as usize);
        cuts.map(move |start| Stored { document, start, len: capacity.min(length - start) })
    });
    if capacity > 1 << 16 && capacity as usize / 4 > pieces {
        sorted.extend(all);
        sorted.sort_by_key(|piece| Reverse(piece.len));
        return Ok(sorted);
    }
    // First the number of pieces of each length, and then the index at which these pieces begin.
    let mut starts: Vec<u32> = filled(capacity as usize + 1)?;
    for &length in lengths {
        starts[capacity as usize] += length / capacity;
        starts[(length % capacity) as usize] += 1;
    }
    starts[0] = 0;
    let mut start = 0;
    for entry in starts.iter_mut().rev() {
        start += std::mem::replace(entry, start);
    }
    sorted.resize(pieces, Stored { document: 0, start: 0, len: 0 });
    for piece in all {
        let at = &mut starts[piece.len as usize];
        sorted[*at as usize] = piece;
        *at += 1;
    }
    Ok(sorted)
}

impl Plan {
    /// Adds the bins of best-fit packing, with the pieces of documents that are longer than a bin.
    fn fill_best(&mut self, lengths: &[u32], order: &[u32]) -> Result<(), PackingError> {
        let capacity = self.capacity as u32;
        let pieces: u64 = lengths.iter().map(|&length| u64::from(length.div_ceil(capacity))).sum();
        let pieces = usize::try_from(pieces).unwrap_or(usize::MAX);
        let first = self.pieces.len();
        counted(first.saturating_add(pieces), "pieces")?;
        let sorted = longest_first(lengths, order, pieces, capacity)?;
        let (mut bins, mut counts): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        reserve(&mut bins, pieces)?;
        best_fit(sorted.iter().map(|piece| piece.len), self.capacity, |bin| {
            bins.push(bin);
            match counts.get_mut(bin as usize) {
                Some(count) => *count += 1,
                None => counts.push(1),
            }
        })?;
        // Bins are numbered in the order in which they are opened. The pieces of a bin are in the
        // order in which they were placed.
        let mut next = first as u32;
        reserve(&mut self.starts, counts.len())?;
        for count in &mut counts {
            let start = next;
            next += std::mem::replace(count, start);
            self.starts.push(next);
        }
        reserve(&mut self.pieces, pieces)?;
        self.pieces.resize(first + pieces, Stored { document: 0, start: 0, len: 0 });
        for (piece, bin) in sorted.into_iter().zip(bins) {
            let at = &mut counts[bin as usize];
            self.pieces[*at as usize] = piece;
            *at += 1;
        }
        Ok(())
    }

    /// Adds the bins of concatenated documents.
    fn fill_in_sequence(&mut self, lengths: &[u32], order: &[u32], drop_last: bool) -> Result<(), PackingError> {
        let capacity = self.capacity as u32;
        let mut room = capacity;
        let tokens: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let pieces = (tokens / u64::from(capacity)).saturating_add(lengths.len() as u64 + 1);
        let pieces = usize::try_from(pieces).unwrap_or(usize::MAX);
        counted(self.pieces.len().saturating_add(pieces), "pieces")?;
        reserve(&mut self.pieces, pieces)?;
        for &document in order {
            let (mut start, length) = (0, lengths[document as usize]);
            while start < length {
                let len = room.min(length - start);
                self.pieces.push(Stored { document, start, len });
                start += len;
                room -= len;
                if room == 0 {
                    self.starts.push(self.pieces.len() as u32);
                    room = capacity;
                }
            }
        }
        let end = self.starts[self.starts.len() - 1] as usize;
        if drop_last {
            self.pieces.truncate(end);
        } else if self.pieces.len() > end {
            self.starts.push(self.pieces.len() as u32);
        }
        Ok(())
    }

    /// Permutes the bins from bin `first` on.
    fn shuffle(&mut self, first: usize, generator: &mut Generator) -> Result<(), PackingError> {
        let mut order: Vec<u32> = Vec::new();
        permute(generator, self.starts.len() - 1 - first, &mut order)?;
        let from = self.starts[first] as usize;
        let mut pieces = Vec::new();
        reserve(&mut pieces, self.pieces.len() - from)?;
        let mut starts = Vec::new();
        reserve(&mut starts, order.len())?;
        for bin in order {
            let bin = first + bin as usize;
            pieces.extend_from_slice(&self.pieces[self.starts[bin] as usize..self.starts[bin + 1] as usize]);
            starts.push((from + pieces.len()) as u32);
        }
        self.pieces.truncate(from);
        self.pieces.append(&mut pieces);
        self.starts.truncate(first + 1);
        self.starts.append(&mut starts);
        Ok(())
    }
}
