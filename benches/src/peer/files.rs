//! Contenders written in Rust for the sections about files: slotline and the limits of the machine.
//! Each is run as a separate program.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::aws::AmazonS3Builder;
use slotline::loader::{Batch, Builder};
use slotline::sample::Columns;
use slotline::sampler::{RandomSampler, SequentialSampler};
use slotline::{Dataset, Loader};
use slotline_sources::folder::FolderOptions;
use slotline_sources::tar::{Tar, TarOptions};
use slotline_sources::tokens::{BlockOptions, GptOptions};
use slotline_sources::{Format, IndexFiles, Records};

use super::{order, ours};
use crate::protocol::{self, Request};
use crate::rounds::{Contender, Pass};
use crate::workload::programs::{BATCH, BINARIES, CROP, CROPS, OBJECTS, ROWS, SAMPLES, SEQUENCES, WHOLE, places};

/// A contender, with the checksum of a pass.
type Reader = Result<(Contender, u64)>;

/// The command-line arguments of such a program.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// The name of the contender.
    #[arg(long)]
    peer: String,
    #[command(flatten)]
    request: Request,
}

impl Arguments {
    /// Runs the program.
    pub fn serve(&self) -> Result<()> {
        let (name, make): (_, &dyn Fn() -> Reader) = match self.peer.as_str() {
            "slotline" => ("slotline", &|| self.ours()),
            "alone" => ("slotline, workers alone", &|| self.ours()),
            "mapped" => ("slotline, mapped", &|| self.ours()),
            "threads-2" => ("2 threads that read", &|| threads(&self.request, 2)),
            "threads-16" => ("16 threads that read", &|| threads(&self.request, 16)),
            "ranges" => ("64 ranges at a time", &|| ranges(&self.request)),
            other => bail!("unknown peer {other}"),
        };
        protocol::serve_contender(name, make)
    }

    fn ours(&self) -> Reader {
        let request = &self.request;
        let data = &request.data;
        let open = |name: &str| slotline_sources::open(data.join(name));
        let numbers = |name: &str| self.table(open(name)?, ROWS, BATCH);
        let binaries = |name: &str| self.table(open(name)?, BINARIES, BATCH);
        match request.workload.as_str() {
            "folders" => self.samples(FolderOptions::new().extensions(["bin"]).open(data.join("folder"))?, SAMPLES),
            "tars" => self.samples(Tar::open([data.join("tars/shard-{000000..000019}.tar")])?, SAMPLES),
            "bucket" => {
                let indexes = data.join("indexes");
                std::fs::create_dir_all(&indexes)?;
                let options = TarOptions::new().index_files(IndexFiles::In(indexes));
                self.samples(options.open(["s3://bucket/tars/shard-{000000..000003}.tar"])?, OBJECTS)
            }
            "token-files-nanogpt" => {
                let options = BlockOptions::new(CROP).stride(1).widen(true).labels(true);
                let path = [data.join("tokens.bin")];
                // SAFETY: nobody changes the file.
                let options = if self.is_mapped() { unsafe { options.mapped() } } else { options };
                let blocks = options.open_raw(path)?;
                let sampler = RandomSampler::new(blocks.len())?.replacement(true).num_samples(CROPS * SEQUENCES)?;
                tokens(Loader::builder(blocks).sampler(sampler), true)
            }
            "token-files-megatron" => {
                let options = GptOptions::new(CROP as u32).seed(1).widen(true).labels(true);
                let prefix = data.join("tokens");
                // SAFETY: nobody changes the files.
                let options = if self.is_mapped() { unsafe { options.mapped() } } else { options };
                let blocks = options.open(prefix)?;
                tokens(Loader::builder(blocks).sampler(SequentialSampler::new(CROPS * SEQUENCES)), false)
            }
            "tables-arrow-numbers" => numbers("numbers.arrow"),
            "tables-arrow-binaries" => binaries("binaries.arrow"),
            "tables-parquet-numbers" => numbers("numbers.parquet"),
            "tables-parquet-binaries" => binaries("binaries.parquet"),
            "tables-whole-shuffled" => self.table(open("whole.parquet")?, WHOLE[0], WHOLE[1]),
            "tables-whole-order" => whole(data.join("whole.parquet"), request.workers),
            "tar-index" => index(data),
            other => bail!("{other} is not a workload of files"),
        }
    }

    fn is_mapped(&self) -> bool {
        self.peer == "mapped"
    }

