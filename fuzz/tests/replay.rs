//! Runs every target over its corpus and its regressions, and then over random inputs: half of them
//! generated from scratch, half mutated from the corpus. `SLOTLINE_FUZZ_RUNS` is the number of
//! random inputs for each target (default: 1000); `corrupted_memory`, whose inputs each start
//! processes, gets a twentieth of that number.

use std::fs;
use std::path::{Path, PathBuf};

/// Marsaglia's xorshift with a fixed seed, so that the inputs are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Returns `seed` with a few changes.
    fn changed(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut data = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(data.len() + 1);
            match self.below(6) {
                0 => data.truncate(at),
                1 => drop(data.splice(at..at, self.bytes(1 + at % 8))),
                2 => drop(data.splice(at.., other.iter().copied().skip(at))),
                3 => drop(data.drain(at..(at + 1 + at % 5).min(data.len()))),
                _ if at == data.len() => data.push(self.next() as u8),
                4 => data[at] = self.next() as u8,
                _ => data[at] ^= 1 << self.below(8),
            }
        }
        data
    }
}

/// Returns the files of `folder` for `target`, sorted by name. Returns none if the folder does not exist.
fn files(folder: &str, target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// An input that is written to a file if the target panics, so that it can be added to
/// `regressions`.
struct Failing<'a>(&'a str, &'a [u8]);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.failing", self.0));
            let written = fs::write(&path, self.1);
            eprintln!("failing input: {} ({written:?})", path.display());
        }
    }
}

fn replay(name: &str, target: fn(&[u8]), share: usize) {
    let corpus = files("corpus", name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    for (path, data) in corpus.iter().chain(&files("regressions", name)) {
        eprintln!("{}", path.display());
        target(data);
    }
    let runs: usize = std::env::var("SLOTLINE_FUZZ_RUNS").map_or(1000, |runs| runs.parse().unwrap());
    let mut random =
        Random(name.bytes().fold(88_172_645_463_325_252, |seed, byte| seed.rotate_left(5) ^ u64::from(byte)));
    for run in 0..runs / share {
        let data = if run % 2 == 0 {
            let len = random.below(400);
            random.bytes(len)
        } else {
            let (seed, other) = (random.below(corpus.len()), random.below(corpus.len()));
            random.changed(&corpus[seed].1, &corpus[other].1)
        };
        let _failing = Failing(name, &data);
        target(&data);
    }
}

macro_rules! replayed {
    ($share:literal: $($target:ident)*) => {$(
        #[test]
        fn $target() {
            replay(stringify!($target), slotline_fuzz::$target, $share);
        }
    )*};
}

replayed! { 1: ordered spsc loader iterable state values idx npy sources pictures pipelines c_abi c_threads misbehaving_code misbehaving_waits }

#[cfg(target_os = "linux")]
replayed! { 20: corrupted_memory }
