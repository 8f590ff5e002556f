//! Which sample goes into which row: the order of a pass, or a feed of indices that is drawn as the pass goes.
//!
//! An [`Order`] is drawn when the pass begins and looked up by position. A user's own iterator has no positions: it is
//! asked for the indices of a batch when a worker has claimed that batch and not before, so that it may be endless. Each
//! slot of the ring has a list for them. Tickets are claimed in order but their claimers come to the feed in any order;
//! whoever comes draws for the tickets before its own, too, into the lists of their slots. Nobody reads those lists yet:
//! a ticket's readers come by the feed first, and the readers of the list's last ticket were done before the slot could be
//! claimed again.

use std::fmt;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use super::work::{Cause, dispose, guarded};
use crate::sampler::{Cipher, Order};

/// One pass, as the workers need to know it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) order: Order,
    /// Positions that are delivered: the order's length, less what `drop_last` drops. Unused with a feed.
    pub(super) positions: usize,
    /// Samples of the dataset when the pass began.
    pub(super) samples: usize,
    /// The base seed.
    pub(super) seed: u64,
    pub(super) epoch: u32,
    /// Instead of the order.
    pub(super) feed: Option<Feed>,
}

/// The indices of one batch, from its first row on, where they lie: one look for each row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Indices<'a> {
    From(usize),
    U32(&'a [u32]),
    U64(&'a [u64]),
    Cipher(&'a Cipher, usize),
    List(&'a [usize]),
}

impl<'a> Indices<'a> {
    /// Those of an order from a position on, which must not be beyond its end.
    #[inline]
    pub(super) fn from(order: &'a Order, first: usize) -> Self {
        match order {
            Order::Range(_) => Self::From(first),
            Order::U32(table) => Self::U32(&table[first..]),
            Order::U64(table) => Self::U64(&table[first..]),
            Order::Cipher(cipher) => Self::Cipher(cipher, first),
        }
    }

    /// The index of row `row`, which the batch must have.
    #[inline(always)]
    pub(super) fn at(&self, row: usize) -> usize {
        match self {
            Self::From(first) => first + row,
            Self::U32(table) => table[row] as usize,
            Self::U64(table) => table[row] as usize,
            Self::Cipher(cipher, first) => cipher.index(first + row),
            Self::List(list) => list[row],
        }
    }
}

/// Gives the indices of batch after batch.
pub(super) trait Batches: Send {
    /// Puts the next batch's indices into the empty `list`; `false` after the last one.
    fn next(&mut self, list: &mut Vec<usize>) -> bool;
}

/// A user's indices in batches.
pub(super) struct Chunks<I> {
    pub(super) indices: I,
    pub(super) batch_size: usize,
    pub(super) drop_last: bool,
}

impl<I: Iterator<Item = usize> + Send> Batches for Chunks<I> {
    fn next(&mut self, list: &mut Vec<usize>) -> bool {
        list.extend(self.indices.by_ref().take(self.batch_size));
        !list.is_empty() && (list.len() == self.batch_size || !self.drop_last)
    }
}

/// A user's batches.
pub(super) struct Lists<I>(pub(super) I);

impl<I: Iterator<Item: AsRef<[usize]>> + Send> Batches for Lists<I> {
    fn next(&mut self, list: &mut Vec<usize>) -> bool {
        self.0.next().is_some_and(|batch| {
            list.extend_from_slice(batch.as_ref());
            true
        })
    }
}

/// Draws batches as the pass goes.
pub(super) struct Feed {
    source: Mutex<Source>,
    /// By slot.
    lists: Box<[RwLock<List>]>,
    /// The most indices in a list.
    most: usize,
    in_order: bool,
}

struct Source {
    /// `None` before the first pass and after the end of one.
    batches: Option<Box<dyn Batches>>,
    /// Tickets drawn for.
    drawn: usize,
    /// Positions drawn.
    position: usize,
}

/// What was drawn for a slot.
#[derive(Debug)]
pub(super) struct List {
    ticket: Option<usize>,
    /// The batch's number: the ticket, unless batches come as they are finished. Then it does not matter which ticket comes
    /// here first, and the number is the one that the batch has among the user's.
    pub(super) number: usize,
    /// The position of the first index.
    pub(super) first: usize,
    pub(super) indices: Vec<usize>,
    pub(super) outcome: Drawn,
}

#[derive(Debug)]
pub(super) enum Drawn {
    Batch,
    /// There was no batch left.
    End,
    /// The sampler failed.
    Failed(String),
    /// More indices than the batch sampler had said.
    TooLong(usize),
}

impl Feed {
    /// Lists for so many slots, of at most so many indices.
    pub(super) fn new(slots: usize, most: usize, in_order: bool) -> Self {
        let list = |_| {
            let indices = Vec::with_capacity(most);
            RwLock::new(List { ticket: None, number: 0, first: 0, indices, outcome: Drawn::End })
        };
        let source = Mutex::new(Source { batches: None, drawn: 0, position: 0 });
        Self { source, lists: (0..slots).map(list).collect(), most, in_order }
    }

    /// Starts a pass over these batches.
    pub(super) fn start(&mut self, batches: Box<dyn Batches>) {
        for list in &mut self.lists {
            list.get_mut().unwrap_or_else(PoisonError::into_inner).ticket = None;
        }
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner);
        *source = Source { batches: Some(batches), drawn: 0, position: 0 };
    }

    /// The list of a claimed ticket in its slot, drawn if need be.
    pub(super) fn list(&self, slot: usize, ticket: usize) -> RwLockReadGuard<'_, List> {
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

    /// The list of a slot as it is.
    pub(super) fn peek(&self, slot: usize) -> RwLockReadGuard<'_, List> {
        self.lists[slot].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, source: &mut Source, slot: usize, ticket: usize) {
        let mut list = self.lists[slot].write().unwrap_or_else(PoisonError::into_inner);
        (list.ticket, list.number, list.first) = (Some(ticket), source.drawn, source.position);
        list.indices.clear();
        source.drawn += 1;
        let more = match &mut source.batches {
            Some(batches) => guarded(|| Ok(batches.next(&mut list.indices))),
            None => Ok(false),
        };
        list.outcome = match more {
            Ok(true) if list.indices.len() > self.most => Drawn::TooLong(list.indices.len()),
            Ok(true) => Drawn::Batch,
            Ok(false) => Drawn::End,
            Err(Cause::Panic(message)) => Drawn::Failed(message),
            Err(_) => unreachable!("an iterator has no errors but panics"),
        };
        source.position += list.indices.len();
        if !matches!(list.outcome, Drawn::Batch) {
            list.indices.clear();
        }
        if matches!(list.outcome, Drawn::End | Drawn::Failed(_)) {
            dispose(source.batches.take());
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("most", &self.most).field("in_order", &self.in_order).finish_non_exhaustive()
    }
}
