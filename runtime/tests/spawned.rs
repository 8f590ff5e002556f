//! Tests of workers that are started by a command, which runs this program again. This is a
//! separate program, since it counts the children of the process.
#![cfg(all(target_os = "linux", not(any(shuttle, delays))))]

#[path = "support/children.rs"]
mod children;
#[path = "support/planned.rs"]
mod planned;
#[path = "support/mod.rs"]
mod support;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use slotline::arena::Pages;
use slotline::dataset::{Context, IterableDataset, Loadable};
use slotline::loader::{Budget, BuildError, OnError, Output, ProcessBuilder, Samples, work_if_spawned};
use slotline::sample::Packed;
use slotline::{Batch, BoxError, Dataset, Error, Loader, WorkerInfo, worker_info};

use crate::children::{TO_BE_KILLED, children, kill_again};
use crate::planned::Planned;
use crate::support::{
    Delivered, LONG, OneByOne, Run, WithoutSave, alone, chain, describe, from_fn, items, sleeping_sometimes,
};

const RUN: Run = Run { len: 103, batch_size: 8, drop_last: false, shuffle: true, seed: 7 };
const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];

/// Returns the command that runs the test [`worker`] in a new process. `name` selects an arm of the
/// `match` in that test.
fn this(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker", name, "--ignored", "--nocapture"]).stdout(Stdio::null());
    command
}

/// Works like [`this`], without the messages of panics.
fn quiet(name: &str) -> Command {
    let mut command = this(name);
    command.stderr(Stdio::null());
    command
}

fn words() -> impl Dataset {
    from_fn(37, |index, _| Ok((index as i64, Packed::new(&NUMBERS[..index % 5], 5))))
}

/// Returns a dataset of the bytes that the worker received as its argument.
fn bytes(config: Vec<u8>) -> impl Dataset<Sample<'static> = u8> {
    slotline::dataset::from_fn(config.len(), move |index, _| Ok(config[index]))
}

/// Returns a dataset in which some samples fail.
fn bad() -> impl Dataset<Sample<'static> = i64> {
    slotline::dataset::from_fn(20, |index, _| match index {
        3 => Err("the third is missing".into()),
        9 => panic!("nine"),
        15 => std::process::abort(),
        18 => {
            std::thread::sleep(Duration::from_secs(1000));
            Ok(18)
        }
        _ => Ok(index as i64),
    })
}

/// Kills this process at random, and otherwise works like [`sleeping_sometimes`].
fn mortal(index: usize, cx: &mut Context) -> Result<(), BoxError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    if (now / 1000).is_multiple_of(97) {
        // SAFETY: this sends a signal to this process.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    sleeping_sometimes(index, cx)
}

/// An iterable dataset whose cursors save more bytes than fit into a socket's buffer.
struct Wordy<D>(OneByOne<D>);

impl<D: Dataset> IterableDataset for Wordy<D> {
    type Sample<'a> = D::Sample<'a>;
    type Cursor = <OneByOne<D> as IterableDataset>::Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
        self.0.iter(worker)
    }

    fn next<'a>(&'a self, at: &'a mut Self::Cursor, cx: &'a mut Context) -> Result<Option<D::Sample<'a>>, BoxError> {
        self.0.next(at, cx)
    }

    fn save(&self, at: &Self::Cursor, to: &mut String) -> bool {
        let saves = self.0.save(at, to);
        to.push_str(&" ".repeat(700_000));
        saves
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Self::Cursor, BoxError> {
        self.0.resume(worker, saved.trim())
    }
}

/// Collates numbers into their sum and their count.
fn summed<D>(samples: &mut Samples<'_, D>) -> Result<(i64, u8), BoxError>
where
    for<'a> D: Loadable<Item<'a> = i64>,
{
    let (mut sum, mut count) = (0, 0);
    while let Some(sample) = samples.next() {
        (sum, count) = (sum + sample?, count + 1);
    }
    Ok((sum, count))
}

fn ninth_missing() -> impl Dataset<Sample<'static> = i64> + for<'a> crate::support::DatasetOf<'a, i64> {
    from_fn(45, |index, _| if index % 9 == 4 { Err("four".into()) } else { Ok(index as i64) })
}

static INITS: AtomicI64 = AtomicI64::new(0);

/// Returns a dataset whose samples are the number of times that [`init`] has run in the process
/// that reads them, and the index of the worker.
fn inits() -> impl Dataset<Sample<'static> = (i64, i64)> + for<'a> crate::support::DatasetOf<'a, (i64, i64)> {
    from_fn(30, |_, _| Ok((INITS.load(Ordering::Relaxed), worker_info().map_or(-1, |info| info.id() as i64))))
}

