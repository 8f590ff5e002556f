//! Measures what the C boundary costs per batch: `slotline_loader_next`, two fields and `slotline_batch_free`, compared with
//! the same in Rust.
//!
//! Run it with `cargo bench -p slotline-ffi --bench boundary`. Batches have one sample of two numbers and are made in the
//! calling thread, so that little else is measured. The passes alternate; it prints medians with their quartiles.

#![allow(missing_docs)]

use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use slotline::Loader;
use slotline::array::{AnyArray, Array};
use slotline::dataset::TensorDataset;
use slotline_ffi::*;

const BATCHES: usize = 50_000;
const ROUNDS: usize = 101;

type Error = *mut *mut slotline_error;
type Next = unsafe extern "C" fn(*mut slotline_loader, *mut *mut slotline_batch, Error) -> slotline_status;
type Field = unsafe extern "C" fn(*const slotline_batch, usize, *mut slotline_tensor, Error) -> slotline_status;
type Free = unsafe extern "C" fn(*mut slotline_batch);

fn rust_pass(loader: &mut Loader) -> usize {
    let mut bytes = 0;
    for batch in loader.epoch().expect("a pass begins") {
        let batch = batch.expect("a batch comes");
        let columns = batch.columns();
        for i in 0..2 {
            let field = columns.get(i).expect("there are two fields");
            bytes += black_box(field.bytes()).len() + black_box(field.shape()).len();
        }
    }
    bytes
}

/// Calls through function pointers that the compiler cannot see through, as a C program calls a library.
fn c_pass(loader: *mut slotline_loader) -> usize {
    let next: Next = black_box(slotline_loader_next);
    let field: Field = black_box(slotline_batch_field);
    let free: Free = black_box(slotline_batch_free);
    let mut error = null_mut();
    let mut bytes = 0;
    // SAFETY: every pointer is NULL or was returned by these functions, and each batch is freed once.
    unsafe {
        assert_eq!(slotline_loader_epoch(loader, &mut error), SLOTLINE_OK);
        loop {
            let mut batch = null_mut();
            match next(loader, &mut batch, &mut error) {
                SLOTLINE_OK => {}
                status => {
                    assert_eq!(status, SLOTLINE_END);
                    return bytes;
                }
            }
            for i in 0..2 {
                let mut tensor = std::mem::MaybeUninit::<slotline_tensor>::uninit();
                (&raw mut (*tensor.as_mut_ptr()).struct_size).write(size_of::<slotline_tensor>());
                assert_eq!(field(batch, i, tensor.as_mut_ptr(), &mut error), SLOTLINE_OK);
                let tensor = black_box(tensor.assume_init_ref());
                bytes += tensor.bytes + tensor.ndim as usize;
            }
            free(batch);
        }
    }
}

fn c_loader(numbers: &'static [f32], labels: &'static [i64]) -> *mut slotline_loader {
    static SHAPE: [i64; 1] = [BATCHES as i64];
    let array = |dtype, data| slotline_array {
        struct_size: size_of::<slotline_array>(),
        name: std::ptr::null(),
        dtype,
        ndim: 1,
        shape: SHAPE.as_ptr(),
        data,
        user: null_mut(),
        drop: None,
    };
    let arrays = [array(SLOTLINE_F32, numbers.as_ptr().cast()), array(SLOTLINE_I64, labels.as_ptr().cast())];
    let (mut dataset, mut loader) = (null_mut(), null_mut());
    // SAFETY: the arrays are valid for the rest of the program.
    unsafe {
        assert_eq!(slotline_dataset_from_arrays(arrays.as_ptr(), 2, &mut dataset, null_mut()), SLOTLINE_OK);
        assert_eq!(slotline_loader_new(dataset, std::ptr::null(), &mut loader, null_mut()), SLOTLINE_OK);
        slotline_dataset_free(dataset);
    }
    loader
}

/// Returns the time per batch, in nanoseconds.
fn timed(pass: impl FnOnce() -> usize) -> f64 {
    let begin = Instant::now();
    let bytes = pass();
    let time = begin.elapsed();
    assert_eq!(bytes, BATCHES * (4 + 8 + 2), "bytes and dimensions of both fields");
    time.as_secs_f64() * 1e9 / BATCHES as f64
}

fn report(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{name}: {:.1} ns a batch ({:.1} to {:.1})", at(0.5), at(0.25), at(0.75));
}

fn main() {
    let numbers: &'static [f32] = vec![1.0; BATCHES].leak();
    let labels: &'static [i64] = vec![1; BATCHES].leak();
    let arrays: Vec<AnyArray> = vec![
        Array::new(numbers.to_vec(), &[BATCHES]).expect("it has the shape").into(),
        Array::new(labels.to_vec(), &[BATCHES]).expect("it has the shape").into(),
    ];
    let rows = TensorDataset::new(arrays).expect("they have equal lengths");
    let mut rust = Loader::builder(rows).build().expect("a loader is built");
    let c = c_loader(numbers, labels);
    let (mut rusts, mut cs, mut differences) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (in_rust, in_c) = if round % 2 == 0 {
            let in_rust = timed(|| rust_pass(&mut rust));
            (in_rust, timed(|| c_pass(c)))
        } else {
            let in_c = timed(|| c_pass(c));
            (timed(|| rust_pass(&mut rust)), in_c)
        };
        // The first round is a warm-up.
        if round > 0 {
            rusts.push(in_rust);
            cs.push(in_c);
            differences.push(in_c - in_rust);
        }
    }
    // SAFETY: the loader is freed once, and not used afterwards.
    unsafe { slotline_loader_free(c) };
    report("Rust", rusts);
    report("C", cs);
    report("C minus Rust", differences);
}
