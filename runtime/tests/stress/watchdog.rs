//! Turns a round that hangs into a failure that shows what each thread is doing.

use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use crate::support::LONG;

/// Runs a round, and aborts the process if it takes longer than [`LONG`].
pub(crate) fn watched<T>(seed: u64, round: impl FnOnce() -> T) -> T {
    let (ended, watch) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if watch.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a round hangs; to start with this round again, run proof/stress 10 {seed}");
                print_threads();
                std::process::abort();
            }
        });
        let outcome = round();
        drop(ended);
        outcome
    })
}

/// Prints what all threads are doing: their backtraces if gdb is installed, and otherwise their
/// current system calls.
fn print_threads() {
    let id = std::process::id().to_string();
    let output = Command::new("gdb").args(["-p", &id, "-batch", "-ex", "thread apply all backtrace 12"]).output();
    match output {
        Ok(output) if output.status.success() => eprintln!("{}", String::from_utf8_lossy(&output.stdout)),
        _ => {
            for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
                let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
                eprintln!("{} {}: {}", task.path().display(), read("comm").trim(), read("syscall").trim());
            }
        }
    }
}
