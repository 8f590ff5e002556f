//! Throughput of the two rings, and of the ordered ring's operations on one thread.
//!
//! Times are per item. Run with `cargo bench --bench rings`.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use slotline_core::ordered::{self, Config};
use slotline_core::spsc;

type Ordered = ordered::Ring<Box<[ordered::Slot<u64>]>>;

fn ordered_ring(slots: usize) -> Ordered {
    Ordered::boxed(slots, Config::new(), |_| 0)
}

/// Runs `workers` threads that claim and publish `items` tickets, while this thread takes them in order.
fn run_ordered(workers: usize, items: u64) -> Duration {
    let ring = ordered_ring(64);
    let mut consumer = ring.consumer().unwrap();
    ring.seal();
    consumer.open(Some(items as usize)).unwrap();
    let mut time = Duration::ZERO;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let worker = ring.worker();
            scope.spawn(move || {
                while let Ok(mut claim) = worker.claim(1) {
                    let ticket = claim.ticket() as u64;
                    *claim.get_mut().unwrap() = ticket;
                    claim.publish();
                }
            });
        }
        let start = Instant::now();
        for ticket in 0..items {
            assert_eq!(*consumer.next().unwrap(), ticket);
        }
        time = start.elapsed();
    });
    time
}

fn ordered_throughput(c: &mut Criterion) {
    let mut group = c.benchmark_group("ordered ring, per ticket");
    group.bench_function("one thread, claim to release", |b| {
        let ring = ordered_ring(64);
        let mut consumer = ring.consumer().unwrap();
        let worker = ring.worker();
        b.iter(|| {
            let mut claim = worker.try_claim(1).unwrap();
            *claim.get_mut().unwrap() = 7;
            claim.publish();
            *black_box(consumer.try_next().unwrap())
        });
    });
    for workers in [1, 2] {
        group.bench_function(BenchmarkId::new("workers beside the consumer", workers), |b| {
            b.iter_custom(|items| run_ordered(workers, items));
        });
    }
    group.finish();
}

fn spsc_throughput(c: &mut Criterion) {
    let mut group = c.benchmark_group("spsc ring, per item");
    group.bench_function("two threads, one by one", |b| b.iter_custom(|items| run_spsc(items, 1)));
    group.bench_function("two threads, runs of up to 64", |b| b.iter_custom(|items| run_spsc(items, 64)));
    group.finish();
}

fn run_spsc(items: u64, run: usize) -> Duration {
    let mut ring = spsc::Ring::boxed(1024, |_| 0_u64);
    let (mut producer, mut consumer) = ring.split();
    let mut time = Duration::ZERO;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sent = 0;
            while sent < items {
                if run == 1 {
                    let mut claim = producer.claim().unwrap();
                    *claim = sent;
                    claim.publish();
                    sent += 1;
                } else {
                    let mut chunk = producer.claim_chunk(run.min((items - sent) as usize)).unwrap();
                    let (a, b) = chunk.as_mut_slices();
                    for value in a.iter_mut().chain(b) {
                        *value = sent;
                        sent += 1;
                    }
                    chunk.publish_all();
                }
            }
        });
        let start = Instant::now();
        let mut taken = 0;
        while taken < items {
            if run == 1 {
                assert_eq!(*consumer.next().unwrap(), taken);
                taken += 1;
            } else {
                let chunk = consumer.chunk(run).unwrap();
                let (a, b) = chunk.as_slices();
                for &value in a.iter().chain(b) {
                    assert_eq!(value, taken);
                    taken += 1;
                }
            }
        }
        time = start.elapsed();
    });
    time
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3));
    targets = ordered_throughput, spsc_throughput
}
criterion_main!(benches);
