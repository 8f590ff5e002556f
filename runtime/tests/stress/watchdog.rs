//! Turns a round that hangs into a failure that says where everybody is.

use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use crate::support::LONG;

/// Runs a round.
pub(crate) fn watched<T>(seed: u64, round: impl FnOnce() -> T) -> T {
    let (over, watch) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if watch.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a round hangs: proof/stress 10 {seed} begins with it");
                tell();
                std::process::abort();
            }
        });
        let outcome = round();
        drop(over);
        outcome
    })
}

/// Says where all threads are: a debugger knows it best, and the system a little.
fn tell() {
    let id = std::process::id().to_string();
    let told = Command::new("gdb").args(["-p", &id, "-batch", "-ex", "thread apply all backtrace 12"]).output();
    match told {
        Ok(told) if told.status.success() => eprintln!("{}", String::from_utf8_lossy(&told.stdout)),
        _ => {
            for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
                let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
                eprintln!("{} {}: {}", task.path().display(), read("comm").trim(), read("syscall").trim());
            }
        }
    }
}