/// A `worker_init` that fails in the last worker of three.
fn init(info: WorkerInfo) -> Result<(), BoxError> {
    if info.id() == 2 {
        return Err("no third one".into());
    }
    INITS.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Returns a dataset of numbers, one of which cannot be read in the way that the argument `config`
/// names.
fn stopping(config: &[u8]) -> impl Dataset<Sample<'static> = i64> + use<> {
    let config = config.to_vec();
    slotline::dataset::from_fn(40, move |index, _| {
        match &config[..] {
            b"abort" if index == 13 => std::process::abort(),
            b"hang" if index == 13 => std::thread::sleep(LONG * 10),
            _ => {}
        }
        Ok(index as i64)
    })
}

/// Runs the worker with the name in the arguments. It does not return, unless the process was not
/// started as a worker.
#[test]
#[ignore = "the other tests run it, in separate processes"]
fn worker() {
    match std::env::args().nth(3).as_deref().expect("a name") {
        "worker" => work_if_spawned(|config| Ok(items(std::str::from_utf8(config)?.parse()?, sleeping_sometimes))),
        "mortal_worker" => work_if_spawned(|_| Ok(items(RUN.len, mortal))),
        "worker_of_a_stream" => work_if_spawned(|config| {
            Ok(Loader::iterable(OneByOne(items(std::str::from_utf8(config)?.parse()?, sleeping_sometimes))))
        }),
        "mortal_worker_of_a_stream" => work_if_spawned(|_| Ok(Loader::iterable(OneByOne(items(RUN.len, mortal))))),
        "mortal_worker_of_a_stream_without_save" => {
            work_if_spawned(|_| Ok(Loader::iterable(WithoutSave(OneByOne(items(RUN.len, mortal))))))
        }
        "mortal_worker_of_a_wordy_stream" => {
            work_if_spawned(|_| Ok(Loader::iterable(Wordy(OneByOne(items(RUN.len, mortal))))))
        }
        "worker_that_forks" => work_if_spawned(|config| {
            // SAFETY: both processes continue with this thread.
            if unsafe { libc::fork() } > 0 && config == b"parent ends" {
                // SAFETY: this ends the process.
                unsafe { libc::_exit(0) };
            }
            Ok(Loader::iterable(OneByOne(items(RUN.len, sleeping_sometimes))))
        }),
        "worker_that_collates" => work_if_spawned(|_| Ok(Loader::builder(ninth_missing()).collate(summed))),
        "worker_that_collates_a_stream" => {
            work_if_spawned(|_| Ok(Loader::iterable(OneByOne(ninth_missing())).collate(summed)))
        }
        "worker_with_an_init" => work_if_spawned(|_| Ok(Loader::builder(inits()).worker_init(init))),
        "worker_of_a_stream_with_an_init" => {
            work_if_spawned(|_| Ok(Loader::iterable(OneByOne(inits())).worker_init(init)))
        }
        "worker_of_words" => work_if_spawned(|_| Ok(words())),
        "worker_of_bytes" => work_if_spawned(|config| {
            assert_eq!(std::io::stdin().read(&mut [0])?, 0, "the input is empty");
            Ok(bytes(config.to_vec()))
        }),
        "worker_of_bad_samples" => work_if_spawned(|_| Ok(bad())),
        "worker_that_stops" => work_if_spawned(|config| Ok(stopping(config))),
        "worker_of_a_stream_that_stops" => work_if_spawned(|config| Ok(Loader::iterable(OneByOne(stopping(config))))),
        "worker_that_fails" => work_if_spawned(|config| match config {
            b"panic" => panic!("no such data"),
            b"abort" => std::process::abort(),
            _ => Err::<slotline::dataset::TensorDataset<Vec<i64>>, _>("the file is missing".into()),
        }),
        // A program that a worker starts, and that is not a worker itself.
        "bystander" => {
            work_if_spawned(|_| Ok(words()));
            std::process::exit(5);
        }
        "worker_with_a_bystander" => work_if_spawned(|config| {
            assert_eq!(this("bystander").status()?.code(), Some(5));
            Ok(bytes(config.to_vec()))
        }),
        // Builds a loader that starts this command again, without first becoming a worker.
        "endless" => {
            let built = numbers().spawn(this("endless"), "").build();
            std::process::exit(if matches!(built, Err(BuildError::StartedAsWorker)) { 77 } else { 1 });
        }
        name => panic!("there is no {name}"),
    }
    panic!("this process is a worker");
}

fn numbers() -> ProcessBuilder<impl Dataset<Sample<'static> = i64>> {
    let numbers = slotline::dataset::from_fn(20, |index, _| Ok(index as i64));
    Loader::builder(numbers).batch_size(4).num_workers(2).processes()
}

