//! Target for the single-producer ring: operations of both sides in any order, compared with a
//! simple model.

use std::collections::VecDeque;

use slotline_core::spsc::{ClaimError, Consumer, NextError, Producer, Ring, Slot};
use slotline_core::wait::Spin;

use crate::choices::Choices;
use crate::ordered::Now;

type TheRing = Ring<Box<[Slot<u32>]>, Spin>;

/// Runs the operations that `data` encodes on a small ring, also where its item numbers wrap to 0.
/// Checks that each operation returns what the model returns.
pub fn spsc(data: &[u8]) {
    let mut choices = Choices::new(data);
    let capacity = choices.within(1, 6);
    let start = 0_usize.wrapping_sub(choices.below(12));
    let slots: Box<[Slot<u32>]> = (0..capacity as u32).map(Slot::new).collect();
    let ring = Ring::starting_at(slots, Spin, Spin, start);
    let mut run = Run {
        ring: &ring,
        producer: None,
        consumer: None,
        values: (0..capacity as u32).collect(),
        items: VecDeque::new(),
        number: start,
        at: start % capacity,
        taken: [false; 2],
        dropped: [false; 2],
        closed: false,
        late: [0; 2],
        stamp: 1000,
    };
    while !choices.is_over() {
        match choices.below(14) {
            0 => run.take(choices.one_in(2)),
            1..6 => run.produce(&mut choices),
            6..11 => run.consume(&mut choices),
            11 => run.look(),
            12 if choices.one_in(3) => {
                ring.close();
                run.closed = true;
            }
            12 => {}
            _ => run.leave(choices.one_in(2)),
        }
    }
}

/// The ring with its producer and consumer, and the expected content. In each array of two, the
/// first element is the producer's and the second the consumer's.
struct Run<'a> {
    ring: &'a TheRing,
    producer: Option<Producer<&'a TheRing>>,
    consumer: Option<Consumer<&'a TheRing>>,
    /// The value in each slot.
    values: Vec<u32>,
    /// The items that were published and not released yet.
    items: VecDeque<u32>,
    /// The number of the next item to be released.
    number: usize,
    /// The slot of the item `number`.
    at: usize,
    taken: [bool; 2],
    dropped: [bool; 2],
    closed: bool,
    /// The number of slots that the producer has filled since the ring was closed or the consumer
    /// was dropped, and the number of items that the consumer has read since the ring was closed.
    late: [usize; 2],
    stamp: u32,
}

impl<'a> Run<'a> {
    fn capacity(&self) -> usize {
        self.values.len()
    }

    fn slot(&self, ahead: usize) -> usize {
        (self.at + ahead) % self.capacity()
    }

    fn take(&mut self, consumer: bool) {
        let side = usize::from(consumer);
        let free = !std::mem::replace(&mut self.taken[side], true);
        if consumer {
            let new = self.ring.consumer();
            assert_eq!(new.is_some(), free);
            self.consumer = new.or(self.consumer.take());
        } else {
            let new = self.ring.producer();
            assert_eq!(new.is_some(), free);
            self.producer = new.or(self.producer.take());
        }
    }

    /// Drops a side. After both were dropped, the ring is as new, except for the values in its
    /// slots.
    fn leave(&mut self, consumer: bool) {
        let left = if consumer { self.consumer.take().is_some() } else { self.producer.take().is_some() };
        self.dropped[usize::from(consumer)] |= left;
        if self.dropped == [true; 2] {
            (self.taken, self.dropped, self.closed, self.late) = ([false; 2], [false; 2], false, [0; 2]);
            (self.number, self.at) = (0, 0);
            self.items.clear();
        }
    }

    /// Checks a result of the producer: the number of claimed slots, or an error.
    fn check_claim(&mut self, outcome: Result<usize, ClaimError>, max: usize) {
        let free = self.capacity() - self.items.len();
        let ended = self.closed || self.dropped[1];
        match outcome {
            Ok(len) if ended => assert!(len <= free.min(max)),
            Ok(len) => assert_eq!(len, free.min(max)),
            Err(ClaimError::Closed) => assert!(ended),
            Err(ClaimError::Full) => assert!(free == 0 && !ended && max > 0),
        }
    }

    /// Checks a result of the consumer, as [`check_claim`](Self::check_claim) does for the producer.
    fn check_next(&mut self, outcome: Result<usize, NextError>, max: usize) {
        let ready = self.items.len();
        match outcome {
            Ok(len) if self.closed => assert!(len <= ready.min(max)),
            Ok(len) => assert_eq!(len, ready.min(max)),
            Err(NextError::Closed) => assert!(self.closed),
            Err(NextError::Ended) => assert!(ready == 0 && self.dropped[0] && !self.closed && max > 0),
            Err(NextError::Empty) => assert!(ready == 0 && !self.dropped[0] && !self.closed && max > 0),
        }
    }

    fn publish(&mut self, written: &[u32]) {
        for (i, &value) in written.iter().enumerate() {
            let slot = self.slot(self.items.len());
            self.values[slot] = value;
            self.items.push_back(value);
            self.late[0] += usize::from(self.closed || self.dropped[1]);
            assert!(self.late[0] <= self.capacity(), "item {i} after the end");
        }
    }

