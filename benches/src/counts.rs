//! Instruction counts by callgrind, which do not depend on other load or on the clock.
//!
//! Each case runs in a separate process under valgrind, once with few passes and once with more.
//! The difference, divided by the units of work in the additional passes, is the count of one unit.
//! The file `instructions.json` has the expected counts.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use slotline::Loader;
use slotline::array::Array;
use slotline::dataset::{TensorDataset, from_fn, iter_fn};
use slotline_core::{ordered, spsc};

/// A case: its name, the number of units in a pass, and a function that runs a number of passes.
struct Case {
    name: &'static str,
    units: usize,
    run: fn(usize),
}

const BATCHES: usize = 2_000;
const ROWS: usize = 1_920;
const ITEMS: usize = 10_000;
const CASES: [Case; 5] = [
    Case { name: "batch of one number", units: BATCHES, run: zero_cost },
    Case { name: "batch of one number of an iterable dataset", units: BATCHES, run: iterable },
    Case { name: "row of a shuffled gather, 784 bytes and a label", units: ROWS, run: gather },
    Case { name: "ticket through the ordered ring", units: ITEMS, run: ordered_ring },
    Case { name: "item through the SPSC ring", units: ITEMS, run: spsc_ring },
];
/// The numbers of passes of the two processes that measure a case. The difference of their counts
/// excludes what a process does only once.
const PASSES: [usize; 2] = [2, 7];
/// The fraction of the expected count by which a new count may differ from it, since compilers and
/// C libraries differ.
const BOUND: f64 = 0.3;

fn zero_cost(passes: usize) {
    let mut loader = Loader::builder(from_fn(BATCHES, |index, _| Ok(index as i64))).build().expect("valid options");
    for _ in 0..passes {
        loader.epoch().expect("is fine").for_each(|batch| drop(black_box(batch.expect("is fine").tensors())));
    }
}

fn iterable(passes: usize) {
    let dataset = iter_fn(|_| Ok((0..BATCHES as i64).map(Ok)));
    let mut loader = Loader::iterable(dataset).build().expect("valid options");
    for _ in 0..passes {
        loader.epoch().expect("is fine").for_each(|batch| drop(black_box(batch.expect("is fine").tensors())));
    }
}

fn gather(passes: usize) {
    let images = Array::new(vec![7_u8; ROWS * 784], &[ROWS, 28, 28]).expect("the shape fits the data");
    let dataset = TensorDataset::new((images, vec![3_i64; ROWS])).expect("as many images as labels");
    let mut loader = Loader::builder(dataset).batch_size(64).shuffle(true).seed(1).build().expect("valid options");
    for _ in 0..passes {
        loader.epoch().expect("is fine").for_each(|batch| drop(black_box(batch.expect("is fine").tensors())));
    }
}

fn ordered_ring(passes: usize) {
    let ring = ordered::Ring::boxed(64, ordered::Config::new(), |_| 0_usize);
    let (mut consumer, worker) = (ring.consumer().expect("the consumer is not taken yet"), ring.worker());
    for item in 0..passes * ITEMS {
        let mut claim = worker.try_claim(1).expect("the ring is empty");
        *claim.get_mut().expect("there is one part") = item;
        claim.publish();
        assert_eq!(*consumer.try_next().expect("it was published"), item);
    }
}

fn spsc_ring(passes: usize) {
    let mut ring = spsc::Ring::boxed(64, |_| 0_usize);
    let (mut producer, mut consumer) = ring.split();
    for item in 0..passes * ITEMS {
        let mut claim = producer.try_claim().expect("the ring is empty");
        *claim = item;
        claim.publish();
        assert_eq!(*consumer.try_next().expect("it was published"), item);
    }
}

/// Runs `passes` passes of a case, whose instructions are counted.
pub fn run(case: &str, passes: usize) -> Result<()> {
    let case = CASES.iter().find(|known| known.name == case).with_context(|| format!("unknown case {case:?}"))?;
    (case.run)(passes);
    Ok(())
}

/// Counts all cases and compares the counts with those in `file`, or writes them to it if `update`
/// is set.
pub fn check(file: &Path, update: bool) -> Result<()> {
    let counts: BTreeMap<_, _> =
        CASES.iter().map(|case| Ok((case.name.to_owned(), count(case)?))).collect::<Result<_>>()?;
    if update {
        let text = serde_json::to_string_pretty(&counts)? + "\n";
        return std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()));
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let known: BTreeMap<String, f64> = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    let report = compare(&known, &counts);
    print!("{}", report.lines.join(""));
    ensure!(report.wrong.is_empty(), "{}\nif this is intended, run `counts --update`", report.wrong.join("\n"));
    Ok(())
}

/// The result of comparing the counts.
struct Report {
    lines: Vec<String>,
    wrong: Vec<String>,
}

fn compare(known: &BTreeMap<String, f64>, counts: &BTreeMap<String, f64>) -> Report {
    let mut report = Report { lines: Vec::new(), wrong: Vec::new() };
    for (name, &count) in counts {
        let Some(&before) = known.get(name) else {
            report.wrong.push(format!("{name}: no count in the file"));
            continue;
        };
        let ratio = count / before;
        report.lines.push(format!("{name}: {count:.1} instructions, {ratio:.2} of {before:.1}\n"));
        if (ratio - 1.0).abs() > BOUND {
            report.wrong.push(format!("{name}: {count:.1} instructions instead of {before:.1}"));
        }
    }
    report
}

/// Returns the number of instructions of one unit.
fn count(case: &Case) -> Result<f64> {
    let [few, more] = PASSES.map(|passes| collected(case.name, passes));
    let (few, more) = (few?, more?);
    let units = (case.units * (PASSES[1] - PASSES[0])) as f64;
    ensure!(more > few, "{}: more passes did not take more instructions", case.name);
    // Rounded to a tenth, so that tiny changes do not change the file.
    Ok(((more - few) as f64 / units * 10.0).round() / 10.0)
}

/// Returns the number of instructions of a process that runs `passes` passes.
fn collected(case: &str, passes: usize) -> Result<u64> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let output = valgrind
        .args(["count", case, &passes.to_string()])
        .output()
        .context("cannot run valgrind; is it installed?")?;
    let output_text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{case}: valgrind ended with {}: {output_text}", output.status);
    }
    let number =
        output_text.lines().find_map(|line| line.split_once("Collected :")).map(|(_, number)| number.trim().parse());
    number
        .with_context(|| format!("{case}: valgrind did not report a count: {output_text}"))?
        .context("the count is not a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_differing_counts_are_reported() {
        let counts = |list: &[(&str, f64)]| list.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        let known: BTreeMap<_, _> = counts(&[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
        let report = compare(&known, &counts(&[("a", 125.0), ("b", 140.0), ("c", 60.0), ("d", 1.0)]));
        assert_eq!(report.wrong.len(), 3, "{:?}", report.wrong);
        assert!(report.wrong[0].starts_with("b: 140.0 instructions instead of 100.0"));
    }

    #[test]
    fn every_case_runs_and_unknown_cases_are_rejected() {
        for case in &CASES {
            run(case.name, 1).unwrap();
        }
        assert!(run("nothing", 1).unwrap_err().to_string().contains("\"nothing\""));
    }
}
