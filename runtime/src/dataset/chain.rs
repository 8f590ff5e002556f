//! Iterable datasets in sequence.

use std::fmt::Write;

use super::{Context, IterableDataset, WorkerInfo};
use crate::BoxError;
use crate::sample::Fields;

/// The samples of several iterable datasets, in sequence (torch's `ChainDataset`).
///
/// Each worker goes through all of the datasets, and starts a pass over one when it reaches it. If
/// the pass cannot be started, the worker reports an error at that point and continues with the
/// next dataset. An empty chain has no samples. (torch rejects a map-style dataset when it reaches
/// it; here a chain with one does not compile.)
#[derive(Clone, Debug)]
pub struct ChainDataset<D> {
    datasets: Vec<D>,
}

impl<D: IterableDataset> ChainDataset<D> {
    /// Chains these datasets, in this order.
    pub fn new(datasets: impl Into<Vec<D>>) -> Self {
        Self { datasets: datasets.into() }
    }
}

impl<D> ChainDataset<D> {
    /// Returns the datasets.
    pub fn datasets(&self) -> &[D] {
        &self.datasets
    }
}

/// The state of a worker's pass over a [`ChainDataset`].
#[derive(Debug)]
pub struct ChainCursor<C> {
    worker: Option<WorkerInfo>,
    /// The next dataset to start.
    next: usize,
    /// The cursor of the dataset before `next`; `None` if that dataset has ended.
    cursor: Option<C>,
}

impl<D: IterableDataset> IterableDataset for ChainDataset<D> {
    type Sample<'a> = D::Sample<'a>;
    type Cursor = ChainCursor<D::Cursor>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
        Ok(ChainCursor { worker, next: 0, cursor: None })
    }

    fn next<'a>(&'a self, at: &'a mut Self::Cursor, cx: &'a mut Context) -> Result<Option<Self::Sample<'a>>, BoxError> {
        loop {
            if at.cursor.is_none() {
                let Some(dataset) = self.datasets.get(at.next) else { return Ok(None) };
                at.next += 1;
                at.cursor = Some(dataset.iter(at.worker)?);
            }
            // SAFETY: if there is a sample, it is returned and the references are not used again.
            // If there is none, nothing borrows from them: `next` is implemented for every
            // lifetime, and an error borrows nothing. (Without this, the compiler assumes a borrow
            // in either case.)
            let (again, cx) = unsafe { (&mut *std::ptr::from_mut(at), &mut *std::ptr::from_mut(cx)) };
            if let (Some(dataset), Some(cursor)) = (self.datasets.get(again.next - 1), &mut again.cursor)
                && let Some(sample) = dataset.next(cursor, cx)?
            {
                return Ok(Some(sample));
            }
            at.cursor = None;
        }
    }

    /// Saves the cursor if the current dataset can save its own.
    fn save(&self, at: &Self::Cursor, to: &mut String) -> bool {
        match (&at.cursor, at.next.checked_sub(1).and_then(|i| self.datasets.get(i))) {
            (Some(cursor), Some(dataset)) => save_part(at.next, to, |to| dataset.save(cursor, to)),
            _ => save_position(at.next, to),
        }
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Self::Cursor, BoxError> {
        let (next, inner) = read_position(saved, self.datasets.len())?;
        let cursor = match (inner, next.checked_sub(1)) {
            (Some(inner), Some(i)) => Some(self.datasets[i].resume(worker, inner)?),
            (Some(_), None) => return Err(bad_position(saved)),
            (None, _) => None,
        };
        Ok(ChainCursor { worker, next, cursor })
    }

    /// Returns the sum of all lengths, if each is known.
    fn len(&self) -> Option<usize> {
        self.datasets.iter().try_fold(0_usize, |sum, dataset| sum.checked_add(dataset.len()?))
    }

    /// Returns fields that fit the samples of all datasets. Datasets that do not know their fields
    /// are ignored. The capacity of a packed or padded field is the largest that one of the
    /// datasets declares.
    fn fields(&self) -> Option<Fields> {
        known_fields(self.datasets.iter().map(D::fields))
    }
}

