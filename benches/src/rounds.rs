//! Measures the contenders of a comparison (a variant of a section with one number of workers) in
//! turn, round after round.
//!
//! The speed of a machine can change by a factor of two within an hour. If one contender was
//! measured completely before the next one, their ratio would depend on such changes. Therefore,
//! each round measures all contenders once, and ratios are taken within a round.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::machine::{Machine, version_of};
use crate::record::{Absent, Kind, Line, Run, Time, Unit};

/// The pause between two contenders, in which the threads of the previous contender go to sleep.
const PAUSE: Duration = Duration::from_millis(2);

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// The number of batches. A last batch that is not full counts as a fraction.
    pub batches: f64,
    /// The time from the request of the pass to its end, or another value that is measured, in
    /// seconds.
    pub seconds: f64,
}

impl Pass {
    /// Creates the result of a pass of this many batches that began at `start` and ends now.
    pub fn since(start: Instant, batches: f64) -> Self {
        Self { batches, seconds: start.elapsed().as_secs_f64() }
    }
}

/// A function that runs a pass of a contender.
pub type Contender = Box<dyn FnMut() -> Result<Pass>>;

/// A contender with its name and properties.
pub struct Entry {
    /// The name.
    pub peer: String,
    /// The version, if it has one.
    pub version: Option<String>,
    /// The role of the contender in the comparison.
    pub kind: Kind,
    /// The dataset's size, for the section that varies it.
    pub size: Option<u64>,
    /// The number of ranks, for the section that varies it.
    pub ranks: Option<u64>,
    /// The contender, or the reason why it is absent.
    pub contender: Result<Contender>,
}

impl Entry {
    /// Creates an entry. Its version is that of the package with this name, if there is one.
    pub fn new(peer: impl Into<String>, kind: Kind, contender: Result<Contender>) -> Self {
        let peer = peer.into();
        Self { version: version_of(&peer), peer, kind, size: None, ranks: None, contender }
    }

