//! Datasets and samplers that many tests use.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::dataset::{Context, Dataset, FnDataset, IterableDataset};
use slotline::rng::Generator;
use slotline::rng::rand_core::Rng;
use slotline::sample::{Fields, Row, Sample};
use slotline::sampler::{Order, Sampler, SamplerError};
use slotline::{BoxError, WorkerInfo};

use super::Latch;
use super::shared::Notes;
use super::worker_kinds::panic_quietly_in_children;

/// A sample: its index, bytes derived from the index, and the first of its random numbers.
pub(crate) type Item = (i64, [[u8; 3]; 2], u64);

/// Returns the bytes of the sample at `index`.
pub(crate) fn pixels(index: usize) -> [[u8; 3]; 2] {
    let byte = |i: usize| (index.wrapping_mul(31).wrapping_add(i * 7) >> (i % 3)) as u8;
    [[byte(0), byte(1), byte(2)], [byte(3), byte(4), byte(5)]]
}

/// Computes a sample from its index.
type Get<S> = dyn Fn(usize, &mut Context) -> Result<S, BoxError> + Send + Sync;

/// Works like [`slotline::dataset::from_fn`], but boxes the function: all datasets whose samples
/// have the same type have one type, so that the loader over them is compiled once.
pub(crate) fn from_fn<S: Sample + 'static>(
    len: usize,
    get: impl Fn(usize, &mut Context) -> Result<S, BoxError> + Send + Sync + 'static,
) -> FnDataset<impl Fn(usize, &mut Context) -> Result<S, BoxError> + Clone + Send + Sync + 'static> {
    erased(len, Arc::new(get))
}

fn erased<S: Sample + 'static>(
    len: usize,
    get: Arc<Get<S>>,
) -> FnDataset<impl Fn(usize, &mut Context) -> Result<S, BoxError> + Clone + Send + Sync + 'static> {
    panic_quietly_in_children();
    slotline::dataset::from_fn(len, move |index, cx| get(index, cx))
}

/// Returns a dataset of `len` samples, which calls `work` before each sample.
pub(crate) fn items(
    len: usize,
    work: impl Fn(usize, &mut Context) -> Result<(), BoxError> + Send + Sync + 'static,
) -> impl Dataset + for<'a> DatasetOf<'a, Item> {
    from_fn(len, move |index, cx| {
        work(index, cx)?;
        Ok((index as i64, pixels(index), cx.rng().next_u64()))
    })
}

/// A dataset with samples of type `S`. With this trait as a bound, the compiler infers the types
/// that it does not infer from `Dataset<Sample<'a> = S>`.
pub(crate) trait DatasetOf<'a, S>: Dataset<Sample<'a> = S> {}
impl<'a, S, D: Dataset<Sample<'a> = S>> DatasetOf<'a, S> for D {}

/// An iterable dataset that yields the samples of a dataset in sequence and divides them among the workers. Its cursors can be
/// saved and resumed.
pub(crate) struct OneByOne<D>(pub(crate) D);

impl<D: Dataset> IterableDataset for OneByOne<D> {
    type Sample<'a> = D::Sample<'a>;
    type Cursor = Range<usize>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Range<usize>, BoxError> {
        Ok(worker.map_or(0..self.0.len(), |worker| worker.share(self.0.len())))
    }

    fn next<'a>(
        &'a self,
        left: &'a mut Range<usize>,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError> {
        left.next().map(|index| self.0.get(index, cx)).transpose()
    }

    fn save(&self, left: &Range<usize>, to: &mut String) -> bool {
        write!(to, "{}..{}", left.start, left.end).is_ok()
    }

    fn resume(&self, _: Option<WorkerInfo>, saved: &str) -> Result<Range<usize>, BoxError> {
        let (start, end) = saved.split_once("..").ok_or("a range")?;
        Ok(start.parse()?..end.parse()?)
    }
}

/// A dataset that does not support saving its cursors.
pub(crate) struct WithoutSave<D>(pub(crate) D);

impl<D: IterableDataset> IterableDataset for WithoutSave<D> {
    type Sample<'a> = D::Sample<'a>;
    type Cursor = D::Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<D::Cursor, BoxError> {
        self.0.iter(worker)
    }

    fn next<'a>(&'a self, at: &'a mut D::Cursor, cx: &'a mut Context) -> Result<Option<D::Sample<'a>>, BoxError> {
        self.0.next(at, cx)
    }
}

