//! Tests of stacked batches, with bad samples skipped or replaced.

use slotline::loader::OnHeld;

use crate::support::{Bulk, from_fn, worker_kinds};

use super::*;

/// Functions that select the bad samples: some, the first and the last, a whole batch (unless
/// shuffled), all except one, all.
const BAD: [fn(usize) -> bool; 5] =
    [|i| i % 5 == 3, |i| i == 0 || i == LEN - 1, |i| i / BATCH == 1, |i| i != 20, |_| true];

#[test]
fn bad_samples_and_batches_left_empty_are_skipped() {
    skips::<false>();
    skips::<true>();
}

fn skips<const PACKED: bool>() {
    let good = good::<PACKED>();
    for bad in BAD {
        let indices: Vec<_> = (0..LEN).filter(|&index| bad(index)).collect();
        let left = good.each_ref().map(|pass| {
            let left = |batch: &Vec<Seen>| batch.iter().copied().filter(|seen| !bad(seen.index)).collect::<Vec<_>>();
            let batches = pass.iter().map(left).enumerate().filter(|(_, batch)| !batch.is_empty());
            batches.map(Ok).collect::<Vec<_>>()
        });
        let want = Report { passes: left, bad: 2 * indices.len(), indices };
        for fault in FAULTS {
            for how in hows(fault) {
                let got = report::<PACKED>(builder(fault, bad, how.many).on_error(SKIP), how);
                assert_eq!(got, want, "{fault:?}, {how:?}");
            }
        }
    }
}

#[test]
fn replacing_bad_samples_changes_nothing_else() {
    replaces::<false>();
    replaces::<true>();
}

fn replaces<const PACKED: bool>() {
    let good = good::<PACKED>();
    for bad in [BAD[0], BAD[1], BAD[2]] {
        let mut first = None;
        for fault in FAULTS {
            for how in hows(fault) {
                let got = report::<PACKED>(builder(fault, bad, how.many).on_error(REPLACE), how);
                for (pass, good) in got.passes.iter().zip(&good) {
                    assert_eq!(pass.len(), good.len());
                    for (task, (got, good)) in pass.iter().zip(good).enumerate() {
                        let (number, got) = got.as_ref().unwrap();
                        assert_eq!((*number, got.len()), (task, good.len()), "{fault:?}, {how:?}");
                        for (got, good) in got.iter().zip(good) {
                            assert!(!bad(got.index) && got.word == good.word, "the position decides the numbers");
                            assert!(got.index == good.index || bad(good.index));
                        }
                    }
                }
                assert!(got.bad >= 2 * got.indices.len() && got.indices.iter().all(|&index| bad(index)));
                assert_eq!(
                    &got,
                    first.get_or_insert(report::<PACKED>(builder(fault, bad, false).on_error(REPLACE), HOWS[0]))
                );
            }
        }
        let first = first.unwrap();
        let found: std::collections::BTreeSet<_> =
            first.passes.iter().flatten().flat_map(|batch| &batch.as_ref().unwrap().1).map(|seen| seen.index).collect();
        assert!(found.len() > LEN / 2, "the substitutes must be varied");
    }
}

#[test]
fn after_eight_bad_substitutes_the_batch_is_an_error() {
    let good = good::<false>();
    for fault in FAULTS {
        for how in hows(fault) {
            let got = report::<false>(builder(fault, |_| true, how.many).on_error(REPLACE), how);
            for (pass, good) in got.passes.iter().zip(&good) {
                assert_eq!(pass.len(), good.len());
                for (task, (got, good)) in pass.iter().zip(good).enumerate() {
                    let message = got.as_ref().unwrap_err();
                    let start =
                        format!("sample {} at {} of {task}: 8 substitutes were tried", good[0].index, task * BATCH);
                    assert!(message.starts_with(&start), "{message}");
                }
            }
            assert_eq!(got.bad, 2 * 6 * 9, "each batch counts its first sample and 8 substitutes: {fault:?}, {how:?}");
        }
    }
}

