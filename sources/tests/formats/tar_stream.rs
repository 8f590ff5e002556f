//! Checks that tars which are read sequentially have the same samples as when they are read by
//! index.
#![cfg(feature = "tar")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use slotline::dataset::{Context, IterableDataset};
use slotline::{BoxError, Dataset, Loader};
use slotline_sources::IndexFiles;
use slotline_sources::tar::{KEY, TarOptions, TarStream};

use crate::support;
use crate::support::{fails, tar};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tar").join(name)
}

/// Returns all bytes of a reader that compresses what it reads.
fn packed(mut reader: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Compresses bytes in two separate parts.
fn in_two(bytes: &[u8], pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (first, second) = bytes.split_at(bytes.len() / 3);
    [first, second].map(pack).concat()
}

fn gzip_member(bytes: &[u8]) -> Vec<u8> {
    packed(flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()))
}

/// Compresses bytes as `gzip` does, in two members.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    in_two(bytes, gzip_member)
}

/// Compresses bytes as `pbzip2` does, in two parts.
fn bzip2(bytes: &[u8]) -> Vec<u8> {
    in_two(bytes, |part| packed(bzip2::read::BzEncoder::new(part, bzip2::Compression::fast())))
}

/// Compresses bytes as `zstd` does, in two frames.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    in_two(bytes, |part| zstd::encode_all(part, 1).unwrap())
}

/// The values of the fields of a sample.
type Row = Vec<Vec<u8>>;

/// Returns all samples and errors of a pass without workers.
fn rows(stream: &TarStream) -> Vec<Result<Row, String>> {
    let (mut cursor, mut cx, mut rows) = (stream.iter(None).unwrap(), Context::default(), Vec::new());
    let fields = stream.fields().as_slice().len();
    while let Some(row) = stream.next(&mut cursor, &mut cx).map_err(|error| error.to_string()).transpose() {
        rows.push(row.map(|record| (0..fields).map(|i| record.value(i).unwrap().to_vec()).collect()));
        assert!(rows.len() < 10_000, "a pass without end");
    }
    rows
}

/// Writes tars with these numbers of samples.
fn shards(folder: &Path, lens: &[usize]) -> Vec<PathBuf> {
    let mut number = 0;
    let shards = lens.iter().enumerate().map(|(shard, &len)| {
        let files = (number..number + len).flat_map(|i| {
            [(format!("{i:04}.txt"), format!("{i} ").repeat(1 + i % 7)), (format!("{i:04}.cls"), i.to_string())]
        });
        let files: Vec<_> = files.collect();
        number += len;
        let members: Vec<_> = files.iter().map(|(name, data)| (name.as_str(), data.as_bytes())).collect();
        let path = folder.join(format!("{shard}.tar"));
        let bytes = tar(&members);
        fs::write(&path, if shard % 2 == 0 { bytes } else { gzip(&bytes) }).unwrap();
        path
    });
    shards.collect()
}

#[test]
fn a_stream_has_the_samples_of_the_index() {
    let folder = tempfile::tempdir().unwrap();
    for names in [&["shard-000000.tar", "shard-000001.tar"][..], &["gnu.tar"], &["pax.tar"], &["ustar.tar"]] {
        let paths: Vec<_> = names.iter().map(|name| data(name)).collect();
        let options = TarOptions::new().key(true).index_files(IndexFiles::None).skip_incomplete(true);
        let indexed = options.open(&paths).unwrap();
        let options = options.columns(support::names(&indexed).into_iter().filter(|name| name != KEY));
        let mut cx = Context::default();
        let want = |index| {
            let record = indexed.get(index, &mut cx).unwrap();
            Ok((0..record.fields().as_slice().len()).map(|i| record.value(i).unwrap().to_vec()).collect())
        };
        let want: Vec<Result<Row, String>> = (0..indexed.len()).map(want).collect();
        assert!(!want.is_empty());
        let packed: Vec<_> = paths.iter().map(|path| folder.path().join(path.file_name().unwrap())).collect();
        for pack in [<[u8]>::to_vec, bzip2, zstd, gzip] {
            paths.iter().zip(&packed).for_each(|(path, to)| fs::write(to, pack(&fs::read(path).unwrap())).unwrap());
            let stream = options.stream(&packed).unwrap();
            assert_eq!(rows(&stream), want);
            let kinds: Vec<_> = stream.fields().as_slice().iter().map(ToString::to_string).collect();
            assert_eq!(kinds, support::fields(&indexed));
        }
        let reader = fs::File::open(&packed[0]).unwrap();
        let once = options.stream_reader("stdin", reader).unwrap();
        assert_eq!(rows(&once)[..], want[..rows(&options.stream(&paths[..1]).unwrap()).len()]);
        let again = rows(&once);
        assert!(again.len() == 1 && again[0].as_ref().unwrap_err().contains("stdin was read before"), "{again:?}");
    }
}

