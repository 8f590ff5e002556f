//! Tests of bad samples, which fail with an error or a panic while they are read or written.

mod budgets;
mod collate;
mod iterable;
mod misbehaving;
mod rows;

use std::fmt;

use slotline::dataset::Context;
use slotline::loader::{Budget, Builder, OnError};
use slotline::rng::rand_core::Rng;
use slotline::sample::{Fields, Packed, Row, Sample, Text};
use slotline::{Batch, BoxError, Dataset, Error, Loader};

use crate::support::{HAS_PROCESSES, Workers};

const SKIP: OnError = OnError::Skip(Budget::Samples(usize::MAX));
const REPLACE: OnError = OnError::Replace(Budget::Samples(usize::MAX));

/// The ways in which a sample fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Panic,
    /// Fails after writing part of its row.
    Write,
    WritePanic,
    /// Writes fields that were not declared.
    Mismatch,
    /// Has more items than fit in a batch.
    Full,
}

const FAULTS: [Fault; 6] = [Fault::Error, Fault::Panic, Fault::Write, Fault::WritePanic, Fault::Mismatch, Fault::Full];

/// A sample with a field of each kind. Packed fields are included only if `PACKED` is true.
struct Sheet<const PACKED: bool> {
    index: usize,
    word: u64,
    fault: Option<Fault>,
}

/// Returns a text for an index, whose length varies.
fn text(index: usize) -> String {
    "abcdefghijkl"[index % 5..][..index % 7].to_owned()
}

impl<const PACKED: bool> Sample for Sheet<PACKED> {
    type Schema = i64;

    fn declare(&self, fields: &mut Fields) {
        (0_i64, [0_u64; 3], Text::new("", 8)).declare(fields);
        if PACKED {
            (Packed::new(&[0_u16], 8), Packed::new(&[0_u8], 8)).declare(fields);
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let text = text(self.index);
        (self.index as i64, [self.word; 3]).write(row)?;
        let wide: Vec<u16> = text.bytes().map(u16::from).collect();
        if PACKED {
            Text::new(&text, 8).write(row)?;
            Packed::new(&wide, 8).write(row)?;
        }
        match self.fault {
            Some(Fault::Write) => return Err("torn".into()),
            Some(Fault::WritePanic) => panic!("torn"),
            Some(Fault::Mismatch) => return [0_f32; 2].write(row),
            Some(Fault::Full) if PACKED => return Packed::new(&[0_u8; 1000], 8).write(row),
            Some(Fault::Full) => return Text::new("longer than eight", 99).write(row),
            _ => {}
        }
        if PACKED { Packed::new(text.as_bytes(), 8).write(row) } else { Text::new(&text, 8).write(row) }
    }
}

/// A dataset in which some samples are bad.
struct Sheets<const PACKED: bool> {
    len: usize,
    fault: Fault,
    bad: fn(usize) -> bool,
    many: bool,
}

impl<const PACKED: bool> Dataset for Sheets<PACKED> {
    type Sample<'a> = Sheet<PACKED>;

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Sheet<PACKED>, BoxError> {
        let fault = (self.bad)(index).then_some(self.fault);
        match fault {
            Some(Fault::Error) => Err(format!("no {index}").into()),
            Some(Fault::Panic) => panic!("no {index}"),
            _ => Ok(Sheet { index, word: cx.rng().next_u64(), fault }),
        }
    }

    fn reads_many(&self) -> bool {
        self.many
    }

    /// Returns the fields, so that `build` reads no sample.
    fn fields(&self) -> Option<Fields> {
        Some(Fields::of(&Sheet::<PACKED> { index: 0, word: 0, fault: None }))
    }
}

/// The index and the random number in a row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    index: usize,
    word: u64,
}

/// Checks that all fields of each row belong to one sample, and returns the rows.
#[track_caller]
fn rows<S>(batch: &Batch<S>) -> Vec<Seen> {
    let columns = batch.columns();
    let typed = |i: usize| columns.get(i).unwrap();
    let (numbers, words) = (typed(0).typed::<i64>().unwrap(), typed(1).typed::<u64>().unwrap());
    assert_eq!(numbers.as_slice(), batch.indices());
    let (texts, lengths) = (typed(2).typed::<u8>().unwrap(), columns.lengths(2).unwrap());
    assert_eq!((words.shape(), texts.shape()), (&[batch.len(), 3][..], &[batch.len(), 8][..]));
    let row = |(row, &number): (usize, &i64)| {
        let (index, text) = (number as usize, text(number as usize));
        let padded = &texts.as_slice()[row * 8..][..8];
        assert_eq!(lengths[row] as usize, text.len());
        assert!(padded.starts_with(text.as_bytes()) && padded[text.len()..].iter().all(|&byte| byte == 0));
        if columns.len() > 3 {
            let (wide, narrow) = (columns.offsets(3).unwrap(), columns.offsets(4).unwrap());
            assert_eq!((wide, wide[0], wide.len()), (narrow, 0, batch.len() + 1));
            let items = wide[row] as usize..wide[row + 1] as usize;
            assert_eq!(&typed(4).typed::<u8>().unwrap().as_slice()[items.clone()], text.as_bytes());
            assert!(typed(3).typed::<u16>().unwrap().as_slice()[items].iter().copied().eq(text.bytes().map(u16::from)));
        }
        let word = words.as_slice()[row * 3];
        assert_eq!(words.as_slice()[row * 3..][..3], [word; 3]);
        Seen { index, word }
    };
    numbers.as_slice().iter().enumerate().map(row).collect()
}

