//! Processes that are forked while a loader is at work.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use slotline::dataset::{Dataset, Loadable};
use slotline::loader::{BatchLoader, BatchPass, Builder};
use slotline::{Batch, Error, Loader};

use crate::child;
use crate::support::{LONG, OneByOne, Run, dawdling, items};

const RUN: Run = Run { len: 150, batch_size: 7, drop_last: false, shuffle: false, seed: 13 };
const PASSES: usize = 30;

fn samples() -> impl Dataset {
    items(RUN.len, dawdling)
}

/// Forks this process, and whether this is the child, which ends at a panic, or when it hangs. The parent waits until it
/// has ended well.
fn is_child() -> bool {
    // SAFETY: the child is a copy of this process with this thread only. What it then does is what the test is about.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        // SAFETY: a clock that ends the process, and its end at a panic.
        unsafe { libc::alarm(30) };
        std::panic::set_hook(Box::new(|panic| {
            eprintln!("{panic}");
            exit(1)
        }));
        return true;
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child hung: signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
    false
}

/// Ends a child. Nothing of its parent's is cleaned up.
fn exit(code: i32) -> ! {
    // SAFETY: the end.
    unsafe { libc::_exit(code) }
}

/// What is in a batch: which samples, and their random numbers.
fn contents<D: Loadable>(batch: &Batch<D>) -> (Vec<i64>, Vec<u64>) {
    let columns = batch.columns();
    let (numbers, words) = (columns.get(0).unwrap(), columns.get(2).unwrap());
    (numbers.typed().unwrap().as_slice().to_vec(), words.typed().unwrap().as_slice().to_vec())
}

/// What a pass delivers.
fn deliver(loader: &mut impl BatchLoader) -> Vec<(Vec<i64>, Vec<u64>)> {
    loader.epoch().unwrap().map(|batch| contents(&batch.unwrap())).collect()
}

fn forks<L: BatchLoader>(build: impl Fn() -> L, has_workers: bool) {
    let mut loader = build();
    let expected: Vec<_> = (0..PASSES).map(|_| deliver(&mut loader)).collect();
    let mut loader = build();
    let mut lost = 0;
    for (round, expected_now) in expected.iter().enumerate() {
        let mut pass = loader.epoch().unwrap();
        let mut delivered = 0;
        let mut held = None;
        for batch in pass.by_ref().take(round % (expected_now.len() + 1)) {
            let batch = batch.unwrap();
            assert_eq!(contents(&batch), expected_now[delivered]);
            delivered += 1;
            held = Some(batch);
        }
        if is_child() {
            drop(held);
            let mut forked = false;
            for batch in pass.by_ref() {
                match batch {
                    Ok(batch) => assert_eq!(contents(&batch), expected_now[delivered]),
                    Err(Error::Forked) => forked = true,
                    Err(error) => panic!("{error}"),
                }
                delivered += usize::from(!forked);
            }
            // That there is nothing more to come is for the workers of a stream to say.
            assert!(if forked { has_workers } else { delivered == expected_now.len() }, "{delivered} were delivered");
            assert!(pass.next().is_none() && pass.stats().stuck.is_empty());
            drop(pass);
            match loader.epoch().map(drop) {
                Err(Error::Forked) => assert!(has_workers),
                outcome => assert!(!has_workers && outcome.is_ok()),
            }
            drop(loader);
            assert_eq!(deliver(&mut build()), expected[0], "another loader is as good as any");
            exit(0)
        }
        drop(held);
        for batch in pass {
            assert_eq!(contents(&batch.unwrap()), expected_now[delivered]);
            delivered += 1;
        }
        assert_eq!(delivered, expected_now.len());
        lost += 1;
    }
    println!("{lost} forks");
}

/// Words: which kind of loader, and how many workers.
pub(crate) fn forked(words: &[&str]) {
    let workers = words[1].parse().unwrap();
    fn set<D>(builder: Builder<D>, workers: usize) -> Builder<D> {
        let builder = builder.batch_size(RUN.batch_size).seed(RUN.seed).num_workers(workers);
        // The watchdog has a thread, too.
        builder.watchdog(LONG).hold(2)
    }
    match words[0] {
        "shared" => forks(|| set(Loader::builder(samples()), workers).build().unwrap(), workers > 0),
        "waiting" => forks(|| set(Loader::builder(samples()), workers).help(false).build().unwrap(), workers > 0),
        "gated" => {
            forks(|| set(Loader::builder(samples()), workers).worker_init(|_| Ok(())).build().unwrap(), workers > 0)
        }
        "dealt" => forks(|| set(Loader::builder(samples()), workers).build_dealt().unwrap(), workers > 0),
        "stream" => forks(|| set(Loader::iterable(OneByOne(samples())), workers).build().unwrap(), workers > 0),
        _ => panic!("{words:?}"),
    }
}

/// A worker is at the sampler when the process is forked.
pub(crate) fn forked_at_the_sampler(_: &[&str]) {
    static AT_IT: AtomicBool = AtomicBool::new(false);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    let order = || {
        (0..RUN.len).inspect(|_| {
            AT_IT.store(true, SeqCst);
            while !GO_ON.load(SeqCst) {
                std::thread::yield_now();
            }
        })
    };
    let builder = Loader::builder(samples()).batch_size(RUN.batch_size).num_workers(2);
    let mut loader = builder.sampler_iter(order).build().unwrap();
    let pass = loader.epoch().unwrap();
    while !AT_IT.load(SeqCst) {
        std::thread::yield_now();
    }
    if is_child() {
        GO_ON.store(true, SeqCst);
        let mut pass = pass;
        assert!(matches!(pass.next(), Some(Err(Error::Forked))));
        assert!(pass.next().is_none());
        exit(0)
    }
    GO_ON.store(true, SeqCst);
    assert_eq!(pass.map(Result::unwrap).count(), RUN.len.div_ceil(RUN.batch_size));
}

#[test]
fn in_a_forked_process_nobody_waits_for_what_a_lost_worker_had_locked() {
    child::run("forks::forked_at_the_sampler");
}

#[test]
fn in_a_forked_process_a_loader_has_lost_its_workers_and_says_so() {
    for kind in ["shared", "waiting", "gated", "dealt", "stream"] {
        child::run(format!("forks::forked {kind} 2"));
    }
}

#[test]
fn in_a_forked_process_a_loader_without_workers_goes_on() {
    for kind in ["shared", "dealt", "stream"] {
        child::run(format!("forks::forked {kind} 0"));
    }
}
