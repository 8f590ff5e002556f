//! Tests of samples with `derive(Sample)`, loaded and read back.

// Generated code must not cause warnings.
#![deny(warnings, missing_debug_implementations, clippy::all)]

use std::fmt::Debug;

use slotline::dataset::{Context, Dataset};
use slotline::dtype::Element;
use slotline::sample::{Columns, Fields, Packed, PackedTensor, PaddedToMax, Row, Schema, Text, Texts};
use slotline::tensor::TensorView;
use slotline::{BoxError, Loader, Sample};

use crate::samples::{LEN, load};
use crate::support::{DatasetOf, from_fn};

/// A sample with every kind of field.
#[derive(Sample)]
struct Clip<'a, 'd> {
    /// A field with a doc comment.
    sound: &'a [f32],
    words: Text<'d>,
    marks: PaddedToMax<'d, u16>,
    tokens: Packed<'a, i32>,
    r#type: i64,
    place: Place,
    pair: (u8, [bool; 2]),
}

#[derive(Clone, Copy, Sample)]
struct Place(f64, [i8; 2]);

struct Clips(Vec<[f32; 5]>, Vec<String>, Vec<Vec<u16>>, Vec<i32>);

impl Clips {
    fn new() -> Self {
        Self(
            (0..LEN).map(|i| [i as f32 + 0.5; 5]).collect(),
            (0..LEN).map(|i| "é".repeat(i % 4)).collect(),
            (0..LEN).map(|i| vec![i as u16; i % 3]).collect(),
            (0..2 * LEN as i32).collect(),
        )
    }

    fn place(i: usize) -> Place {
        Place(i as f64 / 4.0, [i as i8, -(i as i8)])
    }
}

impl Dataset for Clips {
    type Sample<'a> = Clip<'a, 'a>;

    fn len(&self) -> usize {
        LEN
    }

    fn get<'a>(&'a self, i: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        Ok(Clip {
            sound: &self.0[i],
            words: Text::new(&self.1[i], 6),
            marks: PaddedToMax::new(&self.2[i], 2),
            tokens: Packed::new(&self.3[i..2 * i], LEN),
            r#type: -(i as i64),
            place: Self::place(i),
            pair: (i as u8, [i < 5, i > 5]),
        })
    }
}

/// Returns parts of a batch. It compiles only if the batch's type can be named, and if its parts
/// borrow only from the batch's memory.
fn kinds<'b>(batch: &ClipBatch<'b>) -> (TensorView<'b, f32>, Texts<'b>, PackedTensor<'b, i32>, PlaceBatch<'b>) {
    let PlaceBatch(first, second) = &batch.place;
    (batch.sound.clone(), batch.words.clone(), batch.tokens.clone(), PlaceBatch(first.clone(), second.clone()))
}

#[test]
fn a_derived_struct_round_trips_every_kind_of_field() {
    let names = ["sound", "words", "marks", "tokens", "type", "place.0", "place.1", "pair.0", "pair.1"];
    let data = Clips::new();
    load(Clips::new, &names, |batch, range| {
        let clips = batch.tensors();
        let (sound, words, tokens, place) = kinds(&clips);
        assert_eq!((sound.shape(), place.1.shape()), (&[range.len(), 5][..], &[range.len(), 2][..]));
        for (row, i) in range.enumerate() {
            assert_eq!(sound.row(row).as_slice(), data.0[i]);
            assert_eq!(words.get(row), data.1[i]);
            assert_eq!(clips.marks.row(row), data.2[i]);
            assert_eq!(tokens.row(row).as_slice(), &data.3[i..2 * i]);
            assert_eq!(clips.r#type[[row]], -(i as i64));
            let Place(first, second) = Clips::place(i);
            assert_eq!((place.0[[row]], place.1.row(row).as_slice()), (first, &second[..]));
            assert_eq!((clips.pair.0[[row]], clips.pair.1[[row, 1]]), (i as u8, i > 5));
        }
    });
}

/// A sample with type parameters, constants, bounds in both places, defaults, and a lifetime with
/// the name of a batch's lifetime.
#[derive(Clone, Copy, Sample)]
#[allow(explicit_outlives_requirements)]
struct Window<'b, P: Sample + Copy + 'b, T = f32, const N: usize = 3>
where
    T: Element + 'b,
    'b: 'b,
{
    values: &'b [T],
    edges: [T; N],
    part: P,
}

/// A sample with a field whose length is an associated constant of the struct.
#[derive(Sample)]
struct Block {
    pixels: [u8; Self::LEN],
}

impl Block {
    const LEN: usize = 3;
}

struct Windows<T>(Vec<T>);

impl<T: Element> Dataset for Windows<T> {
    type Sample<'a> = Window<'a, Place, T, 2>;

    fn len(&self) -> usize {
        LEN
    }

    fn get<'a>(&'a self, i: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        Ok(Window { values: &self.0[i..][..3], edges: [self.0[i], self.0[i + 2]], part: Clips::place(i) })
    }
}

