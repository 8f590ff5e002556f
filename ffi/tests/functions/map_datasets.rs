//! Datasets whose samples a callback writes, by index.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::slice;

use slotline_ffi::dataset::*;
use slotline_ffi::dtype::*;
use slotline_ffi::field::*;
use slotline_ffi::loader::*;
use slotline_ffi::map::*;
use slotline_ffi::options::*;
use slotline_ffi::sample::*;
use slotline_ffi::status::*;

use crate::support::datasets::{Drops, field, map, map_loader, numbers};
use crate::support::{Batch, Digits, Loader, call, options};

/// A number to be written.
static ZERO: i32 = 0;

/// The elements of a field.
fn elements<T: Copy>(batch: &Batch, i: usize) -> Vec<T> {
    let tensor = batch.field(i);
    // SAFETY: the tensor has so many bytes of them.
    unsafe { slice::from_raw_parts(tensor.data.cast::<T>(), tensor.bytes / size_of::<T>()) }.to_vec()
}

/// A picture in place, a run of numbers padded, another packed, and a flag.
unsafe extern "C" fn read_mixed(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let numbers: Vec<i16> = (0..index as i16 % 4).collect();
    let words: Vec<f64> = (0..index % 3).map(|i| i as f64).collect();
    let mut bytes = 0;
    // SAFETY: the sample is lent to us, and what it is given is there.
    unsafe {
        // In another order than declared.
        assert_eq!(slotline_sample_write(sample, 2, words.as_ptr().cast(), words.len()), SLOTLINE_OK);
        let flag = slotline_sample_row(sample, 3, &mut bytes).cast::<u8>();
        assert_eq!(bytes, 1);
        flag.write(u8::from(index.is_multiple_of(2)));
        let picture = slotline_sample_row(sample, 0, &mut bytes).cast::<f32>();
        assert_eq!(bytes, 24);
        (0..6).for_each(|i| picture.add(i).write(index as f32));
        assert_eq!(slotline_sample_write(sample, 1, numbers.as_ptr().cast(), numbers.len()), SLOTLINE_OK);
        // A ragged field has no row of fixed shape, and there are no others.
        assert!(slotline_sample_row(sample, 1, &mut bytes).is_null() && bytes == 0);
        assert!(slotline_sample_row(sample, 4, null_mut()).is_null());
    }
    0
}

fn mixed() -> Vec<slotline_field> {
    vec![
        field(c"picture", SLOTLINE_F32, SLOTLINE_FIXED, &[2, 3]),
        field(c"numbers", SLOTLINE_I16, SLOTLINE_RAGGED, &[3]),
        field(c"words", SLOTLINE_F64, SLOTLINE_PACKED, &[2]),
        field(c"flag", SLOTLINE_BOOL, SLOTLINE_FIXED, &[]),
    ]
}

#[test]
fn samples_of_all_kinds_are_where_the_callback_wrote_them() {
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
        let (ragged, packed) = (batch.field(1), batch.field(2));
        // SAFETY: there are so many.
        let ends = |tensor: &slotline_ffi::tensor::slotline_tensor| unsafe {
            slice::from_raw_parts(tensor.ends, tensor.num_ends).to_vec()
        };
        assert_eq!((ends(&ragged), ends(&packed)), (vec![0, 1, 2, 3], vec![0, 0, 1, 3, 3]));
        assert_eq!((ragged.kind, packed.kind), (SLOTLINE_RAGGED, SLOTLINE_PACKED));
        assert_eq!(elements::<f64>(&batch, 2), [0.0, 0.0, 1.0]);
        assert_eq!(elements::<u8>(&batch, 3), [1, 0, 1, 0]);
        assert_eq!(loader.rest(), [vec![4, 5, 6, 7], vec![8, 9]]);
        assert_eq!(drops.count(), 0, "the loader needs the callbacks");
        drop((loader, batch));
        assert_eq!(drops.count(), 1);
    }
}

