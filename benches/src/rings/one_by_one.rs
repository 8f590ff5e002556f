//! One producer and one consumer, item by item.

use std::sync::mpsc;
use std::time::Duration;

use disruptor::{BusySpin, Polling, Producer as _};
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use slotline_core::spsc;

use super::threads::relay;
use super::{Bench, CAPACITY};

pub(super) const BENCH: Bench = Bench {
    name: "spsc, one by one",
    items: 2_000_000,
    peers: &[
        ("slotline", slotline),
        ("rtrb", rtrb),
        ("ringbuf", ringbuf),
        ("disruptor", disruptor),
        ("heapless", heapless),
        ("crossbeam ArrayQueue", array_queue),
        ("crossbeam channel", crossbeam_channel),
        ("kanal", kanal),
        ("flume", flume),
        ("std mpsc", std_mpsc),
    ],
};

fn slotline(items: u64) -> Duration {
    let (mut producer, mut consumer) = spsc::Ring::boxed(CAPACITY, |_| 0_u64).into_split();
    relay(
        items,
        move |number, _| producer.push(number).is_ok().into(),
        move |next| consumer.next().map_or(0, |item| arrived(next, *item)),
    )
}

fn rtrb(items: u64) -> Duration {
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(CAPACITY);
    relay(
        items,
        move |number, _| producer.push(number).is_ok().into(),
        move |next| consumer.pop().map_or(0, |item| arrived(next, item)),
    )
}

fn ringbuf(items: u64) -> Duration {
    let (mut producer, mut consumer) = ringbuf::HeapRb::new(CAPACITY).split();
    relay(
        items,
        move |number, _| producer.try_push(number).is_ok().into(),
        move |next| consumer.try_pop().map_or(0, |item| arrived(next, item)),
    )
}

fn disruptor(items: u64) -> Duration {
    let (mut poller, builder) = disruptor::build_single_producer(CAPACITY, || 0_u64, BusySpin).new_event_poller();
    let mut producer = builder.build();
    relay(
        items,
        move |number, _| producer.try_publish(|event| *event = number).is_ok().into(),
        move |next| match poller.poll() {
            Ok(mut events) => (&mut events).zip(next..).map(|(&item, next)| arrived(next, item)).sum(),
            Err(Polling::NoEvents | Polling::Shutdown) => 0,
        },
    )
}

pub(super) fn heapless(items: u64) -> Duration {
    let mut queue = Box::new(heapless::spsc::Queue::<u64, CAPACITY>::new());
    let (mut producer, mut consumer) = queue.split();
    relay(
        items,
        move |number, _| producer.enqueue(number).is_ok().into(),
        move |next| consumer.dequeue().map_or(0, |item| arrived(next, item)),
    )
}

pub(super) fn array_queue(items: u64) -> Duration {
    let queue = &crossbeam_queue::ArrayQueue::new(CAPACITY);
    relay(
        items,
        move |number, _| queue.push(number).is_ok().into(),
        move |next| queue.pop().map_or(0, |item| arrived(next, item)),
    )
}

pub(super) fn crossbeam_channel(items: u64) -> Duration {
    let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
    relay(
        items,
        move |number, _| sender.try_send(number).is_ok().into(),
        move |next| receiver.try_recv().map_or(0, |item| arrived(next, item)),
    )
}

pub(super) fn kanal(items: u64) -> Duration {
    let (sender, receiver) = kanal::bounded(CAPACITY);
    relay(
        items,
        move |number, _| sender.try_send(number).expect("the receiver is open").into(),
        move |next| receiver.try_recv().ok().flatten().map_or(0, |item| arrived(next, item)),
    )
}

pub(super) fn flume(items: u64) -> Duration {
    let (sender, receiver) = flume::bounded(CAPACITY);
    relay(
        items,
        move |number, _| sender.try_send(number).is_ok().into(),
        move |next| receiver.try_recv().map_or(0, |item| arrived(next, item)),
    )
}

pub(super) fn std_mpsc(items: u64) -> Duration {
    let (sender, receiver) = mpsc::sync_channel(CAPACITY);
    relay(
        items,
        move |number, _| sender.try_send(number).is_ok().into(),
        move |next| receiver.try_recv().map_or(0, |item| arrived(next, item)),
    )
}

#[inline]
fn arrived(next: u64, item: u64) -> u64 {
    assert_eq!(item, next);
    1
}
