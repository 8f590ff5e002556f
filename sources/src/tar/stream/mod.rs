//! Tars that are read from front to back, as webdataset does, for those that can't be indexed.

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

/// How many samples are read to learn the fields, and about how many bytes at most.
const FIRST: usize = 100;
const FIRST_BYTES: u64 = 16 << 20;

/// How many bytes a shuffle buffer may have by default.
const LIMIT: u64 = 256 << 20;

/// The samples of tars, read from front to back. Made by [`TarOptions::stream`](super::TarOptions::stream) and
/// [`stream_reader`](super::TarOptions::stream_reader).
///
/// This is for tars that can't be indexed: packed by gzip, bzip2 or zstd, or from the standard input. For all others [`Tar`](super::Tar)
/// is better: it shuffles completely, resumes at once, and divides samples evenly among any number of workers and ranks.
/// Fields, decoding and errors are the same here, except that a damaged tar is found when it is read; the rest of that
/// tar is then left out.
///
/// Each worker reads every n-th tar, so there should be at least as many as workers × ranks, of about equal size. Ranks
/// may have different numbers of samples.
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
/// A pass that is resumed continues exactly, with the same number of workers. It reads the tar again in which the current
/// block of the shuffle buffer begins, up to where it was. The tars must have the same names, in the same order, but may be in
/// another folder. A tar from a reader is read again from its start, so pass a
/// new reader of the same bytes. A clone shares the reader.
#[derive(Clone)]
pub struct TarStream {
    shards: Arc<Shards>,
    /// The digest of the tars' names.
    names: u64,
    fields: RecordFields,
    sources: Vec<Source>,
    /// Whether the fields are those of the first samples, which must be all.
    all: bool,
    skip_incomplete: bool,
    missing_end: bool,
    buffer: usize,
    limit: u64,
    ranks: Ranks,
}

impl TarStream {
    /// Opens tars, with expanded paths.
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

    /// Shuffles: the tars of each pass are in random order, and each worker shuffles `buffer` samples at a time, the next
    /// of which are read while they are delivered. By default, nothing is shuffled.
    ///
    /// With fewer samples than a tar has, samples of one tar stay near each other.
    #[must_use]
    pub fn shuffle(mut self, buffer: usize) -> Self {
        self.buffer = buffer.max(1);
        self
    }

    /// Sets how many bytes a worker may hold to shuffle them, 256 MiB by default; they may be twice as many while the next
    /// ones are read. It is also the maximum for one sample, beyond the first ones. A buffer that reaches it has fewer
    /// samples.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Reads only every `num_replicas`-th tar, from number `rank` on. All ranks must have the same
    /// [seed](slotline::loader::Builder::seed) if tars are shuffled.
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

    /// Returns the numbers of the tars that a worker reads, in order.
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
                // A tar that can't be opened is skipped after its error.
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

    /// Reads a sample into the block after the current one, unless that is full.
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

    /// Begins the next block. Its order is a function of the seed and of where it begins.
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

/// Reads the first samples, and returns them with what was read of a reader.
fn first_samples(shards: &Shards, options: &Settings) -> Result<(Vec<Sample>, Option<TeeReader>), Error> {
    let (mut samples, mut bytes) = (Vec::new(), 0);
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
            let Some(sample) = reader.next(wanted)? else { break };
            bytes += sample.bytes();
            samples.push(sample);
        }
        drop(reader);
        if matches!(shards, Shards::Once(..)) {
            return Ok((samples, Some(kept)));
        }
        if !samples.is_empty() {
            break;
        }
    }
    Ok((samples, None))
}

/// Returns the field that the first samples show. Values of later samples may be longer.
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
                Decode::Npy => {
                    value::npy_kind(data).map_err(|found| found.in_sample(path, &sample.key, name, Some(*start)))?
                }
                _ => kind(*decode, CapacityHint::estimate(files().map(|(_, (.., data))| data.len() as u64))),
            };
            (name, kind)
        }
    })
}

/// A place in the samples of a worker: the number of the tar among its tars, and of the sample in it.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    shard: usize,
    sample: u64,
}

/// The pass of one worker over a [`TarStream`].
#[derive(Default)]
pub struct StreamCursor {
    worker: Option<WorkerInfo>,
    /// Set when the first sample is read.
    seed: Option<u64>,
    shards: Vec<usize>,
    reader: Option<ShardReader<Reader>>,
    /// What is read next, once `skip` samples were skipped.
    at: At,
    skip: u64,
    /// The current block, of which some samples were delivered, and where it begins.
    block: VecDeque<Sample>,
    delivered: usize,
    begin: At,
    /// The block after it, which is being read.
    next: Vec<Sample>,
    next_begin: At,
    next_bytes: u64,
    is_full: bool,
    /// How many samples of the first block were delivered before the pass was resumed.
    resumed: usize,
    /// The sample that was returned last.
    current: Option<Sample>,
}

impl StreamCursor {
    /// Goes to the next tar.
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
            // All workers of a pass must have the same.
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
    /// Returns what must be the same where a state is resumed from, and what to do if it is not.
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

    /// Takes the next sample of the block out of it, and reads one in its place. An error takes none.
    fn deliver(&self, cursor: &mut StreamCursor) -> Result<(), Error> {
        if self.buffer > 1 && !cursor.block.is_empty() {
            self.read_ahead(cursor)?;
        }
        cursor.current = cursor.block.pop_front();
        cursor.delivered += usize::from(cursor.current.is_some());
        Ok(())
    }
}
