//! The section `latency`: how long the loop waits for each batch, in Rust, in C++, and with
//! libtorch's loader.

use std::ffi::OsString;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use core_affinity::CoreId;
use slotline::Loader;
use slotline::array::Array;
use slotline::dataset::TensorDataset;
use slotline::loader::Affinity;

use super::Setup;
use crate::record::{Kind, Time, Unit};
use crate::rounds::Recorder;

/// The number of batches of a pass. `report/template.md` states it, too.
const BATCHES: usize = 300_000;
/// The number of batches of the warm-up pass before it.
const WARM: usize = 1000;
/// The pause before a contender, in which the threads of the previous contender end.
const PAUSE: Duration = Duration::from_millis(2);
/// The percentiles that are recorded, with their names. The last one is the maximum.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("maximum", 1.0)];
/// The name of the machine's limit, which is the reading of the clock alone.
const CLOCK: &str = "the clock alone";

/// One value for each of [`PERCENTILES`], in nanoseconds.
type Values = [f64; PERCENTILES.len()];

/// A loop in Rust.
struct Loop {
    /// The name that distinguishes it in the report.
    name: &'static str,
    workers: usize,
    help: bool,
    place: Place,
}

/// The cores that the threads run on.
#[derive(PartialEq)]
enum Place {
    Any,
    /// Worker i on the i-th core.
    Spread,
    /// All workers on the last core, and the loop on the first core.
    Apart,
}

const LOOPS: [Loop; 5] = [
    Loop { name: "", workers: 0, help: true, place: Place::Any },
    Loop { name: "", workers: 2, help: true, place: Place::Any },
    Loop { name: ", spread", workers: 2, help: true, place: Place::Spread },
    Loop { name: ", apart", workers: 2, help: true, place: Place::Apart },
    Loop { name: ", no help", workers: 2, help: false, place: Place::Any },
];

/// Measures the loops in turn, round after round.
pub fn run(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let mut rows = Rows::default();
    let program = setup.programs.iter().find(|program| program.workloads.contains(&"latency"));
    let mut command = program.map(|program| program.command.as_deref().map_err(|why| anyhow!("{why}")));
    for round in 0..to.rounds() {
        eprintln!("latency: round {}", round + 1);
        for workers in [0, 2] {
            rows.add(CLOCK, workers, Kind::Limit, None, clock());
        }
        for each in &LOOPS {
            thread::sleep(PAUSE);
            let kind = if each.name.is_empty() { Kind::Ours } else { Kind::Variant };
            rows.add(&format!("slotline{}", each.name), each.workers, kind, None, each.measure(BATCHES)?);
        }
        if let Some(Ok(words)) = &command
            && let Err(why) = measure_cpp(words, &mut rows)
        {
            command = Some(Err(why));
        }
    }
    rows.0.into_iter().for_each(|time| to.time(time));
    match command {
        Some(Err(why)) => to.absent("", None, "slotline, C++", &why),
        Some(Ok([_])) => to.absent("", None, "libtorch", &anyhow!("torch is not installed")),
        _ => {}
    }
    Ok(())
}

/// The recorded times, with one line for each percentile of each contender.
#[derive(Default)]
struct Rows(Vec<Time>);

impl Rows {
    fn add(&mut self, peer: &str, workers: usize, kind: Kind, version: Option<&str>, values: Values) {
        for ((case, _), nanos) in PERCENTILES.into_iter().zip(values) {
            let value = Unit::NanosPerBatch.value(1.0, nanos * 1e-9);
            let workers = Some(workers);
            let known = |time: &&mut Time| time.peer == peer && time.workers == workers && time.case == case;
            match self.0.iter_mut().find(known) {
                Some(time) => time.values.push(value),
                None => {
                    let time = Time::new(case, peer, kind, Unit::NanosPerBatch, vec![value]);
                    self.0.push(Time { workers, version: version.map(str::to_owned), ..time });
                }
            }
        }
    }
}

/// The waits of a pass, in nanoseconds each.
struct Waits(Vec<u32>);

impl Waits {
    /// Allocates the memory, and touches it before the pass.
    fn new() -> Self {
        let mut waits = vec![1; BATCHES];
        waits.clear();
        Self(waits)
    }

    #[inline(always)]
    fn time<T>(&mut self, next: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = next();
        let nanos = start.elapsed().as_nanos();
        self.0.push(u32::try_from(nanos).unwrap_or(u32::MAX));
        value
    }

    fn values(mut self) -> Values {
        self.0.sort_unstable();
        let last = self.0.len() as f64 - 1.0;
        PERCENTILES.map(|(_, share)| f64::from(self.0[(share * last) as usize]))
    }
}

/// Measures the time between two readings of the clock, without a loader.
fn clock() -> Values {
    let mut waits = Waits::new();
    (0..BATCHES).for_each(|i| {
        waits.time(|| std::hint::black_box(i));
    });
    waits.values()
}

impl Loop {
    /// Measures a pass, in a separate thread, which can be pinned without an effect on others.
    fn measure(&self, batches: usize) -> Result<Values> {
        thread::scope(|scope| scope.spawn(|| self.pass(batches)).join().map_err(|_| anyhow!("the loop panicked"))?)
    }

