//! Checks that each element of a batch is copied once on its way into a tensor, by the thread that
//! the documentation names.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use candle_core::{Device, Storage, Tensor};
use slotline::dataset::from_fn;
use slotline::{BoxError, Dataset, Loader};
use slotline_candle::{collate, tensors};

const ROWS: usize = 64;
const WIDTH: usize = 4096;
/// The size in bytes of the images of a batch. No other allocation in these tests is even half as
/// large.
const BYTES: usize = ROWS * WIDTH * size_of::<f32>();

/// An allocator that counts large allocations: those of the whole program, and those of the current
/// thread.
struct Counting;

static ALL: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= BYTES / 2 {
            ALL.fetch_add(1, Relaxed);
            OWN.set(OWN.get() + 1);
        }
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn images() -> impl Dataset<Sample<'static> = ([f32; WIDTH], i64)> {
    from_fn(4 * ROWS, |index, _| Ok(([index as f32; WIDTH], index as i64)))
}

fn first_elements(images: &Tensor) -> Vec<f32> {
    let (storage, _) = images.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { panic!("not in the CPU's memory") };
    storage.as_slice::<f32>().unwrap().iter().step_by(WIDTH).copied().collect()
}

/// All cases are in one test, since the counters are global.
#[test]
fn each_batch_is_copied_once() -> Result<(), BoxError> {
    // With `collate`, workers make one allocation for each batch, which becomes the tensor, and the
    // loop's thread makes none.
    let workers = Loader::builder(images()).batch_size(ROWS).num_workers(1).help(false);
    let mut loader = workers.collate(collate).build()?;
    let (all, own) = (ALL.load(Relaxed), OWN.get());
    let mut batches = Vec::new();
    for batch in loader.epoch()? {
        let [images, labels] = batch?.into_array()?;
        assert_eq!((images.dims(), labels.dims()), (&[ROWS, WIDTH][..], &[ROWS][..]));
        assert!(first_elements(&images).iter().zip(labels.to_vec1::<i64>()?).all(|(&a, b)| a == b as f32));
        batches.push(images);
    }
    assert_eq!((batches.len(), ALL.load(Relaxed) - all, OWN.get() - own), (4, 4, 0));
    drop(loader);

    // With `tensors`, the loop's thread makes one allocation for each batch.
    let mut loader = Loader::builder(images()).batch_size(ROWS).num_workers(1).build()?;
    let (all, own) = (ALL.load(Relaxed), OWN.get());
    for batch in loader.epoch()? {
        let batch = batch?;
        let [images, _] = tensors(&batch, &Device::Cpu)?.into_array()?;
        assert!(first_elements(&images).iter().zip(batch.indices()).all(|(&a, &b)| a == b as f32));
    }
    assert_eq!((ALL.load(Relaxed) - all, OWN.get() - own), (4, 4));
    Ok(())
}
