//! Tests of the limit of a loader's memory. If the limit is too low, the error must say which
//! options would fit.

use crate::support::{HAS_PROCESSES, InProcesses, OneByOne, ReadsMany, from_fn, worker_kinds};
use slotline::Loader;
use slotline::dataset::{Dataset, iter_fn};
use slotline::loader::{BuildError, Builder, Fits};

/// The options that determine how much memory a loader takes.
#[derive(Clone, Copy, Debug)]
struct Size {
    workers: usize,
    prefetch: Option<usize>,
    batch_size: usize,
    hold: usize,
}

/// A function that builds a loader of some kind with a limit, and returns its depth and its memory
/// ceiling.
type Build = fn(Size, Option<usize>) -> Result<(usize, usize), BuildError>;

/// Sets the options that apply to all kinds of loaders.
fn options<D, C>(builder: Builder<D, C>, size: Size, limit: Option<usize>) -> Builder<D, C> {
    let builder = builder.num_workers(size.workers).hold(size.hold);
    let builder = if let Some(prefetch) = size.prefetch { builder.prefetch_factor(prefetch) } else { builder };
    if let Some(bytes) = limit { builder.memory_limit(bytes) } else { builder }
}

const LEN: usize = 1_000;

/// Returns a dataset whose samples have a little more than 300 bytes.
fn data() -> impl Dataset {
    from_fn(LEN, |index, _| Ok(([index as u8; 300], index as i64)))
}

/// Builds a loader by the method `$method`, runs a pass, and returns the loader's depth and its
/// memory ceiling.
macro_rules! build {
    ($builder:expr, $size:expr, $limit:expr) => {
        build!($builder, $size, $limit, build)
    };
    ($builder:expr, $size:expr, $limit:expr, $method:ident) => {{
        let mut loader = options($builder, $size, $limit).$method()?;
        let stated = (loader.depth(), loader.memory_ceiling());
        assert!(loader.epoch().unwrap().all(|batch| batch.is_ok()));
        assert_eq!(stated, (loader.depth(), loader.memory_ceiling()));
        Ok(stated)
    }};
}

const KINDS: [(&str, Build); 10] = [
    ("in order", |size, limit| build!(Loader::builder(data()).batch_size(size.batch_size), size, limit)),
    ("by processes", |size, limit| {
        let builder = Loader::builder(data()).batch_size(size.batch_size).shuffle(true);
        if HAS_PROCESSES { build!(builder, size, limit, in_processes) } else { build!(builder, size, limit) }
    }),
    ("shuffled", |size, limit| build!(Loader::builder(data()).batch_size(size.batch_size).shuffle(true), size, limit)),
    ("out of order", |size, limit| {
        build!(Loader::builder(data()).batch_size(size.batch_size).in_order(false), size, limit)
    }),
    ("in bulk", |size, limit| {
        build!(Loader::builder(ReadsMany(data(), true)).batch_size(size.batch_size), size, limit)
    }),
    ("a user's iterator", |size, limit| {
        let builder = Loader::builder(data()).batch_size(size.batch_size).sampler_iter(|| 0..LEN);
        build!(builder, size, limit)
    }),
    ("a user's batches", |size, limit| {
        let batches = move || (0..LEN).map(move |i| vec![i; 1 + i % size.batch_size]);
        build!(Loader::builder(data()).batch_sampler_iter(size.batch_size, batches), size, limit)
    }),
    ("round robin", |size, limit| {
        build!(
            Loader::builder(ReadsMany(data(), true)).batch_size(size.batch_size).shuffle(true).round_robin(true),
            size,
            limit
        )
    }),
    ("iterable", |size, limit| build!(Loader::iterable(OneByOne(data())).batch_size(size.batch_size), size, limit)),
    ("collated", |size, limit| {
        let builder = Loader::builder(data()).batch_size(size.batch_size).shuffle(true);
        build!(builder.collate(|samples| Ok(samples.len())), size, limit)
    }),
];

