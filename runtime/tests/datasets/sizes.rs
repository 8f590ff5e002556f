//! Tests of extreme sizes that users declare. They must be computed correctly or refused.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use slotline::array::{AnyArray, Array};
use slotline::dataset::{Context, Dataset};
use slotline::dtype::DType;
use slotline::loader::{BuildError, Overflow};
use slotline::sample::{Fields, Row};
use slotline::shape::{MAX_DIMS, Shape};
use slotline::source::parse_idx;
use slotline::tensor::TensorView;
use slotline::{BoxError, Loader, Sample};

const MAX: u128 = isize::MAX as u128;
const DTYPES: [DType; 4] = [DType::U8, DType::I16, DType::F32, DType::F64];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Fixed,
    PaddedToMax,
    Packed,
}

#[derive(Clone, Debug)]
struct Declared {
    kind: Kind,
    dtype: DType,
    dims: Vec<usize>,
}

/// A sample with any fields.
#[derive(Clone, Debug)]
struct Any(Vec<Declared>);

impl Sample for Any {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        for Declared { kind, dtype, dims } in &self.0 {
            match (kind, dims.split_first()) {
                (Kind::Fixed, _) => fields.fixed(*dtype, dims),
                (Kind::PaddedToMax, first) => fields.padded_to_max(*dtype, first.map_or(0, |(&max, _)| max)),
                (Kind::Packed, None) => fields.packed(*dtype, &[], 0),
                (Kind::Packed, Some((&room, item))) => fields.packed(*dtype, item, room),
            }
        }
    }

    fn write(self, _: &mut Row<'_>) -> Result<(), BoxError> {
        Err("these samples are never written".into())
    }
}

struct Samples(Any, usize);

impl Dataset for Samples {
    type Sample<'a> = Any;

    fn len(&self) -> usize {
        self.1
    }

    fn get<'a>(&'a self, _: usize, _: &'a mut Context) -> Result<Any, BoxError> {
        Ok(self.0.clone())
    }
}

/// Returns the product of the dimensions, capped at a value above all valid sizes. Dimensions of 0
/// are left out unless `zeros` is set.
fn product(dims: &[usize], zeros: bool) -> u128 {
    if zeros && dims.contains(&0) {
        return 0;
    }
    dims.iter().filter(|&&dim| dim > 0).fold(1, |product, &dim| (product * dim as u128).min(1 << 64))
}

/// Returns the size of a slot in bytes, summed field by field as `runtime/DESIGN.md` describes;
/// `None` if no such batch is possible.
fn slot(fields: &[Declared], rows: usize, spill: bool) -> Option<u128> {
    fn reserve(end: &mut u128, bytes: u128) -> Option<()> {
        *end = end.next_multiple_of(256) + bytes;
        (*end <= MAX).then_some(())
    }
    let (mut end, rows_wide, mut spills) = (0, rows as u128, 0);
    reserve(&mut end, rows_wide * 8)?;
    for Declared { kind, dtype, dims } in fields {
        let size = dtype.size() as u128;
        let dims = match kind {
            Kind::Fixed => dims.clone(),
            _ if dims.is_empty() => vec![0],
            Kind::PaddedToMax => vec![dims[0]],
            Kind::Packed => dims.clone(),
        };
        let batch = if *kind == Kind::Packed { dims.clone() } else { [&[rows][..], &dims].concat() };
        let item = if *kind == Kind::Packed { &dims[1..] } else { &[] };
        let countable = batch.len() <= MAX_DIMS && product(&batch, false) <= MAX && product(item, false) * size <= MAX;
        if !countable || item.contains(&0) {
            return None;
        }
        reserve(&mut end, product(&dims, true) * rows_wide * size)?;
        match kind {
            Kind::Fixed => {}
            Kind::PaddedToMax => reserve(&mut end, rows_wide * 8)?,
            Kind::Packed => reserve(&mut end, rows_wide * 8 + 8)?,
        }
        spills += usize::from(spill && *kind == Kind::Packed);
    }
    for _ in 0..spills {
        end = end.next_multiple_of(8) + 16;
    }
    let slot = end.max(1).next_multiple_of(if end < 4096 { 256 } else { 4096 });
    (end <= MAX).then_some(slot)
}

/// Generates a length, usually one at which a computation may overflow.
fn length() -> impl Strategy<Value = usize> {
    let around = (0_u32..64, -1_i64..=1).prop_map(|(bit, off)| (1_usize << bit).wrapping_add_signed(off as isize));
    prop_oneof![3 => 0_usize..4, 3 => around, 1 => Just(usize::MAX), 1 => Just(isize::MAX as usize), 1 => any::<usize>()]
}

fn dims() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(length(), 0..=MAX_DIMS + 1)
}

