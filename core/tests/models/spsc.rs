//! Models of the single-producer ring.

use std::cell::Cell;
use std::sync::Arc;

use loom::thread;
use slotline_core::spsc::{ClaimError, Consumer, NextError, Producer, Ring, Slot};
use slotline_core::wait::{Never, Wait};

use super::support::{Looks, Note, Parking, explore};

type Model<T> = Ring<Box<[Slot<T>]>, Parking>;
type Sides<T> = (Producer<Arc<Model<T>>>, Consumer<Arc<Model<T>>>);

/// The first item number, just before the numbers wrap.
const START: usize = usize::MAX;

fn sides(capacity: usize) -> Sides<usize> {
    let slots = (0..capacity).map(|_| Slot::new(usize::MAX)).collect();
    Ring::starting_at(slots, Parking::default(), Parking::default(), START).into_split()
}

fn take_in_order(consumer: &mut Consumer<Arc<Model<usize>>>, from: usize) -> usize {
    for i in from.. {
        match consumer.next() {
            Ok(item) => assert_eq!((item.ticket(), *item), (START.wrapping_add(i), i)),
            Err(error) => {
                assert_eq!(error, NextError::Ended);
                return i;
            }
        }
    }
    unreachable!()
}

/// Checks publishing while the consumer goes to sleep, releasing while the producer goes to sleep,
/// the wrap of slots and numbers, and the end.
fn blocking(capacity: usize, items: usize) {
    explore(2, move || {
        let (mut producer, mut consumer) = sides(capacity);
        let writer = thread::spawn(move || (0..items).for_each(|i| producer.push(i).unwrap()));
        assert_eq!(take_in_order(&mut consumer, 0), items);
        writer.join().unwrap();
    });
}

#[test]
fn three_items_go_through_one_slot_in_order() {
    blocking(1, 3);
}

#[test]
fn four_items_go_through_two_slots_in_order() {
    blocking(2, 4);
}

#[test]
fn four_items_go_through_three_slots_in_order() {
    blocking(3, 4);
}

#[test]
fn chunks_wrap_around_the_ring_in_order() {
    explore(2, || {
        let (mut producer, mut consumer) = sides(3);
        let writer = thread::spawn(move || {
            let mut i = 0;
            while i < 5 {
                let mut chunk = producer.claim_chunk(2.min(5 - i)).unwrap();
                let (first, second) = chunk.as_mut_slices();
                first.iter_mut().chain(second).zip(i..).for_each(|(slot, value)| *slot = value);
                i += chunk.len();
                chunk.publish_all();
            }
        });
        let mut i = 0;
        loop {
            match consumer.chunk(2) {
                Ok(chunk) => {
                    let (first, second) = chunk.as_slices();
                    first.iter().chain(second).zip(i..).for_each(|(&value, expected)| assert_eq!(value, expected));
                    i += chunk.len();
                }
                Err(error) => break assert_eq!(error, NextError::Ended),
            }
        }
        assert_eq!(i, 5);
        writer.join().unwrap();
    });
}

