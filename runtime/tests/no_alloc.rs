//! Law 4: after the first lap of the ring a loader allocates nothing, on any thread. Alone in its process, as it counts
//! every allocation there is.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use slotline::dataset::{Context, Dataset};
use slotline::{BoxError, Loader};
use support::How;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's word.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's word.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rows of one array, and numbers; the random ones show that those allocate nothing either.
struct Data(Vec<[f32; 16]>);

impl Dataset for Data {
    type Sample<'a> = (&'a [f32], i64, u64);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        use slotline::rng::rand_core::Rng;
        let word = cx.rng().next_u64();
        Ok((&self.0[index], index as i64, word))
    }
}

/// Counts the allocations of a pass after its first `depth` batches, and those batches.
fn allocations(depth: usize, mut pass: impl Iterator) -> (u64, usize) {
    assert_eq!(pass.by_ref().take(depth).count(), depth);
    let before = ALLOCATIONS.load(SeqCst);
    let rest = pass.count();
    (ALLOCATIONS.load(SeqCst) - before, rest)
}

#[test]
fn after_the_first_lap_nothing_is_allocated_on_any_thread() {
    let mut batches = 0;
    for workers in [0, 1, 2, 4] {
        for in_order in [true, false] {
            for shuffle in [false, true] {
                for part_size in [None, Some(1), Some(5)] {
                    let data = Data((0..8_000).map(|i| [i as f32; 16]).collect());
                    let how = How { workers, part_size, ..How::default() };
                    let builder = Loader::builder(data).batch_size(16).shuffle(shuffle).seed(3).in_order(in_order);
                    let mut loader = how.set(builder).build().unwrap();
                    let depth = loader.depth();
                    let pass = loader.epoch().unwrap().map(|batch| batch.unwrap().tensors().1[[3]]);
                    let (first, rest) = allocations(depth, pass);
                    assert_eq!(first, 0, "{how:?} in_order {in_order} shuffle {shuffle}");
                    let before = ALLOCATIONS.load(SeqCst);
                    // From the first batch on: even the order is written into the memory of the last one.
                    let whole = loader.epoch().unwrap().map(|b| b.unwrap().tensors().0.len()).sum::<usize>();
                    // One that is left half-way, and the next, which has to clear that up.
                    assert_eq!(loader.epoch().unwrap().take(7).map(|b| b.unwrap().len()).sum::<usize>(), 7 * 16);
                    assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 500);
                    let later = ALLOCATIONS.load(SeqCst) - before;
                    assert_eq!((later, whole), (0, 8_000), "{how:?} in_order {in_order} shuffle {shuffle}");
                    batches += rest;
                }
            }
        }
        let data = Data((0..2_000).map(|i| [i as f32; 16]).collect());
        let builder = Loader::builder(data).batch_size(4).num_workers(workers).collate(|samples| {
            let mut sum = 0.0;
            while let Some(sample) = samples.next() {
                sum += sample?.0[0];
            }
            Ok(sum)
        });
        let mut loader = builder.build().unwrap();
        let depth = loader.depth();
        let (counted, rest) = allocations(depth, loader.epoch().unwrap().map(Result::unwrap));
        assert_eq!((counted, rest), (0, 500 - depth), "collate with {workers} workers");
    }
    assert!(batches > 20_000);
    // The counter counts.
    let before = ALLOCATIONS.load(SeqCst);
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(ALLOCATIONS.load(SeqCst), before + 1);
}
