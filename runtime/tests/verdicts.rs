//! Tests of verdicts: the bottleneck that a loader's statistics name. Each loop here has one known
//! bottleneck, which takes many times as long as everything else.

mod support;

use std::thread::sleep;
use std::time::Duration;

use slotline::dataset::{Dataset, decoding, downloading, fetching, from_fn, iter_fn, reading};
use slotline::dtype::DType;
use slotline::loader::{Output, Stats, StatsReader, Verdict, WorkerStats};
use slotline::sample::{Fields, Row, Sample};
use slotline::sampler::Order;
use slotline::{BoxError, Loader};
use support::{LONG, Latch, WrittenBy, sampler_fn, stuck};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Runs a pass without work between batches, checks the verdict, and returns the statistics.
#[track_caller]
fn check<B: Output>(loader: &mut Loader<B>, is: impl Fn(Verdict) -> bool) -> Stats {
    loader.epoch().unwrap().for_each(drop);
    let stats = loader.stats();
    assert!(is(stats.verdict()), "{} {stats:?}", stats.verdict());
    stats
}

/// Returns a dataset of `len` numbers, in which reading an index takes the time that `pause` returns.
fn numbers(len: usize, pause: impl Fn(usize) -> Duration + Send + Sync + 'static) -> impl Dataset {
    from_fn(len, move |index, _| {
        let pause = pause(index);
        if !pause.is_zero() {
            sleep(pause);
        }
        Ok(index as i64)
    })
}

#[test]
fn a_slow_disk_network_decoder_and_copy_are_told_apart() {
    const SLOW: Duration = Duration::from_millis(10);
    let checked = |slow: fn(), is: fn(Verdict) -> bool, in_get: bool, round_robin: bool| {
        for workers in [0, 1, 2] {
            let dataset = from_fn(24, move |index, _| {
                if in_get {
                    slow();
                }
                Ok(WrittenBy::new(index as i64, move |number: i64, row: &mut Row<'_>| {
                    if !in_get {
                        slow();
                    }
                    number.write(row)
                }))
            });
            let builder = Loader::builder(dataset).batch_size(4).num_workers(workers);
            let mut loader = builder.round_robin(round_robin).build().unwrap();
            check(&mut loader, is);
        }
    };
    for round_robin in [false, true] {
        checked(|| sleep(SLOW), |verdict| matches!(verdict, Verdict::Reading(_)), true, round_robin);
        checked(|| sleep(SLOW), |verdict| matches!(verdict, Verdict::Writing(_)), false, round_robin);
        checked(|| reading(|| sleep(SLOW)), |verdict| matches!(verdict, Verdict::Reading(_)), false, round_robin);
    }
    for in_get in [false, true] {
        checked(|| fetching(|| sleep(SLOW)), |verdict| matches!(verdict, Verdict::Disk(_)), in_get, false);
        checked(|| downloading(|| sleep(SLOW)), |verdict| matches!(verdict, Verdict::Network(_)), in_get, false);
        // The code that decodes also downloads, so the download is timed within the decoding.
        let decode = || {
            decoding(|| {
                downloading(|| sleep(MILLISECOND));
                sleep(SLOW);
            });
        };
        checked(decode, |verdict| matches!(verdict, Verdict::Decoding(_)), in_get, false);
    }
}

#[test]
fn a_slow_collate_function_gives_the_verdict_writing() {
    for workers in [0, 2] {
        let builder = Loader::builder(from_fn(60, |index, _| Ok(index as i64))).batch_size(3).num_workers(workers);
        let builder = builder.collate(|samples| {
            let mut sum = 0;
            samples.for_each(|sample| {
                sum += sample;
                Ok(())
            })?;
            sleep(5 * MILLISECOND);
            Ok(sum)
        });
        let mut loader = builder.build().unwrap();
        check(&mut loader, |verdict| matches!(verdict, Verdict::Writing(_)));
    }
}

#[test]
fn a_slow_loop_gives_the_verdict_loop() {
    for workers in [0, 1, 2] {
        let mut loader =
            Loader::builder(numbers(320, |_| Duration::ZERO)).batch_size(8).num_workers(workers).build().unwrap();
        loader.epoch().unwrap().for_each(|_| sleep(10 * MILLISECOND));
        let stats = loader.stats();
        assert!(matches!(stats.verdict(), Verdict::Loop { .. }), "{} {stats:?}", stats.verdict());
    }
}

