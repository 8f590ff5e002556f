//! Models of the single-producer ring.

use std::sync::Arc;

use loom::thread;
use slotline_core::spsc::{ClaimError, Consumer, NextError, Producer, Ring, Slot};

use super::support::{Parking, explore};

type Model<T> = Ring<Box<[Slot<T>]>, Parking>;
type Sides<T> = (Producer<Arc<Model<T>>>, Consumer<Arc<Model<T>>>);

/// Numbers start just before their wrap.
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

/// Publish against the consumer's sleep, release against the producer's, the wrap of slots and numbers, and the end.
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
fn chunks_go_across_the_end_of_the_ring_in_order() {
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

/// No parking: the try forms only, so that the positions' own orderings are all that counts.
#[test]
fn items_that_are_polled_for_arrive_in_order() {
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

/// The last side to leave starts the ring anew; whoever takes a side then finds it as new.
#[test]
fn a_ring_that_both_sides_left_can_be_taken_anew() {
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

/// Every value is dropped once, whoever of the two drops the ring.
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