/// Returns the reason why no worker started by the command could work.
fn refusal<D: Dataset>(builder: ProcessBuilder<D>, command: Command, config: &str) -> String {
    why(builder.restart_workers(usize::MAX).spawn(command, config).build().unwrap())
}

/// Returns the reason why no worker of a loader could work.
fn why<B: Output>(mut loader: Loader<B>) -> String {
    let begun = Instant::now();
    let error = match loader.epoch() {
        Err(error) => error,
        Ok(mut pass) => pass.find_map(Result::err).unwrap(),
    };
    assert!(matches!(error, Error::WorkerDied { .. }), "{error:?}");
    assert!(matches!(loader.epoch(), Err(Error::WorkerDied { .. })));
    assert!(begun.elapsed() < Duration::from_secs(20));
    chain(&error)
}

/// Returns a description of each batch of a pass.
fn read<S>(loader: &mut Loader<Batch<S>>) -> Vec<String> {
    loader.epoch().unwrap().map(describe).collect()
}

/// Returns an iterable dataset, for which the command `worker_of_a_stream` starts workers.
fn stream() -> OneByOne<impl Dataset> {
    OneByOne(items(RUN.len, sleeping_sometimes))
}

#[test]
fn spawned_workers_give_the_batches_of_a_plain_loop() {
    let _alone = alone();
    for (workers, batch_size, in_order, shuffle, round_robin) in [
        (1, 8, true, true, false),
        (2, 8, false, true, false),
        (3, 1, true, false, false),
        (2, 200, true, true, false),
        (1, 8, true, true, true),
        (2, 8, false, true, true),
        (3, 1, true, false, true),
    ] {
        let run = Run { batch_size, shuffle, ..RUN };
        let builder = run
            .over(items(run.len, sleeping_sometimes))
            .num_workers(workers)
            .in_order(in_order)
            .round_robin(round_robin);
        let mut loader = builder.processes().spawn(this("worker"), run.len.to_string()).build().unwrap();
        for expected in run.expected(3) {
            let mut got: Vec<Delivered> =
                loader.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())).collect();
            got.sort_by_key(|got| got.task);
            assert_eq!(got, expected, "{workers} workers");
        }
    }
}

#[test]
fn packed_fields_are_the_same() {
    let _alone = alone();
    for (batch_size, round_robin) in [(Some(6), false), (None, false), (Some(6), true)] {
        let builder = || Loader::builder(words()).batch_size(batch_size).shuffle(true).seed(3).num_workers(2);
        let builder = || builder().round_robin(round_robin);
        let mut spawned = builder().processes().spawn(this("worker_of_words"), "").build().unwrap();
        assert_eq!(read(&mut spawned), read(&mut builder().build().unwrap()));
    }
}

#[test]
fn streams_give_the_batches_of_threads() {
    let _alone = alone();
    for (workers, batch_size, drop_last) in
        [(1, Some(8), false), (2, Some(8), true), (3, Some(1), false), (2, None, false)]
    {
        let builder = || {
            let builder = Loader::iterable(stream()).batch_size(batch_size).drop_last(drop_last);
            builder.num_workers(workers).seed(7)
        };
        let command = || this("worker_of_a_stream");
        let mut threads = builder().build().unwrap();
        let mut spawned = builder().processes().spawn(command(), "103").build().unwrap();
        let mut unordered = builder().in_order(false).processes().spawn(command(), "103").build().unwrap();
        for _ in 0..3 {
            let expected = read(&mut threads);
            assert_eq!(read(&mut spawned), expected, "{workers} workers");
            assert_eq!(read(&mut unordered).len(), expected.len());
        }
        assert_eq!(spawned.stats().samples, threads.stats().samples);
    }
}

#[test]
fn a_stream_is_resumed_by_spawned_workers_or_threads() {
    let _alone = alone();
    let builder = || Loader::iterable(stream()).batch_size(8).num_workers(2).seed(7);
    let spawned = || builder().processes().spawn(this("worker_of_a_stream"), "103").build().unwrap();
    let expected = read(&mut builder().build().unwrap());
    for taken in [0, 1, 5, 12, 13] {
        let mut first = if taken % 2 == 0 { builder().build().unwrap() } else { spawned() };
        let mut pass = first.epoch().unwrap();
        let mut got: Vec<String> = pass.by_ref().take(taken).map(describe).collect();
        let state = pass.state();
        drop(pass);
        let mut second = if taken % 2 == 0 { spawned() } else { builder().build().unwrap() };
        second.load_state(&state).unwrap();
        got.extend(read(&mut second));
        assert_eq!(got[..], expected[..], "{taken} taken");
    }
}