/// Returns the numbers of the samples of a batch.
fn numbers(batch: &slotline::Batch<slotline::sample::Dynamic>) -> Vec<i64> {
    batch.columns().get(1).unwrap().typed::<i64>().unwrap().as_slice().to_vec()
}

#[test]
fn a_shuffled_pass_has_every_sample_once_and_resumes_at_every_batch() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path(), &[13, 8, 1, 20, 9, 15]);
    for (buffer, workers, limit) in [(1, 0, 1000), (1, 2, 1000), (16, 0, 1 << 20), (16, 2, 150), (500, 2, 1 << 20)] {
        let stream = || TarOptions::new().stream(&paths).unwrap().shuffle(buffer).memory_limit(limit);
        let load = || Loader::iterable(stream()).batch_size(4).seed(5).num_workers(workers).build().unwrap();
        let mut loader = load();
        let passes: Vec<Vec<_>> =
            (0..2).map(|_| loader.epoch().unwrap().map(|batch| numbers(&batch.unwrap())).collect()).collect();
        for pass in &passes {
            let mut all = pass.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..66), "buffer {buffer}, {workers} workers");
        }
        assert_eq!(passes[0] == passes[1], buffer == 1, "each pass is shuffled anew");
        if buffer > 1 {
            let neighbours = passes[0].concat().windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
            assert!(neighbours < 33, "{neighbours} of 65");
        }
        for cut in 0..passes[0].len() {
            let mut first = load();
            let mut pass = first.epoch().unwrap();
            let mut found: Vec<_> = pass.by_ref().take(cut).map(|batch| numbers(&batch.unwrap())).collect();
            let state = pass.state();
            drop(pass);
            let mut second = load();
            second.load_state(&state).unwrap();
            found.extend(second.epoch().unwrap().map(|batch| numbers(&batch.unwrap())));
            assert_eq!(found, passes[0], "buffer {buffer}, {workers} workers, cut at {cut}");
        }
    }
}

#[test]
fn ranks_and_workers_share_the_tars() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path(), &[3, 4, 5, 6, 7]);
    let mut all = Vec::new();
    for rank in 0..2 {
        let stream = TarOptions::new().stream(&paths).unwrap().shuffle(10).replica(2, rank).unwrap();
        let mut loader = Loader::iterable(stream).batch_size(4).seed(5).num_workers(2).build().unwrap();
        all.extend(loader.epoch().unwrap().flat_map(|batch| numbers(&batch.unwrap())));
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..25));
    fails(TarOptions::new().stream(&paths).unwrap().replica(2, 2), &["rank 2 is not one of 2 replicas"]);
}

