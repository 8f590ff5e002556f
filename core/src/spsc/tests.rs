//! Tests of everything about the ring that a single thread can observe.

use std::boxed::Box;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use super::*;
use crate::wait::{Backoff, Deadline};

/// A deadline that passes after a number of checks.
struct Looks(Cell<u32>);

impl Deadline for Looks {
    fn remaining(&self) -> Duration {
        let left = self.0.get().saturating_sub(1);
        self.0.set(left);
        Duration::from_secs(left.into())
    }
}

fn near_the_wrap(capacity: usize, before: usize) -> Ring<Box<[Slot<usize>]>> {
    Ring::starting_at((0..capacity).map(Slot::new).collect(), Backoff, Backoff, usize::MAX - before)
}

fn drain<T: Clone>(chunk: &LeaseChunk<'_, impl crate::handle::Handle<Target: AnyRing<Item = T>>>) -> Vec<T> {
    let (first, second) = chunk.as_slices();
    [first, second].concat()
}

#[test]
fn slots_are_taken_in_turn_for_any_capacity() {
    for capacity in 1..=7 {
        let (mut producer, mut consumer) = Ring::boxed(capacity, |slot| slot).into_split();
        for number in 0..3 * capacity {
            let claim = producer.try_claim().unwrap();
            assert_eq!((claim.ticket(), *claim), (number, number % capacity));
            claim.publish();
            let lease = consumer.try_next().unwrap();
            assert_eq!((lease.ticket(), *lease), (number, number % capacity));
        }
    }
}

#[test]
fn a_full_ring_refuses_claims_and_an_empty_one_has_no_items() {
    let (mut producer, mut consumer) = Ring::boxed(2, |_| 0).into_split();
    assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
    assert_eq!(consumer.peek().unwrap_err(), NextError::Empty);
    producer.try_push(1).unwrap();
    producer.try_push(2).unwrap();
    assert_eq!(producer.try_push(3), Err(PushError { value: 3, reason: ClaimError::Full }));
    assert_eq!(producer.try_claim().unwrap_err(), ClaimError::Full);
    assert_eq!((producer.free(), consumer.ready()), (0, 2));
    assert_eq!(*consumer.peek().unwrap(), 1);
    consumer.try_next().unwrap().release();
    assert_eq!((producer.free(), consumer.ready()), (1, 1));
    producer.try_push(3).unwrap();
    assert_eq!(drain(&consumer.try_chunk(9).unwrap()), [2, 3]);
}

#[test]
fn unpublished_claims_and_leaked_leases_are_returned_again() {
    let (mut producer, mut consumer) = Ring::boxed(3, |_| 0).into_split();
    *producer.try_claim().unwrap() = 7;
    let claim = producer.try_claim().unwrap();
    assert_eq!((claim.ticket(), *claim), (0, 7));
    claim.publish();
    std::mem::forget(consumer.try_next().unwrap());
    std::mem::forget(consumer.try_chunk(1).unwrap());
    assert_eq!(*consumer.try_next().unwrap(), 7);
}

#[test]
fn the_producer_finds_what_the_consumer_wrote() {
    let (mut producer, mut consumer) = Ring::boxed(1, |_| 0).into_split();
    producer.try_push(1).unwrap();
    *consumer.try_next().unwrap() = 5;
    assert_eq!(*producer.try_claim().unwrap(), 5);
}

#[test]
fn chunks_can_be_published_and_released_in_part() {
    let mut ring = Ring::new([const { Slot::new(0) }; 5]);
    let (mut producer, mut consumer) = ring.split();
    let mut chunk = producer.try_claim_chunk(4).unwrap();
    chunk.as_mut_slices().0.copy_from_slice(&[1, 2, 3, 4]);
    chunk.publish(3);
    assert_eq!(producer.try_claim_chunk(0).unwrap().len(), 0);
    let chunk = consumer.try_chunk(9).unwrap();
    assert_eq!((chunk.ticket(), drain(&chunk)), (0, vec![1, 2, 3]));
    chunk.release(2);
    let mut chunk = producer.try_claim_chunk(9).unwrap();
    assert_eq!((chunk.ticket(), chunk.len()), (3, 4));
    let (first, second) = chunk.as_mut_slices();
    assert_eq!((&*first, &*second), (&[4, 0][..], &[1, 2][..]));
    second[1] = 8;
    chunk.publish_all();
    assert_eq!(drain(&consumer.try_chunk(9).unwrap()), [3, 4, 0, 1, 8]);
}

