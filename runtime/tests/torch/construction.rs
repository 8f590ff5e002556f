//! Tests of options that exclude each other, or are too large.

use slotline::dataset::iter_fn;
use slotline::loader::{BuildError, Builder};
use slotline::sampler::{BatchSampler, SamplerError, SequentialSampler};
use std::time::Duration;

use crate::support::{HAS_PROCESSES, InProcesses};
use crate::{Loader, nothing, numbers, stream};

/// The options that torch checks when it creates a loader. A flag says whether the option is given.
#[derive(Clone, Copy, Debug)]
struct Given {
    iterable: bool,
    /// Whether a map-style dataset has no samples.
    empty: bool,
    workers: bool,
    prefetch_factor: Option<usize>,
    persistent_workers: bool,
    shuffle: bool,
    sampler: bool,
    batch_sampler: bool,
    batch_size: Option<usize>,
    drop_last: bool,
    timeout: bool,
}

/// A fault in the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Two options exclude each other.
    Clash(&'static str, &'static str),
    /// An option is 0.
    Zero(&'static str),
    /// An empty dataset cannot be shuffled.
    Empty,
}

impl Given {
    /// Returns all faults, in the order in which torch checks them.
    fn faults(&self) -> impl Iterator<Item = Fault> {
        use Fault::{Clash, Empty, Zero};
        let (workers, iterable, batch_sampler) = (self.workers, self.iterable, self.batch_sampler);
        let checks = [
            (!workers && self.prefetch_factor.is_some(), Clash("prefetch_factor", "num_workers = 0")),
            (self.prefetch_factor == Some(0), Zero("prefetch_factor")),
            (!workers && self.persistent_workers, Clash("persistent_workers", "num_workers = 0")),
            (iterable && self.shuffle, Clash("an iterable dataset", "shuffle")),
            (iterable && self.sampler, Clash("an iterable dataset", "sampler")),
            (iterable && batch_sampler, Clash("an iterable dataset", "batch_sampler")),
            (self.sampler && self.shuffle, Clash("sampler", "shuffle")),
            (batch_sampler && self.batch_size != Some(1), Clash("batch_sampler", "batch_size")),
            (batch_sampler && self.shuffle, Clash("batch_sampler", "shuffle")),
            (batch_sampler && self.sampler, Clash("batch_sampler", "sampler")),
            (batch_sampler && self.drop_last, Clash("batch_sampler", "drop_last")),
            (self.batch_size.is_none() && self.drop_last, Clash("batch_size = None", "drop_last")),
            (self.empty && self.shuffle, Empty),
            (self.batch_size == Some(0), Zero("batch_size")),
            // torch checks this when the first pass begins.
            (!workers && self.timeout, Clash("timeout", "num_workers = 0")),
        ];
        checks.into_iter().filter_map(|(wrong, fault)| wrong.then_some(fault))
    }

    fn set<D>(&self, mut builder: Builder<D>) -> Builder<D> {
        if let Some(factor) = self.prefetch_factor {
            builder = builder.prefetch_factor(factor);
        }
        if self.sampler {
            builder = builder.sampler(SequentialSampler::new(3));
        }
        if self.batch_sampler {
            builder = builder.batch_sampler(BatchSampler::new(SequentialSampler::new(3), 2, false).unwrap());
        }
        builder
            .num_workers(usize::from(self.workers))
            .persistent_workers(self.persistent_workers)
            .shuffle(self.shuffle)
            .batch_size(self.batch_size)
            .drop_last(self.drop_last)
            .timeout(if self.timeout { Duration::from_secs(60) } else { Duration::ZERO })
    }

    /// Builds loaders of all kinds that have these options, and returns the outcomes.
    fn build(&self) -> Vec<Result<(), BuildError>> {
        if self.iterable {
            return vec![self.set(Loader::iterable(stream(6, nothing))).build().map(drop)];
        }
        let builder = || self.set(Loader::builder(numbers(if self.empty { 0 } else { 6 }, nothing)));
        let mut built = vec![builder().build().map(drop), builder().round_robin(true).build().map(drop)];
        if HAS_PROCESSES && self.workers {
            built.push(builder().in_processes().map(drop));
        }
        built
    }
}

/// Returns the fault that the builder reported.
fn reported(error: &BuildError) -> Fault {
    match *error {
        BuildError::Clash { first, second, .. } => {
            let text = error.to_string();
            assert!(text.starts_with(&format!("{first} and {second} exclude each other; ")), "{text}");
            Fault::Clash(first, second)
        }
        BuildError::Zero { option } => Fault::Zero(option),
        BuildError::Sampler(SamplerError::EmptyDataset { .. }) => Fault::Empty,
        ref other => panic!("{other}"),
    }
}

/// Returns all combinations of options.
fn combinations() -> Vec<Given> {
    let mut all = Vec::new();
    for bits in 0..1 << 9 {
        let bit = |i: u32| bits >> i & 1 == 1;
        for prefetch_factor in [None, Some(0), Some(2)] {
            for batch_size in [Some(1), Some(0), Some(3), None] {
                let given = Given {
                    iterable: bit(0),
                    empty: bit(1) && !bit(0),
                    workers: bit(2),
                    prefetch_factor,
                    persistent_workers: bit(3),
                    shuffle: bit(4),
                    sampler: bit(5),
                    batch_sampler: bit(6),
                    batch_size,
                    drop_last: bit(7),
                    timeout: bit(8),
                };
                // `empty` has no meaning for an iterable dataset.
                if !(bit(0) && bit(1)) {
                    all.push(given);
                }
            }
        }
    }
    all
}

