//! Two producers and one consumer, which gets the tasks in order, on two cores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;
use disruptor::{BusySpin, Producer as _};
use slotline_core::ordered::{ClaimError, Config, NextError, Ring, Slot, Worker};

use super::threads::{Start, pin};
use super::{Bench, CAPACITY};

pub(super) const ONE_BY_ONE: Bench = Bench {
    name: "ordered, two producers",
    items: 1_000_000,
    peers: &[("slotline", slotline), ("disruptor", disruptor::<1>), ("channel + map", channel_and_map::<1>)],
};

pub(super) const IN_RUNS: Bench = Bench {
    name: "ordered, two producers, runs of 32",
    items: 4_000_000,
    peers: &[("slotline", slotline_runs), ("disruptor", disruptor::<RUN>), ("channel + map", channel_and_map::<RUN>)],
};

/// The number of tasks that a producer claims at once in the benchmark of consecutive tasks.
const RUN: usize = 32;

/// Runs two producers on one core and the consumer on another core. A thread that cannot continue
/// backs off, so that the others can run.
///
/// `produce` is everything that a producer does. `take(next)` takes some tasks, of which `next`
/// must be the first, and returns their number, or 0 if none is available at the moment.
fn gather<P: FnOnce() + Send>(items: u64, producers: [P; 2], mut take: impl FnMut(u64) -> u64 + Send) -> Duration {
    let start = &Start::new(3);
    thread::scope(|scope| {
        for produce in producers {
            scope.spawn(move || {
                pin(1);
                start.wait();
                produce();
            });
        }
        let taker = scope.spawn(move || {
            pin(0);
            start.wait();
            let clock = Instant::now();
            let (mut next, mut backoff) = (0, Backoff::new());
            while next < items {
                match take(next) {
                    0 => backoff.snooze(),
                    taken => {
                        next += taken;
                        backoff = Backoff::new();
                    }
                }
            }
            clock.elapsed()
        });
        taker.join().expect("all tasks are received in order")
    })
}

/// Backs off until `attempt` returns true.
fn until(mut attempt: impl FnMut() -> bool) {
    let backoff = Backoff::new();
    while !attempt() {
        backoff.snooze();
    }
}

fn slotline(items: u64) -> Duration {
    slotline_claiming(items, |worker| {
        let mut claim = worker.try_claim(1)?;
        let ticket = claim.ticket() as u64;
        *claim.get_mut().expect("the whole slot") = ticket;
        claim.publish();
        Ok(())
    })
}

fn slotline_runs(items: u64) -> Duration {
    slotline_claiming(items, |worker| {
        worker.try_claim_many(RUN)?.publish_each(|ticket, number| *number = ticket as u64);
        Ok(())
    })
}

fn slotline_claiming(
    items: u64,
    claim: impl Fn(&Worker<&Ring<Box<[Slot<u64>]>>>) -> Result<(), ClaimError> + Copy + Send,
) -> Duration {
    let ring = Ring::boxed(CAPACITY, Config::new(), |_| 0_u64);
    let mut consumer = ring.consumer().expect("the consumer is not taken yet");
    ring.seal();
    consumer.open(Some(items as usize)).expect("nothing was claimed");
    let produce = [(); 2].map(|()| {
        let worker = ring.worker();
        move || {
            let backoff = Backoff::new();
            loop {
                match claim(&worker) {
                    Ok(()) => backoff.reset(),
                    Err(ClaimError::Full) => backoff.snooze(),
                    Err(ClaimError::Ended | ClaimError::Closed) => break,
                }
            }
        }
    });
    gather(items, produce, |next| match consumer.try_next() {
        Ok(lease) => {
            assert_eq!(*lease, next);
            1
        }
        Err(NextError::Empty) => 0,
        Err(error) => panic!("{error}"),
    })
}

/// Measures the disruptor. Its producers do not know the sequence number that they write to, so
/// only the numbers of each producer are in order.
fn disruptor<const LEN: usize>(items: u64) -> Duration {
    let (mut poller, builder) =
        disruptor::build_multi_producer(CAPACITY, || (0_u64, 0_u64), BusySpin).new_event_poller();
    let first = builder.build();
    let producers = [(0, first.clone()), (1, first)];
    let produce = producers.map(|(of, mut producer)| {
        move || {
            let mut next = 0;
            while next < items / 2 {
                let numbers = next..next + (LEN as u64).min(items / 2 - next);
                until(|| {
                    let fill = |event: &mut (u64, u64), number| *event = (of, number);
                    if LEN == 1 {
                        return producer.try_publish(|event| fill(event, next)).is_ok();
                    }
                    let (len, numbers) = ((numbers.end - numbers.start) as usize, numbers.clone());
                    let fill_all = producer.try_batch_publish(len, |events| {
                        events.zip(numbers).for_each(|(event, number)| fill(event, number));
                    });
                    fill_all.is_ok()
                });
                next = numbers.end;
            }
        }
    });
    let mut next_of = [0, 0];
    gather(items, produce, move |_| match poller.poll() {
        Ok(mut events) => (&mut events)
            .map(|&(of, number)| {
                assert_eq!(number, next_of[of as usize]);
                next_of[of as usize] += 1;
                1
            })
            .sum(),
        Err(_) => 0,
    })
}

/// Measures the structure of torch's loader: results arrive in the order in which they are
/// finished, and early ones wait in a map.
fn channel_and_map<const LEN: usize>(items: u64) -> Duration {
    let run = LEN as u64;
    let tickets = &AtomicU64::new(0);
    let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
    let produce = [(); 2].map(|()| {
        let sender = sender.clone();
        move || {
            loop {
                let first = tickets.fetch_add(run, Ordering::Relaxed);
                if first >= items {
                    break;
                }
                for ticket in first..(first + run).min(items) {
                    until(|| sender.try_send((ticket, ticket)).is_ok());
                }
            }
        }
    });
    let mut early = HashMap::new();
    gather(items, produce, move |next| {
        if let Some(value) = early.remove(&next) {
            assert_eq!(value, next);
            return 1;
        }
        match receiver.try_recv() {
            Ok((ticket, value)) if ticket == next => {
                assert_eq!(value, next);
                1
            }
            Ok((ticket, value)) => {
                early.insert(ticket, value);
                0
            }
            Err(_) => 0,
        }
    })
}
