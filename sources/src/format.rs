//! [`Format`], the trait that each format implements, and [`Records`], the dataset that is made
//! from a format.

use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, OutOfRange, Upcoming};
use slotline::sample::{Fields, RowsMut};
use smallvec::SmallVec;

use crate::ahead::{Ahead, ReadCounters, Readiness};
#[cfg(feature = "remote")]
use crate::cache::{Cache, Planner};
use crate::columns::View;
use crate::files::{Files, Span, reserve};
use crate::{Error, Record, RecordFields};

/// A format of data in files: where the samples are, and how their bytes become fields.
///
/// [`Records`] makes a dataset of it. You can implement this trait for your own format:
///
/// ```
/// use slotline::dtype::DType;
/// use slotline::{BoxError, Loader};
/// use slotline_sources::files::{Files, Span};
/// use slotline_sources::{Error, FieldKind, Format, Input, Record, RecordFields, Records, Value};
///
/// /// Points of two little-endian f32 each.
/// #[derive(Debug)]
/// struct Points(Files, RecordFields);
///
/// impl Format for Points {
///     fn len(&self) -> usize {
///         self.0.file_len(0).unwrap_or(0) as usize / 8
///     }
///
///     fn fields(&self) -> &RecordFields {
///         &self.1
///     }
///
///     fn files(&self) -> &Files {
///         &self.0
///     }
///
///     fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
///         each(Span { file: 0, start: 8 * index as u64, len: Some(8) });
///     }
///
///     fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
///         let [bytes] = input.spans([Span { file: 0, start: 8 * index as u64, len: Some(8) }])?;
///         Ok(Record::new(&self.1, [Value::from(bytes)]))
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("points");
/// # std::fs::write(&path, [0.5_f32, 1.0, 1.5, 2.0].map(f32::to_ne_bytes).concat())?;
/// let fields = RecordFields::new([("xy", FieldKind::Tensor(DType::F32, vec![2]))]);
/// let points = Records::new(Points(Files::open([path])?, fields));
/// let mut loader = Loader::builder(points).batch_size(2).build()?;
/// let batch = loader.epoch()?.next().expect("two points")?;
/// assert_eq!(batch.tensors().get(0).unwrap().typed::<f32>().unwrap().as_slice(), [0.5, 1.0, 1.5, 2.0]);
/// # Ok::<(), BoxError>(())
/// ```
pub trait Format: Any + std::fmt::Debug + Send + Sync {
    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the fields of every sample.
    fn fields(&self) -> &RecordFields;

    /// Returns the files that the samples are in.
    fn files(&self) -> &Files;

    /// Calls `each` with the byte ranges that sample `index` is read from. `index` must be less
    /// than the length. Several samples may be read from the same ranges. Ranges that are in memory
    /// already may be left out.
    fn spans(&self, index: usize, each: &mut dyn FnMut(Span));

    /// Returns the index of the file that contains sample `index`, which must be less than the
    /// length. By default it is the file of the first [span](Self::spans), so a format that may
    /// leave out spans that are in memory must override this.
    fn file_of(&self, index: usize) -> Option<usize> {
        let mut file = None;
        self.spans(index, &mut |span| _ = file.get_or_insert(span.file));
        file
    }

    /// Returns the number of samples in each shard, in order. A shard is what is stored together,
    /// such as a file. The numbers add up to the length. By default consecutive samples are in one
    /// shard if their first bytes are in the same file.
    fn shard_lens(&self) -> Vec<usize> {
        let (mut lens, mut last) = (Vec::<usize>::new(), None);
        for index in 0..self.len() {
            let file = self.file_of(index);
            match lens.last_mut() {
                Some(len) if file == last => *len += 1,
                _ => lens.push(1),
            }
            last = file;
        }
        lens
    }

    /// Whether fields that do not hold bytes can be made without reading the files. If so, and none
    /// of the chosen fields holds bytes, no file is read, and [`Input`] returns empty bytes.
    fn knows_fields(&self) -> bool {
        false
    }

    /// Reads sample `index`, which must be less than the length.
    ///
    /// # Errors
    ///
    /// If its bytes can't be read, or violate the format.
    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error>;