#[test]
#[should_panic(expected = "cannot publish 3 items of a chunk of 2")]
fn publishing_more_than_was_claimed_panics() {
    let (mut producer, _consumer) = Ring::boxed(2, |_| 0).into_split();
    producer.try_claim_chunk(9).unwrap().publish(3);
}

#[test]
#[should_panic(expected = "cannot release 2 items of a chunk of 1")]
fn releasing_more_than_was_leased_panics() {
    let (mut producer, mut consumer) = Ring::boxed(2, |_| 0).into_split();
    producer.try_push(1).unwrap();
    consumer.try_chunk(9).unwrap().release(2);
}

#[test]
#[should_panic(expected = "at least one slot")]
fn a_ring_without_slots_panics() {
    Ring::new(&mut [] as &mut [Slot<u8>]).producer();
}

#[test]
fn a_deadline_ends_each_kind_of_wait() {
    let (mut producer, mut consumer) = Ring::boxed(1, |_| 0).into_split();
    let soon = || Looks(Cell::new(3));
    assert_eq!(consumer.next_until(&soon()).unwrap_err(), NextError::Empty);
    assert_eq!(consumer.chunk_until(2, &soon()).unwrap_err(), NextError::Empty);
    producer.push_until(1, &soon()).unwrap();
    assert_eq!(producer.claim_until(&soon()).unwrap_err(), ClaimError::Full);
    assert_eq!(producer.claim_chunk_until(2, &soon()).unwrap_err(), ClaimError::Full);
    assert_eq!(producer.push_until(2, &soon()).unwrap_err().value, 2);
    assert_eq!(*consumer.next_until(&soon()).unwrap(), 1);
}

#[test]
fn the_items_of_a_finished_producer_come_before_the_end() {
    let (mut producer, mut consumer) = Ring::boxed(4, |_| 0).into_split();
    producer.try_push(1).unwrap();
    producer.try_push(2).unwrap();
    producer.finish();
    assert!(consumer.is_ended());
    assert_eq!(*consumer.next().unwrap(), 1);
    assert_eq!(*consumer.next().unwrap(), 2);
    assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
    assert_eq!(consumer.chunk(3).unwrap_err(), NextError::Ended);
}

#[test]
fn a_dropped_consumer_closes_the_ring_for_the_producer() {
    let (mut producer, consumer) = Ring::boxed(4, |_| 0).into_split();
    drop(consumer);
    assert!(producer.is_closed());
    assert_eq!(producer.push(1).unwrap_err(), PushError { value: 1, reason: ClaimError::Closed });
    assert_eq!(producer.claim_chunk(2).unwrap_err(), ClaimError::Closed);
}

#[test]
fn closing_ends_both_sides_after_the_items_they_know_of() {
    let (mut producer, mut consumer) = Ring::boxed(2, |_| 0).into_split();
    let claim = producer.try_claim().unwrap();
    consumer.close();
    claim.publish();
    producer.push(2).unwrap();
    assert_eq!(producer.claim().unwrap_err(), ClaimError::Closed);
    assert_eq!(consumer.next().unwrap_err(), NextError::Closed, "items are left, but the consumer knew of none");
    assert_eq!(consumer.peek().unwrap_err(), NextError::Closed);
    assert!(producer.is_closed() && consumer.is_ended());
}

#[test]
fn each_side_is_taken_once_until_both_are_dropped() {
    static RING: Ring<[Slot<u8>; 3]> = Ring::new([const { Slot::new(0) }; 3]);
    for _ in 0..3 {
        let mut producer = RING.producer().unwrap();
        assert!(RING.producer().is_none());
        producer.try_push(1).unwrap();
        drop(producer);
        assert!(RING.producer().is_none(), "its items have not been read yet");
        let mut consumer = RING.consumer().unwrap();
        assert!(RING.consumer().is_none());
        assert_eq!(consumer.ticket(), 0);
        assert_eq!(*consumer.try_next().unwrap(), 1);
        RING.close();
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Closed);
    }
    let ring = Arc::new(Ring::boxed(1, |_| 0));
    let side = Producer::new(Arc::clone(&ring));
    assert!(side.is_some() && Producer::new(Arc::clone(&ring)).is_none() && ring.producer().is_none());
}

#[test]
fn split_restarts_a_ring_with_leaked_sides() {
    let mut slots = [0, 0].map(Slot::new);
    let mut ring = Ring::with_wait(&mut slots[..], Backoff, Backoff);
    let (mut producer, consumer) = ring.split();
    producer.try_push(5).unwrap();
    std::mem::forget((producer, consumer));
    assert!(ring.producer().is_none());
    let (mut producer, mut consumer) = ring.split();
    assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
    assert_eq!(*producer.try_claim().unwrap(), 5);
    drop((producer, consumer));
    assert_eq!(*slots[0].get_mut(), 5);
}

