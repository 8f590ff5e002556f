//! Element types, fields and tensors as C structs.

pub(crate) mod dtype;
pub(crate) mod field;
pub(crate) mod tensor;

pub use self::dtype::*;
pub use self::field::*;
pub use self::tensor::*;