#[test]
fn a_state_is_one_of_its_rank_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path(), &[13, 8, 11, 9]);
    let load = |ranks, rank, limit| {
        let stream = TarOptions::new().stream(&paths).unwrap().shuffle(4).memory_limit(limit);
        let stream = stream.replica(ranks, rank).unwrap();
        Loader::iterable(stream).batch_size(4).seed(5).build().unwrap()
    };
    let mut first = load(2, 0, 1000);
    let mut pass = first.epoch().unwrap();
    assert_eq!(numbers(&pass.next().unwrap().unwrap()).len(), 4);
    let state = pass.state();
    for (ranks, rank, limit, words) in [
        (2, 1, 1000, "rank was 0 in the saved state, but is 1"),
        (1, 0, 1000, "world_size was 2 in the saved state, but is 1"),
        (2, 0, 9, "memory_limit was 1000 in the saved state, but is 9"),
    ] {
        let mut other = load(ranks, rank, limit);
        other.load_state(&state).unwrap();
        let error = match other.epoch() {
            Err(error) => error,
            Ok(mut pass) => pass.next().unwrap().unwrap_err(),
        };
        let error = slotline::with_causes(&error);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_state_is_one_of_its_tars_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let [one, moved] = ["one", "moved"].map(|name| folder.path().join(name));
    fs::create_dir(&one).unwrap();
    let mut paths = shards(&one, &[13, 8, 11, 9]);
    let load = |paths: &[PathBuf]| {
        Loader::iterable(TarOptions::new().stream(paths).unwrap()).batch_size(4).seed(5).build().unwrap()
    };
    let mut first = load(&paths);
    let mut pass = first.epoch().unwrap();
    pass.next().unwrap().unwrap();
    let state = pass.state();
    let rest: Vec<_> = pass.map(|batch| numbers(&batch.unwrap())).collect();
    let resumed = |paths: &[PathBuf]| {
        let mut other = load(paths);
        other.load_state(&state).unwrap();
        let pass = other.epoch().map_err(|error| format!("{error:?}"))?;
        pass.map(|batch| Ok(numbers(&batch.map_err(|error| format!("{error:?}"))?))).collect::<Result<Vec<_>, String>>()
    };
    assert_eq!(resumed(&paths), Ok(rest.clone()));
    paths.swap(0, 1);
    let error = resumed(&paths).unwrap_err();
    assert!(error.contains("tars with other names, or in another order"), "{error}");
    paths.swap(0, 1);
    let other = one.join("other.tar");
    fs::copy(&paths[3], &other).unwrap();
    let error = resumed(&[&paths[..3], &[other]].concat()).unwrap_err();
    assert!(error.contains("open it with the same tars"), "{error}");
    fs::rename(&one, &moved).unwrap();
    let paths: Vec<_> = paths.iter().map(|path| moved.join(path.file_name().unwrap())).collect();
    assert_eq!(resumed(&paths), Ok(rest));
}

#[test]
fn errors_name_the_tar_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards(folder.path(), &[3, 4, 5]);
    let stream = |paths: &[PathBuf]| TarOptions::new().stream(paths).unwrap();
    let good = rows(&stream(&paths));
    // The last tar is truncated within its third sample.
    let bytes = fs::read(&paths[2]).unwrap();
    fs::write(&paths[2], &bytes[..512 * 10]).unwrap();
    let found = rows(&stream(&[paths[0].clone(), paths[2].clone(), paths[1].clone()]));
    assert_eq!((&found[..3], &found[3..5], &found[6..]), (&good[..3], &good[7..9], &good[3..7]));
    let error = found[5].as_ref().unwrap_err();
    assert!(error.contains("2.tar, byte 5120: the file ends without the block of zeros"), "{error}");
    // Also if it is the first one, whose samples determine the fields.
    let found = rows(&stream(&[paths[2].clone(), paths[0].clone()]));
    assert_eq!((&found[..2], &found[3..]), (&good[7..9], &good[..3]));
    assert_eq!(found[2].as_ref().unwrap_err(), error);
    let whole = TarOptions::new().missing_end(true).stream(&paths[2..]).unwrap();
    let found = rows(&whole);
    assert!(found[2].as_ref().unwrap_err().contains("the sample 0009 has no file `cls`"), "{found:?}");

    let bad = tar(&[("a.txt", b"long enough for the limit"), ("b.txt", b"x"), ("c.txt", b"\xff"), ("d.cls", b"1")]);
    fs::write(&paths[0], bad).unwrap();
    let found = rows(&TarOptions::new().columns(["txt"]).stream(&paths[..1]).unwrap());
    assert!(found[0].is_ok() && found[1].is_ok());
    for (row, want) in [(2, "the field txt of the sample c: expected UTF-8"), (3, "the sample d has no file `txt`")] {
        assert!(found[row].as_ref().unwrap_err().contains(want), "{found:?}");
    }
    let limited = TarOptions::new().columns(["txt"]).stream(&paths[..1]).unwrap().memory_limit(9);
    let error = rows(&limited)[0].clone().unwrap_err();
    assert!(error.contains("the sample a has 25 bytes or more, and the limit is 9"), "{error}");

    let refused = |options: TarOptions, paths: &[PathBuf], want| _ = fails(options.stream(paths), &[want]);
    refused(TarOptions::new(), &[folder.path().join("none.tar")], "cannot open");
    refused(TarOptions::new().columns(["png"]), &paths[1..2], "the first samples have no file `png`");
    fs::write(&paths[0], tar(&[])).unwrap();
    refused(TarOptions::new(), &paths[..1], "no samples");
    fs::write(&paths[0], tar(&[("a.x", b"1"), ("a.x", b"2")])).unwrap();
    refused(TarOptions::new(), &paths[..1], "two files `x` in the sample a");
    let mut lies = tar(&[("a.x", b"1")]);
    lies[124..136].copy_from_slice(b"77777777777\0");
    support::seal(&mut lies);
    fs::write(&paths[0], lies).unwrap();
    refused(TarOptions::new(), &paths[..1], "the limit is");
}