#[test]
fn collate_functions_are_run_by_spawned_workers() {
    let _alone = alone();
    let plain = |error: Error| chain(&error).replace("worker 1", "worker 0");
    macro_rules! check {
        ($builder:expr, $worker:expr) => {
            let builder = $builder;
            let mut threads = builder().collate(summed).build().unwrap();
            let mut spawned = builder().collate(summed).processes().spawn(this($worker), "").build().unwrap();
            for _ in 0..2 {
                let expected: Vec<_> = threads.epoch().unwrap().map(|batch| batch.map_err(plain)).collect();
                let got = spawned.epoch().unwrap().map(|batch| {
                    let batch = batch.map_err(plain)?;
                    let (sum, count) = batch.tensors();
                    assert_eq!(batch.len(), usize::from(count.as_slice()[0]));
                    Ok((sum.as_slice()[0], count.as_slice()[0]))
                });
                assert_eq!(got.collect::<Vec<_>>(), expected, "{}", $worker);
            }
            assert_eq!(spawned.stats().bad_indices, threads.stats().bad_indices);
        };
    }
    let skip = OnError::Skip(Budget::Samples(50));
    for (batch_size, on_error) in [(Some(6), skip), (Some(6), OnError::Raise), (None, skip)] {
        for round_robin in [false, true] {
            let builder = || Loader::builder(ninth_missing()).batch_size(batch_size).shuffle(true).seed(5);
            let builder = || builder().round_robin(round_robin).on_error(on_error).num_workers(2).help(false);
            check!(builder, "worker_that_collates");
        }
        let builder = || Loader::iterable(OneByOne(ninth_missing())).batch_size(batch_size);
        check!(|| builder().on_error(on_error).num_workers(2), "worker_that_collates_a_stream");
    }
}

#[test]
fn spawned_workers_replace_by_samples_that_are_not_longer() {
    let _alone = alone();
    for round_robin in [false, true] {
        let builder = || {
            let lengths = (0..ninth_missing().len() as u32).map(|index| 1 + index * 7 % 12);
            let builder =
                Loader::builder(ninth_missing()).batch_sampler(Planned::batches(lengths, 3)).seed(5).num_workers(2);
            builder.on_error(OnError::Replace(Budget::Share(1.0))).round_robin(round_robin).collate(summed)
        };
        let mut threads = builder().build().unwrap();
        let mut spawned = builder().processes().spawn(this("worker_that_collates"), "").build().unwrap();
        for _ in 0..5 {
            let wanted: Vec<_> = threads.epoch().unwrap().map(Result::unwrap).collect();
            let got = spawned.epoch().unwrap().map(|batch| {
                let batch = batch.unwrap();
                (batch.tensors().0.as_slice()[0], batch.tensors().1.as_slice()[0])
            });
            assert_eq!(got.collect::<Vec<_>>(), wanted);
        }
        assert!(threads.stats().bad_samples > 10);
    }
}

#[test]
fn worker_init_is_run_by_spawned_workers() {
    let _alone = alone();
    macro_rules! check {
        ($builder:expr, $worker:expr) => {
            for (persistent, expected) in [(false, [1, 2, 3]), (true, [1, 1, 1])] {
                let builder = $builder.batch_size(3).persistent_workers(persistent).worker_init(init);
                let mut loader = builder.num_workers(2).processes().spawn(this($worker), "").build().unwrap();
                for expected in expected {
                    let mut count = 0;
                    for batch in loader.epoch().unwrap() {
                        let batch = batch.unwrap();
                        let (inits, id) = batch.tensors();
                        assert!(inits.as_slice().iter().all(|&inits| inits == expected), "{}: {inits:?}", $worker);
                        assert!(id.as_slice().iter().all(|id| (0..2).contains(id)), "{id:?}");
                        count += batch.len();
                    }
                    assert_eq!(count, 30);
                }
            }
            let mut loader =
                $builder.worker_init(init).num_workers(3).processes().spawn(this($worker), "").build().unwrap();
            for _ in 0..2 {
                let errors: Vec<_> = loader.epoch().unwrap().filter_map(Result::err).collect();
                assert!(matches!(errors[..], [Error::WorkerInit { worker: 2, .. }]), "{errors:?}");
                assert!(chain(&errors[0]).contains("no third one"), "{}", chain(&errors[0]));
            }
        };
    }
    check!(Loader::builder(inits()), "worker_with_an_init");
    check!(Loader::builder(inits()).round_robin(true), "worker_with_an_init");
    check!(Loader::iterable(OneByOne(inits())), "worker_of_a_stream_with_an_init");
}

#[test]
fn workers_are_told_any_bytes() {
    let _alone = alone();
    for len in [0, 1, 1000, 1_000_000] {
        let config: Vec<u8> = (0..=255).cycle().take(len).collect();
        let builder = Loader::builder(bytes(config.clone())).batch_size(1 << 16).num_workers(1);
        let mut loader = builder.processes().spawn(this("worker_of_bytes"), config.clone()).build().unwrap();
        let read = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec());
        assert_eq!(read.collect::<Vec<_>>(), config);
    }
}

