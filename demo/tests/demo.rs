//! The demo, run as a user runs it: the same seed gives the same weights, whatever options affect
//! only how batches are loaded.

use std::process::Command;

use serde_json::Value;

/// Runs `slotline-demo demo --json` with these arguments, separated by spaces, and returns the last
/// line of its stdout as JSON.
fn summary(arguments: &str) -> Value {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_slotline-demo"));
    let output = demo.args(["demo", "--json"]).args(arguments.split_whitespace()).output().expect("the program starts");
    assert!(output.status.success(), "demo {arguments}: {output:?}");
    let last = output.stdout.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().expect("a last line");
    serde_json::from_slice(last).expect("JSON")
}

#[test]
fn the_demo_learns_the_same_weights() {
    let run = |options: &str| summary(&format!("--epochs 2 {options}"));
    let first = run("");
    for options in
        ["--num-workers 0", "--num-workers 4 --prefetch-factor 1 --part-size 5", "--num-workers 1 --no-helping"]
    {
        let other = run(options);
        for key in ["weights_digest", "order_digest", "data_digest", "accuracy", "loss"] {
            assert_eq!(other[key], first[key], "{key} with {options}");
        }
    }
    assert_ne!(run("--seed 1")["weights_digest"], first["weights_digest"]);
}

#[test]
fn the_demo_reads_most_digits_right_after_six_epochs() {
    let summary = summary("--epochs 6");
    assert!(summary["accuracy"].as_f64() >= Some(0.95), "{summary}");
    let epochs = summary["epochs"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert_eq!(epochs.iter().map(|epoch| epoch["epoch"].clone()).collect::<Vec<Value>>(), [0, 1, 2, 3, 4, 5]);
    assert!(epochs[5]["loss"].as_f64() < epochs[0]["loss"].as_f64());
    assert_eq!(epochs[5]["test_accuracy"], summary["accuracy"]);
}
