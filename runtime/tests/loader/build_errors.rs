//! Tests of options that the builder refuses, adapts or warns about.

use std::error::Error as _;

use crate::support::{WithFields, from_fn, items};
use slotline::dataset::TensorDataset;
use slotline::dtype::DType;
use slotline::loader::{Affinity, BuildError, Builder, Error, Warning};
use slotline::sample::Fields;
use slotline::sampler::SamplerError;
use slotline::{Dataset, Loader};

fn ten() -> Builder<impl Dataset> {
    Loader::builder(items(10, |_, _| Ok(())))
}

#[test]
fn an_option_that_is_zero_is_an_error_that_names_it() {
    for (builder, name) in [
        (ten().batch_size(0), "batch_size"),
        (ten().num_workers(1).prefetch_factor(0), "prefetch_factor"),
        (ten().hold(0), "hold"),
        (ten().part_size(0), "part_size"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, BuildError::Zero { option } if option == name), "{error}");
        assert_eq!(error.to_string(), format!("{name} is 0; set it to a positive number"));
    }
}

#[test]
fn a_huge_batch_size_takes_only_the_memory_of_the_dataset() {
    for (size, part_size) in [(10, 1), (11, 4), (usize::MAX, usize::MAX), (usize::MAX, 1)] {
        for workers in [0, 2] {
            let builder = ten().batch_size(size).part_size(part_size).num_workers(workers);
            let mut loader = builder.build().unwrap();
            assert!(loader.memory_ceiling() < 100_000, "{}", loader.memory_ceiling());
            assert_eq!((loader.len(), loader.batch_size()), (Some(1), size));
            let lens: Vec<usize> = loader.epoch().unwrap().map(|batch| batch.unwrap().len()).collect();
            assert_eq!(lens, [10]);
            let whole =
                ten().batch_size(size).drop_last(true).num_workers(workers).build().unwrap().epoch().unwrap().count();
            assert_eq!(whole, usize::from(size == 10));
        }
    }
    let mut loader = ten().batch_size(usize::MAX).collate(|samples| Ok(samples.len())).build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(Result::unwrap).collect::<Vec<_>>(), [10]);
}

/// Returns a dataset that declares a field of this shape, and whose samples cannot be read.
fn huge(len: usize, shape: &[usize]) -> impl Dataset {
    let mut fields = Fields::new();
    fields.fixed(DType::F64, shape);
    WithFields(from_fn(len, |_, _| -> Result<i64, _> { Err("no sample".into()) }), fields)
}

#[test]
fn a_batch_beyond_the_address_space_is_an_error() {
    for shape in [&[1 << 40, 1 << 21][..], &[usize::MAX, 0], &[1 << 31, 0, 1 << 31], &[1; 8], &[1; 20]] {
        let error = Loader::builder(huge(64, shape)).batch_size(64).build().unwrap_err();
        assert!(matches!(error, BuildError::Layout(_)), "{shape:?}: {error}");
    }
    let error = Loader::builder(huge(64, &[1 << 40, 1 << 21])).batch_size(64).build().unwrap_err().to_string();
    assert!(error.contains("64 rows of field 0: f64 [1099511627776, 2097152]"), "{error}");
    // The samples are empty, but there are more rows than the machine can address.
    let error = Loader::builder(huge(usize::MAX, &[0])).batch_size(usize::MAX).build().unwrap_err().to_string();
    assert!(error.contains("make batch_size smaller"), "{error}");
    // A field without elements is valid.
    let mut loader = Loader::builder(huge(4, &[5, 0])).batch_size(2).build().unwrap();
    assert_eq!(loader.epoch().unwrap().filter(|batch| batch.is_err()).count(), 2);
}

#[test]
fn needing_more_memory_than_available_is_an_error() {
    for (workers, expected) in [(0, 2_usize), (2, 6)] {
        // A batch takes 64 TiB, or 2⁶² bytes.
        for shape in [&[1 << 37][..], &[1 << 53]] {
            let error = Loader::builder(huge(64, shape)).batch_size(64).num_workers(workers).build().unwrap_err();
            let BuildError::Memory { slots, batch, bytes, available } = error else { panic!("{error}") };
            assert_eq!((slots, bytes), (expected, batch as u128 * expected as u128));
            assert!(batch >= 64 * 8 * shape[0] && available > 0 && bytes > u128::from(available));
            let text = BuildError::Memory { slots, batch, bytes, available }.to_string();
            assert!(text.contains(&bytes.to_string()) && text.contains(&available.to_string()), "{text}");
        }
    }
    // The order of a pass also needs memory.
    for len in [1 << 50, usize::MAX] {
        let error = Loader::builder(huge(len, &[])).shuffle(true).build().unwrap_err();
        assert!(matches!(error, BuildError::OrderMemory { bytes, available } if bytes as u64 > available), "{error}");
    }
}

