//! How worker processes make batches in shared memory.

use crate::BoxError;
use crate::dataset::{Context, Dataset, Iterable, IterableDataset, Loadable};
use crate::loader::assembly::per_worker::{fields_of_first, first_of_workers};
use crate::loader::backend::stream_worker::make_first;
use crate::loader::bad_samples::OnError;
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::{PROBES, fields_of};
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::in_place::InPlace;
use crate::loader::collate::samples::Samples;
use crate::loader::collate::stack::Stack;
use crate::loader::collate::with::With;
use crate::loader::error::build::{BuildError, room_for};
use crate::loader::error::guard::probe;
use crate::loader::error::run::By;
use crate::loader::metrics::activity::Activity;
use crate::loader::order::index_source::Batching;
use crate::loader::order::plan::{Indices, Plan};
use crate::loader::worker::cancel::CancelFlag;
use crate::loader::worker::map_job::MapJob;
use crate::loader::worker::skip::SkipJob;
use crate::sample::{Fields, Sample};

/// A way of making batches that worker processes support. Sealed.
pub trait Share<D: Loadable> {
    /// The way in which the processes make batches.
    #[doc(hidden)]
    type Shared: Collate<D, Payload = BatchBuffer>;

    /// Whether a function pins the batches. Processes do not support that, since it needs the
    /// result of the collate function.
    #[doc(hidden)]
    fn pins(&self) -> bool {
        false
    }

    #[doc(hidden)]
    fn share(self) -> Self::Shared;

    /// Returns the fields of what is written into a batch.
    #[doc(hidden)]
    fn fields(shared: &Self::Shared, dataset: &D, first: FirstBatch) -> Result<Fields, BuildError>;
}

/// The facts that determine the first batch, besides the dataset.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct FirstBatch {
    pub(crate) batching: Batching,
    /// The maximum number of rows of a batch.
    pub(crate) rows: usize,
    pub(crate) workers: usize,
    pub(crate) on_error: OnError,
}

impl<D: Dataset> Share<D> for Stack {
    type Shared = Self;

    fn share(self) -> Self {
        self
    }

    fn fields(_: &Self, dataset: &D, _: FirstBatch) -> Result<Fields, BuildError> {
        fields_of(dataset)
    }
}

impl<D: IterableDataset> Share<Iterable<D>> for Stack {
    type Shared = Self;

    fn share(self) -> Self {
        self
    }

    fn fields(_: &Self, dataset: &Iterable<D>, first: FirstBatch) -> Result<Fields, BuildError> {
        let tries = if first.on_error.is_raise() { 1 } else { PROBES };
        fields_of_first(&dataset.0, first.workers, tries)
    }
}

impl<D, F, T> Share<D> for With<F, T>
where
    D: Dataset,
    T: Sample + Send + 'static,
    F: Fn(&mut Samples<'_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    type Shared = InPlace<F, T>;

    fn pins(&self) -> bool {
        self.pin.is_some()
    }

    fn share(self) -> InPlace<F, T> {
        InPlace::new(self.collate)
    }

    /// Makes a batch of the first samples, without those that are bad, to learn the fields.
    fn fields(
        shared: &Self::Shared,
        dataset: &D,
        FirstBatch { batching, rows, .. }: FirstBatch,
    ) -> Result<Fields, BuildError> {
        let samples = dataset.len();
        let first = samples.min(rows);
        let mut indices: Vec<usize> = room_for(first)?;
        indices.extend(0..first);
        if indices.is_empty() {
            // An empty dataset needs no fields, since it has no batches.
            return Ok(Fields::new());
        }
        let (plan, activity, cancel) =
            (Plan { samples, ..Plan::default() }, Activity::default(), CancelFlag::default());
        let (mut cx, mut scratch) = (Context::default(), Vec::new());
        let mut job = MapJob {
            dataset,
            plan: &plan,
            indices: &Indices::List(&indices),
            at: 0,
            known: 0,
            rows: 0..indices.len(),
            first: 0,
            cx: &mut cx,
            scratch: &mut scratch,
            activity: &activity,
            laps: None,
            cancel: &cancel,
            bulk: false,
            single: batching.single,
        };
        let mut good = SkipJob::new(&mut job, indices.len(), false, None, By::Consumer, &|_| {}, None);
        probe(|| Ok(Fields::of(&(shared.collate)(&mut Samples::new(&mut good))?)))
            .map_err(|source| BuildError::Probe { index: 0, source })
    }
}

impl<D, F, T> Share<Iterable<D>> for With<F, T>
where
    D: IterableDataset,
    T: Sample + Send + 'static,
    F: Fn(&mut Samples<'_, Iterable<D>>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    type Shared = InPlace<F, T>;

    fn pins(&self) -> bool {
        self.pin.is_some()
    }

    fn share(self) -> InPlace<F, T> {
        InPlace::new(self.collate)
    }

    /// Makes the first batch of a worker, without samples that are bad, to learn the fields.
    fn fields(shared: &Self::Shared, dataset: &Iterable<D>, first: FirstBatch) -> Result<Fields, BuildError> {
        first_of_workers(&dataset.0, first.workers, |cursor, cx, fields| {
            let is_made = make_first(&dataset.0, cursor, cx, first.batching, |job| {
                *fields = Some(Fields::of(&(shared.collate)(&mut Samples::new(job))?));
                Ok(())
            })?;
            if !is_made {
                *fields = None;
            }
            Ok(())
        })
    }
}
