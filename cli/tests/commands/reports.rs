//! What the program prints: orders, figures, digests.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::program::{slotline, stdout, summary};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn orders_match_torch() {
    let want = [json!({"epoch": 0, "batch": 0, "indices": [6, 5, 4, 0, 8, 9, 2, 1, 3, 7]})];
    assert_eq!(json_lines(&stdout("order --seed 42 --len 10 --shuffle --batch-size 10")), want);
    assert_eq!(json_lines(&stdout("order --seed 42 --shuffle")), want, "10 is the default length");
}

#[test]
fn orders_come_batch_by_batch() {
    let lines = json_lines(&stdout("order --len 5 --batch-size 2 --epochs 2 --drop-last"));
    let line = |epoch: u32, batch: u32, indices: [u32; 2]| json!({"epoch": epoch, "batch": batch, "indices": indices});
    assert_eq!(lines, [line(0, 0, [0, 1]), line(0, 1, [2, 3]), line(1, 0, [0, 1]), line(1, 1, [2, 3])]);
    assert_eq!(stdout("order --len 0"), "");
}

#[test]
fn order_and_feed_give_the_same_digests() {
    let options = "digits --shuffle --seed 5 --epochs 2 --batch-size 100";
    let lines = json_lines(&stdout(&format!("order {options} --json")));
    let (last, batches) = lines.split_last().expect("a last line");
    let indices = batches.iter().flat_map(|batch| batch["indices"].as_array().expect("a list"));
    let bytes: Vec<u8> = indices.flat_map(|index| index.as_i64().expect("an index").to_le_bytes()).collect();
    assert_eq!(last["order_digest"], sha256(&bytes));
    let fed = summary(&format!("feed {options}"));
    assert_eq!((&fed["order_digest"], &fed["data_digest"]), (&last["order_digest"], &last["data_digest"]));
}

#[test]
fn json_output_ends_with_a_summary() {
    let run = summary("feed digits --epochs 2 --num-workers 1");
    assert_eq!((&run["batches"], &run["samples"], &run["bytes"]), (&json!(58), &json!(3594), &json!(3594 * 72)));
    for key in ["seconds", "samples_per_s", "memory_ceiling_bytes"] {
        assert!(run[key].as_f64() > Some(0.0), "{key}: {run}");
    }
    assert!(run["wait_fraction"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{run}");
    for key in ["order_digest", "data_digest"] {
        assert!(run[key].as_str().is_some_and(|digest| digest.len() == 64), "{key}: {run}");
    }
    assert_eq!(summary("feed digits --digest=false")["data_digest"], Value::Null);
}

#[test]
fn the_data_digest_covers_the_bytes_of_a_batch() {
    let (images, labels) = slotline::source::digits();
    let labels = labels.as_slice().iter().flat_map(|label| label.to_ne_bytes());
    let bytes: Vec<u8> = images.as_slice().iter().copied().chain(labels).collect();
    assert_eq!(summary("feed digits --batch-size 5000")["data_digest"], sha256(&bytes));
}

#[test]
fn idx_and_npy_files_are_fed_as_arrays() {
    let folder = tempfile::tempdir().expect("a folder");
    let (images, labels) = slotline::source::digits();
    // IDX: two zeros, u8, the dimensions, their lengths.
    let write = |name: &str, dims: &[u32], data: &[u8]| {
        let lengths = dims.iter().flat_map(|dim| dim.to_be_bytes());
        let header = [0, 0, 8, dims.len() as u8].into_iter().chain(lengths);
        fs::write(folder.path().join(name), header.chain(data.iter().copied()).collect::<Vec<u8>>()).expect("written");
    };
    write("images", &[1797, 8, 8], images.as_slice());
    write("labels", &[1797], &labels.as_slice().iter().map(|&label| label as u8).collect::<Vec<u8>>());
    let path = folder.path().display();
    let run = summary(&format!("feed idx:{path}/images,{path}/labels --batch-size 5000"));
    assert_eq!((&run["samples"], &run["bytes"]), (&json!(1797), &json!(1797 * 65)));

    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (1797, 64), }");
    let npy = [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), images.as_slice()].concat();
    fs::write(folder.path().join("images.npy"), npy).expect("written");
    let mapped = summary(&format!("feed npy:{path}/images.npy --shuffle --seed 1"));
    let read = summary(&format!("feed idx:{path}/images --shuffle --seed 1 --batch-size 7"));
    // With one field, the data digest does not depend on the batch size.
    assert_eq!(mapped["data_digest"], read["data_digest"]);
}

