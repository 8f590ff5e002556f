//! Conversions into [`Value`].

use std::sync::Arc;

use slotline::array::{AnyArray, Array};
use slotline::dtype::Element;
use slotline::sample::{AnyRow, ArrayRow};
use slotline::tensor::{AnyTensorView, TensorView};

#[cfg(feature = "num-complex")]
use num_complex::Complex;

use crate::{Custom, CustomValue, Items, Map, Named, Value};

macro_rules! from {
    ($($type:ty, |$it:ident| $value:expr;)*) => {$(
        impl From<$type> for Value {
            fn from($it: $type) -> Self {
                $value
            }
        }
    )*};
}

from! {
    bool, |it| Self::Bool(it);
    i8, |it| Self::Int(it.into());
    i16, |it| Self::Int(it.into());
    i32, |it| Self::Int(it.into());
    i64, |it| Self::Int(it);
    u8, |it| Self::Int(it.into());
    u16, |it| Self::Int(it.into());
    u32, |it| Self::Int(it.into());
    u64, |it| tensor(vec![it], &[]);
    f32, |it| Self::Float(it.into());
    f64, |it| Self::Float(it);
    &str, |it| Self::Text(it.into());
    String, |it| Self::Text(it.into());
    Arc<str>, |it| Self::Text(it);
    Map, |it| Self::Map(it);
    Named, |it| Self::Named(it);
    Custom, |it| Self::Custom(it);
    AnyArray, |it| Self::Tensor(Arc::new(it));
    Arc<AnyArray>, |it| Self::Tensor(it);
    &Value, |it| it.clone();
    Items, |it| Self::List(it);
    Vec<Value>, |it| Self::List(it.into());
    &[Value], |it| Self::list(it);
    Vec<String>, |it| Self::list(it);
    Vec<&str>, |it| Self::list(it);
    (), |_it| Self::Tuple(Items::default());
}

#[cfg(feature = "half")]
from! {
    half::f16, |it| Self::Float(it.into());
    half::bf16, |it| Self::Float(it.into());
}

#[cfg(feature = "num-complex")]
from! {
    Complex<f32>, |it| tensor(vec![it], &[]);
    Complex<f64>, |it| tensor(vec![it], &[]);
}

impl<T: CustomValue> From<Arc<T>> for Value {
    fn from(value: Arc<T>) -> Self {
        Self::Custom(value.into())
    }
}

impl<const N: usize> From<[Value; N]> for Value {
    fn from(items: [Value; N]) -> Self {
        Self::list(items)
    }
}

impl<const N: usize> From<[&str; N]> for Value {
    fn from(items: [&str; N]) -> Self {
        Self::list(items)
    }
}

/// An [`Element`] whose vectors, slices and arrays convert into tensor values with `From`.
///
/// Every `Element` type of slotline implements it, `f16` and `bf16` with the feature `half`, and complex numbers with the
/// feature `num-complex`. It is a separate trait so that the compiler can distinguish these vectors from vectors of texts,
/// which become lists.
pub trait Scalar: Element {}

macro_rules! scalars {
    ($($type:ty),*) => { $(impl Scalar for $type {})* };
}

scalars!(bool, u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

#[cfg(feature = "half")]
scalars!(half::f16, half::bf16);

#[cfg(feature = "num-complex")]
scalars!(Complex<f32>, Complex<f64>);

fn tensor<T: Element>(data: Vec<T>, shape: &[usize]) -> Value {
    Array::new(data, shape).expect("the shape of the data itself").into()
}

/// Implements `From` for types that become one tensor.
macro_rules! dense {
    ($({$($generics:tt)*} $type:ty, |$it:ident| $value:expr;)*) => {$(
        impl<$($generics)*> From<$type> for Value {
            fn from($it: $type) -> Self {
                $value
            }
        }
    )*};
}

dense! {
    {T: Element} Array<T>, |it| AnyArray::from(it).into();
    {T: Scalar} Vec<T>, |it| { let len = it.len(); tensor(it, &[len]) };
    {T: Scalar} &[T], |it| tensor(it.to_vec(), &[it.len()]);
    {T: Scalar, const N: usize} [T; N], |it| tensor(it.to_vec(), &[N]);
    {T: Scalar, const N: usize} &[T; N], |it| tensor(it.to_vec(), &[N]);
    {T: Scalar, const M: usize, const N: usize} [[T; M]; N], |it| tensor(it.as_flattened().to_vec(), &[N, M]);
    {T: Element} TensorView<'_, T>, |it| tensor(it.as_slice().to_vec(), it.shape());
    {T: Element} ArrayRow<'_, T>, |it| it.tensor().into();
}

impl From<AnyTensorView<'_>> for Value {
    /// Copies the tensor.
    ///
    /// # Panics
    ///
    /// Panics if the memory for the copy cannot be allocated.
    fn from(view: AnyTensorView<'_>) -> Self {
        AnyArray::from(view).into()
    }
}

