//! The checks.

mod bytes;
mod drops;
mod load;
mod refusals;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::bench::Bench;
use crate::within::within;

/// The time limit for one check.
const PATIENCE: Duration = Duration::from_secs(120);

/// The result of a check.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    check: &'static str,
    pub(crate) ok: bool,
    seconds: f64,
    /// What was checked, or what went wrong.
    detail: String,
}

type Check = fn(&Bench) -> Result<String>;

/// All checks, named by statements that must be true.
const CHECKS: [(&str, Check); 9] = [
    ("bytes on the device are those of the host", bytes::run),
    ("batches stay whole while slow kernels read them", load::slow_kernels),
    ("the legacy default stream works like other streams", load::default_stream),
    ("a batch may be read on two streams", load::two_streams),
    ("several loaders feed one device", load::several_loaders),
    ("several devices are fed concurrently", load::several_devices),
    ("batches, passes, loaders and devices can be dropped in any order", drops::run),
    ("running out of device memory is an error", refusals::out_of_memory),
    ("a missing device is an error", refusals::no_such_device),
];

/// Runs all checks. With the fake driver, its violations are one more check.
pub(crate) fn run(bench: &Bench) -> Vec<Outcome> {
    let mut outcomes: Vec<_> = CHECKS.iter().map(|&(name, check)| outcome(bench, name, check)).collect();
    if bench.fake.is_some() {
        outcomes.push(outcome(bench, "the fake driver found no violations", watched));
    }
    outcomes
}

fn outcome(bench: &Bench, check: &'static str, run: Check) -> Outcome {
    let begin = Instant::now();
    let on = bench.clone();
    let (ok, detail) = match within(PATIENCE, move || run(&on)) {
        Ok(detail) => (true, detail),
        Err(error) => (false, format!("{error:#}")),
    };
    let seconds = begin.elapsed().as_secs_f64();
    bench.say(format_args!("{} {check}: {detail}", if ok { "ok    " } else { "FAILED" }));
    Outcome { check, ok, seconds, detail }
}

/// Checks that the detectors of the fake driver found nothing.
fn watched(bench: &Bench) -> Result<String> {
    let Some(fake) = bench.fake else { return Ok(String::new()) };
    let violations = fake.violations();
    ensure!(violations.is_empty(), "{} violations, the first: {}", violations.len(), violations[0]);
    Ok(format!("{} calls", fake.calls()))
}
