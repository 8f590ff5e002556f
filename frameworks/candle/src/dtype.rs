//! The element types that slotline and candle have in common.

use slotline::tensor::{AnyTensorView, TensorView};

/// Evaluates an expression of type `Result<_, Error>` with candle's type for a field's elements. If
/// candle has no such type, the result is an error that names the field.
macro_rules! with_type {
    ($field:expr, $T:ident => $body:expr) => {
        with_type!(
            $field, $T => $body;
            Bool u8, U8 u8, I16 i16, I32 i32, U32 u32, I64 i64, F16 half::f16, BF16 half::bf16, F32 f32, F64 f64
        )
    };
    ($field:expr, $T:ident => $body:expr; $($variant:ident $type:ty),*) => {
        match $field.dtype() {
            $(slotline::dtype::DType::$variant => {
                type $T = $type;
                $body
            })*
            dtype => Err($crate::Error::DType { field: $field.name().to_owned(), dtype, library: "candle".to_owned() }),
        }
    };
}

pub(crate) use with_type;

/// Returns a view whose elements are numbers: `bool` as `u8`, other types unchanged.
pub(crate) fn numbers<'a>(view: &AnyTensorView<'a>) -> AnyTensorView<'a> {
    match view.typed::<bool>() {
        Some(_) => TensorView::new(view.bytes(), view.shape()).expect("a bool is a byte").into(),
        None => view.clone(),
    }
}
