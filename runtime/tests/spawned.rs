//! Workers that are started by a command: this program again. On its own, since it counts the children of this process.
#![cfg(all(target_os = "linux", not(any(shuttle, delays))))]

#[path = "support/children.rs"]
mod children;
#[path = "support/mod.rs"]
mod support;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use slotline::arena::Pages;
use slotline::loader::{Budget, BuildError, OnError, ProcessBuilder, work_if_spawned};
use slotline::sample::{Packed, Schema};
use slotline::{Batch, Dataset, Error, Loader};

use crate::children::{TO_BE_KILLED, children, kill_again};
use crate::support::{Got, Run, alone, chain, dawdling, from_fn, items};

const RUN: Run = Run { len: 103, batch_size: 8, drop_last: false, shuffle: true, seed: 7 };
const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];

/// The command that runs the test `worker`, or another one.
fn this(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).stdout(Stdio::null());
    command
}

/// Works like [`this`], without the messages of panics.
fn quiet(test: &str) -> Command {
    let mut command = this(test);
    command.stderr(Stdio::null());
    command
}

fn words() -> impl Dataset {
    from_fn(37, |index, _| Ok((index as i64, Packed::new(&NUMBERS[..index % 5], 5))))
}

/// Bytes that the worker was told.
fn bytes(told: Vec<u8>) -> impl Dataset<Sample<'static> = u8> {
    slotline::dataset::from_fn(told.len(), move |index, _| Ok(told[index]))
}

/// Samples of which some do not come.
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

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn worker() {
    work_if_spawned(|told| Ok(items(std::str::from_utf8(told)?.parse()?, dawdling)));
    panic!("this process is a worker");
}

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn mortal_worker() {
    work_if_spawned(|_| {
        Ok(items(RUN.len, |index, cx| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
            if (now / 1000).is_multiple_of(97) {
                // SAFETY: sends a signal to this process.
                unsafe { libc::raise(libc::SIGKILL) };
            }
            dawdling(index, cx)
        }))
    });
}

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn worker_of_words() {
    work_if_spawned(|_| Ok(words()));
}

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn worker_of_bytes() {
    work_if_spawned(|told| {
        assert_eq!(std::io::stdin().read(&mut [0])?, 0, "the input is empty");
        Ok(bytes(told.to_vec()))
    });
}

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn worker_of_bad_samples() {
    work_if_spawned(|_| Ok(bad()));
}

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn worker_that_fails() {
    work_if_spawned(|told| match told {
        b"panic" => panic!("no such data"),
        b"abort" => std::process::abort(),
        _ => Err::<slotline::dataset::TensorDataset<Vec<i64>>, _>("the file is missing".into()),
    });
}

/// A program of a worker.
#[test]
#[ignore = "the other tests run it, in separate processes"]
fn bystander() {
    work_if_spawned(|_| Ok(words()));
    std::process::exit(5);
}

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn worker_with_a_bystander() {
    work_if_spawned(|told| {
        assert_eq!(this("bystander").status()?.code(), Some(5));
        Ok(bytes(told.to_vec()))
    });
}

/// It starts workers itself, since it does not become one first.
#[test]
#[ignore = "the other tests run it, in separate processes"]
fn endless() {
    let built = numbers().spawn(this("endless"), "").build();
    std::process::exit(if matches!(built, Err(BuildError::StartedAsWorker)) { 77 } else { 1 });
}

fn numbers() -> ProcessBuilder<impl Dataset<Sample<'static> = i64>> {
    let numbers = slotline::dataset::from_fn(20, |index, _| Ok(index as i64));
    Loader::builder(numbers).batch_size(4).num_workers(2).processes()
}

/// Returns why no worker started.
fn refusal<D: Dataset>(builder: ProcessBuilder<D>, command: Command, told: &str) -> String {
    let begun = Instant::now();
    let mut loader = builder.restart_workers(usize::MAX).spawn(command, told).build().unwrap();
    let error = match loader.epoch() {
        Err(error) => error,
        Ok(mut pass) => pass.find_map(Result::err).unwrap(),
    };
    assert!(matches!(error, Error::WorkerDied { .. }), "{error:?}");
    assert!(matches!(loader.epoch(), Err(Error::WorkerDied { .. })));
    assert!(begun.elapsed() < Duration::from_secs(20));
    chain(&error)
}

fn columns<S: Schema>(mut loader: Loader<Batch<S>>) -> Vec<String> {
    loader.epoch().unwrap().map(|batch| format!("{:?}", batch.unwrap().columns())).collect()
}

#[test]
fn spawned_workers_give_the_batches_of_a_plain_loop() {
    let _alone = alone();
    for (workers, batch_size, in_order, shuffle) in
        [(1, 8, true, true), (2, 8, false, true), (3, 1, true, false), (2, 200, true, true)]
    {
        let run = Run { batch_size, shuffle, ..RUN };
        let builder = run.over(items(run.len, dawdling)).num_workers(workers).in_order(in_order);
        let mut loader = builder.processes().spawn(this("worker"), run.len.to_string()).build().unwrap();
        for expected in run.expected(3) {
            let mut got: Vec<Got> = loader.epoch().unwrap().map(|batch| Got::from(&batch.unwrap())).collect();
            got.sort_by_key(|got| got.task);
            assert_eq!(got, expected, "{workers} workers");
        }
    }
}

#[test]
fn packed_fields_are_the_same() {
    let _alone = alone();
    for batch_size in [Some(6), None] {
        let builder = || Loader::builder(words()).batch_size(batch_size).shuffle(true).seed(3);
        let spawned = builder().num_workers(2).processes().spawn(this("worker_of_words"), "");
        assert_eq!(columns(spawned.build().unwrap()), columns(builder().build().unwrap()));
    }
}