/// A generic function over batches of [`Window`].
fn edge<'b, P: Sample + Copy, T: Element>(batch: &WindowBatch<'b, P, T, 2>, row: usize) -> T {
    batch.edges[[row, 1]]
}

#[test]
fn generic_structs_have_generic_batches() {
    fn check<T: Element + PartialEq>(number: fn(usize) -> T) {
        let make = || Windows((0..LEN + 2).map(number).collect());
        load(make, &["values", "edges", "part.0", "part.1"], |batch, range| {
            let windows = batch.tensors();
            for (row, i) in range.enumerate() {
                assert_eq!(windows.values.row(row).as_slice(), [number(i), number(i + 1), number(i + 2)]);
                assert_eq!(edge(&windows, row), number(i + 2));
                assert_eq!(windows.part.1[[row, 0]], i as i8);
            }
        });
    }
    check(|i| i as f32);
    check(|i| i as u16 * 300);
    assert_eq!(Fields::of(&Block { pixels: [0; 3] }).as_slice()[0].shape(), [3]);
    let default: Window<'_, i64> = Window { values: &[1.0], edges: [0.5; 3], part: 1 };
    assert_eq!(Fields::of(&default).as_slice()[1].shape(), [3]);
}

#[derive(Debug, PartialEq, Sample)]
struct Nothing;

#[derive(Debug, PartialEq, Sample)]
struct Empty<const N: usize> {}

#[derive(Sample)]
#[sample(batch = "Sparse")]
struct WithNothing(Nothing, Empty<3>, i64);

fn sparse() -> impl Dataset + for<'a> DatasetOf<'a, WithNothing> {
    from_fn(LEN, |index, _| Ok(WithNothing(Nothing, Empty {}, index as i64)))
}

#[test]
fn empty_structs_are_samples_and_batches_can_be_renamed() {
    load(sparse, &["2"], |batch, range| {
        let Sparse(NothingBatch, EmptyBatch::<3> {}, numbers) = batch.tensors();
        assert!(numbers.as_slice().iter().copied().eq(range.map(|i| i as i64)));
    });
}

/// A manually implemented sample, whose batch is not `Debug`.
struct Quiet;

struct Silence;

impl Sample for Quiet {
    type Schema = Self;

    fn declare(&self, _: &mut Fields) {}

    fn write(self, _: &mut Row<'_>) -> Result<(), BoxError> {
        Ok(())
    }
}

impl Schema for Quiet {
    type Tensors<'b> = Silence;

    fn tensors<'b>(_: &mut Columns<'b>) -> Silence {
        Silence
    }
}

#[derive(Sample)]
struct Around {
    quiet: Quiet,
    number: i64,
}

#[test]
fn batches_are_debug_if_their_fields_are() {
    fn text(value: &impl Debug) -> String {
        format!("{value:?}")
    }
    let mut loader = Loader::builder(Clips::new()).batch_size(2).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let shown = text(&batch.tensors());
    assert!(shown.starts_with("ClipBatch { sound: TensorView(f32 [2, 5]), words: "), "{shown}");
    assert!(
        shown.contains("type: TensorView(i64 [2]), place: PlaceBatch(TensorView(f64 [2]), TensorView(i8 [2, 2])), "),
        "{shown}"
    );
    assert_eq!(text(&NothingBatch), "NothingBatch");

    let quiet = from_fn(1, |_, _| Ok(Around { quiet: Quiet, number: 7 }));
    let mut loader = Loader::builder(quiet).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let AroundBatch { quiet: Silence, number } = batch.tensors();
    assert_eq!(number.as_slice(), [7]);
}

/// Defines a sample in a macro, so that its names have a different hygiene than those of the
/// caller.
macro_rules! sample {
    ($name:ident, $lifetime:lifetime, $field:ident: $type:ty) => {
        #[derive(Sample)]
        struct $name<$lifetime> {
            $field: $type,
            row: &$lifetime [i64],
        }
    };
}

sample!(Made, 'a, fields: &'a [u8; 2]);

#[test]
fn structs_made_by_a_macro_can_derive_sample() {
    let names: Vec<String> =
        Fields::of(&Made { fields: &[1, 2], row: &[3] }).as_slice().iter().map(|field| format!("{field}")).collect();
    assert_eq!(names, ["fields: u8 [2]", "row: i64 [1]"]);
}