#[test]
fn memory_of_the_user_is_mapped_by_workers() {
    let _alone = alone();
    let builder = || RUN.over(items(RUN.len, sleeping_sometimes)).num_workers(2);
    let shared = builder().memory(|bytes| Ok(Pages::shared(bytes)?));
    let mut loader = shared.processes().spawn(this("worker"), "103").build().unwrap();
    let got: Vec<Delivered> = loader.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())).collect();
    assert_eq!(got, RUN.expected(1)[0]);
}

#[test]
fn nobody_can_tell_that_restarted_workers_died() {
    let _alone = alone();
    for round_robin in [false, true] {
        let builder = RUN.over(items(RUN.len, sleeping_sometimes)).num_workers(2).round_robin(round_robin);
        let builder = builder.processes().restart_workers(1_000_000);
        let mut loader = builder.spawn(this("mortal_worker"), "").build().unwrap();
        for expected in RUN.expected(20) {
            let got: Vec<Delivered> = loader.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())).collect();
            assert_eq!(got, expected);
        }
    }
    macro_rules! check {
        ($dataset:expr, $worker:expr) => {
            let builder = || Loader::iterable($dataset).batch_size(8).num_workers(2).seed(7);
            let mut threads = builder().build().unwrap();
            let spawned = builder().processes().restart_workers(1_000_000).spawn(this($worker), "");
            let mut spawned = spawned.build().unwrap();
            for _ in 0..10 {
                assert_eq!(read(&mut spawned), read(&mut threads), "{}", $worker);
            }
        };
    }
    check!(stream(), "mortal_worker_of_a_stream");
    check!(WithoutSave(stream()), "mortal_worker_of_a_stream_without_save");
    check!(Wordy(stream()), "mortal_worker_of_a_wordy_stream");
}

#[test]
fn a_loader_ends_with_a_worker_that_nobody_replaces() {
    let _alone = alone();
    macro_rules! check {
        ($builder:expr, $worker:expr) => {
            let builder = $builder.batch_size(5).num_workers(1).processes();
            let mut loader = builder.spawn(quiet($worker), "abort").build().unwrap();
            let errors: Vec<Error> = loader.epoch().unwrap().filter_map(Result::err).collect();
            assert!(
                matches!(errors[..], [Error::Sample { index: 13, task: 2, .. }, Error::WorkerDied { .. }]),
                "{errors:?}"
            );
            assert!(errors.iter().all(|error| chain(error).contains("SIGABRT")), "{errors:?}");
            assert!(matches!(loader.epoch(), Err(Error::WorkerDied { .. })));
        };
    }
    check!(Loader::builder(stopping(b"")), "worker_that_stops");
    check!(Loader::builder(stopping(b"")).round_robin(true), "worker_that_stops");
    check!(Loader::iterable(OneByOne(stopping(b""))), "worker_of_a_stream_that_stops");
}

#[test]
fn workers_that_are_killed_or_interrupted_change_no_batch() {
    let _alone = alone();
    // Workers are also killed while they start. A worker ignores an interrupt once it has begun to
    // work.
    let kill = |epoch: usize| {
        for child in children(std::process::id()) {
            let signal = if epoch % 4 == 3 { libc::SIGINT } else { libc::SIGKILL };
            // SAFETY: this sends a signal to a child of this process.
            unsafe { libc::kill(child as i32, signal) };
        }
    };
    for round_robin in [false, true] {
        let builder = RUN.over(items(RUN.len, sleeping_sometimes)).num_workers(2).round_robin(round_robin);
        let builder = builder.processes().restart_workers(usize::MAX);
        let mut loader = builder.spawn(this("worker"), "103").build().unwrap();
        for (epoch, expected) in RUN.expected(12).into_iter().enumerate() {
            kill(epoch);
            let got: Vec<Delivered> = loader.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())).collect();
            assert_eq!(got, expected);
        }
    }
    let builder = || Loader::iterable(stream()).batch_size(8).num_workers(2).seed(7);
    let spawned = builder().processes().restart_workers(usize::MAX).spawn(this("worker_of_a_stream"), "103");
    let (mut spawned, mut threads) = (spawned.build().unwrap(), builder().build().unwrap());
    for epoch in 0..12 {
        kill(epoch);
        assert_eq!(read(&mut spawned), read(&mut threads));
    }
}

