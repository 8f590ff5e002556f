//! A simple model of an ordered ring: slots, tickets and parts in plain numbers.

use slotline_core::ordered::{ClaimError, Delivery, NextError, OpenError};

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    /// Some parts are claimed.
    Open {
        ticket: usize,
        claimed: usize,
        finished: usize,
        failed: bool,
    },
    Done {
        ticket: usize,
        failed: bool,
    },
    Leased,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) parts: usize,
    pub(super) delivery: Delivery,
    pub(super) places: Vec<Place>,
    /// In order: the slot of the run's first ticket.
    base: usize,
    /// The number of tickets of the run that were begun.
    pub(super) begun: usize,
    /// The number of tickets that the consumer has taken.
    taken: usize,
    limit: Option<usize>,
    pub(super) sealed: bool,
    pub(super) closed: bool,
}

/// A claim: its slot, its ticket, its first part, and the number of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClaimedParts {
    pub(super) slot: usize,
    pub(super) ticket: usize,
    pub(super) part: usize,
    pub(super) count: usize,
}

impl Model {
    pub(super) fn new(depth: usize, parts: usize, delivery: Delivery) -> Self {
        let places = vec![Place::Free; depth];
        Self { parts, delivery, places, base: 0, begun: 0, taken: 0, limit: None, sealed: false, closed: false }
    }

    fn in_order(&self) -> bool {
        self.delivery == Delivery::InOrder
    }

    /// Returns the slot of a ticket, in order.
    fn slot_of(&self, ticket: usize) -> usize {
        (self.base + ticket) % self.places.len()
    }

    /// Returns the ticket and the first unclaimed part of `slot`, if it has one. In order, at most
    /// one slot has unclaimed parts.
    fn left_over(&self, slot: usize) -> Option<(usize, usize)> {
        match self.places[slot] {
            Place::Open { ticket, claimed, .. } if claimed < self.parts => Some((ticket, claimed)),
            _ => None,
        }
    }

    fn any_left_over(&self) -> Option<usize> {
        (0..self.places.len()).find(|&slot| self.left_over(slot).is_some())
    }

    /// Returns whether no more tickets can be begun in this run.
    fn is_over(&self) -> bool {
        self.sealed || self.limit == Some(self.begun)
    }

    /// Returns whether a worker that waits for a run returns immediately.
    pub(super) fn may_run(&self) -> bool {
        self.closed || !self.is_over() || self.any_left_over().is_some()
    }

    /// Returns the reason why nothing can be claimed, or `None` if something can.
    pub(super) fn refusal(&self) -> Option<ClaimError> {
        if self.closed {
            return Some(ClaimError::Closed);
        }
        if self.any_left_over().is_some() {
            return None;
        }
        if self.is_over() {
            return Some(ClaimError::Ended);
        }
        let free = match self.delivery {
            Delivery::InOrder => self.places[self.slot_of(self.begun)] == Place::Free,
            Delivery::Arrival => self.places.contains(&Place::Free),
        };
        (!free).then_some(ClaimError::Full)
    }

    /// Records a claim made by a call for at most `max` parts, and checks that it is possible.
    pub(super) fn claim(&mut self, claim: ClaimedParts, max: usize) {
        assert_eq!(self.refusal(), None, "{claim:?}");
        let ClaimedParts { slot, ticket, part, count } = claim;
        let (expected, first) = match self.left_over(slot) {
            Some(left) => left,
            None => {
                assert!(!self.is_over() && self.any_left_over().is_none(), "{claim:?} leaves parts of another ticket");
                assert_eq!(self.places[slot], Place::Free);
                assert!(!self.in_order() || slot == self.slot_of(self.begun));
                self.begun += 1;
                (self.begun - 1, 0)
            }
        };
        assert_eq!((ticket, part, count), (expected, first, max.min(self.parts - first)));
        let (finished, failed) = match self.places[slot] {
            Place::Open { finished, failed, .. } => (finished, failed),
            _ => (0, false),
        };
        self.places[slot] = Place::Open { ticket, claimed: part + count, finished, failed };
    }

    /// Returns the number of claims made by a call for at most `max` tickets.
    pub(super) fn many(&self, max: usize) -> usize {
        if !self.in_order() {
            return 1;
        }
        let begun = usize::from(self.any_left_over().is_some());
        let left = if self.sealed { 0 } else { self.limit.map_or(usize::MAX, |limit| limit - self.begun) };
        let free = |&ticket: &usize| self.places[self.slot_of(ticket)] == Place::Free;
        let fresh = (self.begun..self.begun + self.places.len()).take_while(free).count().min(left);
        (begun + fresh).min(max)
    }