#[test]
fn the_first_invalid_option_in_torchs_order_is_named() {
    let (mut wrong, mut several) = (0, 0);
    for given in combinations() {
        let faults: Vec<Fault> = given.faults().collect();
        for outcome in given.build() {
            assert_eq!(outcome.as_ref().err().map(reported), faults.first().copied(), "{given:?}");
        }
        wrong += usize::from(!faults.is_empty());
        several += usize::from(faults.len() > 1);
    }
    assert!(wrong > several && several > 1000, "{wrong} wrong, {several} with several faults");
}

#[test]
fn sampler_iterators_exclude_the_same_options_as_samplers() {
    let ten = || Loader::builder(numbers(10, nothing));
    let error = ten().sampler_iter(|| 0..10).shuffle(true).build().unwrap_err();
    assert_eq!(reported(&error), Fault::Clash("sampler", "shuffle"));
    assert!(error.to_string().ends_with("a sampler decides the order; drop shuffle"), "{error}");
    let lists = || ten().batch_sampler_iter(2, || [[0, 1]]);
    for (builder, second) in [
        (lists().batch_size(2), "batch_size"),
        (lists().batch_size(None), "batch_size"),
        (lists().shuffle(true), "shuffle"),
        (lists().sampler_iter(|| 0..10), "sampler"),
        (lists().drop_last(true), "drop_last"),
    ] {
        assert_eq!(reported(&builder.build().unwrap_err()), Fault::Clash("batch_sampler", second));
    }
    let error = ten().batch_sampler_iter(0, || [[0; 0]]).build().unwrap_err();
    assert_eq!(reported(&error), Fault::Zero("max_batch_size"));
    let error = Loader::iterable(stream(9, nothing)).sampler_iter(|| 0..9).build().unwrap_err();
    assert_eq!(reported(&error), Fault::Clash("an iterable dataset", "sampler"));
}

#[test]
fn options_of_a_shared_ring_exclude_a_ring_per_worker() {
    let round_robin = || Loader::builder(numbers(10, nothing)).num_workers(1);
    for (builder, second) in [
        (round_robin().part_size(2), "part_size"),
        (round_robin().help(true), "help"),
        (round_robin().sampler_iter(|| 0..10), "an iterator as sampler"),
        (round_robin().batch_sampler_iter(1, || [[0]]), "an iterator as sampler"),
    ] {
        assert_eq!(reported(&builder.round_robin(true).build().unwrap_err()), Fault::Clash("round_robin", second));
    }
    let iterable = || Loader::iterable(stream(10, nothing)).num_workers(1);
    for (builder, second) in [(iterable().part_size(2), "part_size"), (iterable().help(true), "help")] {
        assert_eq!(reported(&builder.build().unwrap_err()), Fault::Clash("an iterable dataset", second));
    }
    // Without workers the calling thread reads all samples, so `help(true)` is not a conflict.
    assert_eq!(iterable().num_workers(0).help(true).build().unwrap().epoch().unwrap().count(), 10);
    assert_eq!(reported(&iterable().hold(0).build().unwrap_err()), Fault::Zero("hold"));
    assert_eq!(reported(&round_robin().hold(0).round_robin(true).build().unwrap_err()), Fault::Zero("hold"));
}

/// Returns builders with more slots or threads than any machine has, each with the option that the
/// error must name.
fn absurd<D>(builder: impl Fn() -> Builder<D>) -> [(Builder<D>, &'static str); 4] {
    [
        (builder().num_workers(1).prefetch_factor(usize::MAX), "prefetch_factor"),
        (builder().num_workers(usize::MAX), "num_workers"),
        (builder().num_workers(usize::MAX).prefetch_factor(usize::MAX), "num_workers"),
        (builder().hold(usize::MAX), "hold"),
    ]
}

#[test]
fn absurd_numbers_of_slots_and_threads_are_refused() {
    let check = |error: BuildError, name| {
        assert!(matches!(error, BuildError::TooMany { option, .. } if option.contains(name)), "{error}");
    };
    for round_robin in [false, true] {
        for (builder, name) in absurd(|| Loader::builder(numbers(10, nothing)).round_robin(round_robin)) {
            check(builder.build().unwrap_err(), name);
        }
    }
    let iterable = || Loader::iterable(stream(10, nothing));
    for (builder, name) in absurd(iterable) {
        check(builder.build().unwrap_err(), name);
    }
    for batch_size in [1 << 50, usize::MAX] {
        let error = iterable().batch_size(batch_size).build().unwrap_err();
        assert!(matches!(error, BuildError::Memory { .. } | BuildError::Layout(_)), "{error}");
    }
}

#[test]
fn build_reports_why_the_first_sample_cannot_be_read() {
    for workers in [0, 2] {
        for (fault, message) in [(0, "no start"), (1, "no sample"), (2, "panicked: no way")] {
            let dataset = iter_fn(move |_| match fault {
                0 => Err("no start".into()),
                1 => Ok([Err("no sample".into()), Ok(7_i64)]),
                _ => panic!("no way"),
            });
            let error = Loader::iterable(dataset).num_workers(workers).build().unwrap_err();
            assert!(
                matches!(&error, BuildError::Probe { index: 0, source } if source.to_string() == message),
                "{error}"
            );
        }
    }
}
