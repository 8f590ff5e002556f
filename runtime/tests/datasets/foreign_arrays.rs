//! Tests of arrays over memory that other code owns.

use std::ptr::NonNull;
use std::sync::Arc;

use slotline::Loader;
use slotline::array::AnyArray;
use slotline::dataset::TensorDataset;
use slotline::dtype::DType;
use slotline::shape::Shape;

/// Returns an array of three rows of two numbers in `memory`.
fn array(memory: &Arc<[i32; 6]>) -> AnyArray {
    let start = NonNull::from(&memory[0]).cast();
    // SAFETY: the memory has six `i32`s, no code can write to it behind the `Arc`, and the clone keeps it alive.
    unsafe { AnyArray::from_raw_parts(DType::I32, Shape::new(&[3, 2]).unwrap(), start, memory.clone()).unwrap() }
}

#[test]
fn a_loader_borrows_foreign_memory_until_it_is_dropped() {
    let memory = Arc::new([1, 2, 3, 4, 5, 6]);
    let rows = TensorDataset::new(vec![array(&memory)]).unwrap();
    assert_eq!(rows.rows()[0].bytes().as_ptr(), memory.as_ptr().cast());
    let mut loader = Loader::builder(rows).batch_size(3).num_workers(1).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    assert_eq!(Arc::strong_count(&memory), 2);
    drop(loader);
    assert_eq!(Arc::strong_count(&memory), 1, "batches are copies");
    assert_eq!(batch.columns().get(0).unwrap().typed::<i32>().unwrap().as_slice(), *memory);
}

#[test]
fn into_typed_copies_foreign_memory() {
    let memory = Arc::new([1, 2, 3, 4, 5, 6]);
    let other = array(&memory).into_typed::<u32>().unwrap_err();
    let own = other.into_typed::<i32>().unwrap();
    assert_eq!(Arc::strong_count(&memory), 1);
    assert_eq!((own.shape(), own.as_slice()), (&[3, 2][..], &memory[..]));
}

#[test]
fn a_refused_shape_releases_foreign_memory() {
    let memory = Arc::new([0; 6]);
    let shape = Shape::new(&[1 << 40, 1 << 40]).unwrap();
    // SAFETY: no memory is read, as the shape is refused.
    let error =
        unsafe { AnyArray::from_raw_parts(DType::I32, shape, NonNull::dangling(), memory.clone()).unwrap_err() };
    assert!(error.to_string().contains("more elements than this machine can address"), "{error}");
    assert_eq!(Arc::strong_count(&memory), 1);
}
