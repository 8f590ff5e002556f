//! Tests of batches whose packed samples need more memory than the batch has. Such a batch
//! *spills*: it takes more memory from the heap. It must be delivered correctly, counted and freed.
//!
//! They are a separate program, because they observe all allocations.

mod support;
#[path = "support/warnings.rs"]
mod warnings;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use proptest::prelude::*;
use slotline::dataset::{Context, Dataset, from_fn};
use slotline::loader::{Builder, Error, Overflow};
use slotline::sample::{Packed, PackedTensor, PackedText, PaddedToMax};
use slotline::{Batch, BoxError, Loader};
use support::{OneByOne, sleep_sometimes};
use warnings::Warnings;

/// The alignment of tensors in bytes, in batches and on the heap. Nothing else in this program has
/// this alignment.
const ALIGN: usize = 256;
/// The number of bytes on the heap with this alignment. `REFUSE` makes further such allocations
/// fail.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static REFUSE: AtomicBool = AtomicBool::new(false);

struct Watched;

// SAFETY: each call is forwarded to the system's allocator, or fails by returning null, as
// `GlobalAlloc` permits.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() == ALIGN {
            if REFUSE.load(SeqCst) {
                return std::ptr::null_mut();
            }
            LIVE.fetch_add(layout.size(), SeqCst);
        }
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which is also that of
        // `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if layout.align() == ALIGN {
            LIVE.fetch_sub(layout.size(), SeqCst);
        }
        // SAFETY: the caller upholds the contract of `GlobalAlloc::dealloc`, and `System.alloc`
        // allocated `place`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Runs a test while no other test runs, and checks that it frees all memory with this alignment.
fn alone(test: impl FnOnce()) {
    let _turn = support::alone();
    assert_eq!(LIVE.load(SeqCst), 0);
    test();
    assert_eq!(LIVE.load(SeqCst), 0, "not all memory was freed");
}

/// A dataset of samples with the given lengths, in batches with room for `room` items per sample. A
/// sample of length 99 fails.
#[derive(Clone, Debug)]
struct Runs {
    lengths: Vec<usize>,
    room: usize,
}

/// A sample: packed numbers, the index, packed pairs, a packed text, and a padded field.
type Sample<'a> = (Packed<'a, u32>, i64, Packed<'a, f64>, PackedText<'a>, PaddedToMax<'a, u8>);
type Schema = Sample<'static>;

const NUMBERS: [u32; 100] = {
    let (mut numbers, mut i) = ([0; 100], 0);
    while i < 100 {
        numbers[i] = i as u32;
        i += 1;
    }
    numbers
};
const HALVES: [f64; 100] = {
    let (mut halves, mut i) = ([0.0; 100], 0);
    while i < 100 {
        halves[i] = i as f64 / 2.0;
        i += 1;
    }
    halves
};

impl Runs {
    fn numbers(&self, index: usize) -> &'static [u32] {
        &NUMBERS[index % 40..][..self.lengths[index]]
    }

    fn pairs(&self, index: usize) -> &'static [f64] {
        &HALVES[..self.lengths[index] / 2 * 2]
    }

    fn text(&self, index: usize) -> &'static str {
        &"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh"[..self.lengths[index] % 7]
    }

    fn sample(&self, index: usize) -> Result<Sample<'static>, BoxError> {
        if self.lengths[index] == 99 {
            return Err("a bad one".into());
        }
        let (numbers, pairs) = (self.numbers(index), Packed::with_shape(self.pairs(index), &[2], self.room));
        let text = PackedText::new(self.text(index), 3);
        Ok((Packed::new(numbers, self.room), index as i64, pairs, text, PaddedToMax::new(&[1, 2, 3][..index % 4], 3)))
    }

    /// Returns how many of the given batches spill in a loader with `rows` samples per batch, and
    /// the number of bytes that they take from the heap.
    fn spilled<'a>(&self, batches: impl IntoIterator<Item = &'a [usize]>, rows: usize) -> (u64, u64) {
        let (mut count, mut bytes) = (0, 0);
        for batch in batches {
            let sum = |of: &dyn Fn(usize) -> usize| batch.iter().map(|&index| of(index)).sum::<usize>();
            let fields = [
                (sum(&|i| self.numbers(i).len()), self.room, 4),
                (sum(&|i| self.pairs(i).len() / 2), self.room, 16),
                (sum(&|i| self.text(i).len()), 3, 1),
            ];
            let over = fields.into_iter().filter(|(items, room, _)| *items > room * rows);
            let more = over.map(|(items, _, size)| (items * size) as u64).sum::<u64>();
            count += u64::from(more > 0);
            bytes += more;
        }
        (count, bytes)
    }

    /// Compares every field of a batch with the samples of its indices.
    #[track_caller]
    fn check(&self, batch: &Batch<Schema>) {
        let (numbers, whose, pairs, texts, padded) = batch.tensors();
        let each = || whose.as_slice().iter().map(|&index| index as usize);
        check_field(&numbers, each().map(|i| self.numbers(i)));
        check_field(&pairs, each().map(|i| self.pairs(i)));
        check_field(texts.bytes(), each().map(|i| self.text(i).as_bytes()));
        assert!(padded.lengths().iter().copied().eq(each().map(|i| (i % 4) as i64)));
        let columns = batch.columns();
        assert_eq!(columns.get(2).unwrap().typed::<f64>().unwrap().as_slice(), pairs.values().as_slice());
        assert_eq!(columns.offsets(0), Some(numbers.offsets()));
    }
}