impl From<AnyRow<'_>> for Value {
    fn from(row: AnyRow<'_>) -> Self {
        Self::tuple(row.tensors())
    }
}

macro_rules! tuples {
    ($($($name:ident $place:tt),*;)*) => {$(
        impl<$($name: Into<Value>),*> From<($($name,)*)> for Value {
            fn from(tuple: ($($name,)*)) -> Self {
                Self::Tuple(vec![$(tuple.$place.into()),*].into())
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    #[cfg(feature = "num-complex")]
    use slotline::dtype::bytes_of;

    #[test]
    fn numbers_convert_without_loss() {
        let ints = [
            Value::from(i8::MIN),
            i16::MIN.into(),
            i32::MIN.into(),
            i64::MIN.into(),
            u8::MAX.into(),
            u16::MAX.into(),
            u32::MAX.into(),
        ];
        let expected =
            [i64::from(i8::MIN), i64::from(i16::MIN), i64::from(i32::MIN), i64::MIN, 255, 65_535, 4_294_967_295];
        assert!(ints.iter().map(|value| value.as_int().unwrap()).eq(expected));
        assert_eq!(Value::from(0.5_f32).as_float(), Some(0.5));
        #[cfg(feature = "half")]
        assert_eq!(
            [half::f16::MAX.into(), half::bf16::MIN.into()].map(|v: Value| v.as_float().unwrap()),
            [65_504.0, -3.3895313892515355e38]
        );
        #[cfg(feature = "num-complex")]
        {
            let batch = crate::default_collate([Complex::new(1.0_f32, -2.0), Complex::new(0.5, 4.0)]).unwrap();
            assert_eq!(batch, [Complex::new(1.0_f32, -2.0), Complex::new(0.5, 4.0)].into());
            assert_eq!(Value::from(Complex::new(1.0_f64, 2.0)).as_tensor().unwrap().bytes(), bytes_of(&[1.0, 2.0]));
        }
        let large = Value::from(u64::MAX);
        assert_eq!((large.typed::<u64>().unwrap()[[]], large.as_tensor().unwrap().shape()), (u64::MAX, &[][..]));
    }

    #[test]
    fn arrays_slices_and_views_become_tensors() {
        let array = Array::new(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
        let any = AnyArray::from(array.clone());
        for value in [
            Value::from(array.clone()),
            array.view().into(),
            any.view().into(),
            [[1.0_f32, 2.0], [3.0, 4.0], [5.0, 6.0]].into(),
            Arc::new(any).into(),
        ] {
            assert_eq!(
                (value.as_tensor().unwrap().shape(), value.typed::<f32>().unwrap()),
                (&[3, 2][..], array.view())
            );
        }
        for value in [Value::from(vec![1_u8, 2]), [1_u8, 2].into(), (&[1_u8, 2]).into(), (&[1_u8, 2][..]).into()] {
            assert_eq!(value.typed::<u8>().unwrap().as_slice(), [1, 2]);
        }
    }

    #[test]
    fn containers_become_containers() {
        let eight = Value::from((1, 2.0, true, "a", String::from("b"), [1_u8], Value::Int(3), ((),)));
        assert_eq!((eight.kind(), eight.len()), (Kind::Tuple, 8));
        assert_eq!(eight.at(7).unwrap().at(0), Some(&Value::from(())));
        for list in [
            Value::from(vec![Value::from("a"), "b".into()]),
            [Value::from("a"), "b".into()].into(),
            vec!["a", "b"].into(),
            ["a", "b"].into(),
            vec!["a".to_owned(), "b".to_owned()].into(),
        ] {
            assert_eq!(list, Value::list(["a", "b"]));
        }
    }

    #[test]
    fn rows_of_arrays_become_tensors() {
        use slotline::dataset::{Context, Dataset, TensorDataset};

        let array = || Array::new((0..12_i32).collect(), &[3, 2, 2]).unwrap();
        let typed = TensorDataset::new((array(), vec![5_i64, 6, 7])).unwrap();
        let any = TensorDataset::new(vec![AnyArray::from(array())]).unwrap();
        let mut cx = Context::default();
        let row = Value::from([[4_i32, 5], [6, 7]]);
        assert_eq!(Value::from(typed.get(1, &mut cx).unwrap()), Value::tuple([row.clone(), 6.into()]));
        assert_eq!(Value::from(any.get(1, &mut cx).unwrap()), Value::tuple([row]));
    }
}
