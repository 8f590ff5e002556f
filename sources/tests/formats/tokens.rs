//! Token files, compared with the results of NumPy and megatron-core (`data/tokens.py`), and
//! damaged files.
#![cfg(feature = "tokens")]

use crate::support;

use std::path::{Path, PathBuf};

use crate::support::fails;
use proptest::prelude::*;
use serde_json::Value;
use slotline::dataset::Context;
use slotline::dtype::DType;
use slotline::{Dataset, Loader};
use slotline_sequences::packing::{PackedDataset, PackingOptions};
use slotline_sources::tokens::{BlockOptions, Documents, GptOptions, Index, SequenceOptions, Sequences};
use slotline_sources::{Format, Records};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokens").join(name)
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(data("expected.json")).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

/// Returns the values of a field for every sample.
fn all<F: Format + ?Sized>(records: &Records<F>, field: &str) -> Vec<Vec<i64>> {
    let mut cx = Context::default();
    (0..records.len()).map(|i| records.get(i, &mut cx).unwrap().elements::<i64>(field).unwrap()).collect()
}

fn digest<F: Format + ?Sized>(records: &Records<F>) -> u64 {
    let (tokens, labels) = (all(records, "tokens"), all(records, "labels"));
    let all = tokens.iter().zip(&labels).flat_map(|(tokens, labels)| tokens.iter().chain(labels));
    all.fold(0, |digest, &token| ((u128::from(digest) * 1_000_003 + token as u128 + 1) % (1 << 61)) as u64)
}

#[test]
fn blocks_are_those_of_nanogpt() {
    let expected = &expected()["raw"];
    for (name, dtype) in [("a16", DType::U16), ("b16", DType::U16), ("c16", DType::U16), ("d32", DType::U32)] {
        let tokens = numbers(&expected[name]);
        for (block, stride) in [(1, 1), (3, 1), (6, 6), (5, 2), (2, 7)] {
            let options = BlockOptions::new(block).stride(stride).dtype(dtype).widen(true);
            let path = [data(&format!("{name}.bin"))];
            let want: Vec<_> = tokens.windows(block + 1).step_by(stride).map(<[i64]>::to_vec).collect();
            assert_eq!(all(&options.open_raw(&path).unwrap(), "tokens"), want, "{name} {block} {stride}");
            let options = options.labels(true);
            // SAFETY: nobody writes to the file.
            let mapped = unsafe { options.clone().mapped() };
            for records in [options.open_raw(&path).unwrap(), mapped.open_raw(&path).unwrap()] {
                let cut =
                    |range: std::ops::Range<usize>| want.iter().map(|w| w[range.clone()].to_vec()).collect::<Vec<_>>();
                assert_eq!(all(&records, "tokens"), cut(0..block));
                assert_eq!(all(&records, "labels"), cut(1..block + 1));
            }
        }
    }
}

#[test]
fn samples_do_not_cross_files_and_keep_their_type() {
    let expected = &expected()["raw"];
    let names = ["a16", "b16", "c16"];
    let blocks = BlockOptions::new(8).open_raw(names.map(|name| data(&format!("{name}.bin")))).unwrap();
    let want = names.iter().flat_map(|name| {
        let tokens: Vec<u16> = numbers(&expected[*name]).iter().map(|&token| token as u16).collect();
        tokens.windows(9).step_by(8).map(<[u16]>::to_vec).collect::<Vec<_>>()
    });
    let want: Vec<_> = want.collect();
    assert_eq!(want.len(), 12 + 7); // b16 is shorter than a sample.
    let mut cx = Context::default();
    let found: Vec<_> =
        (0..blocks.len()).map(|i| blocks.get(i, &mut cx).unwrap().elements::<u16>("tokens").unwrap()).collect();
    assert_eq!(found, want);
}