/// Two random numbers, and where the sample is.
unsafe extern "C" fn read_noise(_: *mut c_void, _: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is lent to us.
    unsafe {
        let place = [slotline_sample_random(sample), slotline_sample_random(sample), slotline_sample_position(sample)];
        assert!((-1..3).contains(&slotline_sample_worker(sample)));
        let place = [place[0], place[1], place[2], u64::from(slotline_sample_epoch(sample))];
        slotline_sample_write(sample, 0, place.as_ptr().cast(), 4)
    }
}

#[test]
fn random_numbers_are_the_samples_own_for_any_number_of_workers() {
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

#[test]
fn a_sample_that_fails_is_an_error_that_says_why_and_the_pass_goes_on() {
    let (fields, drops) = (numbers(20, &Drops::default()), Drops::default());
    for num_workers in [0, 2] {
        let (_fields, dataset) = numbers(20, &drops);
        let set = options(|options| (options.batch_size, options.num_workers) = (5, num_workers));
        let loader = map_loader(&dataset, &set).unwrap();
        loader.epoch().unwrap();
        let mut outcomes = Vec::new();
        loop {
            match loader.next() {
                Ok(Some(batch)) => outcomes.push(Ok(batch.indices()[0])),
                Ok(None) => break,
                Err((status, message)) => {
                    assert!(message.starts_with("sample 13 of batch 2 failed in "), "{message}");
                    assert!(message.ends_with(": thirteen is no number"), "{message}");
                    outcomes.push(Err(status));
                }
            }
        }
        assert_eq!(outcomes, [Ok(0), Ok(5), Err(SLOTLINE_SAMPLE), Ok(15)]);
    }
    drop(fields);
    assert_eq!(drops.count(), 2);
}

/// The first batch of two fields, a bool and a number, that `read` writes.
fn first(read: unsafe extern "C" fn(*mut c_void, usize, *mut slotline_sample) -> i32) -> String {
    let fields =
        [field(c"flag", SLOTLINE_BOOL, SLOTLINE_FIXED, &[2]), field(c"number", SLOTLINE_I32, SLOTLINE_FIXED, &[])];
    let dataset = map(1, &fields, Some(read), &Drops::default());
    let loader = map_loader(&dataset, &options(|_| ())).unwrap();
    loader.epoch().unwrap();
    let Err((SLOTLINE_SAMPLE, message)) = loader.next() else { panic!("no error") };
    message
}

/// A callback that writes `flag` from these bytes, into its row, and the number if it is to.
macro_rules! reader {
    ($flag:expr, $number:expr, $code:expr) => {{
        unsafe extern "C" fn read(_: *mut c_void, _: usize, sample: *mut slotline_sample) -> i32 {
            let flag: Option<[u8; 2]> = $flag;
            // SAFETY: the sample is lent to us, and what it is given is there.
            unsafe {
                if let Some(flag) = flag {
                    slotline_sample_row(sample, 0, null_mut()).cast::<[u8; 2]>().write(flag);
                }
                let number: fn(*mut slotline_sample) = $number;
                number(sample);
            }
            $code
        }
        first(read)
    }};
}

#[test]
fn what_a_callback_forgets_or_breaks_is_an_error_that_names_the_field() {
    fn good(sample: *mut slotline_sample) {
        // SAFETY: as `read`.
        unsafe { slotline_sample_write(sample, 1, (&raw const ZERO).cast(), 1) };
    }
    fn short(sample: *mut slotline_sample) {
        // SAFETY: as `read`.
        assert_eq!(unsafe { slotline_sample_write(sample, 1, null(), 0) }, SLOTLINE_INVALID);
    }
    fn null_data(sample: *mut slotline_sample) {
        // SAFETY: as `read`.
        unsafe { slotline_sample_write(sample, 1, null(), 1) };
    }
    fn odd(sample: *mut slotline_sample) {
        let bytes = [0_i32; 2];
        // SAFETY: as `read`; the four bytes from the second one on are there.
        unsafe { slotline_sample_write(sample, 1, bytes.as_ptr().byte_add(1).cast(), 1) };
    }
    fn other(sample: *mut slotline_sample) {
        // SAFETY: as `read`.
        unsafe { slotline_sample_write(sample, 7, (&raw const ZERO).cast(), 1) };
    }
    fn huge(sample: *mut slotline_sample) {
        // SAFETY: as `read`; it is refused before it is read.
        unsafe { slotline_sample_write(sample, 1, (&raw const ZERO).cast(), usize::MAX) };
    }
    fn nothing(_: *mut slotline_sample) {}
    let said = |message: String, words: &str| assert!(message.contains(words), "{message}");
    said(reader!(None, good, 0), "the callback did not write field 0 (\"flag\")");
    said(reader!(Some([0, 1]), nothing, 0), "the callback did not write field 1 (\"number\")");
    said(reader!(Some([0, 2]), good, 0), "field 0 (\"flag\") has a bool that is neither 0 nor 1");
    said(reader!(Some([0, 1]), good, 7), "the callback gave 7 for a sample");
    said(reader!(Some([0, 1]), good, 1), "the callback gave 1 for a sample");
    said(reader!(Some([0, 1]), short, 0), "field 1: field number: i32 [] was declared, but the sample has i32 [0]");
    said(reader!(Some([0, 1]), null_data, 0), "field 1: data is NULL");
    said(reader!(Some([0, 1]), odd, 0), "field 1: data is not aligned: its address must be a multiple of 4");
    said(reader!(Some([0, 1]), other, 0), "field is 7, and there are 2 fields");
    said(reader!(Some([0, 1]), huge, 0), "elements are more than memory can have");
}

/// Writes the index in the second attempt, or in two others that do not count.
unsafe extern "C" fn read_again(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let numbers = [index as i64; 2];
    // SAFETY: the sample is lent to us, and what it is given is there.
    unsafe {
        let write = |elements| slotline_sample_write(sample, 0, numbers.as_ptr().cast(), elements);
        assert_eq!((write(1), write(2)), (SLOTLINE_OK, SLOTLINE_INVALID));
        match index {
            0 => assert_eq!(write(1), SLOTLINE_OK),
            1 => slotline_sample_row(sample, 0, null_mut()).cast::<i64>().write(1),
            _ => {}
        }
    }
    0
}

#[test]
fn a_field_that_was_refused_may_be_written_after_that() {
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
        (SLOTLINE_SAMPLE, true),
        "{message}"
    );
}