#[test]
fn bad_samples_are_passed_over() {
    let _alone = alone();
    let skip = OnError::Skip(Budget::Samples(10));
    let builder = Loader::builder(bad()).batch_size(5).num_workers(2).on_error(skip).processes();
    let builder = builder.restart_workers(1).sample_timeout(Duration::from_millis(300));
    let mut loader = builder.spawn(quiet("worker_of_bad_samples"), "").build().unwrap();
    let read = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec());
    assert_eq!(read.collect::<Vec<_>>(), (0..20).filter(|index| ![3, 9, 15, 18].contains(index)).collect::<Vec<_>>());
    assert_eq!(loader.stats().bad_indices, [3, 9, 15, 18]);
}

#[test]
fn a_sample_that_takes_too_long_is_an_error() {
    let _alone = alone();
    let (begun, limit) = (Instant::now(), Duration::from_millis(300));
    macro_rules! check {
        ($builder:expr, $worker:expr) => {
            let builder = $builder.batch_size(5).num_workers(1).processes().sample_timeout(limit);
            let mut loader = builder.spawn(this($worker), "hang").build().unwrap();
            let errors: Vec<Error> = loader.epoch().unwrap().filter_map(Result::err).collect();
            // On a busy machine other samples may take too long as well.
            let late = errors.iter().find(|error| matches!(error, Error::Sample { index: 13, task: 2, .. }));
            let text = late.map(|error| chain(error)).unwrap_or_else(|| panic!("{errors:?}"));
            assert!(text.contains("was killed, since the sample took longer than 300ms"), "{text}");
            let stats = loader.stats();
            assert!(stats.slowest.iter().any(|slow| slow.index == 13 && slow.time >= limit), "{stats:?}");
        };
    }
    check!(Loader::builder(stopping(b"")), "worker_that_stops");
    check!(Loader::builder(stopping(b"")).round_robin(true), "worker_that_stops");
    check!(Loader::iterable(OneByOne(stopping(b""))), "worker_of_a_stream_that_stops");
    assert!(begun.elapsed() < LONG);
}

#[test]
fn workers_of_another_kind_are_refused() {
    let _alone = alone();
    let skips = OnError::Skip(Budget::Samples(50));
    let plain = || Loader::builder(ninth_missing()).num_workers(2).on_error(skips);
    let streamed = || Loader::iterable(OneByOne(ninth_missing())).num_workers(2).on_error(skips);
    macro_rules! check {
        ($builder:expr, $worker:expr, $text:expr) => {
            let builder = $builder.processes().restart_workers(usize::MAX);
            let text = why(builder.spawn(this($worker), "45").build().unwrap());
            assert!(text.contains(concat!("it could not start: ", $text)), "{text}");
        };
    }
    check!(plain(), "worker_of_a_stream", "it has an iterable dataset, and the loader has a dataset by index;");
    check!(plain().round_robin(true), "worker_of_a_stream", "it has an iterable dataset, and");
    check!(streamed(), "worker", "it has a dataset by index, and the loader has an iterable dataset;");
    check!(streamed(), "worker_that_collates", "it has a dataset by index, and");
    check!(
        plain(),
        "worker_that_collates",
        "its builder has a collate function, and the loader's has no collate function;"
    );
    check!(
        plain().collate(summed),
        "worker",
        "its builder has no collate function, and the loader's has a collate function;"
    );
    check!(streamed(), "worker_that_collates_a_stream", "its builder has a collate function,");
    check!(streamed().collate(summed), "worker_of_a_stream", "its builder has no collate function,");
    check!(plain().round_robin(true), "worker_with_an_init", "its builder has a worker_init, and the loader's has no");
    // The workers' dataset is of the same kind as the loader's, but has other samples.
    check!(streamed(), "worker_of_a_stream", "its dataset has the fields (0: i64 [], 1: u8 [2, 3], 2: u64 []), and");
    check!(plain().round_robin(true), "worker", "its dataset has the fields (0: i64 [], 1: u8 [2, 3], 2: u64 []), and");
    let counts = |samples: &mut Samples<'_, _>| Ok(samples.next().is_some());
    check!(plain().collate(counts), "worker_that_collates", "its dataset has the fields (0: i64 [], 1: u8 []), and");
    // With a `worker_init`, the pass reports why it could not be run.
    macro_rules! check {
        ($builder:expr, $worker:expr) => {
            let builder = $builder.worker_init(|_| Ok(())).processes().restart_workers(usize::MAX);
            let mut loader = builder.spawn(this($worker), "45").build().unwrap();
            // If a worker ends before the pass begins, the error is returned by `epoch`, and
            // otherwise by the pass.
            let errors: Vec<Error> = match loader.epoch() {
                Ok(pass) => pass.filter_map(Result::err).collect(),
                Err(error) => vec![error],
            };
            let text = "could not start: its builder has no worker_init, and the loader's has a worker_init";
            let expected = |error: &Error| matches!(error, Error::WorkerInit { .. } | Error::WorkerDied { .. });
            assert!(!errors.is_empty() && errors.iter().all(expected), "{errors:?}");
            assert!(errors.iter().all(|error| chain(error).contains(text)), "{errors:?}");
            assert!(matches!(loader.epoch(), Err(Error::WorkerDied { .. })));
        };
    }
    check!(plain(), "worker");
    check!(plain().round_robin(true), "worker");
    check!(streamed(), "worker_of_a_stream");
}