#[test]
fn shards_of_llmc_are_read() {
    let expected = &expected()["llmc"];
    for names in [&["gpt2_0", "gpt2_1"][..], &["llama3"]] {
        let options = BlockOptions::new(4).widen(true);
        let blocks = options.open_llmc(names.iter().map(|name| data(&format!("{name}.llmc")))).unwrap();
        let want = names
            .iter()
            .flat_map(|name| numbers(&expected[*name]).windows(5).step_by(4).map(<[i64]>::to_vec).collect::<Vec<_>>());
        assert_eq!(all(&blocks, "tokens"), want.collect::<Vec<_>>());
    }
    let mixed = BlockOptions::new(4).open_llmc(["gpt2_0", "llama3"].map(|name| data(&format!("{name}.llmc"))));
    assert!(mixed.unwrap_err().to_string().contains("llama3.llmc: tokens of type u32"));
}

#[test]
fn sequences_are_those_of_megatron() {
    let expected = &expected()["sequences"];
    for (name, want) in expected.as_object().unwrap() {
        let sequences = Sequences::open(data(name)).unwrap();
        let index = sequences.format().index();
        let rust = want["dtype"].as_str().unwrap().replace("uint", "u").replace("int", "i").replace("float", "f");
        assert_eq!(index.dtype().to_string(), rust);
        assert_eq!(index.documents().iter().map(|&i| i as i64).collect::<Vec<_>>(), numbers(&want["documents"]));
        let bytes = want["bytes"].as_array().unwrap();
        let modes = numbers(&want["modes"]);
        assert_eq!(sequences.len(), bytes.len());
        let mut cx = Context::default();
        for (i, bytes) in bytes.iter().enumerate() {
            let record = sequences.get(i, &mut cx).unwrap();
            assert_eq!(support::hex(record.bytes("tokens").unwrap()), bytes.as_str().unwrap(), "{name} {i}");
            assert_eq!(record.number::<i8>("mode").map(i64::from), modes.get(i).copied());
        }
    }
    for (name, fits) in [("uint16", true), ("int8", true), ("int64", true), ("float32", false), ("float64", false)] {
        assert_eq!(SequenceOptions::new().widen(true).open(data(name)).is_ok(), fits, "{name}");
    }
}

#[test]
fn samples_of_gpt_are_those_of_megatron() {
    for want in expected()["gpt"].as_array().unwrap() {
        let range = numbers(&want["sequences"]);
        let mut options = GptOptions::new(want["length"].as_u64().unwrap() as u32)
            .seed(want["seed"].as_u64().unwrap() as u32)
            .extra_token(want["extra"].as_bool().unwrap())
            .sequences(range[0] as usize..range[1] as usize)
            .widen(true)
            .labels(true);
        if let Some(samples) = want["samples"].as_u64() {
            options = options.samples(samples);
        }
        let prefix = data(want["name"].as_str().unwrap());
        // SAFETY: nobody writes to the file.
        for gpt in [options.open(&prefix).unwrap(), unsafe { options.clone().mapped() }.open(&prefix).unwrap()] {
            assert_eq!(gpt.len() as u64, want["len"].as_u64().unwrap());
            let mut cx = Context::default();
            for (i, first) in want["first"].as_array().unwrap().iter().enumerate() {
                let record = gpt.get(i, &mut cx).unwrap();
                assert_eq!(record.elements::<i64>("tokens").unwrap(), numbers(&first[0]), "{want} {i}");
                assert_eq!(record.elements::<i64>("labels").unwrap(), numbers(&first[1]), "{want} {i}");
            }
            assert_eq!(digest(&gpt), want["digest"].as_u64().unwrap(), "{want}");
        }
    }
}

#[test]
fn blends_are_those_of_megatron() {
    let prefixes = ["corpus0", "corpus1", "corpus2"].map(data);
    for want in expected()["blends"].as_array().unwrap() {
        let options = GptOptions::new(12).widen(true).labels(true);
        let blend = match want["samples"].as_u64() {
            Some(samples) => {
                let weights = want["weights"].as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap());
                options.blend(prefixes.iter().zip(weights), samples).unwrap()
            }
            None => options.blend_all(&prefixes).unwrap(),
        };
        let parts: Vec<_> = (0..blend.len()).map(|i| blend.format().part(i).unwrap()).collect();
        assert_eq!(parts.iter().map(|part| part.0 as i64).collect::<Vec<_>>(), numbers(&want["parts"]));
        let last: Vec<_> = parts[parts.len() - 5..].iter().map(|part| part.1 as i64).collect();
        assert_eq!(last, numbers(&want["samples_of_parts"]));
        assert_eq!(digest(&blend), want["digest"].as_u64().unwrap());
        assert_eq!(blend.format().part(blend.len()), None);
    }
}

