//! Samples that can be packed: one sequence of tokens, or several of the same length.

use std::borrow::Cow;
use std::ops::Range;

use slotline::BoxError;
use slotline::dtype::{Element, element};
use slotline::sample::{Fields, Packed, PaddedToLongest, PaddedToMax, Row, Schema};
use slotline::tensor::TensorView;
use slotline::up_to_eight;

/// A sample that can be packed with others into one row: a sequence of tokens, or several of the
/// same length, such as tokens and labels.
///
/// | sample | fields of a bin of `capacity` |
/// |---|---|
/// | `&[T]`, `Vec<T>`, `Cow<[T]>`, a [`TensorView`] of one dimension | `T [capacity]` |
/// | [`PaddedToMax`], [`PaddedToLongest`], [`Packed`] of single elements | `T [capacity]` |
/// | a tuple of up to eight of these | one for each |
pub trait Document {
    /// The schema of the packed fields.
    type Schema: Schema;

    /// The number of sequences.
    const SEQUENCES: usize;

    /// Returns the number of tokens: the length of each sequence.
    ///
    /// # Errors
    ///
    /// If the sequences have different lengths, or more than one dimension.
    fn tokens(&self) -> Result<usize, BoxError>;

    /// Lists the fields, one for each sequence.
    fn declare_bin(capacity: usize, fields: &mut Fields);

    /// Writes some of the tokens of each sequence into a row, from token `at` of the row on.
    ///
    /// # Errors
    ///
    /// If the row has other fields.
    fn write_bin(&self, tokens: Range<usize>, bin: &mut BinRow<'_, '_>, at: usize) -> Result<(), BoxError>;

    /// Fills the rest of each sequence's row, from token `from` on.
    ///
    /// # Errors
    ///
    /// If the row has other fields, or a number is not one of the field's type.
    fn pad_bin(bin: &mut BinRow<'_, '_>, from: usize) -> Result<(), BoxError>;
}

/// The packed fields of a row, which [`Document`]s write.
#[derive(Debug)]
pub struct BinRow<'r, 'a> {
    row: &'r mut Row<'a>,
    /// The index of the first packed field.
    first: usize,
    /// The index of the sequence that is written next.
    next: usize,
    capacity: usize,
    /// The padding number of each sequence; 0 for sequences beyond the end of the slice.
    padding: &'r [i64],
}

impl<'r, 'a> BinRow<'r, 'a> {
    pub(super) fn new(row: &'r mut Row<'a>, capacity: usize, padding: &'r [i64]) -> Self {
        let first = row.next_field();
        Self { row, first, next: 0, capacity, padding }
    }

    /// Goes back to the first sequence.
    pub(super) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Makes the field at offset `number` from the first packed field the next one, and returns its
    /// row.
    pub(super) fn go_to(&mut self, number: usize) -> &mut Row<'a> {
        self.row.go_to(self.first + number);
        self.row
    }

    /// Returns the row of the next sequence.
    fn sequence<T: Element>(&mut self) -> Result<&mut [T], BoxError> {
        let (number, capacity) = (self.next, self.capacity);
        self.next += 1;
        Ok(self.go_to(number).fill(&[capacity])?)
    }

    /// Writes tokens of the next sequence from token `at` of the row on.
    ///
    /// # Errors
    ///
    /// If the field has another type, or the tokens do not fit.
    pub fn put<T: Element>(&mut self, tokens: &[T], at: usize) -> Result<(), BoxError> {
        let capacity = self.capacity;
        let to = self.sequence()?.get_mut(at..).and_then(|rest| rest.get_mut(..tokens.len()));
        let too_many = || format!("{} tokens from {at} on do not fit into a bin of {capacity}", tokens.len());
        to.ok_or_else(too_many)?.copy_from_slice(tokens);
        Ok(())
    }

    /// Fills the next sequence from token `from` on with its padding.
    ///
    /// # Errors
    ///
    /// If the field has another type, or the padding is not a number of that type.
    pub fn fill<T: Element>(&mut self, from: usize) -> Result<(), BoxError> {
        let (number, padding) = (self.next, self.padding.get(self.next).copied().unwrap_or(0));
        let padding = element::<T>(padding);
        let rest = self.sequence::<T>()?.get_mut(from..).unwrap_or_default();
        let padding = padding.ok_or_else(|| {
            format!("the padding of sequence {number} is no {}; set `padding` to numbers that are", T::DTYPE)
        })?;
        rest.fill(padding);
        Ok(())
    }
}