    /// Loads samples of bytes from the field of variable length.
    fn samples<F: Format>(&self, records: Records<F>, samples: usize) -> Reader {
        let total = places(&self.request.data)?[..samples].iter().map(|place| place.2).sum();
        let contents = Contents::new(&self.request.data, samples)?;
        let loader = Loader::builder(records)
            .batch_size(BATCH)
            .shuffle(true)
            .num_workers(self.request.workers)
            .help(self.peer != "alone")
            .build()?;
        let contender = ours::contender_of(
            loader,
            (samples as f64 / BATCH as f64, total),
            |batch| packed(&batch.columns()).0.len() as u64,
            move |batch| contents.check_all(&batch.columns()),
        )?;
        Ok((contender, total))
    }

    /// Loads rows of a table, which are numbers or bytes.
    fn table(&self, records: Records<dyn Format>, rows: usize, batch_size: usize) -> Reader {
        let is_bytes = records.len() == BINARIES;
        let contents = Contents::new(&self.request.data, records.len())?;
        let sampler = RandomSampler::new(records.len())?.num_samples(rows)?;
        let loader = Loader::builder(records)
            .batch_size(batch_size)
            .sampler(sampler)
            .num_workers(self.request.workers)
            .build()?;
        let contender = ours::contender_of(
            loader,
            (rows as f64 / batch_size as f64, rows as u64),
            |batch| batch.len() as u64,
            move |batch| {
                let columns = batch.columns();
                if is_bytes {
                    return contents.check_all(&columns);
                }
                numbers_of(&columns)?.try_for_each(|row| contents.once(row))
            },
        )?;
        Ok((contender, rows as u64))
    }
}

/// Checks the columns of a batch of numbers. Returns the number of each row.
fn numbers_of<'a>(columns: &Columns<'a>) -> Result<impl Iterator<Item = usize> + use<'a>> {
    let column = |c| columns.get(c).and_then(|column| column.typed::<i32>()).expect("numbers");
    let (first, width) = (column(0), columns.len());
    for c in 0..width {
        let is_row = |(&number, &first): (&i32, &i32)| number == first + c as i32;
        ensure!(column(c).as_slice().iter().zip(first.as_slice()).all(is_row), "wrong numbers in column {c}");
    }
    Ok(first.as_slice().iter().map(move |&number| number as usize / width))
}

/// Opens a table in each pass, and loads its rows in order.
fn whole(path: PathBuf, workers: usize) -> Reader {
    let total = WHOLE[0] as u64;
    let load = move |checked: bool| {
        let start = Instant::now();
        let records = slotline_sources::open(&path)?;
        let mut loader = Loader::builder(records).batch_size(WHOLE[1]).num_workers(workers).build()?;
        let (mut rows, mut batches) = (0, 0);
        for batch in loader.epoch()? {
            let batch = batch?;
            if checked {
                let expected = rows..rows + batch.len();
                ensure!(numbers_of(&batch.columns())?.eq(expected), "rows in another order");
            }
            (rows, batches) = (rows + batch.len(), batches + 1);
        }
        ensure!(rows == WHOLE[0], "{rows} rows");
        Ok(Pass::since(start, f64::from(batches)))
    };
    load(true)?;
    Ok((Box::new(move || load(false)), total))
}

/// Returns the bytes of the samples of a batch, and the offsets of the samples.
fn packed<'a>(columns: &Columns<'a>) -> (&'a [u8], &'a [i64]) {
    let field = (0..columns.len()).find(|&i| columns.offsets(i).is_some()).expect("a field of bytes");
    (
        columns.get(field).expect("a field").typed::<u8>().expect("bytes").as_slice(),
        columns.offsets(field).expect("packed"),
    )
}

/// Loads tokens, in batches of x and y.
fn tokens<F: Format>(builder: Builder<Records<F>>, consecutive: bool) -> Reader {
    let total = (CROPS * SEQUENCES * CROP) as u64;
    let contender = ours::contender_of(
        builder.batch_size(SEQUENCES).build()?,
        (CROPS as f64, total),
        |batch| tokens_of(batch, 0).len() as u64,
        move |batch| {
            for (x, y) in tokens_of(batch, 0).chunks(CROP).zip(tokens_of(batch, 1).chunks(CROP)) {
                ensure!(x[1..] == y[..CROP - 1], "y is not x shifted by one");
                let follows = |(&x, &y): (&i64, &i64)| y == (x + 7_919) % 50_257;
                ensure!(!consecutive || x.iter().zip(y).all(follows), "wrong tokens");
            }
            Ok(())
        },
    )?;
    Ok((contender, total))
}

fn tokens_of<S>(batch: &Batch<S>, field: usize) -> &[i64] {
    batch.columns().get(field).expect("x and y").typed::<i64>().expect("widened").as_slice()
}

/// Measures finding the samples of the tars.
fn index(data: &Path) -> Reader {
    let path = data.join("tars/shard-{000000..000019}.tar");
    let contender = move || {
        let start = Instant::now();
        let tars = TarOptions::new().index_files(IndexFiles::None).open([&path])?;
        let pass = Pass::since(start, 1.0);
        ensure!(tars.len() == SAMPLES, "{} samples", tars.len());
        Ok(pass)
    };
    Ok((Box::new(contender), SAMPLES as u64))
}

