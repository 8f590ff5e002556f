//! Tests of worker processes that each have their own rings (iterable datasets and `round_robin`),
//! and of the behaviour that they share with worker processes that use one ring together.

use std::fmt::Write;
use std::fs::File;
use std::time::{Duration, Instant};

use slotline::arena::Pages;
use slotline::dataset::{Context, IterableDataset, Loadable, iter_fn};
use slotline::loader::{Budget, OnError, Overflow, Samples};
use slotline::rng::rand_core::Rng;
use slotline::sample::Packed;
use slotline::{BoxError, Error, Loader, WorkerInfo, worker_info};

use crate::support::{LONG, OneByOne, Run, WithoutSave, chain, describe, from_fn, items, sleeping_sometimes};
use crate::{RUN, die};

/// Calls a macro with builders of loaders over the same samples: an iterable dataset whose cursors
/// are saved, one whose cursors are not saved, and a dataset by index with `round_robin`.
macro_rules! for_each_separate_kind {
    ($work:expr, $check:ident) => {
        $check!(|| Loader::iterable(OneByOne(items(RUN.len, $work))).batch_size(8).seed(7));
        $check!(|| Loader::iterable(WithoutSave(OneByOne(items(RUN.len, $work)))).batch_size(8).seed(7));
        $check!(|| RUN.over(items(RUN.len, $work)).round_robin(true));
    };
}

/// Works like `for_each_separate_kind`, with one more builder: a dataset by index with one ring for
/// all workers.
macro_rules! for_each_kind {
    ($work:expr, $check:ident) => {
        for_each_separate_kind!($work, $check);
        $check!(|| RUN.over(items(RUN.len, $work)).help(false));
    };
}

/// Checks that processes give the same batches, errors and counts as threads in several passes.
macro_rules! same {
    ($builder:expr) => {
        for workers in 1..=3 {
            let mut threads = $builder().num_workers(workers).build().unwrap();
            let mut processes = $builder().num_workers(workers).processes().build().unwrap();
            for _ in 0..3 {
                let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
                assert_eq!(processes.epoch().unwrap().map(describe).collect::<Vec<_>>(), expected, "{workers} workers");
            }
            let (expected, got) = (threads.stats(), processes.stats());
            assert_eq!((got.batches, got.samples), (expected.batches, expected.samples));
            assert_eq!((got.bad_samples, &got.bad_indices), (expected.bad_samples, &expected.bad_indices));
            let samples = |stats: slotline::loader::Stats| -> Vec<u64> {
                stats.workers.iter().map(|worker| worker.samples).collect()
            };
            assert_eq!(samples(got), samples(expected));
        }
    };
}

/// Returns whether this is another process than the one with the id `parent`.
fn is_worker(parent: u32) -> bool {
    std::process::id() != parent
}

/// Returns descriptions of the batches of a pass without their numbers, sorted.
fn sorted<S>(pass: impl Iterator<Item = Result<slotline::Batch<S>, Error>>) -> Vec<String> {
    let texts = pass.map(|batch| describe(batch).split_once(' ').unwrap().1.to_owned());
    let mut all: Vec<_> = texts.collect();
    all.sort();
    all
}

#[test]
fn processes_give_the_batches_of_threads() {
    for_each_separate_kind!(sleeping_sometimes, same);
    const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];
    let words = || from_fn(37, |index, _| Ok((index as i64, Packed::new(&NUMBERS[..index % 5], 5), index % 3 == 0)));
    same!(|| Loader::iterable(OneByOne(words())).batch_size(6).drop_last(true));
    same!(|| Loader::builder(words()).batch_size(6).drop_last(true).round_robin(true));
    same!(|| Loader::iterable(OneByOne(words())).batch_size(None));
    same!(|| Loader::builder(words()).batch_size(None).round_robin(true));
    // Some or all workers have no samples.
    same!(|| Loader::iterable(OneByOne(from_fn(2, |index, _| Ok(index as i64)))).batch_size(4));
    same!(|| Loader::builder(from_fn(0, |index, _| Ok(index as i64))).batch_size(4).round_robin(true));
}

#[test]
fn in_order_of_arrival_each_batch_comes_once() {
    macro_rules! check {
        ($builder:expr) => {
            let mut threads = $builder().num_workers(2).build().unwrap();
            let mut processes = $builder().num_workers(2).in_order(false).processes().build().unwrap();
            for _ in 0..3 {
                assert_eq!(sorted(processes.epoch().unwrap()), sorted(threads.epoch().unwrap()));
            }
        };
    }
    for_each_kind!(sleeping_sometimes, check);
}

