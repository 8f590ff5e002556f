//! Tests of kept batches, which own their memory until they are dropped, while the loader continues
//! with other memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::arena::Pages;
use slotline::dataset::iter_fn;
use slotline::loader::{BuildError, Collated, OnHeld, Overflow, Warning};
use slotline::sample::{Dynamic, Packed, PaddedToMax};
use slotline::{Batch, BoxError, Error, Loader, WorkerInfo};

use crate::support::{HAS_PROCESSES, InProcesses, chain, from_fn, worker_kinds};

/// The size of a sample in bytes. A batch has `ROWS` samples, 1 MiB together.
const BYTES: usize = 64 << 10;
const ROWS: usize = 16;

/// Runs a body with a loader of each kind over `$len` samples: a shared ring with threads or with
/// processes, `round_robin`, and an iterable dataset. `$calls` are additional calls on its builder.
/// Each byte of a sample is the sample's index modulo 256.
macro_rules! each {
    ($len:expr, $workers:expr, [$($calls:tt)*], |$loader:ident, $ordered:ident| $body:block) => {{
        let map = || Loader::builder(from_fn($len, |index, _| Ok([index as u8; BYTES]))).batch_size(ROWS);
        let stream = || {
            let share = |worker: Option<WorkerInfo>| worker.map_or(0..$len, |worker| worker.share($len));
            let samples = iter_fn(move |worker| Ok(share(worker).map(|index| Ok([index as u8; BYTES]))));
            Loader::iterable(samples).batch_size(ROWS)
        };
        {
            let (mut $loader, $ordered) = (map().num_workers($workers).$($calls)*.build().unwrap(), true);
            $body
        }
        if HAS_PROCESSES && $workers > 0 {
            let (mut $loader, $ordered) = (map().num_workers($workers).$($calls)*.in_processes().unwrap(), true);
            $body
        }
        {
            let (mut $loader, $ordered) = (map().num_workers($workers).$($calls)*.round_robin(true).build().unwrap(), true);
            $body
        }
        {
            let (mut $loader, $ordered) = (stream().num_workers($workers).$($calls)*.build().unwrap(), false);
            $body
        }
    }};
}

/// Returns the number of the sample in each row, and checks that all bytes of the row belong to
/// that sample.
fn rows<S: slotline::sample::Schema>(batch: &Batch<S>) -> Vec<u8> {
    let columns = batch.columns();
    let bytes = columns.get(0).unwrap().typed::<u8>().unwrap();
    bytes
        .as_slice()
        .chunks_exact(BYTES)
        .map(|row| {
            assert!(row.iter().all(|&byte| byte == row[0]), "a row of two samples");
            row[0]
        })
        .collect()
}

fn all(mut samples: Vec<u8>, len: usize) {
    samples.sort_unstable();
    assert!(samples.into_iter().eq((0..len).map(|index| index as u8)));
}

#[test]
fn ten_kept_batches_do_not_change() {
    for workers in [0, 1, 3] {
        each!(240, workers, [seed(1)], |loader, _ordered| {
            let (mut kept, mut seen) = (Vec::new(), Vec::new());
            for (number, batch) in loader.epoch().unwrap().enumerate() {
                let batch = batch.unwrap();
                seen.extend(rows(&batch));
                if kept.len() < 10 && number % 3 != 1 {
                    kept.push((rows(&batch), batch));
                }
            }
            all(seen, 240);
            assert_eq!(kept.len(), 10);
            assert!(kept.iter().all(|(samples, batch)| rows(batch) == *samples));
            let stats = loader.stats();
            assert!((1..=10).contains(&stats.extra_batches), "{}", stats.extra_batches);
            assert!(stats.extra_bytes >= stats.extra_batches * (ROWS * BYTES) as u64);
            let warnings = loader.warnings().iter().filter(|warning| matches!(warning, Warning::Kept { .. })).count();
            assert_eq!(warnings, 1);
            // After the batches are dropped, the next pass uses their memory again.
            drop(kept);
            let again: Vec<_> = loader.epoch().unwrap().take(8).map(Result::unwrap).collect();
            assert_eq!(loader.stats().extra_batches, stats.extra_batches);
            // Kept batches stay valid after the loader is dropped.
            let samples: Vec<_> = again.iter().map(rows).collect();
            drop(loader);
            assert!(again.iter().map(rows).eq(samples));
        });
    }
}