/// The expected contents of samples of bytes, and which samples were seen already.
struct Contents {
    block: Vec<u8>,
    seen: RefCell<Vec<bool>>,
}

impl Contents {
    fn new(data: &Path, samples: usize) -> Result<Self> {
        Ok(Self { block: std::fs::read(data.join("block.u8"))?, seen: RefCell::new(vec![false; samples]) })
    }

    /// Checks the bytes of a sample. They begin with its index and an offset into the block,
    /// followed by the block's bytes from that offset on.
    fn check(&self, sample: &[u8]) -> Result<()> {
        let Some((head, body)) = sample.split_at_checked(8) else { bail!("a sample of {} bytes", sample.len()) };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (index, place) = (number(0), number(4));
        ensure!(self.block.get(place..place + body.len()) == Some(body), "wrong bytes in sample {index}");
        self.once(index)
    }

    /// Checks the samples of a batch.
    fn check_all(&self, columns: &Columns<'_>) -> Result<()> {
        let (bytes, offsets) = packed(columns);
        offsets.windows(2).try_for_each(|at| self.check(&bytes[at[0] as usize..at[1] as usize]))
    }

    fn once(&self, index: usize) -> Result<()> {
        let mut seen = self.seen.borrow_mut();
        ensure!(seen.get(index) == Some(&false), "sample {index} does not exist, or was read twice");
        seen[index] = true;
        Ok(())
    }
}

/// Creates a contender that runs passes of `read`. The first pass is checked.
fn reading(
    request: &Request,
    samples: usize,
    mut read: impl FnMut(&[usize], &(dyn Fn(&[u8]) -> Result<()> + Sync)) -> Result<()> + 'static,
) -> Reader {
    let total: u64 = places(&request.data)?[..samples].iter().map(|place| place.2).sum();
    let contents = Mutex::new(Contents::new(&request.data, samples)?);
    let mut rng = fastrand::Rng::with_seed(42);
    read(&order(samples, true, &mut rng), &|bytes| contents.lock().expect("no thread panics").check(bytes))?;
    let contender = move || {
        let sum = AtomicUsize::new(0);
        let start = Instant::now();
        let order = order(samples, true, &mut rng);
        read(&order, &|bytes| {
            sum.fetch_add(bytes.len(), Ordering::Relaxed);
            Ok(())
        })?;
        let pass = Pass::since(start, samples as f64 / BATCH as f64);
        ensure!(sum.into_inner() as u64 == total, "wrong number of bytes");
        Ok(pass)
    };
    Ok((Box::new(contender), total))
}

/// Reads files, or parts of tars, with threads that make no batches.
fn threads(request: &Request, threads: usize) -> Reader {
    use std::os::unix::fs::FileExt;

    let places = places(&request.data)?;
    let tars = request.workload == "tars";
    let path = |shard: usize| request.data.join(format!("tars/shard-{shard:06}.tar"));
    let shards = (0..SAMPLES / 1_000).map(|shard| std::fs::File::open(path(shard)));
    let shards = shards.collect::<std::io::Result<Vec<_>>>()?;
    let folder = request.data.join("folder");
    let files: Vec<PathBuf> = (0..SAMPLES).map(|i| folder.join(format!("{:02}/{i:05}.bin", i % 20))).collect();
    let read_one = move |index: usize| -> Result<Vec<u8>> {
        if !tars {
            return Ok(std::fs::read(&files[index])?);
        }
        let (shard, offset, len) = places[index];
        let mut bytes = vec![0; len as usize];
        shards[shard].read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    };
    reading(request, SAMPLES, move |order, done| {
        let next = AtomicUsize::new(0);
        let run = || -> Result<()> {
            while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                done(&read_one(index)?)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            running.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
        })
    })
}

/// Fetches parts of tars in a bucket, 64 at a time, with object_store alone.
fn ranges(request: &Request) -> Reader {
    let places = places(&request.data)?;
    // This fails if another part of the program has installed a cryptography provider, which is
    // fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::from_env().with_bucket_name("bucket").build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    reading(request, OBJECTS, move |order, done| {
        let fetch = |&index: &usize| {
            let (shard, offset, len) = places[index];
            let path = object_store::path::Path::from(format!("tars/shard-{shard:06}.tar"));
            let store = &store;
            async move { store.get_range(&path, offset..offset + len).await }
        };
        runtime.block_on(async {
            let mut fetched = stream::iter(order).map(fetch).buffer_unordered(64);
            while let Some(bytes) = fetched.try_next().await? {
                done(&bytes)?;
            }
            Ok(())
        })
    })
}
