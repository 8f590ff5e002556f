//! Tests that a pass to the device allocates nothing after each slot was used once. This test is
//! alone in its process, since it counts all allocations.

#[path = "../../runtime/tests/support/counting.rs"]
mod counting;
mod support;

use std::sync::atomic::Ordering::SeqCst;

use counting::ALLOCATIONS;
use slotline_cuda::{Device, Stream};
use slotline_cuda_fake::{Fake, Options};
use support::loader;

#[test]
fn nothing_is_allocated_after_the_first_batches() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    for workers in [0, 2] {
        let mut loader = loader(&device, 2_000, workers, 3);
        let mut pass = loader.epoch().unwrap();
        let mut step = || {
            let batch = pass.next()?.unwrap();
            batch.ready_on(&stream).unwrap();
            let bytes: usize = (0..batch.fields()).filter_map(|i| batch.field(i)).map(|field| field.bytes()).sum();
            Some(bytes)
        };
        for _ in 0..100 {
            assert!(step().unwrap() > 0);
        }
        let before = ALLOCATIONS.load(SeqCst);
        let rest = std::iter::from_fn(&mut step).count();
        assert_eq!((ALLOCATIONS.load(SeqCst) - before, rest), (0, 150), "{workers} workers");
    }
    assert_eq!(fake.violations(), Vec::<String>::new());
}