    /// Whether [`write_many`](Self::write_many) should be called, because it is faster than
    /// repeated calls of [`read`](Self::read).
    fn reads_many(&self) -> bool {
        false
    }

    /// Writes the samples at `indices`, each less than the length, into their rows. An
    /// implementation may stop after any number of samples, also before the first.
    /// [`read`](Self::read) is then called for the remaining samples, and returns the errors.
    fn write_many(&self, indices: &[usize], rows: &mut RowsMut<'_>) {
        let _ = (indices, rows);
    }
}

/// Access to the bytes of one sample.
#[derive(Debug)]
pub struct Input<'a> {
    files: &'a Files,
    memory: &'a mut Memory,
    /// The counters to which the time of reading is added; `None` if this sample is not timed.
    timed: Option<&'a ReadCounters>,
    /// Whether empty bytes are returned and nothing is read.
    unread: bool,
}

/// The memory that one reading thread keeps between samples.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// A buffer for each span.
    buffers: Vec<Vec<u8>>,
    /// The data that the last sample was read from, if samples share it, such as an unpacked shard.
    held: Option<Arc<dyn Any + Send + Sync>>,
    /// The number of samples that were read and not counted yet.
    read: u64,
}

impl<'a> Input<'a> {
    pub(crate) fn new(files: &'a Files, memory: &'a mut Memory) -> Self {
        Self { files, memory, timed: None, unread: false }
    }

    /// Makes all reads return empty bytes, for fields that are made without them.
    pub(crate) fn unread(self) -> Self {
        Self { unread: true, ..self }
    }

    /// Reads the bytes of the sample's spans.
    ///
    /// # Errors
    ///
    /// If a file can't be read, or ends before the bytes do.
    pub fn spans<const N: usize>(self, spans: [Span; N]) -> Result<[&'a [u8]; N], Error> {
        let read = self.list(spans)?;
        Ok(std::array::from_fn(|i| read[i]))
    }

    /// Reads the bytes of the sample's spans, if their number is known only at run time.
    ///
    /// # Errors
    ///
    /// If a file can't be read, or ends before the bytes do.
    pub fn list(self, spans: impl IntoIterator<Item = Span>) -> Result<SmallVec<[&'a [u8]; 4]>, Error> {
        let _timer = self.timed.map(ReadCounters::time_reading);
        let spans: SmallVec<[Span; 4]> = spans.into_iter().collect();
        if self.unread {
            return Ok(spans.iter().map(|_| &[][..]).collect());
        }
        let buffers = &mut self.memory.buffers;
        if buffers.len() < spans.len() {
            buffers.resize_with(spans.len(), Vec::new);
        }
        spans.iter().zip(buffers).map(|(span, memory)| self.files.read(*span, memory)).collect()
    }

    /// Reads the spans and joins their bytes, as if they were one span. Several spans are copied
    /// into memory of the thread.
    ///
    /// # Errors
    ///
    /// If a file can't be read, or ends before the bytes do.
    pub fn joined(self, spans: impl IntoIterator<Item = Span>) -> Result<&'a [u8], Error> {
        let _timer = self.timed.map(ReadCounters::time_reading);
        let [one, all, _] = self.memory.buffers();
        joined(self.files, spans, one, all)
    }

    /// Stores data that several samples share, such as an unpacked shard, in the thread's memory
    /// until the next sample is read. Returns a reference to it.
    pub fn hold<T: Any + Send + Sync>(self, shared: Arc<T>) -> &'a T {
        let held: &'a dyn Any = &**self.memory.held.insert(shared);
        held.downcast_ref().expect("it was just stored as a T")
    }

    /// Returns the data that [`hold`](Self::hold) stored last, if `is` accepts it. Otherwise stores
    /// the data that `find` returns.
    pub(crate) fn hold_if<T: Any + Send + Sync>(
        self,
        is: impl Fn(&T) -> bool,
        find: impl FnOnce() -> Result<Arc<T>, Error>,
    ) -> Result<&'a T, Error> {
        if !self.memory.held.as_ref().and_then(|held| held.downcast_ref()).is_some_and(is) {
            self.memory.held = Some(find()?);
        }
        let held: &'a dyn Any = &**self.memory.held.as_ref().expect("it was just stored");
        Ok(held.downcast_ref().expect("it was stored as a T"))
    }

    /// Reads the spans as [`joined`](Self::joined) does, and converts the bytes. `convert` appends
    /// its result to an empty buffer of the thread, which is returned.
    ///
    /// # Errors
    ///
    /// If a file can't be read, or ends before the bytes do, or `convert` fails.
    pub fn converted(
        self,
        spans: impl IntoIterator<Item = Span>,
        convert: impl FnOnce(&[u8], &mut Vec<u8>) -> io::Result<()>,
    ) -> Result<&'a [u8], Error> {
        let timer = self.timed.map(ReadCounters::time_reading);
        let [one, all, to] = self.memory.buffers();
        to.clear();
        let mut file = None;
        let spans = spans.into_iter().inspect(|span| file = Some(span.file));
        let bytes = joined(self.files, spans, one, all)?;
        drop(timer);
        let path = || file.map_or_else(PathBuf::new, |file| self.files.path(file));
        convert(bytes, to).map_err(|source| Error::io(&path(), "convert", source))?;
        Ok(to)
    }
}

