//! Tests of batches in memory that the user allocates, and of the bytes of a batch as one slice.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::arena::{ALIGN, Memory, Pages};
use slotline::loader::{Batch, BuildError, Overflow};
use slotline::sample::{Packed, PaddedToMax};
use slotline::{BoxError, Loader};

use crate::support::{OneByOne, from_fn};

/// Memory from the heap, with a counter of the instances that exist.
#[derive(Debug)]
struct Heap {
    start: NonNull<u8>,
    layout: Layout,
    alive: Arc<AtomicUsize>,
}

impl Heap {
    fn new(len: usize, alive: &Arc<AtomicUsize>) -> Result<Self, BoxError> {
        let layout = Layout::from_size_align(len.max(1), ALIGN)?;
        alive.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the size of the layout is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or("no memory")?;
        Ok(Self { start, layout, alive: alive.clone() })
    }
}

// SAFETY: the memory is zeroed, aligned to `ALIGN` and exclusively owned until the drop.
unsafe impl Memory for Heap {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

// SAFETY: `Heap` never accesses the memory itself; it only returns its address.
unsafe impl Send for Heap {}
// SAFETY: see `Send`.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: `start` was allocated with this layout. Its owner, the loader or the last batch, no longer uses it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

fn numbers() -> impl slotline::Dataset {
    from_fn(20, |index, _| Ok((index as i64, [index as f32; 3])))
}

#[test]
fn batches_keep_the_given_memory_alive() {
    let alive = Arc::new(AtomicUsize::new(0));
    for (round_robin, workers) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
        let made = alive.clone();
        let builder = Loader::builder(numbers()).batch_size(4).num_workers(workers).pin_memory(true);
        let builder = builder.memory(move |bytes| Heap::new(bytes, &made));
        hold_one(builder.round_robin(round_robin).build().unwrap(), &alive);
    }
    let made = alive.clone();
    let stream = OneByOne(numbers());
    hold_one(
        Loader::iterable(stream).batch_size(4).memory(move |bytes| Heap::new(bytes, &made)).build().unwrap(),
        &alive,
    );
}

fn hold_one<S>(mut loader: Loader<Batch<S>>, alive: &AtomicUsize) {
    let (most, size) = (loader.batch_bytes(), loader.batch_size());
    assert!((loader.memory().unwrap() as &dyn std::any::Any).is::<Heap>());
    assert_eq!(loader.fields().unwrap().map(|field| field.name()).collect::<Vec<_>>(), ["0", "1"]);
    let memory = loader.memory().map(|memory| (memory.start(), memory.len())).unwrap();
    let mut pass = loader.epoch().unwrap();
    let mut kept = None;
    for task in 0..5 {
        let batch = pass.next().unwrap().unwrap();
        assert_eq!((batch.batch_index(), batch.len()), (task, size));
        let bytes = batch.columns().bytes();
        assert!(bytes.len() <= most);
        let (from, start) = (bytes.as_ptr().addr(), memory.0.as_ptr().addr());
        assert!(from >= start && from + bytes.len() <= start + memory.1);
        kept = Some(batch);
    }
    assert!(pass.next().is_none() && pass.is_ready());
    assert_eq!(pass.stats().batches, 5);
    drop(pass);
    drop(loader);
    assert_eq!(alive.load(Ordering::Relaxed), 1, "a batch still exists");
    drop(kept);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn memory_that_is_too_small_or_refused_is_an_error() {
    let build = |allocate: fn(usize) -> Result<Pages, BoxError>| {
        let large = from_fn(2, |_, _| Ok([0_u8; 5000]));
        let error = Loader::builder(large).batch_size(2).memory(allocate).build().unwrap_err();
        let BuildError::Allocate { source, .. } = error else { panic!("{error}") };
        source.to_string()
    };
    assert_eq!(build(|_| Err("no device".into())), "no device");
    assert!(build(|_| panic!("none at all")).contains("none at all"));
    let error = build(|_| Ok(Pages::new(1)?));
    assert!(error.contains("it has 4096 bytes"), "{error}");
}

#[test]
fn memory_and_a_collate_function_exclude_each_other() {
    let builder = Loader::builder(numbers()).collate(|samples| Ok(samples.len()));
    let error = builder.memory(|bytes| Ok(Pages::new(bytes)?)).build().unwrap_err().to_string();
    assert!(error.contains("memory and collate exclude each other"), "{error}");
}

#[test]
fn places_locate_each_field_in_a_batch() {
    let words: Vec<Vec<u16>> = (0..7).map(|n| (0..n).collect()).collect();
    let dataset = from_fn(7, move |index, _| Ok((words[index].len() as u8, index as i64)));
    let mut loader = Loader::builder(dataset).batch_size(3).build().unwrap();
    for batch in loader.epoch().unwrap() {
        check_places(&batch.unwrap().columns());
    }
    struct Words;
    impl slotline::Dataset for Words {
        type Sample<'a> = (u8, PaddedToMax<'a, u16>, Packed<'a, f32>);
        fn len(&self) -> usize {
            8
        }
        fn get<'a>(
            &'a self,
            index: usize,
            _: &'a mut slotline::dataset::Context,
        ) -> Result<Self::Sample<'a>, BoxError> {
            const MANY: [f32; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
            Ok((index as u8, PaddedToMax::new(&[7; 8][..index], 8), Packed::new(&MANY[..index], 2)))
        }
    }
    let mut loader = Loader::builder(Words).batch_size(3).on_overflow(Overflow::Spill).build().unwrap();
    let mut spilled = 0;
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        spilled += check_places(&batch.columns());
    }
    assert!(spilled > 0, "a batch of long samples must spill");
}

/// Compares the bytes of each [`FieldBytes`](slotline::sample::FieldBytes) with the column, and returns the
/// number of fields that have spilled.
fn check_places(columns: &slotline::sample::Columns<'_>) -> usize {
    let bytes = columns.bytes();
    let mut spilled = 0;
    for i in 0..columns.len() {
        let (field, tensor) = (columns.field_bytes(i).unwrap(), columns.get(i).unwrap());
        assert_eq!(field.shape.dims(), tensor.shape());
        if field.spilled {
            assert!(field.data.is_empty());
            spilled += 1;
        } else {
            assert_eq!(&bytes[field.data.clone()], tensor.bytes());
            assert_eq!(field.data.start % 256, 0);
        }
        let ends = columns.lengths(i).or(columns.offsets(i));
        assert_eq!(field.ends.is_some(), ends.is_some());
        if let (Some(field), Some(ends)) = (field.ends, ends) {
            let words: Vec<_> = ends.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(&bytes[field], words);
        }
    }
    assert_eq!(columns.field_bytes(columns.len()), None);
    spilled
}

#[test]
fn is_ready_reports_whether_the_next_batch_is_loaded() {
    let mut loader = Loader::builder(numbers()).batch_size(4).num_workers(1).help(false).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    while !pass.is_ready() {
        std::thread::yield_now();
    }
    assert_eq!(pass.by_ref().take(5).count(), 5);
    assert!(pass.is_ready(), "the end is known");
    assert!(pass.next().is_none() && pass.is_ready());
    let mut alone = Loader::builder(numbers()).batch_size(4).build().unwrap();
    assert!(!alone.epoch().unwrap().is_ready(), "only the caller loads batches");
}
