//! Tests of memory that the system refuses.

use slotline::loader::{BuildError, Overflow};
use slotline::sample::Packed;
use slotline::source::read_npy;
use slotline::{Dataset, Error, Loader};

use crate::child;
use crate::support::{Run, from_fn, items, pass};
use crate::system::{allow_memory, limit, mapped};

const SAMPLE: usize = 100_000;
/// The size of six slots of 80 samples each, in bytes.
const BATCHES: u64 = 6 * 80 * SAMPLE as u64;

fn large() -> impl Dataset {
    from_fn(480, |index, _| Ok([index as u8; SAMPLE]))
}

/// Builds a loader with a limit of the process's memory, and prints the outcome. Argument: the
/// number of KiB that the process may map in addition to what it has mapped.
pub(crate) fn build(words: &[&str]) {
    let more: u64 = words[0].parse().unwrap();
    let build = || Loader::builder(large()).batch_size(80).num_workers(2).prefetch_factor(2).build();
    allow_memory(more << 10);
    let outcome = build();
    limit(libc::RLIMIT_AS, u64::MAX);
    match outcome {
        Ok(mut loader) => {
            println!("outcome: built");
            assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 480);
        }
        Err(BuildError::Map { bytes, source }) => {
            println!("outcome: no memory");
            assert!(bytes as u64 >= BATCHES && source.raw_os_error() == Some(libc::ENOMEM), "{bytes} {source}");
        }
        Err(BuildError::Thread { worker, source }) => {
            println!("outcome: no thread {worker}: {source}");
            assert!(worker < 2 && source.raw_os_error() == Some(libc::EAGAIN), "{source}");
        }
        Err(error) => panic!("{error:?}"),
    }
    assert_eq!(build().unwrap().epoch().unwrap().count(), 6, "the loader can be built without the limit");
}

#[test]
fn build_reports_what_the_refused_memory_was_for() {
    let outcome = |more: u64| {
        let ended = child::Process::start(format!("memory::build {more}")).end();
        let text = ended.text.clone();
        ended.assert_success();
        text.lines().find_map(|line| Some(line.strip_prefix("outcome: ")?.to_owned())).expect("an outcome")
    };
    for more in [0, 1 << 10, (BATCHES >> 10) - 1] {
        assert_eq!(outcome(more), "no memory", "{more} KiB");
    }
    // Enough for the batches and for half of a stack, of the first or the second thread. (With just
    // enough for a whole stack, but not for the additional page that std needs, std would abort the
    // process.)
    let enough = (BATCHES >> 10) + 2048;
    for worker in 0..2 {
        let outcome = outcome(enough + 1024 + worker * 2048);
        assert!(outcome.starts_with(&format!("no thread {worker}")), "{outcome}");
    }
    assert_eq!(outcome(enough << 2), "built");
}

/// Refuses all further memory after a loader has made a pass.
pub(crate) fn running(_: &[&str]) {
    let run = Run { len: 1000, batch_size: 16, drop_last: false, shuffle: true, seed: 5 };
    let mut expected = run.expected(6).into_iter();
    let mut loader = run.over(items(run.len, |_, _| Ok(()))).num_workers(2).build().unwrap();
    assert_eq!(Some(pass(&mut loader)), expected.next());
    allow_memory(0);
    for expected in expected {
        assert_eq!(pass(&mut loader), expected);
    }
    limit(libc::RLIMIT_AS, u64::MAX);

    // After that, a pass needs memory only for packed samples that spill, and for what samples and
    // files allocate themselves. `LONG` is larger than any reserve of the allocator.
    static LONG: [u64; 1 << 24] = [0; 1 << 24];
    let runs =
        from_fn(40, |index, _| Ok((Packed::new(&LONG[..if index == 19 { LONG.len() } else { 3 }], 4), index as i64)));
    let builder = Loader::builder(runs).batch_size(4).num_workers(2).on_overflow(Overflow::Spill);
    let mut loader = builder.build().unwrap();
    for allowed in [false, true] {
        limit(libc::RLIMIT_AS, if allowed { u64::MAX } else { mapped() + (1 << 20) });
        let mut failed = Vec::new();
        let batches = loader.epoch().unwrap().filter_map(|batch| match batch {
            Ok(batch) => Some(batch.len()),
            Err(Error::Sample { index, task, source, .. }) => {
                failed.push((index, task, source.to_string()));
                None
            }
            Err(error) => panic!("{error}"),
        });
        let samples: usize = batches.sum();
        if allowed {
            assert_eq!((samples, failed), (40, vec![]));
        } else {
            let [(19, 4, text)] = &failed[..] else { panic!("{failed:?}") };
            assert!(samples == 36 && text.contains("memory"), "{text}");
        }
    }
    limit(libc::RLIMIT_AS, u64::MAX);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.npy");
    let header = "\u{93}NUMPY";
    let text = "{'descr': '|u1', 'fortran_order': False, 'shape': (67108864,), }";
    let mut bytes: Vec<u8> = header.chars().map(|c| c as u8).chain([1, 0, 118, 0]).chain(text.bytes()).collect();
    bytes.resize(127, b' ');
    bytes.push(b'\n');
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(128 + (64 << 20)).unwrap();
    allow_memory(1 << 20);
    // SAFETY: no process changes the file while it is mapped.
    let mapped = unsafe { slotline::source::map_npy(&path) };
    let errors = [read_npy(&path).unwrap_err(), mapped.unwrap_err()];
    limit(libc::RLIMIT_AS, u64::MAX);
    for error in errors {
        let text = format!("{error}");
        assert!(text.contains("large.npy") && text.contains("memory"), "{text}");
    }
    drop(read_npy(&path).unwrap());
}

/// Refuses the memory for the order of a pass.
pub(crate) fn order(_: &[&str]) {
    let builder = Loader::builder(from_fn(1 << 25, |index, _| Ok(index as u32))).batch_size(1 << 10).shuffle(true);
    let mut loader = builder.num_workers(1).build().unwrap();
    allow_memory(1 << 20);
    let outcome = loader.epoch().map(|_| ());
    limit(libc::RLIMIT_AS, u64::MAX);
    let error = outcome.expect_err("the order takes 128 MiB");
    assert!(matches!(error, Error::Order(_)) && error.to_string().contains("cannot allocate"), "{error}");
    assert_eq!(loader.epoch().unwrap().next().unwrap().unwrap().len(), 1 << 10, "the next pass works");
}

#[test]
fn a_running_loader_needs_no_more_memory() {
    child::run("memory::running");
}

#[test]
fn an_order_without_memory_fails_only_its_pass() {
    child::run("memory::order");
}