#[test]
fn the_report_names_the_bottleneck() {
    let text = stdout("feed digits --num-workers 1 --epochs 2 --batch-size 256 --compute-us 20000");
    assert!(text.contains("epoch 1: 8 batches, 1797 samples") && text.contains("memory ceiling"), "{text}");
    assert!(text.contains("bound by the loop"), "{text}");
    // A long run, so that a sample whose thread is preempted does not take a large part of the time.
    let text = stdout("feed digits --epochs 300 --batch-size 1797");
    // Other programs may occupy the cores during the run.
    let is_starved = text.contains("starved of cores");
    assert!(is_starved || text.contains("bound by reading") || text.contains("bound by writing"), "{text}");
    assert!(is_starved || text.contains("the loop's own thread loads everything"), "{text}");
    assert!(stdout("feed digits --drop-last --batch-size 5000").contains("no batch"));
}

#[test]
#[cfg(feature = "trace")]
fn statistics_and_a_timeline_are_written_to_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let [stats, trace] = ["stats.json", "trace.json"].map(|name| folder.path().join(name));
    let (stats_file, trace_file) = (stats.display(), trace.display());
    let text = stdout(&format!(
        "feed digits --epochs 2 --num-workers 1 --part-size 64 --no-helping --stats {stats_file} --trace {trace_file}"
    ));
    let read = |path| -> Value { serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON") };
    let figures = read(stats);
    let wanted = json!([2, 58, 3594, 3594 * 72, 0]);
    assert_eq!(json!(["passes", "batches", "samples", "bytes", "errors"].map(|key| &figures[key])), wanted);
    assert_eq!(figures["workers"][0]["samples"], 3594);
    assert!(text.contains(figures["verdict"].as_str().expect("a text")), "{text}{figures}");

    let trace = read(trace);
    let events = trace.as_array().expect("a list");
    let count =
        |phase: &str, name: &str| events.iter().filter(|event| event["ph"] == phase && event["name"] == name).count();
    assert_eq!((count("B", "pass"), count("E", "pass")), (2, 2));
    assert_eq!((count("B", "fill"), count("E", "fill")), (58, 58));
    let threads: Vec<_> =
        events.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
    assert!(threads.iter().any(|name| *name == "slotline-0"), "{threads:?}");
}

#[test]
#[cfg(all(target_os = "linux", feature = "trace"))]
fn a_trace_or_statistics_that_cannot_be_written_are_errors() {
    for flag in ["--trace", "--stats"] {
        for path in ["/dev/full", "/nowhere/file"] {
            let (code, message) = crate::program::failure(&format!("feed digits {flag} {path}"));
            assert!(code == 1 && message.contains("cannot write the ") && message.contains(path), "{message}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_unwritable_statistics_file_does_not_lose_the_summary() {
    let (_, message) = crate::program::failure("feed digits --json --stats /nowhere/file");
    assert!(!message.contains("epoch 0"), "{message}");
    let output = slotline("feed digits --json --stats /dev/full");
    assert_eq!(output.status.code(), Some(1));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("the summary was printed");
    assert_eq!(summary["samples"], 1797);
}

#[test]
fn warnings_go_to_stderr_and_do_not_fail_the_run() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let output = slotline(&format!("feed digits --num-workers {}", cores + 1));
    assert!(output.status.success());
    let warning = format!("num_workers is {}", cores + 1);
    assert!(String::from_utf8_lossy(&output.stderr).contains(&warning));
    assert!(!String::from_utf8_lossy(&output.stdout).contains(&warning));
}

#[test]
fn a_closed_pipe_on_stdout_is_not_an_error() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_slotline"))
        .args(["order", "--len", "1000000", "--batch-size", "10", "--num-workers", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut pipe = program.stdout.take().expect("a pipe");
    let mut start = [0; 10];
    pipe.read_exact(&mut start).expect("output");
    drop(pipe);
    let output = program.wait_with_output().expect("the program ends");
    assert_eq!((&start, &output.stderr[..]), (b"{\"epoch\":0", &b""[..]));
    assert!(output.status.success());
    for command in ["inspect digits", "order --len 9", "feed digits", "feed digits --json", "demo --epochs 1"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_slotline"));
        let output = program.args(command.split(' ')).stdout(writer).output().expect("the program starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !message.contains("error"), "{command}: {message}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    for command in ["order", "inspect digits", "demo --epochs 1", "feed digits --json"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the device that is always full");
        let mut program = Command::new(env!("CARGO_BIN_EXE_slotline"));
        let output = program.args(command.split(' ')).stdout(full).output().expect("the program starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {message}");
        assert!(message.contains("cannot write to stdout\n  because: No space left"), "{command}: {message}");
    }
}