#[test]
fn documents_are_packed_whole() {
    let wide = || SequenceOptions::new().widen(true).open(data("corpus0")).unwrap();
    let documents = Documents::<i64>::new(wide()).unwrap();
    let (mut cx, sequences) = (Context::default(), wide());
    let mut token = |document, place: usize| -> i64 {
        sequences.get(document, &mut cx).unwrap().elements::<i64>("tokens").unwrap()[place]
    };
    let packing = PackingOptions::new(64).seed(3).best_fit(documents.lengths()).unwrap();
    let bins = PackedDataset::new(documents, packing.clone()).unwrap().padding([-1]);
    let mut loader = Loader::builder(bins).batch_size(5).num_workers(2).build().unwrap();
    let mut seen = 0;
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let bins = batch.tensors();
        for (row, &bin) in batch.indices().iter().enumerate() {
            let places = packing.bin(bin as usize).unwrap();
            let want: Vec<i64> = places
                .flat_map(|piece| piece.tokens.map(move |place| (piece.document, place)))
                .map(|(document, place)| token(document, place))
                .collect();
            let (own, padding) = bins.tokens.row(row).as_slice().split_at(want.len());
            assert!(own == want && padding.iter().all(|&token| token == -1));
            seen += want.len();
        }
    }
    assert_eq!(seen, wide().format().lengths().sum::<usize>());
    fails(Documents::<u32>::new(wide()), &["documents of u32, but the tokens are i64"]);
}

#[test]
fn passes_resume() {
    support::resumes(|| {
        BlockOptions::new(7).stride(3).widen(true).open_raw([data("a16.bin"), data("c16.bin")]).unwrap()
    });
    support::resumes(|| Sequences::open(data("int16_modes")).unwrap());
    support::resumes(|| GptOptions::new(16).labels(true).open(data("corpus0")).unwrap());
    let parts = || [(data("corpus0"), 0.6), (data("corpus1"), 0.4)];
    support::resumes(|| GptOptions::new(16).blend(parts(), 50).unwrap());
}

#[test]
fn options_that_cannot_be_used_are_errors() {
    let message = |result: Result<(), slotline_sources::Error>| result.unwrap_err().to_string();
    let raw = |options: BlockOptions| message(options.open_raw([data("a16.bin")]).map(drop));
    assert!(raw(BlockOptions::new(0)).contains("at least 1"));
    assert!(raw(BlockOptions::new(4).stride(0)).contains("at least 1"));
    assert!(raw(BlockOptions::new(usize::MAX)).contains("blocks of"));
    assert!(raw(BlockOptions::new(usize::MAX - 1)).contains("no file has"));
    assert!(raw(BlockOptions::new(103)).contains("no file has the 104 tokens"));
    assert!(raw(BlockOptions::new(4).dtype(DType::F32)).contains("f32"));
    assert!(raw(BlockOptions::new(4).dtype(DType::U32)).contains("206 bytes, which is not a multiple of 4"));
    assert!(raw(BlockOptions::new(4).dtype(DType::U64).widen(true)).contains("206 bytes"));
    assert_eq!(BlockOptions::new(102).stride(usize::MAX).open_raw([data("a16.bin")]).unwrap().len(), 1);
    let gpt = |options: GptOptions| message(options.open(data("corpus2")).map(drop));
    assert!(gpt(GptOptions::new(0)).contains("at least 1"));
    assert!(gpt(GptOptions::new(1000)).contains("tokens"));
    assert!(gpt(GptOptions::new(5).samples(u64::MAX)).contains("too many samples"));
    assert!(gpt(GptOptions::new(5).samples(u64::MAX / 5)).contains("too many samples"));
    assert!(gpt(GptOptions::new(1).samples(1 << 33)).contains("too many samples"));
    assert!(gpt(GptOptions::new(5).sequences(3..10)).contains("which has 9"));
    assert!(gpt(GptOptions::new(5).sequences(3..3).samples(1)).contains("no tokens"));
    let blend = |parts: &[(PathBuf, f64)]| message(GptOptions::new(5).blend(parts.iter().cloned(), 9).map(drop));
    assert!(blend(&[]).contains("0 datasets"));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(blend(&[(data("corpus0"), 1.0), (data("corpus1"), weight)]).contains("weights above 0"));
    }
}

