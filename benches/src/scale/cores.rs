//! A model of how many threads the ordered ring can serve, which is checked on two cores.
//!
//! Each claim takes the cache line of the ring's cursor from the core that claimed last. So claims
//! of many cores are served one after another. The time `s` of one claim is measured as the time
//! per ticket when two cores only claim and publish. The time `t` is that of one thread which
//! claims a ticket, works on it and publishes it. Then with `n` threads, each on its own core, a
//! ticket takes `(t + s) / n`, but never less than `s`: from `n = (t + s) / s` on, more threads do
//! not help.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use slotline_core::ordered::{Config, Ring};

use crate::record::{Kind, Time, Unit};
use crate::report::sheet::Spread;
use crate::rings::threads::{cores, pin};
use crate::rounds::Recorder;
use crate::workload::Setup;

/// The durations of a thread's work on a ticket, in nanoseconds.
const WORK: [u64; 6] = [0, 250, 500, 1_000, 5_000, 20_000];
/// The numbers of threads for which the model is evaluated. The first one is measured, too.
const THREADS: [usize; 4] = [2, 16, 64, 256];
/// The number of slots of the ring. A fill claims and publishes all of them.
const SLOTS: usize = 512;
/// The number of fills in a round.
const FILLS: usize = 40;

/// Runs the measurements of this section, and evaluates the model.
pub fn run(_: &Setup, to: &mut Recorder) -> Result<()> {
    if cores() < 2 {
        to.absent("", None, "slotline", &anyhow!("this is measured on two cores, and this process has fewer"));
        return Ok(());
    }
    let mut measured = vec![[const { Vec::new() }; 2]; WORK.len()];
    for _ in 0..to.rounds() {
        let spins_per_nano = calibrate();
        for (work, times) in WORK.iter().zip(&mut measured) {
            for (threads, times) in (1..).zip(times) {
                times.push(per_ticket(threads, (*work as f64 * spins_per_nano) as u64));
            }
        }
    }
    let claim = measured[0][1].clone();
    for (work, [alone, both]) in WORK.iter().zip(measured) {
        let mut push = |peer: String, kind, values| {
            let work = if *work < 1_000 { format!("{work} ns") } else { format!("{} µs", work / 1_000) };
            let case = format!("{work} of work");
            to.time(Time::new(&case, peer, kind, Unit::NanosPerItem, values));
        };
        let model = |threads| {
            let of_round = |(alone, claim): (&f64, &f64)| claim.max((alone + claim) / threads as f64);
            alone.iter().zip(&claim).map(of_round).collect()
        };
        let models = THREADS.map(|threads| (format!("model, {threads} threads"), model(threads)));
        push("one thread".into(), Kind::Variant, alone);
        push("two threads".into(), Kind::Variant, both);
        models.into_iter().for_each(|(name, values)| push(name, Kind::Limit, values));
    }
    Ok(())
}

/// Works for a number of steps, in a chain of multiplications.
#[inline]
fn work(spins: u64) -> u64 {
    (0..spins).fold(spins | 1, |x, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005)))
}

/// Returns how many steps of [`work`] take a nanosecond, from the fastest of several runs.
fn calibrate() -> f64 {
    const SPINS: u64 = 200_000;
    let time = || {
        pin(1);
        let run = |_| {
            let start = Instant::now();
            black_box(work(SPINS));
            start.elapsed().as_nanos()
        };
        (0..10).map(run).min()
    };
    let time = thread::scope(|scope| scope.spawn(time).join().expect("it only multiplies"));
    SPINS as f64 / time.expect("several runs") as f64
}

/// Returns the nanoseconds per ticket while threads, each on its own core, fill all slots of a ring
/// and work on each ticket. A consumer empties the ring between two fills.
fn per_ticket(threads: usize, spins: u64) -> f64 {
    let ring = Ring::boxed(SLOTS, Config::new(), |_| 0_u64);
    let mut consumer = ring.consumer().expect("the consumer is not taken yet");
    ring.seal();
    consumer.open(Some(SLOTS * FILLS)).expect("nothing was claimed");
    // Counts the arrivals of each fill: of each thread before and after it, and then of the
    // consumer.
    let (arrived, slowest) = (&AtomicUsize::new(0), &AtomicU64::new(0));
    let of_fill = 2 * threads + 1;
    thread::scope(|scope| {
        for thread in 0..threads {
            let worker = ring.worker();
            scope.spawn(move || {
                pin(1 - thread);
                for fill in 0..FILLS {
                    arrived.fetch_add(1, Ordering::AcqRel);
                    while arrived.load(Ordering::Acquire) < fill * of_fill + threads {
                        spin_loop();
                    }
                    let start = Instant::now();
                    while let Ok(mut claim) = worker.try_claim(1) {
                        *claim.get_mut().expect("the whole slot") = work(spins);
                        claim.publish();
                    }
                    slowest.fetch_max(start.elapsed().as_nanos() as u64, Ordering::AcqRel);
                    arrived.fetch_add(1, Ordering::AcqRel);
                    while arrived.load(Ordering::Acquire) < (fill + 1) * of_fill {
                        thread::yield_now();
                    }
                }
            });
        }
        let consumer = scope.spawn(move || {
            pin(0);
            let fills = (0..FILLS).map(|fill| {
                while arrived.load(Ordering::Acquire) < fill * of_fill + 2 * threads {
                    thread::yield_now();
                }
                let time = slowest.swap(0, Ordering::AcqRel);
                for _ in 0..SLOTS {
                    drop(consumer.next().expect("all slots are published"));
                }
                arrived.fetch_add(1, Ordering::AcqRel);
                time as f64 / SLOTS as f64
            });
            Spread::of(fills).expect("there are fills").median
        });
        consumer.join().expect("the consumer gets all tickets")
    })
}
