//! Which sample goes into which row: the order of a pass, or a feed of indices that is drawn as the pass goes.
//!
//! An [`Order`] is drawn when the pass begins and looked up by position. A user's own iterator has no positions: it is
//! asked for the indices of a batch when a worker has claimed that batch and not before, so that it may be endless. Each
//! slot of the ring has a list for them. Tickets are claimed in order but their claimers come to the feed in any order;
//! whoever comes draws for the tickets before its own, too, into the lists of their slots. Nobody reads those lists yet:
//! a ticket's readers come by the feed first, and the readers of the list's last ticket were done before the slot could be
//! claimed again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;

use crate::loader::checkpoint::state::State;
use crate::loader::checkpoint::tickets::Tickets;
use crate::loader::error::failure::Cause;
use crate::loader::error::guard::{dispose, guarded};
use crate::loader::error::state::StateError;
use crate::sampler::{Cipher, Order, Places};
use crate::sync::{Mutex, RwLock, RwLockReadGuard};

/// One pass, as the workers need to know it.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) order: Order,
    /// Where its positions are in the pass of all replicas.
    pub(crate) places: Places,
    /// Positions that are delivered: the order's length, less what `drop_last` drops. Unused with a feed.
    pub(crate) positions: usize,
    /// Samples of the dataset when the pass began.
    pub(crate) samples: usize,
    /// The base seed.
    pub(crate) seed: u64,
    pub(crate) epoch: u32,
    /// Unused with a feed.
    pub(crate) tickets: Tickets,
    /// Instead of the order.
    pub(crate) feed: Option<Feed>,
}