/// Appends the position of a cursor to `to`: the number of the dataset that it reads.
fn save_position(dataset: usize, to: &mut String) -> bool {
    write!(to, "{dataset}").is_ok()
}

/// Appends the position of a cursor to `to`: the number of the dataset that it reads, and the state
/// that `save` writes for this dataset. Returns whether `save` succeeded.
fn save_part(dataset: usize, to: &mut String, save: impl FnOnce(&mut String) -> bool) -> bool {
    write!(to, "{dataset}:").is_ok() && save(to)
}

/// Parses what [`save_position`] or [`save_part`] wrote. Returns the number of the dataset, which is
/// at most `last`, and the state that the dataset saved; `None` if `save_position` wrote it.
fn read_position(saved: &str, last: usize) -> Result<(usize, Option<&str>), BoxError> {
    let (dataset, inner) = match saved.split_once(':') {
        Some((dataset, inner)) => (dataset, Some(inner)),
        None => (saved, None),
    };
    let dataset = dataset.parse().ok().filter(|&dataset| dataset <= last).ok_or_else(|| bad_position(saved))?;
    Ok((dataset, inner))
}

fn bad_position(saved: &str) -> BoxError {
    format!("{saved:?} is not a position in this chain of datasets").into()
}

/// The samples of one iterable dataset followed by those of another one, which has the same sample
/// type. Made by [`IterableDataset::chain`].
///
/// As in a [`ChainDataset`], the pass over a dataset starts when the worker reaches it. If it
/// cannot be started, the worker reports an error at that point.
#[derive(Clone, Debug)]
pub struct Chain2<A, B> {
    first: A,
    second: B,
}

impl<A, B> Chain2<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }

    /// Returns the two datasets.
    pub fn datasets(&self) -> (&A, &B) {
        (&self.first, &self.second)
    }
}

/// The state of a worker's pass over a [`Chain2`].
#[derive(Debug)]
pub struct Chain2Cursor<A, B> {
    worker: Option<WorkerInfo>,
    at: At<A, B>,
}

#[derive(Debug)]
enum At<A, B> {
    Start,
    First(A),
    /// The first dataset has ended or failed to start, and the second one was not started yet.
    Middle,
    Second(B),
    End,
}

impl<A, B> IterableDataset for Chain2<A, B>
where
    A: IterableDataset,
    B: for<'a> IterableDataset<Sample<'a> = A::Sample<'a>>,
{
    type Sample<'a> = A::Sample<'a>;
    type Cursor = Chain2Cursor<A::Cursor, B::Cursor>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
        Ok(Chain2Cursor { worker, at: At::Start })
    }

    fn next<'a>(
        &'a self,
        cursor: &'a mut Self::Cursor,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError> {
        // `cursor.at` is set before a dataset is started: if the start fails, the next call continues
        // after that dataset.
        if let At::Start = cursor.at {
            cursor.at = At::Middle;
            cursor.at = At::First(self.first.iter(cursor.worker)?);
        }
        // SAFETY: see `ChainDataset`: the references are used again only if no sample was returned.
        let (again, cx_again) = unsafe { (&mut *std::ptr::from_mut(cursor), &mut *std::ptr::from_mut(cx)) };
        if let At::First(first) = &mut again.at {
            if let Some(sample) = self.first.next(first, cx_again)? {
                return Ok(Some(sample));
            }
            cursor.at = At::Middle;
        }
        if let At::Middle = cursor.at {
            cursor.at = At::End;
            cursor.at = At::Second(self.second.iter(cursor.worker)?);
        }
        match &mut cursor.at {
            At::Second(second) => self.second.next(second, cx),
            _ => Ok(None),
        }
    }

    /// Saves the cursor if the current dataset can save its own.
    fn save(&self, cursor: &Self::Cursor, to: &mut String) -> bool {
        match &cursor.at {
            At::Start => save_position(0, to),
            At::First(first) => save_part(1, to, |to| self.first.save(first, to)),
            At::Middle => save_position(2, to),
            At::Second(second) => save_part(3, to, |to| self.second.save(second, to)),
            At::End => save_position(4, to),
        }
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Self::Cursor, BoxError> {
        let at = match read_position(saved, 4)? {
            (0, None) => At::Start,
            (1, Some(first)) => At::First(self.first.resume(worker, first)?),
            (2, None) => At::Middle,
            (3, Some(second)) => At::Second(self.second.resume(worker, second)?),
            (4, None) => At::End,
            _ => return Err(bad_position(saved)),
        };
        Ok(Chain2Cursor { worker, at })
    }

    /// Returns the sum of both lengths, if each is known.
    fn len(&self) -> Option<usize> {
        self.first.len()?.checked_add(self.second.len()?)
    }

    /// Returns the fields that fit the samples of both datasets, as [`ChainDataset`] does.
    fn fields(&self) -> Option<Fields> {
        known_fields([self.first.fields(), self.second.fields()].into_iter())
    }
}

