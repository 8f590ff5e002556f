//! Tests of processes that are forked while a loader runs.

#[path = "../support/forked.rs"]
mod forked;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use slotline::arena::{Memory, Pages};
use slotline::array::{AnyArray, Array};
use slotline::dataset::Dataset;
use slotline::loader::{Builder, Overflow};
use slotline::rng::{Generator, SharedGenerator, default_generator};
use slotline::sample::{Fields, OwnedSample, Packed, Sample};
use slotline::{Batch, Error, Loader};

use self::forked::{exit, is_child};
use crate::child;
use crate::support::{LONG, OneByOne, Run, from_fn, items, sleeping_sometimes};

const RUN: Run = Run { len: 150, batch_size: 7, drop_last: false, shuffle: false, seed: 13 };
const PASSES: usize = 30;

fn samples() -> impl Dataset {
    items(RUN.len, sleeping_sometimes)
}

/// Returns the samples of a batch and their random numbers.
fn contents<S>(batch: &Batch<S>) -> (Vec<i64>, Vec<u64>) {
    let columns = batch.columns();
    let (numbers, words) = (columns.get(0).unwrap(), columns.get(2).unwrap());
    (numbers.typed().unwrap().as_slice().to_vec(), words.typed().unwrap().as_slice().to_vec())
}

/// Returns the contents of the batches of a pass.
fn deliver<S>(loader: &mut Loader<Batch<S>>) -> Vec<(Vec<i64>, Vec<u64>)> {
    loader.epoch().unwrap().map(|batch| contents(&batch.unwrap())).collect()
}

fn forks<S>(build: impl Fn() -> Loader<Batch<S>>, has_workers: bool) {
    let mut loader = build();
    let expected: Vec<_> = (0..PASSES).map(|_| deliver(&mut loader)).collect();
    let mut loader = build();
    let mut forks = 0;
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
            // In every other round all batches are kept, which needs more memory and must not
            // affect the parent's memory.
            let (mut kept, mut forked) = (Vec::new(), false);
            let held = held.filter(|_| round % 2 == 1);
            for batch in pass.by_ref() {
                match batch {
                    Ok(batch) => {
                        assert_eq!(contents(&batch), expected_now[delivered]);
                        kept.extend((round % 2 == 1).then_some((delivered, batch)));
                    }
                    Err(Error::Forked) => forked = true,
                    Err(error) => panic!("{error}"),
                }
                delivered += usize::from(!forked);
            }
            // Only the workers of an iterable dataset know that there are no more batches.
            assert!(
                if forked { has_workers } else { delivered == expected_now.len() },
                "{delivered} batches were delivered"
            );
            assert!(pass.next().is_none() && pass.stats().stuck.is_empty());
            drop(pass);
            match loader.epoch().map(drop) {
                Err(Error::Forked) => assert!(has_workers),
                outcome => assert!(!has_workers && outcome.is_ok()),
            }
            drop(loader);
            assert!(kept.iter().all(|(number, batch)| contents(batch) == expected_now[*number]));
            drop((held, kept));
            assert_eq!(deliver(&mut build()), expected[0], "a loader that the child builds works");
            exit(0)
        }
        drop(held);
        for batch in pass {
            assert_eq!(contents(&batch.unwrap()), expected_now[delivered]);
            delivered += 1;
        }
        assert_eq!(delivered, expected_now.len());
        forks += 1;
    }
    println!("{forks} forks");
}

