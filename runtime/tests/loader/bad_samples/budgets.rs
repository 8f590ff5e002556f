//! Tests of the budget of bad samples in a pass, the errors beyond it, and incompatible options.

use slotline::dataset::iter_fn;
use slotline::loader::BuildError;
use slotline::sampler::DistributedSampler;

use crate::support::{from_fn, worker_kinds};

use super::*;

#[test]
fn beyond_the_budget_only_batches_with_bad_samples_fail() {
    let bad: fn(usize) -> bool = |i| i % 5 == 3; // 8 of 42 samples
    let good = good::<true>();
    for (budget, allowed) in [
        (Budget::Samples(0), 0),
        (Budget::Samples(4), 4),
        (Budget::Samples(7), 7),
        (Budget::Samples(8), 8),
        (Budget::Share(0.0), 0),
        (Budget::Share(0.1), 4),
        (Budget::Share(7.99 / 42.0), 7),
        (Budget::Share(8.0 / 42.0), 8),
        (Budget::Share(1.0), 42),
    ] {
        let pass = |pass: &Vec<Vec<Seen>>| -> Vec<Outcome> {
            let mut bad_so_far = 0;
            let batch = |(task, batch): (usize, &Vec<Seen>)| {
                let before = bad_so_far;
                let bads = batch.iter().enumerate().filter(|(_, seen)| bad(seen.index));
                let bads: Vec<_> = bads.map(|(row, seen)| (task * BATCH + row, seen.index)).collect();
                bad_so_far += bads.len();
                if bad_so_far > allowed && !bads.is_empty() {
                    let (position, index) = bads[allowed.saturating_sub(before)];
                    return Err(format!(
                        "{bad_so_far} bad of {allowed}: sample {index} at {position} of {task}: no {index}"
                    ));
                }
                Ok((task, batch.iter().copied().filter(|seen| !bad(seen.index)).collect()))
            };
            pass.iter().enumerate().map(batch).collect()
        };
        let want = good.each_ref().map(pass);
        assert_eq!(want[0].iter().any(Result::is_err), allowed < 8);
        for how in HOWS {
            let on_error = OnError::Skip(budget);
            let got = report::<true>(builder(Fault::Error, bad, how.many).on_error(on_error), how);
            assert_eq!((&got.passes, got.bad), (&want, 16), "{budget:?}, {how:?}");
        }
    }
}

#[test]
fn bad_substitutes_count_and_shares_respect_drop_last() {
    let bad: fn(usize) -> bool = |i| i % 2 == 1;
    let all = report::<false>(builder(Fault::Write, bad, false).on_error(REPLACE), HOWS[0]);
    let first: usize = all.bad / 2;
    assert!(all.bad > LEN, "some substitutes are bad");
    for how in HOWS {
        let few = OnError::Replace(Budget::Samples(first / 2));
        let got = report::<false>(builder(Fault::Write, bad, how.many).on_error(few), how);
        assert_eq!(got.bad, all.bad, "every bad sample is counted, even beyond the budget");
        assert!(got.passes[0][0].is_ok() && got.passes[0][5].is_err() && got.passes[1][0].is_ok(), "{how:?}");
        let builder = builder::<false>(Fault::Error, |_| true, how.many).drop_last(true);
        let got = report::<false>(builder.on_error(OnError::Skip(Budget::Share(0.5))), how);
        let messages: Vec<_> = got.passes[0].iter().map(|batch| batch.as_ref().unwrap_err().as_str()).collect();
        assert!(messages.len() == 3 && messages[0].starts_with("24 bad of 20: "), "{messages:?}");
    }
}

#[test]
fn more_bad_samples_than_good_ones_are_an_error() {
    let skip = OnError::Skip(Budget::default());
    let mostly = |outcome| match outcome {
        Some(Err(Error::MostlyBad { bad, of, source })) => (bad, of, source.to_string()),
        other => panic!("{:?}", other.map(|batch| batch.map(|batch: Batch<i64>| batch.indices().to_vec()))),
    };
    for kind in worker_kinds([0, 2]) {
        // Of the first 2,000 samples, half are bad, and all later ones are bad.
        let read = |index: usize, _: &mut Context| {
            if index >= 2000 || index % 2 == 1 { Err(format!("no {index}").into()) } else { Ok(index as i64) }
        };
        let dataset = from_fn(1_000_000, read);
        let builder = Loader::builder(dataset).batch_size(16).num_workers(kind.workers).on_error(skip);
        let mut loader = kind.build(builder).unwrap();
        let mut pass = loader.epoch().unwrap();
        for task in 0..125 {
            assert_eq!(pass.next().unwrap().unwrap().batch_index(), task);
        }
        let (bad, of, source) = mostly(pass.next());
        assert!((1000..1016).contains(&of) && bad > of / 2 && bad < 1016, "{bad} of {of}");
        assert!(source.starts_with("sample 2"), "{source}");
        // After the error, bad samples are counted from 0 again.
        assert_eq!(mostly(pass.next()).1, 1008);
    }
    for workers in [0, 2] {
        let stream = iter_fn(|_| Ok((0..).map(|k: i64| if k < 20 { Ok(k) } else { Err("no more".into()) })));
        let builder = Loader::iterable(stream).batch_size(8).num_workers(workers).on_error(skip);
        let mut loader = builder.build().unwrap();
        let mut pass = loader.epoch().unwrap();
        for _ in 0..2 * workers.max(1) {
            assert_eq!(pass.next().unwrap().unwrap().len(), 8);
        }
        let (bad, of, _) = mostly(pass.next());
        assert!(of >= 1000 && bad > of / 2, "{bad} of {of}");
    }
}

