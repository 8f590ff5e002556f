//! Datasets combined sample by sample.

use super::{Context, Dataset, Upcoming};
use crate::BoxError;
use crate::sample::{Fields, Sample};
use crate::tuples::up_to_eight;

/// Several datasets of equal length. A sample is a tuple of their samples at the same index
/// (torch's `StackDataset`).
///
/// The datasets are a tuple of up to eight datasets.
///
/// Each dataset is read with a separate [`Context`], since all samples of the tuple exist at the
/// same time. So each has its own buffers, [locals](Context::local) and random numbers. The random
/// numbers of one dataset are independent of those of the others, and depend only on the seed, the
/// epoch and the position. They are *not* those that the dataset would draw if it were loaded
/// without the others, and two datasets cannot draw the same ones. To crop an image and its mask
/// alike, implement [`Dataset`] for a struct of both.
///
/// If one of the datasets [reads many](Dataset::reads_many) samples at once, so does the stack. If
/// several do, only the first of them reads many samples at once, and the others read one by one,
/// because all samples of a tuple must exist together. (torch reads many samples from all of them.)
///
/// A struct of datasets also replaces torch's dict of datasets, whose samples have named parts: see
/// [`Context::parts`].
///
/// ```
/// use slotline::dataset::{StackDataset, TensorDataset, from_fn};
/// use slotline::{Dataset, Loader};
///
/// let features = TensorDataset::new(vec![0.5_f32, 1.5, 2.5])?;
/// let labels = from_fn(3, |index, _| Ok(index as i64 % 2));
/// let mut loader = Loader::builder(StackDataset::new((features, labels))?).batch_size(3).build()?;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     let (features, labels) = batch.tensors();
///     assert_eq!((features.as_slice(), labels.as_slice()), (&[0.5, 1.5, 2.5][..], &[0, 1, 0][..]));
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct StackDataset<T> {
    datasets: T,
    /// The number of samples in each dataset.
    len: usize,
}

/// The error for datasets that cannot be stacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// There are no datasets.
    #[error("StackDataset: there are no datasets; pass at least one")]
    Empty,
    /// The datasets have different lengths.
    #[error(
        "StackDataset: size mismatch between datasets: the first has {first} samples, number {dataset} has {other}"
    )]
    Length {
        /// The number of samples of the first dataset.
        first: usize,
        /// The dataset whose length differs, counted from 1.
        dataset: usize,
        /// The number of samples of that dataset.
        other: usize,
    },
}

/// A tuple of datasets that can be [stacked](StackDataset).
pub trait Datasets: sealed::Sealed + Send + Sync + 'static {
    /// The tuple of their samples.
    type Samples<'a>: Sample
    where
        Self: 'a;

    #[doc(hidden)]
    fn lens(&self) -> impl Iterator<Item = usize>;

    #[doc(hidden)]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Samples<'a>, BoxError>;

    #[doc(hidden)]
    fn prefetch(&self, index: usize);

    #[doc(hidden)]
    fn reads_many(&self) -> bool;

    #[doc(hidden)]
    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(Self::Samples<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError>;

    #[doc(hidden)]
    fn reads_ahead(&self) -> bool;

    #[doc(hidden)]
    fn begin_pass(&self, upcoming: &Upcoming);

    #[doc(hidden)]
    fn fields(&self) -> Option<Fields>;
}

mod sealed {
    /// Prevents implementations outside this crate, so that the hidden functions may change.
    pub trait Sealed {}
}

/// The source of one dataset's sample in a bulk read: a context to read it with, or the sample
/// itself.
trait Part<'a, D: Dataset> {
    /// Returns the sample at `index`, which is sample `number` of the bulk read.
    ///
    /// # Safety
    ///
    /// The sample must be dropped before `dataset` and `self` are, and a context must not be used
    /// before the sample is dropped.
    unsafe fn sample(&mut self, dataset: &D, index: usize, number: usize) -> Result<D::Sample<'a>, BoxError>;
}

impl<'a, D: Dataset> Part<'a, D> for Context {
    unsafe fn sample(&mut self, dataset: &D, index: usize, number: usize) -> Result<D::Sample<'a>, BoxError> {
        self.go_to(number);
        // SAFETY: the caller makes sure that the sample outlives neither the dataset nor the
        // context.
        let (dataset, cx) = unsafe { (&*std::ptr::from_ref(dataset), &mut *std::ptr::from_mut(self)) };
        dataset.get(index, cx)
    }
}

/// A sample that the bulk read has returned; `None` once it was taken.
struct Ready<S>(Option<S>);

impl<'a, D: Dataset> Part<'a, D> for Ready<D::Sample<'a>> {
    unsafe fn sample(&mut self, _: &D, _: usize, _: usize) -> Result<D::Sample<'a>, BoxError> {
        Ok(self.0.take().expect("it is taken once"))
    }
}