#[test]
fn kept_batches_do_not_change() {
    macro_rules! check {
        ($builder:expr) => {
            let mut threads = $builder().num_workers(2).build().unwrap();
            let mut processes = $builder().num_workers(2).processes().build().unwrap();
            let kept: Vec<_> = processes.epoch().unwrap().collect();
            let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
            assert_eq!(kept.into_iter().map(describe).collect::<Vec<_>>(), expected);
        };
    }
    for_each_kind!(sleeping_sometimes, check);
}

#[test]
fn errors_and_panics_are_those_of_threads() {
    let bad = |index: usize, cx: &mut Context| match index {
        5 | 31 | 60 => Err(format!("sample {index} is torn").into()),
        _ => sleeping_sometimes(index, cx),
    };
    for_each_separate_kind!(bad, same);
    for budget in [2, 50] {
        let on_error = OnError::Skip(Budget::Samples(budget));
        same!(|| Loader::iterable(OneByOne(items(RUN.len, bad))).batch_size(8).on_error(on_error));
        same!(|| RUN.over(items(RUN.len, bad)).round_robin(true).on_error(on_error));
    }
    same!(|| RUN.over(items(RUN.len, bad)).round_robin(true).on_error(OnError::Replace(Budget::Samples(9))));
    let panics = |index: usize, _: &mut Context| if index == 31 { panic!("thirty-one") } else { Ok(()) };
    for_each_separate_kind!(panics, same);
    same!(|| Loader::iterable(iter_fn(|worker: Option<WorkerInfo>| match worker {
        Some(worker) if worker.id() == 1 => Err("no second part".into()),
        _ => Ok((0..9_i64).map(Ok)),
    }))
    .batch_size(4));
}

#[test]
fn a_long_text_comes_whole() {
    let text = "long ".repeat(4000);
    let message = text.clone();
    let dataset = || {
        from_fn(5, {
            let message = message.clone();
            move |index, _| if index > 0 { Err(message.clone().into()) } else { Ok(0_i64) }
        })
    };
    macro_rules! check {
        ($builder:expr, $count:expr) => {
            let mut loader = $builder.batch_size(2).num_workers(1).processes().build().unwrap();
            let errors: Vec<Error> = loader.epoch().unwrap().filter_map(|batch| batch.err()).collect();
            assert!(errors.len() == $count && errors.iter().all(|error| chain(error).contains(&text)));
        };
    }
    check!(Loader::builder(dataset()), 3);
    // After a bad sample, an iterable dataset continues with the next sample, and a dataset by
    // index with the next batch. So four samples are errors here, and three batches above.
    check!(Loader::iterable(OneByOne(dataset())), 4);
}

#[test]
fn a_pass_is_resumed_by_processes_or_threads() {
    macro_rules! check {
        ($builder:expr) => {
            let expected: Vec<Vec<String>> = {
                let mut threads = $builder().num_workers(2).build().unwrap();
                (0..2).map(|_| threads.epoch().unwrap().map(describe).collect()).collect()
            };
            for taken in [0, 1, 5, 12, 13] {
                let mut first = match taken % 2 {
                    0 => $builder().num_workers(2).build().unwrap(),
                    _ => $builder().num_workers(2).processes().build().unwrap(),
                };
                first.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
                let mut pass = first.epoch().unwrap();
                let mut got: Vec<String> = pass.by_ref().take(taken).map(describe).collect();
                let state = pass.state();
                drop(pass);
                let mut second = match taken % 2 {
                    0 => $builder().num_workers(2).processes().build().unwrap(),
                    _ => $builder().num_workers(2).build().unwrap(),
                };
                second.load_state(&state).unwrap();
                got.extend(second.epoch().unwrap().map(describe));
                assert_eq!(got[..], expected[1][..], "{taken} taken");
            }
        };
    }
    for_each_kind!(sleeping_sometimes, check);
}

#[test]
fn passes_can_be_left_at_any_batch() {
    macro_rules! check {
        ($builder:expr) => {
            let mut threads = $builder().num_workers(2).build().unwrap();
            let mut processes = $builder().num_workers(2).processes().build().unwrap();
            for taken in 0..14 {
                let expected: Vec<String> = threads.epoch().unwrap().take(taken).map(describe).collect();
                assert_eq!(processes.epoch().unwrap().take(taken).map(describe).collect::<Vec<_>>(), expected);
            }
        };
    }
    for_each_kind!(sleeping_sometimes, check);
}