/// The indices of one batch, from its first row on, where they lie: one look for each row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Indices<'a> {
    From(usize),
    U32(&'a [u32]),
    U64(&'a [u64]),
    Cipher(&'a Cipher, usize),
    List(&'a [usize]),
}

impl<'a> Indices<'a> {
    /// Those of an order from a position on, which must not be beyond its end.
    #[inline]
    pub(crate) fn from(order: &'a Order, first: usize) -> Self {
        match order {
            Order::Range(_) => Self::From(first),
            Order::U32(table) => Self::U32(&table[first..]),
            Order::U64(table) => Self::U64(&table[first..]),
            Order::Cipher(cipher) => Self::Cipher(cipher, first),
        }
    }

    /// The index of row `row`, which the batch must have.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize) -> usize {
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
pub(crate) trait Batches: Send {
    /// Puts the next batch's indices into the empty `list`; `false` after the last one.
    fn next(&mut self, list: &mut Vec<usize>) -> bool;
}

/// A user's indices in batches.
pub(crate) struct Chunks<I> {
    pub(crate) indices: I,
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
}

impl<I: Iterator<Item = usize> + Send> Batches for Chunks<I> {
    fn next(&mut self, list: &mut Vec<usize>) -> bool {
        list.extend(self.indices.by_ref().take(self.batch_size));
        !list.is_empty() && (list.len() == self.batch_size || !self.drop_last)
    }
}

/// A user's batches.
pub(crate) struct Lists<I>(pub(crate) I);

impl<I: Iterator<Item: AsRef<[usize]>> + Send> Batches for Lists<I> {
    fn next(&mut self, list: &mut Vec<usize>) -> bool {
        self.0.next().is_some_and(|batch| {
            list.extend_from_slice(batch.as_ref());
            true
        })
    }
}

/// Draws batches as the pass goes.
pub(crate) struct Feed {
    source: Mutex<FeedState>,
    /// By slot.
    lists: Box<[RwLock<List>]>,
    /// The most indices in a list.
    most: usize,
    in_order: bool,
}

struct FeedState {
    /// `None` before the first pass and after the end of one.
    batches: Option<Box<dyn Batches>>,
    /// Tickets drawn for.
    drawn: usize,
    /// Batches drawn.
    number: usize,
    /// Positions drawn.
    position: usize,
    /// After a resumption, the batches that come first: those that were passed over.
    kept: VecDeque<List>,
}

/// What was drawn for a slot.
#[derive(Debug)]
pub(crate) struct List {
    ticket: Option<usize>,
    /// The batch's number: the ticket, unless batches come as they are finished. Then it does not matter which ticket comes
    /// here first, and the number is the one that the batch has among the user's.
    pub(crate) number: usize,
    /// The position of the first index.
    pub(crate) first: usize,
    pub(crate) indices: Vec<usize>,
    pub(crate) outcome: Drawn,
}

#[derive(Debug)]
pub(crate) enum Drawn {
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
    pub(crate) fn new(slots: usize, most: usize, in_order: bool) -> Self {
        let list = |_| RwLock::new(List::new(most));
        let source = Mutex::new(FeedState { batches: None, drawn: 0, number: 0, position: 0, kept: VecDeque::new() });
        Self { source, lists: (0..slots).map(list).collect(), most, in_order }
    }

    /// Bytes of the lists for so many slots, of at most so many indices; `usize::MAX` if it is even more.
    pub(crate) fn memory(slots: usize, most: usize) -> usize {
        let list = most.saturating_mul(size_of::<usize>()).saturating_add(size_of::<RwLock<List>>());
        slots.saturating_mul(list)
    }

    /// Starts a pass over these batches.
    pub(crate) fn start(&mut self, batches: Box<dyn Batches>) {
        for list in &mut self.lists {
            list.get_mut().unwrap_or_else(PoisonError::into_inner).ticket = None;
        }
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (before, kept) = (source.batches.take(), VecDeque::new());
        *source = FeedState { batches: Some(batches), drawn: 0, number: 0, position: 0, kept };
        dispose(before);
    }

    /// Draws what a state says was delivered of the pass, and keeps of it what was not.
    pub(crate) fn skip(&mut self, state: &State) -> Result<(), StateError> {
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut list = List::new(self.most);
        for number in 0..state.next() {
            source.draw(&mut list, self.most);
            if let Drawn::End = list.outcome {
                return Err(StateError::malformed("batches", state.next(), format!("the sampler gives {number}")));
            }
            if state.missing.binary_search(&number).is_ok() {
                source.kept.push_back(std::mem::replace(&mut list, List::new(self.most)));
            }
        }
        Ok(())
    }

    /// The list of a claimed ticket in its slot, drawn if need be.
    pub(crate) fn list(&self, slot: usize, ticket: usize) -> RwLockReadGuard<'_, List> {
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
    pub(crate) fn peek(&self, slot: usize) -> RwLockReadGuard<'_, List> {
        self.lists[slot].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, source: &mut FeedState, slot: usize, ticket: usize) {
        let mut list = self.lists[slot].write().unwrap_or_else(PoisonError::into_inner);
        match source.kept.pop_front() {
            Some(kept) => *list = kept,
            None => source.draw(&mut list, self.most),
        }
        list.ticket = Some(ticket);
        source.drawn += 1;
    }
}

impl List {
    fn new(most: usize) -> Self {
        let indices = Vec::with_capacity(most);
        Self { ticket: None, number: 0, first: 0, indices, outcome: Drawn::End }
    }
}

impl FeedState {
    /// Draws the next batch, of at most so many indices.
    fn draw(&mut self, list: &mut List, most: usize) {
        (list.number, list.first) = (self.number, self.position);
        list.indices.clear();
        self.number += 1;
        let more = match &mut self.batches {
            Some(batches) => guarded(|| Ok(batches.next(&mut list.indices))),
            None => Ok(false),
        };
        list.outcome = match more {
            Ok(true) if list.indices.len() > most => Drawn::TooLong(list.indices.len()),
            Ok(true) => Drawn::Batch,
            Ok(false) => Drawn::End,
            Err(Cause::Panic(message)) => Drawn::Failed(message),
            Err(_) => unreachable!("an iterator has no errors but panics"),
        };
        self.position += list.indices.len();
        if !matches!(list.outcome, Drawn::Batch) {
            list.indices.clear();
            // A list that was too long keeps no more than was counted with.
            list.indices.shrink_to(most);
        }
        if matches!(list.outcome, Drawn::End | Drawn::Failed(_)) {
            dispose(self.batches.take());
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("most", &self.most).field("in_order", &self.in_order).finish_non_exhaustive()
    }
}
