//! The children of processes.

/// Returns the children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    numbers.filter(|&child| parent_of(child) == Some(parent)).collect()
}

/// Returns the parent of a process that exists and is no zombie.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the program's name, which may contain anything: the state and the parent.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut rest = rest.split_whitespace();
    (rest.next()? != "Z").then_some(())?;
    rest.next()?.parse().ok()
}