#[track_caller]
fn check_field<'a, T: slotline::dtype::Element + PartialEq>(
    field: &PackedTensor<'_, T>,
    rows: impl Iterator<Item = &'a [T]>,
) {
    let rows: Vec<_> = rows.collect();
    assert_eq!(field.values().as_slice(), rows.concat());
    assert_eq!(field.values().as_slice().as_ptr().align_offset(ALIGN), 0);
    assert_eq!(field.offsets().len(), rows.len() + 1);
    rows.iter().enumerate().for_each(|(i, row)| assert_eq!(field.row(i).as_slice(), *row));
}

impl Dataset for Runs {
    type Sample<'a> = Sample<'a>;

    fn len(&self) -> usize {
        self.lengths.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Sample<'a>, BoxError> {
        sleep_sometimes(index, cx);
        self.sample(index)
    }
}

/// Runs a pass, checks each batch, and returns the indices in each batch that did not fail, in the
/// order of delivery.
macro_rules! pass {
    ($loader:expr, $data:expr) => {{
        let data: &Runs = &$data;
        let batches = $loader.epoch().unwrap().filter_map(|batch| match batch {
            Ok(batch) => {
                data.check(&batch);
                Some(batch.tensors().1.as_slice().iter().map(|&index| index as usize).collect::<Vec<_>>())
            }
            Err(Error::Sample { source, .. }) if source.to_string() == "a bad one" => None,
            Err(error) => panic!("{error}"),
        });
        batches.collect::<Vec<_>>()
    }};
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_that_spill_are_delivered_like_any_other(
        lengths in prop::collection::vec(prop_oneof![4 => 0_usize..12, 1 => 12_usize..60, 1 => Just(99)], 1..60),
        room in 0_usize..12,
        batch_size in 1_usize..9,
        workers in 0_usize..4,
    ) {
        let mut data = Runs { lengths, room };
        // The first sample must not fail, since `build` reads it for the fields.
        data.lengths[0] %= 99;
        let rows = batch_size.min(data.lengths.len());
        alone(|| {
            fn set<D, C>(builder: Builder<D, C>, batch_size: usize, workers: usize) -> Builder<D, C> {
                builder.batch_size(batch_size).num_workers(workers).on_overflow(Overflow::Spill)
            }
            macro_rules! check {
                ($loader:expr, $rows:expr) => {{
                    let (mut loader, mut expected) = ($loader, (0, 0));
                    for _ in 0..3 {
                        let batches = pass!(loader, data);
                        let (count, bytes) = data.spilled(batches.iter().map(|batch| &batch[..]), $rows);
                        expected = (expected.0 + count, expected.1 + bytes);
                        assert_eq!((loader.stats().spilled_batches, loader.stats().spilled_bytes), expected);
                    }
                }};
            }
            let shuffled = || set(Loader::builder(data.clone()), batch_size, workers).shuffle(true).seed(7);
            check!(shuffled().build().unwrap(), rows);
            check!(shuffled().in_order(false).build().unwrap(), rows);
            check!(shuffled().round_robin(true).build().unwrap(), rows);
            check!(set(Loader::iterable(OneByOne(data.clone())), batch_size, workers).build().unwrap(), batch_size);
        });
    }
}

#[test]
fn unbatched_samples_spill_too() {
    alone(|| {
        let data = Runs { lengths: vec![1, 5, 2, 50, 0, 3], room: 2 };
        let builder = Loader::builder(data.clone()).batch_size(None).on_overflow(Overflow::Spill);
        let mut loader = builder.build().unwrap();
        let samples: Vec<_> =
            loader.epoch().unwrap().map(|sample| sample.unwrap().tensors().0.values().as_slice().to_vec()).collect();
        assert_eq!(samples, (0..6).map(|i| data.numbers(i).to_vec()).collect::<Vec<_>>());
        assert_eq!(
            (loader.stats().spilled_batches, loader.stats().spilled_bytes),
            data.spilled([0, 1, 2, 3, 4, 5].each_ref().map(std::slice::from_ref), 1)
        );
    });
}

