//! A run that is killed and resumed repeatedly delivers the same batches as an uninterrupted run.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::program::{failure, stdout, summary};
use serde_json::Value;

const KILLS: usize = 100;
/// The options that determine the batches: 113 in a pass, and more in total than the killed runs deliver together.
const RUN: &str = "digits --batch-size 16 --shuffle --seed 7 --epochs 60";
const BATCHES: usize = 60 * 113;

/// Returns the complete lines of a log. Only the last line may be cut off.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a whole line of JSON")).collect()
}

/// Returns the number of delivered batches that a state records.
fn delivered(path: &Path) -> usize {
    let text = fs::read(path).expect("a state exists");
    let state: Value = serde_json::from_slice(&text).expect("the state is complete");
    let number = |key: &str| state[key].as_u64().expect("a number") as usize;
    number("epoch") * 113 + number("batches")
}

/// Returns a pseudo-random number below `end` for each `i`.
fn random(i: usize, end: u64) -> u64 {
    let word = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word >> 40) % end
}

fn start(arguments: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slotline"));
    command.args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

#[test]
fn a_run_killed_a_hundred_times_delivers_every_sample_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (state, log) = (folder.path().join("state.json"), |i: usize| folder.path().join(format!("log{i}")));
    let (state_name, log_name) = (state.display(), |i| log(i).display().to_string());
    let want: Vec<Value> =
        stdout(&format!("order {RUN}")).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(want.len(), BATCHES);

    let (mut at, mut again, mut fruitless) = (0, 0, 0);
    for i in 0..KILLS {
        let resume = if state.exists() { format!("--resume {state_name}") } else { String::new() };
        let workers = random(i, 3);
        let prefetch = if workers > 0 { format!("--prefetch-factor {}", 1 + random(i, 7)) } else { String::new() };
        let mut run = start(&format!(
            "feed {RUN} --compute-us 1000 --num-workers {workers} {prefetch} --part-size {} --state {state_name} \
             --state-every 0.00{} {resume} --log {}",
            1 + random(i, 16),
            random(i, 10),
            log_name(i),
        ));
        thread::sleep(Duration::from_millis(random(i, 90)));
        run.kill().expect("the program still runs");
        run.wait().expect("the program has ended");

        let logged = lines(&log(i));
        assert_eq!(logged[..], want[at..][..logged.len()], "run {i} must continue where the state ends");
        let now = if state.exists() { delivered(&state) } else { 0 };
        assert!((at..=at + logged.len()).contains(&now), "the state of run {i} must be covered by its log");
        again += at + logged.len() - now;
        fruitless += usize::from(logged.is_empty());
        at = now;
    }
    assert!(
        at > 0 && at < BATCHES && again > 0 && fruitless < KILLS,
        "at {at}, {again} again, {fruitless} without a batch"
    );

    let rest = summary(&format!(
        "feed {RUN} --num-workers 2 --resume {state_name} --state {state_name} --log {}",
        log_name(KILLS)
    ));
    assert_eq!(lines(&log(KILLS))[..], want[at..]);
    assert_eq!((rest["batches"].as_u64(), delivered(&state)), (Some((BATCHES - at) as u64), BATCHES));
    assert_eq!(summary(&format!("feed {RUN} --resume {state_name}"))["batches"], 0, "nothing is left");
}

#[test]
fn a_log_continues_after_a_line_that_was_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    fs::write(&log, "{\"epoch\":0,\"bat").expect("written");
    stdout(&format!("feed digits --batch-size 1000 --log {}", log.display()));
    let text = fs::read_to_string(&log).expect("text");
    let [cut, first, second] = text.lines().collect::<Vec<_>>()[..] else { panic!("{} lines", text.lines().count()) };
    assert_eq!(cut, "{\"epoch\":0,\"bat");
    assert!(
        first.starts_with("{\"epoch\":0,\"batch\":0,\"indices\":[0,1,2") && second.contains("\"batch\":1"),
        "{text}"
    );
}

#[test]
fn states_that_do_not_fit_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    stdout(&format!("feed digits --shuffle --seed 7 --state {}", path("state")));
    fs::write(path("text"), "state\n").expect("written");
    for (arguments, parts) in [
        (format!("feed digits --resume {}", path("none")), ["cannot resume from", "/none", "No such file"]),
        (
            format!("feed digits --resume {}", path("text")),
            ["cannot resume from", "/text", "not the state of a loader"],
        ),
        (format!("feed digits --shuffle --seed 8 --resume {}", path("state")), ["/state", "seed", "7"]),
        (format!("feed digits --shuffle --batch-size 3 --resume {}", path("state")), ["/state", "batch_size", "64"]),
        (format!("feed digits --resume {}", path("state")), ["/state", "sampler", "shuffle"]),
        (
            format!("feed digits --state {}/state", path("none")),
            ["cannot write the state", "/none/state", "No such file"],
        ),
        (format!("feed digits --log {}/log", path("none")), ["cannot open the log", "/none/log", "No such file"]),
    ] {
        let (code, message) = failure(&arguments);
        assert_eq!(code, 1, "{arguments}: {message}");
        for part in parts {
            assert!(message.contains(part), "slotline {arguments}: no {part:?} in {message:?}");
        }
    }
    let (code, message) = failure("feed digits --state-every 3");
    assert!(code == 2 && message.contains("--state"), "{message}");
}

#[test]
fn a_full_disk_leaves_the_old_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    stdout(&format!("feed digits --state {}", path.display()));
    let before = fs::read(&path).expect("a state");
    std::os::unix::fs::symlink("/dev/full", folder.path().join("state.next")).expect("a link");
    let (code, message) = failure(&format!("feed digits --resume {0} --epochs 2 --state {0}", path.display()));
    assert!(code == 1 && message.contains("No space left"), "{message}");
    assert_eq!(fs::read(&path).expect("a state"), before);
}

#[test]
#[cfg(unix)]
fn a_state_replaces_only_regular_files() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;

    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let _listener = UnixListener::bind(path("socket")).expect("a socket");
    for place in [path("socket"), folder.path().to_owned()] {
        let (code, message) = failure(&format!("feed digits --state {}", place.display()));
        assert!(
            code == 1 && message.contains("cannot write the state") && message.contains("not a regular file"),
            "{message}"
        );
    }
    assert!(fs::metadata(path("socket")).expect("the socket still exists").file_type().is_socket());
    fs::write(path("state"), "").expect("written");
    symlink(path("state"), path("link")).expect("a link");
    stdout(&format!("feed digits --state {}", path("link").display()));
    assert!(fs::symlink_metadata(path("link")).expect("a link").is_symlink());
    assert_eq!(delivered(&path("state")), 113, "one pass");
    assert_eq!(fs::read_dir(folder.path()).expect("a list").count(), 3, "no other files are left");
}

#[test]
fn resuming_after_the_last_pass_reports_nothing_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state").display().to_string();
    stdout(&format!("feed digits --epochs 2 --state {state}"));
    let text = stdout(&format!("feed digits --epochs 2 --resume {state}"));
    assert!(text.contains("nothing is left to do: --epochs is 2"), "{text}");
    assert!(!stdout(&format!("feed digits --epochs 3 --resume {state}")).contains("nothing is left"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_log_can_go_into_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state").display().to_string();
    let text = stdout(&format!("feed digits --log /dev/stdout --state {state}"));
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"epoch\":0,\"batch\":")).count(), 29, "{text}");
}
