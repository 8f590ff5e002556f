//! What becomes of bad samples: ones that cannot be read or written, by an error or a panic, wherever they are.

mod budgets;
mod collate;
mod iterable;
mod rows;
mod rude;

use std::fmt;

use slotline::dataset::Context;
use slotline::loader::{Budget, Builder, OnError};
use slotline::rng::rand_core::Rng;
use slotline::sample::{Fields, Packed, Row, Sample, Text};
use slotline::{Batch, BoxError, Dataset, Error, Loader};

const SKIP: OnError = OnError::Skip(Budget::Samples(usize::MAX));
const REPLACE: OnError = OnError::Replace(Budget::Samples(usize::MAX));

/// How a sample can be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Panic,
    /// In the middle of its row.
    Write,
    WritePanic,
    /// It has other fields than were declared.
    Mismatch,
    /// It has more items than a batch has room for.
    Full,
}

const FAULTS: [Fault; 6] = [Fault::Error, Fault::Panic, Fault::Write, Fault::WritePanic, Fault::Mismatch, Fault::Full];

/// A sample of fields of each kind, but for packed ones if it is not `PACKED`.
struct Sheet<const PACKED: bool> {
    index: usize,
    word: u64,
    fault: Option<Fault>,
}

/// What is written of an index: of some length.
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

/// Samples of which some are bad.
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

    /// So that nothing has to be read to build the loader.
    fn fields(&self) -> Option<Fields> {
        Some(Fields::of(&Sheet::<PACKED> { index: 0, word: 0, fault: None }))
    }
}

/// A row of a batch: what it says in all of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    index: usize,
    word: u64,
}

/// The rows of a batch, which must be whole.
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

/// A batch's number and rows, or its error in words.
type Outcome = Result<(usize, Vec<Seen>), String>;

fn outcome<S>(batch: Result<Batch<S>, Error>) -> Outcome {
    batch.map(|batch| (batch.task(), rows(&batch))).map_err(|error| said(&error))
}

/// An error without who it was by, which is a matter of luck.
fn said(error: &Error) -> String {
    match error {
        Error::Sample { index, position, task, source, .. } => {
            format!("sample {index} at {position} of {task}: {source}")
        }
        Error::Panic { index, position, task, message, .. } => {
            format!("panic {index} at {position} of {task}: {message}")
        }
        Error::BadSamples { bad, budget, source } => format!("{bad} bad of {budget}: {}", said(source)),
        other => panic!("{other}"),
    }
}

/// What must not matter.
#[derive(Clone, Copy)]
struct How {
    workers: usize,
    part_size: Option<usize>,
    many: bool,
    dealt: bool,
}

const HOWS: [How; 8] = [
    How { workers: 0, part_size: None, many: false, dealt: false },
    How { workers: 0, part_size: None, many: true, dealt: false },
    How { workers: 1, part_size: Some(3), many: false, dealt: false },
    How { workers: 2, part_size: Some(1), many: false, dealt: false },
    How { workers: 2, part_size: Some(5), many: true, dealt: false },
    How { workers: 3, part_size: None, many: false, dealt: false },
    How { workers: 0, part_size: None, many: false, dealt: true },
    How { workers: 2, part_size: None, many: true, dealt: true },
];

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, part_size, many, dealt } = self;
        write!(f, "{workers} workers, part_size {part_size:?}, many {many}, dealt {dealt}")
    }
}

/// What a loader gave in two passes, how many bad samples it says it met, and which.
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
    let mut builder = builder.num_workers(how.workers);
    if let Some(part_size) = how.part_size {
        builder = builder.part_size(part_size);
    }
    let mut loader = builder.round_robin(how.dealt).build().unwrap();
    let passes = [(); 2].map(|()| loader.epoch().unwrap().map(outcome).collect());
    Report { passes, bad: loader.stats().bad_samples as usize, indices: loader.stats().bad_indices }
}

/// The two passes of a loader that has no bad samples.
fn good<const PACKED: bool>() -> [Vec<Vec<Seen>>; 2] {
    let passes = report::<PACKED>(builder(Fault::Error, |_| false, false), HOWS[0]).passes;
    passes.map(|pass| pass.into_iter().map(|batch| batch.unwrap().1).collect())
}
