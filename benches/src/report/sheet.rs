//! The recorded lines, with queries, medians and spreads.

use crate::record::{Kind, Line, Time, Unit};

/// The median and the quartiles of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The first quartile: a quarter of the values is below it.
    pub low: f64,
    /// The median: half of the values is below it.
    pub median: f64,
    /// The third quartile: three quarters of the values are below it.
    pub high: f64,
}

impl Spread {
    /// Returns the quartiles of `values`, interpolated between neighbours. Returns `None` if there
    /// are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { low: at(0.25), median: at(0.5), high: at(0.75) })
    }
}

/// The lines of a report.
#[derive(Debug)]
pub struct Sheet {
    lines: Vec<Line>,
}

/// A comparison: a variant of a section, and the number of workers if the
/// section has workers.
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

    /// Iterates over the measurements of a section: times, memory and counts.
    pub fn times<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Time> {
        self.lines.iter().filter_map(move |line| match line {
            Line::Time(time) if time.section == section => Some(time),
            _ => None,
        })
    }

    /// Returns the comparisons of a section. Variants are in the order of their measurement, and
    /// the comparisons of a variant are sorted by the number of workers.
    pub fn columns(&self, section: &str) -> Vec<Column> {
        let cases = distinct(self.times(section).map(|time| &time.case));
        let mut columns = distinct(self.times(section).map(|time| (time.case.clone(), time.workers)));
        columns.sort_by_key(|(case, workers)| (cases.iter().position(|other| *other == case), *workers));
        columns
    }

    /// Iterates over the measurements of a comparison except memory.
    pub fn comparison<'a>(&'a self, section: &'a str, column: &'a Column) -> impl Iterator<Item = &'a Time> {
        self.in_column(section, column).filter(|time| time.unit != Unit::Bytes)
    }

    fn in_column<'a>(&'a self, section: &'a str, column: &'a Column) -> impl Iterator<Item = &'a Time> {
        self.times(section).filter(move |time| time.case == column.0 && time.workers == column.1)
    }

    /// Returns the times of a contender in a comparison.
    pub fn of<'a>(&'a self, section: &'a str, column: &'a Column, peer: &str) -> Option<&'a Time> {
        self.comparison(section, column).find(|time| time.peer == peer)
    }

    /// Returns the memory of a contender in a comparison.
    pub fn memory<'a>(&'a self, section: &'a str, column: &'a Column, peer: &str) -> Option<&'a Time> {
        self.in_column(section, column).find(|time| time.unit == Unit::Bytes && time.peer == peer)
    }

    /// Returns slotline with its default options.
    pub fn ours<'a>(&'a self, section: &'a str, column: &'a Column) -> Option<&'a Time> {
        self.comparison(section, column).find(|time| time.kind == Kind::Ours)
    }

    /// Returns slotline's time divided by the time of the best peer in the same round.
    pub fn ratio(&self, section: &str, column: &Column) -> Option<Spread> {
        let peers: Vec<&Time> = self.comparison(section, column).filter(|time| time.kind == Kind::Peer).collect();
        over(self.ours(section, column)?, &peers)
    }
}

/// Returns the distinct values, in the order in which they first appear.
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut known, value| {
        if !known.contains(&value) {
            known.push(value);
        }
        known
    })
}

/// Returns the spread of `time` divided by the smallest of the other times in the same round.
pub fn over(time: &Time, others: &[&Time]) -> Option<Spread> {
    Spread::of(time.values.iter().enumerate().filter_map(|(round, value)| {
        let best = others.iter().filter_map(|other| other.values.get(round)).copied().min_by(f64::total_cmp)?;
        Some(value / best)
    }))
}

/// Returns the spread of a contender's times. Every recorded contender has at least one value.
pub fn spread(time: &Time) -> Spread {
    Spread::of(time.values.iter().copied()).expect("a recorded value")
}

/// Returns the median of a contender's times.
pub fn median(time: &Time) -> f64 {
    spread(time).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0, 5.0, 4.0]), Some(Spread { low: 2.0, median: 3.0, high: 4.0 }));
        assert_eq!(Spread::of([4.0, 2.0]), Some(Spread { low: 2.5, median: 3.0, high: 3.5 }));
        assert_eq!(Spread::of([7.0]), Some(Spread { low: 7.0, median: 7.0, high: 7.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