#[test]
fn a_file_that_the_first_samples_do_not_have_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let names: Vec<String> = (0..101).map(|i| format!("{i:03}.txt")).collect();
    let mut members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    members.push(("100.json", b"{}"));
    fs::write(&path, tar(&members)).unwrap();
    let found = rows(&TarOptions::new().stream([&path]).unwrap());
    let error = found[100].as_ref().unwrap_err();
    assert!(found[..100].iter().all(Result::is_ok) && error.contains("the sample 100 has a file `json`"), "{error}");
    assert!(rows(&TarOptions::new().columns(["txt"]).stream([&path]).unwrap()).iter().all(Result::is_ok));
}

/// Reads bytes as a tar. Returns the number of samples, or an error.
fn survives(bytes: &[u8]) -> Result<usize, BoxError> {
    let stream = TarOptions::new().skip_incomplete(true).stream_reader("tar", std::io::Cursor::new(bytes.to_vec()))?;
    Ok(rows(&stream.shuffle(3)).iter().filter(|row| row.is_ok()).count())
}

#[test]
fn truncated_and_damaged_tars_are_errors_or_valid() {
    let good = tar(&[("a.txt", b"one"), ("a.cls", b"1"), ("b.txt", b"two"), ("b.cls", b"2")]);
    assert_eq!(survives(&good).unwrap(), 2);
    let packed = gzip(&good);
    for bytes in [&good, &packed] {
        for len in 0..bytes.len() {
            drop(survives(&bytes[..len]));
        }
        let ways = |at: usize, byte| [byte ^ 1 << (at % 8)];
        support::changed(bytes, 0..bytes.len(), ways, |bytes| drop(survives(bytes)));
    }
}

proptest! {
    #[test]
    fn random_bytes_are_no_tar(bytes in prop::collection::vec(any::<u8>(), 0..3000), packed: bool) {
        let bytes = if packed { gzip(&bytes) } else { bytes };
        drop(survives(&bytes));
    }
}

/// A reader that returns few bytes at a time, as pipes do.
struct Slow<R>(R, usize);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 = self.1 % 7 + 1;
        let len = self.1.min(into.len());
        self.0.read(&mut into[..len])
    }
}

#[test]
fn readers_may_return_few_bytes() {
    let bytes = fs::read(data("pax.tar")).unwrap();
    let options = TarOptions::new().skip_incomplete(true);
    let whole = options.stream_reader("whole", std::io::Cursor::new(bytes.clone())).unwrap();
    let slow = options.stream_reader("slow", Slow(std::io::Cursor::new(gzip(&bytes)), 0)).unwrap();
    assert_eq!(rows(&slow), rows(&whole));
}

#[test]
fn more_files_than_a_sample_may_have_are_an_error() {
    let names: Vec<_> = (0..5000).map(|i| format!("a.{i}")).collect();
    let bytes = tar(&names.iter().map(|name| (name.as_str(), &b""[..])).collect::<Vec<_>>());
    let options = TarOptions::new().columns(["0"]);
    fails(options.stream_reader("tar", std::io::Cursor::new(bytes)), &["more than 4096 files in one sample"]);
}

