//! Tests of samples of different lengths with a loader: packed, padded and fixed fields together,
//! and their errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use slotline::dataset::{Context, Dataset};
use slotline::loader::BatchOf;
use slotline::loader::{BuildError, Error};
use slotline::sample::{Packed, PackedText, PaddedToMax, Text};
use slotline::{BoxError, Loader};

use crate::samples::Dishonest;
use crate::support::{chain, sleep_sometimes};

/// A number of items per sample. Packed fields declare multiples of this number as their room, the
/// average number of items per sample for which a batch has memory.
const ROOM: usize = 6;

/// A dataset of samples with 0 to 11 items, each of which encodes the sample's index. One sample in four is empty.
struct Mixed {
    tokens: Vec<Vec<u32>>,
    boxes: Vec<Vec<[f32; 2]>>,
    texts: Vec<String>,
    /// Whether the sample at an index fails.
    bad: fn(usize) -> bool,
}

impl Mixed {
    fn new(len: usize) -> Self {
        let count = |i: usize| if i % 4 == 3 { 0 } else { (i * 7) % 12 };
        Self {
            tokens: (0..len).map(|i| (0..count(i)).map(|j| (i * 100 + j) as u32).collect()).collect(),
            boxes: (0..len).map(|i| (0..count(i + 1)).map(|j| [i as f32, j as f32 + 0.5]).collect()).collect(),
            texts: (0..len).map(|i| "ö".repeat(count(i + 2) / 2) + &"x".repeat(i % 2)).collect(),
            bad: |_| false,
        }
    }
}

impl Dataset for Mixed {
    type Sample<'a> = (Packed<'a, u32>, i64, Packed<'a, f32>, PaddedToMax<'a, u32>, PackedText<'a>, [u16; 3], Text<'a>);

    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        sleep_sometimes(index, cx);
        if (self.bad)(index) {
            return Err("a bad sample".into());
        }
        let (tokens, boxes, text) = (&self.tokens[index], &self.boxes[index], &self.texts[index]);
        Ok((
            Packed::new(tokens, 2 * ROOM),
            index as i64,
            Packed::with_shape(boxes.as_flattened(), &[2], 2 * ROOM),
            PaddedToMax::new(tokens, 12),
            PackedText::new(text, 4 * ROOM),
            [index as u16; 3],
            Text::new(text, 24),
        ))
    }
}

/// Returns the offsets of rows with these lengths.
fn ends(lengths: impl Iterator<Item = usize>) -> Vec<i64> {
    let mut end = 0;
    std::iter::once(0).chain(lengths.map(move |length| (end += length as i64, end).1)).collect()
}

/// Compares every field of a batch with a plain loop over the batch's indices.
#[track_caller]
fn check(batch: &BatchOf<Mixed>, data: &Mixed) {
    let indices: Vec<usize> = batch.indices().iter().map(|&index| index as usize).collect();
    let each = || indices.iter().copied();
    let (tokens, numbers, boxes, padded, texts, fixed, padded_texts) = batch.tensors();

    assert_eq!(tokens.values().as_slice(), each().flat_map(|i| data.tokens[i].clone()).collect::<Vec<_>>());
    assert_eq!(tokens.offsets(), ends(each().map(|i| data.tokens[i].len())));
    assert!(tokens.lengths().eq(padded.lengths().iter().copied()));
    let pairs: Vec<[f32; 2]> = each().flat_map(|i| data.boxes[i].clone()).collect();
    assert_eq!((boxes.values().shape(), boxes.values().as_slice()), (&[pairs.len(), 2][..], pairs.as_flattened()));
    assert_eq!(boxes.offsets(), ends(each().map(|i| data.boxes[i].len())));
    for (row, i) in each().enumerate() {
        assert_eq!(
            (tokens.row(row).shape(), tokens.row(row).as_slice()),
            (&[data.tokens[i].len()][..], padded.row(row))
        );
        assert_eq!(boxes.row(row).shape(), [data.boxes[i].len(), 2]);
        assert_eq!(boxes.row(row).as_slice(), data.boxes[i].as_flattened());
        assert_eq!((texts.get(row), padded_texts.get(row)), (&*data.texts[i], &*data.texts[i]));
        assert_eq!((numbers[[row]], fixed.row(row).as_slice()), (i as i64, &[i as u16; 3][..]));
    }

    let columns = batch.columns();
    assert_eq!(columns.get(2).unwrap().shape(), [pairs.len(), 2]);
    assert_eq!(columns.get(4).unwrap().bytes(), each().map(|i| &*data.texts[i]).collect::<String>().as_bytes());
    assert_eq!((columns.offsets(0), columns.lengths(0)), (Some(tokens.offsets()), None));
    assert_eq!((columns.offsets(3), columns.lengths(3)), (None, Some(padded.lengths())));
    assert_eq!((columns.offsets(5), columns.lengths(5), columns.offsets(7)), (None, None, None));
    let kind = |i| columns.field(i).map(|field| (field.is_packed(), field.is_padded())).unwrap();
    assert_eq!([kind(2), kind(3), kind(5)], [(true, false), (false, true), (false, false)]);
    assert_eq!(columns.field(2).unwrap().shape(), [2 * ROOM, 2]);
}

