//! Tests of iterable datasets, of which each worker makes its own pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::dataset::{ChainDataset, IterableDataset, iter_fn};
use slotline::loader::Warning;
use slotline::{Loader, WorkerInfo, worker_info};

use crate::{Passes, in_turn, nothing, shares, stream, support, values};

/// Returns a dataset of `sizes[w]` numbers for each worker w, starting at 1000 w.
fn uneven(sizes: Vec<usize>) -> impl for<'a> IterableDataset<Sample<'a> = i64> {
    iter_fn(move |worker| {
        let id = worker.map_or(0, |worker| worker.id());
        Ok((0..sizes[id] as i64).map(move |number| Ok(1000 * id as i64 + number)))
    })
}

#[test]
fn uneven_workers_take_turns_while_they_have_batches() {
    for sizes in [[0, 4, 20], [4, 20, 0], [20, 0, 4]] {
        let number = |id: usize| (0..sizes[id] as i64).map(move |number| 1000 * id as i64 + number).collect();
        let numbers: Vec<Vec<i64>> = (0..3).map(number).collect();
        for (prefetch, persistent) in [(2, false), (3, false), (4, false), (2, true)] {
            for drop_last in [false, true] {
                for batch_size in [1, 3, 4, 7] {
                    let builder = Loader::iterable(uneven(sizes.to_vec())).num_workers(3).prefetch_factor(prefetch);
                    let builder = builder.batch_size(batch_size).drop_last(drop_last);
                    let mut loader = builder.persistent_workers(persistent).build().unwrap();
                    for _ in 0..3 {
                        assert_eq!(loader.whole(), in_turn(&numbers, batch_size, drop_last), "{sizes:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_samples_index_counts_the_samples_of_its_worker() {
    let mut loader = Loader::iterable(uneven(vec![3, 5])).num_workers(2).batch_size(2).build().unwrap();
    let indices: Vec<Vec<i64>> = loader.epoch().unwrap().map(|batch| batch.unwrap().indices().to_vec()).collect();
    assert_eq!(indices, [vec![0, 1], vec![0, 1], vec![2], vec![2, 3], vec![4]]);
}

#[test]
fn samples_that_are_not_divided_come_once_per_worker() {
    for workers in [0, 1, 3] {
        let dataset = iter_fn(|_| Ok((0..5_i64).map(Ok)));
        let mut loader = Loader::iterable(dataset).num_workers(workers).batch_size(2).build().unwrap();
        let replicas = vec![(0..5).collect(); workers.max(1)];
        assert_eq!(loader.whole(), in_turn(&replicas, 2, false));
    }
}

#[test]
fn iter_is_called_once_per_pass_with_its_worker() {
    for workers in [0, 1, 3] {
        for persistent in [false, true] {
            let seen = Arc::new(std::sync::Mutex::new(Vec::<Option<WorkerInfo>>::new()));
            let record = seen.clone();
            let dataset = iter_fn(move |worker| {
                assert_eq!(worker, worker_info());
                record.lock().unwrap().push(worker);
                Ok((0..4_i64).map(move |number| {
                    assert_eq!(worker, worker_info());
                    Ok(number)
                }))
            });
            let builder = Loader::iterable(dataset).num_workers(workers).seed(6);
            let mut loader = builder.persistent_workers(persistent && workers > 0).build().unwrap();
            // To learn the fields, `build` opens a cursor like that of the first worker.
            let probes = std::mem::take(&mut *seen.lock().unwrap());
            assert!(matches!(&probes[..], [probe] if probe.map(|worker| worker.id()) == (workers > 0).then_some(0)));
            assert_eq!(worker_info(), None, "the calling thread is not a worker any more");
            for _ in 0..3 {
                assert_eq!(loader.whole().len(), 4 * workers.max(1));
                let mut started = std::mem::take(&mut *seen.lock().unwrap());
                started.sort_by_key(|worker| worker.map(|worker| worker.id()));
                assert!(started.iter().map(|worker| worker.map(|w| (w.id(), w.num_workers()))).eq(match workers {
                    0 => vec![None],
                    _ => (0..workers).map(|id| Some((id, workers))).collect(),
                }));
            }
        }
    }
}

#[test]
fn chained_datasets_come_in_sequence_in_each_worker() {
    for workers in [0, 2] {
        let shares: Vec<Vec<i64>> = (0..workers.max(1))
            .map(|id| [4, 0, 7].iter().flat_map(|&len| crate::shares(len, workers)[id].clone()).collect())
            .collect();
        let chain = ChainDataset::new([4, 0, 7].map(|len| stream(len, nothing)));
        let mut loader = Loader::iterable(chain).num_workers(workers).batch_size(2).build().unwrap();
        assert_eq!(loader.whole(), in_turn(&shares, 2, false));
        let sum = stream(4, nothing).chain(stream(7, nothing));
        let mut loader = Loader::iterable(sum).num_workers(workers).batch_size(2).build().unwrap();
        assert_eq!(loader.whole(), in_turn(&shares, 2, false), "a + b");
    }
}

#[test]
fn the_length_is_the_datasets_length_in_batches() {
    let of = |len: Option<usize>| {
        let dataset = iter_fn(|_| Ok((0..9_i64).map(Ok)));
        Loader::iterable(dataset.with_len(len.unwrap_or(9)))
    };
    for (batch_size, drop_last, batches) in
        [(Some(4), false, 3), (Some(4), true, 2), (Some(3), true, 3), (None, false, 9)]
    {
        let builder = of(Some(9)).batch_size(batch_size).drop_last(drop_last);
        assert_eq!(builder.build().unwrap().len(), Some(batches));
    }
    let empty = of(Some(0)).build().unwrap();
    assert!(empty.is_empty() && empty.len() == Some(0));
    let unknown = Loader::iterable(stream(9, nothing)).build().unwrap();
    assert_eq!((unknown.len(), unknown.is_empty()), (None, false));
}

#[test]
fn more_samples_than_the_declared_length_is_one_warning() {
    for (workers, len, given) in [(0, 4, 5), (2, 5, 10), (3, 0, 15)] {
        let dataset = iter_fn(|_| Ok((0..5_i64).map(Ok))).with_len(len);
        let mut loader = Loader::iterable(dataset).num_workers(workers).batch_size(2).build().unwrap();
        let overlong = |loader: &dyn Passes| -> Vec<Warning> {
            let overlong = |warning: &&Warning| matches!(warning, Warning::Overlong { .. });
            loader.warnings().iter().filter(overlong).cloned().collect()
        };
        assert!(overlong(&loader).is_empty());
        for _ in 0..2 {
            assert_eq!(loader.whole().concat().len(), given);
        }
        let warnings = overlong(&loader);
        let [Warning::Overlong { samples, len: declared }] = warnings[..] else { panic!("{warnings:?}") };
        assert!(
            declared == len && samples > len && samples <= len + 2,
            "the warning comes as soon as there are more: {samples}"
        );
        let text = warnings[0].to_string();
        assert!(text.contains(&format!("len() is {len}")) && text.contains("worker_info"), "{text}");
    }
    // There must be no warning if there are as many samples as declared, or fewer.
    for len in [10, 11] {
        let dataset = iter_fn(|_| Ok((0..5_i64).map(Ok))).with_len(len);
        let mut loader = Loader::iterable(dataset).num_workers(2).build().unwrap();
        assert_eq!(loader.whole().len(), 10);
        assert!(!loader.warnings().iter().any(|warning| matches!(warning, Warning::Overlong { .. })));
    }
}

#[test]
fn a_dataset_without_samples_never_has_batches() {
    for workers in [0, 3] {
        for drop_last in [false, true] {
            let builder = Loader::iterable(stream(0, nothing)).num_workers(workers).batch_size(4).drop_last(drop_last);
            let mut loader = builder.build().unwrap();
            assert!((0..3).all(|_| loader.whole().is_empty()));
        }
        let builder = Loader::iterable(stream(9, nothing)).num_workers(workers).batch_size(10).drop_last(true);
        assert!(builder.build().unwrap().whole().is_empty());
    }
}

#[test]
fn an_endless_dataset_is_read_no_further_than_the_rings() {
    for (workers, prefetch) in [(0, 0), (2, 1), (2, 3)] {
        let read = Arc::new(AtomicUsize::new(0));
        let count = read.clone();
        let dataset = iter_fn(move |_| {
            let count = count.clone();
            Ok((0_i64..).inspect(move |_| _ = count.fetch_add(1, Ordering::SeqCst)).map(Ok))
        });
        let builder = Loader::iterable(dataset).batch_size(4);
        let mut loader = support::prefetch(builder, workers, prefetch).build().unwrap();
        for taken in [0, 5, 100] {
            read.store(0, Ordering::SeqCst);
            let batches: Vec<_> = loader.epoch().unwrap().take(taken).map(|batch| values(&batch.unwrap())).collect();
            let lanes = workers.max(1);
            let first = |task: usize| (task / lanes * 4) as i64;
            assert!(batches.into_iter().eq((0..taken).map(|t| (first(t)..first(t) + 4).collect::<Vec<_>>())));
            // Wait until the pass has ended, by beginning another one.
            drop(loader.epoch().unwrap());
            let most = 4 * (taken + 2 * prefetch * workers);
            assert!(read.load(Ordering::SeqCst) <= most, "{read:?} for {taken} batches");
        }
    }
}

/// A cursor that counts how many cursors exist. Its drop panics if the flag is set.
struct Cursor(Arc<AtomicUsize>, bool);

impl Drop for Cursor {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.1, "the drop panics");
    }
}

#[test]
fn cursors_are_dropped_at_the_end_even_if_that_panics() {
    for workers in [0, 2] {
        for panics in [false, true] {
            let alive = Arc::new(AtomicUsize::new(0));
            let armed = Arc::new(AtomicUsize::new(0));
            let (count, arm) = (alive.clone(), armed.clone());
            let dataset = iter_fn(move |worker| {
                count.fetch_add(1, Ordering::SeqCst);
                let cursor = Cursor(count.clone(), panics && arm.load(Ordering::SeqCst) > 0);
                let mine = worker.map_or(0..20, |worker| worker.share(20));
                Ok(mine.map(move |number| {
                    let _ = &cursor;
                    Ok(number as i64)
                }))
            });
            let mut loader = Loader::iterable(dataset).num_workers(workers).batch_size(2).build().unwrap();
            assert_eq!(alive.load(Ordering::SeqCst), 0, "the cursor that the fields were learned from is dropped");
            armed.store(1, Ordering::SeqCst);
            for _ in 0..3 {
                assert_eq!(loader.whole(), in_turn(&shares(20, workers), 2, false));
                assert_eq!(loader.pass().unwrap().take(3).filter(Result::is_ok).count(), 3);
                assert!(alive.load(Ordering::SeqCst) <= workers.max(1));
            }
            if !panics {
                drop(loader);
                assert_eq!(alive.load(Ordering::SeqCst), 0);
            }
        }
    }
}