#[test]
fn a_dataset_of_any_length_can_be_read_in_sequence() {
    let mut loader =
        Loader::builder(from_fn(usize::MAX, |index, _| Ok(index as u64))).batch_size(4096).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.remaining(), Some(usize::MAX.div_ceil(4096)));
    assert!(pass.next().unwrap().unwrap().tensors().as_slice().iter().copied().eq(0..4096));
    drop(pass);
    // Each sample is a batch, and there are more batches than a ring can count. A loader without
    // workers has no ring, so it has no such limit.
    let numbers = |workers| {
        Loader::builder(from_fn(usize::MAX, |index, _| Ok(index as u64))).num_workers(workers).build().unwrap()
    };
    assert_eq!(numbers(0).epoch().unwrap().next().unwrap().unwrap().tensors().as_slice(), [0]);
    let mut loader = numbers(1);
    let error = loader.epoch().err().unwrap();
    assert!(matches!(error, Error::TooManyBatches { tasks: usize::MAX }), "{error}");
    assert!(loader.epoch().is_err(), "the next call must fail, too");
}

/// Checks that a loop can bind its own thread to a core, and its workers to other cores.
#[cfg(target_os = "linux")]
#[test]
fn workers_can_be_bound_apart_from_the_thread_that_builds_the_loader() {
    let all = core_affinity::get_core_ids().unwrap_or_default();
    let [first, .., last] = all[..] else { return };
    std::thread::scope(|scope| {
        let loop_thread = scope.spawn(|| {
            assert!(core_affinity::set_for_current(first));
            let mut loader = ten().num_workers(1).affinity(Affinity::Cores(vec![last.id])).build().unwrap();
            assert_eq!(loader.warnings(), []);
            assert_eq!(loader.epoch().unwrap().count(), 10);
            // The first thread of the process is not bound to a core.
            let loader = ten().num_workers(2).affinity(Affinity::Spread).build().unwrap();
            assert_eq!(loader.warnings(), []);
        });
        loop_thread.join().unwrap();
    });
}

#[test]
fn unknown_cores_are_refused_and_known_ones_are_used() {
    let error = ten().num_workers(2).affinity(Affinity::Cores(vec![0, usize::MAX])).build().unwrap_err();
    assert!(matches!(&error, BuildError::NoSuchCore { core: usize::MAX, usable } if usable.contains('0')), "{error}");
    let error = ten().num_workers(2).affinity(Affinity::Cores(vec![])).build().unwrap_err();
    assert!(matches!(error, BuildError::Zero { .. }) && error.to_string().contains("affinity"), "{error}");
    let error = ten().num_workers(2).affinity(Affinity::Cores(vec![usize::MAX])).build().unwrap_err();
    let first = error.to_string().rsplit(' ').next().unwrap().parse().unwrap();
    let mut loader = ten().num_workers(3).affinity(Affinity::Cores(vec![first])).build().unwrap();
    assert!(!loader.warnings().iter().any(|warning| matches!(warning, Warning::NotBound { .. })));
    assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 10);
}

#[test]
fn an_empty_dataset_has_no_batches_and_cannot_be_shuffled() {
    let empty = || TensorDataset::new(Vec::<i64>::new()).unwrap();
    for workers in [0, 2] {
        let mut loader = Loader::builder(empty()).batch_size(4).num_workers(workers).build().unwrap();
        assert!(loader.is_empty());
        for _ in 0..3 {
            assert_eq!(loader.epoch().unwrap().count(), 0);
        }
    }
    let error = Loader::builder(empty()).shuffle(true).build().unwrap_err();
    assert!(matches!(error, BuildError::Sampler(SamplerError::EmptyDataset { .. })), "{error}");
    assert!(error.source().is_none() && error.to_string().contains("the dataset is empty"));
}
