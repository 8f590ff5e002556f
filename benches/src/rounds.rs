//! Measures the contenders of a heat in turn, round after round.
//!
//! Machines drift by a factor of two within an hour, so that times taken one contender after the other compare the
//! machine with itself. Here each round visits all of them, and ratios are taken within a round.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::machine::Machine;
use crate::record::{Absent, Kind, Line, Run, Section, Time, Unit};

/// Passes are repeated until a visit took so long: one pass of tiny batches is short.
const VISIT: f64 = 0.02;
/// Between visits, so that the threads of the last contender have gone to sleep.
const PAUSE: Duration = Duration::from_millis(2);

/// What a pass took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// Batches, where a last one that is not full counts as a part of one.
    pub batches: f64,
    /// From asking for the pass to its end.
    pub seconds: f64,
}

/// Someone who is measured.
pub trait Contender {
    /// Goes through one pass.
    ///
    /// # Errors
    ///
    /// If it can't, or if the contents are not what they should be. It is then reported absent.
    fn pass(&mut self) -> Result<Pass>;
}

/// A function is one.
impl<F: FnMut() -> Result<Pass>> Contender for F {
    fn pass(&mut self) -> Result<Pass> {
        self()
    }
}

/// A contender with its name.
pub struct Entry {
    /// Who.
    pub peer: String,
    /// The version, of those that have one.
    pub version: Option<String>,
    /// What it is to the comparison.
    pub kind: Kind,
    /// The dataset's size, where that is what varies.
    pub size: Option<u64>,
    /// The contender, or why it is absent.
    pub contender: Result<Box<dyn Contender>>,
}

impl Entry {
    /// An entry without a version.
    pub fn new(peer: impl Into<String>, kind: Kind, contender: Result<impl Contender + 'static>) -> Self {
        let contender = contender.map(|contender| Box::new(contender) as Box<dyn Contender>);
        Self { peer: peer.into(), version: None, kind, size: None, contender }
    }

    /// The version of the package that the peer is named after.
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

/// What is compared with each other: the same work, done by all entries.
#[derive(Debug)]
pub struct Heat {
    /// Which variant of its section; empty if there is but one.
    pub case: String,
    /// How many workers load.
    pub workers: usize,
    /// What is told of each.
    pub unit: Unit,
    /// The contenders.
    pub entries: Vec<Entry>,
}

/// Runs the heats of a section and keeps what they give.
#[derive(Debug)]
pub struct Recorder {
    section: Section,
    rounds: usize,
    lines: Vec<Line>,
}

impl Recorder {
    /// A recorder for a section, whose heats have so many rounds.
    pub fn new(section: Section, rounds: usize) -> Self {
        let run = Run { section, rounds, machine: Machine::of_this_run() };
        let mut recorder = Self { section, rounds, lines: Vec::new() };
        recorder.push(Line::Run(run));
        recorder
    }

    /// How many rounds a heat has.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// What was recorded.
    pub fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// Keeps a line, and prints it.
    pub fn push(&mut self, line: Line) {
        println!("{}", serde_json::to_string(&line).expect("names and numbers"));
        self.lines.push(line);
    }

    /// Measures a heat: visits its entries in turn, round after round.
    pub fn heat(&mut self, heat: Heat) {
        let Heat { case, workers, unit, entries } = heat;
        eprintln!("{} {case} with {workers} workers: {} contenders", self.section.name(), entries.len());
        let mut running: Vec<_> = entries.into_iter().map(|entry| (entry, Vec::new())).collect();
        for _ in 0..self.rounds {
            for (entry, values) in &mut running {
                let Ok(contender) = &mut entry.contender else { continue };
                std::thread::sleep(PAUSE);
                match visit(contender.as_mut(), unit) {
                    Ok(value) => values.push(value),
                    Err(error) => entry.contender = Err(error),
                }
            }
        }
        for (Entry { peer, version, kind, size, contender }, values) in running {
            let (section, case) = (self.section, case.clone());
            self.push(match contender {
                Ok(_) => Line::Time(Time { section, case, workers, size, peer, version, kind, unit, values }),
                Err(why) => Line::Absent(Absent { section, case, workers, peer, why: format!("{why:#}") }),
            });
        }
    }
}

/// One contender's value in one round.
fn visit(contender: &mut dyn Contender, unit: Unit) -> Result<f64> {
    let mut total = Pass { batches: 0.0, seconds: 0.0 };
    let mut passes = 0_u32;
    while passes == 0 || total.seconds < VISIT {
        let pass = contender.pass()?;
        ensure!(pass.batches > 0.0 && pass.seconds > 0.0, "a pass without batches, or without a time");
        total.batches += pass.batches;
        total.seconds += pass.seconds;
        passes += 1;
    }
    let passes = if unit == Unit::MillisPerPass { f64::from(passes) } else { 1.0 };
    Ok(unit.value(total.batches, total.seconds / passes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn all_are_visited_in_each_round_and_who_fails_is_absent() {
        let mut left = 2;
        let fails = move || {
            if left == 0 {
                bail!("worn out");
            }
            left -= 1;
            Ok(Pass { batches: 10.0, seconds: 0.05 })
        };
        let entries = vec![
            Entry::new("steady", Kind::Ours, Ok(|| Ok(Pass { batches: 5.0, seconds: 0.01 }))),
            Entry::new("failing", Kind::Peer, Ok(fails)),
            Entry::new("missing", Kind::Peer, Err::<fn() -> Result<Pass>, _>(anyhow::anyhow!("not here"))),
        ];
        let mut recorder = Recorder::new(Section::W2, 3);
        recorder.heat(Heat { case: String::new(), workers: 1, unit: Unit::MicrosPerBatch, entries });
        let lines = recorder.into_lines();
        let [Line::Run(_), Line::Time(steady), Line::Absent(failing), Line::Absent(missing)] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!((steady.peer.as_str(), &steady.values[..]), ("steady", &[2000.0; 3][..]));
        assert_eq!(failing.why, "worn out");
        assert_eq!(missing.why, "not here");
    }

    #[test]
    fn a_value_per_pass_is_that_of_one_pass() {
        let mut pass = || Ok(Pass { batches: 25.0, seconds: 0.011 });
        assert_eq!(visit(&mut pass, Unit::MillisPerPass).unwrap(), 11.0);
        let mut empty = || Ok(Pass { batches: 0.0, seconds: 0.0 });
        assert!(visit(&mut empty, Unit::MillisPerPass).is_err());
    }
}
