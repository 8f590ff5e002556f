//! Datasets in files that are mixed by weight: datasets of different formats, and with capacities
//! for samples of different sizes.
#![cfg(feature = "tar")]

use std::path::Path;

use slotline::dataset::ConcatDataset;
use slotline::sampler::DistributedSampler;
use slotline::{Batch, Loader};
use slotline_sequences::sampler::{MixtureSampler, ShardShuffleSampler, Stop};
use slotline_sources::tar::{Tar, TarOptions};
use slotline_sources::{Format, IndexFiles, Records};

use crate::support::tar;

/// Writes a tar of `len` samples, each with a text of up to `longest` bytes, and opens it.
fn open(folder: &Path, name: &str, len: usize, longest: usize, field: &str) -> Records<Tar> {
    let texts = (0..len).map(|i| format!("{name}{i} ").repeat(longest)[..1 + i * (longest - 1) / (len - 1)].to_owned());
    let members: Vec<_> = texts.enumerate().map(|(i, text)| (format!("{i:03}.{field}"), text)).collect();
    let members: Vec<_> = members.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    let path = folder.join(format!("{name}.tar"));
    std::fs::write(&path, tar(&members)).unwrap();
    TarOptions::new().index_files(IndexFiles::None).open([path]).unwrap()
}

/// Returns the indices and the texts of the samples of a batch.
fn texts<S>(batch: &Batch<S>) -> Vec<(i64, Vec<u8>)> {
    let columns = batch.columns();
    let (bytes, offsets) = (columns.get(0).unwrap().bytes().to_vec(), columns.offsets(0).unwrap().to_vec());
    let texts = offsets.windows(2).map(|ends| bytes[ends[0] as usize..ends[1] as usize].to_vec());
    batch.indices().iter().copied().zip(texts).collect()
}

#[test]
fn a_mixture_is_the_same_with_any_workers_and_ranks_and_after_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let all = ConcatDataset::new(vec![
        open(folder.path(), "short", 60, 9, "txt"),
        open(folder.path(), "long", 30, 700, "txt"),
    ]);
    let all = all.unwrap();
    let load = |ranks: usize, rank, batch_size, workers| {
        let mixture = MixtureSampler::new(all.lens(), [0.4, 0.6]).unwrap().stop(Stop::AllExhausted).unwrap();
        let sampler = DistributedSampler::over(mixture, ranks, rank).unwrap().seed(3);
        let loader = Loader::builder(all.clone()).batch_size(batch_size).sampler(sampler).seed(1);
        loader.num_workers(workers).build().unwrap()
    };
    let whole: Vec<_> = load(1, 0, 12, 0).epoch().unwrap().flat_map(|batch| texts(&batch.unwrap())).collect();
    assert_eq!(whole.len(), 149);
    let again = whole.iter().filter(|(index, _)| *index >= 60);
    assert_eq!(again.count(), 89, "the second one begins again twice");
    for (index, text) in &whole {
        let (name, i) = if *index < 60 { ("short", *index) } else { ("long", *index - 60) };
        assert!(text[0] == name.as_bytes()[0], "{index}: {i}");
    }
    // Three ranks read two batches each, and then four ranks continue.
    for workers in [0, 2] {
        let mut found = Vec::new();
        let mut state = None;
        let mut take = |ranks: usize, batch_size, workers, most| {
            let mut shares = Vec::new();
            let mut next = None;
            for rank in 0..ranks {
                let mut loader = load(ranks, rank, batch_size, workers);
                state.as_ref().inspect(|state| loader.load_state(state).unwrap());
                let mut pass = loader.epoch().unwrap();
                shares.push(pass.by_ref().take(most).flat_map(|batch| texts(&batch.unwrap())).collect::<Vec<_>>());
                next = Some(pass.state());
            }
            found.extend((0..shares[0].len()).flat_map(|i| shares.iter().map(move |share| share[i].clone())));
            state = next;
        };
        take(3, 4, workers, 2);
        take(4, 4, 2 - workers, usize::MAX);
        assert_eq!(found[..149], whole);
        assert_eq!(found.len(), 152, "shares are made equal");
    }
}