#[test]
fn workers_are_told_any_bytes() {
    let _alone = alone();
    for len in [0, 1, 1000, 1_000_000] {
        let told: Vec<u8> = (0..=255).cycle().take(len).collect();
        let builder = Loader::builder(bytes(told.clone())).batch_size(1 << 16).num_workers(1);
        let mut loader = builder.processes().spawn(this("worker_of_bytes"), told.clone()).build().unwrap();
        let read = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec());
        assert_eq!(read.collect::<Vec<_>>(), told);
    }
}

#[test]
fn memory_of_the_user_is_mapped_by_workers() {
    let _alone = alone();
    let builder = || RUN.over(items(RUN.len, dawdling)).num_workers(2);
    let shared = builder().memory(|bytes| Ok(Pages::shared(bytes)?));
    let mut loader = shared.processes().spawn(this("worker"), "103").build().unwrap();
    let got: Vec<Got> = loader.epoch().unwrap().map(|batch| Got::from(&batch.unwrap())).collect();
    assert_eq!(got, RUN.expected(1)[0]);
}

#[test]
fn nobody_can_tell_that_restarted_workers_died() {
    let _alone = alone();
    let builder = RUN.over(items(RUN.len, dawdling)).num_workers(2).processes().restart_workers(1_000_000);
    let mut loader = builder.spawn(this("mortal_worker"), "").build().unwrap();
    for expected in RUN.expected(20) {
        let got: Vec<Got> = loader.epoch().unwrap().map(|batch| Got::from(&batch.unwrap())).collect();
        assert_eq!(got, expected);
    }
}

#[test]
fn workers_that_are_killed_or_interrupted_change_no_batch() {
    let _alone = alone();
    let builder = RUN.over(items(RUN.len, dawdling)).num_workers(2).processes().restart_workers(usize::MAX);
    let mut loader = builder.spawn(this("worker"), "103").build().unwrap();
    for (epoch, expected) in RUN.expected(12).into_iter().enumerate() {
        for child in children(std::process::id()) {
            // Even while they start. A worker ignores an interrupt once it works.
            let signal = if epoch % 4 == 3 { libc::SIGINT } else { libc::SIGKILL };
            // SAFETY: sends a signal to a child of this process.
            unsafe { libc::kill(child as i32, signal) };
        }
        let got: Vec<Got> = loader.epoch().unwrap().map(|batch| Got::from(&batch.unwrap())).collect();
        assert_eq!(got, expected);
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
fn another_dataset_is_refused() {
    let _alone = alone();
    let other = || RUN.over(items(RUN.len, dawdling)).num_workers(2).processes();
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
    let init = Loader::builder(bytes(vec![1])).num_workers(1).worker_init(|_| Ok(()));
    let clash = init.processes().spawn(this("worker_of_bytes"), "").build().unwrap_err();
    assert!(matches!(clash, BuildError::Clash { first: "spawn", second: "worker_init", .. }));
}

#[test]
fn a_command_that_never_works_is_a_timeout() {
    let _alone = alone();
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let builder = RUN.over(items(RUN.len, dawdling)).num_workers(2).timeout(Duration::from_millis(50));
    let mut loader = builder.processes().spawn(sleep, "").build().unwrap();
    let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let begun = Instant::now();
    drop(loader);
    assert!(begun.elapsed() < Duration::from_secs(10));
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
    let told = || Loader::builder(bytes(b"ab".to_vec())).num_workers(1).processes();
    let mut loader = told().spawn(script(r#"exec "$0" "$@""#), "ab").build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 2);
    let text = refusal(told(), script(r#""$0" "$@"; exit 3"#), "ab");
    assert!(text.contains("it is not a child of the loader's process"), "{text}");
    let text = refusal(told(), script(r#"exec "$0" "$@" < /dev/null 2> /dev/null"#), "ab");
    assert!(text.contains("its process ended with exit code 1 before"), "{text}");
}

#[test]
fn a_program_that_a_worker_starts_is_no_worker() {
    let _alone = alone();
    let told = Loader::builder(bytes(b"abc".to_vec())).num_workers(1).processes();
    let mut loader = told.spawn(this("worker_with_a_bystander"), "abc").build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 3);
}

#[test]
fn nothing_is_left_of_dropped_loaders() {
    let _alone = alone();
    let left = || (children(std::process::id()).len(), std::fs::read_dir("/proc/self/fd").unwrap().count());
    let before = left();
    for taken in 0..15 {
        let builder = RUN.over(items(RUN.len, dawdling)).num_workers(2).processes();
        let mut loader = builder.spawn(this("worker"), "103").build().unwrap();
        if taken > 2 {
            let kept: Vec<_> = loader.epoch().unwrap().take(taken).map(|batch| batch.unwrap()).collect();
            drop(loader);
            drop(kept);
        }
    }
    assert_eq!(left(), before);
}

/// The program is this test again, which is then killed.
#[test]
fn workers_end_with_a_program_that_is_killed() {
    let _alone = alone();
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let builder = RUN.over(items(RUN.len, dawdling)).num_workers(3).processes();
        let mut loader = builder.spawn(this("worker"), "103").build().unwrap();
        loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
        println!("\nready");
        loop {
            loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
        }
    }
    kill_again("workers_end_with_a_program_that_is_killed", libc::SIGKILL, false, Duration::from_secs(5));
}
