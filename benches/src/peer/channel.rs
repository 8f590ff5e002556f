//! The structure of torch's loader in Rust: channels of index lists, worker threads, and a map for
//! batches that are finished before their turn.
//!
//! Either each worker has its own queue and batches are assigned to the workers in turn, two ahead,
//! or all workers share one queue. Each batch is made in newly allocated memory. Without workers,
//! the loader is a plain loop.

use std::collections::HashMap;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{checked, order};
use crate::rounds::Contender;
use crate::workload::{Plan, Source};

/// The number of batches loaded ahead for each worker, unless the plan sets it.
const PREFETCH: usize = 2;

/// The rule for which worker makes the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The worker whose turn it is, as each has a queue.
    PerWorker,
    /// Any free worker, as all share a queue.
    Shared,
}

/// Both kinds of queues.
pub const QUEUES: [Queue; 2] = [Queue::PerWorker, Queue::Shared];

impl Queue {
    /// Returns the peer's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerWorker => "channel + map",
            Self::Shared => "channel + map, one queue",
        }
    }
}

/// A batch's number in the pass and its indices.
type Task = (usize, Vec<usize>);

struct Loader<S: Source> {
    source: S,
    plan: Plan,
    /// One queue for each worker, or one shared queue.
    queues: Vec<Sender<Task>>,
    results: Receiver<(usize, S::Batch)>,
    workers: Vec<JoinHandle<()>>,
    rng: fastrand::Rng,
}

impl<S: Source> Loader<S> {
    fn new(source: &S, plan: &Plan, queue: Queue) -> Self {
        let (done, results) = unbounded();
        let shared = unbounded::<Task>();
        let mut queues = if queue == Queue::Shared { vec![shared.0] } else { Vec::new() };
        let worker = |_| {
            let tasks = if queue == Queue::Shared {
                shared.1.clone()
            } else {
                let (sender, tasks) = unbounded();
                queues.push(sender);
                tasks
            };
            let (source, done) = (source.clone(), done.clone());
            std::thread::spawn(move || {
                for (task, indices) in tasks {
                    let batch = source.collate(indices.into_iter().map(|index| source.get(index)));
                    if done.send((task, batch)).is_err() {
                        break;
                    }
                }
            })
        };
        let workers = (0..plan.workers).map(worker).collect();
        Self { source: source.clone(), plan: *plan, queues, results, workers, rng: fastrand::Rng::with_seed(42) }
    }

    fn pass(&mut self, each: &mut dyn FnMut(S::Batch) -> Result<()>) -> Result<()> {
        let order = order(self.source.len(), self.plan.shuffle, &mut self.rng);
        let mut tasks = order.chunks(self.plan.batch_size).map(<[usize]>::to_vec).enumerate();
        let queues = &self.queues;
        let mut send = || match tasks.next() {
            Some(task) => queues[task.0 % queues.len()].send(task).context("a worker has exited"),
            None => Ok(()),
        };
        for _ in 0..self.plan.prefetch.unwrap_or(PREFETCH) * self.plan.workers {
            send()?;
        }
        let mut early = HashMap::new();
        for next in 0..order.len().div_ceil(self.plan.batch_size) {
            let batch = loop {
                if let Some(batch) = early.remove(&next) {
                    break batch;
                }
                let (task, batch) = self.results.recv().context("the workers have exited")?;
                if task == next || !self.plan.in_order {
                    break batch;
                }
                early.insert(task, batch);
            };
            send()?;
            each(batch)?;
        }
        Ok(())
    }
}

impl<S: Source> Drop for Loader<S> {
    fn drop(&mut self) {
        self.queues.clear();
        for worker in self.workers.drain(..) {
            // The panic hook has printed a panic already.
            let _ = worker.join();
        }
    }
}

/// Creates a contender and runs one checked pass. It is a loader with workers, or without workers a
/// plain loop.
pub fn contender<S: Source>(source: &S, plan: &Plan, queue: Queue) -> Result<Contender> {
    let mut loader = Loader::new(source, plan, queue);
    if plan.workers > 0 {
        return checked(source, plan, move |each| loader.pass(each));
    }
    checked(source, plan, move |each| {
        let Loader { source, plan, rng, .. } = &mut loader;
        let order = order(source.len(), plan.shuffle, rng);
        let mut batches = order.chunks(plan.batch_size);
        batches.try_for_each(|indices| each(source.collate(indices.iter().map(|&index| source.get(index)))))
    })
}

/// Returns a fresh loader and its first batch.
pub fn first<S: Source>(source: &S, plan: &Plan, queue: Queue) -> Result<(impl Sized + use<S>, S::Batch)> {
    let mut loader = Loader::new(source, plan, queue);
    let mut first = None;
    // Leaves the pass after its first batch, like a loop with `break`.
    let outcome = loader.pass(&mut |batch| {
        first = Some(batch);
        anyhow::bail!("stopped after the first batch")
    });
    let batch = first.with_context(|| format!("no batch: {outcome:?}"))?;
    Ok((loader, batch))
}