/// Forks the process during passes. Arguments: the kind of the loader, and the number of workers.
pub(crate) fn forked(words: &[&str]) {
    let workers = words[1].parse().unwrap();
    fn set<D>(builder: Builder<D>, workers: usize) -> Builder<D> {
        let builder = builder.batch_size(RUN.batch_size).seed(RUN.seed).num_workers(workers);
        // The watchdog is a thread as well.
        builder.watchdog(LONG).hold(2)
    }
    match words[0] {
        "shared" => forks(|| set(Loader::builder(samples()), workers).build().unwrap(), workers > 0),
        "waiting" => forks(|| set(Loader::builder(samples()), workers).help(false).build().unwrap(), workers > 0),
        "gated" => {
            forks(|| set(Loader::builder(samples()), workers).worker_init(|_| Ok(())).build().unwrap(), workers > 0)
        }
        "round_robin" => {
            forks(|| set(Loader::builder(samples()), workers).round_robin(true).build().unwrap(), workers > 0)
        }
        "stream" => forks(|| set(Loader::iterable(OneByOne(samples())), workers).build().unwrap(), workers > 0),
        _ => panic!("{words:?}"),
    }
}

/// Forks the process while a worker calls the sampler's iterator.
pub(crate) fn forked_at_the_sampler(_: &[&str]) {
    static AT_SAMPLER: AtomicBool = AtomicBool::new(false);
    static CONTINUE: AtomicBool = AtomicBool::new(false);
    let order = || {
        (0..RUN.len).inspect(|_| {
            AT_SAMPLER.store(true, SeqCst);
            while !CONTINUE.load(SeqCst) {
                std::thread::yield_now();
            }
        })
    };
    let builder = Loader::builder(samples()).batch_size(RUN.batch_size).num_workers(2);
    let mut loader = builder.sampler_iter(order).build().unwrap();
    let stopper = loader.stopper();
    let pass = loader.epoch().unwrap();
    while !AT_SAMPLER.load(SeqCst) {
        std::thread::yield_now();
    }
    if is_child() {
        CONTINUE.store(true, SeqCst);
        let mut pass = pass;
        assert!(matches!(pass.next(), Some(Err(Error::Forked))));
        assert!(pass.next().is_none());
        drop(pass);
        stopper.stop();
        drop(loader);
        exit(0)
    }
    CONTINUE.store(true, SeqCst);
    assert_eq!(pass.map(Result::unwrap).count(), RUN.len.div_ceil(RUN.batch_size));
}

/// Memory that a forked process does not inherit. Page-locked memory of a GPU driver is of this
/// kind.
#[derive(Debug)]
struct NotInherited(Pages);

/// The number of [`NotInherited`] values that were dropped.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

impl NotInherited {
    fn new(bytes: usize) -> io::Result<Self> {
        let pages = Pages::new(bytes)?;
        // SAFETY: `pages` owns these pages, and no other code uses them yet.
        let outcome = unsafe { libc::madvise(pages.start().as_ptr().cast(), pages.len(), libc::MADV_DONTFORK) };
        if outcome == 0 { Ok(Self(pages)) } else { Err(io::Error::last_os_error()) }
    }
}

// SAFETY: `Pages` upholds the contract. In a child, where the memory is missing, no code accesses
// it, which the tests check.
unsafe impl Memory for NotInherited {
    fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for NotInherited {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, SeqCst);
    }
}

