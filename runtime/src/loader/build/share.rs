//! How worker processes make batches.

use crate::BoxError;
use crate::dataset::{Context, Dataset};
use crate::loader::collate::allocate::{MakeSlots, fields_of};
use crate::loader::collate::in_place::InPlace;
use crate::loader::collate::region::Region;
use crate::loader::collate::samples::Samples;
use crate::loader::collate::stack::Stack;
use crate::loader::collate::with::With;
use crate::loader::error::build::BuildError;
use crate::loader::error::guard::probe;
use crate::loader::error::run::By;
use crate::loader::metrics::activity::Activity;
use crate::loader::order::plan::{Indices, Plan};
use crate::loader::worker::cancel::CancelFlag;
use crate::loader::worker::map_job::MapJob;
use crate::loader::worker::skip::SkipJob;
use crate::sample::{Fields, Sample};

/// A way of making batches, for workers that are processes. Sealed.
pub trait Share<D: Dataset> {
    /// What the processes do.
    #[doc(hidden)]
    type Shared: MakeSlots<D, Payload = Region>;

    /// Whether batches are pinned by a function, which needs them as they were made.
    #[doc(hidden)]
    fn pins(&self) -> bool {
        false
    }

    #[doc(hidden)]
    fn share(self) -> Self::Shared;

    /// Returns the fields of what is written into a batch of `rows` samples, or of a single sample.
    #[doc(hidden)]
    fn fields(shared: &Self::Shared, dataset: &D, rows: usize, single: bool) -> Result<Fields, BuildError>;
}

impl<D: Dataset> Share<D> for Stack {
    type Shared = Self;

    fn share(self) -> Self {
        self
    }

    fn fields(_: &Self, dataset: &D, _: usize, _: bool) -> Result<Fields, BuildError> {
        fields_of(dataset)
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

    /// Makes a batch of the first samples, without those that are bad.
    fn fields(shared: &Self::Shared, dataset: &D, rows: usize, single: bool) -> Result<Fields, BuildError> {
        let samples = dataset.len();
        let indices: Vec<usize> = (0..samples.min(rows)).collect();
        if indices.is_empty() {
            // Nor are there batches.
            return Ok(Fields::new());
        }
        let (plan, activity, cancel) =
            (Plan { samples, ..Plan::default() }, Activity::default(), CancelFlag::default());
        let (mut cx, mut scratch) = (Context::new(None), Vec::new());
        let mut job = MapJob::<D, false> {
            dataset,
            plan: &plan,
            indices: Indices::List(&indices),
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
            single,
        };
        let mut good = SkipJob::new(&mut job, indices.len(), false, By::Consumer, &|_| {}, None);
        probe(|| Ok(Fields::of(&(shared.collate)(&mut Samples::new(&mut good))?)))
            .map_err(|source| BuildError::Probe { index: 0, source })
    }
}