#[test]
fn errors_that_no_sample_caused_are_raised() {
    for (off_by, late, why) in [(-1, false, "was asked for 8 samples but put only 7"), (0, true, "too late")] {
        for on_error in [SKIP, REPLACE] {
            for kind in worker_kinds([0, 1]) {
                let bulk = Bulk { len: 16, off_by, late, ..Bulk::default() };
                let builder = Loader::builder(bulk).batch_size(8).on_error(on_error);
                let mut loader = kind.build(builder).unwrap();
                let errors: Vec<_> = loader.epoch().unwrap().map(|batch| describe(&batch.unwrap_err())).collect();
                assert!(errors.len() == 2 && errors.iter().all(|error| error.contains(why)), "{errors:?}");
                assert_eq!(loader.stats().bad_samples, 0);
            }
        }
    }
}

#[test]
fn a_panic_in_prefetch_makes_no_sample_bad() {
    struct PanicsInPrefetch;
    impl Dataset for PanicsInPrefetch {
        type Sample<'a> = i64;
        fn len(&self) -> usize {
            40
        }
        fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<i64, BoxError> {
            if index == 21 { Err("no 21".into()) } else { Ok(index as i64) }
        }
        fn prefetch(&self, index: usize) {
            assert!(!index.is_multiple_of(10), "not that one");
        }
    }
    for kind in worker_kinds([0, 2]) {
        let builder = || Loader::builder(PanicsInPrefetch).batch_size(10).num_workers(kind.workers).on_error(SKIP);
        let mut loader = kind.build(builder()).unwrap();
        let got: Vec<_> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
        assert!(got.into_iter().eq((0..40).filter(|&index| index != 21)));
        assert_eq!(loader.stats().bad_samples, 1);
        let mut loader = builder().collate(|samples| samples.next().unwrap()).build().unwrap();
        let firsts: Result<Vec<_>, _> = loader.epoch().unwrap().collect();
        assert_eq!(firsts.unwrap(), [0, 10, 20, 30]);
    }
}

#[test]
fn unbatched_bad_samples_are_skipped_or_replaced() {
    for fault in FAULTS {
        for how in hows(fault) {
            let single = |on_error| builder::<true>(fault, |i| i % 5 == 3, false).batch_size(None).on_error(on_error);
            let of = |builder: Builder<Sheets<true>>| -> Vec<_> {
                let mut loader = how.workers().build(builder).unwrap();
                let samples = loader.epoch().unwrap().map(|sample| {
                    let sample = sample.unwrap();
                    assert_eq!(sample.columns().offsets(4).unwrap().len(), 2);
                    (sample.batch_index(), *sample.tensors().as_slice().first().unwrap())
                });
                samples.collect()
            };
            let good: Vec<_> = of(builder::<true>(fault, |_| false, false).batch_size(None));
            let mut left = good.clone();
            left.retain(|(_, index)| index % 5 != 3);
            assert_eq!(of(single(SKIP)), left);
            let replaced = of(single(REPLACE));
            assert_eq!(replaced.len(), LEN);
            assert!(replaced.iter().zip(&good).all(|(got, good)| got.1 % 5 != 3 && (got == good || good.1 % 5 == 3)));
        }
    }
}

#[test]
fn a_batch_after_a_skipped_one_uses_its_memory() {
    let numbers = from_fn(8, |index, _| if index == 2 { Err("no".into()) } else { Ok(index as i64) });
    let mut loader = Loader::builder(numbers).on_error(SKIP).on_held(OnHeld::Fail).build().unwrap();
    assert_eq!(loader.depth(), 2);
    let mut pass = loader.epoch().unwrap();
    let (first, second) = (pass.next().unwrap().unwrap(), pass.next().unwrap().unwrap());
    assert!(matches!(pass.next(), Some(Err(Error::Held { .. }))));
    drop(first);
    // Batch 2 is skipped because its only sample is bad, and batch 3 uses the memory of batch 2.
    let third = pass.next().unwrap().unwrap();
    assert_eq!(third.batch_index(), 3);
    assert!(matches!(pass.next(), Some(Err(Error::Held { task: 1, .. }))));
    drop((second, third));
    assert!(pass.map(|batch| batch.unwrap().batch_index()).eq(4..8));
}
