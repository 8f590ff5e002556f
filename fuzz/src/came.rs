//! What comes of a pass, and the hands that hold batches for a while.

use std::collections::VecDeque;

use slotline::loader::{Batch, OnHeld};
use slotline::{BoxError, Error};

use crate::choices::Choices;

/// A sample of the datasets here: its index, bytes made from it, one of its random numbers, and a text of its own length.
pub(crate) type Item<'a> = (i64, [u8; 6], u64, slotline::sample::Ragged<'a, u8>);
/// And the schema of their batches.
pub(crate) type Schema = (i64, u8, u64, slotline::sample::Ragged<'static, u8>);

/// The longest text.
pub(crate) const MOST_TEXT: usize = 5;
pub(crate) const TEXT: [u8; MOST_TEXT] = *b"abcde";

/// The bytes of a sample.
pub(crate) fn pixels(index: usize) -> [u8; 6] {
    std::array::from_fn(|i| (index.wrapping_mul(31).wrapping_add(i * 7) >> (i % 3)) as u8)
}

/// The text of a sample.
pub(crate) fn text(index: usize) -> &'static [u8] {
    &TEXT[..index % (MOST_TEXT + 1)]
}

/// What is wrong with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error,
    Panic,
}

/// Fails as a fault says. A panic goes by the hook, which would end a fuzzer.
pub(crate) fn fail(fault: Fault) -> BoxError {
    match fault {
        Fault::Error => "bad".into(),
        Fault::Panic => std::panic::resume_unwind(Box::new("worse")),
    }
}

/// One sample of a batch, as it came: its index, its random number, and whether all the rest of it is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) index: usize,
    pub(crate) word: u64,
}

/// A sample that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) index: usize,
    pub(crate) position: usize,
    pub(crate) fault: Fault,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Batch {
        epoch: u32,
        task: usize,
        samples: Vec<Sample>,
    },
    Failed {
        task: usize,
        failed: Failed,
    },
    /// Beyond the budget: how many are bad by now.
    Beyond {
        task: usize,
        failed: Failed,
        bad: usize,
    },
}

impl Came {
    /// Reads a batch to the last byte.
    fn of<S>(batch: &Batch<S>) -> Self {
        let columns = batch.columns();
        let of = |i: usize| columns.get(i).expect("a field");
        let numbers = of(0).typed::<i64>().expect("numbers").as_slice();
        let words = of(2).typed::<u64>().expect("words").as_slice();
        let (bytes, texts) = (of(1), of(3));
        let lengths = columns.lengths(3).expect("a ragged field");
        assert_eq!((batch.len(), batch.indices().len()), (numbers.len(), numbers.len()));
        assert_eq!((words.len(), lengths.len()), (numbers.len(), numbers.len()));
        let samples = numbers.iter().enumerate().map(|(row, &number)| {
            let index = number as usize;
            assert_eq!(bytes.bytes()[6 * row..6 * (row + 1)], pixels(index));
            let text = text(index);
            let (written, padding) = texts.bytes()[MOST_TEXT * row..MOST_TEXT * (row + 1)].split_at(text.len());
            assert_eq!((lengths[row], written), (text.len() as i64, text));
            assert!(padding.iter().all(|&byte| byte == 0));
            Sample { index, word: words[row] }
        });
        Self::Batch { epoch: batch.epoch(), task: batch.task(), samples: samples.collect() }
    }

    pub(crate) fn task(&self) -> usize {
        match *self {
            Self::Batch { task, .. } | Self::Failed { task, .. } | Self::Beyond { task, .. } => task,
        }
    }
}

/// The sample that an error names, and its batch.
fn failed(error: &Error) -> Option<(usize, Failed)> {
    let named = |task: usize, index: usize, position: usize, fault| Some((task, Failed { index, position, fault }));
    match error {
        Error::Sample { index, position, task, .. } => named(*task, *index, *position, Fault::Error),
        Error::Panic { index, position, task, message, .. } => {
            assert_eq!(message, "worse", "a panic that is not the dataset's");
            named(*task, *index, *position, Fault::Panic)
        }
        _ => None,
    }
}

/// Batches that are held for a while, with what they were when they came.
pub(crate) struct Hands<S> {
    held: VecDeque<Held<S>>,
    /// How many are kept, and how many the loader was told of.
    keep: usize,
    hold: usize,
    /// What the loader was told to do if there are more.
    on_held: OnHeld,
}

struct Held<S> {
    batch: Batch<S>,
    it: Came,
}

/// What a pass gave.
pub(crate) struct Given {
    pub(crate) came: Vec<Came>,
    /// Whether it came to its end.
    pub(crate) ended: bool,
}

impl<S: 'static> Hands<S> {
    /// Hands of nothing yet, that are to keep as many as the loader was told of, or sometimes more.
    pub(crate) fn new(hold: usize, on_held: OnHeld, choices: &mut Choices<'_>) -> Self {
        let more = if choices.one_in(8) { choices.below(9) } else { 0 };
        Self { held: VecDeque::new(), keep: choices.below(hold + 1) + more, hold, on_held }
    }

    /// Takes up to `most` batches, or errors in their places, of a pass. `indices` says whether a batch's own indices are
    /// those of the dataset.
    pub(crate) fn take(
        &mut self,
        pass: &mut impl Iterator<Item = Result<Batch<S>, Error>>,
        most: usize,
        indices: bool,
        choices: &mut Choices<'_>,
    ) -> Given {
        let mut came = Vec::new();
        while came.len() < most {
            let Some(next) = pass.next() else { return Given { came, ended: true } };
            came.push(match next {
                Ok(batch) => {
                    let it = Came::of(&batch);
                    if let (true, Came::Batch { samples, .. }) = (indices, &it) {
                        assert!(samples.iter().map(|sample| sample.index as i64).eq(batch.indices().iter().copied()));
                    }
                    self.held.push_back(Held { batch, it: it.clone() });
                    it
                }
                Err(Error::Held { task, epoch, source, .. }) => {
                    // There may be a limit to the memory.
                    assert_eq!(source.is_none(), self.on_held == OnHeld::Fail);
                    assert!(self.held.len() > self.hold, "no more are kept than it was told of");
                    let oldest = self.held.iter().map(|held| (held.batch.epoch(), held.batch.task())).min();
                    assert_eq!(oldest, Some((epoch, task)), "another one was kept longer");
                    self.let_go(choices.below(self.held.len()), choices);
                    continue;
                }
                Err(Error::BadSamples { bad, source, .. }) => {
                    let (task, failed) = failed(&source).expect("a sample's error");
                    Came::Beyond { task, failed, bad }
                }
                Err(error) => match failed(&error) {
                    Some((task, failed)) => Came::Failed { task, failed },
                    None => panic!("{error}"),
                },
            });
            while self.held.len() > self.keep {
                self.let_go(choices.below(self.held.len()), choices);
            }
        }
        Given { came, ended: false }
    }

    /// Drops a batch, which must be what it was.
    fn let_go(&mut self, which: usize, choices: &mut Choices<'_>) {
        let Held { batch, it, .. } = self.held.remove(which).expect("it is there");
        assert_eq!(Came::of(&batch), it, "a batch changed while it was held");
        if choices.one_in(32) {
            std::thread::spawn(move || drop(batch)).join().expect("no panic");
        }
    }

    /// Drops all that are held.
    pub(crate) fn empty(&mut self, choices: &mut Choices<'_>) {
        while !self.held.is_empty() {
            self.let_go(0, choices);
        }
    }
}