fn field() -> impl Strategy<Value = Declared> {
    let kind = prop_oneof![Just(Kind::Fixed), Just(Kind::PaddedToMax), Just(Kind::Packed)];
    (kind, proptest::sample::select(&DTYPES), dims()).prop_map(|(kind, dtype, dims)| Declared { kind, dtype, dims })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Checks that a loader allocates exactly the memory that its samples need, or refuses to.
    #[test]
    fn build_allocates_the_declared_bytes_or_refuses(
        fields in proptest::collection::vec(field(), 0..3),
        rows in length().prop_map(|rows| rows.max(1)),
        (hold, limit) in (prop_oneof![3 => 1_usize..5, 1 => length()], proptest::option::of(length())),
        (spill, round_robin) in any::<(bool, bool)>(),
    ) {
        let asked = Arc::new(Mutex::new(None));
        let note = asked.clone();
        let dataset = Samples(Any(fields.clone()), rows);
        let builder = Loader::builder(dataset).batch_size(rows).hold(hold).memory(move |bytes| {
            *note.lock().unwrap() = Some(bytes);
            Err::<slotline::arena::Pages, BoxError>("the test only records the size".into())
        });
        let builder = builder.on_overflow(if spill { Overflow::Spill } else { Overflow::Error });
        let builder = if let Some(limit) = limit { builder.memory_limit(limit) } else { builder };
        let error = builder.round_robin(round_robin).build().unwrap_err();
        let slots = if round_robin { (hold as u128) + 1 } else { (hold as u128 + 1).next_multiple_of(2) };
        let expected = slot(&fields, rows, spill).map(|slot| slot * slots);
        match (error, expected) {
            (BuildError::Allocate { bytes, .. }, Some(expected)) => {
                prop_assert_eq!(bytes as u128, expected);
                prop_assert_eq!(*asked.lock().unwrap(), Some(bytes));
            }
            (BuildError::Memory { bytes, .. }, Some(expected)) => prop_assert_eq!(bytes, expected),
            (BuildError::MemoryLimit { limit, needed, .. }, Some(expected)) => {
                prop_assert!(limit < needed && needed as u128 >= expected.min(usize::MAX as u128));
            }
            (BuildError::Layout(error), None) => {
                let text = error.to_string();
                let named = ["field", "dimensions"].into_iter().any(|word| text.contains(word));
                prop_assert!(named && !text.contains('\n'), "{}", text);
            }
            (BuildError::Zero { option: "hold" }, _) => prop_assert_eq!(hold, 0),
            (BuildError::TooMany { .. }, _) => prop_assert!(slots > 1 << 20),
            (error, expected) => prop_assert!(false, "got {error:?}, expected {expected:?}"),
        }
        prop_assert_eq!(asked.lock().unwrap().is_some(), asked.lock().unwrap().is_some_and(|bytes| bytes <= isize::MAX as usize));
    }

    /// An array without elements can have any shape whose other dimensions do not overflow. An
    /// array with elements can only have shapes with that number of elements.
    #[test]
    fn arrays_and_views_have_as_many_elements_as_their_shape(dims in dims(), dtype in proptest::sample::select(&DTYPES)) {
        let countable = dims.len() <= MAX_DIMS && product(&dims, false) <= MAX;
        let hollow = countable && dims.contains(&0);
        let none = Array::<f64>::new(vec![], &dims);
        prop_assert_eq!((none.is_ok(), TensorView::<f64>::new(&[], &dims).is_ok()), (hollow, hollow));
        let one = countable && product(&dims, true) == 1;
        prop_assert_eq!(Array::new(vec![1_u8], &dims).is_ok(), one);
        let Ok(shape) = Shape::new(&dims) else { return Ok(()) };
        prop_assert_eq!(shape.elements().map(|n| n as u128), countable.then(|| product(&dims, true)));
        if let Ok(none) = none {
            let any = AnyArray::from(none.clone());
            // Take the array's last row, then the last row of that row, and so on, down to one
            // number.
            let (mut typed, mut view) = (none.view(), any.view());
            while !typed.is_empty() && !typed.shape().is_empty() {
                prop_assert_eq!(typed.strides(), view.strides());
                prop_assert!(typed.strides().iter().all(|&stride| stride <= isize::MAX as usize));
                (typed, view) = (typed.row(typed.len() - 1), view.row(view.len() - 1));
                prop_assert_eq!((typed.as_slice().len(), view.bytes().len()), (0, 0));
            }
            if !none.is_empty() {
                prop_assert!(none.row_slice(none.len() - 1).is_empty() && any.row_bytes(any.len() - 1).is_empty());
            }
        }
        let start = NonNull::<u64>::dangling().cast();
        let fits = countable && product(&dims, true) * dtype.size() as u128 <= MAX;
        if !fits || hollow {
            // SAFETY: the array has no elements, or is refused, so no memory is accessed.
            let raw = unsafe { AnyArray::from_raw_parts(dtype, shape, start, ()) };
            prop_assert_eq!(raw.is_ok(), fits);
        }
    }

    /// Checks that a header is accepted only if the file has the length that follows from it.
    #[test]
    fn headers_must_match_the_length_of_the_file(dims in dims(), data in 0_usize..9) {
        let expected = |dims: &[usize]| {
            dims.len() <= MAX_DIMS && product(dims, false) <= MAX && product(dims, true) * 8 == data as u128
        };
        let list: Vec<_> = dims.iter().map(|dim| format!("{dim},")).collect();
        let npy = crate::files::npy("<f8", &format!("({})", list.concat()), &vec![0; data]);
        prop_assert_eq!(slotline::source::parse_npy(&npy).is_ok(), expected(&dims));
        let lengths: Vec<_> = dims.iter().map(|&dim| dim as u32).collect();
        let mut idx = vec![0, 0, 0x0e, lengths.len() as u8];
        idx.extend(lengths.iter().flat_map(|length| length.to_be_bytes()));
        idx.resize(idx.len() + data, 0);
        let dims: Vec<_> = lengths.iter().map(|&length| length as usize).collect();
        prop_assert_eq!(parse_idx(&idx).is_ok(), expected(&dims));
    }
}

#[test]
fn build_names_an_item_too_large_for_memory_with_spill() {
    let fields = vec![Declared { kind: Kind::Packed, dtype: DType::F64, dims: vec![0, 1 << 61] }];
    let builder = Loader::builder(Samples(Any(fields), 1)).on_overflow(Overflow::Spill);
    let error = builder.build().unwrap_err();
    assert!(matches!(&error, BuildError::Layout(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("field 0: f64 packed [0, 2305843009213693952]"), "{text}");
}