/// Fails with one more than it finds in the memory of a flag, and leaves there what is none.
unsafe extern "C" fn spoil(_: *mut c_void, _: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is lent to us.
    unsafe { slotline_sample_row(sample, 0, null_mut()).cast::<u8>().replace(7) + 1 }.into()
}

#[test]
fn a_callback_that_fails_leaves_no_bool_behind_that_is_none() {
    let fields = [field(c"flag", SLOTLINE_BOOL, SLOTLINE_FIXED, &[])];
    let dataset = map(20, &fields, Some(spoil), &Drops::default());
    let loader = map_loader(&dataset, &options(|options| options.batch_size = 2)).unwrap();
    loader.epoch().unwrap();
    for _ in 0..10 {
        let (status, message) = loader.next().err().unwrap();
        assert_eq!((status, message.contains("the callback gave 1 for")), (SLOTLINE_SAMPLE, true), "{message}");
    }
}

#[test]
fn what_a_dataset_of_a_later_version_brings_is_dropped_when_it_is_refused() {
    #[repr(C)]
    struct Later {
        known: slotline_map_dataset,
        more: usize,
    }
    let (drops, fields) = (Drops::default(), mixed());
    let mut later = Later { known: map(3, &fields, Some(read_mixed), &drops), more: 1 };
    later.known.struct_size = size_of::<Later>();
    let mut out = null_mut();
    // SAFETY: it is as long as it says.
    let outcome = call(|error| unsafe { slotline_dataset_from_callbacks((&raw const later).cast(), &mut out, error) });
    assert!(outcome.unwrap_err().1.contains("of a later version"));
    assert_eq!(drops.count(), 1);
}