/// Opens an index with these bytes, and reads every sample in both ways.
fn read_all(folder: &Path, idx: &[u8], bin: &[u8]) -> Result<(), slotline_sources::Error> {
    std::fs::write(folder.join("a.idx"), idx).unwrap();
    std::fs::write(folder.join("a.bin"), bin).unwrap();
    let sequences = Sequences::open(folder.join("a"))?;
    let mut cx = Context::default();
    (0..sequences.len()).for_each(|i| drop(sequences.get(i, &mut cx).unwrap()));
    if let Ok(gpt) = GptOptions::new(3).samples(20).open(folder.join("a")) {
        (0..gpt.len()).for_each(|i| drop(gpt.get(i, &mut cx).unwrap()));
    }
    Ok(())
}

#[test]
fn damaged_indexes_are_errors_or_read_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let [idx, bin] = ["int16_modes.idx", "int16_modes.bin"].map(|name| std::fs::read(data(name)).unwrap());
    read_all(folder.path(), &idx, &bin).unwrap();
    let without_modes = idx.len() - 7;
    for len in (0..idx.len()).filter(|&len| len != without_modes) {
        fails(read_all(folder.path(), &idx[..len], &bin), &["a.idx, byte"]);
    }
    for len in 0..bin.len() {
        assert!(read_all(folder.path(), &idx, &bin[..len]).is_err(), "{len}");
    }
    let ways = |_, byte| [1, 2, 4, 8, 16, 32, 64, 128, byte, !byte].map(|flip| byte ^ flip);
    support::changed(&idx, 0..idx.len(), ways, |idx| _ = read_all(folder.path(), idx, &bin));
    let mut overlapping = idx.clone();
    overlapping[34 + 4 * 7 + 8] = 0; // The second sequence, which is empty, starts like the first.
    fails(
        read_all(folder.path(), &overlapping, &bin),
        &["byte 70: sequence 1 starts at byte 0, and the one before ends at 6"],
    );
}

#[test]
fn damaged_headers_of_llmc_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let bytes = std::fs::read(data("gpt2_1.llmc")).unwrap();
    let open = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        BlockOptions::new(4).open_llmc([&path]).map(drop)
    };
    open(&bytes).unwrap();
    (0..bytes.len()).for_each(|len| assert!(open(&bytes[..len]).is_err(), "{len}"));
    let ways = |_, byte| [1, 2, 4, 8, 16, 32, 64, 128].map(|flip| byte ^ flip);
    support::changed(&bytes, 0..12, ways, |bytes| _ = fails(open(bytes), &["a, byte"]));
}

proptest! {
    #[test]
    fn random_indexes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), bin in any::<u64>()) {
        let _ = Index::parse("random", &bytes, bin);
        let header = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08";
        for sequences in 0..4_u64 {
            let counts = [sequences, 1].map(u64::to_le_bytes).concat();
            let whole = [&header[..], &counts, &bytes].concat();
            let cut = whole.len().min(34 + sequences as usize * 12 + 8);
            let _ = Index::parse("random", &whole, bin);
            let _ = Index::parse("random", &whole[..cut], bin);
        }
    }
}

#[test]
fn patterns_name_files_of_tokens() {
    let folder = tempfile::tempdir().unwrap();
    for (name, from) in [("train-0.bin", 0_u16), ("train-1.bin", 100)] {
        std::fs::write(folder.path().join(name), (from..from + 9).flat_map(u16::to_le_bytes).collect::<Vec<_>>())
            .unwrap();
    }
    for pattern in ["train-*.bin", "train-{0..1}.bin"] {
        let blocks = BlockOptions::new(4).open_raw([folder.path().join(pattern)]).unwrap();
        let first = |index| blocks.get(index, &mut Context::default()).unwrap().elements::<u16>("tokens").unwrap()[0];
        assert_eq!(blocks.len(), 4);
        assert_eq!([0, 1, 2, 3].map(first), [0, 4, 100, 104]);
    }
}
