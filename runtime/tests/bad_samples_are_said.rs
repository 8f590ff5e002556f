//! What is said of bad samples through `tracing`. Alone in its process: another test's thread that comes by a place where
//! something is said, and listens to nothing, would have it left out for all.

#[path = "support/warnings.rs"]
mod warnings;

use slotline::Loader;
use slotline::dataset::from_fn;
use slotline::loader::{Budget, OnError};
use warnings::Warnings;

#[test]
fn each_bad_index_is_said_once() {
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
    let said = warnings.take();
    assert_eq!(said.len(), 2, "{said:?}");
    for word in ["index=30 ", "position=30 ", "batch=3 ", "by=worker 0 ", "error=no 30 "] {
        assert!(said[1].contains(word), "{said:?}");
    }
}
