//! Workers that are processes: the program prints the same as with threads.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::program::{failure, stdout, summary};
use serde_json::Value;

#[test]
fn threads_and_processes_print_the_same() {
    for command in ["order --len 100 --seed 3 --batch-size 7 --epochs 2", "order digits --seed 4"] {
        for workers in [1, 2] {
            let run = |kind: &str| stdout(&format!("{command} --shuffle --num-workers {workers} --worker-kind {kind}"));
            assert_eq!(run("process"), run("thread"), "{command}");
        }
    }
}

#[test]
fn threads_and_processes_give_the_same_digests() {
    let run = |command: &str, kind: &str| summary(&format!("{command} --worker-kind {kind}"));
    for options in ["", "--part-size 7 --prefetch-factor 1", "--hold 3 --drop-last --pin-memory"] {
        let command = format!("feed digits --shuffle --seed 7 --epochs 2 --num-workers 2 {options}");
        let [threads, processes] = ["thread", "process"].map(|kind| run(&command, kind));
        for key in ["order_digest", "data_digest", "samples"] {
            assert_eq!(processes[key], threads[key], "{key} with {options}");
        }
    }
    let [threads, processes] = ["thread", "process"].map(|kind| run("demo --epochs 2", kind));
    for key in ["weights_digest", "order_digest", "data_digest", "accuracy", "loss"] {
        assert_eq!(processes[key], threads[key], "{key}");
    }
}

#[test]
fn what_processes_cannot_do_is_an_error() {
    for (options, parts) in [
        ("", ["num_workers = 0", "set num_workers"]),
        #[cfg(feature = "trace")]
        ("--num-workers 1 --trace trace", ["--trace does not see", "use --worker-kind thread"]),
    ] {
        let (code, message) = failure(&format!("feed digits --worker-kind process {options}"));
        assert!(code == 1 && message.contains("--worker-kind"), "{options}: {message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{options}: {message}");
    }
}

/// A run that takes about three seconds.
const SLOW: &str = "feed digits --json --epochs 5 --compute-us 20000 --shuffle --seed 7 --num-workers 1";

fn start(options: &str) -> Child {
    let mut program = Command::new(env!("CARGO_BIN_EXE_slotline"));
    program.args(SLOW.split(' ')).args(options.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    program.spawn().expect("the program starts")
}

/// Kills a worker of a program, and waits for the program's end.
fn kill_a_worker(program: Child) -> Output {
    let begun = Instant::now();
    let children = || -> String {
        let threads = fs::read_dir(format!("/proc/{}/task", program.id())).expect("a list");
        let children = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        threads.map(|thread| children(thread.expect("a thread"))).collect()
    };
    let worker = loop {
        if let Some(child) = children().split_whitespace().next() {
            break child.to_owned();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "there is no worker");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(Command::new("kill").args(["-9", &worker]).status().expect("kill runs").success());
    program.wait_with_output().expect("the program ends")
}

#[test]
fn a_killed_worker_ends_the_run_unless_it_is_replaced() {
    let output = kill_a_worker(start("--worker-kind process"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("was killed by signal 9"), "{message}");

    let output = kill_a_worker(start("--worker-kind process --restart-workers 1"));
    assert!(output.status.success(), "{output:?}");
    let replaced: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    let threads = summary("feed digits --epochs 5 --shuffle --seed 7");
    for key in ["order_digest", "data_digest", "samples"] {
        assert_eq!(replaced[key], threads[key], "{key}");
    }
}
