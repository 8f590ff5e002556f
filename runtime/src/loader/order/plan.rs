//! Decides which sample goes into which row, either by the order of a pass, or by an index stream.
//!
//! An [`Order`] is drawn when the pass begins and is looked up by position. A user's iterator
//! cannot be looked up by position, so an [`IndexStream`] draws from it during the pass: the
//! indices of a batch are drawn only when a worker has claimed that batch. So the iterator may be
//! endless.
//!
//! Each slot of the ring has a list for the indices of its batch. Tickets are claimed in order, but
//! the threads that claimed them ask the index stream in any order. A thread that asks therefore
//! also draws for all earlier tickets that were not drawn yet, into the lists of their slots. (With
//! `in_order(false)`, each thread draws only for its own ticket.) No other thread uses the indices
//! in those lists at that time: a thread uses a list only after [`IndexStream::list`] has returned
//! it for its ticket, and the threads of the slot's previous ticket were finished before the slot
//! could be claimed again.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::PoisonError;

use crate::BoxError;
use crate::loader::checkpoint::state::State;
use crate::loader::checkpoint::tickets::Tickets;
use crate::loader::error::build::{BuildError, room_for};
use crate::loader::error::failure::Cause;
use crate::loader::error::guard::{dispose, guarded};
use crate::loader::error::state::StateError;
use crate::sampler::{Cipher, Computed, Order, ReplicaStride, Spans};
use crate::sync::{Mutex, RwLock, RwLockReadGuard};

/// The plan of one pass, which workers read.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) order: Order,
    /// Maps positions in this rank's order to positions in the pass of all ranks.
    pub(crate) global_positions: ReplicaStride,
    /// The number of positions that are delivered: the length of the order without what `drop_last`
    /// drops, or the samples of all planned batches. Not used with an index stream.
    pub(crate) positions: usize,
    /// The positions of each batch, if the sampler decides which positions a batch has.
    pub(crate) spans: Option<Spans>,
    /// The number of rows of a full batch.
    pub(crate) rows: usize,
    /// The number of positions from one batch to the next: the batch size that the user set, which
    /// may be greater than `rows`.
    pub(crate) stride: usize,
    /// The number of samples of the dataset when the pass began.
    pub(crate) samples: usize,
    /// The base seed.
    pub(crate) seed: u64,
    pub(crate) epoch: u32,
    /// Maps tickets to batches. Not used with an index stream.
    pub(crate) tickets: Tickets,
    /// The source of indices that is used instead of the order, if there is one.
    pub(crate) index_stream: Option<IndexStream>,
}

impl Plan {
    /// Returns the batch with this number. Not for plans with an index stream.
    #[inline(always)]
    pub(crate) fn task(&self, number: usize) -> Task<'_> {
        let (first, rows) = self.extent(number);
        Task { number, first, rows, indices: Indices::from(&self.order, first) }
    }

    /// Returns the number of rows of a batch. Not for plans with an index stream.
    #[inline(always)]
    pub(crate) fn rows(&self, number: usize) -> usize {
        self.extent(number).1
    }

    /// Returns the position of a batch's first row, and the number of its rows.
    #[inline(always)]
    fn extent(&self, number: usize) -> (usize, usize) {
        match &self.spans {
            None => (number * self.stride, self.rows.min(self.positions - number * self.stride)),
            Some(spans) => planned(spans, number),
        }
    }
}

/// Returns the position of a planned batch's first row, and the number of its rows. This is a
/// separate function so that it costs other plans nothing.
#[cold]
#[inline(never)]
fn planned(spans: &Spans, task: usize) -> (usize, usize) {
    let positions = spans.of(task);
    (positions.start, positions.len())
}

/// One batch: its number, the position of its first row, the number of its rows, and the indices of
/// the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) number: usize,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) indices: Indices<'a>,
}

