//! The recorded lines, with queries on them.

use crate::record::{Kind, Line, Section, Time, Unit};
use crate::stats::Spread;

/// The lines of a report.
#[derive(Debug)]
pub struct Sheet {
    lines: Vec<Line>,
}

/// A heat: a variant of a section, and the number of workers if the section has workers.
pub type Column = (String, Option<usize>);

impl Sheet {
    /// Creates a sheet of these lines.
    pub fn new(lines: Vec<Line>) -> Self {
        Self { lines }
    }

    /// Iterates over all lines.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    /// Iterates over the times of a section.
    pub fn times(&self, section: Section) -> impl Iterator<Item = &Time> {
        self.lines.iter().filter_map(move |line| match line {
            Line::Time(time) if time.section == section => Some(time),
            _ => None,
        })
    }

    /// Returns the sections that have times, in order.
    pub fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.lines.iter().map(Line::section).collect();
        sections.sort();
        sections.dedup();
        sections.retain(|&section| self.times(section).next().is_some());
        sections
    }

    /// Returns the heats of a section: variants in the order of their measurement, each sorted by workers.
    pub fn columns(&self, section: Section) -> Vec<Column> {
        let mut cases: Vec<&str> = Vec::new();
        for time in self.times(section) {
            if !cases.contains(&time.case.as_str()) {
                cases.push(&time.case);
            }
        }
        let mut columns = Vec::new();
        for case in cases {
            let mut workers: Vec<Option<usize>> =
                self.times(section).filter(|time| time.case == case).map(|time| time.workers).collect();
            workers.sort_unstable();
            workers.dedup();
            columns.extend(workers.into_iter().map(|workers| (case.to_owned(), workers)));
        }
        columns
    }

    /// Iterates over the times of a heat.
    pub fn heat<'a>(&'a self, section: Section, column: &'a Column) -> impl Iterator<Item = &'a Time> {
        self.times(section)
            .filter(move |time| time.case == column.0 && time.workers == column.1 && time.unit != Unit::Bytes)
    }

    /// Returns the times of a contender in a heat.
    pub fn of<'a>(&'a self, section: Section, column: &'a Column, peer: &'a str) -> Option<&'a Time> {
        self.heat(section, column).find(move |time| time.peer == peer)
    }

    /// Returns the memory of a contender in a heat.
    pub fn memory<'a>(&'a self, section: Section, column: &'a Column, peer: &'a str) -> Option<&'a Time> {
        let in_column = move |time: &&Time| time.case == column.0 && time.workers == column.1 && time.peer == peer;
        self.times(section).filter(|time| time.unit == Unit::Bytes).find(in_column)
    }

    /// Returns the contender of a kind with the smallest median.
    pub fn best<'a>(&'a self, section: Section, column: &'a Column, kind: Kind) -> Option<&'a Time> {
        let of_kind = self.heat(section, column).filter(move |time| time.kind == kind);
        of_kind.min_by(|a, b| median(a).total_cmp(&median(b)))
    }

    /// Returns `time` divided by the time of the best peer in the same round.
    pub fn ratio(&self, section: Section, column: &Column, time: &Time) -> Option<Spread> {
        let peers: Vec<&Time> = self.heat(section, column).filter(|time| time.kind == Kind::Peer).collect();
        over(time, &peers)
    }
}

/// Returns `time` divided by the smallest of the others in the same round.
pub fn over(time: &Time, others: &[&Time]) -> Option<Spread> {
    Spread::of(time.values.iter().enumerate().filter_map(|(round, value)| {
        let best = others.iter().filter_map(|other| other.values.get(round)).copied().min_by(f64::total_cmp)?;
        Some(value / best)
    }))
}

/// Returns the median of a contender's times. Every recorded contender has at least one value.
pub fn median(time: &Time) -> f64 {
    Spread::of(time.values.iter().copied()).map_or(f64::NAN, |spread| spread.median)
}
