//! The machine that a measurement ran on.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine, the operating system, the compiler and the date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The year, month and day, by the system's clock (UTC).
    pub date: String,
    /// The CPU's model name and numbers.
    pub cpu: String,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The kernel's version.
    pub kernel: String,
    /// The compiler's version.
    pub rustc: String,
}

impl Machine {
    /// Describes the current machine. Values that cannot be determined are "unknown".
    pub fn of_this_run() -> Self {
        Self {
            date: first_line("date", &["--utc", "+%Y-%m-%d"]),
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: first_line("uname", &["-sr"]),
            rustc: first_line(&std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()), &["--version"]),
        }
    }
}

fn unknown() -> String {
    "unknown".into()
}

/// Returns the first line of a program's output.
fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    let text = output.and_then(|output| String::from_utf8(output.stdout).ok());
    text.as_deref().and_then(|text| text.lines().next()).map_or_else(unknown, str::to_owned)
}

/// Returns the name of the CPU with its family and model numbers, since on many virtual machines
/// the name is incomplete.
fn cpu() -> String {
    let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else {
        return unknown();
    };
    let field = |name: &str| {
        text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name)).map(|(_, v)| v.trim())
    };
    let Some(name) = field("model name") else {
        return unknown();
    };
    match (field("cpu family"), field("model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.to_owned(),
    }
}

/// Returns the version of a package that this program was built with.
pub fn version_of(package: &str) -> Option<String> {
    let mut lines = include_str!("../Cargo.lock").lines();
    let name = format!("name = \"{package}\"");
    lines.find(|&line| line == name)?;
    Some(lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert_eq!(version_of("slotline-benches").as_deref(), Some(env!("CARGO_PKG_VERSION")));
        assert_eq!(version_of("no-such-package"), None);
    }
}
