//! Functions that the tests of several formats use.
#![allow(dead_code)] // Each test program uses only a part of them.

use std::fmt::Display;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use slotline::dataset::Context;
use slotline::dtype::{DType, Element};
use slotline::loader::{Batch, Budget, OnError};
use slotline::sample::{Dynamic, Fields};
use slotline::sampler::DistributedSampler;
use slotline::{BoxError, Dataset, Error, Loader};
use slotline_sources::{FieldKind, Format, Record, Records};

/// Checks that the result is an error whose message contains all these words. Returns the message.
#[track_caller]
pub(crate) fn fails<T, E: Display>(result: Result<T, E>, words: &[&str]) -> String {
    let Err(error) = result else { panic!("no error, and {words:?} were expected") };
    let error = error.to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}, and {words:?} were expected");
    error
}

/// Reads all samples. Returns the first error.
pub(crate) fn read_all<F: Format + ?Sized>(records: &Records<F>) -> Result<(), BoxError> {
    let mut cx = Context::default();
    (0..records.len()).try_for_each(|index| records.get(index, &mut cx).map(drop))
}

/// Calls `read` with copies of the bytes in which one byte was changed, at each of these positions
/// and in each of these ways.
pub(crate) fn changed<const N: usize>(
    whole: &[u8],
    places: impl IntoIterator<Item = usize>,
    ways: impl Fn(usize, u8) -> [u8; N],
    mut read: impl FnMut(&[u8]),
) {
    let mut bytes = whole.to_vec();
    for at in places {
        for byte in ways(at, whole[at]) {
            bytes[at] = byte;
            read(&bytes);
        }
        bytes[at] = whole[at];
    }
}

/// Returns the fields with their kinds.
pub(crate) fn fields<F: Format + ?Sized>(records: &Records<F>) -> Vec<String> {
    records.format().fields().as_slice().iter().map(ToString::to_string).collect()
}