/// Maps `len` bytes at the address `start` in the child. In the parent, memory that is not
/// inherited is mapped there; in the child, nothing is.
fn occupy(start: usize, len: usize) {
    let (place, protection) = (std::ptr::without_provenance_mut(start), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: `MAP_FIXED_NOREPLACE` replaces no existing mapping.
    let mapped = unsafe { libc::mmap(place, len, protection, flags, -1, 0) };
    assert_eq!(mapped, place, "{}", io::Error::last_os_error());
    // SAFETY: these `len` bytes were just mapped, readable and writable.
    unsafe { mapped.cast::<u8>().write_bytes(0x41, len) };
}

/// Returns a dataset in which each batch spills: its packed samples need memory from the heap.
fn spilling() -> impl Dataset {
    static ITEMS: [i64; 64] = [7; 64];
    from_fn(RUN.len, |index, _| Ok((index as i64, Packed::new(&ITEMS[..8 + index % 50], 1))))
}

fn drops<S>(build: impl Fn() -> Loader<Batch<S>>, workers: usize, given: bool, occupied: bool) {
    // After a whole pass every slot of the ring has spilled.
    let mut loader = build();
    let batches = loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>();
    let (start, len) = {
        let memory = loader.memory().unwrap();
        (memory.start().addr().get(), memory.len())
    };
    let stopper = loader.stopper();
    let mut pass = loader.epoch().unwrap();
    let (first, second) = (pass.next().unwrap().unwrap(), pass.next().unwrap().unwrap());
    let untyped = second.untyped();
    if is_child() {
        if given && occupied {
            occupy(start, len);
        }
        if given {
            let hook = take_hook();
            set_hook(Box::new(|_| {}));
            let read = catch_unwind(AssertUnwindSafe(|| untyped.columns().len()));
            set_hook(hook);
            assert!(read.is_err(), "the child does not have the memory");
            assert!(matches!(pass.next(), Some(Err(Error::Forked))));
            assert!(pass.next().is_none());
        } else {
            assert_eq!(untyped.columns().len(), 2);
        }
        drop(untyped);
        drop(pass);
        stopper.stop();
        assert!(matches!(loader.epoch().map(drop), Err(Error::Forked | Error::Stopped)));
        // Drop either the batches or the loader last, since the last owner frees the ring.
        if occupied {
            drop(loader);
            drop(first);
        } else {
            drop(first);
            drop(loader);
        }
        drop(stopper);
        assert_eq!(DROPPED.load(SeqCst), 0, "the given memory belongs to the parent");
        let mut another = build();
        assert_eq!(another.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), batches);
        drop(another);
        assert_eq!(DROPPED.load(SeqCst), usize::from(given));
        exit(0)
    }
    drop((first, untyped));
    assert_eq!(
        pass.map(|batch| batch.unwrap().len()).sum::<usize>(),
        batches - 2 * RUN.batch_size,
        "{workers} workers"
    );
    drop(loader);
    assert_eq!(DROPPED.load(SeqCst), usize::from(given));
}

/// Drops a loader and its batches in a child. Arguments: the kind of the loader, the number of
/// workers, whose memory it uses (`own`, `locked`, `given`), and whether other memory is mapped at
/// its address in the child (`occupied` or `free`).
pub(crate) fn dropped(words: &[&str]) {
    let (workers, whose, occupied): (usize, _, _) = (words[1].parse().unwrap(), words[2], words[3] == "occupied");
    let given = whose == "given";
    macro_rules! set {
        ($builder:expr) => {{
            let builder = $builder.batch_size(RUN.batch_size).seed(RUN.seed).num_workers(workers).hold(3);
            let builder = builder.on_overflow(Overflow::Spill).watchdog(LONG).pin_memory(whose == "locked");
            if given { builder.memory(|bytes| Ok(NotInherited::new(bytes)?)) } else { builder }
        }};
    }
    match words[0] {
        "shared" => drops(|| set!(Loader::builder(spilling())).build().unwrap(), workers, given, occupied),
        "gated" => {
            let build = || set!(Loader::builder(spilling())).worker_init(|_| Ok(())).build().unwrap();
            drops(build, workers, given, occupied);
        }
        "round_robin" => {
            drops(|| set!(Loader::builder(spilling())).round_robin(true).build().unwrap(), workers, given, occupied)
        }
        "stream" => drops(|| set!(Loader::iterable(OneByOne(spilling()))).build().unwrap(), workers, given, occupied),
        _ => panic!("{words:?}"),
    }
}