#[test]
fn worker_init_runs_in_the_processes() {
    static SEEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let sample = |_: usize, _: &mut Context| {
        let Some(info) = worker_info() else { return Ok((0, 0, 0, 0)) };
        let seen = SEEN.load(std::sync::atomic::Ordering::Relaxed);
        Ok((seen, info.id() as i64, info.num_workers() as i64, i64::from(std::process::id())))
    };
    macro_rules! check {
        ($builder:expr, $has_worker:expr) => {
            for (persistent, expected) in [(false, [1, 2, 3]), (true, [1, 1, 1])] {
                let builder = $builder.batch_size(3).num_workers(2).persistent_workers(persistent);
                let builder = builder.worker_init(|info| {
                    assert_eq!(worker_info().unwrap().id(), info.id());
                    SEEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    Ok(())
                });
                let mut loader = builder.processes().build().unwrap();
                for expected in expected {
                    for (at, batch) in loader.epoch().unwrap().enumerate() {
                        let batch = batch.unwrap();
                        let (seen, id, workers, process) = batch.tensors();
                        assert!(seen.as_slice().iter().all(|&seen| seen == expected), "{seen:?}");
                        assert!(id.as_slice().iter().all(|&id| $has_worker(at as i64, id)), "{id:?}");
                        assert!(workers.as_slice().iter().all(|&workers| workers == 2));
                        assert!(process.as_slice().iter().all(|&process| process != i64::from(std::process::id())));
                    }
                }
            }
        };
    }
    let in_turn = |at, id| id == at % 2;
    check!(Loader::iterable(OneByOne(from_fn(30, sample))), in_turn);
    check!(Loader::builder(from_fn(30, sample)).round_robin(true), in_turn);
    check!(Loader::builder(from_fn(30, sample)), |_, id| (0..2).contains(&id));
}

#[test]
fn a_worker_init_that_fails_is_reported_as_with_threads() {
    let init = |info: WorkerInfo| match info.id() {
        0 => Ok(()),
        2 => panic!("two"),
        id => Err(format!("no {id}").into()),
    };
    same!(|| Loader::iterable(OneByOne(items(40, sleeping_sometimes))).batch_size(4).worker_init(init));
    same!(|| Loader::builder(items(40, sleeping_sometimes)).batch_size(4).round_robin(true).worker_init(init));
}

#[test]
fn a_killed_worker_is_an_error_in_the_place_of_its_batch_and_ends_the_loader() {
    let parent = std::process::id();
    macro_rules! check {
        ($builder:expr, $index:expr, $how:expr) => {
            let mut loader = $builder.batch_size(4).num_workers(2).processes().build().unwrap();
            let all: Vec<_> = loader.epoch().unwrap().collect();
            let failed = all.iter().position(Result::is_err).unwrap();
            assert!(
                matches!(all[failed], Err(Error::Sample { index: $index, task, .. }) if task == failed),
                "{:?}",
                all[failed]
            );
            let text = chain(all[failed].as_ref().unwrap_err());
            assert!(text.contains($how), "{text}");
            let last = all.last().unwrap().as_ref().unwrap_err();
            assert!(matches!(last, Error::WorkerDied { worker: 1, .. }) && chain(last).contains($how), "{last:?}");
            assert_eq!(all.iter().filter(|batch| batch.is_err()).count(), 2, "{all:?}");
            assert!(matches!(loader.epoch(), Err(Error::WorkerDied { worker: 1, .. })));
        };
    }
    let deadly = move |at: usize, killed: bool| {
        from_fn(40, move |index, _| {
            match index == at && is_worker(parent) {
                true if killed => die(),
                true => std::process::exit(3),
                false => {}
            }
            Ok(index as i64)
        })
    };
    // The second worker's part of the iterable dataset begins with sample 20.
    check!(Loader::iterable(OneByOne(deadly(29, true))), 9, "was killed by signal 9");
    check!(Loader::iterable(OneByOne(deadly(29, false))), 9, "ended with exit code 3");
    check!(Loader::builder(deadly(13, true)).round_robin(true), 13, "was killed by signal 9");
    check!(Loader::builder(deadly(13, false)).round_robin(true), 13, "ended with exit code 3");
}