#[test]
fn packed_fields_are_concatenated_by_any_number_of_workers() {
    let data = Mixed::new(61);
    for workers in [0, 1, 2] {
        for part_size in [None, Some(1)] {
            let builder = Loader::builder(Mixed::new(61)).batch_size(8).shuffle(true).seed(5).num_workers(workers);
            let builder = if let Some(size) = part_size { builder.part_size(size) } else { builder };
            let mut loader = builder.build().unwrap();
            let mut orders = Vec::new();
            for _ in 0..3 {
                let mut order = Vec::new();
                for batch in loader.epoch().unwrap() {
                    let batch = batch.unwrap();
                    check(&batch, &data);
                    order.extend_from_slice(batch.indices());
                }
                assert_eq!(order.len(), 61, "seven batches of 8 and one of 5");
                orders.push(order);
            }
            assert_ne!(orders[0], orders[1]);
        }
    }
}

#[test]
fn a_batch_after_a_failed_one_is_correct() {
    let data = Mixed::new(40);
    for workers in [0, 1, 2] {
        // A sample in the middle of every second batch fails.
        let dataset = Mixed { bad: |index| index % 10 == 3, ..Mixed::new(40) };
        let mut loader = Loader::builder(dataset).batch_size(5).num_workers(workers).build().unwrap();
        for _ in 0..3 {
            for (task, batch) in loader.epoch().unwrap().enumerate() {
                match batch {
                    Ok(batch) => {
                        assert_eq!(task % 2, 1);
                        check(&batch, &data);
                    }
                    Err(Error::Sample { index, .. }) => assert_eq!((task % 2, index % 10), (0, 3)),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// A dataset of packed samples. The fields are the number of elements of each sample, and the shape
/// of their items.
struct Runs(Vec<usize>, &'static [usize]);

const NUMBERS: &[i32] = &[7; 40];

impl Dataset for Runs {
    type Sample<'a> = (i64, Packed<'a, i32>);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let item = if self.0[index] == 40 { &[2, 1] } else { self.1 };
        Ok((index as i64, Packed::with_shape(&NUMBERS[..self.0[index]], item, 3)))
    }
}

#[test]
fn packed_samples_share_the_room_of_their_batch() {
    for workers in [0, 1, 2] {
        // A batch of three samples has room for 3 × 4 elements. The second and the fourth batch
        // need more. The last batch has only two samples, but the same room.
        let lengths = vec![12, 0, 0, 0, 0, 0, 7, 6, 1, 2, 3, 4, 13, 0, 0, 0, 11, 1];
        let mut loader = Loader::builder(Runs(lengths, &[])).batch_size(4).num_workers(workers).build().unwrap();
        for _ in 0..3 {
            let outcomes: Vec<_> = loader
                .epoch()
                .unwrap()
                .map(|batch| batch.map(|batch| batch.tensors().1.offsets().to_vec()).map_err(|error| chain(&error)))
                .collect();
            assert_eq!(outcomes[0], Ok(vec![0, 12, 12, 12, 12]));
            let error = outcomes[1].as_ref().unwrap_err();
            assert!(error.starts_with("sample 7 of batch 1 failed"), "{error}");
            let why = "field 1: i32 packed [3]: the 3 samples before this one in the batch have 7 items, this one has 6, \
                       and the batch has room for 12; declare room for at least 4 per sample";
            assert!(error.contains(why), "{error}");
            assert_eq!(outcomes[2], Ok(vec![0, 1, 3, 6, 10]));
            let error = outcomes[3].as_ref().unwrap_err();
            assert!(error.contains("0 samples before this one in the batch have 0 items, this one has 13"), "{error}");
            assert_eq!(outcomes[4], Ok(vec![0, 11, 12]));
        }
    }
}

#[test]
fn items_of_another_shape_than_declared_are_errors() {
    let lengths = vec![4, 0, 5, 8, 40, 2, 6];
    let mut loader = Loader::builder(Runs(lengths, &[2])).batch_size(1).build().unwrap();
    let outcomes: Vec<_> = loader
        .epoch()
        .unwrap()
        .map(|batch| batch.map(|batch| batch.tensors().1.values().shape().to_vec()).map_err(|error| chain(&error)))
        .collect();
    let good: Vec<_> = [0, 1, 5, 6].map(|i| outcomes[i].clone().unwrap()).into();
    assert_eq!(good, [[2, 2], [0, 2], [1, 2], [3, 2]]);
    for (i, why) in [
        (2, "1: i32 packed [3, 2] was declared, but the sample has 5 elements, which is not a whole number of items"),
        (3, "have 0 items, this one has 4, and the batch has room for 3"),
        (4, "1: i32 packed [3, 2] was declared, but the sample's items have shape [2, 1]"),
    ] {
        let error = outcomes[i].as_ref().unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_field_of_the_wrong_kind_is_an_error() {
    use slotline::sample::{Columns, Fields, Row, Sample};

    let declare = |fields: &mut Fields| {
        fields.named("packed", &Packed::<u8>::new(&[], 3));
        fields.named("padded", &PaddedToMax::<u8>::new(&[], 3));
        fields.named("fixed", &[0_u8; 3]);
    };
    type Write = fn(&mut Row<'_>) -> Result<(), BoxError>;
    let cases: [(Write, &str); 5] = [
        (
            |row| [1_u8; 3].write(row),
            "packed: u8 packed [3] was declared packed, but the sample wrote another kind of field",
        ),
        (|row| Text::new("abc", 3).write(row), "packed: u8 packed [3] was declared packed"),
        (|row| Packed::new(&[1_i8], 3).write(row), "packed: u8 packed [3] was declared, but the sample has i8 [1]"),
        (|row| (PackedText::new("", 3), PackedText::new("", 3)).write(row), "padded: u8 up to [3] was declared padded"),
        (
            |row| (PackedText::new("", 3), Text::new("", 3), PackedText::new("abc", 3)).write(row),
            "fixed: u8 [3] was declared of fixed shape",
        ),
    ];
    for (write, expected) in cases {
        let dataset = crate::support::from_fn(1, move |_, _| Ok(Dishonest(declare, write)));
        let mut loader = Loader::builder(dataset).build().unwrap();
        let error = chain(&loader.epoch().unwrap().next().unwrap().unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    // Check that taking a field as another kind or type panics.
    let good: Write = |row| (PackedText::new("abc", 3), Text::new("", 3), [1_u8; 3]).write(row);
    let mut loader =
        Loader::builder(crate::support::from_fn(1, move |_, _| Ok(Dishonest(declare, good)))).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let takes = |take: fn(&mut Columns<'_>)| catch_unwind(AssertUnwindSafe(|| take(&mut batch.columns()))).is_ok();
    assert!(takes(|columns| drop(columns.take_packed::<u8>())));
    assert!(!takes(|columns| drop(columns.take_packed::<i8>())));
    assert!(!takes(|columns| drop(columns.take_padded::<u8>())));
    assert!(!takes(|columns| drop((columns.take_any(), columns.take_packed::<u8>()))));
    assert!(takes(|columns| drop((columns.take_any(), columns.take_padded::<u8>()))));
}

#[test]
fn build_refuses_items_without_elements() {
    let error = Loader::builder(Runs(vec![0], &[4, 0])).build().unwrap_err();
    assert!(matches!(error, BuildError::Layout(_)), "{error}");
    assert!(error.to_string().contains("field 1: i32 packed [3, 4, 0]: its items have no elements"), "{error}");
}