/// A dataset that reads many samples at once, by calling `get` for each index, if the flag is set.
pub(crate) struct ReadsMany<D>(pub(crate) D, pub(crate) bool);

impl<D: Dataset> Dataset for ReadsMany<D> {
    type Sample<'a> = D::Sample<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<D::Sample<'a>, BoxError> {
        self.0.get(index, cx)
    }

    fn reads_many(&self) -> bool {
        self.1
    }
}

/// Returns a dataset that waits at the latch before it reads a sample for which `waits` returns
/// true.
pub(crate) fn stuck<F: Fn(usize, &Context) -> bool + Send + Sync + 'static>(
    len: usize,
    latch: &Latch,
    waits: F,
) -> impl Dataset + for<'a> DatasetOf<'a, Item> + use<F> {
    let latch = latch.clone();
    items(len, move |index, cx| {
        if waits(index, cx) {
            latch.wait();
        }
        Ok(())
    })
}

/// A dataset that declares the given fields, so that `build` reads no sample.
pub(crate) struct WithFields<D>(pub(crate) D, pub(crate) Fields);

impl<D: Dataset> Dataset for WithFields<D> {
    type Sample<'a> = D::Sample<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<D::Sample<'a>, BoxError> {
        self.0.get(index, cx)
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.1.clone())
    }
}

/// A sample that declares the fields of `S`, and that the function `F` writes.
pub(crate) struct WrittenBy<S, F>(S, F);

impl<S: Sample, F: FnOnce(S, &mut Row<'_>) -> Result<(), BoxError>> WrittenBy<S, F> {
    pub(crate) fn new(sample: S, write: F) -> Self {
        Self(sample, write)
    }
}

impl<S: Sample, F: FnOnce(S, &mut Row<'_>) -> Result<(), BoxError>> Sample for WrittenBy<S, F> {
    type Schema = S::Schema;

    fn declare(&self, fields: &mut Fields) {
        self.0.declare(fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        (self.1)(self.0, row)
    }
}

/// A dataset with bulk reads, which records the indices of each read. A sample is its index and a
/// random number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bulk {
    pub(crate) len: usize,
    pub(crate) asked: Notes,
    /// The number of samples that a bulk read returns beyond those requested, or negative if it
    /// returns fewer.
    pub(crate) off_by: isize,
    /// The index of a sample that cannot be read; `None` if all can.
    pub(crate) bad: Option<usize>,
    /// Whether a bulk read fails after its last sample.
    pub(crate) late: bool,
    /// The number of calls of `prefetch`.
    pub(crate) prefetched: Arc<AtomicUsize>,
}

impl Dataset for Bulk {
    type Sample<'a> = (i64, u64);

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<(i64, u64), BoxError> {
        if self.bad == Some(index) { Err("bad".into()) } else { Ok((index as i64, cx.rng().next_u64())) }
    }

    fn prefetch(&self, index: usize) {
        assert!(index < self.len);
        self.prefetched.fetch_add(1, Ordering::Relaxed);
    }

    fn reads_many(&self) -> bool {
        true
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn FnMut((i64, u64)) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        self.asked.push(indices);
        for sample in 0..indices.len().saturating_add_signed(self.off_by) {
            cx.go_to(sample);
            put(self.get(indices[sample.min(indices.len() - 1)], cx)?)?;
        }
        if self.late { Err("too late".into()) } else { Ok(()) }
    }
}

/// A dataset of numbers whose length can change.
pub(crate) struct Resizable(pub(crate) Arc<AtomicUsize>);

impl Dataset for Resizable {
    type Sample<'a> = i64;

    fn len(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<i64, BoxError> {
        Ok(index as i64)
    }
}

/// Returns a sampler of `len` indices, whose orders a function writes.
pub(crate) fn sampler_fn(len: usize, order: impl FnMut(&mut Order) -> Result<(), SamplerError> + Send) -> impl Sampler {
    FnSampler(len, order)
}

struct FnSampler<F>(usize, F);

impl<F: FnMut(&mut Order) -> Result<(), SamplerError> + Send> Sampler for FnSampler<F> {
    fn len(&self) -> usize {
        self.0
    }

    fn memory(&self) -> usize {
        self.0 * size_of::<u64>()
    }

    fn order(&mut self, _: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        (self.1)(order)
    }
}
