//! The same seed gives the same batches and the same weights for all options that only affect how batches are loaded.

use crate::program::{stdout, summary};
use serde_json::Value;

fn digests(arguments: &str) -> [String; 2] {
    let summary = summary(arguments);
    ["order_digest", "data_digest"].map(|key| summary[key].as_str().expect("a digest").to_owned())
}

#[test]
fn digits_are_the_same_for_any_workers_and_parts() {
    let one = "feed digits --shuffle --seed 7 --epochs 2";
    let want = digests(one);
    for workers in [0, 1, 2, 4] {
        for prefetch in 1..=4 {
            for parts in ["", "--part-size 1", "--part-size 7", "--part-size 64"] {
                let options = format!("--num-workers {workers} --prefetch-factor {prefetch} {parts}");
                assert_eq!(digests(&format!("{one} {options}")), want, "{options}");
            }
        }
    }
    for options in
        ["--no-helping --wait spin", "--wait backoff --affinity spread", "--hold 3 --timeout 60", "--pin-memory"]
    {
        assert_eq!(digests(&format!("{one} --num-workers 2 {options}")), want, "{options}");
    }
    let other = digests("feed digits --shuffle --seed 8 --epochs 2");
    assert!(other[0] != want[0] && other[1] != want[1]);
}

#[test]
fn unseeded_orders_differ_from_run_to_run() {
    let run = || stdout("order --len 1000 --shuffle");
    assert_ne!(run(), run());
}

#[test]
fn arrival_mode_delivers_the_same_batches() {
    let arguments = "order --len 1000 --shuffle --seed 3 --batch-size 10 --num-workers 4";
    let sorted = |arguments: &str| {
        let text = stdout(arguments);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(arguments), sorted(&format!("{arguments} --in-order false")));
}

#[test]
fn the_demo_learns_the_same_weights() {
    let run = |options: &str| summary(&format!("demo --epochs 2 {options}"));
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
    let summary = summary("demo --epochs 6");
    assert!(summary["accuracy"].as_f64() >= Some(0.95), "{summary}");
    let epochs = summary["epochs"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert_eq!(epochs.iter().map(|epoch| epoch["epoch"].clone()).collect::<Vec<Value>>(), [0, 1, 2, 3, 4, 5]);
    assert!(epochs[5]["loss"].as_f64() < epochs[0]["loss"].as_f64());
    assert_eq!(epochs[5]["test_accuracy"], summary["accuracy"]);
}
