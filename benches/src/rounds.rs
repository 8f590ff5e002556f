//! Measures the contenders of a heat in turn, round after round.
//!
//! Machines drift by a factor of two within an hour. Measuring one contender completely before the next one would compare
//! the machine with itself. Therefore, each round visits all contenders, and ratios are taken within a round.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::machine::Machine;
use crate::record::{Absent, Kind, Line, Run, Section, Time, Unit};

/// The minimum time of a visit, in seconds. Passes are repeated until then, since one pass of tiny batches is short.
const VISIT: f64 = 0.02;
/// A contender that has taken this long is not visited again, since few rounds are enough to rank a slow one.
const ENOUGH: Duration = Duration::from_secs(3);
/// The same for readers of files, whose passes take seconds.
const ENOUGH_FILES: Duration = Duration::from_secs(12);
/// The pause between visits, in which the threads of the last contender go to sleep.
const PAUSE: Duration = Duration::from_millis(2);

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// The number of batches. A last batch that is not full counts as a fraction.
    pub batches: f64,
    /// The time from the request of the pass to its end, or what is measured instead of it.
    pub seconds: f64,
}

/// A contender that is measured.
pub trait Contender {
    /// Runs one pass.
    fn pass(&mut self) -> Result<Pass>;
}

/// A function that runs a pass is a contender.
impl<F: FnMut() -> Result<Pass>> Contender for F {
    fn pass(&mut self) -> Result<Pass> {
        self()
    }
}

/// A named contender.
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
    /// The contender, or why it is absent.
    pub contender: Result<Box<dyn Contender>>,
}

impl Entry {
    /// Creates an entry without a version.
    pub fn new(peer: impl Into<String>, kind: Kind, contender: Result<impl Contender + 'static>) -> Self {
        let contender = contender.map(|contender| Box::new(contender) as Box<dyn Contender>);
        Self { peer: peer.into(), version: None, kind, size: None, ranks: None, contender }
    }

    /// Sets the version to that of the package with the peer's name.
    #[must_use]
    pub fn package(mut self) -> Self {
        self.version = crate::machine::version_of(&self.peer);
        self
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("peer", &self.peer).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A comparison: the same work, done by all entries.
#[derive(Debug)]
pub struct Heat {
    /// The variant of the section; empty if there is only one.
    pub case: String,
    /// The number of workers.
    pub workers: usize,
    /// The unit of the values.
    pub unit: Unit,
    /// The contenders.
    pub entries: Vec<Entry>,
}

/// Runs the heats of a section and records the results.
#[derive(Debug)]
pub struct Recorder {
    section: Section,
    rounds: usize,
    lines: Vec<Line>,
}

impl Recorder {
    /// Creates a recorder for a section whose heats have `rounds` rounds.
    pub fn new(section: Section, rounds: usize) -> Self {
        let run = Run { section, rounds, machine: Machine::of_this_run() };
        let mut recorder = Self { section, rounds, lines: Vec::new() };
        recorder.push(Line::Run(run));
        recorder
    }

    /// Returns the number of rounds of a heat.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns the recorded lines.
    pub fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// Records a line and prints it.
    pub fn push(&mut self, line: Line) {
        println!("{}", serde_json::to_string(&line).expect("names and numbers"));
        self.lines.push(line);
    }

    /// Measures a heat: visits its entries in turn, round after round.
    pub fn heat(&mut self, heat: Heat) {
        let Heat { case, workers, unit, entries } = heat;
        eprintln!("{} {case} with {workers} workers: {} contenders", self.section.name(), entries.len());
        let enough = if self.section.is_files() { ENOUGH_FILES } else { ENOUGH };
        let mut running: Vec<_> = entries.into_iter().map(|entry| (entry, Vec::new(), Duration::ZERO)).collect();
        for _ in 0..self.rounds {
            for (entry, values, spent) in &mut running {
                let Ok(contender) = &mut entry.contender else { continue };
                if *spent > enough {
                    continue;
                }
                std::thread::sleep(PAUSE);
                let start = Instant::now();
                match visit(contender.as_mut(), unit, if self.section.is_waiting() { 0.0 } else { VISIT }) {
                    Ok(value) => values.push(value),
                    Err(error) => entry.contender = Err(error),
                }
                *spent += start.elapsed();
            }
        }
        let workers = Some(workers);
        for (Entry { peer, version, kind, size, ranks, contender }, values, _) in running {
            let (section, case) = (self.section, case.clone());
            self.push(match contender {
                Ok(_) => Line::Time(Time { section, case, workers, size, ranks, peer, version, kind, unit, values }),
                Err(why) => Line::Absent(Absent { section, case, workers, peer, why: format!("{why:#}") }),
            });
        }
    }
}

/// Measures one contender in one round, by passes that take at least `least` seconds together.
fn visit(contender: &mut dyn Contender, unit: Unit, least: f64) -> Result<f64> {
    let mut total = Pass { batches: 0.0, seconds: 0.0 };
    let mut passes = 0_u32;
    while passes == 0 || total.seconds < least {
        let pass = contender.pass()?;
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
    use anyhow::bail;

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
            Entry::new("steady", Kind::Ours, Ok(|| Ok(Pass { batches: 5.0, seconds: 0.01 }))),
            Entry::new("failing", Kind::Peer, Ok(fails)),
            Entry::new("missing", Kind::Peer, Err::<fn() -> Result<Pass>, _>(anyhow::anyhow!("not here"))),
        ];
        let mut recorder = Recorder::new(Section::SmallImages, 3);
        recorder.heat(Heat { case: String::new(), workers: 1, unit: Unit::MicrosPerBatch, entries });
        let lines = recorder.into_lines();
        let [Line::Run(_), Line::Time(steady), Line::Absent(failing), Line::Absent(missing)] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!((steady.peer.as_str(), &steady.values[..]), ("steady", &[2000.0; 3][..]));
        assert_eq!(failing.why, "out of passes");
        assert_eq!(missing.why, "not here");
    }

    #[test]
    fn a_value_per_pass_is_the_time_of_one_pass() {
        let mut pass = || Ok(Pass { batches: 25.0, seconds: 0.011 });
        assert_eq!(visit(&mut pass, Unit::MillisPerPass, VISIT).unwrap(), 11.0);
        let mut empty = || Ok(Pass { batches: 0.0, seconds: 0.0 });
        assert!(visit(&mut empty, Unit::MillisPerPass, VISIT).is_err());
    }
}