#[test]
fn keeping_up_to_hold_batches_takes_no_extra_memory() {
    for (workers, in_order) in [(0, true), (2, true), (2, false)] {
        each!(160, workers, [hold(2).in_order(in_order)], |loader, _ordered| {
            let first = loader.epoch().unwrap().next().unwrap().unwrap();
            let samples = rows(&first);
            for _ in 0..3 {
                let mut last = None;
                let mut seen = Vec::new();
                for batch in loader.epoch().unwrap() {
                    let batch = batch.unwrap();
                    seen.extend(rows(&batch));
                    // The loop keeps two batches when it requests the next one: the first and the
                    // last.
                    last = Some(batch);
                }
                drop(last);
                all(seen, 160);
                assert_eq!(rows(&first), samples);
            }
            assert_eq!((loader.stats().extra_batches, loader.warnings().len()), (0, 0), "{:?}", loader.warnings());
        });
    }
}

#[test]
fn a_collected_epoch_can_be_dropped_on_another_thread() {
    for workers in [0, 2] {
        each!(240, workers, [seed(2)], |loader, ordered| {
            for _ in 0..3 {
                let epoch: Result<Vec<_>, Error> = loader.epoch().unwrap().collect();
                let samples = std::thread::spawn(move || {
                    let epoch = epoch.unwrap();
                    epoch.iter().flat_map(rows).collect::<Vec<_>>()
                });
                let samples = samples.join().unwrap();
                assert!(!ordered || samples.is_sorted());
                all(samples, 240);
            }
            // The batches of an epoch were dropped before those of the next epoch were collected.
            assert!(loader.stats().extra_batches <= 15);
        });
    }
}

#[test]
fn thousands_of_small_batches_can_be_kept() {
    for kind in worker_kinds([0, 2]) {
        // With worker processes, at most 1,024 extra batches can be kept.
        let len = if kind.processes { 1000 } else { 5000 };
        let mut loader = kind.build(Loader::builder(from_fn(len, |index, _| Ok(index as i64)))).unwrap();
        for round in 0..3 {
            let kept: Vec<_> = loader.epoch().unwrap().map(Result::unwrap).collect();
            assert!(kept.iter().enumerate().all(|(task, batch)| batch.tensors().as_slice() == [task as i64]));
            assert!(loader.stats().extra_batches <= len as u64, "round {round}");
        }
        // Every seventh batch is kept and the others are dropped, so that the loader must find the
        // cells (the memory of one batch each) that are free among those in use.
        let before = loader.stats().extra_batches;
        let mut kept: Vec<_> = loader.epoch().unwrap().map(Result::unwrap).collect();
        let mut task = 0;
        kept.retain(|_| {
            task += 1;
            task % 7 == 0
        });
        assert_eq!(loader.epoch().unwrap().map(Result::unwrap).count(), len);
        assert_eq!(loader.stats().extra_batches, before);
    }
}

