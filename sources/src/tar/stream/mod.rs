//! Tars that are read sequentially, as webdataset does, for tars that can't be indexed.

mod shard;

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use slotline::dataset::{Context, IterableDataset, WorkerInfo};
use slotline::rng::Generator;
use slotline::rng::rand_core::Rng;
use slotline::sample::Fields;
use slotline::{BoxError, Ranks};

pub(super) use self::shard::Shards;
use self::shard::{Reader, Sample, ShardReader, TeeReader};
use super::{Decode, KEY, Source, alternatives, kind, record, value};
use crate::open::{Settings, TARS};
use crate::paths::expand;
use crate::record::CapacityHint;
use crate::{Error, FieldKind, Record, RecordFields};

/// The number of samples that are read to determine the fields.
const FIRST: usize = 100;
/// The approximate maximum number of bytes of the samples that are read to determine the fields.
const FIRST_BYTES: u64 = 16 << 20;

/// The default size of a worker's shuffle buffer, in bytes.
const LIMIT: u64 = 256 << 20;

/// The samples of tars that are read sequentially. Created by
/// [`TarOptions::stream`](super::TarOptions::stream) and
/// [`stream_reader`](super::TarOptions::stream_reader).
///
/// This is for tars that can't be indexed: those that are compressed by gzip, bzip2 or zstd, or
/// come from the standard input. For all other tars, [`Tar`](super::Tar) is better: it shuffles
/// completely, resumes at once, and divides samples evenly among any number of workers and ranks.
/// Fields, decoding and errors are the same, except that a damaged tar is detected only when it is
/// read; the rest of that tar is then skipped.
///
/// With n workers in all ranks together, each worker reads every n-th tar. So there should be at
/// least n tars, of about equal size. Ranks may have different numbers of samples.
///
/// ```
/// use slotline::Loader;
/// use slotline_sources::tar::TarOptions;
///
/// # let folder = tempfile::tempdir()?;
/// # let mut bytes = Vec::new();
/// # for (name, data) in [("1.txt", "one"), ("2.txt", "two"), ("3.txt", "three")] {
/// #     let mut block = vec![0; 1024];
/// #     block[..name.len()].copy_from_slice(name.as_bytes());
/// #     block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
/// #     block[148..156].fill(b' ');
/// #     block[156] = b'0';
/// #     let sum: u32 = block[..512].iter().map(|&byte| u32::from(byte)).sum();
/// #     block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
/// #     block[512..512 + data.len()].copy_from_slice(data.as_bytes());
/// #     bytes.extend(block);
/// # }
/// # bytes.extend([0; 1024]);
/// # std::fs::write(folder.path().join("words-0.tar"), bytes)?;
/// let words = TarOptions::new().stream([folder.path().join("words-*.tar")])?.shuffle(1000);
/// let mut loader = Loader::iterable(words).batch_size(3).seed(42).build()?;
/// let batch = loader.epoch()?.next().expect("three samples")?;
/// assert_eq!(batch.tensors().get(0).unwrap().bytes().len(), "onetwothree".len());
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// A resumed pass continues with exactly the next sample; the number of workers must be the same.
/// To do so, it reads again the tar in which the current block of the shuffle buffer begins, up to
/// the position at which the state was taken. The tars must have the same names, in the same order,
/// but may be in another folder. A tar from a reader is read again from its start, so pass a new
/// reader of the same bytes. A clone shares the reader.
#[derive(Clone)]
pub struct TarStream {
    shards: Arc<Shards>,
    /// A digest of the tars' names.
    names: u64,
    fields: RecordFields,
    sources: Vec<Source>,
    /// Whether the fields are all fields of the first samples, so that later samples must not have
    /// any other field.
    all: bool,
    skip_incomplete: bool,
    missing_end: bool,
    buffer: usize,
    limit: u64,
    ranks: Ranks,
}