#[test]
fn numbers_wrap_and_slots_continue_in_turn() {
    for capacity in [1, 2, 3, 5, 8] {
        for before in 0..2 * capacity {
            let start = usize::MAX - before;
            let (mut producer, mut consumer) = near_the_wrap(capacity, before).into_split();
            for i in 0..5 * capacity {
                while producer.try_push(i + producer.free()).is_ok() {}
                assert_eq!((producer.free(), consumer.ready()), (0, capacity));
                assert_eq!(producer.ticket(), start.wrapping_add(i + capacity));
                let lease = consumer.try_next().unwrap();
                assert_eq!(lease.ticket(), start.wrapping_add(i));
            }
        }
    }
}

#[test]
fn values_are_dropped_once_each() {
    let count = Arc::new(());
    let (mut producer, mut consumer) = Ring::boxed(3, |_| Some(Arc::clone(&count))).into_split();
    assert_eq!(Arc::strong_count(&count), 4);
    for _ in 0..5 {
        producer.try_push(Some(Arc::clone(&count))).unwrap();
        assert_eq!(Arc::strong_count(&count), 4, "the value that was in the slot is dropped");
        drop(consumer.try_next().unwrap());
    }
    *producer.try_claim().unwrap() = None;
    assert_eq!(Arc::strong_count(&count), 3);
    drop((producer, consumer));
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn zero_sized_items_are_counted() {
    let (mut producer, mut consumer) = Ring::boxed(3, |_| ()).into_split();
    assert_eq!(producer.try_claim_chunk(9).unwrap().len(), 3);
    producer.try_push(()).unwrap();
    assert_eq!(consumer.try_chunk(9).unwrap().len(), 1);
}

/// Performs random operations on a ring and on a queue, which must agree.
#[test]
fn random_operations_agree_with_a_queue() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for round in 0..200 {
        let capacity = 1 + random(9);
        let (mut producer, mut consumer) = near_the_wrap(capacity, round).into_split();
        let mut queue = VecDeque::new();
        for i in 0..300 {
            let n = random(capacity + 2);
            match random(6) {
                0 | 1 => assert_eq!(
                    producer.try_push(i).is_ok(),
                    queue.len() < capacity && {
                        queue.push_back(i);
                        true
                    }
                ),
                2 => match producer.try_claim_chunk(n) {
                    Ok(mut chunk) => {
                        assert_eq!(chunk.len(), n.min(capacity - queue.len()));
                        let (first, second) = chunk.as_mut_slices();
                        first.iter_mut().chain(second).zip(i..).for_each(|(slot, value)| *slot = value);
                        let published = random(chunk.len() + 1);
                        queue.extend(i..i + published);
                        chunk.publish(published);
                    }
                    Err(error) => assert_eq!((error, queue.len()), (ClaimError::Full, capacity)),
                },
                3 | 4 => assert_eq!(consumer.try_next().ok().map(|item| *item), queue.pop_front()),
                _ => match consumer.try_chunk(n) {
                    Ok(chunk) => {
                        assert_eq!(drain(&chunk), queue.iter().copied().take(n).collect::<Vec<_>>());
                        let released = random(chunk.len() + 1);
                        queue.drain(..released);
                        chunk.release(released);
                    }
                    Err(error) => assert_eq!((error, queue.len()), (NextError::Empty, 0)),
                },
            }
            assert_eq!((consumer.ready(), producer.free()), (queue.len(), capacity - queue.len()));
            assert_eq!(consumer.peek().ok(), queue.front());
        }
    }
}

#[test]
fn sides_and_guards_are_send_and_sync_as_their_items_allow() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    type Handle<T> = Arc<Ring<Box<[Slot<T>]>>>;
    // Items that are only `Send`. (The docs of `Slot`'s `Sync` and of `Lease`'s field show what
    // must not compile.)
    send::<Producer<Handle<Cell<u8>>>>();
    send::<Consumer<Handle<Cell<u8>>>>();
    send::<Claim<'_, Handle<Cell<u8>>>>();
    send::<LeaseChunk<'_, Handle<Cell<u8>>>>();
    sync::<Ring<[Slot<Cell<u8>>; 2]>>();
    sync::<Lease<'_, Handle<u8>>>();
}
