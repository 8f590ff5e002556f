//! Runs peers that are separate programs, by the [`protocol`](crate::protocol).

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::memory;
use crate::protocol::{Answer, Reply, Request};
use crate::record::Kind;
use crate::rounds::{Contender, Entry, Pass};

/// The time limit for a program to make its data and warm up, and for each pass.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time limit for a program to exit.
const GRACE: Duration = Duration::from_secs(5);
/// The duration for which passes are run in order to measure memory.
const ENOUGH: Duration = Duration::from_millis(500);

/// A program that can be run, or why it cannot.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name of the peer to use until the program reports its own.
    pub peer: String,
    /// The role of the peer in the comparison.
    pub kind: Kind,
    /// The workloads that it is run with.
    pub workloads: &'static [&'static str],
    /// The program and its fixed arguments.
    pub command: Result<Vec<OsString>, String>,
}

impl Program {
    /// Returns whether the program is run with a workload.
    pub fn has(&self, workload: &str) -> bool {
        self.workloads.contains(&workload)
    }
}

/// Returns an entry for each program that is run with a workload. `expected` is called with the
/// number of batches of a pass. It returns how many full batches these correspond to, and the
/// checksum if it is known.
pub fn entries<'a>(
    programs: impl IntoIterator<Item = &'a Program>,
    data: &Path,
    workload: &str,
    workers: usize,
    expected: impl Fn(u64) -> (f64, Option<u64>) + Clone + 'static,
) -> Vec<Entry> {
    let request = Request { workload: workload.into(), workers, data: data.to_owned() };
    let entry = |program: &Program| match External::start(program, &request) {
        Ok(mut external) => {
            let (peer, version) = (external.peer.clone(), Some(external.version.clone()));
            let expected = expected.clone();
            let contender: Contender = Box::new(move || {
                let Answer { batches, seconds, check } = external.pass()?;
                let (full, sum) = expected(batches);
                if let Some(sum) = sum {
                    ensure!(sum == check, "the check sum is {check}, not {sum}");
                }
                Ok(Pass { batches: full, seconds })
            });
            Entry { version, ..Entry::new(peer, program.kind, Ok(contender)) }
        }
        Err(why) => Entry::new(&program.peer, program.kind, Err(why)),
    };
    programs.into_iter().filter(|program| program.has(workload)).map(entry).collect()
}

/// The peak memory of a program and its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The name of the peer.
    pub peer: String,
    /// Its version.
    pub version: String,
    /// The peak memory, in bytes.
    pub bytes: u64,
}

/// Runs a program while no other one runs, and measures the peak memory during its passes.
pub fn memory(program: &Program, data: &Path, workload: &str, workers: usize) -> Result<Peak> {
    let request = Request { workload: workload.into(), workers, data: data.to_owned() };
    let mut external = External::start(program, &request)?;
    let start = Instant::now();
    let ((), bytes) = memory::peak(external.child.id(), || {
        external.pass()?;
        while start.elapsed() < ENOUGH {
            external.pass()?;
        }
        Ok(())
    })?;
    Ok(Peak { peer: external.peer.clone(), version: external.version.clone(), bytes })
}

/// A running program that has run its first pass. It is paused between its passes, since some
/// programs (such as DALI) prepare the next pass in the background, which would slow down the next
/// contender.
struct External {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// The file to which its stderr is written.
    errors: File,
    peer: String,
    version: String,
}

impl External {
    fn start(program: &Program, request: &Request) -> Result<Self> {
        let [name, arguments @ ..] = &program.command.as_ref().map_err(|why| anyhow!("{why}"))?[..] else {
            bail!("the command has no program");
        };
        let errors = tempfile::tempfile()?;
        let mut child = Command::new(name);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut child, 0);
        let mut child = child
            .args(arguments)
            .args(request.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {}", name.display()))?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let (sender, lines) = channel();
        // This thread ends when the program closes its output.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut external = Self { child, input, lines, errors, peer: String::new(), version: String::new() };
        match external.reply()? {
            Reply::Ready { peer, version, .. } => (external.peer, external.version) = (peer, version),
            Reply::Absent { absent } => bail!("{absent}"),
            Reply::Pass(_) => bail!("the program answered before the first request"),
        }
        external.set_running(false);
        Ok(external)
    }

    /// Pauses the program and its processes, or resumes them.
    fn set_running(&self, running: bool) {
        #[cfg(unix)]
        // SAFETY: the function has no requirements. The child has not been waited for, so the ID of
        // its process group has not been reused.
        unsafe {
            libc::killpg(self.child.id() as libc::pid_t, if running { libc::SIGCONT } else { libc::SIGSTOP });
        }
    }