#[test]
fn nobody_can_tell_that_restarted_workers_died() {
    let parent = std::process::id();
    let mortal = move |index: usize, cx: &mut Context| {
        // This process ends rarely, at random times.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
        if is_worker(parent) && (now / 1000).is_multiple_of(97) {
            die();
        }
        sleeping_sometimes(index, cx)
    };
    macro_rules! check {
        ($builder:expr) => {
            let mut loader = $builder().num_workers(2).processes().restart_workers(1_000_000).build().unwrap();
            let again = $builder().num_workers(2).in_order(false).processes().restart_workers(1_000_000);
            let mut again = again.build().unwrap();
            let mut threads = $builder().num_workers(2).build().unwrap();
            let begun = Instant::now();
            for _ in 0..10 {
                let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
                assert_eq!(loader.epoch().unwrap().map(describe).collect::<Vec<_>>(), expected);
                assert_eq!(again.epoch().unwrap().count(), expected.len());
                assert!(begun.elapsed() < LONG);
            }
        };
    }
    for_each_kind!(mortal, check);
}

#[test]
fn a_replacement_runs_worker_init_and_is_counted() {
    let parent = std::process::id();
    let folder = tempfile::tempdir().unwrap();
    for kind in 0..3 {
        let inits = folder.path().join(format!("inits{kind}"));
        let died = folder.path().join(format!("died{kind}"));
        let counted = inits.clone();
        let init = move |_| {
            std::io::Write::write_all(&mut File::options().append(true).create(true).open(&counted)?, b".")?;
            Ok(())
        };
        let dataset = from_fn(60, move |index, _| {
            if index == 31 && is_worker(parent) && File::create_new(&died).is_ok() {
                die();
            }
            Ok(index as i64)
        });
        macro_rules! run {
            ($builder:expr) => {
                let builder = $builder.batch_size(5).num_workers(2).worker_init(init);
                let mut loader = builder.processes().restart_workers(1).build().unwrap();
                for passes in 1..=2 {
                    let batches = loader.epoch().unwrap();
                    let mut got: Vec<_> =
                        batches.flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect();
                    got.sort_unstable();
                    assert_eq!(got, (0..60).collect::<Vec<i64>>());
                    let ran = std::fs::read(&inits).unwrap().len();
                    // A worker that replaces another one may start only when the pass ends, if
                    // other workers make all batches. It then begins with the next pass.
                    let is_late = kind == 2 && ran == 2 * passes;
                    assert!(is_late || ran == 2 * passes + 1, "{ran} after {passes} passes");
                }
            };
        }
        match kind {
            0 => {
                run!(Loader::iterable(OneByOne(dataset)));
            }
            1 => {
                run!(Loader::builder(dataset).round_robin(true));
            }
            _ => {
                run!(Loader::builder(dataset));
            }
        }
    }
}

#[test]
fn a_worker_init_that_kills_is_reported() {
    for restarts in [0, 2] {
        let builder = Loader::iterable(OneByOne(from_fn(20, |index, _| Ok(index as i64)))).batch_size(4);
        let builder = builder.num_workers(2).worker_init(|info| {
            if info.id() == 1 {
                die();
            }
            Ok(())
        });
        let mut loader = builder.processes().restart_workers(restarts).build().unwrap();
        let errors: Vec<Error> = match loader.epoch() {
            Ok(pass) => pass.filter_map(|batch| batch.err()).collect(),
            Err(error) => vec![error],
        };
        assert!(chain(&errors[0]).contains("was killed by signal 9"), "{errors:?}");
        assert!(matches!(loader.epoch(), Err(Error::WorkerDied { worker: 1, .. })));
    }
}

