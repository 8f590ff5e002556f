//! The same seed gives the same batches for all options that only affect how batches are loaded.

use crate::program::{stdout, summary};

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
