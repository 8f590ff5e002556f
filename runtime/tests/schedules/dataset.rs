//! A dataset that fails at given samples, and whose samples assert that only one thread at a time uses a row.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;
use slotline::BoxError;
use slotline::dataset::{Context, Dataset, IterableDataset, WorkerInfo};
use slotline::rng::rand_core::Rng;
use slotline::sample::{Fields, Row, Sample};

use crate::explore::planned_panic;

/// The contents of a sample: its index, the pass, its position, and the first of its random
/// numbers.
pub(crate) type Words = [u64; 4];

/// Takes a step of the schedule, after which another thread can run.
pub(crate) fn step() {
    thread::sleep(Duration::ZERO);
}

/// Takes a step after which another thread runs, if one can. A caller that retries after timeouts
/// must call this function: a timeout can pass before the ring is checked for the first time, so if
/// the schedule gives the caller the highest priority, no other thread would run between the
/// retries.
pub(crate) fn give_way() {
    thread::yield_now();
}

/// The way in which a sample fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Error,
    Panic,
    WriteError,
    WritePanic,
}

impl Fault {
    fn strike(self, [error, panic]: [Self; 2]) -> Result<(), BoxError> {
        if self == panic {
            planned_panic();
        }
        if self == error { Err("bad".into()) } else { Ok(()) }
    }
}

/// The current use of each row, by the row's address. The lock is std's, as no thread takes a step
/// of the schedule while it holds the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows(Arc<Mutex<BTreeMap<usize, Use>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Written,
    Held,
}

impl Rows {
    fn begin(&self, row: usize, usage: Use) {
        let before = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(row, usage);
        assert_eq!(before, None, "a row that becomes {usage:?} is already in use");
    }

    fn end(&self, row: usize, usage: Use) {
        let before = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&row);
        assert_eq!(before, Some(usage));
    }

    /// Records that the caller holds a batch with these rows.
    pub(crate) fn hold(&self, rows: &[usize]) {
        rows.iter().for_each(|&row| self.begin(row, Use::Held));
    }

    /// Records that a held batch with these rows is about to be dropped.
    pub(crate) fn release(&self, rows: &[usize]) {
        rows.iter().for_each(|&row| self.end(row, Use::Held));
    }
}

/// A guard that marks a row as being written until it is dropped.
struct Writing<'r>(&'r Rows, usize);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.end(self.1, Use::Written);
    }
}

/// A sample that takes several steps to write itself.
pub(crate) struct Marked<'a> {
    pub(crate) words: Words,
    fault: Fault,
    rows: &'a Rows,
}

impl Sample for Marked<'_> {
    type Schema = u64;

    fn declare(&self, fields: &mut Fields) {
        [0_u64; 4].declare(fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let to = row.fill::<u64>(&[4])?;
        let writing = to.as_ptr().addr();
        self.rows.begin(writing, Use::Written);
        let _writing = Writing(self.rows, writing);
        to[..2].copy_from_slice(&self.words[..2]);
        step();
        self.fault.strike([Fault::WriteError, Fault::WritePanic])?;
        assert_eq!(to[..2], self.words[..2], "no other thread writes this row");
        to[2..].copy_from_slice(&self.words[2..]);
        Ok(())
    }
}

/// A dataset with one sample for each fault.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    pub(crate) faults: Arc<[Fault]>,
    pub(crate) rows: Rows,
    /// Counted by the test, to check that the loader's dataset is dropped.
    pub(crate) _life: Arc<()>,
}

impl Dataset for Items {
    type Sample<'a> = Marked<'a>;

    fn len(&self) -> usize {
        self.faults.len()
    }

    fn fields(&self) -> Option<Fields> {
        Some(Fields::of(&[0_u64; 4]))
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Marked<'a>, BoxError> {
        let words = [index as u64, cx.epoch().into(), cx.position(), cx.rng().next_u64()];
        step();
        let fault = self.faults[index];
        fault.strike([Fault::Error, Fault::Panic])?;
        Ok(Marked { words, fault, rows: &self.rows })
    }
}

/// An iterable dataset of the same samples, whose cursors can be saved and resumed.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) items: Items,
    /// The range to read, instead of a worker's share.
    pub(crate) part: Option<Range<usize>>,
}

impl IterableDataset for Stream {
    type Sample<'a> = Marked<'a>;
    type Cursor = Range<usize>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Range<usize>, BoxError> {
        step();
        let share = worker.map(|worker| worker.share(self.items.len()));
        Ok(self.part.clone().or(share).unwrap_or(0..self.items.len()))
    }

    fn next<'a>(&'a self, left: &'a mut Range<usize>, cx: &'a mut Context) -> Result<Option<Marked<'a>>, BoxError> {
        left.next().map(|index| self.items.get(index, cx)).transpose()
    }

    fn fields(&self) -> Option<Fields> {
        self.items.fields()
    }

    fn save(&self, left: &Range<usize>, to: &mut String) -> bool {
        write!(to, "{}..{}", left.start, left.end).is_ok()
    }

    fn resume(&self, _: Option<WorkerInfo>, saved: &str) -> Result<Range<usize>, BoxError> {
        let (start, end) = saved.split_once("..").ok_or("a range")?;
        Ok(start.parse()?..end.parse()?)
    }
}
