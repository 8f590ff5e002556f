//! Target for the parsers of slotline-sources: any bytes result in an error, or in samples whose
//! bytes are in the files.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use slotline::dataset::{Context, Dataset, IterableDataset};
use slotline_sources::litdata::LitDataOptions;
use slotline_sources::manifest::Manifest;
use slotline_sources::mds::MdsOptions;
use slotline_sources::npz::NpzOptions;
use slotline_sources::safetensors::SafetensorsOptions;
use slotline_sources::table::TableOptions;
use slotline_sources::tar::{Tar, TarOptions};
use slotline_sources::tfrecord::TfRecordOptions;
use slotline_sources::tokens::{BlockOptions, GptOptions, Sequences};
use slotline_sources::{Error, FieldKind, Format, IndexFiles, Records, paths};

/// The maximum decompressed size of a compressed shard, in bytes.
const MEMORY: u64 = 1 << 20;

/// The folder for the files of this process.
struct Folder(PathBuf);

impl Folder {
    fn new() -> &'static Self {
        static FOLDER: OnceLock<Folder> = OnceLock::new();
        FOLDER.get_or_init(|| {
            let memory = Path::new("/dev/shm");
            let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            let folder = root.join(format!("slotline-fuzz-{}", std::process::id()));
            fs::create_dir_all(folder.join("indexes")).expect("a folder for the files");
            Self(folder)
        })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file in memory");
        path
    }
}

/// Reads a file of the format that the first byte selects, with options from the second byte. The
/// rest is the file. For formats with two files, the length of the first file precedes both.
pub fn sources(data: &[u8]) {
    let &[format, options, ref data @ ..] = data else { return };
    let folder = Folder::new();
    let flag = |bit: u32| options >> bit & 1 == 1;
    let (first, second) = match data.split_first_chunk() {
        Some((len, rest)) => rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*len)))),
        None => (data, data),
    };
    match format % 18 {
        0 => {
            let bytes = if flag(0) { sealed_tar(data) } else { data.to_vec() };
            let path = folder.write("a.tar", &bytes);
            let options = TarOptions::new().index_files(IndexFiles::None).missing_end(flag(1)).skip_incomplete(true);
            if let Some(tar) = check(options.open([path]), &[&bytes]) {
                same_as_a_stream(&tar, &options, &bytes, flag(2));
            }
        }
        1 => stream(data, flag(0)),
        2 => {
            let path = folder.write("b.tar", &sealed_tar(second));
            let open = || {
                let files = IndexFiles::In(folder.0.join("indexes"));
                TarOptions::new().index_files(files).skip_incomplete(true).open([&path])
            };
            with_saved_index(&path, first, open, folder);
        }
        3 => {
            let tar = folder.write("c.tar", &sealed_tar(second));
            let index = folder.write("c.idx", first);
            let options = TarOptions::new().dali_indexes([index]).skip_incomplete(flag(0));
            check(options.open([tar]), &[&sealed_tar(second)]);
        }
        4 => {
            let bytes = if flag(0) { sealed_records(data) } else { data.to_vec() };
            let path = folder.write("a.tfrecord", &bytes);
            let options = TfRecordOptions::new().index_files(IndexFiles::None).check_data(!flag(1));
            check(options.open([path]), &[&bytes]);
        }
        5 => {
            let path = folder.write("b.tfrecord", &sealed_records(second));
            let open = || TfRecordOptions::new().index_files(IndexFiles::In(folder.0.join("indexes"))).open([&path]);
            with_saved_index(&path, first, open, folder);
        }
        6 => {
            let mds = folder.0.join("mds");
            let shard = ["shard.00000.mds", "shard.00000.mds.zstd", "shard.00000.mds.gz"][usize::from(options % 3)];
            two(&mds, first, shard, second);
            let opened = MdsOptions::new().memory_limit(MEMORY).verify(flag(2)).open(&mds);
            let files = [second];
            check(opened, if options % 3 == 0 { &files } else { &[] });
        }
        7 => {
            let chunks = folder.0.join("litdata");
            two(&chunks, first, if flag(0) { "chunk-0-0.zstd.bin" } else { "chunk-0-0.bin" }, second);
            let litdata = LitDataOptions::new().memory_limit(MEMORY);
            check(if flag(1) { litdata.block_size(4) } else { litdata }.open(&chunks), &[]);
        }
        8 | 9 => {
            folder.write("a.png", b"a picture");
            let name = ["metadata.csv", "metadata.jsonl"][usize::from(format % 18 - 8)];
            check(Manifest::open(folder.write(name, data)), &[]);
        }
        10 => {
            folder.write("tokens.idx", first);
            folder.write("tokens.bin", second);
            let prefix = folder.0.join("tokens");
            check(Sequences::open(&prefix), &[second]);
            check(GptOptions::new(u32::from(options % 8) + 1).samples(20).open(&prefix), &[]);
        }
        11 => {
            let path = folder.write("shard.bin", data);
            let options = BlockOptions::new(usize::from(options) % 32).labels(flag(7));
            check(options.open_llmc([&path]), &[data]);
            check(options.open_raw([&path]), &[data]);
        }
        12 => _ = check(SafetensorsOptions::new().open(folder.write("a.safetensors", data)), &[data]),
        13 => _ = check(NpzOptions::new().open(folder.write("a.npz", data)), &[]),
        14 => {
            // Allow only paths in the folder.
            let Ok(text) = std::str::from_utf8(data) else { return };
            if text.contains("..") || text.contains("::") || text.contains('$') || text.len() > 100 {
                return;
            }
            let Ok(paths) = paths::expand([folder.0.join("none").join(text.trim_start_matches('/'))]) else { return };
            assert!(paths.len() <= 1 << 20 && paths.iter().all(|path| !path.as_os_str().is_empty()));
        }
        table @ (15 | 16) => {
            let path = folder.write(if table == 15 { "a.arrow" } else { "a.parquet" }, data);
            let options = TableOptions::new().missing_as_zero(flag(0)).decimals_as_f64(flag(1));
            check(options.memory_limit(MEMORY).open([path]), &[]);
        }
        _ => {
            let name = ["a.tar", "a.tfrecord", "a.safetensors", "a.npz", "a.jsonl", "a.csv", "a.bin"];
            let opened = slotline_sources::OpenOptions::new().index_files(IndexFiles::None);
            let path = folder.write(name[usize::from(options) % name.len()], data);
            check(opened.open(path), &[]);
        }
    }
}