const SIZES: [Size; 6] = [
    Size { workers: 0, prefetch: None, batch_size: 16, hold: 1 },
    Size { workers: 1, prefetch: None, batch_size: 7, hold: 1 },
    Size { workers: 2, prefetch: None, batch_size: 20, hold: 3 },
    Size { workers: 3, prefetch: Some(5), batch_size: 20, hold: 2 },
    Size { workers: 1, prefetch: Some(1), batch_size: 64, hold: 1 },
    Size { workers: 2, prefetch: None, batch_size: 300, hold: 1 },
];

/// Returns the limits to test for a loader that takes `whole` bytes if it has no limit.
fn limits(whole: usize) -> impl Iterator<Item = usize> {
    let shares = (0..12).map(move |i| whole * i / 11);
    shares.chain([1, whole - 1, whole + 1, usize::MAX]).chain([whole - whole / 7, whole / 40, whole / 100])
}

#[test]
fn a_loader_fits_its_limit_or_build_says_what_would_fit() {
    let mut advice = [0; 4];
    for (kind, build) in KINDS {
        let by_processes = kind == "by processes" && HAS_PROCESSES;
        for size in SIZES {
            // Fewer cases with processes, which take longer to start.
            if by_processes && (size.workers == 0 || size.batch_size == 7) {
                continue;
            }
            let (depth, whole) = build(size, None).unwrap();
            for limit in limits(whole).step_by(if by_processes { 4 } else { 1 }) {
                let case = format!("{kind}, {size:?}, {limit} of {whole}");
                match build(size, Some(limit)) {
                    Ok((limited, ceiling)) => {
                        assert!(ceiling <= limit, "{ceiling}: {case}");
                        if size.prefetch.is_some() || limit >= whole {
                            assert_eq!((limited, ceiling), (depth, whole), "{case}");
                        } else {
                            assert!(limited < depth, "{limited} of {depth}: {case}");
                            check_greatest(build, size, limit, limited, &case);
                        }
                    }
                    Err(BuildError::MemoryLimit { limit: named, needed, overhead, fits }) => {
                        assert!(limit < whole && named == limit && needed > limit && overhead <= needed, "{case}");
                        assert!(size.prefetch.is_none() || needed == whole, "{case}");
                        advice[check_advice(build, size, limit, fits, &case)] += 1;
                    }
                    Err(error) => panic!("{error}: {case}"),
                }
            }
        }
    }
    assert!(advice.iter().all(|&times| times > 5), "not all kinds of advice were given: {advice:?}");
}

/// Checks that the loader chose the greatest prefetch factor that fits the limit.
#[track_caller]
fn check_greatest(build: Build, size: Size, limit: usize, depth: usize, case: &str) {
    let with = |prefetch| build(Size { prefetch: Some(prefetch), ..size }, Some(limit));
    let greatest = (1..=32).rev().find_map(|prefetch| with(prefetch).ok());
    assert_eq!(greatest.map(|(depth, _)| depth), Some(depth), "{case}");
}