impl Memory {
    fn buffers<const N: usize>(&mut self) -> &mut [Vec<u8>; N] {
        if self.buffers.len() < N {
            self.buffers.resize_with(N, Vec::new);
        }
        self.buffers.first_chunk_mut().expect("there are at least as many")
    }
}

fn joined<'a>(
    files: &'a Files,
    spans: impl IntoIterator<Item = Span>,
    one: &'a mut Vec<u8>,
    all: &'a mut Vec<u8>,
) -> Result<&'a [u8], Error> {
    let mut spans = spans.into_iter();
    let Some(first) = spans.next() else { return Ok(&[]) };
    let Some(second) = spans.next() else { return files.read(first, one) };
    all.clear();
    for span in [first, second].into_iter().chain(spans) {
        let bytes = files.read(span, one)?;
        reserve(all, bytes.len()).map_err(|source| Error::io(&files.path(span.file), "read", source))?;
        all.extend_from_slice(bytes);
    }
    Ok(all)
}

/// A dataset of the samples of a [`Format`], by index. Clones share the files and all state.
#[derive(Debug)]
pub struct Records<F: ?Sized> {
    format: Arc<F>,
    reading: Reading,
    budget: u64,
}

/// The state for reading ahead that the clones of a dataset share.
#[derive(Clone, Debug, Default)]
struct Reading {
    /// Created before any worker is forked. `None` if memory for it could not be allocated.
    read: Option<Arc<ReadCounters>>,
    /// Started when the first pass begins. `None` if the threads can't be started.
    ahead: Arc<OnceLock<Option<Ahead>>>,
    #[cfg(feature = "remote")]
    planner: Arc<OnceLock<Option<Planner>>>,
}

impl Reading {
    fn new() -> Self {
        Self { read: ReadCounters::new().ok().map(Arc::new), ..Self::default() }
    }
}

/// Returns the index of the part of a dataset (a file, shard or row group) that contains sample
/// `index`, and the sample's index within the part. `starts` are the indices of the first sample of
/// each part, followed by the number of all samples.
pub(crate) fn place(starts: &[usize], index: usize) -> (usize, usize) {
    let part = starts.partition_point(|&start| start <= index) - 1;
    (part, index - starts[part])
}

/// The default of [`Records::read_ahead`], in bytes.
const BUDGET: u64 = 256 << 20;

impl<F: Format> Records<F> {
    /// Creates a dataset from a format.
    pub fn new(format: F) -> Self {
        Self { format: Arc::new(format), reading: Reading::new(), budget: BUDGET }
    }

    /// Converts this to a dataset whose format is not part of its type.
    pub fn erased(self) -> Records<dyn Format> {
        Records { format: self.format, reading: self.reading, budget: self.budget }
    }
}

impl<F: Format + ?Sized> Records<F> {
    /// Sets the maximum number of bytes that are fetched before they are needed; 256 MiB by
    /// default. With 0, nothing is fetched ahead.
    ///
    /// If the loader knows its order in advance ([`Dataset::begin_pass`]), threads of the dataset
    /// ask the system for the bytes of upcoming samples, in the order in which they are needed. The
    /// bytes are then in the system's page cache, not in memory of this process. This does not
    /// change results. If the files are in memory already, it costs next to nothing.
    pub fn read_ahead(mut self, bytes: u64) -> Self {
        (self.budget, self.reading.read, self.reading.ahead) = (bytes, Reading::new().read, Arc::default());
        self
    }