#[test]
fn a_copy_of_a_worker_that_its_make_forks_does_not_work() {
    let _alone = alone();
    let streamed = || {
        Loader::iterable(OneByOne(items(RUN.len, sleeping_sometimes)))
            .batch_size(RUN.batch_size)
            .num_workers(1)
            .processes()
    };
    for _ in 0..5 {
        let mut loader = streamed().spawn(this("worker_that_forks"), "").build().unwrap();
        for _ in 0..3 {
            let indices = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec());
            assert_eq!(indices.collect::<Vec<_>>(), (0..RUN.len as i64).collect::<Vec<_>>());
        }
        let text = why(streamed().spawn(this("worker_that_forks"), "parent ends").build().unwrap());
        assert!(text.contains("its process ended with exit code 0 before it began to work"), "{text}");
    }
}

#[test]
fn no_command_is_started_again_for_a_dropped_loader() {
    let _alone = alone();
    let starts = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec 0<&-; echo >> "$0"; exec sleep 600"#]).arg(starts.path());
    let builder = Loader::iterable(OneByOne(items(RUN.len, sleeping_sometimes))).num_workers(1);
    let builder = builder.timeout(Duration::from_millis(500)).processes();
    let mut loader = builder.spawn(command, "").build().unwrap();
    assert!(loader.epoch().unwrap().next().unwrap().is_err());
    drop(loader);
    assert!(std::fs::read(starts.path()).unwrap().len() <= 1);
}

#[test]
fn another_dataset_is_refused() {
    let _alone = alone();
    let other = || RUN.over(items(RUN.len, sleeping_sometimes)).num_workers(2).processes();
    let text = refusal(other(), this("worker"), "104");
    assert!(text.contains("could not start: its dataset has 104 samples, and the loader's has 103"), "{text}");
    let text = refusal(numbers(), this("worker"), "20");
    assert!(
        text.contains("has the fields (0: i64 [], 1: u8 [2, 3], 2: u64 []), and the loader's has (0: i64 [])"),
        "{text}"
    );
}

#[test]
fn a_dataset_that_cannot_be_made_is_an_error() {
    let _alone = alone();
    let command = || quiet("worker_that_fails");
    let text = refusal(numbers(), command(), "");
    assert!(text.contains("could not start: the file is missing"), "{text}");
    let text = refusal(numbers(), command(), "panic");
    assert!(text.contains("could not start: ") && text.contains("no such data"), "{text}");
    let text = refusal(numbers(), command(), "abort");
    assert!(text.contains("its process was killed by signal 6 (SIGABRT) before it began to work"), "{text}");
    let text = refusal(numbers(), this("worker"), "\u{fffd}");
    assert!(text.contains("could not start: invalid digit"), "{text}");
    for in_order in [true, false] {
        let round_robin = || {
            let numbers = slotline::dataset::from_fn(20, |index, _| Ok(index as i64));
            let builder = Loader::builder(numbers).round_robin(true).in_order(in_order).num_workers(2);
            builder.prefetch_factor(if in_order { 1 } else { 2 }).processes()
        };
        let text = refusal(round_robin(), command(), "");
        assert!(text.contains("could not start: the file is missing"), "{text}");
        let text = refusal(round_robin(), command(), "abort");
        assert!(text.contains("its process was killed by signal 6 (SIGABRT) before it began to work"), "{text}");
        let text = refusal(round_robin(), Command::new("true"), "");
        assert!(text.contains("ended with exit code 0 before it began to work; its main must call"), "{text}");
    }
}

#[test]
fn a_command_that_is_no_worker_is_an_error() {
    let _alone = alone();
    let text = refusal(numbers(), Command::new("true"), "");
    assert!(text.contains("its process ended with exit code 0 before it began to work; its main must call"), "{text}");
    // A program that builds the loader again must not start itself forever.
    let text = refusal(numbers(), this("endless"), "");
    assert!(text.contains("its process ended with exit code 77 before"), "{text}");
    let missing = numbers().spawn(Command::new("/nowhere/program"), "").build().unwrap_err();
    assert!(matches!(missing, BuildError::Command { worker: 0, .. }));
    assert!(chain(&missing).contains("could not be started by /nowhere/program: No such file"), "{}", chain(&missing));
    let builder = Loader::iterable(stream()).num_workers(1).processes();
    let missing = builder.spawn(Command::new("/nowhere/program"), "").build().unwrap_err();
    assert!(matches!(missing, BuildError::Command { worker: 0, .. }));
    assert!(chain(&missing).contains("could not be started by /nowhere/program: No such file"), "{}", chain(&missing));
}