/// The indices of one batch, from its first row on. They are not copied from the order, but looked
/// up row by row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Indices<'a> {
    From(usize),
    U32(&'a [u32]),
    U64(&'a [u64]),
    Cipher(&'a Cipher, usize),
    Computed(&'a Computed, usize),
    List(&'a [usize]),
}

impl<'a> Indices<'a> {
    /// Returns the indices of an order from position `first` on, which must not be beyond its end.
    #[inline]
    pub(crate) fn from(order: &'a Order, first: usize) -> Self {
        match order {
            Order::Range(_) => Self::From(first),
            Order::U32(table) => Self::U32(&table[first..]),
            Order::U64(table) => Self::U64(&table[first..]),
            Order::Cipher(cipher) => Self::Cipher(cipher, first),
            Order::Computed(computed) => Self::Computed(computed, first),
        }
    }

    /// Returns the index of row `row`, which must be within the batch.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize) -> usize {
        match self {
            Self::From(first) => first + row,
            Self::U32(table) => table[row] as usize,
            Self::U64(table) => table[row] as usize,
            Self::Cipher(cipher, first) => cipher.index(first + row),
            Self::Computed(computed, first) => computed.index(first + row),
            Self::List(list) => list[row],
        }
    }
}

impl Indices<'_> {
    /// Appends the indices of some rows to a list. This is faster than calling [`at`](Self::at) for
    /// each row, since the kind of source is checked only once.
    pub(crate) fn append_to(&self, list: &mut Vec<usize>, rows: Range<usize>) {
        match self {
            Self::From(first) => list.extend(first + rows.start..first + rows.end),
            Self::U32(table) => list.extend(table[rows].iter().map(|&index| index as usize)),
            Self::U64(table) => list.extend(table[rows].iter().map(|&index| index as usize)),
            Self::List(indices) => list.extend_from_slice(&indices[rows]),
            Self::Cipher(..) | Self::Computed(..) => list.extend(rows.map(|row| self.at(row))),
        }
    }
}

/// Returns the indices of one batch after the other.
pub(crate) trait Batches: Send {
    /// Puts the indices of the next batch into the empty `list`. Returns `false` after the last
    /// batch.
    fn next(&mut self, list: &mut Vec<usize>) -> Result<bool, BoxError>;
}

/// Divides the indices of a user's iterator into batches.
pub(crate) struct Chunks<I> {
    pub(crate) indices: I,
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
}

impl<I: Iterator<Item = usize> + Send> Batches for Chunks<I> {
    fn next(&mut self, list: &mut Vec<usize>) -> Result<bool, BoxError> {
        list.extend(self.indices.by_ref().take(self.batch_size));
        Ok(!list.is_empty() && (list.len() == self.batch_size || !self.drop_last))
    }
}

/// Takes the batches of a user's iterator.
pub(crate) struct Lists<I>(pub(crate) I);

impl<I: Iterator<Item: AsRef<[usize]>> + Send> Batches for Lists<I> {
    fn next(&mut self, list: &mut Vec<usize>) -> Result<bool, BoxError> {
        let batch = self.0.next();
        batch.iter().for_each(|batch| list.extend_from_slice(batch.as_ref()));
        Ok(batch.is_some())
    }
}

/// Takes the batches of a user's iterator that may fail.
pub(crate) struct TryLists<I>(pub(crate) I);

impl<I: Iterator<Item = Result<B, BoxError>> + Send, B: AsRef<[usize]>> Batches for TryLists<I> {
    fn next(&mut self, list: &mut Vec<usize>) -> Result<bool, BoxError> {
        let Some(batch) = self.0.next() else { return Ok(false) };
        list.extend_from_slice(batch?.as_ref());
        Ok(true)
    }
}

/// Draws the indices of batches during the pass.
pub(crate) struct IndexStream {
    source: Mutex<IndexStreamState>,
    /// The list of indices of each slot.
    lists: Box<[RwLock<BatchIndices>]>,
    /// The maximum number of indices in a list.
    most: usize,
    in_order: bool,
}

struct IndexStreamState {
    /// The user's batches in this pass; `None` before the first pass and after the end of a pass.
    batches: Option<Box<dyn Batches>>,
    /// The number of tickets for which indices were drawn.
    drawn: usize,
    /// The number of batches that were drawn from the user's iterator.
    number: usize,
    /// The number of positions that were drawn.
    position: usize,
    /// After a resume, the batches that come first: those before the resume point that were not
    /// delivered.
    kept: VecDeque<BatchIndices>,
}

/// The indices that were drawn for the batch in a slot.
#[derive(Debug)]
pub(crate) struct BatchIndices {
    ticket: Option<usize>,
    /// The number of the batch in the user's sequence. It equals the ticket, except with
    /// `in_order(false)`, where tickets may be drawn for in any order.
    pub(crate) number: usize,
    /// The position of the first index.
    pub(crate) first: usize,
    pub(crate) indices: Vec<usize>,
    pub(crate) outcome: DrawOutcome,
}

#[derive(Debug)]
pub(crate) enum DrawOutcome {
    Batch,
    /// No batch was left.
    End,
    /// The sampler panicked.
    Panicked(String),
    /// The batch sampler returned an error. The first thread that begins the batch takes it.
    Failed(Mutex<Option<BoxError>>),
    /// The batch sampler returned more indices than announced: this many.
    TooLong(usize),
}

impl IndexStream {
    /// Makes an index stream with lists for this many slots, of at most `most` indices each.
    pub(crate) fn new(slots: usize, most: usize, in_order: bool) -> Result<Self, BuildError> {
        let list = |_| BatchIndices::new(most).map(RwLock::new);
        let source =
            Mutex::new(IndexStreamState { batches: None, drawn: 0, number: 0, position: 0, kept: VecDeque::new() });
        Ok(Self { source, lists: (0..slots).map(list).collect::<Result<_, _>>()?, most, in_order })
    }

    /// Returns the bytes of lists for this many slots, of at most `most` indices each; `usize::MAX`
    /// on overflow.
    pub(crate) fn memory(slots: usize, most: usize) -> usize {
        let list = most.saturating_mul(size_of::<usize>()).saturating_add(size_of::<RwLock<BatchIndices>>());
        slots.saturating_mul(list)
    }

    /// Starts a pass over these batches.
    pub(crate) fn start(&mut self, batches: Box<dyn Batches>) {
        for list in &mut self.lists {
            list.get_mut().unwrap_or_else(PoisonError::into_inner).ticket = None;
        }
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (before, kept) = (source.batches.take(), VecDeque::new());
        *source = IndexStreamState { batches: Some(batches), drawn: 0, number: 0, position: 0, kept };
        dispose(before);
    }

    /// Draws the part of the pass that a state says was delivered. Keeps the batches in that part
    /// that were not delivered.
    pub(crate) fn skip(&mut self, state: &State) -> Result<(), StateError> {
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner);
        let empty = || BatchIndices::new(self.most).map_err(|error| StateError::Sampler { source: error.into() });
        let mut list = empty()?;
        for number in 0..state.next() {
            source.draw(&mut list, self.most);
            if let Some(cause @ Cause::BatchSampler(_)) = list.outcome.failure(self.most) {
                return Err(StateError::Sampler { source: cause.into_error() });
            }
            if let DrawOutcome::End = list.outcome {
                return Err(StateError::malformed("batches", state.next(), format!("the sampler only has {number}")));
            }
            if state.missing.binary_search(&number).is_ok() {
                source.kept.push_back(std::mem::replace(&mut list, empty()?));
            }
        }
        Ok(())
    }

    /// Returns the list of a ticket that the caller has claimed. Draws it if no other thread has
    /// done so.
    pub(crate) fn list(&self, slot: usize, ticket: usize) -> RwLockReadGuard<'_, BatchIndices> {
        let list = self.peek(slot);
        if list.ticket == Some(ticket) {
            return list;
        }
        drop(list);
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if self.in_order {
            let depth = self.lists.len();
            while source.drawn <= ticket {
                let back = ticket - source.drawn;
                debug_assert!(back < depth, "claims stay inside the window");
                let (slot, ticket) = ((slot + depth - back) % depth, source.drawn);
                self.draw(&mut source, slot, ticket);
            }
        } else if self.peek(slot).ticket != Some(ticket) {
            self.draw(&mut source, slot, ticket);
        }
        drop(source);
        self.peek(slot)
    }

    /// The number of tickets for which indices were drawn.
    pub(crate) fn drawn(&self) -> usize {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).drawn
    }

    /// Returns the current list of a slot, whichever ticket it is for.
    pub(crate) fn peek(&self, slot: usize) -> RwLockReadGuard<'_, BatchIndices> {
        self.lists[slot].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, source: &mut IndexStreamState, slot: usize, ticket: usize) {
        let mut list = self.lists[slot].write().unwrap_or_else(PoisonError::into_inner);
        match source.kept.pop_front() {
            Some(kept) => *list = kept,
            None => source.draw(&mut list, self.most),
        }
        list.ticket = Some(ticket);
        source.drawn += 1;
    }
}

