//! Tests of which batches are delivered, in which order, and how often.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::dataset::iter_fn;
use slotline::rng::Generator;
use slotline::{Error, worker_info};

use crate::support::{self, Bulk, Notes, Resizable, Run, from_fn};
use crate::{KINDS, Loader, Options, Passes, all_kinds, nothing, numbers};

#[test]
fn without_batches_samples_have_no_batch_dimension() {
    let sample = |index: usize| (index as i64, [[index as f32; 3]; 2]);
    let indices = |seed: u64| {
        let mut generator = Generator::from_seed(seed);
        generator.random_i64();
        let mut order = Vec::<u64>::new();
        generator.randperm_into(10, &mut order).unwrap();
        order
    };
    for workers in [0, 2] {
        for shuffle in [false, true] {
            let order = if shuffle { indices(42) } else { (0..10).collect() };
            let builder = Loader::builder(from_fn(10, move |index, _| Ok(sample(index)))).batch_size(None).seed(42);
            let mut loader = builder.shuffle(shuffle).num_workers(workers).build().unwrap();
            assert_eq!((loader.len(), loader.batch_size()), (Some(10), 1));
            let mut pass = loader.epoch().unwrap();
            for &index in &order {
                let item = pass.next().unwrap().unwrap();
                let (number, matrix) = item.tensors();
                assert_eq!((number.shape(), matrix.shape()), (&[][..], &[2, 3][..]));
                assert_eq!((number.as_slice(), item.indices()), (&[index as i64][..], &[index as i64][..]));
                assert_eq!(matrix.as_slice(), [index as f32; 6]);
            }
            assert!(pass.next().is_none());
        }
        let stream = iter_fn(move |_| Ok((0..4).map(move |number| Ok(sample(number)))));
        let mut loader = Loader::iterable(stream).batch_size(None).num_workers(workers).build().unwrap();
        let items = loader.epoch().unwrap().map(|item| {
            let item = item.unwrap();
            let (number, matrix) = item.tensors();
            assert_eq!((number.shape(), matrix.shape()), (&[][..], &[2, 3][..]));
            number.as_slice()[0]
        });
        assert!(items.eq((0..4).flat_map(|number| vec![number; workers.max(1)])));
    }
}

#[test]
fn without_batches_collate_converts_single_samples() {
    for workers in [0, 2] {
        let builder = Loader::builder(numbers(5, nothing)).batch_size(None).num_workers(workers);
        let mut loader = builder
            .collate(|samples| {
                assert_eq!(samples.len(), 1);
                Ok(format!("no. {}", samples.next().ok_or("no sample")??))
            })
            .build()
            .unwrap();
        let texts: Vec<String> = loader.epoch().unwrap().map(Result::unwrap).collect();
        assert_eq!(texts, ["no. 0", "no. 1", "no. 2", "no. 3", "no. 4"]);
    }
}

#[test]
fn a_pass_uses_the_datasets_length_at_its_start() {
    let len = Arc::new(AtomicUsize::new(4));
    for shuffle in [false, true] {
        len.store(4, Ordering::SeqCst);
        let mut loaders = all_kinds(|| Loader::builder(Resizable(len.clone())).batch_size(2).shuffle(shuffle));
        for (now, batches) in [(4, 2), (10, 5), (10, 5), (3, 2)] {
            len.store(now, Ordering::SeqCst);
            for loader in &mut loaders {
                assert_eq!(loader.len(), Some(batches));
                let seen: BTreeSet<i64> = loader.whole().concat().into_iter().collect();
                assert!(seen.into_iter().eq(0..now as i64));
            }
        }
    }
}

#[test]
fn a_dataset_that_becomes_empty_cannot_be_shuffled() {
    let len = Arc::new(AtomicUsize::new(4));
    let builder = |shuffle| Loader::builder(Resizable(len.clone())).batch_size(2).shuffle(shuffle).seed(1);
    for shuffle in [false, true] {
        let (mut shared, mut round_robin) =
            (builder(shuffle).build().unwrap(), builder(shuffle).round_robin(true).build().unwrap());
        len.store(0, Ordering::SeqCst);
        assert_eq!((shared.len(), round_robin.len()), (Some(0), Some(0)));
        if shuffle {
            let errors = [shared.epoch().unwrap_err(), round_robin.epoch().unwrap_err()];
            assert!(errors.iter().all(|error| matches!(error, Error::Order(_))), "{errors:?}");
        } else {
            assert_eq!((shared.epoch().unwrap().count(), round_robin.epoch().unwrap().count()), (0, 0));
        }
        len.store(5, Ordering::SeqCst);
        assert_eq!(shared.whole().len(), 3);
        assert_eq!(round_robin.whole().len(), 3);
        len.store(4, Ordering::SeqCst);
    }
}