impl TarStream {
    /// Opens tars, given by paths without patterns.
    pub(crate) fn open(options: &Settings, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Self, Error> {
        Self::new(options, Shards::files(expand(paths)?)?)
    }

    pub(super) fn new(options: &Settings, shards: Shards) -> Result<Self, Error> {
        options.check(TARS)?;
        let (first, kept) = first_samples(&shards, options)?;
        let names = options.columns.clone().unwrap_or_else(|| {
            let mut names = Vec::<String>::new();
            for (name, ..) in first.iter().flat_map(|sample| &sample.files) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            names
        });
        let sources = options.tar_sources(&names, shards.path(0))?;
        let fields = sources.iter().map(|source| field(source, &first, &shards)).collect::<Result<Vec<_>, _>>()?;
        if let Some(kept) = kept {
            shards.rewind(kept);
        }
        Ok(Self {
            names: shards.digest(),
            shards: Arc::new(shards),
            fields: RecordFields::new(fields),
            sources,
            all: options.columns.is_none(),
            skip_incomplete: options.skip_incomplete,
            missing_end: options.missing_end,
            buffer: 1,
            limit: options.memory_limit.unwrap_or(LIMIT),
            ranks: Ranks::ALONE,
        })
    }

    /// Turns shuffling on; it is off by default. The tars of each pass are in random order, and
    /// each worker shuffles blocks of `buffer` samples. While it delivers a block, it reads the
    /// next one.
    ///
    /// If `buffer` is smaller than the number of samples of a tar, samples of one tar stay near
    /// each other.
    #[must_use]
    pub fn shuffle(mut self, buffer: usize) -> Self {
        self.buffer = buffer.max(1);
        self
    }

    /// Sets how many bytes a worker may hold in order to shuffle them; 256 MiB by default. It holds
    /// up to twice as many while the next block is read. If a block reaches this size, it has fewer
    /// samples than `buffer`. This is also the maximum size of one sample, except for the first
    /// samples.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Makes this rank read only every `num_replicas`-th tar, from tar `rank` on. All ranks must
    /// have the same [seed](slotline::loader::Builder::seed) if tars are shuffled.
    ///
    /// # Errors
    ///
    /// If `rank` is not below `num_replicas`.
    pub fn replica(mut self, num_replicas: usize, rank: usize) -> Result<Self, Error> {
        self.ranks = Ranks::new(rank, num_replicas).map_err(|_| {
            Error::usage(format!("rank {rank} is not one of {num_replicas} replicas"), "use a rank below their number")
        })?;
        Ok(self)
    }

    /// Returns the fields of every sample.
    pub fn fields(&self) -> &RecordFields {
        &self.fields
    }

    /// Returns the indices of the tars that a worker reads, in order.
    fn shares(&self, worker: Option<WorkerInfo>, seed: u64) -> Result<Vec<usize>, BoxError> {
        let mut shards = Vec::<u64>::new();
        if self.buffer > 1 {
            Generator::from_seed(seed).randperm_into(self.shards.len(), &mut shards)?;
        } else {
            shards.extend(0..self.shards.len() as u64);
        }
        Ok(self.ranks.share(shards.len(), worker).map(|position| shards[position] as usize).collect())
    }

    /// Reads the next sample that has all fields.
    fn read(&self, cursor: &mut StreamCursor) -> Result<Option<Sample>, Error> {
        let wanted = |field: &str| self.sources.iter().any(|source| is_from(source, field));
        loop {
            let Some(reader) = &mut cursor.reader else {
                let Some(&shard) = cursor.shards.get(cursor.at.shard) else { return Ok(None) };
                // A tar that can't be opened is skipped after its error was returned.
                let opened = self.shards.open(shard).and_then(|reader| {
                    ShardReader::new(self.shards.path(shard), shard, reader, self.missing_end, self.limit)
                });
                match opened {
                    Ok(reader) => cursor.reader = Some(reader),
                    Err(error) => {
                        cursor.pass_over_shard();
                        return Err(error);
                    }
                }
                continue;
            };
            let sample = match reader.next(wanted) {
                Ok(Some(sample)) => sample,
                end => {
                    cursor.pass_over_shard();
                    match end {
                        Err(error) => return Err(error),
                        Ok(_) => continue,
                    }
                }
            };
            if cursor.skip > 0 {
                cursor.skip -= 1;
                continue;
            }
            cursor.at.sample += 1;
            let lacking =
                |source: &&Source| matches!(source, Source::Member(name, _) if sample.first_file(name).is_none());
            let lacks = match self.sources.iter().find(lacking) {
                Some(Source::Member(name, _)) => Some(name),
                _ => None,
            };
            let (problem, advice) = match (lacks, sample.others.first()) {
                (Some(_), _) if self.skip_incomplete => continue,
                (Some(name), _) => (
                    format!("no file `{name}`"),
                    "list `columns` that all samples have, join alternatives as `jpg;png`, or set `skip_incomplete`",
                ),
                (None, Some(name)) if self.all => {
                    (format!("a file `{name}`, which the first samples do not have"), "list the `columns` to read")
                }
                (None, _) => return Ok(Some(sample)),
            };
            let key = String::from_utf8_lossy(&sample.key);
            let offset = sample.files.first().map(|(_, start, _)| *start);
            let problem = format!("the sample {key} has {problem}");
            return Err(Error::format(self.shards.path(sample.shard).display(), offset, problem, advice));
        }
    }

    /// Reads a sample into the next block, unless that block is full.
    fn read_ahead(&self, cursor: &mut StreamCursor) -> Result<(), Error> {
        if cursor.is_full {
            return Ok(());
        }
        match self.read(cursor)? {
            Some(sample) => {
                cursor.next_bytes = cursor.next_bytes.saturating_add(sample.bytes());
                cursor.next.push(sample);
                cursor.is_full = cursor.next.len() >= self.buffer || cursor.next_bytes >= self.limit;
            }
            None => cursor.is_full = true,
        }
        Ok(())
    }

    /// Begins the next block. Its order depends only on the seed and on the position where it
    /// begins.
    fn begin_block(&self, cursor: &mut StreamCursor) -> Result<(), BoxError> {
        while !cursor.is_full {
            self.read_ahead(cursor)?;
        }
        let mut samples: Vec<_> = std::mem::take(&mut cursor.next).into_iter().map(Some).collect();
        cursor.begin = cursor.next_begin;
        cursor.next_begin = cursor.at;
        (cursor.next_bytes, cursor.is_full, cursor.delivered) = (0, false, 0);
        let mut order = Vec::<u32>::new();
        if samples.len() > 1 {
            let shard = cursor.shards.get(cursor.begin.shard).copied().unwrap_or(usize::MAX) as u64;
            let seed = slotline::sampler::digest([cursor.seed.unwrap_or(0), shard, cursor.begin.sample]);
            Generator::from_seed(seed).randperm_into(samples.len(), &mut order)?;
        } else {
            order.extend(0..samples.len() as u32);
        }
        cursor.block = order.into_iter().filter_map(|place| samples[place as usize].take()).collect();
        Ok(())
    }

    /// Returns the fields of a sample.
    fn record<'a>(&'a self, sample: &'a Sample) -> Result<Record<'a>, Error> {
        let file = |name: &str| sample.first_file(name).map(|(_, start, data)| (*start, &data[..]));
        let path = || self.shards.path(sample.shard).to_owned();
        record(&self.fields, &self.sources, &sample.key, file, path)
    }
}

fn is_from(source: &Source, field: &str) -> bool {
    matches!(source, Source::Member(name, _) if alternatives(name).any(|name| name == field))
}

/// Reads the first samples. Returns them and, if the tar comes from a reader, the bytes that were
/// read from it.
fn first_samples(shards: &Shards, options: &Settings) -> Result<(Vec<Sample>, Option<TeeReader>), Error> {
    let (mut samples, mut bytes, mut damaged) = (Vec::new(), 0, None);
    let limit = options.memory_limit.unwrap_or(LIMIT).max(LIMIT);
    for shard in 0..shards.len() {
        let mut kept = TeeReader { reader: shards.open(shard)?, bytes: Vec::new() };
        let by_ref: &mut TeeReader = &mut kept;
        let mut reader = ShardReader::new(shards.path(shard), shard, by_ref, options.missing_end, limit)?;
        while samples.len() < FIRST && bytes < FIRST_BYTES {
            let wanted = |field: &str| {
                let mut names = options.columns.iter().flatten().flat_map(|name| alternatives(name));
                options.columns.is_none() || names.any(|name| name == field)
            };
            match reader.next(wanted) {
                Ok(Some(sample)) => {
                    bytes += sample.bytes();
                    samples.push(sample);
                }
                Ok(None) => break,
                // What a reader returns after an error is unknown.
                Err(error) if matches!(shards, Shards::Once(..)) && !error.is_damage() => return Err(error),
                // Reading the tar will be this error again.
                Err(error) => {
                    damaged.get_or_insert(error);
                    break;
                }
            }
        }
        drop(reader);
        if matches!(shards, Shards::Once(..)) && !(samples.is_empty() && damaged.is_some()) {
            return Ok((samples, Some(kept)));
        }
        if !samples.is_empty() {
            break;
        }
    }
    match damaged.filter(|_| samples.is_empty()) {
        Some(error) => Err(error),
        None => Ok((samples, None)),
    }
}

/// Returns the field of a source, as the first samples show it. Values of later samples may be
/// longer.
fn field<'a>(source: &'a Source, first: &[Sample], shards: &Shards) -> Result<(&'a str, FieldKind), Error> {
    Ok(match source {
        Source::Key => {
            (KEY, FieldKind::Text(CapacityHint::estimate(first.iter().map(|sample| sample.key.len() as u64))))
        }
        Source::Member(name, decode) => {
            let files = || first.iter().filter_map(|sample| Some((sample, sample.first_file(name)?)));
            let Some((sample, (_, start, data))) = files().next() else {
                let problem = format!("the first samples have no file `{name}`");
                let advice = "list `columns` that they have, or put tars first whose samples have it";
                return Err(Error::in_file(shards.path(0), problem, advice));
            };
            let path = shards.path(sample.shard);
            let kind = match decode {
                Decode::Npy => files()
                    .find_map(|(_, (.., data))| value::npy_kind(data).ok())
                    .map_or_else(|| value::npy_kind(data), Ok)
                    .map_err(|found| found.in_sample(path, &sample.key, name, Some(*start)))?,
                _ => kind(*decode, CapacityHint::estimate(files().map(|(_, (.., data))| data.len() as u64))),
            };
            (name, kind)
        }
    })
}