impl DrawOutcome {
    /// Returns why there is no batch, if drawing it failed; `most` is the announced maximum of
    /// indices. An error of the batch sampler is returned only once.
    pub(crate) fn failure(&self, most: usize) -> Option<Cause> {
        match self {
            Self::Batch | Self::End => None,
            Self::Panicked(message) => Some(Cause::Sampler(message.clone())),
            Self::Failed(error) => error.lock().unwrap_or_else(PoisonError::into_inner).take().map(Cause::BatchSampler),
            Self::TooLong(len) => Some(Cause::LongBatch(*len, most)),
        }
    }
}

impl BatchIndices {
    /// Returns the batch that was drawn.
    #[inline]
    pub(crate) fn task(&self) -> Task<'_> {
        let indices = Indices::List(&self.indices);
        Task { number: self.number, first: self.first, rows: self.indices.len(), indices }
    }

    fn new(most: usize) -> Result<Self, BuildError> {
        Ok(Self { ticket: None, number: 0, first: 0, indices: room_for(most)?, outcome: DrawOutcome::End })
    }
}

impl IndexStreamState {
    /// Draws the next batch, of at most `most` indices, into `list`.
    fn draw(&mut self, list: &mut BatchIndices, most: usize) {
        (list.number, list.first) = (self.number, self.position);
        list.indices.clear();
        self.number += 1;
        let more = match &mut self.batches {
            Some(batches) => guarded(|| batches.next(&mut list.indices)),
            None => Ok(false),
        };
        let outcome = match more {
            Ok(true) if list.indices.len() > most => DrawOutcome::TooLong(list.indices.len()),
            Ok(true) => DrawOutcome::Batch,
            Ok(false) => DrawOutcome::End,
            Err(Cause::Panic(message)) => DrawOutcome::Panicked(message),
            Err(cause) => DrawOutcome::Failed(Mutex::new(Some(cause.into_error()))),
        };
        dispose(std::mem::replace(&mut list.outcome, outcome));
        self.position += list.indices.len();
        if !matches!(list.outcome, DrawOutcome::Batch) {
            list.indices.clear();
            // Shrink a list that was too long to the size that was counted as the loader's memory.
            list.indices.shrink_to(most);
        }
        if matches!(list.outcome, DrawOutcome::End | DrawOutcome::Panicked(_) | DrawOutcome::Failed(_)) {
            dispose(self.batches.take());
        }
    }
}

impl fmt::Debug for IndexStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexStream")
            .field("most", &self.most)
            .field("in_order", &self.in_order)
            .finish_non_exhaustive()
    }
}
