//! What the tests of all formats share.
#![allow(dead_code)] // Each test binary uses some of it.

use slotline::loader::{Batch, BatchOf};
use slotline::{Dataset, Error, Loader};

/// Reads two shuffled epochs through loaders without and with workers, whole and interrupted in the middle of each
/// epoch and resumed in a new loader; all must give the same batches.
pub(crate) fn resumes<D: Dataset>(open: impl Fn() -> D) {
    let build = |workers| Loader::builder(open()).batch_size(2).shuffle(true).seed(7).num_workers(workers).build();
    let build = |workers: usize| -> Loader<BatchOf<D>> { build(workers).expect("the dataset can be loaded") };
    let mut whole = build(0);
    let whole: Vec<_> = (0..2).flat_map(|_| whole.epoch().unwrap().map(digest).collect::<Vec<_>>()).collect();
    let per_epoch = whole.len() / 2;
    assert!(per_epoch >= 2, "too few samples to interrupt a pass");
    assert_ne!(whole[..per_epoch], whole[per_epoch..], "shuffling changes nothing");
    for workers in [0, 2] {
        let (mut loader, mut found) = (build(workers), Vec::new());
        for _ in 0..2 {
            let mut pass = loader.epoch().unwrap();
            found.extend(pass.by_ref().take(per_epoch / 2).map(digest));
            let state = pass.state();
            drop(pass);
            loader = build(2 - workers);
            loader.load_state(&state).unwrap();
            found.extend(loader.epoch().unwrap().map(digest));
        }
        assert_eq!(found, whole, "{workers} workers");
    }
}

/// Returns the contents of all columns of a batch, with the numbers that separate the samples.
fn digest<S>(batch: Result<Batch<S>, Error>) -> Vec<Vec<u8>> {
    let batch = batch.expect("every sample can be read");
    let columns = batch.columns();
    let column = |i| {
        let column = columns.get(i).expect("a column below the number of columns");
        let numbers = columns.lengths(i).into_iter().chain(columns.offsets(i)).flatten();
        column.bytes().iter().copied().chain(numbers.flat_map(|number| number.to_ne_bytes())).collect()
    };
    (0..columns.len()).map(column).collect()
}