    fn reply(&mut self) -> Result<Reply> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line).with_context(|| format!("unexpected output {line:?}")),
            Err(RecvTimeoutError::Timeout) => bail!("no answer within {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => {
                let mut text = String::new();
                self.errors.rewind()?;
                self.errors.read_to_string(&mut text)?;
                let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
                bail!("the program exited: {}", last.unwrap_or("no message on stderr"))
            }
        }
    }

    fn pass(&mut self) -> Result<Answer> {
        self.set_running(true);
        // If the program has exited, `reply` returns a more specific error than this write.
        let _ = self.input.write_all(b"pass\n");
        let reply = self.reply();
        self.set_running(false);
        match reply? {
            Reply::Pass(answer) => Ok(answer),
            other => bail!("the program answered {other:?}"),
        }
    }
}

impl Drop for External {
    fn drop(&mut self) {
        self.set_running(true);
        let _ = self.input.write_all(b"quit\n");
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> Program {
        let command = Ok(["sh", "-c", script, "sh"].map(OsString::from).into());
        Program { peer: "fake".into(), kind: Kind::Peer, workloads: &["empty-items"], command }
    }

    fn only(program: &Program) -> Entry {
        let expected = |batches| (batches as f64, Some(6));
        let mut entries = entries([program], "/nowhere".as_ref(), "empty-items", 2, expected);
        assert_eq!(entries.len(), 1);
        entries.remove(0)
    }

    fn why(entry: Entry) -> String {
        format!("{:#}", entry.contender.err().expect("absent"))
    }

    #[test]
    fn a_program_runs_passes_until_it_is_dropped() {
        let script = r#"test "$*" = "--workload empty-items --workers 2 --data /nowhere" || exit 1
            echo '{"ready":true,"peer":"real","version":"1.5"}'
            while read line && test "$line" = pass; do echo '{"batches":4,"seconds":0.5,"check":6}'; done"#;
        let entry = only(&program(script));
        assert_eq!((entry.peer.as_str(), entry.version.as_deref()), ("real", Some("1.5")));
        let mut contender = entry.contender.unwrap();
        for _ in 0..2 {
            assert_eq!(contender().unwrap(), Pass { batches: 4.0, seconds: 0.5 });
        }
    }

    #[test]
    fn the_reason_for_an_absent_program_is_reported() {
        assert_eq!(why(only(&program(r#"echo '{"absent":"unsupported"}'"#))), "unsupported");
        assert_eq!(why(only(&program("echo first >&2; echo last words >&2"))), "the program exited: last words");
        assert!(why(only(&program("echo hello"))).starts_with("unexpected output \"hello\""));
        let entry = only(&Program { command: Err("not installed".into()), ..program("") });
        assert_eq!(entry.peer, "fake");
        assert_eq!(why(entry), "not installed");
    }

    #[test]
    fn memory_includes_that_of_child_processes() {
        // Allocates 32 MiB in a child process of the shell.
        let script = r#"echo '{"ready":true,"peer":"real","version":"1"}'
            dd if=/dev/zero of=/dev/null bs=32M count=100000 2>/dev/null & child=$!
            while read line && test "$line" = pass; do sleep 0.1; echo '{"batches":4,"seconds":0.5,"check":6}'; done
            kill $child"#;
        let peak = memory(&program(script), "/nowhere".as_ref(), "empty-items", 2).unwrap();
        assert_eq!((peak.peer.as_str(), peak.version.as_str()), ("real", "1"));
        assert!((32 << 20..64 << 20).contains(&peak.bytes), "{peak:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_is_stopped_outside_its_passes() {
        // Checks that a child process of the shell is paused, too: it counts, and each pass reports
        // the count.
        let script = r#"count=$(mktemp); (while echo . >>"$count"; do sleep 0.01; done) & child=$!
            sleep 0.1; echo '{"ready":true,"peer":"real","version":"1"}'
            while read line && test "$line" = pass; do
                echo "{\"batches\":$(wc -l <"$count"),\"seconds\":0.5,\"check\":6}"
            done
            kill $child; rm "$count""#;
        let mut contender = only(&program(script)).contender.unwrap();
        let before = contender().unwrap().batches;
        std::thread::sleep(Duration::from_millis(500));
        let after = contender().unwrap().batches;
        assert!(after - before < 20.0, "it counted from {before} to {after} in 500 ms");
    }

    #[test]
    fn wrong_contents_are_an_error() {
        let script = r#"echo '{"ready":true,"peer":"real","version":"1"}'
            read line; echo '{"batches":4,"seconds":0.5,"check":7}'; read line"#;
        let error = only(&program(script)).contender.unwrap()().unwrap_err();
        assert_eq!(error.to_string(), "the check sum is 7, not 6");
    }
}