#[test]
fn a_sample_that_takes_too_long_is_an_error() {
    let parent = std::process::id();
    let limit = Duration::from_millis(300);
    let folder = tempfile::tempdir().unwrap();
    for kind in 0..3 {
        let was_slow = folder.path().join(format!("{kind}"));
        // The sample is slow only once.
        let dataset = from_fn(40, move |index, _| {
            if index == 13 && is_worker(parent) && File::create_new(&was_slow).is_ok() {
                std::thread::sleep(LONG * 10);
            }
            Ok(index as i64)
        });
        let begun = Instant::now();
        macro_rules! run {
            ($builder:expr) => {{
                let builder = $builder.batch_size(5).num_workers(1);
                let mut loader = builder.processes().sample_timeout(limit).build().unwrap();
                let first: Vec<_> = loader.epoch().unwrap().collect();
                (
                    first,
                    loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect(),
                )
            }};
        }
        let (first, second): (Vec<_>, Vec<i64>) = match kind {
            0 => run!(Loader::iterable(OneByOne(dataset))),
            1 => run!(Loader::iterable(WithoutSave(OneByOne(dataset)))),
            _ => run!(Loader::builder(dataset).round_robin(true)),
        };
        assert!(matches!(&first[2], Err(Error::Sample { index: 13, task: 2, .. })), "{:?}", first[2]);
        let text = chain(first[2].as_ref().unwrap_err());
        assert!(text.contains("was killed, since the sample took longer than 300ms"), "{text}");
        let rest: Vec<i64> = first.iter().flatten().flat_map(|batch| batch.tensors().as_slice().to_vec()).collect();
        // After the sample that took too long, an iterable dataset continues with the next sample.
        // In a dataset by index, the whole batch is lost and the other batches are unchanged.
        let after = if kind == 2 { 15 } else { 14 };
        assert_eq!(rest, (0..10).chain(after..40).collect::<Vec<i64>>());
        assert_eq!(second, (0..40).collect::<Vec<i64>>());
        assert!(begun.elapsed() < LONG);
    }
}

#[test]
fn a_sample_that_is_always_late_ends_the_loader_or_is_passed_over() {
    let parent = std::process::id();
    let limit = Duration::from_millis(200);
    let slow = move || {
        from_fn(40, move |index, _| {
            if index == 13 && is_worker(parent) {
                std::thread::sleep(LONG * 10);
            }
            Ok(index as i64)
        })
    };
    let skip = OnError::Skip(Budget::Samples(3));
    let builder = Loader::iterable(OneByOne(slow())).batch_size(5).num_workers(1).on_error(skip);
    let mut loader = builder.processes().sample_timeout(limit).build().unwrap();
    let all: Vec<_> = loader.epoch().unwrap().collect();
    assert!(matches!(&all[2], Err(Error::Sample { index: 13, task: 2, .. })), "{:?}", all[2]);
    assert!(matches!(&all[3], Err(Error::Sample { index: 13, task: 3, .. })), "{:?}", all[3]);
    assert!(matches!(&all[4..], [Err(Error::WorkerDied { worker: 0, .. })]), "{all:?}");
    let builder = Loader::builder(slow()).batch_size(5).num_workers(2).round_robin(true).on_error(skip);
    let mut loader = builder.processes().sample_timeout(limit).build().unwrap();
    for _ in 0..3 {
        let got: Vec<i64> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
        assert_eq!(got, (0..40).filter(|&index| index != 13).collect::<Vec<i64>>());
    }
    assert_eq!(loader.stats().bad_indices, [13]);
}

#[test]
fn a_sample_that_kills_its_worker_is_passed_over() {
    let parent = std::process::id();
    let (skip, replace) = (OnError::Skip(Budget::Samples(50)), OnError::Replace(Budget::Samples(50)));
    for (on_error, round_robin) in [(skip, true), (skip, false), (replace, true), (replace, false)] {
        let deadly = move |deadly: bool| {
            from_fn(90, move |index, _| match index % 31 {
                17 if deadly && is_worker(parent) => {
                    die();
                    unreachable!()
                }
                17 => Err("deadly".into()),
                _ => Ok(index as i64),
            })
        };
        let builder = |kills| {
            let builder = Loader::builder(deadly(kills)).batch_size(8).shuffle(true).seed(11).num_workers(2);
            builder.round_robin(round_robin)
        };
        let mut threads = builder(false).help(false).on_error(on_error).build().unwrap();
        let mut processes = builder(true).on_error(on_error).processes().restart_workers(3).build().unwrap();
        for _ in 0..2 {
            let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
            assert_eq!(processes.epoch().unwrap().map(describe).collect::<Vec<_>>(), expected);
        }
        assert_eq!(processes.stats().bad_indices, threads.stats().bad_indices);
        let bad = processes.stats().bad_causes;
        assert!(bad.iter().all(|bad| bad.message.contains("was killed by signal 9")), "{bad:?}");
    }
}

