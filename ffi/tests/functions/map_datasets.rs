//! Tests of map-style datasets, whose samples a callback writes by index.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::slice;

use slotline_ffi::*;

use crate::support::datasets::{Drops, field, map, map_loader, numbers};
use crate::support::{Batch, Loader, call, options};

/// Returns the elements of a field.
pub(crate) fn elements<T: Copy>(batch: &Batch, i: usize) -> Vec<T> {
    let tensor = batch.field(i);
    // SAFETY: the tensor has `bytes` bytes of this type.
    unsafe { slice::from_raw_parts(tensor.data.cast::<T>(), tensor.bytes / size_of::<T>()) }.to_vec()
}

/// Writes a picture in place, a padded list of numbers, a packed list, and a flag.
pub(crate) unsafe extern "C" fn read_mixed(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let numbers: Vec<i16> = (0..index as i16 % 4).collect();
    let words: Vec<f64> = (0..index % 3).map(|i| i as f64).collect();
    let mut bytes = 0;
    // SAFETY: the sample is valid during this callback, and the data pointers are valid.
    unsafe {
        // The fields are written in another order than they are declared.
        assert_eq!(slotline_sample_write(sample, 2, words.as_ptr().cast(), words.len()), SLOTLINE_OK);
        let flag = slotline_sample_row(sample, 3, &mut bytes).cast::<u8>();
        assert_eq!(bytes, 1);
        flag.write(u8::from(index.is_multiple_of(2)));
        let picture = slotline_sample_row(sample, 0, &mut bytes).cast::<f32>();
        assert_eq!(bytes, 24);
        (0..6).for_each(|i| picture.add(i).write(index as f32));
        assert_eq!(slotline_sample_write(sample, 1, numbers.as_ptr().cast(), numbers.len()), SLOTLINE_OK);
        // A padded field has no row of fixed shape, and there is no field 4.
        assert!(slotline_sample_row(sample, 1, &mut bytes).is_null() && bytes == 0);
        assert!(slotline_sample_row(sample, 4, null_mut()).is_null());
    }
    0
}

pub(crate) fn mixed() -> Vec<slotline_field> {
    vec![
        field(c"picture", SLOTLINE_F32, SLOTLINE_FIXED, &[2, 3]),
        field(c"numbers", SLOTLINE_I16, SLOTLINE_PADDED_TO_MAX, &[3]),
        field(c"words", SLOTLINE_F64, SLOTLINE_PACKED, &[2]),
        field(c"flag", SLOTLINE_BOOL, SLOTLINE_FIXED, &[]),
    ]
}

#[test]
fn a_callback_writes_fields_of_all_kinds() {
    for num_workers in [0, 3] {
        let (drops, fields) = (Drops::default(), mixed());
        let dataset = map(10, &fields, Some(read_mixed), &drops);
        let loader = map_loader(
            &dataset,
            &options(|options| (options.batch_size, options.num_workers, options.hold) = (4, num_workers, 3)),
        )
        .unwrap();
        assert_eq!(loader.epoch(), Ok(SLOTLINE_OK));
        let batch = loader.next().unwrap().unwrap();
        let pictures: Vec<f32> = (0..4).flat_map(|i| [i as f32; 6]).collect();
        assert_eq!(elements::<f32>(&batch, 0), pictures);
        assert_eq!(batch.field(0).shape[..3], [4, 2, 3]);
        assert_eq!(batch.field(0).strides[..3], [6, 3, 1]);
        assert_eq!(elements::<i16>(&batch, 1), [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2]);
        let (padded, packed) = (batch.field(1), batch.field(2));
        // SAFETY: the tensor has `num_ends` numbers.
        let ends = |tensor: &slotline_tensor| unsafe { slice::from_raw_parts(tensor.ends, tensor.num_ends).to_vec() };
        assert_eq!((ends(&padded), ends(&packed)), (vec![0, 1, 2, 3], vec![0, 0, 1, 3, 3]));
        assert_eq!((padded.kind, packed.kind), (SLOTLINE_PADDED_TO_MAX, SLOTLINE_PACKED));
        assert_eq!(elements::<f64>(&batch, 2), [0.0, 0.0, 1.0]);
        assert_eq!(elements::<u8>(&batch, 3), [1, 0, 1, 0]);
        assert_eq!(loader.rest(), [vec![4, 5, 6, 7], vec![8, 9]]);
        assert_eq!(drops.count(), 0, "the loader needs the callbacks");
        drop((loader, batch));
        assert_eq!(drops.count(), 1);
    }
}

/// Writes two random numbers, and the sample's position and epoch.
unsafe extern "C" fn read_noise(_: *mut c_void, _: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is valid during this callback.
    unsafe {
        let place = [slotline_sample_random(sample), slotline_sample_random(sample), slotline_sample_position(sample)];
        assert!((-1..3).contains(&slotline_sample_worker(sample)));
        let place = [place[0], place[1], place[2], u64::from(slotline_sample_epoch(sample))];
        slotline_sample_write(sample, 0, place.as_ptr().cast(), 4) as i32
    }
}