#[test]
fn a_dataset_that_outgrows_its_only_batch_is_an_error() {
    let len = Arc::new(AtomicUsize::new(4));
    let mut loader = Loader::builder(Resizable(len.clone())).batch_size(6).build().unwrap();
    assert_eq!(loader.epoch().unwrap().next().unwrap().unwrap().len(), 4);
    len.store(5, Ordering::SeqCst);
    let error = loader.epoch().unwrap_err();
    assert!(matches!(error, Error::LongOrder { len: 5, most: 4 }), "{error}");
    assert!(error.to_string().contains("set batch_size to 4 or less"), "{error}");
}

#[test]
fn an_iterable_that_grows_is_read_to_its_new_end() {
    let (now, len) = (Arc::new(AtomicUsize::new(4)), 4);
    let end = now.clone();
    let dataset = iter_fn(move |_| Ok(0..end.load(Ordering::SeqCst)).map(|all| all.map(|i| Ok(i as i64))));
    let mut loader = Loader::iterable(dataset).build().unwrap();
    assert_eq!(loader.whole().len(), len);
    now.store(10, Ordering::SeqCst);
    assert_eq!(loader.whole().len(), 10);
}

#[test]
fn loaders_of_all_kinds_can_be_read_in_turn() {
    for workers in [0, 2] {
        let options = Options { workers, ..Options::default() };
        let [mut first, mut second, mut third, mut fourth] = KINDS.map(|kind| options.build(kind, nothing));
        for _ in 0..2 {
            let passes = first.pass().unwrap().zip(second.pass().unwrap());
            let passes = passes.zip(third.pass().unwrap()).zip(fourth.pass().unwrap());
            let expected = KINDS.map(|kind| options.expected(kind));
            let mut count = 0;
            for (((a, b), c), d) in passes {
                let batches = [a, b, c, d].map(Result::unwrap);
                assert_eq!(batches, std::array::from_fn(|kind| expected[kind][count].clone()));
                count += 1;
            }
            assert_eq!(count, 7);
        }
    }
}

#[test]
fn round_robin_gives_batch_i_to_worker_i_mod_num_workers() {
    for workers in [1, 2, 3] {
        for prefetch in [1, 2, 3] {
            let dataset = from_fn(31, |_, _| Ok(worker_info().map_or(-1, |worker| worker.id() as i64)));
            let builder = Loader::builder(dataset).batch_size(2).shuffle(true).num_workers(workers);
            let mut loader = builder.prefetch_factor(prefetch).round_robin(true).build().unwrap();
            for _ in 0..3 {
                for (i, batch) in loader.whole().into_iter().enumerate() {
                    assert!(batch.iter().all(|&worker| worker == (i % workers) as i64), "batch {i}: {batch:?}");
                }
            }
        }
    }
}

#[test]
fn round_robin_batches_come_in_the_samplers_order_with_their_numbers() {
    for (shuffle, batch_size) in
        [false, true].into_iter().flat_map(|shuffle| [None, Some(2), Some(7)].map(|n| (shuffle, n)))
    {
        let run = Run { len: 23, batch_size: batch_size.unwrap_or(1), drop_last: false, shuffle, seed: 8 };
        for workers in [0, 2, 4] {
            let builder = run.over(support::items(run.len, |_, _| Ok(()))).batch_size(batch_size).round_robin(true);
            let mut loader = support::prefetch(builder, workers, 3).build().unwrap();
            for expected in run.expected(3) {
                let batches = loader.epoch().unwrap().map(Result::unwrap);
                assert!(
                    batches
                        .map(|batch| (batch.batch_index(), batch.indices().to_vec()))
                        .eq(expected.into_iter().map(|got| (got.task, got.indices)))
                );
            }
        }
    }
}

#[test]
fn round_robin_works_with_less_than_one_batch() {
    for workers in [0, 2] {
        for (len, drop_last, batches) in [(0, false, 0), (0, true, 0), (5, false, 1), (5, true, 0)] {
            let builder = Loader::builder(numbers(len, nothing)).batch_size(usize::MAX).drop_last(drop_last);
            let mut loader = builder.num_workers(workers).round_robin(true).build().unwrap();
            assert!(loader.memory_ceiling() < 100_000, "no more than the dataset takes: {}", loader.memory_ceiling());
            assert_eq!((loader.len(), loader.is_empty()), (Some(batches), batches == 0));
            for _ in 0..3 {
                assert_eq!(loader.whole(), vec![(0..len as i64).collect::<Vec<_>>(); batches]);
            }
        }
    }
}

#[test]
fn bulk_reads_are_used_only_with_batches() {
    for workers in [0, 2] {
        let asked = Notes::default();
        let bulk = || Bulk { len: 11, asked: asked.clone(), ..Bulk::default() };
        let builder = || Loader::builder(bulk()).num_workers(workers);
        for mut loader in all_kinds(|| builder().batch_size(4)) {
            assert_eq!(loader.whole(), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10]]);
            let mut reads = asked.all();
            reads.sort();
            assert_eq!(reads, ["[0, 1, 2, 3]", "[4, 5, 6, 7]", "[8, 9, 10]"]);
            asked.clear();
        }
        for mut loader in all_kinds(|| builder().batch_size(None)) {
            assert!(loader.whole().concat().into_iter().eq(0..11));
            assert!(asked.all().is_empty());
        }
    }
}