/// A batch's task and rows, or its error as text.
type Outcome = Result<(usize, Vec<Seen>), String>;

fn outcome<S>(batch: Result<Batch<S>, Error>) -> Outcome {
    batch.map(|batch| (batch.batch_index(), rows(&batch))).map_err(|error| describe(&error))
}

/// Formats an error without the thread that reported it, which depends on timing.
fn describe(error: &Error) -> String {
    match error {
        Error::Sample { index, position, task, source, .. } => {
            format!("sample {index} at {position} of {task}: {source}")
        }
        Error::Panic { index, position, task, message, .. } => {
            format!("panic {index} at {position} of {task}: {message}")
        }
        Error::BadSamples { bad, budget, source } => format!("{bad} bad of {budget}: {}", describe(source)),
        other => panic!("{other}"),
    }
}

/// Options that must not change the result.
#[derive(Clone, Copy)]
struct How {
    workers: usize,
    part_size: Option<usize>,
    many: bool,
    round_robin: bool,
    processes: bool,
}

const HOWS: [How; 10] = [
    How { workers: 0, part_size: None, many: false, round_robin: false, processes: false },
    How { workers: 0, part_size: None, many: true, round_robin: false, processes: false },
    How { workers: 1, part_size: Some(3), many: false, round_robin: false, processes: false },
    How { workers: 2, part_size: Some(1), many: false, round_robin: false, processes: false },
    How { workers: 2, part_size: Some(5), many: true, round_robin: false, processes: false },
    How { workers: 3, part_size: None, many: false, round_robin: false, processes: false },
    How { workers: 0, part_size: None, many: false, round_robin: true, processes: false },
    How { workers: 2, part_size: None, many: true, round_robin: true, processes: false },
    How { workers: 2, part_size: Some(2), many: false, round_robin: false, processes: HAS_PROCESSES },
    How { workers: 1, part_size: None, many: true, round_robin: false, processes: HAS_PROCESSES },
];

/// Returns the options to test with a fault. Processes take longer, and are tested with some faults
/// only.
fn hows(fault: Fault) -> impl Iterator<Item = How> {
    HOWS.into_iter().filter(move |how| !how.processes || matches!(fault, Fault::Error | Fault::WritePanic))
}

impl How {
    fn workers(self) -> Workers {
        Workers { workers: self.workers, processes: self.processes }
    }
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, part_size, many, round_robin, processes } = self;
        write!(f, "{workers} workers, part_size {part_size:?}, many {many}, ")?;
        write!(f, "round_robin {round_robin}, processes {processes}")
    }
}

/// The batches of two passes of a loader, with the number and the indices of the bad samples in its
/// statistics.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    passes: [Vec<Outcome>; 2],
    bad: usize,
    indices: Vec<usize>,
}

const LEN: usize = 42;
const BATCH: usize = 8;

fn builder<const PACKED: bool>(fault: Fault, bad: fn(usize) -> bool, many: bool) -> Builder<Sheets<PACKED>> {
    Loader::builder(Sheets { len: LEN, fault, bad, many }).batch_size(BATCH).shuffle(true).seed(3)
}

fn report<const PACKED: bool>(builder: Builder<Sheets<PACKED>>, how: How) -> Report {
    let builder = match how.part_size {
        Some(part_size) => builder.part_size(part_size),
        None => builder,
    };
    let mut loader = how.workers().build(builder.round_robin(how.round_robin)).unwrap();
    let passes = [(); 2].map(|()| loader.epoch().unwrap().map(outcome).collect());
    Report { passes, bad: loader.stats().bad_samples as usize, indices: loader.stats().bad_indices }
}

/// Returns two passes of a loader without bad samples.
fn good<const PACKED: bool>() -> [Vec<Vec<Seen>>; 2] {
    let passes = report::<PACKED>(builder(Fault::Error, |_| false, false), HOWS[0]).passes;
    passes.map(|pass| pass.into_iter().map(|batch| batch.unwrap().1).collect())
}
