//! Tests of fields exported as DLPack tensors: their contents and their lifetimes.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::support::datasets::{Drops, field, map, map_loader};
use crate::support::{Loader, call, options};
use slotline_ffi::*;

/// A versioned tensor, deleted on drop as an importer would delete it.
struct Versioned(*mut DLManagedTensorVersioned);

// SAFETY: any thread may delete it.
unsafe impl Send for Versioned {}

impl Versioned {
    fn of(batch: *const slotline_batch, i: usize) -> Self {
        let mut tensor = null_mut();
        // SAFETY: the batch and the out pointer are valid.
        call(|error| unsafe { slotline_batch_dlpack(batch, i, null_mut(), &mut tensor, error) }).unwrap();
        Self(tensor)
    }

    fn tensor(&self) -> &DLTensor {
        // SAFETY: the tensor is valid until it is deleted.
        unsafe { &(*self.0).dl_tensor }
    }
}

impl Drop for Versioned {
    fn drop(&mut self) {
        // SAFETY: it is deleted once.
        unsafe { (*self.0).deleter.unwrap()(self.0) };
    }
}

/// Returns the lengths and strides of a tensor.
fn geometry(tensor: &DLTensor) -> (Vec<i64>, Vec<i64>) {
    // SAFETY: the tensor has `ndim` of both.
    let read = |from: *mut i64| unsafe { std::slice::from_raw_parts(from, tensor.ndim as usize).to_vec() };
    (read(tensor.shape), read(tensor.strides))
}

#[test]
fn a_tensor_points_to_the_field() {
    let loader = Loader::new(1);
    loader.epoch().unwrap();
    let batch = loader.next().unwrap().unwrap();
    for (i, (shape, strides, dtype)) in
        [(vec![100, 8, 8], vec![64, 8, 1], (1, 8, 1)), (vec![100], vec![1], (0, 64, 1))].into_iter().enumerate()
    {
        let exported = Versioned::of(batch.0, i);
        let tensor = exported.tensor();
        assert_eq!(geometry(tensor), (shape, strides));
        assert_eq!((tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes), dtype);
        assert_eq!((tensor.device.device_type, tensor.device.device_id, tensor.byte_offset), (1, 0, 0));
        assert_eq!(tensor.data.cast_const(), batch.field(i).data);
        // SAFETY: the tensor is valid.
        let (version, flags) = unsafe { ((*exported.0).version, (*exported.0).flags) };
        assert_eq!((version, flags), (DLPackVersion { major: 1, minor: 1 }, 0));
    }
}

#[test]
fn tensors_are_writable_in_both_forms() {
    let loader = Loader::new(1);
    loader.epoch().unwrap();
    let batch = loader.next().unwrap().unwrap();
    let (field, new, mut old) = (batch.field(1), Versioned::of(batch.0, 1), null_mut());
    // SAFETY: the batch and the out pointer are valid.
    call(|error| unsafe { slotline_batch_dlpack_unversioned(batch.0, 1, null_mut(), &mut old, error) }).unwrap();
    // SAFETY: the batch and both tensors are valid, with 100 labels that nothing else writes; each tensor is deleted once.
    unsafe {
        assert_eq!((*new.0).flags & 1, 0, "read-only");
        new.tensor().data.cast::<i64>().write(-5);
        (*old).dl_tensor.data.cast::<i64>().add(99).write(-6);
        let labels = field.data.cast::<i64>();
        assert_eq!((*labels, *labels.add(99)), (-5, -6));
        (*old).deleter.unwrap()(old);
    }
}

/// A callback that requests the row without writing it, so that the row keeps the bytes of an
/// earlier batch.
unsafe extern "C" fn leave(_: *mut c_void, _: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is valid during this callback.
    i32::from(unsafe { slotline_sample_row(sample, 0, null_mut()) }.is_null())
}

#[test]
fn every_dtype_has_its_code() {
    let dtypes = [
        (SLOTLINE_BOOL, (6, 8)),
        (SLOTLINE_U8, (1, 8)),
        (SLOTLINE_I8, (0, 8)),
        (SLOTLINE_U16, (1, 16)),
        (SLOTLINE_I16, (0, 16)),
        (SLOTLINE_U32, (1, 32)),
        (SLOTLINE_I32, (0, 32)),
        (SLOTLINE_U64, (1, 64)),
        (SLOTLINE_I64, (0, 64)),
        (SLOTLINE_F32, (2, 32)),
        (SLOTLINE_F64, (2, 64)),
        (SLOTLINE_F16, (2, 16)),
        (SLOTLINE_BF16, (4, 16)),
        (SLOTLINE_COMPLEX64, (5, 64)),
        (SLOTLINE_COMPLEX128, (5, 128)),
    ];
    assert_eq!(dtypes.len(), slotline::dtype::DType::ALL.len());
    for (dtype, code) in dtypes {
        let fields = [field(c"x", dtype, SLOTLINE_FIXED, &[3])];
        let dataset = map(2, &fields, Some(leave), &Drops::default());
        let loader = map_loader(&dataset, &options(|options| options.batch_size = 2)).unwrap();
        loader.epoch().unwrap();
        let batch = loader.next().unwrap().unwrap();
        let exported = Versioned::of(batch.0, 0);
        let found = exported.tensor().dtype;
        assert_eq!((batch.field(0).dtype, (found.code, found.bits), found.lanes), (dtype, code, 1));
    }
}

#[test]
fn invalid_bools_of_an_importer_are_normalised() {
    let fields = [field(c"bools", SLOTLINE_BOOL, SLOTLINE_FIXED, &[3])];
    for workers in [0, 1] {
        let dataset = map(8, &fields, Some(leave), &Drops::default());
        let options = options(|options| (options.batch_size, options.num_workers) = (2, workers));
        let loader = map_loader(&dataset, &options).unwrap();
        let mut trues = 0;
        for _ in 0..20 {
            loader.epoch().unwrap();
            while let Some(batch) = loader.next().unwrap() {
                let tensor = Versioned::of(batch.0, 0);
                // SAFETY: the tensor has six bytes, and nothing else uses them.
                let bytes = unsafe { std::slice::from_raw_parts_mut(tensor.tensor().data.cast::<u8>(), 6) };
                assert!(bytes.iter().all(|&byte| byte <= 1), "{bytes:?}");
                trues += bytes.iter().filter(|&&byte| byte == 1).count();
                bytes.copy_from_slice(&[0, 1, 2, 3, 128, 255]);
                // Drop the tensor or the batch last.
                if trues % 2 == 0 { drop((tensor, batch)) } else { drop((batch, tensor)) }
            }
        }
        assert!(trues > 0, "no memory was reused");
    }
}

#[test]
fn tensors_count_as_held_batches() {
    let loader = Loader::with(options(|options| (options.batch_size, options.on_held) = (100, SLOTLINE_ON_HELD_FAIL)));
    loader.epoch().unwrap();
    let mut tensors = Vec::new();
    let held = loop {
        match loader.next() {
            Ok(batch) => tensors.push(Versioned::of(batch.unwrap().0, 1)),
            Err((status, _)) => break status,
        }
    };
    assert_eq!(held, SLOTLINE_ERROR_HELD);
    let before = tensors.len();
    tensors.clear();
    assert_eq!(loader.rest().len(), 18 - before);
}
