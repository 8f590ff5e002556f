//! What takes the batches: keeps them, drops them on other threads, leaks one, leaves passes, and notes what came.

use shuttle::thread::{self, JoinHandle};
use slotline::Error;
use slotline::loader::{Batch, OnHeld, Output, Pass, State};

use crate::dataset::{Rows, Words, give_way, step};
use crate::scenario::{Scenario, below, one_in};

/// What comes of a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Came {
    /// Its number, unless a function made it, and its samples.
    Batch(Option<usize>, Vec<Words>),
    /// Its number, the sample's index and position, and how many were bad, if that is why.
    Failed(&'static str, [usize; 4]),
}

impl Came {
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

/// A batch, however it was made.
pub(crate) trait Made: Send + 'static {
    fn number(&self) -> Option<usize>;
    fn samples(&self) -> Vec<Words>;
    /// Where its rows are, if they are in the loader's memory.
    fn places(&self) -> Vec<usize>;
}

impl<S: 'static> Made for Batch<S> {
    fn number(&self) -> Option<usize> {
        Some(self.task())
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

/// A batch in somebody's hands.
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

    /// Drops it, if it is still what it was.
    fn end(self) {
        step();
        assert_eq!(self.batch.samples(), self.samples, "nobody writes a batch that is held");
        self.rows.release(&self.places);
    }
}

/// All that are.
pub(crate) struct Hands<B: Made> {
    rows: Rows,
    kept: Vec<Held<B>>,
    others: Vec<JoinHandle<()>>,
    pub(crate) leaked: usize,
}

/// How a pass ended.
pub(crate) enum End {
    Over,
    Left(Box<State>),
    Stopped,
    /// A worker was lost, and the loader with it.
    Died,
}

impl<B: Made> Hands<B> {
    pub(crate) fn new(rows: &Rows) -> Self {
        Self { rows: rows.clone(), kept: Vec::new(), others: Vec::new(), leaked: 0 }
    }

    /// Does something or other with a batch.
    fn take(&mut self, batch: B, scenario: &Scenario) {
        let held = Held::new(batch, &self.rows);
        // Who waits for a batch must not have them all, unless a stop is to come.
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

    /// Drops all of them, and says whether there were any.
    pub(crate) fn release(&mut self) -> bool {
        let any = !self.kept.is_empty() || !self.others.is_empty();
        self.kept.drain(..).for_each(Held::end);
        self.others.drain(..).for_each(|other| other.join().expect("no panic"));
        any
    }

    /// Takes the batches of a pass, or so many of them.
    pub(crate) fn take_pass(
        &mut self,
        mut pass: Pass<'_, impl Output<Item = B>>,
        scenario: &Scenario,
        leave: Option<usize>,
        came: &mut Vec<Came>,
    ) -> End {
        let mut failing = scenario.failing().into_iter();
        let mut taken = 0;
        while leave != Some(taken) {
            let outcome = pass.next();
            taken += 1;
            match outcome {
                Some(Ok(batch)) => {
                    came.push(Came::Batch(batch.number(), batch.samples()));
                    self.take(batch, scenario);
                }
                None => {
                    assert_eq!(failing.next(), None, "who cannot begin is named first");
                    assert!(pass.next().is_none());
                    return End::Over;
                }
                Some(Err(Error::Timeout { .. })) if scenario.timeout => give_way(),
                Some(Err(Error::Stopped)) if scenario.caller.stop.is_some() => {
                    assert!(pass.next().is_none());
                    return End::Stopped;
                }
                Some(Err(Error::WorkerDied { .. })) if scenario.mishaps => {
                    assert!(pass.next().is_none());
                    return End::Died;
                }
                Some(Err(Error::WorkerInit { worker, .. })) => assert_eq!(failing.next(), Some(worker)),
                Some(Err(Error::Held { .. })) => {
                    assert!(matches!(scenario.on_held, OnHeld::Fail | OnHeld::Wait), "more memory was to be had");
                    assert!(self.release() || self.leaked > 0, "nobody holds anything");
                }
                Some(Err(error)) => came.push(Came::failed(0, error)),
            }
        }
        let state = pass.state();
        if scenario.caller.leaks && one_in(3) {
            std::mem::forget(pass);
        }
        End::Left(Box::new(state))
    }
}