#[test]
fn a_timeout_ends_a_row_of_bad_batches() {
    for kind in worker_kinds([0, 1]) {
        let read = |index: usize, _: &mut Context| if index < 4 { Ok(index as i64) } else { Err("no".into()) };
        let builder = Loader::builder(from_fn(1 << 30, read)).batch_size(2).num_workers(kind.workers);
        let mut loader = kind.build(builder.on_error(SKIP)).unwrap();
        loader.begin_epoch().unwrap();
        let mut next = || loop {
            let begun = std::time::Instant::now();
            match loader.next_within(std::time::Duration::from_millis(20)) {
                // On a busy machine, any batch may be late.
                Some(Err(Error::Timeout { task, .. })) if task < 2 => {}
                next => return (next, begun.elapsed()),
            }
        };
        for task in 0..2 {
            assert_eq!(next().0.unwrap().unwrap().batch_index(), task);
        }
        for _ in 0..3 {
            let (late, took) = next();
            assert!(matches!(late, Some(Err(Error::Timeout { .. }))));
            assert!(took < std::time::Duration::from_secs(5), "{took:?}");
        }
    }
}

#[test]
fn out_of_order_all_good_samples_arrive() {
    for kind in worker_kinds([3]) {
        let builder = builder::<true>(Fault::WritePanic, |i| i % 5 == 3, false).on_error(SKIP);
        let mut loader = kind.build(builder.in_order(false)).unwrap();
        let mut seen: Vec<_> = loader.epoch().unwrap().flat_map(|batch| rows(&batch.unwrap())).collect();
        seen.sort_by_key(|seen| seen.index);
        assert!(seen.iter().map(|seen| seen.index).eq((0..LEN).filter(|i| i % 5 != 3)));
    }
}

#[test]
fn replacing_keeps_the_batch_sizes_equal_on_all_ranks() {
    let sizes = |kind: Workers, rank, on_error| -> Vec<usize> {
        // All bad samples belong to rank 0.
        let dataset = Sheets::<true> { len: 62, fault: Fault::Panic, bad: |i| i % 6 == 0, many: false };
        let sampler = DistributedSampler::new(62, 2, rank).unwrap().shuffle(false);
        let builder = Loader::builder(dataset).sampler(sampler).batch_size(7).seed(rank as u64);
        let mut loader = kind.build(builder.on_error(on_error)).unwrap();
        let sizes = loader.epoch().unwrap().map(|batch| rows(&batch.unwrap()).len()).collect();
        assert_eq!(loader.stats().bad_samples > 0, rank == 0);
        sizes
    };
    for kind in worker_kinds([2]) {
        assert_eq!(sizes(kind, 0, REPLACE), sizes(kind, 1, REPLACE));
        assert_eq!(sizes(kind, 1, REPLACE), [7, 7, 7, 7, 3]);
        assert!(sizes(kind, 0, SKIP).iter().sum::<usize>() < sizes(kind, 1, SKIP).iter().sum());
    }
}

#[test]
fn incompatible_options_are_refused() {
    let numbers = || from_fn(4, |i, _| Ok(i as i64));
    let stream = || Loader::iterable(iter_fn(|_| Ok((0..4_i64).map(Ok))));
    let share = |share| OnError::Skip(Budget::Share(share));
    for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let error = Loader::builder(numbers()).on_error(share(wrong)).build().unwrap_err();
        assert!(matches!(error, BuildError::Share { .. }), "{error}");
    }
    let unknown = [
        Loader::builder(numbers()).sampler_iter(|| 0..4).on_error(share(0.5)).build().map(drop).unwrap_err(),
        stream().on_error(share(0.5)).build().map(drop).unwrap_err(),
    ];
    for error in unknown {
        assert!(matches!(error, BuildError::Clash { first: "a maximum share of bad samples", .. }), "{error}");
    }
    let error = stream().on_error(REPLACE).build().map(drop).unwrap_err();
    assert!(matches!(error, BuildError::Clash { second: "replacing bad samples", .. }), "{error}");
    let known = iter_fn(|_| Ok((0..4_i64).map(Ok))).with_len(4);
    assert!(Loader::iterable(known).on_error(share(0.5)).build().is_ok());
}