/// A position in the samples of a worker: the index of the tar among the worker's tars, and the
/// index of the sample in the tar.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    shard: usize,
    sample: u64,
}

/// The pass of one worker over a [`TarStream`].
#[derive(Default)]
pub struct StreamCursor {
    worker: Option<WorkerInfo>,
    /// The seed; set when the first sample is read.
    seed: Option<u64>,
    shards: Vec<usize>,
    reader: Option<ShardReader<Reader>>,
    /// The position that is read next, after `skip` samples were skipped.
    at: At,
    skip: u64,
    /// The current block of the shuffle buffer, without the samples that were delivered.
    block: VecDeque<Sample>,
    /// The number of samples of the block that were delivered.
    delivered: usize,
    /// The position of the first sample of the block.
    begin: At,
    /// The next block, which is being read.
    next: Vec<Sample>,
    /// The position of the first sample of the next block.
    next_begin: At,
    next_bytes: u64,
    is_full: bool,
    /// The number of samples of the first block that were delivered before the pass was resumed.
    resumed: usize,
    /// The last sample that was returned.
    current: Option<Sample>,
}

impl StreamCursor {
    /// Moves to the next tar.
    fn pass_over_shard(&mut self) {
        self.reader = None;
        self.at = At { shard: self.at.shard + 1, sample: 0 };
        self.skip = 0;
    }
}