/// Writes the two files of a folder, and removes all others.
fn two(folder: &Path, index: &[u8], shard: &str, bytes: &[u8]) {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder).expect("a folder in memory");
    fs::write(folder.join("index.json"), index).expect("a file in memory");
    fs::write(folder.join(shard), bytes).expect("a file in memory");
}

/// Reads the first and the last samples. Unless `files` is empty, each value that is not decoded
/// must occur in one of the files.
fn check<F: Format + ?Sized>(opened: Result<Records<F>, Error>, files: &[&[u8]]) -> Option<Records<F>> {
    let records = match opened {
        Ok(records) => records,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let (format, len) = (records.format(), records.len());
    assert_eq!(format.shard_lens().iter().sum::<usize>(), len);
    let mut cx = Context::default();
    for index in (0..len.min(12)).chain(len.saturating_sub(12).max(12)..len) {
        format.spans(index, &mut |span| {
            let file = format.files().file_len(span.file).unwrap_or(0);
            let end = span.len.map_or(Some(file), |len| span.start.checked_add(len));
            assert!(span.start <= file && end.is_some_and(|end| end <= file), "{span:?} of a file of {file} bytes");
        });
        let Ok(record) = records.get(index, &mut cx) else { continue };
        assert_eq!(record.fields(), format.fields());
        for (i, field) in record.fields().as_slice().iter().enumerate() {
            let value = record.value(i).expect("a value for each field");
            let elements = value.len() / field.kind.dtype().size();
            match &field.kind {
                FieldKind::Number(_) => assert_eq!(elements, 1),
                FieldKind::Tensor(_, shape) => assert_eq!(elements, shape.iter().product::<usize>()),
                FieldKind::Text(_) => assert!(std::str::from_utf8(value).is_ok()),
                _ => assert_eq!(value.len() % field.kind.dtype().size(), 0),
            }
            let is_copied = matches!(field.kind, FieldKind::Bytes(_) | FieldKind::Text(_));
            if is_copied && !files.is_empty() && !value.is_empty() {
                let is_in = |file: &&[u8]| file.windows(value.len()).any(|bytes| bytes == value);
                // Names may be split across several parts of a header.
                assert!(field.name == "__key__" || files.iter().any(is_in), "{}: {value:?}", field.name);
            }
        }
    }
    assert!(records.get(len, &mut cx).is_err());
    Some(records)
}

/// Checks that a tar read as a stream has the same samples as when it is read by index.
fn same_as_a_stream(tar: &Records<Tar>, options: &TarOptions, bytes: &[u8], is_slow: bool) {
    let fields: Vec<_> = tar.format().fields().as_slice().iter().map(|field| field.name.clone()).collect();
    let reader = Slow(io::Cursor::new(bytes.to_vec()), if is_slow { 100 } else { usize::MAX });
    let options = options.clone().columns(fields);
    let stream = match options.stream_reader("stream", reader) {
        Ok(stream) => stream,
        // Only the index can contain fields that are not in the first samples, and it can be empty.
        Err(error) => return assert!(tar.len() < 1 || tar.format().skipped() > 0, "{error}"),
    };
    let (mut cursor, mut cx, mut other) = (stream.iter(None).expect("a pass"), Context::default(), Context::default());
    for index in 0..tar.len().min(32) {
        match (tar.get(index, &mut other), stream.next(&mut cursor, &mut cx)) {
            (Ok(record), Ok(Some(other))) => {
                let fields = 0..record.fields().as_slice().len();
                fields.for_each(|i| assert_eq!(record.value(i), other.value(i), "sample {index}"));
            }
            (Err(_), Err(_)) => {}
            (indexed, streamed) => panic!("sample {index}: {indexed:?}, {streamed:?}"),
        }
    }
}

/// Reads bytes as a stream, compressed or not.
fn stream(data: &[u8], shuffled: bool) {
    let options = TarOptions::new().skip_incomplete(true);
    let Ok(stream) = options.stream_reader("stream", io::Cursor::new(data.to_vec())) else { return };
    let stream = stream.shuffle(if shuffled { 3 } else { 1 }).memory_limit(MEMORY);
    let (mut cursor, mut cx) = (stream.iter(None).expect("a pass"), Context::default());
    for _ in 0..64 {
        if matches!(stream.next(&mut cursor, &mut cx), Ok(None)) {
            break;
        }
    }
}

/// A reader that returns a limited number of bytes at a time.
struct Slow<R>(R, usize);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(into.len());
        self.0.read(&mut into[..len])
    }
}