/// Drops values with separate memory, and batches that a collate function made, in the child.
pub(crate) fn dropped_apart(_: &[&str]) {
    let sample = || (7_i64, Packed::new(&[1_u8; 5000], 1));
    let mut apart = OwnedSample::new(Fields::of(&sample())).unwrap();
    apart.fill(|row| sample().write(row)).unwrap();
    let array = AnyArray::from(Array::new(vec![3_u32; 10_000], &[100, 100]).unwrap());
    let pinned = array.pin_memory().unwrap();
    let collated = Loader::builder(samples()).batch_size(7).num_workers(2).hold(3);
    let mut collated = collated.collate(|batch| Ok(vec![batch.len(); 1000])).build().unwrap();
    let mut pass = collated.epoch().unwrap();
    let kept = pass.next().unwrap().unwrap();
    if is_child() {
        assert_eq!(apart.columns().get(1).unwrap().len(), 5000);
        assert_eq!(pinned.bytes(), array.bytes());
        drop((apart, pinned, array, kept));
        drop(pass);
        drop(collated);
        exit(0)
    }
    assert_eq!(pass.count() + 1, RUN.len.div_ceil(7));
    drop((apart, pinned, array));
}

/// Forks the process while another thread holds the generators and has drawn from them.
pub(crate) fn forked_while_drawing(_: &[&str]) {
    let shared = SharedGenerator::from(Generator::from_seed(5));
    let seeds = (default_generator().initial_seed(), shared.lock().initial_seed());
    let (drawing, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let other = shared.clone();
    let thread = std::thread::spawn(move || {
        let (mut default, mut shared) = (default_generator(), other.lock());
        default.discard(1000);
        shared.discard(1000);
        drawing.send(()).unwrap();
        assert!(ended.recv().is_err());
    });
    begun.recv().unwrap();
    if is_child() {
        for generator in [None, Some(shared.clone())] {
            let builder = Loader::builder(samples()).batch_size(RUN.batch_size).shuffle(true).num_workers(2);
            let builder = if let Some(shared) = generator { builder.generator(shared) } else { builder };
            assert_eq!(deliver(&mut builder.build().unwrap()).len(), RUN.len.div_ceil(RUN.batch_size));
        }
        // A generator that another thread held has a new seed, and does not continue.
        assert_ne!(default_generator().initial_seed(), seeds.0);
        assert_ne!(shared.lock().initial_seed(), seeds.1);
        let point = (shared.lock().drawn(), default_generator().drawn());
        if is_child() {
            assert_eq!(
                point,
                (shared.lock().drawn(), default_generator().drawn()),
                "generators that no thread held continue"
            );
            exit(0)
        }
        exit(0)
    }
    drop(end);
    thread.join().unwrap();
    assert_eq!((default_generator().drawn(), shared.lock().drawn()), (1000, 1000));
}

/// Forks the process while the forking thread holds the generator.
pub(crate) fn forked_with_the_generator(_: &[&str]) {
    let shared = SharedGenerator::from(Generator::from_seed(5));
    let mut guard = shared.lock();
    guard.random_i64();
    if is_child() {
        guard.random_i64();
        drop(guard);
        let whole = shared.lock().clone();
        assert_eq!((whole.initial_seed(), whole.drawn()), (5, 4), "no other thread held the generator");
        exit(0)
    }
    drop(guard);
    assert_eq!(shared.lock().drawn(), 2);
}

#[test]
fn a_forked_process_does_not_wait_for_a_lost_workers_lock() {
    child::run("forks::forked_at_the_sampler");
}

#[test]
fn a_forked_loader_reports_that_its_workers_are_lost() {
    for kind in ["shared", "waiting", "gated", "round_robin", "stream"] {
        child::run(format!("forks::forked {kind} 2"));
    }
}

#[test]
fn a_forked_loader_without_workers_continues() {
    for kind in ["shared", "round_robin", "stream"] {
        child::run(format!("forks::forked {kind} 0"));
    }
}

#[test]
fn a_forked_process_frees_nothing_of_its_parent() {
    for kind in ["shared", "gated", "round_robin", "stream"] {
        for workers in if kind == "gated" { [1, 2] } else { [0, 2] } {
            for memory in ["own free", "locked free", "given free", "given occupied"] {
                child::run(format!("forks::dropped {kind} {workers} {memory}"));
            }
        }
    }
    child::run("forks::dropped_apart");
}

#[test]
fn a_forked_process_can_lock_every_generator() {
    child::run("forks::forked_while_drawing");
    child::run("forks::forked_with_the_generator");
}