    fn release(&mut self, n: usize) {
        self.items.drain(..n);
        (self.number, self.at) = (self.number.wrapping_add(n), self.slot(n));
        self.late[1] += if self.closed { n } else { 0 };
        assert!(self.late[1] <= self.capacity());
    }

    fn produce(&mut self, choices: &mut Choices<'_>) {
        let Some(mut producer) = self.producer.take() else { return };
        let next = self.number.wrapping_add(self.items.len());
        let held = self.values[self.slot(self.items.len())];
        self.stamp += 10;
        match choices.below(3) {
            0 => {
                let claim = if choices.one_in(2) { producer.claim_until(&Now) } else { producer.try_claim() };
                self.check_claim(claim.as_ref().map(|_| 1).map_err(|&error| error), 1);
                if let Ok(mut claim) = claim {
                    assert_eq!((claim.ticket(), *claim), (next, held));
                    *claim = self.stamp;
                    if choices.one_in(4) {
                        drop(claim);
                        let slot = self.slot(self.items.len());
                        self.values[slot] = self.stamp;
                    } else {
                        claim.publish();
                        self.publish(&[self.stamp]);
                    }
                }
            }
            1 => {
                let pushed = producer.try_push(self.stamp);
                self.check_claim(pushed.map(|()| 1).map_err(|error| error.reason), 1);
                if pushed.is_ok() {
                    self.publish(&[self.stamp]);
                }
            }
            _ => {
                let max = choices.below(self.capacity() + 2);
                let chunk = if choices.one_in(2) {
                    producer.claim_chunk_until(max, &Now)
                } else {
                    producer.try_claim_chunk(max)
                };
                self.check_claim(chunk.as_ref().map(|chunk| chunk.len()).map_err(|&error| error), max);
                if let Ok(mut chunk) = chunk {
                    assert_eq!(chunk.ticket(), next);
                    let (first, second) = chunk.as_mut_slices();
                    let mut written = Vec::new();
                    for (i, place) in first.iter_mut().chain(second).enumerate() {
                        let slot = (self.at + self.items.len() + i) % self.values.len();
                        assert_eq!(*place, self.values[slot]);
                        *place = self.stamp + i as u32;
                        self.values[slot] = *place;
                        written.push(*place);
                    }
                    let n = choices.within(0, chunk.len());
                    if choices.one_in(2) {
                        chunk.publish_all();
                    } else {
                        chunk.publish(n);
                        written.truncate(n);
                    }
                    self.publish(&written);
                }
            }
        }
        self.producer = Some(producer);
    }

    fn consume(&mut self, choices: &mut Choices<'_>) {
        let Some(mut consumer) = self.consumer.take() else { return };
        match choices.below(3) {
            0 => {
                let lease = if choices.one_in(2) { consumer.next_until(&Now) } else { consumer.try_next() };
                self.check_next(lease.as_ref().map(|_| 1).map_err(|&error| error), 1);
                if let Ok(mut lease) = lease {
                    assert_eq!((lease.ticket(), *lease), (self.number, self.items[0]));
                    self.stamp += 10;
                    (*lease, self.values[self.at]) = (self.stamp, self.stamp);
                    lease.release();
                    self.release(1);
                }
            }
            1 => {
                let peek = if choices.one_in(2) { consumer.peek_until(&Now) } else { consumer.peek() }.copied();
                self.check_next(peek.map(|_| 1), 1);
                if let Ok(item) = peek {
                    assert_eq!(item, self.items[0]);
                }
            }
            _ => {
                let max = choices.below(self.capacity() + 2);
                let chunk = if choices.one_in(2) { consumer.chunk_until(max, &Now) } else { consumer.try_chunk(max) };
                self.check_next(chunk.as_ref().map(|chunk| chunk.len()).map_err(|&error| error), max);
                if let Ok(chunk) = chunk {
                    assert_eq!(chunk.ticket(), self.number);
                    let (first, second) = chunk.as_slices();
                    assert!(first.iter().chain(second).eq(self.items.iter().take(chunk.len())));
                    let (len, n) = (chunk.len(), choices.within(0, chunk.len()));
                    if choices.one_in(2) {
                        drop(chunk);
                        self.release(len);
                    } else {
                        chunk.release(n);
                        self.release(n);
                    }
                }
            }
        }
        self.consumer = Some(consumer);
    }

    fn look(&mut self) {
        if let Some(producer) = &self.producer {
            assert_eq!(producer.ticket(), self.number.wrapping_add(self.items.len()));
            assert_eq!(producer.free(), self.capacity() - self.items.len());
            assert_eq!(producer.is_closed(), self.closed || self.dropped[1]);
        }
        if let Some(consumer) = &self.consumer {
            assert_eq!((consumer.ticket(), consumer.ready()), (self.number, self.items.len()));
            assert_eq!(consumer.is_ended(), self.closed || self.dropped[0]);
        }
    }
}