    fn pass(&self, batches: usize) -> Result<Values> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let last = cores.last().map_or(0, |core| core.id);
        let mut waits = Waits::new();
        for batches in [WARM, batches] {
            let numbers = (0..batches).flat_map(|i| (0..4).map(move |j| (i + j) as f32)).collect();
            let labels: Vec<i64> = (0..batches as i64).collect();
            let dataset = TensorDataset::new((Array::new(numbers, &[batches, 4])?, labels))?;
            let mut builder = Loader::builder(dataset).num_workers(self.workers);
            if self.workers > 0 {
                builder = builder.help(self.help);
            }
            builder = match self.place {
                Place::Any => builder,
                Place::Spread => builder.affinity(Affinity::Spread),
                Place::Apart => builder.affinity(Affinity::Cores(vec![last])),
            };
            let mut loader = builder.build()?;
            if self.place == Place::Apart {
                // The workers were started before this, on their own core.
                core_affinity::set_for_current(CoreId { id: cores.first().map_or(0, |core| core.id) });
            }
            waits.0.clear();
            let mut pass = loader.epoch()?;
            let (mut sum, mut batch) = (0, None);
            while {
                batch = waits.time(|| {
                    drop(batch.take());
                    pass.next()
                });
                batch.is_some()
            } {
                let Some(Ok(batch)) = &batch else { break };
                sum += batch.tensors().1.as_slice()[0];
            }
            if let Some(Err(error)) = batch {
                return Err(error.into());
            }
            waits.0.pop(); // The last wait was for the end of the pass.
            let all = batches as i64;
            ensure!(sum == all * (all - 1) / 2, "the sum of the labels is {sum}");
        }
        Ok(waits.values())
    }
}

/// Runs the program in C++ for a round.
fn measure_cpp(words: &[OsString], rows: &mut Rows) -> Result<()> {
    let mut command = Command::new(&words[0]);
    let output = command.args([&BATCHES.to_string(), "0", "1"]).output().context("cannot run the program")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the program ended with {}: {}", output.status, errors.trim());
    let text = String::from_utf8(output.stdout)?;
    // The second word is the version of torch.
    let torch = words.get(1).and_then(|version| version.to_str());
    for row in parse(&text)? {
        let (kind, version) =
            if row.peer.starts_with("libtorch") { (Kind::Peer, torch) } else { (Kind::Variant, None) };
        rows.add(&row.peer, row.workers, kind, version, row.values);
    }
    Ok(())
}

/// A row of the table that the C++ program prints.
#[derive(Debug, PartialEq)]
struct Row {
    peer: String,
    workers: usize,
    values: Values,
}

/// Parses the table that the C++ program prints. The table has a header, and rows such as
/// `slotline, 2, spread 90 120 300 900 12000`.
fn parse(text: &str) -> Result<Vec<Row>> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let mut rows = Vec::new();
    for line in lines {
        let bad = || format!("unexpected output {line:?}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, numbers) = words.split_at_checked(words.len().wrapping_sub(head.len())).with_context(bad)?;
        let name = name.join(" ");
        let Some((library, rest)) = name.split_once(", ") else { continue }; // The row of the clock.
        let (workers, variant) = rest.split_once(", ").map_or((rest, String::new()), |(n, v)| (n, format!(", {v}")));
        let language = if library == "slotline" { ", C++" } else { "" };
        let mut values = Values::default();
        for ((share, _), value) in PERCENTILES.into_iter().zip(&mut values) {
            let place = head.iter().position(|&column| column == share).with_context(bad)?;
            *value = numbers[place].parse().with_context(bad)?;
        }
        let workers = workers.parse().with_context(bad)?;
        rows.push(Row { peer: format!("{library}{language}{variant}"), workers, values });
    }
    ensure!(!rows.is_empty(), "the program printed no rows");
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_program_is_parsed() {
        let head = "                               p50       p99     p99.9    p99.99     maximum\n";
        let floor = "floor                           20        31        31        51       13511\n";
        let ours = "slotline, 2, no help           210       631      8713     57355     4520786\n";
        let torch = "libtorch, 0                   3055      8503     30456     42133       59689\n";
        let row = |peer: &str, workers, values| Row { peer: peer.into(), workers, values };
        let want = [
            row("slotline, C++, no help", 2, [210.0, 631.0, 8713.0, 4_520_786.0]),
            row("libtorch", 0, [3055.0, 8503.0, 30456.0, 59689.0]),
        ];
        assert_eq!(parse(&[head, floor, ours, torch].concat()).unwrap(), want);
        for bad in [format!("{head}slotline, 2, no help"), format!("{head}slotline, x  1 2 3 4 5"), head.into()] {
            assert!(parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn loops_wait_as_long_as_they_take() {
        for each in LOOPS {
            let values = each.measure(2000).unwrap();
            assert!(values.is_sorted() && values[0] > 0.0, "slotline{}: {values:?}", each.name);
        }
    }
}
