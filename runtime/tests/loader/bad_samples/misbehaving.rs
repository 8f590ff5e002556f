//! Tests of errors that panic when they are formatted, or when they are dropped in the thread that
//! made them.

use std::thread::{self, ThreadId};

use slotline::dataset::{Loadable, iter_fn};
use slotline::loader::Samples;

use crate::support::{WrittenBy, from_fn};

use super::*;

/// An error that panics when it is formatted, or dropped in the thread that made it.
#[derive(Debug)]
struct PanickingError(ThreadId);

impl PanickingError {
    fn boxed() -> BoxError {
        Self(thread::current().id()).into()
    }
}

impl fmt::Display for PanickingError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in fmt")
    }
}

impl std::error::Error for PanickingError {}

impl Drop for PanickingError {
    fn drop(&mut self) {
        assert!(thread::current().id() != self.0, "in drop");
    }
}

/// Runs two passes of a loader. The result for each batch is its length, or the index of the sample
/// that failed.
macro_rules! passes {
    ($builder:expr) => {{
        let mut loader = $builder.num_workers(1).build().unwrap();
        let outcome = |got: Result<_, Error>| match got {
            Ok(batch) => Ok(batch),
            Err(Error::Sample { index, .. }) => Err(index),
            Err(error) => panic!("{error:?}"),
        };
        [(); 2].map(|()| loader.epoch().unwrap().map(|got| outcome(got.map(|batch| batch.len()))).collect::<Vec<_>>())
    }};
}

#[test]
fn a_worker_survives_sample_errors_that_panic() {
    let unwritable = || {
        Loader::builder(from_fn(4, |_, _| Ok(WrittenBy::new(0_i64, |_, _: &mut Row<'_>| Err(PanickingError::boxed())))))
            .batch_size(2)
            .help(false)
    };
    assert_eq!(passes!(unwritable().on_error(SKIP)), [[]; 2]);
    let replaced = passes!(unwritable().on_error(REPLACE));
    assert!(replaced.iter().all(|pass| pass.len() == 2 && pass.iter().all(Result::is_err)), "{replaced:?}");
    // Only the first error of a batch is kept.
    assert_eq!(passes!(unwritable().part_size(1)), [[Err(0), Err(2)]; 2]);
}

/// Collects the samples in a list, and fails if there are none.
fn list<D: for<'a> Loadable<Item<'a> = i64>>(samples: &mut Samples<'_, D>) -> Result<Vec<i64>, BoxError> {
    let mut batch = Vec::new();
    while let Some(sample) = samples.next() {
        batch.push(sample?);
    }
    if batch.is_empty() { Err(PanickingError::boxed()) } else { Ok(batch) }
}

#[test]
fn a_worker_survives_collate_errors_that_panic() {
    let odd = from_fn(6, |index, _| if index < 2 { Err("bad".into()) } else { Ok(index as i64) });
    assert_eq!(
        passes!(Loader::builder(odd).batch_size(2).help(false).on_error(SKIP).collate(list)),
        [[Ok(2), Ok(2)]; 2]
    );
    let stream = iter_fn(|_| Ok((0..4_i64).map(Ok)));
    assert_eq!(passes!(Loader::iterable(stream).batch_size(2).collate(list)), [[Ok(2), Ok(2)]; 2]);
}

#[test]
fn a_worker_survives_errors_that_panic_on_resume() {
    let stream = || {
        iter_fn(|_| Ok((0..6_i64).map(|number| if number == 1 { Err(PanickingError::boxed()) } else { Ok(number) })))
    };
    let build = || Loader::iterable(stream()).batch_size(2).num_workers(1).on_error(SKIP).build().unwrap();
    let (mut before, mut after) = (build(), build());
    let mut pass = before.epoch().unwrap();
    assert_eq!(pass.next().unwrap().unwrap().tensors().as_slice(), [0, 2]);
    after.load_state(&pass.state()).unwrap();
    let rest: Vec<_> = after.epoch().unwrap().map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect();
    assert_eq!(rest, [vec![3, 4], vec![5]]);
}