/// Waits until a process has ended.
fn await_end(process: i64) {
    let begun = Instant::now();
    // SAFETY: this only checks whether the process exists.
    while unsafe { libc::kill(process as i32, 0) } == 0 {
        assert!(begun.elapsed() < LONG, "{process} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_process_outlives_its_loader() {
    let parent = std::process::id();
    let sample = move |index: usize, _: &mut Context| {
        // The second batch of each worker takes long, because of many samples or of one.
        if is_worker(parent) && index % 50 >= 2 {
            std::thread::sleep(if index < 50 { Duration::from_millis(10) } else { LONG * 10 });
        }
        Ok(i64::from(std::process::id()))
    };
    macro_rules! check {
        ($builder:expr) => {
            for stops in [false, true] {
                let mut loader = $builder.batch_size(2).num_workers(2).processes().build().unwrap();
                let mut pass = loader.epoch().unwrap();
                let first: Vec<i64> =
                    pass.by_ref().take(2).flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect();
                drop(pass);
                let begun = Instant::now();
                if stops {
                    loader.stopper().stop();
                    first.iter().for_each(|&process| await_end(process));
                }
                drop(loader);
                assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
                for process in first {
                    // SAFETY: this only checks whether the process exists.
                    assert!(unsafe { libc::kill(process as i32, 0) } < 0);
                }
            }
        };
    }
    check!(Loader::iterable(OneByOne(from_fn(100, sample))));
    // Orders the samples so that the batches of the two workers, which read one half each,
    // alternate.
    let index_of = |at: usize| at / 4 * 2 + at % 2 + if at % 4 < 2 { 0 } else { 50 };
    check!(Loader::builder(from_fn(100, move |at, cx| sample(index_of(at), cx))).round_robin(true));
}

#[test]
fn a_stopped_loader_ends_at_once() {
    let slow = || {
        from_fn(100_000, |index, _| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(index as i64)
        })
    };
    macro_rules! check {
        ($builder:expr) => {
            let mut loader = $builder.batch_size(8).num_workers(2).processes().build().unwrap();
            let stopper = loader.stopper();
            let mut pass = loader.epoch().unwrap();
            pass.next().unwrap().unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                stopper.stop();
            });
            let error = pass.find_map(|batch| batch.err()).unwrap();
            assert!(matches!(error, Error::Stopped), "{error}");
            assert!(pass.next().is_none());
        };
    }
    check!(Loader::iterable(OneByOne(slow())));
    check!(Loader::builder(slow()));
}

#[test]
fn a_timeout_names_what_the_workers_read() {
    let parent = std::process::id();
    let folder = tempfile::tempdir().unwrap();
    macro_rules! check {
        ($name:expr, $builder:expr) => {
            // The sample waits until a file exists, since a worker process shares no latch with the
            // test.
            let go = folder.path().join($name);
            let awaited = go.clone();
            let dataset = from_fn(10, move |index, _| {
                while index == 3 && is_worker(parent) && !awaited.exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(index as i64)
            });
            let builder = $builder(dataset).batch_size(2).num_workers(1).timeout(Duration::from_millis(60));
            let mut loader = builder.processes().build().unwrap();
            let mut pass = loader.epoch().unwrap();
            // On a busy machine the first batch may be late, too.
            while pass.next().unwrap().is_err() {}
            let error = std::iter::from_fn(|| pass.next()).find_map(|batch| match batch {
                Err(Error::Timeout { busy, .. }) if busy.is_empty() => None,
                batch => Some(batch.unwrap_err()),
            });
            assert!(matches!(&error, Some(Error::Timeout { task: 1, busy, .. }) if *busy == [(0, 3)]), "{error:?}");
            std::fs::write(go, "").unwrap();
            let late = |batch: &Result<_, Error>| !matches!(batch, Err(Error::Timeout { .. }));
            assert_eq!(pass.filter(late).map(|batch| batch.unwrap().len()).sum::<usize>(), 8);
        };
    }
    check!("stream", |dataset| Loader::iterable(OneByOne(dataset)));
    check!("indices", Loader::builder);
}

/// An iterable dataset whose cursors save a string that is longer than any message.
struct Verbose(u32);

impl IterableDataset for Verbose {
    type Sample<'a> = (i64, u64);
    type Cursor = String;

    fn iter(&self, _: Option<WorkerInfo>) -> Result<String, BoxError> {
        Ok(String::new())
    }

    fn next(&self, read: &mut String, cx: &mut Context) -> Result<Option<(i64, u64)>, BoxError> {
        let number = read.lines().count();
        if number == 9 {
            return Ok(None);
        }
        if is_worker(self.0) && std::time::SystemTime::UNIX_EPOCH.elapsed()?.subsec_micros().is_multiple_of(3) {
            die();
        }
        writeln!(read, "{}{number}", "ü".repeat(20_000))?;
        Ok(Some((read.len() as i64, cx.rng().next_u64())))
    }

    fn save(&self, read: &String, to: &mut String) -> bool {
        to.push_str(read);
        true
    }

