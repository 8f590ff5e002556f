//! A round trip through two rings, one item at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use disruptor::{BusySpin, Producer as _};
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use slotline_core::spsc;

use super::threads::echo;
use super::{Bench, CAPACITY};

pub(super) const BENCH: Bench = Bench {
    name: "round trip",
    items: 100_000,
    peers: &[
        ("slotline", slotline),
        ("raw atomics", raw_atomics),
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
    let ends = || {
        let (mut producer, mut consumer) = spsc::Ring::boxed(CAPACITY, |_| 0_u64).into_split();
        (move |number| producer.push(number).is_ok(), move || consumer.next().ok().map(|item| *item))
    };
    echo(items, ends(), ends())
}

/// The limit of the machine instead of a ring: one atomic word for each direction.
fn raw_atomics(items: u64) -> Duration {
    let words = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
    let ends = |word| {
        let word: &AtomicU64 = word;
        let send = move |number| {
            word.store(number + 1, Ordering::Release);
            true
        };
        let mut last = 0;
        let take = move || {
            let now = word.load(Ordering::Acquire);
            let before = std::mem::replace(&mut last, now);
            (now != before).then(|| now - 1)
        };
        (send, take)
    };
    echo(items, ends(&words[0]), ends(&words[1]))
}

fn rtrb(items: u64) -> Duration {
    let ends = || {
        let (mut producer, mut consumer) = rtrb::RingBuffer::new(CAPACITY);
        (move |number| producer.push(number).is_ok(), move || consumer.pop().ok())
    };
    echo(items, ends(), ends())
}

fn ringbuf(items: u64) -> Duration {
    let ends = || {
        let (mut producer, mut consumer) = ringbuf::HeapRb::new(CAPACITY).split();
        (move |number| producer.try_push(number).is_ok(), move || consumer.try_pop())
    };
    echo(items, ends(), ends())
}

fn disruptor(items: u64) -> Duration {
    let ends = || {
        let (mut poller, builder) = disruptor::build_single_producer(CAPACITY, || 0_u64, BusySpin).new_event_poller();
        let mut producer = builder.build();
        let send = move |number| producer.try_publish(|event| *event = number).is_ok();
        let take = move || poller.poll().ok().and_then(|mut events| (&mut events).next().copied());
        (send, take)
    };
    echo(items, ends(), ends())
}

fn heapless(items: u64) -> Duration {
    let mut queues = [const { heapless::spsc::Queue::<u64, CAPACITY>::new() }; 2];
    let [there, back] = queues.each_mut().map(|queue| {
        let (mut producer, mut consumer) = queue.split();
        (move |number| producer.enqueue(number).is_ok(), move || consumer.dequeue())
    });
    echo(items, there, back)
}

fn array_queue(items: u64) -> Duration {
    let queues = [(); 2].map(|()| crossbeam_queue::ArrayQueue::new(CAPACITY));
    let [there, back] = queues.each_ref().map(|queue| (move |number| queue.push(number).is_ok(), move || queue.pop()));
    echo(items, there, back)
}

fn crossbeam_channel(items: u64) -> Duration {
    let ends = || {
        let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
        (move |number| sender.try_send(number).is_ok(), move || receiver.try_recv().ok())
    };
    echo(items, ends(), ends())
}

fn kanal(items: u64) -> Duration {
    let ends = || {
        let (sender, receiver) = kanal::bounded(CAPACITY);
        (
            move |number| sender.try_send(number).expect("the receiver is open"),
            move || receiver.try_recv().ok().flatten(),
        )
    };
    echo(items, ends(), ends())
}

fn flume(items: u64) -> Duration {
    let ends = || {
        let (sender, receiver) = flume::bounded(CAPACITY);
        (move |number| sender.try_send(number).is_ok(), move || receiver.try_recv().ok())
    };
    echo(items, ends(), ends())
}

fn std_mpsc(items: u64) -> Duration {
    let ends = || {
        let (sender, receiver) = mpsc::sync_channel(CAPACITY);
        (move |number| sender.try_send(number).is_ok(), move || receiver.try_recv().ok())
    };
    echo(items, ends(), ends())
}