#[test]
fn a_spill_lives_as_long_as_its_batch_or_until_a_refill() {
    alone(|| {
        // Every second batch spills.
        let data = Runs { lengths: (0..40).map(|i| if i % 20 < 10 { 1 } else { 30 }).collect(), room: 4 };
        let builder = Loader::builder(data.clone()).batch_size(10).on_overflow(Overflow::Spill);
        let mut loader = builder.build().unwrap();
        assert_eq!(loader.depth(), 2);
        let mut pass = loader.epoch().unwrap();
        let small = pass.next().unwrap().unwrap();
        assert_eq!(LIVE.load(SeqCst), 0);
        drop(small);
        let large = pass.next().unwrap().unwrap();
        let live = LIVE.load(SeqCst);
        // 300 numbers and 150 pairs, with at most half as much spare capacity.
        assert!((3_600..3_600 * 3 / 2 + 3 * ALIGN).contains(&live), "{live}");
        assert_eq!(pass.next().unwrap().unwrap().len(), 10);
        drop(pass);
        drop(loader);
        assert_eq!(LIVE.load(SeqCst), live);
        std::thread::spawn(move || {
            data.check(&large);
            drop(large);
        })
        .join()
        .unwrap();
    });
    alone(|| {
        let lengths = (0..80).map(|i| if i < 20 { 30 } else { 1 }).collect();
        let data = Runs { lengths, room: 4 };
        let builder = Loader::builder(data.clone()).batch_size(10).on_overflow(Overflow::Spill);
        let mut loader = builder.build().unwrap();
        let mut pass = loader.epoch().unwrap();
        let live: Vec<_> =
            (0..8).map(|_| pass.next().map(|batch| (data.check(&batch.unwrap()), LIVE.load(SeqCst)).1)).collect();
        let one = live[0].unwrap();
        // Only one batch exists at a time, so all use the same memory.
        assert_eq!(live[1..], [vec![Some(one)], vec![Some(0); 6]].concat());
    });
}

#[test]
fn by_default_an_overflow_is_an_error_and_nothing_spills() {
    alone(|| {
        let data = Runs { lengths: vec![3, 9, 1, 1], room: 4 };
        let mut loader = Loader::builder(data).batch_size(2).build().unwrap();
        let mut pass = loader.epoch().unwrap();
        let error = support::chain(&pass.next().unwrap().unwrap_err());
        assert!(error.contains("or let batches spill (on_overflow)"), "{error}");
        assert!(pass.next().unwrap().is_ok());
        drop(pass);
        assert_eq!((loader.stats().spilled_batches, loader.stats().spilled_bytes, LIVE.load(SeqCst)), (0, 0, 0));
    });
}

#[test]
fn a_failed_spill_allocation_fails_only_its_batch() {
    alone(|| {
        let data = Runs { lengths: vec![3, 9, 3, 10, 1, 2, 40, 1], room: 4 };
        let mut loader = Loader::builder(data.clone()).batch_size(2).on_overflow(Overflow::Spill).build().unwrap();
        let mut pass = loader.epoch().unwrap();
        data.check(&pass.next().unwrap().unwrap());
        REFUSE.store(true, SeqCst);
        let outcomes: Vec<_> = pass.by_ref().take(2).map(|batch| batch.map(|batch| data.check(&batch))).collect();
        REFUSE.store(false, SeqCst);
        let Err(error @ Error::Sample { index: 3, task: 1, .. }) = &outcomes[0] else { panic!("{outcomes:?}") };
        let why = "field 0: u32 packed [4]: the batch has no room for its 52 bytes so far";
        assert!(support::chain(error).contains(why), "{error}");
        assert!(outcomes[1].is_ok());
        data.check(&pass.next().unwrap().unwrap());
    });
}

#[test]
fn a_pass_dropped_early_frees_its_spills() {
    alone(|| {
        for workers in [0, 2] {
            let data = Runs { lengths: (0..200).map(|i| i % 59).collect(), room: 3 };
            let builder = Loader::builder(data.clone()).batch_size(4).num_workers(workers).shuffle(true);
            let mut loader = builder.on_overflow(Overflow::Spill).build().unwrap();
            for take in [1, 7, 0, 50] {
                for batch in loader.epoch().unwrap().take(take) {
                    data.check(&batch.unwrap());
                }
            }
        }
    });
}

#[test]
fn the_first_spill_is_logged_with_the_room_it_needed() {
    alone(|| {
        let logged = Warnings::default();
        tracing::subscriber::with_default(logged.clone(), || {
            let tokens = from_fn(9, |index, _| Ok(Packed::new(&NUMBERS[..if index < 3 { 2 } else { 7 }], 4)));
            let mut loader = Loader::builder(tokens).batch_size(3).on_overflow(Overflow::Spill).build().unwrap();
            for _ in 0..2 {
                assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 3);
            }
            assert_eq!((loader.stats().spilled_batches, loader.stats().spilled_bytes), (4, 4 * 21 * 4));
        });
        let logged = logged.take();
        let [warning] = &logged[..] else { panic!("{logged:?}") };
        let start = "field 0: u32 packed [4]: batch 1 has 21 items, more than it has room for";
        assert!(warning.starts_with(start) && warning.contains("declare room for 7 per sample"), "{warning}");
    });
}