#[test]
fn memory_limit_holds_until_any_batch_is_dropped() {
    for workers in [0, 2] {
        for which in [0, 3] {
            // The limit leaves memory for some extra batches in each kind of loader.
            each!(256, workers, [memory_limit(9 << 20)], |loader, _ordered| {
                let mut seen = Vec::new();
                let mut pass = loader.epoch().unwrap();
                let mut kept = Vec::new();
                let mut refused = 0;
                loop {
                    match pass.next() {
                        Some(Ok(batch)) => {
                            seen.extend(rows(&batch));
                            kept.push((rows(&batch), batch));
                        }
                        Some(Err(error)) => {
                            assert!(chain(&error).contains("memory_limit"), "{error}");
                            let oldest = kept.iter().map(|(_, batch)| batch.batch_index()).min().unwrap();
                            let Error::Held { task, epoch: 0, source: Some(_), .. } = error else { panic!("{error}") };
                            assert_eq!(task, oldest);
                            assert!((0..3).all(|_| matches!(pass.next(), Some(Err(Error::Held { .. })))));
                            let (samples, batch) = kept.remove(which);
                            assert_eq!(rows(&batch), samples);
                            refused += 1;
                        }
                        None => break,
                    }
                }
                assert!(refused > 3 && kept.len() > 3);
                all(seen, 256);
                let stats = pass.stats();
                drop(pass);
                assert!(stats.extra_batches > 0 && loader.memory_ceiling() as u64 + stats.extra_bytes <= 13 << 20);
                assert!(kept.iter().all(|(samples, batch)| rows(batch) == *samples));
            });
        }
    }
}

#[test]
fn next_or_held_reports_held_batches_instead_of_growing() {
    for kind in worker_kinds([0, 1]) {
        let mut loader = kind.build(Loader::builder(from_fn(9, |index, _| Ok(index as i64)))).unwrap();
        let most = loader.most_held();
        let mut pass = loader.epoch().unwrap();
        let mut kept: Vec<_> = pass.by_ref().take(most + 1).map(Result::unwrap).collect();
        assert!((0..3).all(|_| matches!(pass.next_or_held(), Some(Err(Error::Held { task: 0, epoch: 0, .. })))));
        assert_eq!(pass.stats().extra_batches, 0);
        kept.pop();
        assert_eq!(pass.next_or_held().unwrap().unwrap().batch_index(), most + 1);
    }
}

#[test]
fn refused_extra_memory_is_an_error_until_a_batch_is_dropped() {
    for workers in [0, 2] {
        for panics in [false, true] {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = asked.clone();
            let memory = move |bytes| match count.fetch_add(1, Ordering::SeqCst) {
                0..3 => Ok(Pages::new(bytes)?),
                _ if panics => panic!("no more"),
                _ => Err(BoxError::from("no more")),
            };
            let builder = Loader::builder(from_fn(40, |index, _| Ok([index as u8; BYTES]))).batch_size(2);
            let mut loader = builder.num_workers(workers).memory(memory).build().unwrap();
            let most = loader.most_held();
            let mut pass = loader.epoch().unwrap();
            let mut kept: Vec<_> = (0..most + 3).map(|_| pass.next().unwrap().unwrap()).collect();
            assert_eq!(asked.load(Ordering::SeqCst), 3);
            for _ in 0..2 {
                let error = pass.next().unwrap().unwrap_err();
                let Error::Held { source: Some(source), .. } = &error else { panic!("{error}") };
                assert!(matches!(source.downcast_ref(), Some(BuildError::Allocate { .. })), "{source}");
            }
            assert!(kept.iter().enumerate().all(|(task, batch)| rows(batch) == [2 * task as u8, 2 * task as u8 + 1]));
            kept.remove(2);
            let rest: Vec<_> = pass.map(|batch| batch.unwrap().batch_index()).collect();
            assert!(rest.into_iter().eq(most + 3..20));
            assert_eq!(loader.stats().extra_batches, 2);
        }
    }
}

#[test]
fn spilled_packed_samples_can_be_kept() {
    static ITEMS: [u16; 4096] = [7; 4096];
    for workers in [0, 2] {
        let runs = from_fn(30, |index, _| Ok(Packed::new(&ITEMS[..64 * (1 + index)], 64)));
        let mut loader =
            Loader::builder(runs).batch_size(2).num_workers(workers).on_overflow(Overflow::Spill).build().unwrap();
        let kept: Vec<_> = loader.epoch().unwrap().map(Result::unwrap).collect();
        let again: Vec<_> = loader.epoch().unwrap().map(Result::unwrap).collect();
        drop(loader);
        for batches in [kept, again] {
            for (task, batch) in batches.iter().enumerate() {
                let values = batch.tensors();
                assert_eq!(values.values().len(), 64 * (4 * task + 3));
                assert!(values.values().as_slice().iter().all(|&item| item == 7));
            }
        }
    }
}