#[test]
fn an_index_that_the_dataset_has_not_is_an_error_before_the_callback_sees_it() {
    let (_fields, dataset) = numbers(5, &Drops::default());
    let mut sampler = null_mut();
    // SAFETY: all are there, and freed once.
    unsafe {
        use slotline_ffi::sampler::*;
        call(|error| slotline_sampler_indices([2, 5].as_ptr(), 2, &mut sampler, error)).unwrap();
        let loader = map_loader(&dataset, &options(|options| options.sampler = sampler)).unwrap();
        slotline_sampler_free(sampler);
        loader.epoch().unwrap();
        assert_eq!(loader.next().unwrap().unwrap().indices(), [2]);
        let Err((SLOTLINE_SAMPLE, message)) = loader.next() else { panic!("no error") };
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
            // A substitute is drawn, and could be the bad one.
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
    assert_eq!(too_many[2], Err(SLOTLINE_BAD_SAMPLES));
    let share: Vec<_> = sizes(SLOTLINE_ON_ERROR_SKIP, 0, 0.05);
    assert_eq!(share[2], Ok(4), "one in twenty");
}

#[test]
fn a_dataset_that_is_none_is_refused_and_dropped() {
    let drops = Drops::default();
    let good = field(c"a", SLOTLINE_U8, SLOTLINE_FIXED, &[]);
    let make = |change: &dyn Fn(&mut slotline_map_dataset), fields: &[slotline_field]| {
        let mut dataset = map(3, fields, Some(read_noise), &drops);
        change(&mut dataset);
        let mut out = null_mut();
        // SAFETY: the dataset is what it says.
        let outcome = call(|error| unsafe { slotline_dataset_from_callbacks(&dataset, &mut out, error) });
        assert!(out.is_null());
        let Err((SLOTLINE_INVALID, message)) = outcome else { panic!("it was taken") };
        message
    };
    let fields = |fields: &[slotline_field]| make(&|_| (), fields);
    let said = |message: String, words: &str| assert!(message.contains(words), "{message}");
    said(make(&|dataset| dataset.read = None, &[good]), "dataset->read is NULL");
    said(make(&|dataset| dataset.fields = null(), &[good]), "fields is NULL");
    said(make(&|dataset| dataset.num_fields = 0, &[good]), "num_fields is 0; a sample has 1 to 64 fields");
    said(make(&|dataset| dataset.num_fields = 65, &[good]), "num_fields is 65");
    said(fields(&[good, slotline_field { dtype: 99, ..good }]), "fields[1]: dtype is 99, which is no dtype");
    said(fields(&[slotline_field { kind: 3, ..good }]), "fields[0]: kind is 3");
    said(fields(&[field(c"a", SLOTLINE_U8, SLOTLINE_FIXED, &[2, -1])]), "fields[0]: shape: -1 is no length");
    said(fields(&[field(c"a", SLOTLINE_U8, SLOTLINE_RAGGED, &[2, 2])]), "a ragged field has the shape [max]");
    said(fields(&[field(c"a", SLOTLINE_U8, SLOTLINE_PACKED, &[])]), "a packed field has the shape [room, ...]");
    said(fields(&[slotline_field { ndim: 1, shape: null(), ..good }]), "fields[0]: shape is NULL");
    said(fields(&[field(c"\xff", SLOTLINE_U8, SLOTLINE_FIXED, &[])]), "fields[0]: name is not UTF-8");
    said(fields(&[good, good]), "two fields have the name \"a\"");
    said(
        fields(&[good, slotline_field { struct_size: 8, ..good }]),
        "fields[1]: struct_size is 8, and that of the first",
    );
    assert_eq!(drops.count(), 13, "each was ours to drop");
}

#[test]
fn a_loader_of_options_that_are_too_short_leaves_null_in_its_place() {
    let short = options(|options| options.struct_size = 16);
    let mut loader = std::ptr::dangling_mut();
    // SAFETY: all are there; what is in the place is not used.
    let outcome = call(|error| unsafe { slotline_loader_new(Digits::open().0, &short, &mut loader, error) });
    assert_eq!(outcome.map_err(|(status, _)| status), Err(SLOTLINE_INVALID));
    assert!(loader.is_null());
}
