//! Datasets that each worker reads from the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::dataset::{ChainDataset, IterableDataset, iter_fn};
use slotline::loader::Warning;
use slotline::{BoxError, Loader, WorkerInfo, worker_info};

use crate::{Passes, in_turn, nothing, shares, stream, support, values};

/// Worker w has `sizes[w]` numbers, from 1000 w on.
fn uneven(sizes: Vec<usize>) -> impl for<'a> IterableDataset<Sample<'a> = i64> {
    iter_fn(move |worker| {
        let id = worker.map_or(0, |worker| worker.id());
        Ok((0..sizes[id] as i64).map(move |number| Ok(1000 * id as i64 + number)))
    })
}

#[test]
fn workers_of_sizes_0_4_and_20_take_turns_as_long_as_they_have_batches() {
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
fn batches_are_numbered_one_after_the_other_whichever_worker_came_to_its_end() {
    for (workers, sizes) in [(0, vec![7]), (1, vec![5]), (3, vec![0, 4, 20]), (4, vec![3, 0, 0, 1])] {
        for in_order in [true, false] {
            let builder = Loader::iterable(uneven(sizes.clone())).num_workers(workers).batch_size(2);
            let mut loader = builder.in_order(in_order).build().unwrap();
            for epoch in 0..2 {
                let numbers = loader.epoch().unwrap().map(|batch| batch.unwrap()).map(|b| (b.task(), b.epoch()));
                let batches = sizes.iter().map(|size| size.div_ceil(2)).sum();
                assert!(numbers.eq((0..batches).map(|task| (task, epoch))), "{sizes:?}");
            }
        }
    }
}

#[test]
fn a_samples_index_is_its_number_in_what_its_worker_reads() {
    let mut loader = Loader::iterable(uneven(vec![3, 5])).num_workers(2).batch_size(2).build().unwrap();
    let indices: Vec<Vec<i64>> = loader.epoch().unwrap().map(|batch| batch.unwrap().indices().to_vec()).collect();
    assert_eq!(indices, [vec![0, 1], vec![0, 1], vec![2], vec![2, 3], vec![4]]);
}

#[test]
fn each_worker_reads_a_replica_and_what_is_not_divided_comes_once_for_each() {
    for workers in [0, 1, 3] {
        let dataset = iter_fn(|_| Ok((0..5_i64).map(Ok)));
        let mut loader = Loader::iterable(dataset).num_workers(workers).batch_size(2).build().unwrap();
        let replicas = vec![(0..5).collect(); workers.max(1)];
        assert_eq!(loader.whole(), in_turn(&replicas, 2, false));
    }
}

#[test]
fn a_replica_is_started_once_a_pass_in_its_worker_which_it_is_told() {
    for workers in [0, 1, 3] {
        for persistent in [false, true] {
            let told = Arc::new(std::sync::Mutex::new(Vec::<Option<WorkerInfo>>::new()));
            let tell = told.clone();
            let dataset = iter_fn(move |worker| {
                assert_eq!(worker, worker_info());
                tell.lock().unwrap().push(worker);
                Ok((0..4_i64).map(move |number| {
                    assert_eq!(worker, worker_info());
                    Ok(number)
                }))
            });
            let builder = Loader::iterable(dataset).num_workers(workers).seed(6);
            let mut loader = builder.persistent_workers(persistent && workers > 0).build().unwrap();
            // To learn the fields, as the first worker.
            let probes = std::mem::take(&mut *told.lock().unwrap());
            assert!(matches!(&probes[..], [probe] if probe.map(|worker| worker.id()) == (workers > 0).then_some(0)));
            assert_eq!(worker_info(), None, "the calling thread is itself again");
            for _ in 0..3 {
                assert_eq!(loader.whole().len(), 4 * workers.max(1));
                let mut told = std::mem::take(&mut *told.lock().unwrap());
                told.sort_by_key(|worker| worker.map(|worker| worker.id()));
                assert!(told.iter().map(|worker| worker.map(|w| (w.id(), w.num_workers()))).eq(match workers {
                    0 => vec![None],
                    _ => (0..workers).map(|id| Some((id, workers))).collect(),
                }));
            }
        }
    }
}

#[test]
fn chained_datasets_come_one_after_the_other_in_each_worker() {
    for workers in [0, 2] {
        let shares: Vec<Vec<i64>> = (0..workers.max(1))
            .map(|id| [4, 0, 7].iter().flat_map(|&len| crate::shares(len, workers)[id].clone()).collect())
            .collect();
        let chain = ChainDataset::new([4, 0, 7].map(|len| Arc::new(stream(len, nothing))).map(Erased));
        let mut loader = Loader::iterable(chain).num_workers(workers).batch_size(2).build().unwrap();
        assert_eq!(loader.whole(), in_turn(&shares, 2, false));
        let sum = stream(4, nothing).chain(stream(7, nothing));
        let mut loader = Loader::iterable(sum).num_workers(workers).batch_size(2).build().unwrap();
        assert_eq!(loader.whole(), in_turn(&shares, 2, false), "a + b");
    }
}

/// A stream of numbers, as a type that can be in a list with others.
struct Erased<D>(Arc<D>);

impl<D: for<'a> IterableDataset<Sample<'a> = i64>> IterableDataset for Erased<D> {
    type Sample<'a> = i64;
    type Cursor = D::Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<D::Cursor, BoxError> {
        self.0.iter(worker)
    }

    fn next(&self, cursor: &mut D::Cursor, cx: &mut slotline::dataset::Context) -> Result<Option<i64>, BoxError> {
        self.0.next(cursor, cx)
    }
}

#[test]
fn the_length_is_that_of_the_dataset_in_batches_if_it_says_one() {
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
fn more_samples_than_the_length_says_is_a_warning_once_and_they_come_all_the_same() {
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
        let [Warning::Overlong { samples, len: said }] = warnings[..] else { panic!("{warnings:?}") };
        assert!(said == len && samples > len && samples <= len + 2, "as soon as there are more: {samples}");
        let text = warnings[0].to_string();
        assert!(text.contains(&format!("len() is {len}")) && text.contains("worker_info"), "{text}");
    }
    // As many as it says, or less, is nothing to warn of.
    for len in [10, 11] {
        let dataset = iter_fn(|_| Ok((0..5_i64).map(Ok))).with_len(len);
        let mut loader = Loader::iterable(dataset).num_workers(2).build().unwrap();
        assert_eq!(loader.whole().len(), 10);
        assert!(!loader.warnings().iter().any(|warning| matches!(warning, Warning::Overlong { .. })));
    }
}

#[test]
fn a_dataset_without_samples_has_no_batches_pass_after_pass() {
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
fn a_dataset_without_an_end_is_loaded_no_further_than_its_rings() {
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
            // Sees the pass to its end, and begins another one.
            drop(loader.epoch().unwrap());
            let most = 4 * (taken + 2 * prefetch * workers);
            assert!(read.load(Ordering::SeqCst) <= most, "{read:?} for {taken} batches");
        }
    }
}

/// Counts how many there are, and panics at its end if it is told to.
struct Cursor(Arc<AtomicUsize>, bool);

impl Drop for Cursor {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.1, "no end");
    }
}

#[test]
fn replicas_are_dropped_when_they_are_done_and_what_their_drop_does_is_nobodys_harm() {
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
            assert_eq!(alive.load(Ordering::SeqCst), 0, "that which the fields were learned from");
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
