//! One producer and one consumer, item by item, and a round trip through two rings.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use disruptor::{BusySpin, Producer as _};
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use slotline_core::spsc;

use super::threads::{echo, relay};
use super::{Bench, CAPACITY, bursts};

pub(super) const ONE_BY_ONE: Bench = Bench {
    name: "spsc, one by one",
    items: 2_000_000,
    peers: &[
        ("slotline", slotline::<ONE_WAY>),
        ("rtrb", rtrb::<ONE_WAY>),
        ("ringbuf", ringbuf::<ONE_WAY>),
        ("disruptor", bursts::disruptor::<1>),
        ("heapless", heapless::<ONE_WAY>),
        ("crossbeam ArrayQueue", array_queue::<ONE_WAY>),
        ("crossbeam channel", crossbeam_channel::<ONE_WAY>),
        ("kanal", kanal::<ONE_WAY>),
        ("flume", flume::<ONE_WAY>),
        ("std mpsc", std_mpsc::<ONE_WAY>),
    ],
};

pub(super) const ROUND_TRIP: Bench = Bench {
    name: "round trip",
    items: 100_000,
    peers: &[
        ("slotline", slotline::<BACK>),
        ("raw atomics", raw_atomics),
        ("rtrb", rtrb::<BACK>),
        ("ringbuf", ringbuf::<BACK>),
        ("disruptor", disruptor),
        ("heapless", heapless::<BACK>),
        ("crossbeam ArrayQueue", array_queue::<BACK>),
        ("crossbeam channel", crossbeam_channel::<BACK>),
        ("kanal", kanal::<BACK>),
        ("flume", flume::<BACK>),
        ("std mpsc", std_mpsc::<BACK>),
    ],
};

/// Whether the items come back through another ring.
const BACK: bool = true;
pub(super) const ONE_WAY: bool = false;

/// Passes items through a ring, or there and back through two rings. Each end of a ring is a
/// function that tries to send or to take an item.
fn pass<const BACK: bool, S, T>(items: u64, [(mut send, mut take), back]: [(S, T); 2]) -> Duration
where
    S: FnMut(u64) -> bool + Send,
    T: FnMut() -> Option<u64> + Send,
{
    if BACK {
        return echo(items, (send, take), back);
    }
    relay(
        items,
        move |number| send(number).into(),
        move |next| {
            take().map_or(0, |item| {
                assert_eq!(item, next);
                1
            })
        },
    )
}

pub(super) fn slotline<const BACK: bool>(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (mut producer, mut consumer) = spsc::Ring::boxed(CAPACITY, |_| 0_u64).into_split();
        (move |number| producer.push(number).is_ok(), move || consumer.next().ok().map(|item| *item))
    });
    pass::<BACK, _, _>(items, ends)
}

/// Measures the machine's limit without a ring: one atomic word for each direction.
fn raw_atomics(items: u64) -> Duration {
    let words = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
    let ends = words.each_ref().map(|word| {
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
    });
    pass::<BACK, _, _>(items, ends)
}

fn rtrb<const BACK: bool>(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (mut producer, mut consumer) = rtrb::RingBuffer::new(CAPACITY);
        (move |number| producer.push(number).is_ok(), move || consumer.pop().ok())
    });
    pass::<BACK, _, _>(items, ends)
}

fn ringbuf<const BACK: bool>(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (mut producer, mut consumer) = ringbuf::HeapRb::new(CAPACITY).split();
        (move |number| producer.try_push(number).is_ok(), move || consumer.try_pop())
    });
    pass::<BACK, _, _>(items, ends)
}

/// Measures the disruptor in round trips. For one direction, [`bursts::disruptor`] is measured,
/// which takes all available items at once.
fn disruptor(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (mut poller, builder) = disruptor::build_single_producer(CAPACITY, || 0_u64, BusySpin).new_event_poller();
        let mut producer = builder.build();
        let send = move |number| producer.try_publish(|event| *event = number).is_ok();
        let take = move || poller.poll().ok().and_then(|mut events| (&mut events).next().copied());
        (send, take)
    });
    pass::<BACK, _, _>(items, ends)
}

pub(super) fn heapless<const BACK: bool>(items: u64) -> Duration {
    let mut queues = [(); 2].map(|()| Box::new(heapless::spsc::Queue::<u64, CAPACITY>::new()));
    let ends = queues.each_mut().map(|queue| {
        let (mut producer, mut consumer) = queue.split();
        (move |number| producer.enqueue(number).is_ok(), move || consumer.dequeue())
    });
    pass::<BACK, _, _>(items, ends)
}

pub(super) fn array_queue<const BACK: bool>(items: u64) -> Duration {
    let queues = [(); 2].map(|()| crossbeam_queue::ArrayQueue::new(CAPACITY));
    let ends = queues.each_ref().map(|queue| (move |number| queue.push(number).is_ok(), move || queue.pop()));
    pass::<BACK, _, _>(items, ends)
}

pub(super) fn crossbeam_channel<const BACK: bool>(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
        (move |number| sender.try_send(number).is_ok(), move || receiver.try_recv().ok())
    });
    pass::<BACK, _, _>(items, ends)
}

pub(super) fn kanal<const BACK: bool>(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (sender, receiver) = kanal::bounded(CAPACITY);
        let send = move |number| sender.try_send(number).expect("the receiver is open");
        (send, move || receiver.try_recv().ok().flatten())
    });
    pass::<BACK, _, _>(items, ends)
}

pub(super) fn flume<const BACK: bool>(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (sender, receiver) = flume::bounded(CAPACITY);
        (move |number| sender.try_send(number).is_ok(), move || receiver.try_recv().ok())
    });
    pass::<BACK, _, _>(items, ends)
}

pub(super) fn std_mpsc<const BACK: bool>(items: u64) -> Duration {
    let ends = from_fn(|_| {
        let (sender, receiver) = mpsc::sync_channel(CAPACITY);
        (move |number| sender.try_send(number).is_ok(), move || receiver.try_recv().ok())
    });
    pass::<BACK, _, _>(items, ends)
}
