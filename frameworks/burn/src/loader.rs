//! An implementation of burn's `DataLoader` with a slotline loader.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use burn::data::dataloader::{DataLoader as BurnDataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::{Device, TensorData};
use slotline::dataset::Subset;
use slotline::loader::Builder;
use slotline::{BoxError, Dataset, Loader};
use slotline_fields::Tensors;

/// The part of a dataset that a loader reads.
type Part<D> = Subset<Arc<D>>;
type Configure<D> = dyn Fn(Builder<Part<D>>) -> Builder<Part<D>> + Send + Sync;
type Collect<O> = dyn Fn(Tensors<TensorData>, &Device) -> Result<O, BoxError> + Send + Sync;

/// A slotline loader for burn's training loops. It implements burn's
/// [`DataLoader`](BurnDataLoader).
///
/// Each iterator is the loader's next epoch, with a new order if the loader shuffles. There can be
/// only one iterator at a time; a second one returns an error as its first item. An error of the
/// loader is an item of the iterator. For an example see [the crate](crate).
pub struct DataLoader<D: Dataset, O> {
    recipe: Arc<Recipe<D, O>>,
    part: Range<usize>,
    device: Device,
    /// The slotline loader, which is shared with the loaders for other devices.
    loader: Result<Arc<Mutex<Loader>>, Arc<BoxError>>,
}

/// The functions that create a loader for the dataset, or for a part of it.
struct Recipe<D, O> {
    dataset: Arc<D>,
    configure: Box<Configure<D>>,
    collect: Box<Collect<O>>,
}

impl<D: Dataset, O> DataLoader<D, O> {
    /// Creates a loader for `dataset`. `configure` sets its options, and `collect` converts the
    /// [tensors](crate::tensors) of a batch to an item of the iterators.
    ///
    /// `configure` is called again if burn asks for a part of the dataset. If it sets a sampler,
    /// the sampler must be made for the length of that part.
    ///
    /// # Errors
    ///
    /// If the loader cannot be built.
    pub fn new(
        dataset: D,
        device: &Device,
        configure: impl Fn(Builder<Subset<Arc<D>>>) -> Builder<Subset<Arc<D>>> + Send + Sync + 'static,
        collect: impl Fn(Tensors<TensorData>, &Device) -> Result<O, BoxError> + Send + Sync + 'static,
    ) -> Result<Self, BoxError> {
        let part = 0..dataset.len();
        let recipe = Recipe { dataset: Arc::new(dataset), configure: Box::new(configure), collect: Box::new(collect) };
        let loader = recipe.loader(&part)?;
        Ok(Self { recipe: Arc::new(recipe), part, device: device.clone(), loader: Ok(Arc::new(Mutex::new(loader))) })
    }
}

impl<D: Dataset, O> Recipe<D, O> {
    /// Creates the loader for a part of the dataset.
    fn loader(&self, part: &Range<usize>) -> Result<Loader, BoxError> {
        let part = Subset::new(Arc::clone(&self.dataset), part.clone())?;
        Ok((self.configure)(Loader::builder(part)).build()?.untyped())
    }
}

impl<D: Dataset, O: 'static> DataLoader<D, O> {
    /// Begins the next epoch. Returns an error if another iterator has not ended.
    fn begin(&self) -> Result<MutexGuard<'_, Loader>, BoxError> {
        let loader = self.loader.as_ref().map_err(|error| Shared(Arc::clone(error)))?;
        let mut loader = match loader.try_lock() {
            Ok(loader) => loader,
            // After a panic of another iterator, an epoch can begin, too.
            Err(TryLockError::Poisoned(loader)) => loader.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err("another iterator of this loader exists; drop it first, or make a loader for each".into());
            }
        };
        loader.begin_epoch()?;
        Ok(loader)
    }
}

impl<D: Dataset, O: Send + 'static> BurnDataLoader<O> for DataLoader<D, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let (loader, failure) = match self.begin() {
            Ok(loader) => (Some(loader), None),
            Err(error) => (None, Some(error)),
        };
        Box::new(Iter { owner: self, loader, failure, samples: 0 })
    }

    fn num_items(&self) -> usize {
        self.part.len()
    }

    /// Returns this loader for another device. Both share the workers and the epochs.
    fn to_device(&self, device: &Device) -> Arc<dyn BurnDataLoader<O>> {
        let (recipe, part, loader) = (Arc::clone(&self.recipe), self.part.clone(), self.loader.clone());
        Arc::new(Self { recipe, part, device: device.clone(), loader })
    }

    /// Returns a loader for a part of the dataset, with its own workers. If it cannot be built, its
    /// iterators return the error.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn BurnDataLoader<O>> {
        let end = self.part.start.saturating_add(end).min(self.part.end);
        let part = self.part.start.saturating_add(start).min(end)..end;
        let loader = self.recipe.loader(&part).map(|loader| Arc::new(Mutex::new(loader))).map_err(Arc::new);
        Arc::new(Self { recipe: Arc::clone(&self.recipe), part, device: self.device.clone(), loader })
    }
}

impl<D: Dataset, O> fmt::Debug for DataLoader<D, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoader").field("part", &self.part).field("device", &self.device).finish_non_exhaustive()
    }
}

/// An iterator over one epoch.
struct Iter<'a, D: Dataset, O> {
    owner: &'a DataLoader<D, O>,
    loader: Option<MutexGuard<'a, Loader>>,
    /// The error to return as the first item.
    failure: Option<BoxError>,
    /// The number of samples returned so far.
    samples: usize,
}

impl<D: Dataset, O> Iterator for Iter<'_, D, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = match self.failure.take() {
            Some(error) => Err(error),
            None => match self.loader.as_mut()?.next_batch()? {
                Ok(batch) => {
                    self.samples += batch.len();
                    let DataLoader { recipe, device, .. } = self.owner;
                    crate::tensors(batch, device)
                        .map_err(BoxError::from)
                        .and_then(|batch| (recipe.collect)(batch, device))
                }
                Err(error) => Err(error.into()),
            },
        };
        Some(item.map_err(|error| DatasetError::new(Shared(Arc::new(error)))))
    }
}

impl<D: Dataset, O> DataLoaderIterator<O> for Iter<'_, D, O> {
    fn progress(&self) -> Progress {
        Progress::new(self.samples, self.owner.part.len(), Some("items".to_owned()))
    }
}

impl<D: Dataset, O> Drop for Iter<'_, D, O> {
    fn drop(&mut self) {
        if let Some(loader) = &mut self.loader {
            loader.end_epoch();
        }
    }
}

/// A wrapper that turns an error of any type into the error type that burn requires.
#[derive(Debug)]
struct Shared(Arc<BoxError>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Shared {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