    fn resume(&self, _: Option<WorkerInfo>, saved: &str) -> Result<String, BoxError> {
        Ok(saved.to_owned())
    }
}

#[test]
fn what_a_cursor_saves_may_be_long() {
    let builder = || Loader::iterable(Verbose(std::process::id())).batch_size(2).seed(5).num_workers(2);
    let mut threads = builder().build().unwrap();
    let mut processes = builder().processes().restart_workers(1_000_000).build().unwrap();
    for _ in 0..4 {
        let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
        assert_eq!(processes.epoch().unwrap().map(describe).collect::<Vec<_>>(), expected);
    }
    let (mut pass, mut rest) = (processes.epoch().unwrap(), builder().build().unwrap());
    let mut got: Vec<String> = pass.by_ref().take(5).map(describe).collect();
    rest.load_state(&pass.state()).unwrap();
    got.extend(rest.epoch().unwrap().map(describe));
    assert_eq!(got, threads.epoch().unwrap().map(describe).collect::<Vec<_>>());
}

#[test]
fn memory_and_collate_functions_are_the_same() {
    let memory = |bytes| Ok(Pages::shared(bytes)?);
    let builder = || Loader::iterable(OneByOne(items(RUN.len, sleeping_sometimes))).batch_size(8).num_workers(2);
    let mut threads = builder().build().unwrap();
    let mut processes = builder().memory(memory).processes().build().unwrap();
    let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
    assert_eq!(processes.epoch().unwrap().map(describe).collect::<Vec<_>>(), expected);
    let numbers = || from_fn(40, |index, _| if index == 9 { Err("nine".into()) } else { Ok(index as i64) });
    let builder = || Loader::builder(numbers()).batch_size(4).num_workers(2).round_robin(true);
    for on_error in [OnError::Raise, OnError::Skip(Budget::Samples(3))] {
        let mut threads = builder().build().unwrap();
        let sum = |samples: &mut slotline::loader::Samples<'_, _>| {
            let mut sum = 0;
            while let Some(sample) = samples.next() {
                sum += sample?;
            }
            Ok(sum)
        };
        let mut processes = builder().on_error(on_error).collate(sum).processes().build().unwrap();
        for _ in 0..2 {
            let expected = threads
                .epoch()
                .unwrap()
                .map(|batch| batch.map_or(8 + 10 + 11, |batch| batch.tensors().as_slice().iter().sum()));
            let expected: Vec<i64> = expected.collect();
            let got: Vec<Option<i64>> =
                processes.epoch().unwrap().map(|batch| batch.ok().map(|batch| batch.tensors().as_slice()[0])).collect();
            for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
                assert_eq!(
                    *got,
                    Some(*expected).filter(|_| at != 2 || !matches!(on_error, OnError::Raise)),
                    "batch {at}"
                );
            }
            assert_eq!(got.len(), expected.len());
        }
    }
}