    /// Creates an entry for a limit of the machine.
    pub fn limit(name: &str, pass: impl FnMut() -> Result<Pass> + 'static) -> Self {
        Self::new(name, Kind::Limit, Ok(Box::new(pass)))
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("peer", &self.peer).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A recorder that runs the comparisons of a section and records the results.
#[derive(Debug)]
pub struct Recorder {
    section: String,
    rounds: usize,
    lines: Vec<Line>,
    /// The minimum time for which a contender is measured in a round, in seconds: 20 ms. Passes are
    /// repeated until then, since one pass of tiny batches is short.
    pub least: f64,
    /// The total time, 3 s, after which a contender is not measured in further rounds. A contender
    /// that is so slow is ranked well enough by few rounds.
    pub enough: Duration,
}

impl Recorder {
    /// Creates a recorder for a section whose comparisons have `rounds` rounds.
    pub fn new(section: &str, rounds: usize) -> Self {
        let section = section.to_owned();
        let mut recorder = Self { section, rounds, lines: Vec::new(), least: 0.02, enough: Duration::from_secs(3) };
        recorder.push(Line::Run(Run { section: String::new(), rounds, machine: Machine::of_this_run() }));
        recorder
    }

    /// Returns the name of the section.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// Returns the number of rounds of a comparison.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns the recorded lines.
    pub fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// Records a line of the section and prints it.
    fn push(&mut self, mut line: Line) {
        let section = match &mut line {
            Line::Run(run) => &mut run.section,
            Line::Time(time) => &mut time.section,
            Line::Absent(absent) => &mut absent.section,
        };
        section.clone_from(&self.section);
        println!("{}", serde_json::to_string(&line).expect("names and numbers"));
        self.lines.push(line);
    }

    /// Records a measurement.
    pub fn time(&mut self, time: Time) {
        self.push(Line::Time(time));
    }

    /// Records that a contender could not be measured.
    pub fn absent(&mut self, case: &str, workers: Option<usize>, peer: &str, why: &anyhow::Error) {
        let (section, case, peer, why) = (String::new(), case.to_owned(), peer.to_owned(), format!("{why:#}"));
        self.push(Line::Absent(Absent { section, case, workers, peer, why }));
    }

    /// Measures a comparison, in which all entries do the same work: measures them in turn, round
    /// after round.
    pub fn compare(&mut self, case: &str, workers: usize, unit: Unit, entries: Vec<Entry>) {
        eprintln!("{} {case} with {workers} workers: {} contenders", self.section, entries.len());
        let mut running: Vec<_> = entries.into_iter().map(|entry| (entry, Vec::new(), Duration::ZERO)).collect();
        for _ in 0..self.rounds {
            for (entry, values, spent) in &mut running {
                let Ok(contender) = &mut entry.contender else { continue };
                if *spent > self.enough {
                    continue;
                }
                std::thread::sleep(PAUSE);
                let start = Instant::now();
                match visit(contender, unit, self.least) {
                    Ok(value) => values.push(value),
                    Err(error) => entry.contender = Err(error),
                }
                *spent += start.elapsed();
            }
        }
        for (Entry { peer, version, kind, size, ranks, contender }, values, _) in running {
            match contender {
                Ok(_) => {
                    let time = Time::new(case, peer, kind, unit, values);
                    self.time(Time { workers: Some(workers), size, ranks, version, ..time });
                }
                Err(why) => self.absent(case, Some(workers), &peer, &why),
            }
        }
    }
}

/// Measures one contender in one round, with as many passes as take at least `least` seconds
/// together.
fn visit(contender: &mut Contender, unit: Unit, least: f64) -> Result<f64> {
    let mut total = Pass { batches: 0.0, seconds: 0.0 };
    let mut passes = 0_u32;
    while passes == 0 || total.seconds < least {
        let pass = contender()?;
        ensure!(pass.batches > 0.0 && pass.seconds > 0.0, "a pass has no batches, or took no time");
        total.batches += pass.batches;
        total.seconds += pass.seconds;
        passes += 1;
    }
    let passes = if matches!(unit, Unit::Millis | Unit::MillisPerPass) { f64::from(passes) } else { 1.0 };
    Ok(unit.value(total.batches, total.seconds / passes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{anyhow, bail};

    fn steady(batches: f64, seconds: f64) -> Contender {
        Box::new(move || Ok(Pass { batches, seconds }))
    }

    #[test]
    fn all_contenders_are_visited_and_failures_are_absent() {
        let mut left = 2;
        let fails = move || {
            if left == 0 {
                bail!("out of passes");
            }
            left -= 1;
            Ok(Pass { batches: 10.0, seconds: 0.05 })
        };
        let entries = vec![
            Entry::new("steady", Kind::Ours, Ok(steady(5.0, 0.01))),
            Entry::new("failing", Kind::Peer, Ok(Box::new(fails))),
            Entry::new("missing", Kind::Peer, Err(anyhow!("not here"))),
        ];
        let mut recorder = Recorder::new("small-images", 3);
        recorder.compare("", 1, Unit::MicrosPerBatch, entries);
        let lines = recorder.into_lines();
        let [Line::Run(_), Line::Time(steady), Line::Absent(failing), Line::Absent(missing)] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!((steady.peer.as_str(), &steady.values[..]), ("steady", &[2000.0; 3][..]));
        assert_eq!((failing.section.as_str(), failing.why.as_str()), ("small-images", "out of passes"));
        assert_eq!(missing.why, "not here");
    }

    #[test]
    fn a_value_per_pass_is_the_time_of_one_pass() {
        assert_eq!(visit(&mut steady(25.0, 0.011), Unit::MillisPerPass, 0.02).unwrap(), 11.0);
        assert!(visit(&mut steady(0.0, 0.0), Unit::MillisPerPass, 0.02).is_err());
    }
}
