//! The memory of a program and its child processes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// The pause between two measurements of a program's memory.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs `work`, and returns its result. Also returns the peak memory, in bytes, of a process and
/// its descendants meanwhile.
pub fn peak<T>(pid: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            loop {
                let is_last = is_over.load(Ordering::Relaxed);
                most = most.max(of_tree(pid)?);
                if is_last {
                    return anyhow::Ok(most);
                }
                std::thread::sleep(PAUSE);
            }
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        let most = watcher.join().expect("the watcher does not panic");
        Ok((result?, most?))
    })
}

/// Returns the memory of a process and its descendants, in bytes. A page that several processes
/// share counts once, as each process is charged its share (PSS). Files in memory that processes
/// have open but not mapped are added.
pub fn of_tree(pid: u32) -> Result<u64> {
    let mut total = share(pid).with_context(|| format!("cannot read the memory of process {pid}"))?;
    let (mut open, mut mapped) = (HashSet::new(), HashSet::new());
    let mut left = vec![pid];
    while let Some(pid) = left.pop() {
        files(pid, &mut open, &mut mapped);
        for child in children(pid) {
            // A process may end at any time.
            total += share(child).unwrap_or(0);
            left.push(child);
        }
    }
    total += open.iter().filter(|(inode, _)| !mapped.contains(inode)).map(|(_, bytes)| bytes).sum::<u64>();
    Ok(total)
}

fn read(pid: u32, file: &str) -> Result<String> {
    Ok(std::fs::read_to_string(format!("/proc/{pid}/{file}"))?)
}

/// Returns the memory of a process in bytes, with its share of shared pages.
fn share(pid: u32) -> Result<u64> {
    let text = read(pid, "smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no PSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? << 10)
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Finds the in-memory files that a process has open, with their sizes, and those that it has
/// mapped.
fn files(pid: u32, open: &mut HashSet<(u64, u64)>, mapped: &mut HashSet<u64>) {
    use std::os::unix::fs::MetadataExt;
    let is_memory = |path: &str| path.starts_with("/dev/shm/") || path.starts_with("/memfd:");
    for descriptor in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let path = descriptor.path();
        if std::fs::read_link(&path).is_ok_and(|file| is_memory(&file.to_string_lossy()))
            && let Ok(about) = std::fs::metadata(&path)
        {
            open.insert((about.ino(), about.blocks() * 512));
        }
    }
    for line in read(pid, "maps").unwrap_or_default().lines() {
        let mut fields = line.split_whitespace();
        if let (Some(inode), Some(file)) = (fields.nth(4), fields.next())
            && is_memory(file)
        {
            mapped.extend(inode.parse::<u64>());
        }
    }
}
