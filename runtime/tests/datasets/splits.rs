//! The parts of `random_split`. `tests/torch_parity.rs` compares them with torch's.

use std::sync::Arc;

use slotline::Dataset;
use slotline::dataset::random_split;
use slotline::rng::Generator;

use crate::support::from_fn;

#[test]
fn the_parts_of_a_split_share_the_dataset_and_cover_it() {
    let dataset = Arc::new(from_fn(100, |index, _| Ok(index as i64)));
    let parts = random_split(Arc::clone(&dataset), &[0.1, 0.2, 0.7], &mut Generator::from_seed(3)).unwrap();
    assert!(parts.iter().all(|part| Arc::ptr_eq(&**part.dataset(), &dataset)));
    assert_eq!(parts.iter().map(Dataset::len).collect::<Vec<_>>(), [10, 20, 70]);
    let mut all: Vec<usize> = parts.iter().flat_map(|part| part.indices().collect::<Vec<_>>()).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..100));
}