/// The contents of a batch: its task and epoch, its indices, and the shape, bytes and row lengths or offsets of each field.
#[derive(Debug, PartialEq)]
struct Contents((usize, u32), Vec<i64>, Vec<Field>);
type Field = (Vec<usize>, Vec<u8>, Option<Vec<i64>>);

fn contents<S>(batch: &Batch<S>) -> Contents {
    let columns = batch.columns();
    let fields = (0..columns.len()).map(|i| {
        let (field, ends) = (columns.get(i).unwrap(), columns.lengths(i).or(columns.offsets(i)));
        (field.shape().to_vec(), field.bytes().to_vec(), ends.map(<[i64]>::to_vec))
    });
    Contents((batch.batch_index(), batch.epoch()), batch.indices().to_vec(), fields.collect())
}

/// Copies every batch of a pass, and reads the copies after the loader and the batches have been
/// dropped.
fn copies<S: 'static>(mut loader: Loader<Batch<S>>) {
    let (mut copies, mut expected) = (Vec::new(), Vec::new());
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        expected.push(contents(&batch));
        copies.push(batch.to_owned());
        copies.push(copies.last().unwrap().clone());
    }
    assert!(loader.stats().extra_batches == 0 && expected.len() > 2);
    drop(loader);
    let copies = std::thread::spawn(move || copies.iter().map(contents).collect::<Vec<_>>()).join().unwrap();
    assert!(copies.len() == 2 * expected.len() && copies.iter().enumerate().all(|(i, copy)| *copy == expected[i / 2]));
}

#[test]
fn a_copy_of_a_batch_has_its_own_memory() {
    static ITEMS: [u16; 4096] = [7; 4096];
    let on_held = OnHeld::Fail;
    for workers in [0, 2] {
        let whole = from_fn(30, |index, _| Ok(([index as u8; 5000], index as f64)));
        let whole = || Loader::builder(whole.clone()).num_workers(workers).on_held(on_held);
        copies(whole().batch_size(4).build().unwrap());
        if HAS_PROCESSES && workers > 0 {
            copies(whole().batch_size(4).in_processes().unwrap());
            copies(whole().batch_size(None).in_processes().unwrap());
        }
        copies(whole().batch_size(4).pin_memory(true).build().unwrap());
        copies(whole().batch_size(4).memory(|bytes| Ok(Pages::new(bytes)?)).build().unwrap());
        copies(whole().batch_size(None).build().unwrap());
        let padded = from_fn(30, |index, _| Ok(PaddedToMax::new(&ITEMS[..index], 30)));
        copies(Loader::builder(padded).batch_size(4).num_workers(workers).on_held(on_held).build().unwrap());
        for overflow in [Overflow::Error, Overflow::Spill] {
            let room = if overflow == Overflow::Error { 2048 } else { 64 };
            let runs = from_fn(30, move |index, _| Ok(Packed::new(&ITEMS[..64 * (1 + index)], room)));
            let runs = Loader::builder(runs).batch_size(4).num_workers(workers).on_held(on_held);
            copies(runs.on_overflow(overflow).build().unwrap());
        }
    }
}

#[test]
fn kept_collated_batches_use_no_loader_memory() {
    let numbers = || from_fn(50, |index, _| Ok(index as i64));
    for workers in [0, 2] {
        let mut loader: Loader<Collated<Vec<i64>>> = Loader::builder(numbers())
            .num_workers(workers)
            .collate(|samples| Ok(vec![samples.next().expect("one")?]))
            .on_held(OnHeld::Fail)
            .build()
            .unwrap();
        let kept: Vec<_> = loader.epoch().unwrap().map(Result::unwrap).collect();
        assert!(kept.into_iter().flatten().eq(0..50));
        assert_eq!(loader.stats().extra_batches, 0);
    }
}

