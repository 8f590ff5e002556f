//! Helpers for tests of memory that the system refuses to lock (`mlock`). A test runs the test
//! `child` of its file in separate processes, since the limit and the amount of locked memory are
//! per process.

use std::process::Command;

/// The environment variable that tells the child process its limit of locked memory, in bytes.
const CHILD: &str = "SLOTLINE_TEST_LOCK_LIMIT";

/// Returns a value of this process's memory statistics in `/proc/self/status`, in bytes.
pub(crate) fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() << 10
}

/// Sets the limit of locked memory in a child process, gives up the privilege to exceed it, and
/// returns the limit. Returns `None` in any other process.
pub(crate) fn limit_locks() -> Option<u64> {
    let bytes = std::env::var(CHILD).ok().and_then(|limit| limit.parse().ok())?;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the call only reads `limit`, which outlives it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    // SAFETY: these calls only read and change this process's user.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setuid(65_534), 0);
        }
    }
    Some(bytes)
}

/// Returns the line that a child prints when it has finished.
pub(crate) fn is_done(limit: u64) -> String {
    format!("child of limit {limit} is done")
}

/// Runs the test `child` with each of these limits, except those that this process may not set.
pub(crate) fn run_children(limits: [u64; 3]) {
    // SAFETY: `getrlimit` only writes to `limit`, which outlives the call.
    let (hard, privileged) = unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit), 0);
        (limit.rlim_max, libc::geteuid() == 0)
    };
    for limit in limits {
        if limit > hard && !privileged {
            continue;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CHILD, limit.to_string());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&is_done(limit)), "{text}");
    }
}
