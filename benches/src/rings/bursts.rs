//! One producer and one consumer, in bursts of 64 items, with the bulk operations of the peers that
//! have them.

use std::time::Duration;

use disruptor::{BusySpin, Producer as _};
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use slotline_core::spsc;

use super::single::{self, ONE_WAY};
use super::threads::{check, relay};
use super::{Bench, CAPACITY};

const BURST: usize = 64;

pub(super) const BENCH: Bench = Bench {
    name: "spsc, bursts of 64",
    items: 8_000_000,
    peers: &[
        ("slotline", slotline),
        ("rtrb", rtrb),
        ("ringbuf", ringbuf),
        ("disruptor", disruptor::<BURST>),
        ("heapless", single::heapless::<ONE_WAY>),
        ("crossbeam ArrayQueue", single::array_queue::<ONE_WAY>),
        ("crossbeam channel", single::crossbeam_channel::<ONE_WAY>),
        ("kanal", single::kanal::<ONE_WAY>),
        ("flume", single::flume::<ONE_WAY>),
        ("std mpsc", single::std_mpsc::<ONE_WAY>),
    ],
};

fn slotline(items: u64) -> Duration {
    let (mut producer, mut consumer) = spsc::Ring::boxed(CAPACITY, |_| 0_u64).into_split();
    relay(
        items,
        move |next| {
            let Ok(mut chunk) = producer.try_claim_chunk(BURST) else { return 0 };
            let (first, second) = chunk.as_mut_slices();
            fill(next, first);
            fill(next + first.len() as u64, second);
            let len = chunk.len();
            chunk.publish_all();
            len as u64
        },
        move |next| {
            let Ok(chunk) = consumer.try_chunk(CAPACITY) else { return 0 };
            let (first, second) = chunk.as_slices();
            check(next, first) + check(next + first.len() as u64, second)
        },
    )
}

fn rtrb(items: u64) -> Duration {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(CAPACITY);
    relay(
        items,
        move |next| {
            let Ok(mut chunk) = producer.write_chunk(BURST) else { return 0 };
            let (first, second) = chunk.as_mut_slices();
            fill(next, first);
            fill(next + first.len() as u64, second);
            chunk.commit_all();
            BURST as u64
        },
        move |next| {
            let Ok(chunk) = consumer.read_chunk(consumer.slots()) else { return 0 };
            let (first, second) = chunk.as_slices();
            let taken = check(next, first) + check(next + first.len() as u64, second);
            chunk.commit_all();
            taken
        },
    )
}

fn ringbuf(items: u64) -> Duration {
    let (mut producer, mut consumer) = ringbuf::HeapRb::<u64>::new(CAPACITY).split();
    let (mut out, mut back) = ([0; BURST], [0; CAPACITY]);
    relay(
        items,
        move |next| {
            fill(next, &mut out);
            producer.push_slice(&out) as u64
        },
        move |next| {
            let taken = consumer.pop_slice(&mut back);
            check(next, &back[..taken])
        },
    )
}

/// Sends `LEN` items at once, and takes all items that are available.
pub(super) fn disruptor<const LEN: usize>(items: u64) -> Duration {
    let (mut poller, builder) = disruptor::build_single_producer(CAPACITY, || 0_u64, BusySpin).new_event_poller();
    let mut producer = builder.build();
    relay(
        items,
        move |next| {
            if LEN == 1 {
                return producer.try_publish(|event| *event = next).is_ok().into();
            }
            let sent = producer.try_batch_publish(LEN, |events| {
                events.zip(next..).for_each(|(event, number)| *event = number);
            });
            if sent.is_ok() { LEN as u64 } else { 0 }
        },
        move |next| {
            let Ok(mut events) = poller.poll() else { return 0 };
            let events = &mut events;
            let len = events.len() as u64;
            let wrong = events.zip(next..).fold(0, |wrong, (&item, next)| wrong | (item ^ next));
            assert_eq!(wrong, 0);
            len
        },
    )
}

fn fill(next: u64, slots: &mut [u64]) {
    slots.iter_mut().zip(next..).for_each(|(slot, number)| *slot = number);
}