#[test]
fn a_few_slow_samples_among_fast_ones_are_found() {
    for (workers, batch_size) in [(0, 1), (0, 8), (1, 1), (1, 8), (2, 1), (2, 8), (2, 64)] {
        let is_slow = |index: usize| index % 67 == 66;
        let pause = move |index| if is_slow(index) { 20 * MILLISECOND } else { Duration::ZERO };
        let mut loader =
            Loader::builder(numbers(2000, pause)).batch_size(batch_size).num_workers(workers).build().unwrap();
        loader.epoch().unwrap().for_each(drop);
        let stats = loader.stats();
        let verdict = stats.verdict();
        assert!(matches!(verdict, Verdict::Reading(_) | Verdict::SlowSamples { .. }), "{verdict} {stats:?}");
        assert!(workers > 0 || matches!(verdict, Verdict::Reading(_)), "{verdict} {stats:?}");
        assert!(stats.slowest.iter().any(|slow| slow.samples == 1 && is_slow(slow.index)), "{stats:?}");
        // The sum of the times includes the time of the slow samples.
        let busy: Duration = stats.workers.iter().chain([&stats.consumer]).map(|thread| thread.busy()).sum();
        assert!(busy >= 29 * 20 * MILLISECOND / 2, "{stats:?}");
    }
}

#[test]
fn a_few_slow_samples_of_a_stream_are_found() {
    for workers in [0, 1] {
        let stream = iter_fn(|_| {
            Ok((0..2000_i64).map(|number| {
                if number % 67 == 66 {
                    sleep(20 * MILLISECOND);
                }
                Ok(number)
            }))
        });
        let mut loader = Loader::iterable(stream).batch_size(8).num_workers(workers).build().unwrap();
        let stats = check(&mut loader, |verdict| matches!(verdict, Verdict::Reading(_)));
        assert!(stats.slowest.iter().any(|slow| slow.samples == 1 && slow.index % 67 == 66), "{stats:?}");
    }
}

#[test]
fn a_single_slow_sample_or_its_claim_is_the_slowest() {
    for (workers, batch_size) in [(0, 1), (0, 64), (1, 1), (1, 64), (2, 64)] {
        let pause = |index| if index == 700 { 400 * MILLISECOND } else { Duration::ZERO };
        let mut loader =
            Loader::builder(numbers(6400, pause)).batch_size(batch_size).num_workers(workers).build().unwrap();
        loader.epoch().unwrap().for_each(drop);
        let stats = loader.stats();
        let slow = stats.slowest[0];
        assert!(slow.time >= 400 * MILLISECOND, "{stats:?}");
        // Several samples that a thread has claimed together are timed as one.
        let place = 700 % batch_size;
        let claim = 700 - place..700 - place + batch_size;
        assert!(if slow.samples == 1 { slow.index == 700 } else { claim.contains(&slow.index) }, "{stats:?}");
        assert!(slow.samples as usize <= batch_size, "{stats:?}");
    }
}

#[test]
fn an_overloaded_worker_is_named() {
    let pause = |index| if index % 2 == 1 { 5 * MILLISECOND } else { Duration::ZERO };
    let mut loader = Loader::builder(numbers(80, pause)).num_workers(2).round_robin(true).build().unwrap();
    loader.epoch().unwrap().for_each(drop);
    let stats = loader.stats();
    assert!(stats.round_robin);
    assert!(matches!(stats.verdict(), Verdict::Uneven { worker: 1, .. }), "{} {stats:?}", stats.verdict());
    let stream = iter_fn(|worker| {
        let slow = worker.is_some_and(|worker| worker.id() == 0);
        Ok((0..40_i64).map(move |number| {
            if slow {
                sleep(5 * MILLISECOND);
            }
            Ok(number)
        }))
    });
    let mut loader = Loader::iterable(stream).num_workers(2).build().unwrap();
    check(&mut loader, |verdict| matches!(verdict, Verdict::Uneven { worker: 0, .. }));
}

#[test]
fn a_slow_sampler_is_found_before_and_during_a_pass() {
    for workers in [0, 2] {
        let builder = || Loader::builder(numbers(40, |_| Duration::ZERO)).batch_size(4).num_workers(workers);
        let slow = sampler_fn(40, |order| {
            sleep(100 * MILLISECOND);
            *order = Order::Range(40);
            Ok(())
        });
        let mut loader = builder().sampler(slow).build().unwrap();
        check(&mut loader, |verdict| matches!(verdict, Verdict::Starting { .. }));

        let indices = || (0..40).inspect(|_| sleep(2 * MILLISECOND));
        let mut loader = builder().sampler_iter(indices).build().unwrap();
        check(&mut loader, |verdict| matches!(verdict, Verdict::Sampler { .. }));
    }
}