/// Only the `try_` methods, without parking, so that the model depends only on the orderings of the
/// positions.
#[test]
fn polled_items_arrive_in_order() {
    explore(3, || {
        let (mut producer, mut consumer) = sides(2);
        let writer = thread::spawn(move || {
            let written = (0..3).take_while(|&i| producer.try_push(i).is_ok()).count();
            assert!(written >= 2);
            written
        });
        let mut seen = 0;
        let end = loop {
            match consumer.try_next() {
                Ok(item) => {
                    assert_eq!(*item, seen);
                    seen += 1;
                }
                Err(NextError::Empty) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!((end, seen), (NextError::Ended, writer.join().unwrap()));
    });
}

#[test]
fn a_dropped_consumer_wakes_the_producer() {
    explore(3, || {
        let (mut producer, mut consumer) = sides(1);
        let writer = thread::spawn(move || {
            let error = (0..).find_map(|i| producer.push(i).err()).unwrap();
            assert!(error.value <= 2);
            error.reason
        });
        assert_eq!(*consumer.next().unwrap(), 0);
        drop(consumer);
        assert_eq!(writer.join().unwrap(), ClaimError::Closed);
    });
}

#[test]
fn a_dropped_producer_wakes_the_consumer() {
    explore(3, || {
        let (mut producer, mut consumer) = sides(2);
        let reader = thread::spawn(move || take_in_order(&mut consumer, 0));
        producer.try_push(0).unwrap();
        drop(producer);
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn closing_wakes_the_consumer() {
    explore(3, || {
        let (producer, mut consumer) = sides(1);
        let reader = thread::spawn(move || consumer.next().unwrap_err());
        producer.close();
        assert_eq!(reader.join().unwrap(), NextError::Closed);
    });
}

#[test]
fn closing_wakes_the_producer() {
    explore(3, || {
        let (mut producer, consumer) = sides(1);
        producer.try_push(0).unwrap();
        let writer = thread::spawn(move || producer.push(1).unwrap_err().reason);
        consumer.close();
        assert_eq!(writer.join().unwrap(), ClaimError::Closed);
    });
}

/// When both sides were dropped, the ring is restarted. A side that is taken after that finds the
/// ring in its initial state.
#[test]
fn a_ring_that_both_sides_left_can_be_taken_again() {
    explore(3, || {
        let ring: Arc<Model<usize>> =
            Arc::new(Ring::with_wait([Slot::new(9)].into(), Parking::default(), Parking::default()));
        let (mut producer, consumer) = (Producer::new(ring.clone()).unwrap(), Consumer::new(ring.clone()).unwrap());
        let writer = thread::spawn(move || {
            _ = producer.try_push(7);
        });
        drop(consumer);
        if let Some(mut consumer) = Consumer::new(ring.clone()) {
            let mut producer = Producer::new(ring).unwrap();
            assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
            let mut claim = producer.try_claim().unwrap();
            assert!(claim.ticket() == 0 && (*claim == 7 || *claim == 9));
            *claim = 1;
            claim.publish();
            assert_eq!(*consumer.try_next().unwrap(), 1);
        }
        writer.join().unwrap();
    });
}

/// Every value is dropped once, regardless of which side drops the ring.
#[test]
fn values_are_dropped_once_each() {
    explore(3, || {
        let count = Arc::new(());
        let slots = (0..2).map(|_| Slot::new(count.clone())).collect();
        let ring: Model<_> = Ring::with_wait(slots, Parking::default(), Parking::default());
        let (mut producer, mut consumer) = ring.into_split();
        let value = count.clone();
        let writer = thread::spawn(move || _ = producer.try_push(value));
        _ = consumer.try_next().map(|item| assert_eq!(Arc::strong_count(&item), 3));
        drop(consumer);
        writer.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1);
    });
}

/// When `is_ended` returns `true`, the last item is counted as ready.
#[test]
fn is_ended_implies_that_all_items_are_counted() {
    explore(4, || {
        let (mut producer, consumer) = sides(2);
        let reader = thread::spawn(move || {
            while !consumer.is_ended() {
                thread::yield_now();
            }
            assert_eq!(consumer.ready(), 1);
        });
        producer.try_push(0).unwrap();
        drop(producer);
        reader.join().unwrap();
    });
}

/// A side that gets the end, as an error, sees everything that was written before the end was
/// caused.
#[test]
fn a_producer_that_gets_the_end_sees_earlier_writes() {
    for closes in [false, true] {
        explore(4, move || {
            let (mut producer, consumer) = sides(2);
            let note = Note::default();
            let other = note.clone();
            let ender = thread::spawn(move || {
                other.write(1);
                if closes { consumer.close() } else { drop(consumer) }
            });
            if producer.try_claim().is_err() {
                assert_eq!(note.read(), 1);
            }
            ender.join().unwrap();
        });
    }
}

/// Like the previous model, for the consumer.
#[test]
fn a_consumer_that_gets_the_end_sees_earlier_writes() {
    for closes in [false, true] {
        explore(4, move || {
            let (producer, mut consumer) = sides(2);
            let note = Note::default();
            let other = note.clone();
            let ender = thread::spawn(move || {
                other.write(1);
                if closes { producer.close() } else { drop(producer) }
            });
            if !matches!(consumer.try_next(), Err(NextError::Empty)) {
                assert_eq!(note.read(), 1);
            }
            ender.join().unwrap();
        });
    }
}

/// The producer publishes only a part of a claimed chunk, and the consumer releases only a part of
/// a leased one.
#[test]
fn the_rest_of_a_chunk_is_returned_again() {
    explore(2, || {
        let (mut producer, mut consumer) = sides(2);
        let writer = thread::spawn(move || {
            for i in 0..3 {
                let mut chunk = producer.claim_chunk(2).unwrap();
                chunk.as_mut_slices().0[0] = i;
                chunk.publish(1);
            }
        });
        for i in 0..3 {
            let chunk = consumer.chunk(2).unwrap();
            assert_eq!(chunk.as_slices().0[0], i);
            chunk.release(1);
        }
        assert_eq!(consumer.chunk(2).unwrap_err(), NextError::Ended);
        writer.join().unwrap();
    });
}

#[test]
fn waits_that_time_out_lose_nothing() {
    explore(2, || {
        let (mut producer, mut consumer) = sides(1);
        let writer = thread::spawn(move || {
            for i in 0..2 {
                if let Err(error) = producer.push_until(i, &Looks(Cell::new(2))) {
                    assert_eq!((error.value, error.reason), (i, ClaimError::Full));
                    producer.push(i).unwrap();
                }
            }
        });
        for i in 0..2 {
            if let Ok(item) = consumer.peek_until(&Looks(Cell::new(2))) {
                assert_eq!(*item, i);
            }
            assert_eq!(*consumer.next().unwrap(), i);
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        writer.join().unwrap();
    });
}

/// One consumer of two rings waits for an item from either.
#[test]
fn two_rings_share_one_waiter() {
    explore(2, || {
        let any = Arc::new(Parking::default());
        let (producers, mut consumers): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| Ring::with_wait([Slot::new(usize::MAX)], any.clone(), Arc::new(Parking::default())).into_split())
            .unzip();
        let write = |(i, mut producer): (usize, Producer<_>)| thread::spawn(move || producer.try_push(i).unwrap());
        let writers: Vec<_> = producers.into_iter().enumerate().map(write).collect();
        let mut left = vec![0, 1];
        while !left.is_empty() {
            assert!(any.wait_until(&Never, || left.iter().any(|&i| consumers[i].ready() > 0)));
            left.retain(|&i| match consumers[i].try_next() {
                Ok(item) => {
                    assert_eq!(*item, i);
                    false
                }
                Err(error) => {
                    assert_eq!(error, NextError::Empty);
                    true
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}