/// Checks that the advised value fits the limit, and the next greater one does not. Returns a
/// number for the kind of advice.
#[track_caller]
fn check_advice(build: Build, size: Size, limit: usize, fits: Fits, case: &str) -> usize {
    let builds = |size| match build(size, Some(limit)) {
        Ok(_) => true,
        Err(BuildError::MemoryLimit { .. } | BuildError::Clash { .. }) => false,
        Err(error) => panic!("{error}: {case}"),
    };
    let left = Size { prefetch: None, ..size };
    match fits {
        Fits::PrefetchFactor(prefetch) => {
            let given = |prefetch| Size { prefetch: Some(prefetch), ..size };
            assert!(builds(given(prefetch)) && !builds(given(prefetch + 1)), "{prefetch}: {case}");
            0
        }
        Fits::NumWorkers(workers) => {
            let with = |workers| Size { workers, ..left };
            assert!(workers < size.workers && builds(with(workers)) && !builds(with(workers + 1)), "{workers}: {case}");
            1
        }
        Fits::BatchSize { batch_size, workers } => {
            let with = |batch_size| Size { batch_size, workers, ..left };
            assert!(builds(with(batch_size)) && !builds(with(batch_size + 1)), "{batch_size}, {workers}: {case}");
            assert!(workers == size.workers || !builds(Size { batch_size: 1, ..left }), "{case}");
            2
        }
        Fits::Nothing => {
            assert!(!builds(Size { batch_size: 1, workers: 0, ..left }), "{case}");
            3
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_error_names_the_limit_and_what_would_fit() {
    let build = |size, limit| KINDS[2].1(size, Some(limit)).unwrap_err().to_string();
    let size = Size { workers: 2, prefetch: Some(4), batch_size: 100, hold: 1 };
    let text = build(size, 200_000);
    let (start, end) = ("the loader needs ", "prefetch_factor = 1 would fit");
    assert!(text.starts_with(start) && text.ends_with(end) && text.contains("memory_limit is 200000;"), "{text}");
    let text = build(size, 100_000);
    assert!(text.ends_with("; num_workers = 1 would fit, with no prefetch_factor given"), "{text}");
    let text = build(size, 50_000);
    let end = " would fit, with num_workers = 2 and no prefetch_factor given";
    assert!(text.contains("; batch_size = ") && text.ends_with(end), "{text}");
    let text = build(size, 5_000);
    assert!(text.ends_with("; no batch size fits; raise memory_limit"), "{text}");
}

#[test]
fn advice_keeps_the_workers_that_an_option_requires() {
    // A cell (the memory of one batch) takes 16 KiB, or 8 KiB with one sample per batch.
    let refused = |persistent, limit| {
        let dataset = from_fn(100, |index, _| Ok([index as u8; 4_000]));
        let builder = Loader::builder(dataset).batch_size(4).num_workers(2).persistent_workers(persistent);
        match builder.memory_limit(limit).round_robin(true).build().unwrap_err() {
            BuildError::MemoryLimit { fits, .. } => fits,
            error => panic!("{error}"),
        }
    };
    assert_eq!([refused(false, 55_000), refused(true, 55_000)], [Fits::NumWorkers(1); 2]);
    let one = |workers| Fits::BatchSize { batch_size: 1, workers };
    assert_eq!([refused(false, 40_000), refused(true, 40_000)], [Fits::NumWorkers(0), one(2)]);
    assert_eq!([refused(false, 20_000), refused(true, 20_000)], [one(0), Fits::Nothing]);
}

#[test]
fn limits_apply_to_single_samples_and_absurd_batch_sizes() {
    for kind in worker_kinds([2]) {
        let single = |limit| kind.build(Loader::builder(data()).batch_size(None).memory_limit(limit));
        let limit = if kind.processes { 60_000 } else { 8_192 };
        let loader = single(limit).unwrap();
        assert!((3..66).contains(&loader.depth()) && loader.memory_ceiling() <= limit);
        let error = single(1_000).unwrap_err();
        assert!(matches!(error, BuildError::MemoryLimit { fits: Fits::Nothing, .. }), "{error}");
    }
    // A batch size of 2⁵⁷ is refused, and the error names a batch size that fits.
    let numbers = from_fn(usize::MAX, |index, _| Ok(index as u64));
    let error = Loader::builder(numbers).batch_size(1 << 57).memory_limit(1 << 20).build().unwrap_err();
    let BuildError::MemoryLimit { needed, fits, .. } = error else { panic!("{error}") };
    assert!(needed > 1 << 60 && matches!(fits, Fits::BatchSize { batch_size: 32_000..32_768, .. }), "{needed}: {fits}");
    let error = Loader::iterable(iter_fn(|_| Ok((0..9_u64).map(Ok)))).batch_size(usize::MAX).memory_limit(1).build();
    assert!(error.is_err());
}