/// Returns the fields that fit the samples of several datasets. Datasets that do not know their
/// fields are ignored.
fn known_fields(fields: impl Iterator<Item = Option<Fields>>) -> Option<Fields> {
    Fields::of_all(fields.map(|fields| (fields.is_none(), || fields)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::iter_fn;
    use crate::sample::PaddedToMax;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn a_dataset_is_started_when_it_is_reached() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let counted = || {
            iter_fn(|_| {
                STARTS.fetch_add(1, Relaxed);
                Ok([1_i64].map(Ok))
            })
        };
        let chain = ChainDataset::new([counted(), counted()]);
        let (mut cursor, mut cx) = (chain.iter(None).unwrap(), Context::default());
        assert_eq!(STARTS.load(Relaxed), 0);
        chain.next(&mut cursor, &mut cx).unwrap();
        assert_eq!(STARTS.load(Relaxed), 1);
        assert_eq!(chain.next(&mut cursor, &mut cx).unwrap(), Some(1));
        assert_eq!((STARTS.load(Relaxed), chain.next(&mut cursor, &mut cx).unwrap()), (2, None));
    }

    #[test]
    fn fields_have_the_largest_room_of_the_datasets_that_know_them() {
        let fields = |capacity| Some(Fields::of(&PaddedToMax::new(&[0_u8; 0], capacity)));
        assert_eq!(
            ChainDataset::new([Known(None), Known(Some(2)), Known(Some(5)), Known(Some(3))]).fields(),
            fields(5)
        );
        assert_eq!(Known(Some(2)).chain(Known(Some(3))).fields(), fields(3));
        assert_eq!(Known(None).chain(Known(Some(3))).fields(), fields(3));
        assert_eq!(Known(Some(3)).chain(Known(None)).fields(), fields(3));
        assert_eq!(Arc::new(ChainDataset::new([Known(Some(2))])).fields(), fields(2));
        assert_eq!(ChainDataset::new([Known(None)]).fields(), None);
    }

    /// A dataset without samples, which may know the maximum length of its field.
    struct Known(Option<usize>);

    impl IterableDataset for Known {
        type Sample<'a> = PaddedToMax<'a, u8>;
        type Cursor = ();

        fn iter(&self, _: Option<WorkerInfo>) -> Result<(), BoxError> {
            Ok(())
        }

        fn next<'a>(&'a self, _: &'a mut (), _: &'a mut Context) -> Result<Option<PaddedToMax<'a, u8>>, BoxError> {
            Ok(None)
        }

        fn fields(&self) -> Option<Fields> {
            self.0.map(|capacity| Fields::of(&PaddedToMax::new(&[0_u8; 0], capacity)))
        }
    }
}
