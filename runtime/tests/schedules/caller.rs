//! The caller of a loader, which keeps batches, drops them on other threads, leaks one, leaves
//! passes early, and records the outcomes.

use shuttle::thread::{self, JoinHandle};
use slotline::Error;
use slotline::loader::{Batch, OnHeld, Output, Pass, State};

use crate::dataset::{Rows, Words, give_way, step};
use crate::scenario::{Scenario, below, one_in};

/// The result that a pass returns for a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The batch's number (`None` if a collate function made it) and its samples.
    Batch(Option<usize>, Vec<Words>),
    /// The kind of the failure; and the batch's number, the index and the position of the sample,
    /// and the number of bad samples if their budget was exceeded.
    Failed(&'static str, [usize; 4]),
}

impl Outcome {
    pub(crate) fn new<B: Made>(outcome: Result<B, Error>) -> Self {
        match outcome {
            Ok(batch) => Self::Batch(batch.number(), batch.samples()),
            Err(error) => Self::failed(0, error),
        }
    }

    fn failed(bad: usize, error: Error) -> Self {
        match error {
            Error::Sample { index, position, task, .. } => Self::Failed("error", [task, index, position, bad]),
            Error::Panic { index, position, task, .. } => Self::Failed("panic", [task, index, position, bad]),
            Error::Sampler { task, .. } => Self::Failed("sampler", [task, 0, 0, bad]),
            Error::BadSamples { bad, source, .. } => Self::failed(bad, *source),
            error => panic!("{error:?}"),
        }
    }
}

/// A batch of any kind.
pub(crate) trait Made: Send + 'static {
    fn number(&self) -> Option<usize>;
    fn samples(&self) -> Vec<Words>;
    /// Returns the addresses of the batch's rows, if they are in the loader's memory.
    fn places(&self) -> Vec<usize>;
}

impl<S: 'static> Made for Batch<S> {
    fn number(&self) -> Option<usize> {
        Some(self.batch_index())
    }

    fn samples(&self) -> Vec<Words> {
        let columns = self.columns();
        let words = columns.get(0).expect("a field").typed::<u64>().expect("numbers");
        words.as_slice().chunks_exact(4).map(|row| row.try_into().expect("four")).collect()
    }

    fn places(&self) -> Vec<usize> {
        let columns = self.columns();
        let words = columns.get(0).expect("a field").typed::<u64>().expect("numbers");
        words.as_slice().chunks_exact(4).map(|row| row.as_ptr().addr()).collect()
    }
}

/// A batch that the caller holds.
struct Held<B: Made> {
    batch: B,
    samples: Vec<Words>,
    places: Vec<usize>,
    rows: Rows,
}

impl<B: Made> Held<B> {
    fn new(batch: B, rows: &Rows) -> Self {
        let (samples, places, rows) = (batch.samples(), batch.places(), rows.clone());
        rows.hold(&places);
        Self { batch, samples, places, rows }
    }

    /// Asserts that the batch did not change, and drops it.
    fn end(self) {
        step();
        assert_eq!(self.batch.samples(), self.samples, "no thread writes to a batch that is held");
        self.rows.release(&self.places);
    }
}

/// All batches that the caller holds.
pub(crate) struct Hands<B: Made> {
    rows: Rows,
    kept: Vec<Held<B>>,
    others: Vec<JoinHandle<()>>,
    pub(crate) leaked: usize,
}

/// The way in which a pass ended.
pub(crate) enum End {
    Whole,
    Left(Box<State>),
    Stopped,
    /// A worker was lost, so the loader cannot deliver any more batches.
    Died,
}

impl<B: Made> Hands<B> {
    pub(crate) fn new(rows: &Rows) -> Self {
        Self { rows: rows.clone(), kept: Vec::new(), others: Vec::new(), leaked: 0 }
    }

    /// Keeps, leaks or drops a batch, or sends it to another thread to drop.
    fn take(&mut self, batch: B, scenario: &Scenario) {
        let held = Held::new(batch, &self.rows);
        // With `OnHeld::Wait`, a caller that keeps all batches would wait forever, unless the
        // loader will be stopped.
        let may_keep = scenario.on_held != OnHeld::Wait || scenario.caller.stop.is_some();
        match below(if scenario.caller.keeps { 8 } else { 1 }) {
            1..4 if may_keep => self.kept.push(held),
            4 if scenario.caller.leaks && self.leaked == 0 => {
                self.leaked += 1;
                std::mem::forget(held);
            }
            1..7 => self.others.push(thread::spawn(move || {
                (0..below(20)).for_each(|_| step());
                held.end();
            })),
            _ => held.end(),
        }
    }

    /// Drops all batches, and returns whether there were any.
    pub(crate) fn release(&mut self) -> bool {
        let any = !self.kept.is_empty() || !self.others.is_empty();
        self.kept.drain(..).for_each(Held::end);
        self.others.drain(..).for_each(|other| other.join().expect("no panic"));
        any
    }

    /// Takes the batches of a pass, up to `leave` of them.
    pub(crate) fn take_pass(
        &mut self,
        mut pass: Pass<'_, impl Output<Item = B>>,
        scenario: &Scenario,
        leave: Option<usize>,
        outcomes: &mut Vec<Outcome>,
    ) -> End {
        let mut failing = scenario.failing().into_iter();
        let mut taken = 0;
        while leave != Some(taken) {
            let outcome = pass.next();
            taken += 1;
            match outcome {
                Some(Ok(batch)) => {
                    outcomes.push(Outcome::Batch(batch.number(), batch.samples()));
                    self.take(batch, scenario);
                }
                None => {
                    assert_eq!(failing.next(), None, "workers that cannot start are reported first");
                    assert!(pass.next().is_none());
                    return End::Whole;
                }
                Some(Err(Error::Timeout { .. })) if scenario.timeout => give_way(),
                Some(Err(Error::Stopped)) if scenario.caller.stop.is_some() => {
                    assert!(pass.next().is_none());
                    return End::Stopped;
                }
                Some(Err(Error::WorkerDied { .. })) if scenario.worker_panics => {
                    assert!(pass.next().is_none());
                    return End::Died;
                }
                Some(Err(Error::WorkerInit { worker, .. })) => assert_eq!(failing.next(), Some(worker)),
                Some(Err(Error::Held { .. })) => {
                    assert!(
                        matches!(scenario.on_held, OnHeld::Fail | OnHeld::Wait),
                        "the loader could have allocated more memory"
                    );
                    assert!(self.release() || self.leaked > 0, "no batch is held");
                }
                Some(Err(error)) => outcomes.push(Outcome::failed(0, error)),
            }
        }
        let state = pass.state();
        if scenario.caller.leaks && one_in(3) {
            std::mem::forget(pass);
        }
        End::Left(Box::new(state))
    }
}
