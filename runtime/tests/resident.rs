//! Tests that over a long pass a loader keeps no more memory than it states, plus a documented
//! constant. Each case runs in a separate process in which there is only the loader.
#![cfg(target_os = "linux")]

mod support;

use std::process::Command;

use slotline::Loader;
use slotline::dataset::{Dataset, from_fn};
use slotline::sample::{Packed, PaddedToMax};
use support::OneByOne;

/// The memory, in bytes, that the docs of `Loader::memory_ceiling` allow in addition to that
/// ceiling: for the loader, and for each worker.
const ON_TOP: [usize; 2] = [1 << 20, 128 << 10];

/// The number of samples in the dataset. `ROWS` is the number of samples in a batch.
const LEN: usize = 30_000;
const ROWS: usize = 64;

/// Returns the anonymous memory of this process in bytes. Code is excluded, since the system maps
/// up to 16 pages of code at a time, and in a debug build their number depends on where the linker
/// put each function. The values in `/proc/self/status` can be read faster, but are wrong by some
/// pages for each core.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() << 10
}

/// Returns the length of a sample, at most 999, such that batches have different total lengths.
fn length(index: usize) -> usize {
    index.wrapping_mul(2_654_435_761) % 1_000
}

/// The elements that all samples share.
static NUMBERS: [f32; 1_000] = [0.5; 1_000];

// None of the following datasets allocates memory, so the tests measure the loader alone.

fn fixed() -> impl Dataset {
    from_fn(LEN, |index, _| Ok(([index as f32; 500], index as i64)))
}

fn padded() -> impl Dataset {
    from_fn(LEN, |index, _| Ok((PaddedToMax::new(&NUMBERS[..length(index)], 1_000), index as i64)))
}

/// Returns a dataset of packed samples. A batch has an average of 500 items per sample, and never
/// as many as 750.
fn packed() -> impl Dataset {
    from_fn(LEN, |index, _| Ok((Packed::new(&NUMBERS[..length(index)], 750), index as i64)))
}

/// The environment variable that is set in the child process. It contains the case, the number of
/// workers, and the memory limit or 0.
const CHILD: &str = "SLOTLINE_TEST_RESIDENT";
const CASES: [&str; 5] = ["fixed", "padded", "packed", "round_robin", "iterable"];

/// Runs three passes, measures the memory during them, and prints the maximum and the loader's
/// ceiling.
macro_rules! run {
    ($builder:expr, $workers:expr, $limit:expr) => {{
        let builder = $builder.batch_size(ROWS).num_workers($workers);
        let builder = if $limit > 0 { builder.memory_limit($limit) } else { builder };
        let before = resident();
        let mut loader = builder.build().unwrap();
        let mut most = resident();
        for _ in 0..3 {
            let samples: usize = loader
                .epoch()
                .unwrap()
                .map(|batch| {
                    let batch = batch.unwrap();
                    if batch.batch_index() % 32 == 0 {
                        most = most.max(resident());
                    }
                    batch.len()
                })
                .sum();
            assert_eq!(samples, LEN);
        }
        println!("took {} of {}", most.max(resident()) - before, loader.memory_ceiling());
    }};
}

#[test]
#[ignore = "another test runs it in separate processes"]
fn child() {
    let Ok(text) = std::env::var(CHILD) else { return };
    let [case, workers, limit] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let (workers, limit): (usize, usize) = (workers.parse().unwrap(), limit.parse().unwrap());
    match case {
        "fixed" => run!(Loader::builder(fixed()).shuffle(true), workers, limit),
        "padded" => run!(Loader::builder(padded()).shuffle(true), workers, limit),
        "packed" => run!(Loader::builder(packed()).shuffle(true), workers, limit),
        "round_robin" => run!(Loader::builder(padded()).shuffle(true).round_robin(true), workers, limit),
        "iterable" => run!(Loader::iterable(OneByOne(fixed())), workers, limit),
        other => panic!("{other}"),
    }
}

/// Runs a case in a separate process, and returns the memory that the loader took and its ceiling.
fn took(case: &str, workers: usize, limit: usize) -> (usize, usize) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", "child", "--ignored", "--nocapture"]);
    let output = command.env(CHILD, format!("{case} {workers} {limit}")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.strip_prefix("took ")).unwrap();
    let (took, ceiling) = line.split_once(" of ").unwrap();
    (took.parse().unwrap(), ceiling.parse().unwrap())
}

#[test]
fn long_passes_stay_within_the_ceiling_plus_a_constant() {
    for (case, workers) in CASES.into_iter().flat_map(|case| [(case, 0), (case, 3)]) {
        let free = took(case, workers, 0);
        // Without workers there is no prefetching, so a limit cannot reduce it.
        let limit = if workers > 0 { free.1 / 4 * 3 } else { free.1 };
        let limited = took(case, workers, limit);
        assert!(limited.1 <= limit, "{case}: {limited:?} with a limit of {limit}");
        for (took, ceiling) in [free, limited] {
            let most = ceiling + ON_TOP[0] + workers * ON_TOP[1];
            assert!(took <= most, "{case}, {workers} workers: took {took} with a ceiling of {ceiling}");
            assert!(took > ceiling / 2, "{case}: only {took} bytes of {ceiling} were measured");
        }
    }
}