/// Reads many samples at once from the first dataset of a tuple that supports this, and reads those
/// of the other datasets one by one. The first list contains all datasets, and the second those that
/// were not yet checked for support. An entry is a name for the dataset's context, followed by the
/// dataset's number in the tuple.
macro_rules! get_many {
    ($self:ident $indices:ident $cx:ident $put:ident [$($name:ident $field:tt)*] []) => {{
        for (number, &index) in $indices.iter().enumerate() {
            $cx.go_to(number);
            $put($self.get(index, $cx)?)?;
        }
        Ok(())
    }};
    (
        $self:ident $indices:ident $cx:ident $put:ident [$($name:ident $field:tt)*]
        [$many:ident $many_field:tt $($rest:tt)*]
    ) => {{
        if $self.$many_field.reads_many() {
            let mut numbers = 0..;
            let [$($name),*] = $cx.parts();
            return $self.$many_field.get_many($indices, $many, &mut |sample| {
                let number = numbers.next().unwrap_or_default();
                // If there are more samples than indices, `put` fails.
                let index = $indices.get(number).copied().unwrap_or_default();
                let $many = &mut Ready(Some(sample));
                // SAFETY: `put` accepts samples of any lifetime, so it cannot keep them: they are
                // dropped when it returns.
                $put(unsafe { ($(Part::sample(&mut *$name, &$self.$field, index, number)?,)*) })
            });
        }
        get_many!($self $indices $cx $put [$($name $field)*] [$($rest)*])
    }};
}

macro_rules! tuples {
    ($($($name:ident $field:tt),*;)*) => {$(
        impl<$($name: Dataset),*> sealed::Sealed for ($($name,)*) {}

        impl<$($name: Dataset),*> Datasets for ($($name,)*) {
            type Samples<'a> = ($($name::Sample<'a>,)*);

            fn lens(&self) -> impl Iterator<Item = usize> {
                [$(self.$field.len()),*].into_iter()
            }

            #[inline]
            #[allow(unused_variables, clippy::unused_unit)] // The empty tuple has no contexts.
            #[allow(non_snake_case)] // Each context has the name of its dataset's type.
            fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Samples<'a>, BoxError> {
                let [$($name),*] = cx.parts();
                Ok(($(self.$field.get(index, $name)?,)*))
            }

            #[inline]
            #[allow(unused_variables)]
            fn prefetch(&self, index: usize) {
                $(self.$field.prefetch(index);)*
            }

            fn reads_many(&self) -> bool {
                false $(|| self.$field.reads_many())*
            }

            #[allow(non_snake_case)]
            fn get_many(
                &self,
                indices: &[usize],
                cx: &mut Context,
                put: &mut dyn for<'a> FnMut(Self::Samples<'a>) -> Result<(), BoxError>,
            ) -> Result<(), BoxError> {
                get_many!(self indices cx put [$($name $field)*] [$($name $field)*])
            }

            fn reads_ahead(&self) -> bool {
                false $(|| self.$field.reads_ahead())*
            }

            #[allow(unused_variables)]
            fn begin_pass(&self, upcoming: &Upcoming) {
                $(if self.$field.reads_ahead() {
                    self.$field.begin_pass(upcoming.clone());
                })*
            }

            #[allow(unused_mut)]
            fn fields(&self) -> Option<Fields> {
                let mut fields = Fields::new();
                $(fields.named_fields($field, self.$field.fields()?);)*
                Some(fields)
            }
        }
    )*};
}

tuples! { ; }
up_to_eight!(tuples);

impl<T: Datasets> StackDataset<T> {
    /// Stacks these datasets.
    ///
    /// # Errors
    ///
    /// If there are no datasets, or they have different lengths.
    pub fn new(datasets: T) -> Result<Self, StackError> {
        let mut lens = datasets.lens();
        let first = lens.next().ok_or(StackError::Empty)?;
        if let Some((i, other)) = lens.enumerate().find(|&(_, other)| other != first) {
            return Err(StackError::Length { first, dataset: i + 2, other });
        }
        Ok(Self { datasets, len: first })
    }

    /// Returns the datasets.
    pub fn datasets(&self) -> &T {
        &self.datasets
    }
}

impl<T: Datasets> Dataset for StackDataset<T> {
    type Sample<'a> = T::Samples<'a>;

    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        self.datasets.get(index, cx)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.datasets.prefetch(index);
    }

    fn reads_ahead(&self) -> bool {
        self.datasets.reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        self.datasets.begin_pass(&upcoming);
    }

    fn reads_many(&self) -> bool {
        self.datasets.reads_many()
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(Self::Sample<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        self.datasets.get_many(indices, cx, put)
    }

    /// Returns the fields of all datasets, if each knows its own.
    fn fields(&self) -> Option<Fields> {
        self.datasets.fields()
    }
}
