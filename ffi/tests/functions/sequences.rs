//! Tests that mixtures, batches by length, packing and padding to the longest sample are those of the
//! Rust crates.

use std::ffi::c_void;
use std::num::NonZero;
use std::ptr::{null, null_mut};
use std::slice;

use slotline::dataset::{Context, Dataset, from_fn};
use slotline::rng::Generator;
use slotline::sample::{Columns, PaddedToLongest, PaddedToMax};
use slotline::{BoxError, Loader as Engine, Ranks};
use slotline_sequences::packing::{Long, PackedDataset, PackingOptions};
use slotline_sequences::sampler::{LengthBatchSampler, MixtureSampler, ScheduledMixture, SequenceError, Stop};

use slotline_ffi::*;

use super::map_datasets::elements;
use super::samplers::{LEN, engine, passes, with_sampler};
use crate::support::datasets::{Drops, field, loader_of, map, map_loader};
use crate::support::{Batch, Digits, Loader, call, options};

/// Changes the options of a case.
type Set<'a, T> = &'a dyn Fn(&mut T);

/// The lengths of the two datasets that the digits are seen as.
const LENS: [usize; 2] = [1000, 797];

fn mixture(weights: &[f64], set: impl FnOnce(&mut slotline_mixture)) -> slotline_mixture {
    let mut mixture = slotline_mixture {
        struct_size: size_of::<slotline_mixture>(),
        lens: LENS.as_ptr(),
        num_datasets: 2,
        weights: if weights.is_empty() { null() } else { weights.as_ptr() },
        num_epochs: weights.len() / 2,
        num_samples: 0,
        stop: SLOTLINE_STOP_FIRST_EXHAUSTED,
        even: 0,
        shuffle: 1,
        reserved: [0; 2],
    };
    set(&mut mixture);
    mixture
}