/// Waits until the statistics satisfy `is_reached`.
#[track_caller]
fn until(reader: &StatsReader, is_reached: impl Fn(&Stats) -> bool) {
    let begun = std::time::Instant::now();
    while !is_reached(&reader.stats()) {
        assert!(begun.elapsed() < LONG, "{:?}", reader.stats());
        sleep(MILLISECOND);
    }
}

#[test]
fn any_thread_can_read_statistics_during_and_after_a_pass() {
    fn check(reader: StatsReader, latch: &Latch, iterate: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(iterate);
            latch.until_waiting(1);
            let clone = reader.clone();
            // The statistics include the wait in `next` that the loop is in.
            until(&clone, |stats| stats.batches == 2 && stats.waiting >= 5 * MILLISECOND);
            let stats = clone.stats();
            assert!(stats.elapsed >= 5 * MILLISECOND && stats.samples == 4, "{stats:?}");
            latch.open();
        });
        let stats = reader.stats();
        assert_eq!((stats.batches, stats.samples), (6, 12));
        assert_eq!(stats.elapsed, reader.stats().elapsed, "elapsed changed after the pass");
    }
    for round_robin in [false, true] {
        let latch = Latch::default();
        let builder = Loader::builder(stuck(12, &latch, |index, _| index == 4)).batch_size(2).num_workers(1);
        let builder = if round_robin { builder.round_robin(true) } else { builder.help(false) };
        let mut loader = builder.build().unwrap();
        check(loader.stats_reader(), &latch, move || loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap())));
    }
}

#[test]
fn one_sample_that_takes_most_of_the_time_is_named() {
    for workers in [0, 1, 2] {
        for round_robin in [false, true] {
            let pause = |index| if index == 30 { 100 * MILLISECOND } else { Duration::ZERO };
            let builder = Loader::builder(numbers(60, pause)).batch_size(10).num_workers(workers);
            let mut loader = builder.round_robin(round_robin).build().unwrap();
            loader.epoch().unwrap().for_each(drop);
            let stats = loader.stats();
            // Several samples that a thread has claimed together are timed as one.
            let named = matches!(stats.verdict(), Verdict::OneSample { index: 30..40, share } if share > 0.5);
            assert!(named, "{} {stats:?}", stats.verdict());
        }
    }
}

#[test]
fn batches_of_one_number_are_small() {
    let builder = Loader::builder(numbers(300_000, |_| Duration::ZERO)).batch_size(1).num_workers(1);
    let mut loader = builder.help(false).build().unwrap();
    loader.epoch().unwrap().for_each(drop);
    let stats = loader.stats();
    // Other programs may use the cores at the same time.
    let verdict = stats.verdict();
    assert!(matches!(verdict, Verdict::SmallBatches { .. } | Verdict::Starved { .. }), "{verdict} {stats:?}");
}

/// A sample of 8 MiB.
struct Image(&'static [u8]);

impl Sample for Image {
    type Schema = u8;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(DType::U8, &[self.0.len()]);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        row.fill(&[self.0.len()])?.copy_from_slice(self.0);
        Ok(())
    }
}

#[test]
fn copies_of_many_bytes_are_writing() {
    let image: &[u8] = vec![7; 8 << 20].leak();
    for workers in [0, 1] {
        let pass = || {
            let dataset = from_fn(16, move |_, _| Ok(Image(image)));
            let mut loader = Loader::builder(dataset).batch_size(2).num_workers(workers).build().unwrap();
            loader.epoch().unwrap().for_each(drop);
            let stats = loader.stats();
            (stats.verdict(), stats)
        };
        // On a busy machine, one of the copies may take so long that the verdict names its sample.
        let is_one = |verdict: &Verdict| !matches!(verdict, Verdict::Writing(_) | Verdict::Starved { .. });
        let (verdict, stats) = (0..4).map(|_| pass()).find(|(verdict, _)| !is_one(verdict)).unwrap_or_else(pass);
        assert!(!is_one(&verdict), "{verdict} {stats:?}");
        let sum = |time: fn(&WorkerStats) -> Duration| stats.workers.iter().chain([&stats.consumer]).map(time).sum();
        let [reading, writing]: [Duration; 2] = [sum(|thread| thread.reading), sum(|thread| thread.writing)];
        assert!(writing > 10 * reading, "{stats:?}");
    }
}
