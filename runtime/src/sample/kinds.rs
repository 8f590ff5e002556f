//! Implementations of `Sample` for numbers, arrays, slices, tensors and tuples, and [`Lazy`].

use std::fmt;
use std::marker::PhantomData;

use super::{Columns, Fields, Row, Sample, Schema};
use crate::BoxError;
use crate::array::{AnyArray, Array};
use crate::dtype::Element;
use crate::tensor::{AnyTensorView, TensorView};
use crate::tuples::up_to_eight;

impl<T: Element> Sample for T {
    type Schema = T;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(T::DTYPE, &[]);
    }

    #[inline(always)] // So that the row's fields can stay in registers.
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        Ok(row.write_one(self)?)
    }
}

impl<T: Element> Schema for T {
    type Tensors<'b> = TensorView<'b, T>;

    #[inline(always)]
    fn tensors<'b>(columns: &mut Columns<'b>) -> TensorView<'b, T> {
        columns.take()
    }
}

/// Implements `Sample` for types that hold a slice of one element type and its shape.
macro_rules! dense {
    ($({$($generics:tt)*} $type:ty, $element:ty, |$it:ident| $data:expr, $shape:expr;)*) => {$(
        impl<$($generics)*> Sample for $type {
            type Schema = $element;

            #[allow(unused_variables)] // Arrays have a constant shape, and do not use it.
            fn declare(&self, fields: &mut Fields) {
                let $it = self;
                fields.fixed(<$element as Element>::DTYPE, $shape);
            }

            #[inline]
            fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
                let $it = &self;
                Ok(row.write($data, $shape)?)
            }
        }
    )*};
}

dense! {
    {T: Element, const N: usize} [T; N], T, |it| &it[..], &[N];
    {T: Element, const M: usize, const N: usize} [[T; M]; N], T, |it| it.as_flattened(), &[N, M];
    {T: Element, const N: usize} &[T; N], T, |it| &it[..], &[N];
    {T: Element} &[T], T, |it| it, &[it.len()];
    {T: Element} Vec<T>, T, |it| it, &[it.len()];
    {T: Element} TensorView<'_, T>, T, |it| it.as_slice(), it.shape();
    {T: Element} Array<T>, T, |it| it.as_slice(), it.shape();
    {T: Element} &Array<T>, T, |it| it.as_slice(), it.shape();
}

/// Implements `Sample` for tensors whose dtype is known at run time.
macro_rules! any {
    ($($type:ty, |$it:ident| $view:expr;)*) => {$(
        impl Sample for $type {
            type Schema = AnyTensorView<'static>;

            fn declare(&self, fields: &mut Fields) {
                fields.fixed(self.dtype(), self.shape());
            }

            #[inline]
            fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
                let $it = &self;
                Ok(row.write_any($view)?)
            }
        }
    )*};
}

any! {
    AnyTensorView<'_>, |it| it;
    AnyArray, |it| &it.view();
    &AnyArray, |it| &it.view();
}

impl Schema for AnyTensorView<'static> {
    type Tensors<'b> = AnyTensorView<'b>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> AnyTensorView<'b> {
        columns.take_any()
    }
}

/// A sample that is decoded directly into its row, by a function that fills a slice of `T`.
///
/// ```
/// use slotline::sample::Lazy;
///
/// /// Bytes as numbers between 0 and 1, written directly into the batch.
/// fn scaled(bytes: &[u8; 4]) -> Lazy<f32, impl FnOnce(&mut [f32]) -> Result<(), slotline::BoxError>, 2> {
///     Lazy::new([2, 2], move |out| {
///         out.iter_mut().zip(bytes).for_each(|(to, &from)| *to = f32::from(from) / 255.0);
///         Ok(())
///     })
/// }
/// ```
///
/// The function must write every element, since the memory still contains elements of an earlier
/// batch.
pub struct Lazy<T, F, const N: usize> {
    shape: [usize; N],
    decode: F,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, F: FnOnce(&mut [T]) -> Result<(), BoxError>, const N: usize> Lazy<T, F, N> {
    /// Makes a sample of this shape, which `decode` writes in C order.
    pub fn new(shape: [usize; N], decode: F) -> Self {
        Self { shape, decode, element: PhantomData }
    }
}

impl<T: Element, F: FnOnce(&mut [T]) -> Result<(), BoxError>, const N: usize> Sample for Lazy<T, F, N> {
    type Schema = T;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(T::DTYPE, &self.shape);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        (self.decode)(row.fill(&self.shape)?)
    }
}

impl<T, F, const N: usize> fmt::Debug for Lazy<T, F, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("shape", &self.shape).finish_non_exhaustive()
    }
}

macro_rules! tuples {
    ($($($name:ident $field:tt),*;)*) => {$(
        impl<$($name: Sample),*> Sample for ($($name,)*) {
            type Schema = ($($name::Schema,)*);

            #[allow(unused_variables)]
            fn declare(&self, fields: &mut Fields) {
                $(fields.named($field, &self.$field);)*
            }

            #[inline(always)]
            #[allow(unused_variables)]
            fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
                $(self.$field.write(row)?;)*
                Ok(())
            }
        }

        impl<$($name: Schema),*> Schema for ($($name,)*) {
            type Tensors<'b> = ($($name::Tensors<'b>,)*);

            #[inline(always)]
            #[allow(unused_variables, clippy::unused_unit)]
            fn tensors<'b>(columns: &mut Columns<'b>) -> Self::Tensors<'b> {
                ($($name::tensors(columns),)*)
            }
        }
    )*};
}

tuples! { ; }
up_to_eight!(tuples);