impl fmt::Debug for StreamCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCursor").field("shards", &self.shards).field("at", &self.at).finish_non_exhaustive()
    }
}

impl fmt::Debug for TarStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TarStream");
        debug.field("shards", &self.shards).field("fields", &self.fields).field("buffer", &self.buffer);
        debug.finish_non_exhaustive()
    }
}

impl IterableDataset for TarStream {
    type Sample<'a> = Record<'a>;
    type Cursor = StreamCursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<StreamCursor, BoxError> {
        Ok(StreamCursor { worker, ..StreamCursor::default() })
    }

    fn next<'a>(&'a self, cursor: &'a mut StreamCursor, cx: &'a mut Context) -> Result<Option<Record<'a>>, BoxError> {
        if cursor.seed.is_none() {
            // The pass's seed must be the same for all workers of a pass.
            let base = cursor.worker.map(|worker| worker.seed().wrapping_sub(worker.id() as u64));
            let base = base.unwrap_or_else(|| cx.rng().next_u64());
            let seed = slotline::sampler::digest([base, cx.epoch().into()]);
            cursor.shards = self.shares(cursor.worker, seed)?;
            cursor.seed = Some(seed);
        }
        if cursor.block.is_empty() {
            self.begin_block(cursor)?;
        }
        while cursor.resumed > 0 {
            self.deliver(cursor)?;
            cursor.resumed -= 1;
        }
        if cursor.block.is_empty() {
            self.begin_block(cursor)?;
        }
        self.deliver(cursor)?;
        cursor.current.as_ref().map(|sample| self.record(sample)).transpose().map_err(Into::into)
    }

    fn save(&self, cursor: &StreamCursor, to: &mut String) -> bool {
        if let Some(seed) = cursor.seed {
            let (StreamCursor { begin: At { shard, sample }, .. }, delivered) = (cursor, cursor.delivered);
            to.clear();
            for (name, own, _) in self.same() {
                to.push_str(&format!("{name}={own} "));
            }
            to.push_str(&format!("seed={seed} shard={shard} sample={sample} delivered={delivered}"));
        }
        true
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<StreamCursor, BoxError> {
        let mut cursor = self.iter(worker)?;
        if saved.is_empty() {
            return Ok(cursor);
        }
        let value = |name: &str| -> Result<u64, BoxError> {
            let mut pairs = saved.split(' ').filter_map(|pair| pair.split_once('='));
            let found = pairs.find_map(|(key, value)| (key == name).then_some(value));
            let number = found.and_then(|value| value.parse().ok());
            number.ok_or_else(|| format!("{name} is missing or invalid in the saved state of a TarStream").into())
        };
        for (name, own, advice) in self.same() {
            let saved = value(name)?;
            if saved != own && name == "names" {
                return Err(
                    "TarStream: the saved state is of tars with other names, or in another order; open it with the \
                            same tars, in the same order"
                        .into(),
                );
            }
            if saved != own {
                return Err(format!("TarStream: {name} was {saved} in the saved state, but is {own}; {advice}").into());
            }
        }
        let seed = value("seed")?;
        cursor.shards = self.shares(worker, seed)?;
        cursor.seed = Some(seed);
        let at = At { shard: value("shard")?.try_into()?, sample: value("sample")? };
        let delivered: usize = value("delivered")?.try_into()?;
        if at.shard > cursor.shards.len() || delivered > self.buffer {
            return Err("TarStream: the saved state does not fit these tars; open it with the same ones".into());
        }
        (cursor.at, cursor.next_begin, cursor.skip, cursor.resumed) = (at, at, at.sample, delivered);
        Ok(cursor)
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.fields.declared())
    }
}

impl TarStream {
    /// Returns the values that must be the same when a state is loaded: for each a name, the value,
    /// and advice for the user if it differs.
    fn same(&self) -> [(&'static str, u64, &'static str); 6] {
        const OPTIONS: &str = "open it with the same tars and options";
        const RANKS: &str = "a stream resumes with as many ranks, and each from its own state";
        [
            ("shards", self.shards.len() as u64, OPTIONS),
            ("names", self.names, OPTIONS),
            ("buffer", self.buffer as u64, OPTIONS),
            ("memory_limit", self.limit, OPTIONS),
            ("rank", self.ranks.rank() as u64, RANKS),
            ("world_size", self.ranks.world_size() as u64, RANKS),
        ]
    }

    /// Removes the next sample from the block, and reads another sample in its place. If reading
    /// fails, no sample is removed.
    fn deliver(&self, cursor: &mut StreamCursor) -> Result<(), Error> {
        if self.buffer > 1 && !cursor.block.is_empty() {
            self.read_ahead(cursor)?;
        }
        cursor.current = cursor.block.pop_front();
        cursor.delivered += usize::from(cursor.current.is_some());
        Ok(())
    }
}