    /// Returns the next claim of all remaining parts of a ticket, in order.
    pub(super) fn ahead(&self) -> ClaimedParts {
        let (slot, (ticket, part)) = match self.any_left_over() {
            Some(slot) => (slot, self.left_over(slot).expect("parts are left")),
            None => (self.slot_of(self.begun), (self.begun, 0)),
        };
        ClaimedParts { slot, ticket, part, count: self.parts - part }
    }

    /// Records that a claim has ended.
    pub(super) fn finish(&mut self, claim: ClaimedParts, fails: bool) {
        let Place::Open { ticket, claimed, finished, failed } = self.places[claim.slot] else { panic!("{claim:?}") };
        let (finished, failed) = (finished + claim.count, failed | fails);
        self.places[claim.slot] = if finished == self.parts {
            Place::Done { ticket, failed }
        } else {
            Place::Open { ticket, claimed, finished, failed }
        };
    }

    /// Records that a lease has ended.
    pub(super) fn release(&mut self, slot: usize) {
        assert_eq!(self.places[slot], Place::Leased);
        self.places[slot] = Place::Free;
    }

    /// Returns the next finished ticket, if there is one: its slot, its ticket, and whether it failed.
    fn arrived(&self) -> Option<(usize, usize, bool)> {
        let done = self.places.iter().enumerate().filter_map(|(slot, place)| match *place {
            Place::Done { ticket, failed } => Some((ticket, slot, failed)),
            _ => None,
        });
        let next = done.min().filter(|&(ticket, ..)| !self.in_order() || ticket == self.taken);
        next.map(|(ticket, slot, failed)| (slot, ticket, failed))
    }

    /// Returns what [`next`](Self::next) would return.
    pub(super) fn look(&self) -> Result<(usize, usize), NextError> {
        if let Some((slot, ticket, failed)) = self.arrived() {
            return if failed { Err(NextError::Failed { ticket }) } else { Ok((slot, ticket)) };
        }
        let all_taken = self.taken == self.begun && (!self.in_order() || self.any_left_over().is_none());
        let held = match self.delivery {
            Delivery::InOrder => self.places[self.slot_of(self.taken)] == Place::Leased,
            Delivery::Arrival => self.places.iter().all(|place| *place == Place::Leased),
        };
        Err(match (self.closed, all_taken && self.is_over(), held) {
            (true, ..) => NextError::Closed,
            (_, true, _) => NextError::Ended,
            (.., true) => NextError::Held,
            _ => NextError::Empty,
        })
    }

    /// Takes the next ticket, and returns its slot and ticket.
    pub(super) fn next(&mut self) -> Result<(usize, usize), NextError> {
        let outcome = self.look();
        if let Some((slot, ..)) = self.arrived() {
            self.taken += 1;
            self.places[slot] = if outcome.is_ok() { Place::Leased } else { Place::Free };
        }
        outcome
    }

    /// Returns the number of tickets that the consumer could take now.
    pub(super) fn ready(&self) -> usize {
        let done =
            |ticket: usize| matches!(self.places[self.slot_of(ticket)], Place::Done { ticket: it, .. } if it == ticket);
        match self.delivery {
            Delivery::InOrder => (self.taken..).take_while(|&ticket| done(ticket)).count(),
            Delivery::Arrival => self.places.iter().filter(|place| matches!(place, Place::Done { .. })).count(),
        }
    }

    /// Returns whether a consumer that also works can claim parts of the ticket that it waits for.
    pub(super) fn has_work(&self) -> bool {
        match self.delivery {
            Delivery::InOrder => {
                let left = self.any_left_over().and_then(|slot| self.left_over(slot));
                self.begun == self.taken || left.is_some_and(|(ticket, _)| ticket == self.taken)
            }
            Delivery::Arrival => {
                self.any_left_over().is_some() || (!self.is_over() && self.places.contains(&Place::Free))
            }
        }
    }

    pub(super) fn open(&mut self, tickets: Option<usize>) -> Result<(), OpenError> {
        if self.closed {
            return Err(OpenError::Closed);
        }
        if self.look() != Err(NextError::Ended) {
            return Err(OpenError::Busy);
        }
        if tickets.is_some_and(|tickets| tickets > usize::MAX / 2) {
            return Err(OpenError::TooMany);
        }
        self.base = self.slot_of(self.begun);
        (self.begun, self.taken, self.limit, self.sealed) = (0, 0, tickets, tickets == Some(0));
        Ok(())
    }
}