/// Opens a file after its saved index was replaced with other contents that have a valid checksum.
fn with_saved_index<F: Format>(
    path: &Path,
    index: &[u8],
    open: impl Fn() -> Result<Records<F>, Error>,
    folder: &Folder,
) {
    let indexes = folder.0.join("indexes");
    let files = IndexFiles::In(indexes);
    let saved = files.of(path).expect("a name");
    let _ = fs::remove_file(&saved);
    if check(open(), &[]).is_none() {
        return;
    }
    let Ok(bytes) = fs::read(&saved) else { return };
    let version = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")) as usize;
    let head = &bytes[..20 + version];
    let own = &bytes[head.len()..bytes.len() - 4];
    // The first byte of `index` selects changes to the correct index (0), or another index.
    let index: Vec<u8> = match index.split_first() {
        Some((0, changes)) => {
            let mut own = own.to_vec();
            for change in changes.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % own.len().max(1);
                if let Some(byte) = own.get_mut(at) {
                    *byte = change[2];
                }
            }
            own
        }
        Some((_, index)) => index.to_vec(),
        None => Vec::new(),
    };
    let mut written = [head, &index].concat();
    written.extend(crc32c::crc32c(&written).to_le_bytes());
    fs::write(&saved, written).expect("a file in memory");
    check(open(), &[]);
}

/// Corrects the checksums in the headers of a tar, as far as their sizes lead from one header to
/// the next.
fn sealed_tar(data: &[u8]) -> Vec<u8> {
    let (mut bytes, mut at) = (data.to_vec(), 0);
    while let Some(header) = bytes.get_mut(at..at + 512).filter(|header| header.iter().any(|&byte| byte != 0)) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = header[124..136].iter().take_while(|byte| (b'0'..=b'7').contains(byte));
        let len = digits.fold(0_usize, |len, digit| len.wrapping_mul(8) + usize::from(digit - b'0'));
        let Some(next) = len.checked_next_multiple_of(512).and_then(|len| at.checked_add(512)?.checked_add(len)) else {
            break;
        };
        at = next.min(bytes.len());
    }
    bytes
}

/// Corrects the checksums in the records of a TFRecord file.
fn sealed_records(data: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let (mut bytes, mut at) = (data.to_vec(), 0_usize);
    while let Some(len) = bytes.get(at..at + 8) {
        let (sum, len) = (masked(len), u64::from_le_bytes(len.try_into().expect("eight bytes")));
        let Some(place) = bytes.get_mut(at + 8..at + 12) else { break };
        place.copy_from_slice(&sum);
        let end = usize::try_from(len).ok().and_then(|len| (at + 12).checked_add(len));
        let Some(end) = end.filter(|&end| end.checked_add(4).is_some_and(|end| end <= bytes.len())) else { break };
        let sum = masked(&bytes[at + 12..end]);
        bytes[end..end + 4].copy_from_slice(&sum);
        at = end + 4;
    }
    bytes
}