/// Implements `Document` for types that are one sequence.
macro_rules! sequences {
    ($($type:ty, |$it:ident| $tokens:expr;)*) => {$(
        impl<T: Element> Document for $type {
            type Schema = T;

            const SEQUENCES: usize = 1;

            fn tokens(&self) -> Result<usize, BoxError> {
                let $it = self;
                $tokens.map(<[T]>::len)
            }

            fn declare_bin(capacity: usize, fields: &mut Fields) {
                fields.fixed(T::DTYPE, &[capacity]);
            }

            fn write_bin(&self, tokens: Range<usize>, bin: &mut BinRow<'_, '_>, at: usize) -> Result<(), BoxError> {
                let $it = self;
                bin.put(&$tokens?[tokens], at)
            }

            fn pad_bin(bin: &mut BinRow<'_, '_>, from: usize) -> Result<(), BoxError> {
                bin.fill::<T>(from)
            }
        }
    )*};
}

sequences! {
    &[T], |it| Ok::<&[T], BoxError>(it);
    Vec<T>, |it| Ok::<&[T], BoxError>(it);
    Cow<'_, [T]>, |it| Ok::<&[T], BoxError>(it);
    PaddedToMax<'_, T>, |it| Ok::<&[T], BoxError>(it.as_slice());
    PaddedToLongest<'_, T>, |it| Ok::<&[T], BoxError>(it.as_slice());
    Packed<'_, T>, |it| flat(it.as_slice(), it.item_shape().len());
    TensorView<'_, T>, |it| flat(it.as_slice(), it.shape().len().wrapping_sub(1));
}

/// Returns the elements as they are. Returns an error if they have dimensions besides the one that
/// counts tokens.
fn flat<T>(elements: &[T], others: usize) -> Result<&[T], BoxError> {
    if others == 0 {
        return Ok(elements);
    }
    Err("tokens with a shape can't be packed; pack sequences of single elements".into())
}

macro_rules! tuples {
    ($($($name:ident $place:tt),*;)*) => {$(
        impl<$($name: Document),*> Document for ($($name,)*) {
            type Schema = ($($name::Schema,)*);

            const SEQUENCES: usize = 0 $(+ $name::SEQUENCES)*;

            fn tokens(&self) -> Result<usize, BoxError> {
                let lengths = [$(self.$place.tokens()?),*];
                match lengths.iter().find(|&&length| length != lengths[0]) {
                    Some(other) => {
                        let error = format!("the sequences of a document have {} and {other} tokens; give all the same", lengths[0]);
                        Err(error.into())
                    }
                    None => Ok(lengths[0]),
                }
            }

            fn declare_bin(capacity: usize, fields: &mut Fields) {
                $(fields.named_by($place, |fields| $name::declare_bin(capacity, fields));)*
            }

            fn write_bin(&self, tokens: Range<usize>, bin: &mut BinRow<'_, '_>, at: usize) -> Result<(), BoxError> {
                $(self.$place.write_bin(tokens.clone(), bin, at)?;)*
                Ok(())
            }

            fn pad_bin(bin: &mut BinRow<'_, '_>, from: usize) -> Result<(), BoxError> {
                $($name::pad_bin(bin, from)?;)*
                Ok(())
            }
        }
    )*};
}

up_to_eight!(tuples);