    /// Sets a cache on a local disk for objects in buckets or on servers. An object is stored as a
    /// whole when it is needed, if there is room. This does not change results.
    ///
    /// If the loader knows its order in advance, objects are fetched before their samples are read,
    /// and the objects whose next use is furthest away are evicted. Samples of objects that are not
    /// in the cache are read by range requests, as without a cache. So with a cache as large as the
    /// data, every pass but the first one is local. With a smaller cache, use an order that stays
    /// within a few shards at a time. Clones share the cache; a second call has no effect. Files of
    /// this machine, and objects without a tag (ETag), are not cached.
    ///
    /// ```no_run
    /// use slotline_sources::{Cache, tar::Tar};
    ///
    /// let cache = Cache::new("/local/disk/cache", 100 << 30)?;
    /// let photos = Tar::open(["s3://bucket/photos-{000..999}.tar"])?.cache(&cache);
    /// # Ok::<(), slotline_sources::Error>(())
    /// ```
    #[cfg(feature = "remote")]
    pub fn cache(self, cache: &Cache) -> Self {
        if let Some(remote) = self.format.files().remote() {
            remote.cache(cache.clone());
        }
        self
    }

    /// Returns a dataset with only these fields, in this order. If no field has a given name, the
    /// name stands for all fields whose names begin with it and a dot. The same bytes are read as
    /// before; to read less of Arrow and Parquet files, use the `columns` of their options.
    ///
    /// ```no_run
    /// use slotline_sources::mds::Mds;
    ///
    /// let tokens = Mds::open("train")?.columns(["tokens"])?;
    /// # Ok::<(), slotline_sources::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no field with one of the names, or one is listed twice.
    pub fn columns(self, names: impl IntoIterator<Item = impl Into<String>>) -> Result<Records<dyn Format>, Error> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let (chosen, budget) = (View::new(self.format.clone(), &names)?, self.budget);
        Ok(Records { budget, ..Records::new(chosen) }.erased())
    }

    /// Returns a dataset whose batches have `times` times as much room for bytes, texts and lists.
    /// By default, a batch has room for twice the mean size of a sample in each row, or less if no
    /// sample is as large.
    ///
    /// This is for workers that are processes: if one of their batches needs more room, that is an
    /// error, whereas threads allocate additional memory for it. More room means more memory for
    /// every batch.
    ///
    /// ```no_run
    /// use slotline::Loader;
    /// use slotline_sources::folder::Folder;
    ///
    /// let photos = Folder::open("photos")?.room(4);
    /// let loader = Loader::builder(photos).batch_size(2).num_workers(2).processes().build()?;
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn room(self, times: usize) -> Records<dyn Format> {
        Records { budget: self.budget, ..Records::new(View::with_room(self.format, times)) }.erased()
    }

    /// Returns warnings for the user, such as that connections to a server failed, or that an index
    /// could not be saved.
    pub fn warnings(&self) -> Vec<String> {
        self.format.files().warnings()
    }

    /// Returns the fraction of the time in [`get`](Dataset::get) that was spent on reading files in
    /// the latest pass, from 0 to 1; the rest is decoding. One sample in 16 is timed. Returns
    /// `None` if none was timed yet.
    pub fn reading_share(&self) -> Option<f64> {
        self.reading.read.as_ref()?.reading_share()
    }

    /// Returns the number of samples in each shard, in order: in each file, row group of Parquet,
    /// or batch of Arrow. A `ShardShuffleSampler` of `slotline-sequences` shuffles a few shards at
    /// a time.
    ///
    /// ```no_run
    /// use slotline::Loader;
    /// use slotline_sequences::sampler::ShardShuffleSampler;
    /// use slotline_sources::tar::Tar;
    ///
    /// let photos = Tar::open(["photos-{000..999}.tar"])?;
    /// let order = ShardShuffleSampler::new(photos.shard_lens(), 16)?;
    /// let loader = Loader::builder(photos).batch_size(64).sampler(order).num_workers(2).build()?;
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn shard_lens(&self) -> Vec<usize> {
        self.format.shard_lens()
    }

    /// Writes samples into their rows as [`Format::write_many`] does, and returns how many were
    /// written, from the first on. The caller must read the remaining samples with
    /// [`get`](Dataset::get), which may return an error, and push them. This is for datasets that
    /// make their samples from these records.
    pub fn write_some(&self, indices: &[usize], rows: &mut RowsMut<'_>) -> usize {
        let (len, left) = (self.format.len(), rows.left());
        if indices.iter().all(|&index| index < len) {
            let _timer = self.reading.read.as_deref().map(ReadCounters::time_samples);
            self.format.write_many(indices, rows);
        }
        let written = left - rows.left();
        self.reading.read.as_ref().inspect(|read| read.count_many(written));
        written
    }

    pub(crate) fn shared(&self) -> Arc<F> {
        self.format.clone()
    }

    /// Returns the format, which may have information besides the samples. A `dyn Format` can be
    /// downcast:
    ///
    /// ```no_run
    /// use std::any::Any;
    ///
    /// use slotline_sources::folder::Folder;
    ///
    /// let records = slotline_sources::open("photos")?;
    /// let format: &dyn Any = records.format();
    /// let classes = format.downcast_ref().map(Folder::classes);
    /// # Ok::<(), slotline_sources::Error>(())
    /// ```
    pub fn format(&self) -> &F {
        &self.format
    }
}

