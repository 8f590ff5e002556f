//! Runs the whole program on the fake driver, as a small version of a run on a GPU.

use std::process::{Command, Output};

use serde_json::Value;

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slotline-cuda-check")).args(arguments).output().unwrap()
}

/// Parses the last line of the output, which is the JSON object.
fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last}, {output:?}"))
}

fn list<'a>(report: &'a Value, part: &str) -> &'a [Value] {
    report["measure"][part].as_array().unwrap_or_else(|| panic!("no {part} in {report}"))
}

/// Returns whether a value has ordered quartiles, and its numbers are neither negative nor absurdly
/// large.
fn is_spread(value: &Value) -> bool {
    let [low, median, high] = ["low", "median", "high"].map(|name| value[name].as_f64().unwrap_or(f64::NAN));
    0.0 <= low && low <= median && median <= high && high < 1e6
}

#[test]
fn all_checks_pass_and_every_figure_is_present() {
    let output = program(&["--fake", "--json", "--workers", "2"]);
    let report = report(&output);
    assert!(output.status.success() && report["ok"] == true, "{report}");
    assert_eq!((&report["machine"]["fake"], &report["quick"]), (&Value::Bool(true), &Value::Bool(true)));
    let checks = report["check"].as_array().unwrap();
    assert!(checks.len() == 10 && checks.iter().all(|check| check["ok"] == true), "{report}");

    let copies = list(&report, "copy");
    assert_eq!(copies.len(), 2 * 4);
    assert!(copies.iter().all(|copy| is_spread(&copy["gb_per_s"]) && copy["gb_per_s"]["median"] != 0.0), "{copies:?}");
    let locks = list(&report, "lock");
    assert_eq!(locks.len(), 3);
    assert!(
        locks.iter().all(|lock| is_spread(&lock["lock_s_per_gib"]) && is_spread(&lock["free_s_per_gib"])),
        "{locks:?}"
    );
    let feeds = list(&report, "feed");
    assert_eq!(feeds.len(), 2 * 2 * 2);
    assert!(feeds.iter().all(|feed| is_spread(&feed["gb_per_s"]) && is_spread(&feed["share"])), "{feeds:?}");
    let steps = list(&report, "step");
    assert_eq!(steps.len(), 2 * 2);
    for step in steps {
        let shares = [&step["wait_share"], &step["floor_share"]];
        assert!(shares.iter().all(|share| is_spread(share) && share["high"].as_f64() <= Some(1.0)), "{step}");
        assert!(step["step_us"].as_f64() >= step["copy_us"].as_f64(), "{step}");
    }
    let nexts = list(&report, "next");
    assert_eq!(nexts.len(), 2);
    for next in nexts {
        let [median, p99, most] = ["median_us", "p99_us", "max_us"].map(|name| next[name].as_f64().unwrap());
        assert!(0.0 < median && median <= p99 && p99 <= most, "{next}");
        // The fake driver allocates exactly the requested memory.
        assert_eq!(next["device_bytes"], next["slot_bytes"], "{next}");
    }
    let calls = &report["measure"]["calls"];
    assert_eq!(calls["pageable"], 0);
    for count in [&calls["in_time"], &calls["late"]] {
        let copies = count["by_name"]["cuMemcpyHtoDAsync_v2"].as_f64().unwrap();
        assert!((0.9..=1.1).contains(&copies), "one copy for each batch: {count}");
    }
    assert_eq!(list(&report, "failed").len(), 0);
}

#[test]
fn checks_pass_with_any_schedule() {
    for seed in 1..=8 {
        let output = program(&["check", "--fake", "--seed", &seed.to_string()]);
        assert!(output.status.success(), "seed {seed}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("measuring"));
    }
}

#[test]
fn a_missing_gate_is_noticed() {
    for gate in ["host", "copy", "training", "consumed"] {
        let output = program(&["check", "--fake", "--json", "--without", gate]);
        let report = report(&output);
        assert!(!output.status.success() && report["ok"] == false, "without {gate}: {report}");
        let failed: Vec<_> = report["check"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
        assert!(
            failed.iter().any(|check| check["check"] == "the fake driver found no violations"),
            "{gate}: {failed:?}"
        );
    }
}

#[test]
fn a_missing_driver_is_an_error() {
    let output = program(&["--fake=/no/such/libcuda.so"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/libcuda.so"), "{output:?}");
    let output = program(&["--fake", "--device", "2"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no device 2"), "{output:?}");
}
