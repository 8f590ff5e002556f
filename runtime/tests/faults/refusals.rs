//! Tests of system calls that are refused, as in a sandbox or by an older kernel.

use slotline::Loader;
use slotline::loader::{Affinity, Warning};

use crate::child::{self, NOT_PROVOKED, Process};
use crate::support::{LONG, Run, items, pass, sleeping_sometimes};
use crate::system::refuse;

/// Refuses the system calls that the arguments name, and asserts that passes deliver the same
/// batches nevertheless.
pub(crate) fn refused(words: &[&str]) {
    let calls = words.iter().map(|&word| match word {
        "membarrier" => (libc::SYS_membarrier, libc::ENOSYS),
        "setaffinity" => (libc::SYS_sched_setaffinity, libc::EPERM),
        "getaffinity" => (libc::SYS_sched_getaffinity, libc::EPERM),
        "mlock" => (libc::SYS_mlock, libc::EPERM),
        "madvise" => (libc::SYS_madvise, libc::EINVAL),
        _ => panic!("{words:?}"),
    });
    if !refuse(&calls.collect::<Vec<_>>()) {
        return;
    }
    // SAFETY: the query touches no memory.
    let barrier = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    assert_eq!(words.contains(&"membarrier"), barrier < 0);

    let run = Run { len: 300, batch_size: 7, drop_last: false, shuffle: true, seed: 11 };
    let expected = run.expected(4);
    for (workers, help) in [(0, true), (1, false), (3, true), (3, false)] {
        // Core 0 may not be available to this process, unless the system does not report the
        // available cores.
        let listed = words.contains(&"getaffinity") && help;
        let affinity = if listed { Affinity::Cores(vec![0]) } else { Affinity::Spread };
        // Samples are slow, so that every thread sometimes parks and must be woken up.
        let builder = run.over(items(run.len, sleeping_sometimes)).num_workers(workers).help(help);
        let mut loader = builder.pin_memory(words.contains(&"mlock")).affinity(affinity).build().unwrap();
        let warnings = loader.warnings().to_vec();
        let count = |which: fn(&Warning) -> bool| warnings.iter().filter(|&warning| which(warning)).count();
        let not_bound = count(|warning| matches!(warning, Warning::NotBound { .. }));
        assert_eq!(not_bound, if words.contains(&"setaffinity") { workers } else { 0 }, "{warnings:?}");
        let unknown = count(|warning| *warning == Warning::UnknownCores);
        assert_eq!(unknown, usize::from(words.contains(&"getaffinity") && workers > 0), "{warnings:?}");
        let not_locked = count(|warning| matches!(warning, Warning::NotLocked { .. }));
        assert_eq!(not_locked, usize::from(words.contains(&"mlock")), "{warnings:?}");
        for expected in &expected {
            assert_eq!(pass(&mut loader), *expected);
        }
    }
}

/// Refuses the system call `membarrier` after threads already rely on it.
pub(crate) fn late(_: &[&str]) {
    // Sleep long enough for the consumer to park, even on a busy machine. The pass need not end.
    let slow = items(2, |index, _| {
        std::thread::sleep(LONG / 2 * index as u32);
        Ok(())
    });
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(1);
    }));
    let mut loader = Loader::builder(slow).num_workers(1).help(false).build().unwrap();
    if refuse(&[(libc::SYS_membarrier, libc::EPERM)]) {
        pass(&mut loader);
    }
}

#[test]
fn a_membarrier_refused_late_panics_and_does_not_hang() {
    let ended = Process::start("refusals::late").end();
    if ended.text.contains(NOT_PROVOKED) {
        return;
    }
    assert!(ended.text.contains("membarrier: Operation not permitted"), "{}", ended.text);
}

#[test]
fn loaders_work_without_membarrier() {
    child::run("refusals::refused membarrier");
}

#[test]
fn a_refused_affinity_is_a_warning() {
    child::run("refusals::refused setaffinity");
    child::run("refusals::refused getaffinity");
}

#[test]
fn loaders_work_without_mlock_or_madvise() {
    child::run("refusals::refused mlock");
    child::run("refusals::refused madvise");
}