impl<F: ?Sized> Clone for Records<F> {
    fn clone(&self) -> Self {
        Self { format: self.format.clone(), reading: self.reading.clone(), budget: self.budget }
    }
}

impl<F: Format + ?Sized> Dataset for Records<F> {
    type Sample<'a> = Record<'a>;

    fn len(&self) -> usize {
        self.format.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Record<'a>, BoxError> {
        if index >= self.format.len() {
            return Err(OutOfRange { dataset: "Records", index, len: self.format.len() }.into());
        }
        let memory: &mut Memory = cx.local();
        let timed = self.reading.read.as_deref().filter(|read| read.count(&mut memory.read));
        let _timer = timed.map(ReadCounters::time_samples);
        Ok(self.format.read(index, Input { timed, ..Input::new(self.format.files(), memory) })?)
    }

    fn reads_many(&self) -> bool {
        self.format.reads_many()
    }

    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        let written = self.write_some(indices, rows);
        for (place, &index) in indices.iter().enumerate().skip(written) {
            cx.go_to(place);
            rows.push(self.get(index, cx)?)?;
        }
        Ok(())
    }

    fn reads_ahead(&self) -> bool {
        #[cfg(feature = "remote")]
        let is_cached = self.format.files().remote().is_some_and(|remote| remote.cached().is_some());
        #[cfg(not(feature = "remote"))]
        let is_cached = false;
        (self.budget > 0 || is_cached) && self.reading.read.is_some()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        let Some(read) = &self.reading.read else { return };
        read.begin();
        self.format.files().begin_pass(self.budget);
        #[cfg(feature = "remote")]
        if self.format.files().remote().is_some_and(|remote| remote.is_here() && remote.cached().is_some()) {
            let planner = self.reading.planner.get_or_init(|| Planner::start(self.format.clone(), read.clone()).ok());
            if let Some(planner) = planner {
                planner.begin(upcoming.clone(), &*self.format, read);
            }
        }
        if self.budget == 0 {
            return;
        }
        let ahead = self.reading.ahead.get_or_init(|| {
            let (format, of) = (self.format.clone(), self.format.clone());
            let request = move |index| {
                let mut all = Readiness { bytes: 0, resident: true };
                format.spans(index, &mut |span| {
                    let Readiness { bytes, resident } = format.files().will_need(span);
                    all = Readiness { bytes: all.bytes + bytes, resident: all.resident && resident };
                });
                all
            };
            Ahead::start(of.files().requests(), self.budget, read.clone(), request, move || of.files().send()).ok()
        });
        if let Some(ahead) = ahead {
            ahead.begin(upcoming);
        }
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.format.fields().declared())
    }
}