#[test]
fn datasets_of_different_formats_are_mixed_and_those_that_differ_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let erased = |name: &str, field| open(folder.path(), name, 4, 5, field).erased();
    let concat = |second| ConcatDataset::<Records<dyn Format>>::new(vec![erased("a", "txt"), second]).unwrap();
    let mut loader = Loader::builder(concat(erased("b", "txt"))).batch_size(8).build().unwrap();
    assert_eq!(texts(&loader.epoch().unwrap().next().unwrap().unwrap()).len(), 8);
    for (second, want) in [
        (erased("c", "cap"), "dataset 1 has field cap: u8 packed"),
        (erased("d", "cls"), "dataset 1 has field cls: i64"),
    ] {
        let error = Loader::builder(concat(second)).batch_size(8).build().map(drop).unwrap_err();
        let error = slotline::with_causes(&error);
        let declared = "but dataset 0 has field txt: u8 packed";
        assert!(error.contains(want) && error.contains(declared), "{error}");
    }
}

/// Checks that the samples of a part of a pass are in few shards, for any number of workers.
#[test]
fn a_shuffle_by_shards_stays_in_a_window_of_files() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..12 {
        open(folder.path(), &format!("{i:02}"), 3 + i % 3, 9, "txt");
    }
    let tars = || TarOptions::new().index_files(IndexFiles::None).open([folder.path().join("*.tar")]).unwrap();
    let lens = tars().shard_lens();
    assert_eq!(lens, [3, 4, 5].repeat(4));
    for workers in [0, 2] {
        let sampler = ShardShuffleSampler::new(tars().shard_lens(), 3).unwrap();
        let loader = Loader::builder(tars()).batch_size(1).sampler(sampler).seed(5).num_workers(workers);
        let mut loader = loader.build().unwrap();
        let batches: Vec<_> = loader.epoch().unwrap().flat_map(|batch| texts(&batch.unwrap())).collect();
        let starts: Vec<usize> = (0..12).map(|shard| lens[..shard].iter().sum()).collect();
        let shard = |index: i64| starts.partition_point(|&start| start <= index as usize);
        let shards: Vec<_> = batches.iter().map(|(index, _)| shard(*index)).collect();
        let mut all = batches.clone();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), lens.iter().sum::<usize>());
        for run in shards.windows(9) {
            let run: std::collections::BTreeSet<_> = run.iter().collect();
            assert!(run.len() <= 6, "{run:?}");
        }
        assert!(shards.windows(2).filter(|pair| pair[0] != pair[1]).count() > 12, "samples of shards are mixed");
    }
}

/// Checks that the lengths of shards add up to the number of samples, for every format.
#[cfg(all(feature = "folder", feature = "mds", feature = "parquet", feature = "tfrecord", feature = "tokens"))]
#[test]
fn shards_add_up_to_all_samples() {
    let data = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    for (name, shards) in [("mds/raw", 2), ("mds/zstd", 2), ("parquet/plain.parquet", 3), ("tfrecord/*.tfrecord", 2)] {
        let options = slotline_sources::OpenOptions::new().index_files(IndexFiles::None);
        let records = options.open(data(name)).unwrap();
        let lens = records.shard_lens();
        assert_eq!(lens.iter().sum::<usize>(), slotline::Dataset::len(&records), "{name}: {lens:?}");
        assert!(lens.len() >= shards, "{name}: {lens:?}");
    }
}

#[test]
fn datasets_with_more_fields_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.bin");
    std::fs::write(&path, [0; 64]).unwrap();
    let blocks =
        |labels| slotline_sources::tokens::BlockOptions::new(4).labels(labels).open_raw([&path]).unwrap().erased();
    let error = ConcatDataset::new(vec![blocks(false), blocks(true)])
        .map_err(|error| error.to_string())
        .and_then(|both| Loader::builder(both).build().map(drop).map_err(|error| error.to_string()))
        .unwrap_err();
    assert!(error.contains("dataset 1 has 2 fields (tokens, labels), but dataset 0 has 1 (tokens)"), "{error}");
}
