//! Runs whose disk is full, or that reach the file size limit, leave a state from which another run can resume.
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

/// Runs a script in a shell. In the script, `$1` is the program, `$2` is a folder, and the rest are the arguments.
fn shell(shell: &[&str], script: &str, folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(["-c", script, "sh", env!("CARGO_BIN_EXE_slotline")]).arg(folder);
    command.args(arguments.split_whitespace()).output().expect("a shell")
}

/// Returns the complete lines of a log, whose last line may be cut off.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a log");
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a whole line of JSON")).collect()
}

/// Checks that the log matches the expected batches as far as it goes, and that another run resumes from the state.
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

fn stderr(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!message.contains("panicked"), "{message}");
    message
}

#[test]
fn a_file_size_limit_leaves_a_complete_state() {
    // The shell counts in blocks of 512 bytes. If the signal is ignored, the write returns an error.
    for (ignored, script) in [(true, "trap '' XFSZ; "), (false, "")] {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!("{script}ulimit -f 40; program=$1; cd $2; shift 2; exec $program \"$@\"");
        let files = format!("feed {RUN} --num-workers 2 --state state --state-every 0 --log log");
        let output = shell(&["/bin/sh"], &script, folder.path(), &files);
        let message = stderr(&output);
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
fn a_state_that_cannot_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    stdout(&format!("feed {RUN} --state {}/state", folder.path().display()));
    let before = fs::read(folder.path().join("state")).expect("a state");
    let script = "trap '' XFSZ; ulimit -f 0; program=$1; cd $2; shift 2; exec $program \"$@\"";
    let output = shell(&["/bin/sh"], script, folder.path(), "feed digits --state state");
    let message = stderr(&output);
    assert!(message.contains("cannot write the state to") && message.contains("File too large"), "{message}");
    assert_eq!((output.status.code(), fs::read(folder.path().join("state")).expect("a state")), (Some(1), before));
}

#[test]
fn a_full_disk_leaves_a_complete_state() {
    let folder = tempfile::tempdir().expect("a folder");
    // A separate disk that exists only while this script runs, so the files are copied at the end.
    let script = "mkdir $2/disk && mount -t tmpfs -o size=64k none $2/disk || exit 77
        program=$1; cd $2/disk; shift 2; $program \"$@\"; code=$?; cp state log ..; exit $code";
    let files = format!("feed {RUN} --num-workers 2 --state state --state-every 0 --log log");
    let output = shell(&["unshare", "--map-root-user", "--mount", "/bin/sh"], script, folder.path(), &files);
    let message = stderr(&output);
    if output.status.code() == Some(77) || message.starts_with("unshare:") {
        let written = writeln!(std::io::stderr(), "NOT PROVOKED: a full disk, as none can be mounted here: {message}");
        return written.expect("stderr");
    }
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("No space left on device") && message.contains("cannot write"), "{message}");
    check_rest(folder.path());
}
