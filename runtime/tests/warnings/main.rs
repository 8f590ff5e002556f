//! Tests of warnings that are logged with `tracing`. They run one at a time: if a thread of another
//! test reached the callsite of a warning without a subscriber, `tracing` would disable that
//! callsite for all threads.

#[path = "../support/alone.rs"]
mod alone;
#[path = "../support/warnings.rs"]
mod warnings;

use alone::alone;
use slotline::Loader;
use slotline::dataset::{from_fn, random_split};
use slotline::loader::{Budget, OnError};
use slotline::rng::Generator;
use slotline::sampler::DistributedSampler;
use warnings::Warnings;

#[test]
fn each_bad_index_is_logged_once() {
    let _alone = alone();
    let warnings = Warnings::default();
    let numbers = from_fn(42, |i, _| if i == 4 || i == 30 { Err(format!("no {i}").into()) } else { Ok(i as i64) });
    tracing::subscriber::with_default(warnings.clone(), || {
        let builder = Loader::builder(numbers).batch_size(8).help(false);
        let mut loader = builder.num_workers(1).on_error(OnError::Skip(Budget::Samples(1))).build().unwrap();
        for _ in 0..3 {
            assert_eq!(loader.epoch().unwrap().filter(Result::is_err).count(), 1);
        }
        assert_eq!(loader.stats().bad_samples, 6);
        assert!(loader.stats().bad_indices.into_iter().eq([4, 30]));
    });
    let logged = warnings.take();
    assert_eq!(logged.len(), 2, "{logged:?}");
    for word in ["index=30 ", "position=30 ", "batch=3 ", "by=worker 0 ", "error=no 30 "] {
        assert!(logged[1].contains(word), "{logged:?}");
    }
}

/// If the user does not set the sampler's epoch before each pass, passes are shuffled in the same
/// way. One warning says so.
#[test]
fn shuffling_the_same_epoch_again_is_warned_about_once() {
    let _alone = alone();
    let count = |shuffle, epochs: &[u64]| {
        let warnings = Warnings::default();
        let sampler = DistributedSampler::new(10, 2, 0).unwrap().shuffle(shuffle);
        let epoch = sampler.epoch();
        let numbers = from_fn(10, |index, _| Ok(index as i64));
        let mut loader = Loader::builder(numbers).sampler(sampler).build().unwrap();
        tracing::subscriber::with_default(warnings.clone(), || {
            for &number in epochs {
                epoch.set(number);
                loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
            }
        });
        warnings.take().iter().filter(|warning| warning.contains("set the epoch")).count()
    };
    assert_eq!(count(true, &[0, 1, 2]), 0);
    assert_eq!(count(true, &[0, 0, 0, 1, 1]), 1);
    assert_eq!(count(false, &[0, 0]), 0);

    // Resuming in the middle of a pass does not begin a second pass.
    let warnings = Warnings::default();
    let numbers = from_fn(10, |index, _| Ok(index as i64));
    let mut loader = Loader::builder(numbers).sampler(DistributedSampler::new(10, 2, 0).unwrap()).build().unwrap();
    tracing::subscriber::with_default(warnings.clone(), || {
        let mut pass = loader.epoch().unwrap();
        pass.next().unwrap().unwrap();
        let state = pass.state();
        drop(pass);
        loader.load_state(&state).unwrap();
        loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
    });
    assert!(warnings.take().is_empty());
}

/// As in torch, a split with a length of 0 is considered intended, and causes no warning. A
/// fraction that rounds to 0 samples does.
#[test]
fn parts_that_fractions_leave_empty_are_warned_about() {
    let _alone = alone();
    let warnings = Warnings::default();
    let ten = || from_fn(10, |index, _| Ok(index as i64));
    let count = |fractions: &[f64]| {
        tracing::subscriber::with_default(warnings.clone(), || {
            random_split(ten(), fractions, &mut Generator::new()).unwrap();
            random_split(ten(), &[0, 10], &mut Generator::new()).unwrap();
        });
        warnings.take().len()
    };
    assert_eq!(count(&[0.5, 0.5]), 0);
    assert_eq!(count(&[0.95, 0.05]), 1);
    assert_eq!(count(&[1.0, 0.0, 0.0]), 2);
}