#[test]
fn mixtures_match_the_crates_mixtures() {
    type Own = Result<MixtureSampler, SequenceError>;
    let stop = |stop| MixtureSampler::new(LENS, [3.0, 1.0])?.stop(stop);
    let some = Stop::NumSamples(NonZero::new(2500).unwrap());
    let cases: [(&[f64], Set<'_, slotline_mixture>, Own); 6] = [
        (&[3.0, 1.0], &|_| (), stop(Stop::FirstExhausted)),
        (&[3.0, 1.0], &|mixture| mixture.stop = SLOTLINE_STOP_ALL_EXHAUSTED, stop(Stop::AllExhausted)),
        (
            &[3.0, 1.0],
            &|mixture| mixture.stop = SLOTLINE_STOP_ALL_EXHAUSTED_WITHOUT_REPLACEMENT,
            stop(Stop::AllExhaustedWithoutReplacement),
        ),
        (
            &[3.0, 1.0],
            &|mixture| (mixture.num_samples, mixture.even, mixture.shuffle) = (2500, 1, 0),
            stop(some).map(|own| own.even(true).shuffle(false)),
        ),
        (&[], &|_| (), MixtureSampler::by_size(LENS)),
        (&[], &|mixture| mixture.num_samples = 2500, MixtureSampler::by_size(LENS).and_then(|own| own.stop(some))),
    ];
    for (weights, set, own) in cases {
        let mixture = mixture(weights, set);
        // SAFETY: all pointers are valid.
        let mixed = with_sampler(Some(5), |out, error| unsafe { slotline_sampler_mixture(&mixture, out, error) });
        let own = own.unwrap().generator(Generator::from_seed(5));
        assert_eq!(mixed, engine(|builder| builder.batch_size(100).sampler(own)));
    }
}

/// Creates a sampler of weights that change in the second pass, with a seed.
fn scheduled() -> *mut slotline_sampler {
    let (mut sampler, weights) = (null_mut(), [9.0, 1.0, 1.0, 1.0]);
    let mixture = mixture(&weights, |mixture| mixture.num_samples = 1000);
    // SAFETY: all pointers are valid.
    call(|error| unsafe { slotline_sampler_mixture(&mixture, &mut sampler, error) }).unwrap();
    // SAFETY: the sampler was just created.
    unsafe { slotline_sampler_seed(sampler, 6) };
    sampler
}

fn own_schedule() -> ScheduledMixture {
    let stop = Stop::NumSamples(NonZero::new(1000).unwrap());
    let each = [[9.0, 1.0], [1.0, 1.0]].map(|weights| MixtureSampler::new(LENS, weights).unwrap().stop(stop).unwrap());
    ScheduledMixture::new(each).unwrap().generator(Generator::from_seed(6))
}

#[test]
fn weights_change_from_pass_to_pass_also_for_ranks_and_after_a_resume() {
    let sampler = scheduled();
    let batches = passes(|options| (options.batch_size, options.sampler) = (100, sampler));
    assert_eq!(batches, engine(|builder| builder.batch_size(100).sampler(own_schedule())));
    for (pass, from_first) in [(0, 900), (1, 500)] {
        let indices = batches[10 * pass..10 * (pass + 1)].iter().flatten();
        assert_eq!(indices.filter(|&&index| index < 1000).count(), from_first, "pass {pass}");
    }
    for rank in 0..3 {
        let ranked = passes(|options| {
            (options.batch_size, options.sampler, options.rank, options.world_size) = (100, sampler, rank, 3);
        });
        let ranks = Ranks::new(rank, 3).unwrap();
        assert_eq!(ranked, engine(|builder| builder.batch_size(100).sampler(own_schedule()).ranks(ranks)));
    }
    let loader = || Loader::with(options(|options| (options.batch_size, options.sampler) = (100, sampler)));
    let first = loader();
    for _ in 0..2 {
        first.epoch().unwrap();
        first.next().unwrap();
    }
    let state = first.state().unwrap();
    let resumed = loader();
    resumed.load(&state).unwrap();
    resumed.epoch().unwrap();
    assert_eq!(resumed.rest(), batches[11..]);
    // SAFETY: the sampler is freed once.
    unsafe { slotline_sampler_free(sampler) };
}

/// Creates a batch sampler of the digits, whose lengths are `lengths`.
fn by_length(lengths: &[usize], set: impl FnOnce(&mut slotline_length_batches)) -> *mut slotline_batch_sampler {
    let mut batches = slotline_length_batches {
        struct_size: size_of::<slotline_length_batches>(),
        lengths: lengths.as_ptr(),
        num_lengths: lengths.len(),
        max_tokens: 0,
        boundaries: [20_usize, 70].as_ptr(),
        batch_sizes: [40_usize, 20, 5].as_ptr(),
        num_boundaries: 2,
        limit: 0,
        padded: 1,
        shuffle: 1,
        drop_last: 0,
        reserved: [0; 5],
    };
    set(&mut batches);
    let mut sampler = null_mut();
    // SAFETY: all pointers are valid.
    call(|error| unsafe { slotline_batch_sampler_by_length(&batches, &mut sampler, error) }).unwrap();
    sampler
}

#[test]
fn batches_by_length_match_the_crates_batches() {
    let lengths: Vec<usize> = (0..LEN).map(|i| 1 + i * 37 % 100).collect();
    let budget = || LengthBatchSampler::token_budget(lengths.iter().copied(), 400).unwrap();
    let buckets = || LengthBatchSampler::buckets(lengths.iter().copied(), [20, 70], [40, 20, 5]).unwrap();
    let cases: [(Set<'_, slotline_length_batches>, LengthBatchSampler); 6] = [
        (&|batches| batches.max_tokens = 400, budget()),
        (&|batches| (batches.max_tokens, batches.padded) = (400, 0), budget().padded(false)),
        (&|batches| (batches.max_tokens, batches.limit) = (400, 9), budget().limit(9).unwrap()),
        (&|batches| (batches.max_tokens, batches.shuffle) = (400, 0), budget().shuffle(false)),
        (&|_| (), buckets()),
        (&|batches| (batches.shuffle, batches.drop_last) = (0, 1), buckets().shuffle(false).drop_last(true)),
    ];
    for (set, own) in cases {
        let sampler = by_length(&lengths, set);
        let own = || own.clone().generator(Generator::from_seed(11));
        let all = passes(|options| options.batch_sampler = sampler);
        assert_eq!(all, engine(|builder| builder.batch_sampler(own())));
        let mut counts = [0; 2];
        for (rank, count) in counts.iter_mut().enumerate() {
            let ranked = passes(|options| {
                (options.batch_sampler, options.rank, options.world_size) = (sampler, rank, 2);
            });
            assert_eq!(ranked, engine(|builder| builder.batch_sampler(own().replicas(2, rank).unwrap())));
            *count = ranked.len();
        }
        assert_eq!(counts[0], counts[1], "all ranks have equally many batches");
        let loader = || {
            Loader::with(options(|options| (options.batch_sampler, options.has_seed, options.seed) = (sampler, 1, 11)))
        };
        let first = loader();
        first.epoch().unwrap();
        let taken = first.next().unwrap().unwrap().indices().to_vec();
        assert_eq!(taken, all[0]);
        let (state, resumed) = (first.state().unwrap(), loader());
        resumed.load(&state).unwrap();
        resumed.epoch().unwrap();
        assert_eq!(resumed.rest(), all[1..all.len() / 2]);
        // SAFETY: the sampler is freed once.
        unsafe { slotline_batch_sampler_free(sampler) };
    }
}

#[test]
fn samplers_of_another_dataset_are_refused() {
    let (short, few) = (mixture(&[1.0, 1.0], |mixture| mixture.num_datasets = 1), by_length(&[1, 2], |_| ()));
    let mut sampler = null_mut();
    // SAFETY: all pointers are valid, and each object is freed once.
    unsafe {
        call(|error| slotline_sampler_mixture(&short, &mut sampler, error)).unwrap();
        for (options, words) in [
            (options(|options| options.sampler = sampler), "the mixture has 1000 samples, but the dataset has 1797"),
            (options(|options| options.batch_sampler = few), "2 lengths, but the dataset has 1797 samples"),
        ] {
            let mut loader = null_mut();
            let made = call(|error| slotline_loader_new(Digits::open().0, &options, &mut loader, error));
            let (status, message) = made.unwrap_err();
            assert!(status == SLOTLINE_ERROR_BUILD && message.contains(words), "{message}");
        }
        slotline_sampler_free(sampler);
        slotline_batch_sampler_free(few);
    }
}

/// The numbers of a sample.
fn row(index: usize) -> Vec<i16> {
    (0..index as i16 * 3 % 7).collect()
}

/// Writes the numbers of a sample, padded to the longest and to a maximum, and a mask of each.
unsafe extern "C" fn read_row(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let (row, here, one) = (row(index), true, 1_i64);
    let halves: Vec<f32> = row.iter().map(|&number| f32::from(number) / 2.0).collect();
    // SAFETY: the sample is valid during this callback, and the data pointers are valid.
    let written = unsafe {
        [
            slotline_sample_write(sample, 0, row.as_ptr().cast(), row.len()),
            slotline_sample_mask(sample, 1, (&raw const one).cast(), row.len()),
            slotline_sample_write(sample, 2, halves.as_ptr().cast(), row.len()),
            slotline_sample_mask(sample, 3, (&raw const here).cast(), row.len()),
        ]
    };
    i32::from(written != [SLOTLINE_OK; 4])
}

/// Checks that a batch has the same fields as one of the Rust crates, with the same lengths or offsets.
pub(crate) fn assert_same(batch: &Batch, columns: Columns<'_>) {
    // SAFETY: the batch was not freed.
    assert_eq!(unsafe { slotline_batch_num_fields(batch.0) }, columns.len());
    for i in 0..columns.len() {
        let (wanted, tensor) = (columns.get(i).unwrap(), batch.field(i));
        let shape: Vec<usize> = tensor.shape[..tensor.ndim as usize].iter().map(|&len| len as usize).collect();
        assert_eq!((&*shape, &*elements::<u8>(batch, i)), (wanted.shape(), wanted.bytes()), "field {i}");
        if let Some(ends) = columns.lengths(i).or_else(|| columns.offsets(i)) {
            // SAFETY: the tensor has `num_ends` numbers.
            assert_eq!(unsafe { slice::from_raw_parts(tensor.ends, tensor.num_ends) }, ends, "field {i}");
        }
    }
}

#[test]
fn rows_are_padded_and_masked_as_in_rust() {
    let (ignored, half) = (-100_i16, 0.5_f32);
    for (multiple, padding) in [(0, false), (4, true)] {
        let mut fields = [
            field(c"ids", SLOTLINE_I16, SLOTLINE_PADDED_TO_LONGEST, &[8]),
            field(c"mask", SLOTLINE_I64, SLOTLINE_PADDED_TO_LONGEST, &[8]),
            field(c"halves", SLOTLINE_F32, SLOTLINE_PADDED_TO_MAX, &[9]),
            field(c"here", SLOTLINE_BOOL, SLOTLINE_PADDED_TO_MAX, &[9]),
        ];
        (fields[0].multiple_of, fields[1].multiple_of) = (multiple, multiple);
        if padding {
            (fields[0].padding, fields[2].padding) = ((&raw const ignored).cast(), (&raw const half).cast());
        }
        let dataset = map(10, &fields, Some(read_row), &Drops::default());
        let own = from_fn(10, move |index, _| {
            let row = row(index);
            let halves = row.iter().map(|&number| f32::from(number) / 2.0).collect();
            let (mut ids, mut halves) =
                (PaddedToLongest::owned(row, 8).multiple_of(multiple), PaddedToMax::owned(halves, 9));
            if padding {
                (ids, halves) = (ids.padding(ignored), halves.padding(half));
            }
            let (mask, here) = (ids.mask(1_i64), halves.mask(true));
            Ok((ids, mask, halves, here))
        });
        let mut own = Engine::builder(own).batch_size(4).build().unwrap();
        let options = options(|options| (options.batch_size, options.num_workers) = (4, 2));
        let loader = map_loader(&dataset, &options).unwrap();
        loader.epoch().unwrap();
        for wanted in own.epoch().unwrap() {
            let (wanted, batch) = (wanted.unwrap(), loader.next().unwrap().unwrap());
            assert_eq!(batch.field(0).kind, SLOTLINE_PADDED_TO_LONGEST);
            assert_same(&batch, wanted.columns());
        }
    }
}

/// The tokens and the labels of a document.
fn document(index: usize) -> (Vec<u16>, Vec<i64>) {
    (0..index as u16 * 5 % 9).map(|at| (index as u16 * 100 + at, -i64::from(at))).unzip()
}

/// Documents of which a sample borrows nothing.
struct Documents;

impl Dataset for Documents {
    type Sample<'a> = (Vec<u16>, Vec<i64>);

    fn len(&self) -> usize {
        20
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<(Vec<u16>, Vec<i64>), BoxError> {
        Ok(document(index))
    }
}

/// Writes a document; document 19 has one token too many if the user pointer is not NULL.
unsafe extern "C" fn read_document(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let (mut tokens, labels) = document(index);
    if !user.is_null() && index == 19 {
        tokens.push(0);
    }
    // SAFETY: the sample is valid during this callback, and the data pointers are valid.
    unsafe {
        let tokens = slotline_sample_write(sample, 0, tokens.as_ptr().cast(), tokens.len());
        let labels = slotline_sample_write(sample, 1, labels.as_ptr().cast(), labels.len());
        i32::from(tokens != SLOTLINE_OK || labels != SLOTLINE_OK)
    }
}

/// Numbers that fill rows, and some that the tokens cannot have.
static IGNORED: [i64; 2] = [0, -100];
static NEGATIVE: [i64; 2] = [-1, 0];

/// Packs the documents with a rule, and returns a loader of the rows.
fn packed(
    kinds: [slotline_kind; 2],
    user: *mut c_void,
    set: impl FnOnce(&mut slotline_packing),
) -> Result<Loader, (slotline_status, String)> {
    let fields = [field(c"tokens", SLOTLINE_U16, kinds[0], &[9]), field(c"labels", SLOTLINE_I64, kinds[1], &[9])];
    let documents =
        slotline_map_dataset { user, drop: None, ..map(20, &fields, Some(read_document), &Drops::default()) };
    let lengths: Vec<usize> = (0..20).map(|index| document(index).0.len()).collect();
    let mut packing = slotline_packing {
        struct_size: size_of::<slotline_packing>(),
        capacity: 7,
        lengths: lengths.as_ptr(),
        num_lengths: lengths.len(),
        padding: IGNORED.as_ptr(),
        num_padding: 2,
        seed: 3,
        has_seed: 0,
        chunks: 0,
        drop_last: 0,
        refuse_long: 0,
        reserved: [0; 4],
        epochs: 0,
    };
    set(&mut packing);
    let mut dataset = null_mut();
    // SAFETY: all pointers are valid, and the dataset is freed once.
    unsafe {
        call(|error| slotline_dataset_from_callbacks(&documents, &mut dataset, error)).unwrap();
        let options = options(|options| (options.batch_size, options.num_workers) = (4, 2));
        let loader = loader_of(|out, error| slotline_dataset_pack(dataset, &packing, out, error), &options);
        slotline_dataset_free(dataset);
        loader
    }
}

#[test]
fn documents_are_packed_as_in_rust() {
    let options = || PackingOptions::new(7);
    let cases: [(Set<'_, slotline_packing>, PackingOptions, bool); 6] = [
        (&|_| (), options(), false),
        (&|packing| packing.has_seed = 1, options().seed(3), false),
        (&|packing| packing.chunks = 1, options(), true),
        (&|packing| (packing.chunks, packing.drop_last) = (1, 1), options().drop_last(true), true),
        (&|packing| (packing.has_seed, packing.epochs) = (1, 3), options().seed(3).epochs(3), false),
        (&|packing| (packing.capacity, packing.refuse_long) = (8, 1), PackingOptions::new(8).long(Long::Refuse), false),
    ];
    let kinds = [[SLOTLINE_PACKED; 2], [SLOTLINE_PADDED_TO_MAX, SLOTLINE_PADDED_TO_LONGEST]];
    for ((set, own, chunks), kinds) in cases.iter().flat_map(|case| kinds.map(|kinds| (case, kinds))) {
        let lengths = (0..20).map(|index| document(index).0.len());
        let plan = if *chunks { own.chunks(lengths) } else { own.best_fit(lengths) };
        let own = PackedDataset::new(Documents, plan.unwrap()).unwrap().padding([0, -100]);
        let mut own = Engine::builder(own).batch_size(4).build().unwrap();
        let loader = packed(kinds, null_mut(), set).unwrap();
        // Threads keep memory for documents between rows and passes.
        for _ in 0..2 {
            loader.epoch().unwrap();
            for wanted in own.epoch().unwrap() {
                let (wanted, batch) = (wanted.unwrap(), loader.next().unwrap().unwrap());
                assert_eq!(wanted.columns().len(), 5);
                assert_same(&batch, wanted.columns());
            }
            assert!(loader.next().unwrap().is_none());
        }
    }
}

#[test]
fn documents_that_cannot_be_packed_are_refused() {
    let flexible = [SLOTLINE_PACKED; 2];
    let fails = |kinds, set: &dyn Fn(&mut slotline_packing)| packed(kinds, null_mut(), set).map(drop).unwrap_err();
    for ((status, message), words) in [
        (fails([SLOTLINE_PACKED, SLOTLINE_FIXED], &|_| ()), "field \"labels\" is no sequence of tokens"),
        (fails(flexible, &|packing| packing.num_lengths = 19), "19 documents were packed, but the dataset has 20"),
        (fails(flexible, &|packing| packing.capacity = 0), "capacity is 0"),
        (
            fails(flexible, &|packing| packing.refuse_long = 1),
            "document 7 has 8 tokens, but a row has 7; raise capacity, or set refuse_long to 0",
        ),
        (fails(flexible, &|packing| packing.padding = NEGATIVE.as_ptr()), "-1 is no u16 of field \"tokens\""),
    ] {
        assert!(status == SLOTLINE_ERROR_INVALID && message.contains(words), "{message}");
    }
    let mut user = 0_u8;
    let loader = packed(flexible, (&raw mut user).cast(), |_| ()).unwrap();
    loader.epoch().unwrap();
    let (status, message) = std::iter::from_fn(|| loader.next().transpose()).find_map(Result::err).unwrap();
    assert_eq!(status, SLOTLINE_ERROR_SAMPLE);
    assert!(message.contains("document 19 has 6 tokens, but 5 were packed"), "{message}");
}