/// Collates samples into a list of them, their sum, and their number.
fn summed<D>(samples: &mut Samples<'_, D>) -> Result<([i64; 6], f64, u8), BoxError>
where
    for<'a> D: Loadable<Item<'a> = i64>,
{
    let (mut all, mut sum, mut count) = ([0; 6], 0.0, 0);
    while let Some(sample) = samples.next() {
        all[count] = sample?;
        sum += all[count] as f64;
        count += 1;
    }
    Ok((all, sum, count as u8))
}

#[test]
fn what_a_collate_function_makes_is_written_into_the_batch() {
    // Any worker can make a batch of a dataset by index, so errors may name any of them.
    let plain = |error: Error| chain(&error).replace("worker 1", "worker 0").replace("worker 2", "worker 0");
    macro_rules! check {
        ($builder:expr) => {
            let mut threads = $builder.collate(summed).build().unwrap();
            let mut processes = $builder.collate(summed).processes().build().unwrap();
            for _ in 0..2 {
                let expected: Vec<_> = threads.epoch().unwrap().map(|batch| batch.map_err(plain)).collect();
                let read = |batch: Result<slotline::Batch<(i64, f64, u8)>, Error>| {
                    let batch = batch.map_err(plain)?;
                    let (all, sum, count) = batch.tensors();
                    assert_eq!((all.shape(), sum.shape()), (&[6][..], &[][..]));
                    assert_eq!(batch.len(), usize::from(count.as_slice()[0]));
                    Ok((<[i64; 6]>::try_from(all.as_slice()).unwrap(), sum.as_slice()[0], count.as_slice()[0]))
                };
                assert_eq!(processes.epoch().unwrap().map(read).collect::<Vec<_>>(), expected);
            }
            assert_eq!(threads.stats().bad_indices, processes.stats().bad_indices);
        };
    }
    let skip = OnError::Skip(Budget::Samples(50));
    for (len, batch_size, drop_last, on_error) in [
        (45, Some(6), false, OnError::Raise),
        (45, Some(6), false, skip),
        (45, Some(6), true, skip),
        (45, Some(1), false, skip),
        (45, None, false, skip),
        (2, Some(6), false, OnError::Raise),
        (0, Some(6), false, OnError::Raise),
    ] {
        let dataset = || from_fn(len, |index, _| if index % 9 == 4 { Err("four".into()) } else { Ok(index as i64) });
        for workers in 1..=3 {
            let builder = || Loader::iterable(OneByOne(dataset())).batch_size(batch_size).drop_last(drop_last);
            check!(builder().num_workers(workers).on_error(on_error));
        }
        let builder = || Loader::builder(dataset()).batch_size(batch_size).drop_last(drop_last).on_error(on_error);
        check!(builder().shuffle(len > 0).seed(5).num_workers(2).help(false));
    }
    // The memory for results is determined by the first batch that a worker delivers, here that of
    // the second worker.
    let parts =
        || iter_fn(|worker: Option<WorkerInfo>| Ok((0..worker.map_or(9, |worker| 3 + 9 * worker.id() as i64)).map(Ok)));
    let builder = Loader::iterable(parts()).batch_size(4).drop_last(true).num_workers(2).collate(|samples| {
        let mut all = Vec::new();
        while let Some(sample) = samples.next() {
            all.push(sample?);
        }
        Ok(all)
    });
    let mut loader = builder.processes().build().unwrap();
    let all: Vec<_> = loader.epoch().unwrap().map(|batch| batch.unwrap()).collect();
    let read: Vec<_> = all.iter().map(|batch| (batch.indices(), batch.tensors().as_slice())).collect();
    assert_eq!(read, [(&[0][..], &[0, 1, 2, 3][..]), (&[4], &[4, 5, 6, 7]), (&[8], &[8, 9, 10, 11])]);
}

#[test]
fn a_stream_of_which_no_sample_can_be_collated_is_not_built() {
    for on_error in [OnError::Raise, OnError::Skip(Budget::Samples(9))] {
        let torn = iter_fn(|_| Ok((0..1000).map(|_| Err::<i64, _>("torn".into()))));
        let builder = Loader::iterable(torn).batch_size(4).num_workers(1).on_error(on_error);
        let error = builder.collate(|samples| Ok(samples.next().is_some())).processes().build().unwrap_err();
        assert!(chain(&error).contains("torn"), "{}", chain(&error));
    }
}

#[test]
fn many_workers_start_and_end() {
    for _ in 0..10 {
        let run = Run { len: 40, batch_size: 1, ..RUN };
        let mut loader =
            run.over(items(run.len, sleeping_sometimes)).round_robin(true).num_workers(12).processes().build().unwrap();
        assert_eq!(loader.epoch().unwrap().take(20).map(|batch| batch.unwrap().len()).sum::<usize>(), 20);
    }
}

#[test]
fn options_without_meaning_for_processes_are_refused() {
    let numbers = || from_fn(4, |index, _| Ok(index as i64));
    macro_rules! check {
        ($builder:expr) => {
            let builder = || $builder.num_workers(1);
            let summed = builder().collate(|samples| Ok(samples.next().is_some())).pin_memory_with(|_| Ok(()));
            for (error, option) in [
                (builder().num_workers(0).processes().build().unwrap_err(), "num_workers"),
                (builder().num_workers(5000).processes().build().unwrap_err(), "num_workers"),
                (builder().help(true).processes().build().unwrap_err(), "help"),
                (builder().on_overflow(Overflow::Spill).processes().build().unwrap_err(), "on_overflow"),
                (builder().memory(|bytes| Ok(Pages::new(bytes)?)).processes().build().unwrap_err(), "Pages::shared"),
                (summed.processes().build().unwrap_err(), "pin_memory_with"),
            ] {
                assert!(chain(&error).contains(option), "{error}");
            }
        };
    }
    check!(Loader::iterable(OneByOne(numbers())));
    check!(Loader::builder(numbers()));
    check!(Loader::builder(numbers()).round_robin(true));
}