#[test]
fn packed_data_that_end_early_are_called_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let noise: Vec<u8> = (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let whole = tar(&[("1.bin", &noise), ("2.bin", &noise)]);
    let path = folder.path().join("photos.tar.gz");
    for (pack, quarters) in [gzip, bzip2, zstd].into_iter().flat_map(|pack| [(pack, 1), (pack, 3)]) {
        let packed = pack(&whole);
        std::fs::write(&path, &packed[..packed.len() * quarters / 4]).unwrap();
        let error = fails(TarOptions::new().stream([&path]), &["photos.tar.gz: the packed data are not complete"]);
        assert!(error.contains("truncated"), "{error}");
    }
}

#[test]
fn damage_after_the_end_mark_of_a_packed_tar_is_found() {
    let folder = tempfile::tempdir().unwrap();
    // There are more samples than are read when the tar is opened, and padding, so that the end
    // marker is far from the end of the file.
    let names: Vec<String> = (0..150).map(|i| format!("{i}.txt")).collect();
    let mut whole = tar(&names.iter().map(|name| (name.as_str(), name.as_bytes())).collect::<Vec<_>>());
    whole.resize(whole.len() + (1 << 20), 0);
    let checked = |bytes: &[u8]| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let path = folder.path().join("words.tar.gz");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        rows(&TarOptions::new().stream([&path]).unwrap())
    };
    let good: Vec<_> = names.iter().map(|name| Ok(vec![name.clone().into_bytes()])).collect();
    for pack in [gzip_member, gzip, bzip2, checked] {
        let packed = pack(&whole);
        assert_eq!(read(&packed), good);
        let mut damaged = packed.clone();
        *damaged.iter_mut().nth_back(5).unwrap() ^= 1;
        for bytes in [&packed[..packed.len() - 1], &packed[..packed.len() - 9], &damaged] {
            let mut found = read(bytes);
            let error = found.pop().unwrap().unwrap_err();
            assert_eq!(found, good);
            assert!(error.contains("words.tar.gz"), "{error}");
        }
    }
    // Zeros after the compressed data are the padding of a tape; other bytes are damage.
    let packed = gzip_member(&whole);
    assert_eq!(read(&[&packed[..], &[0; 10_000]].concat()), good);
    let error = read(&[&packed[..], b"garbage"].concat()).pop().unwrap().unwrap_err();
    assert!(error.contains("the packed data are"), "{error}");
}

#[test]
fn packed_tars_are_opened_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let whole = fs::read(data("shard-000000.tar")).unwrap();
    let names = ["0.tar.gz", "1.tar.bz2", "2.tar.zst", "3.tgz", "4.TBZ2", "5.tzst"];
    for (name, pack) in names.iter().zip([gzip, bzip2, zstd, gzip, bzip2, zstd]) {
        write(name, &pack(&whole));
    }
    let options = slotline_sources::OpenOptions::new().columns(["txt"]);
    let open = |path: &str| options.open_stream(folder.path().join(path));
    let one = rows(&open("0.tar.gz").unwrap().unwrap());
    assert!(one.len() > 1 && one[0].as_ref().is_ok_and(|row| row.len() == 1));
    for path in ["", "*", "{0.tar.gz,1.tar.bz2,2.tar.zst,3.tgz,4.TBZ2,5.tzst}"] {
        assert_eq!(rows(&open(path).unwrap().unwrap()), vec![one.clone(); 6].concat(), "{path}");
    }
    assert!(slotline_sources::open(folder.path()).unwrap_err().to_string().contains("only tars are read packed"));
    write("6.tar", &whole);
    write("table.csv.gz", b"");
    for path in ["*.tar", "table.csv.gz", "none"] {
        assert!(open(path).unwrap().is_none(), "{path}");
    }
    fails(open(""), &["both", "6.tar"]);
    fails(open("*"), &["both packed tars (0.tar.gz) and tars (6.tar)"]);
    fails(open("{0.tar.gz,notes}"), &["both packed tars and", "notes; pass a pattern for the tars"]);
}