#[test]
fn a_command_that_never_works_is_a_timeout() {
    let _alone = alone();
    macro_rules! check {
        ($builder:expr, $line:expr) => {
            let mut command = Command::new("sh");
            command.args(["-c", $line]);
            let builder = $builder.num_workers(2).timeout(Duration::from_millis(50));
            let mut loader = builder.processes().restart_workers(usize::MAX).spawn(command, "").build().unwrap();
            let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            let begun = Instant::now();
            drop(loader);
            assert!(begun.elapsed() < Duration::from_secs(10));
        };
    }
    // The second program closes its standard input, which is the socket to the loader.
    for line in ["exec sleep 1000", "exec sleep 1000 < /dev/null"] {
        check!(RUN.over(items(RUN.len, sleeping_sometimes)), line);
        check!(RUN.over(items(RUN.len, sleeping_sometimes)).round_robin(true), line);
        check!(Loader::iterable(stream()), line);
    }
}

#[test]
fn a_script_must_become_the_worker() {
    let _alone = alone();
    let script = |line: &str| {
        let mut script = Command::new("sh");
        script
            .args(["-c", line])
            .args([this("worker_of_bytes").get_program()])
            .args(this("worker_of_bytes").get_args());
        script.stdout(Stdio::null());
        script
    };
    let builder = || Loader::builder(bytes(b"ab".to_vec())).num_workers(1).processes();
    let mut loader = builder().spawn(script(r#"exec "$0" "$@""#), "ab").build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 2);
    let text = refusal(builder(), script(r#""$0" "$@"; exit 3"#), "ab");
    assert!(text.contains("it is not a child of the loader's process"), "{text}");
    let deaf = || script(r#"exec "$0" "$@" < /dev/null 2> /dev/null"#);
    let text = refusal(builder(), deaf(), "ab");
    assert!(text.contains("its process ended with exit code 1 before"), "{text}");
    let builder = || Loader::builder(bytes(b"ab".to_vec())).num_workers(1).round_robin(true).processes();
    let text = refusal(builder(), deaf(), "ab");
    assert!(text.contains("its process ended with exit code 1 before"), "{text}");
    let text = refusal(builder(), script(r#""$0" "$@"; exit 3"#), "ab");
    assert!(text.contains("it is not a child of the loader's process"), "{text}");
}

#[test]
fn a_program_that_a_worker_starts_is_no_worker() {
    let _alone = alone();
    let builder = Loader::builder(bytes(b"abc".to_vec())).num_workers(1).processes();
    let mut loader = builder.spawn(this("worker_with_a_bystander"), "abc").build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 3);
}

#[test]
fn nothing_is_left_of_dropped_loaders() {
    let _alone = alone();
    let left = || (children(std::process::id()).len(), std::fs::read_dir("/proc/self/fd").unwrap().count());
    let before = left();
    macro_rules! check {
        ($taken:expr, $builder:expr, $worker:expr) => {
            let mut loader = $builder.num_workers(2).processes().spawn(this($worker), "103").build().unwrap();
            if $taken > 2 {
                let kept: Vec<_> = loader.epoch().unwrap().take($taken).map(|batch| batch.unwrap()).collect();
                drop(loader);
                drop(kept);
            }
        };
    }
    for taken in 0..15 {
        check!(taken, RUN.over(items(RUN.len, sleeping_sometimes)), "worker");
        check!(taken, Loader::iterable(stream()).batch_size(8), "worker_of_a_stream");
    }
    assert_eq!(left(), before);
}

#[test]
fn workers_of_a_stream_end_with_a_program_that_is_killed() {
    let _alone = alone();
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let builder = Loader::iterable(stream()).batch_size(8).num_workers(3).processes();
        let mut loader = builder.spawn(this("worker_of_a_stream"), "103").build().unwrap();
        loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
        println!("\nready");
        loop {
            loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
        }
    }
    kill_again("workers_of_a_stream_end_with_a_program_that_is_killed", libc::SIGKILL, false, Duration::from_secs(5));
}

/// The test starts its own program again, with this test selected, and kills that process.
#[test]
fn workers_end_with_a_program_that_is_killed() {
    let _alone = alone();
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let builder = RUN.over(items(RUN.len, sleeping_sometimes)).num_workers(3).processes();
        let mut loader = builder.spawn(this("worker"), "103").build().unwrap();
        loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
        println!("\nready");
        loop {
            loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
        }
    }
    kill_again("workers_end_with_a_program_that_is_killed", libc::SIGKILL, false, Duration::from_secs(5));
}