#[test]
fn untyped_batches_of_all_loaders_fit_in_one_list() {
    let mut kept: Vec<Batch<Dynamic>> = Vec::new();
    for len in [3_usize, 9] {
        let mut loader = Loader::builder(from_fn(len, |index, _| Ok(index as u8))).build().unwrap();
        for batch in loader.epoch().unwrap() {
            kept.push(batch.unwrap().untyped());
        }
    }
    let numbers = kept.iter().map(|batch| batch.columns().get(0).unwrap().typed::<u8>().unwrap().as_slice()[0]);
    assert!(numbers.eq((0..3).chain(0..9)));
}

/// Keeps the first hundred batches, and only the last one of the others. Returns the number of
/// extra batches after each of four passes.
fn grown<S>(mut loader: Loader<Batch<S>>) -> Vec<u64> {
    let mut kept = Vec::new();
    let passes = (0..4).map(|_| {
        let mut last = None;
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            if kept.len() < 100 { kept.push(batch) } else { last = Some(batch) }
        }
        drop(last);
        loader.stats().extra_batches
    });
    passes.collect()
}

#[test]
fn extra_memory_stops_growing_once_drops_match_takes() {
    for workers in [0, 2] {
        let map = || Loader::builder(from_fn(1000, |index, _| Ok(index as i64))).num_workers(workers);
        let stream = iter_fn(move |worker: Option<WorkerInfo>| {
            Ok(worker.map_or(0..1000, |worker| worker.share(1000)).map(|index| Ok(index as i64)))
        });
        let stream = Loader::iterable(stream).num_workers(workers);
        let processes = if HAS_PROCESSES && workers > 0 { map().in_processes() } else { map().build() };
        let all = [map().build(), processes, map().round_robin(true).build(), stream.build()];
        let all = all.map(|loader| grown(loader.unwrap()));
        for grown in all {
            assert!(grown[3] == grown[1] && grown[3] < 130, "{grown:?}");
        }
    }
}

#[test]
fn memory_larger_than_requested_counts_in_full() {
    let builder = Loader::builder(from_fn(100, |index, _| Ok(index as i64)));
    let builder = builder.memory(|bytes| Ok(Pages::new(bytes.max(1 << 20))?)).memory_limit(4 << 20);
    let mut loader = builder.build().unwrap();
    let mut kept = Vec::new();
    let held = loader.epoch().unwrap().map(|batch| batch.map(|batch| kept.push(batch))).find_map(Result::err).unwrap();
    assert!(matches!(held, Error::Held { .. }) && chain(&held).contains("memory_limit is 4194304"), "{held}");
    let stats = loader.stats();
    assert!(stats.extra_batches < 4 && stats.extra_bytes > stats.extra_batches << 20, "{stats:?}");
    assert!(loader.memory_ceiling() as u64 + stats.extra_bytes <= 4 << 20);
}

#[test]
fn a_memory_closure_that_panics_on_drop_is_contained() {
    struct PanicsOnDrop(Arc<AtomicUsize>);
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("in drop");
        }
    }
    for workers in [0, 2] {
        let dropped = Arc::new(AtomicUsize::new(0));
        let captured = PanicsOnDrop(dropped.clone());
        let builder = Loader::builder(from_fn(10, |index, _| Ok(index as i64))).num_workers(workers);
        let mut loader = builder
            .memory(move |bytes| {
                let _ = &captured;
                Ok(Pages::new(bytes)?)
            })
            .build()
            .unwrap();
        assert_eq!(loader.epoch().unwrap().map(Result::unwrap).collect::<Vec<_>>().len(), 10);
        drop(loader);
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}
