//! What `random_split` draws from, shares and warns about; that its parts are torch's is in `torch_parity.rs`.

#[path = "support/warnings.rs"]
mod warnings;

use std::sync::Arc;

use slotline::Dataset;
use slotline::dataset::{Subset, from_fn, random_split};
use slotline::rng::{Generator, SharedGenerator, default_generator, manual_seed};
use warnings::Warnings;

/// The indices of the parts of a dataset of `n`.
fn indices<D>(parts: &[Subset<Arc<D>>]) -> Vec<Vec<usize>> {
    parts.iter().map(|part| part.indices().collect()).collect()
}

/// The one test of this file that touches the process's default generator.
#[test]
fn any_generator_is_drawn_from_directly() {
    let golden = [vec![2, 6, 1], vec![8, 4, 5, 0, 9, 3, 7]];
    let ten = || from_fn(10, |index, _| Ok(index as i64));
    manual_seed(42);
    assert_eq!(indices(&random_split(ten(), &[3, 7], &mut default_generator()).unwrap()), golden);
    assert_eq!(default_generator().drawn(), 9);
    let shared = SharedGenerator::from(Generator::from_seed(42));
    assert_eq!(indices(&random_split(ten(), &[0.3, 0.7], &mut shared.lock()).unwrap()), golden);
    assert_eq!(shared.lock().drawn(), 9);
}

#[test]
fn the_parts_share_the_dataset_and_their_samples_are_its() {
    let dataset = Arc::new(from_fn(100, |index, _| Ok(index as i64)));
    let parts = random_split(Arc::clone(&dataset), &[0.1, 0.2, 0.7], &mut Generator::from_seed(3)).unwrap();
    assert!(parts.iter().all(|part| Arc::ptr_eq(&**part.dataset(), &dataset)));
    assert_eq!(parts.iter().map(Dataset::len).collect::<Vec<_>>(), [10, 20, 70]);
    let mut all = indices(&parts).concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..100));
}

/// As in torch: a number of samples that is 0 was asked for, a fraction that comes to none may surprise.
#[test]
fn parts_that_fractions_leave_empty_are_warned_about() {
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