/// Returns the names of the fields.
pub(crate) fn names<F: Format + ?Sized>(records: &Records<F>) -> Vec<String> {
    records.format().fields().as_slice().iter().map(|field| field.name.clone()).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the length of bytes and the beginning of their hash, in the form in which the scripts
/// write them to JSON.
pub(crate) fn hashed(bytes: &[u8]) -> Json {
    json!([bytes.len(), hex(&Sha256::digest(bytes)[..8])])
}

/// Checks that the samples have exactly these fields, whose bytes another reader wrote as
/// hexadecimal digits.
pub(crate) fn same_bytes<F: Format + ?Sized>(records: &Records<F>, expected: &Json) {
    let expected = expected.as_array().unwrap();
    assert_eq!(records.len(), expected.len());
    let mut cx = Context::default();
    for (i, want) in expected.iter().enumerate() {
        let record = records.get(i, &mut cx).unwrap();
        let want = want.as_object().unwrap();
        assert_eq!(record.fields().as_slice().len(), want.len());
        for (field, want) in want {
            assert_eq!(hex(record.bytes(field).unwrap()), want.as_str().unwrap(), "{i} {field}");
        }
    }
}

/// Reads two shuffled epochs through loaders without workers, with threads and with processes. Each
/// is read without interruption, and interrupted in the middle of each epoch and resumed in a new
/// loader. All must give the same batches, and the batches of two ranks in turn must be those of
/// one rank.
pub(crate) fn resumes<F: Format + ?Sized>(open: impl Fn() -> Records<F>) {
    let build = |(workers, processes): (usize, bool)| -> Loader<Batch<Dynamic>> {
        // Processes cannot allocate additional memory for a batch of large samples, so its capacity
        // is increased.
        let records = open().room(if processes { 100 } else { 1 });
        let builder = Loader::builder(records).batch_size(2).shuffle(true).seed(7).num_workers(workers);
        let loader = if processes { builder.processes().build() } else { builder.build() };
        loader.expect("the dataset can be loaded")
    };
    let mut whole = build((0, false));
    let whole: Vec<_> = (0..2).flat_map(|_| whole.epoch().unwrap().map(digest).collect::<Vec<_>>()).collect();
    let per_epoch = whole.len() / 2;
    assert!(per_epoch >= 2, "too few samples to interrupt a pass");
    assert_ne!(whole[..per_epoch], whole[per_epoch..], "shuffling changes nothing");
    const WORKERS: [(usize, bool); 3] = [(0, false), (2, false), (2, true)];
    for (i, workers) in WORKERS.into_iter().enumerate() {
        let (mut loader, mut found) = (build(workers), Vec::new());
        for _ in 0..2 {
            let mut pass = loader.epoch().unwrap();
            found.extend(pass.by_ref().take(per_epoch / 2).map(digest));
            let state = pass.state();
            drop(pass);
            loader = build(WORKERS[(i + 1) % WORKERS.len()]);
            loader.load_state(&state).unwrap();
            found.extend(loader.epoch().unwrap().map(digest));
        }
        assert_eq!(found, whole, "{workers:?}");
    }

    let share = |ranks, rank| {
        let sampler = DistributedSampler::new(open().len(), ranks, rank).unwrap().seed(7);
        let mut loader = Loader::builder(open()).sampler(sampler).num_workers(1).build().unwrap();
        loader.epoch().unwrap().map(digest).collect::<Vec<_>>()
    };
    let (all, first, second) = (share(1, 0), share(2, 0), share(2, 1));
    assert_eq!(first.len(), second.len());
    let both: Vec<_> = first.into_iter().zip(second).flat_map(|(first, second)| [first, second]).collect();
    // If the number of batches is odd, one batch is repeated so that both ranks have equally many.
    assert_eq!(both[..all.len()], all);
}

/// A dataset whose samples are read one by one.
struct OneByOne<F: ?Sized>(Records<F>);

impl<F: Format + ?Sized> Dataset for OneByOne<F> {
    type Sample<'a> = Record<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Record<'a>, BoxError> {
        self.0.get(index, cx)
    }

    fn fields(&self) -> Option<Fields> {
        self.0.fields()
    }
}

/// Checks that writing several samples of a table together gives the same results as reading them
/// one by one, in order and shuffled. This includes errors, and the samples that remain if bad ones
/// are skipped.
pub(crate) fn together<F: Format + ?Sized>(records: &Records<F>) {
    assert!(records.reads_many());
    fn batches<D: Dataset>(dataset: D, shuffle: bool, skip: bool) -> Vec<Vec<Vec<u8>>> {
        let on_error = if skip { OnError::Skip(Budget::Samples(usize::MAX)) } else { OnError::Raise };
        let builder = Loader::builder(dataset).batch_size(3).shuffle(shuffle).seed(5).on_error(on_error);
        let mut loader = builder.build().unwrap();
        let pass = loader.epoch().unwrap();
        pass.map(|batch| match batch {
            Ok(batch) => digest(Ok(batch)),
            Err(error) => vec![error.to_string().into_bytes()],
        })
        .collect()
    }
    for (shuffle, skip) in [(false, false), (true, false), (true, true)] {
        let found = batches(records.clone(), shuffle, skip);
        assert_eq!(found, batches(OneByOne(records.clone()), shuffle, skip), "{shuffle} {skip}");
    }
}

/// Returns the contents of all fields of a batch, and the offsets of the samples.
fn digest<S>(batch: Result<Batch<S>, Error>) -> Vec<Vec<u8>> {
    let batch = batch.expect("every sample can be read");
    let columns = batch.columns();
    let column = |i| {
        let column = columns.get(i).expect("a column below the number of columns");
        let numbers = columns.lengths(i).into_iter().chain(columns.offsets(i)).flatten();
        column.bytes().iter().copied().chain(numbers.flat_map(|number| number.to_ne_bytes())).collect()
    };
    (0..columns.len()).map(column).collect()
}

/// Checks that a sample has exactly the fields of a row that another reader has read. Bytes are
/// written as `{"hex": …}`.
fn same(record: &Record<'_>, row: &serde_json::Map<String, Json>) {
    assert_eq!(record.fields().as_slice().len(), row.len());
    for (name, want) in row {
        let field = &record.fields().as_slice()[record.fields().position(name).unwrap_or_else(|| panic!("no {name}"))];
        let bytes = record.bytes(name).unwrap();
        let found = match &field.kind {
            FieldKind::Text(_) => Json::from(record.text(name).unwrap()),
            _ if want.get("hex").is_some() => {
                json!({"hex": hex(bytes)})
            }
            FieldKind::Number(dtype) => numbers(*dtype, bytes).remove(0),
            other => Json::Array(numbers(other.dtype(), bytes)),
        };
        assert_eq!(found, *want, "{name}");
    }
}

/// Returns elements in the form in which another reader wrote them to JSON.
fn numbers(dtype: DType, bytes: &[u8]) -> Vec<Json> {
    fn of<T: Element + Into<Json>>(bytes: &[u8]) -> Vec<Json> {
        slotline::dtype::from_bytes::<T>(bytes).unwrap().into_iter().map(Into::into).collect()
    }
    match dtype {
        DType::Bool => of::<bool>(bytes),
        DType::U8 => of::<u8>(bytes),
        DType::I8 => of::<i8>(bytes),
        DType::U16 => of::<u16>(bytes),
        DType::I16 => of::<i16>(bytes),
        DType::U32 => of::<u32>(bytes),
        DType::I32 => of::<i32>(bytes),
        DType::U64 => of::<u64>(bytes),
        DType::I64 => of::<i64>(bytes),
        DType::F32 => of::<f32>(bytes),
        DType::F64 => of::<f64>(bytes),
        other => panic!("{other}"),
    }
}

/// The names and the data of files.
pub(crate) type Members<'a> = &'a [(&'a str, &'a [u8])];

/// Creates a folder with these files.
pub(crate) fn folder(files: Members<'_>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

/// Checks that the rows of a table are those that another reader has read: forwards, backwards, and
/// several at once.
pub(crate) fn same_rows<F: Format + ?Sized>(records: &Records<F>, rows: &[Json]) {
    assert_eq!(records.len(), rows.len());
    let mut cx = Context::default();
    for index in (0..rows.len()).chain((0..rows.len()).rev()) {
        same(&records.get(index, &mut cx).unwrap(), rows[index].as_object().unwrap());
    }
    together(records);
}

/// Creates a tar with these names and data.
pub(crate) fn tar(members: Members<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, data) in members {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        header[156] = b'0';
        seal(&mut header);
        bytes.extend(header);
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    bytes
}

/// Writes the checksum into a header.
pub(crate) fn seal(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header[..512].iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
