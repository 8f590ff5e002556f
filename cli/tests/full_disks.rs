//! Runs whose disk is full, or that may not write any more, leave a state that another one goes on from.
#![cfg(target_os = "linux")]

mod program;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use program::{stdout, summary};
use serde_json::Value;

const RUN: &str = "digits --batch-size 16 --shuffle --seed 7 --epochs 20";

/// Has a shell run a script, in which `$1` is the program, `$2` a folder, and `$3` and what comes after it its arguments.
fn shell(shell: &[&str], script: &str, folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(["-c", script, "sh", env!("CARGO_BIN_EXE_slotline")]).arg(folder);
    command.args(arguments.split_whitespace()).output().expect("a shell")
}

/// Lines of a log, of which the last one may be cut off.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a log");
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a whole line of JSON")).collect()
}

/// That the log says what was to be delivered, as far as it goes, and another run goes on where the state says.
fn check_rest(folder: &Path) {
    let want: Vec<Value> =
        stdout(&format!("order {RUN}")).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let logged = lines(&folder.join("log"));
    assert!(!logged.is_empty() && logged.len() < want.len() && logged == want[..logged.len()]);
    let (state, log) = (folder.join("state"), folder.join("rest"));
    let rest = summary(&format!("feed {RUN} --num-workers 2 --resume {} --log {}", state.display(), log.display()));
    let delivered = want.len() - rest["batches"].as_u64().expect("a number") as usize;
    assert!((1..=logged.len()).contains(&delivered), "{delivered} of {}", logged.len());
    assert_eq!(lines(&log), want[delivered..]);
}

fn said(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!message.contains("panicked"), "{message}");
    message
}

#[test]
fn a_run_that_may_not_write_longer_files_says_so_or_ends_and_its_state_is_whole() {
    // A shell counts in blocks of 512 bytes. Who does not mind the signal gets an error.
    for (ignored, script) in [(true, "trap '' XFSZ; "), (false, "")] {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!("{script}ulimit -f 40; program=$1; cd $2; shift 2; exec $program \"$@\"");
        let files = format!("feed {RUN} --num-workers 2 --state state --state-every 0 --log log");
        let output = shell(&["/bin/sh"], &script, folder.path(), &files);
        let message = said(&output);
        if ignored {
            assert_eq!(output.status.code(), Some(1), "{message}");
            assert!(message.contains("cannot write to the log log") && message.contains("File too large"), "{message}");
        } else {
            const SIGXFSZ: i32 = 25;
            assert_eq!(output.status.signal(), Some(SIGXFSZ), "{message}");
        }
        check_rest(folder.path());
    }
}

#[test]
fn a_state_that_may_not_be_written_leaves_the_one_before() {
    let folder = tempfile::tempdir().expect("a folder");
    stdout(&format!("feed {RUN} --state {}/state", folder.path().display()));
    let before = fs::read(folder.path().join("state")).expect("a state");
    let script = "trap '' XFSZ; ulimit -f 0; program=$1; cd $2; shift 2; exec $program \"$@\"";
    let output = shell(&["/bin/sh"], script, folder.path(), "feed digits --state state");
    let message = said(&output);
    assert!(message.contains("cannot write the state to") && message.contains("File too large"), "{message}");
    assert_eq!((output.status.code(), fs::read(folder.path().join("state")).expect("a state")), (Some(1), before));
}

#[test]
fn a_run_that_fills_its_disk_says_so_and_its_state_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    // A disk of its own, which is there for this script only: so what is left on it is copied.
    let script = "mkdir $2/disk && mount -t tmpfs -o size=64k none $2/disk || exit 77
        program=$1; cd $2/disk; shift 2; $program \"$@\"; code=$?; cp state log ..; exit $code";
    let files = format!("feed {RUN} --num-workers 2 --state state --state-every 0 --log log");
    let output = shell(&["unshare", "--map-root-user", "--mount", "/bin/sh"], script, folder.path(), &files);
    let message = said(&output);
    if output.status.code() == Some(77) || message.starts_with("unshare:") {
        let said = writeln!(std::io::stderr(), "NOT PROVOKED: a full disk, as none can be mounted here: {message}");
        return said.expect("stderr");
    }
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("No space left on device") && message.contains("cannot write"), "{message}");
    check_rest(folder.path());
}