#[test]
fn random_numbers_do_not_depend_on_num_workers() {
    let fields = [field(c"noise", SLOTLINE_U64, SLOTLINE_FIXED, &[4])];
    let draw = |num_workers, seed| {
        let dataset = map(50, &fields, Some(read_noise), &Drops::default());
        let set = options(|options| {
            (options.batch_size, options.num_workers, options.shuffle) = (50, num_workers, 1);
            (options.has_seed, options.seed) = (1, seed);
        });
        let loader = map_loader(&dataset, &set).unwrap();
        let pass = || {
            loader.epoch().unwrap();
            elements::<[u64; 4]>(&loader.next().unwrap().unwrap(), 0)
        };
        (pass(), pass())
    };
    let (first, second) = draw(0, 5);
    assert_eq!((&first, &second), (&draw(3, 5).0, &draw(3, 5).1));
    assert_ne!(first[0][0], second[0][0]);
    assert_ne!(first[0][0], draw(0, 6).0[0][0]);
    assert_ne!(first[0][0], first[0][1]);
    for (position, noise) in second.iter().enumerate() {
        assert_eq!(noise[2..], [position as u64, 1]);
    }
}

/// Writes the index, and then too many elements, which is rejected. Samples 0 and 1 are then
/// written again; sample 2 is not.
unsafe extern "C" fn read_again(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let numbers = [index as i64; 2];
    // SAFETY: the sample is valid during this callback, and the data pointers are valid.
    unsafe {
        let write = |elements| slotline_sample_write(sample, 0, numbers.as_ptr().cast(), elements);
        assert_eq!((write(1), write(2)), (SLOTLINE_OK, SLOTLINE_ERROR_INVALID));
        match index {
            0 => assert_eq!(write(1), SLOTLINE_OK),
            1 => slotline_sample_row(sample, 0, null_mut()).cast::<i64>().write(1),
            _ => {}
        }
    }
    0
}

#[test]
fn a_refused_field_can_be_written_again() {
    let fields = [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[])];
    let dataset = map(3, &fields, Some(read_again), &Drops::default());
    let loader = map_loader(&dataset, &options(|_| ())).unwrap();
    loader.epoch().unwrap();
    for index in 0..2 {
        assert_eq!(elements::<i64>(&loader.next().unwrap().unwrap(), 0), [index]);
    }
    let (status, message) = loader.next().err().unwrap();
    assert_eq!(
        (status, message.contains("field 0: field number: i64 [] was declared")),
        (SLOTLINE_ERROR_SAMPLE, true),
        "{message}"
    );
}

/// Returns one more than the byte in the memory of a flag as its error code, and leaves an invalid
/// bool there.
unsafe extern "C" fn spoil(_: *mut c_void, _: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is valid during this callback.
    unsafe { slotline_sample_row(sample, 0, null_mut()).cast::<u8>().replace(7) + 1 }.into()
}

#[test]
fn a_failed_callback_leaves_no_invalid_bools() {
    let fields = [field(c"flag", SLOTLINE_BOOL, SLOTLINE_FIXED, &[])];
    let dataset = map(20, &fields, Some(spoil), &Drops::default());
    let loader = map_loader(&dataset, &options(|options| options.batch_size = 2)).unwrap();
    loader.epoch().unwrap();
    for _ in 0..10 {
        let (status, message) = loader.next().err().unwrap();
        assert_eq!(
            (status, message.contains("the callback returned 1 for")),
            (SLOTLINE_ERROR_SAMPLE, true),
            "{message}"
        );
    }
}

#[test]
fn out_of_range_indices_never_reach_the_callback() {
    let (_fields, dataset) = numbers(5, &Drops::default());
    let mut sampler = null_mut();
    // SAFETY: all pointers are valid, and each object is freed once.
    unsafe {
        call(|error| slotline_sampler_indices([2, 5].as_ptr(), 2, &mut sampler, error)).unwrap();
        let loader = map_loader(&dataset, &options(|options| options.sampler = sampler)).unwrap();
        slotline_sampler_free(sampler);
        loader.epoch().unwrap();
        assert_eq!(loader.next().unwrap().unwrap().indices(), [2]);
        let Err((SLOTLINE_ERROR_SAMPLE, message)) = loader.next() else { panic!("no error") };
        assert!(message.contains("index 5 is not below its length, 5"), "{message}");
    }
}

#[test]
fn bad_samples_are_skipped_or_replaced_within_a_budget() {
    let sizes = |on_error, bad_samples, bad_share| {
        let (_fields, dataset) = numbers(20, &Drops::default());
        let set = options(|options| {
            (options.batch_size, options.on_error) = (5, on_error);
            (options.bad_samples, options.bad_share) = (bad_samples, bad_share);
            // The substitute is drawn at random. With other seeds it could be the bad sample
            // itself.
            (options.has_seed, options.seed) = (1, 7);
        });
        let loader: Loader = map_loader(&dataset, &set).unwrap();
        loader.epoch().unwrap();
        (0..4)
            .map(|_| loader.next().map(|batch| batch.unwrap().indices().len()).map_err(|(status, _)| status))
            .collect()
    };
    let skipped: Vec<_> = sizes(SLOTLINE_ON_ERROR_SKIP, usize::MAX, -1.0);
    assert_eq!(skipped, [Ok(5), Ok(5), Ok(4), Ok(5)]);
    let replaced: Vec<_> = sizes(SLOTLINE_ON_ERROR_REPLACE, 1, -1.0);
    assert_eq!(replaced, [Ok(5); 4]);
    let too_many: Vec<_> = sizes(SLOTLINE_ON_ERROR_SKIP, 0, -1.0);
    assert_eq!(too_many[2], Err(SLOTLINE_ERROR_BAD_SAMPLES));
    let share: Vec<_> = sizes(SLOTLINE_ON_ERROR_SKIP, 0, 0.05);
    assert_eq!(share[2], Ok(4), "one in twenty");
}
