//! User-defined types in a value.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use slotline::BoxError;

use crate::collate::Collation;
use crate::{CollateError, Value};

/// A user-defined type that a [`Value`] can hold. It defines how such values are collated, converted and pinned.
///
/// By default, values of the type cannot be collated, and converting or pinning leaves them unchanged. A
/// [`Collator`](crate::Collator) can override how the type is collated.
///
/// ```
/// use slotline::BoxError;
/// use slotline_value::{Collation, CustomValue, Value, default_collate};
///
/// #[derive(Debug)]
/// struct Sentence(Vec<i64>);
///
/// impl CustomValue for Sentence {
///     /// Concatenates all words, and records where each sentence ends.
///     fn collate(batch: &[&Self], _: &Collation<'_>) -> Result<Value, BoxError> {
///         let words: Vec<i64> = batch.iter().flat_map(|sentence| sentence.0.iter().copied()).collect();
///         let ends = batch.iter().scan(0, |end, sentence| {
///             *end += sentence.0.len() as i64;
///             Some(*end)
///         });
///         Ok(Value::map([("words", words.into()), ("ends", ends.collect::<Vec<_>>().into())]))
///     }
/// }
///
/// let batch = default_collate([Value::custom(Sentence(vec![3, 1])), Value::custom(Sentence(vec![4]))])?;
/// assert_eq!(batch, Value::map([("words", [3_i64, 1, 4].into()), ("ends", [2_i64, 3].into())]));
/// # Ok::<(), slotline_value::CollateError>(())
/// ```
pub trait CustomValue: Any + Send + Sync + fmt::Debug + Sized {
    /// Collates a batch of these values, which is not empty. `collation` collates the values inside them.
    ///
    /// # Errors
    ///
    /// Any error becomes the source of a [`CollateError::Custom`] that names the path to the value.
    /// The default implementation returns [`CollateError::Unsupported`].
    fn collate(batch: &[&Self], collation: &Collation<'_>) -> Result<Value, BoxError> {
        let _ = batch;
        Err(collation.unsupported(type_name::<Self>()).into())
    }

    /// Converts a sample that is not batched. By default it is left unchanged.
    ///
    /// # Errors
    ///
    /// Any error becomes the source of a [`CollateError::Custom`] that names the path to the value.
    fn convert(self: Arc<Self>) -> Result<Value, BoxError> {
        Ok(self.into())
    }

    /// Moves the value to pinned memory. By default it is left unchanged.
    ///
    /// # Errors
    ///
    /// Any error becomes the source of a [`PinError::Custom`](crate::PinError::Custom) that names the path to the value.
    fn pin_memory(self: Arc<Self>) -> Result<Value, BoxError> {
        Ok(self.into())
    }
}

/// A value of a type that implements [`CustomValue`]. Clones share the value.
#[derive(Clone)]
pub struct Custom(Arc<dyn Erased>);

/// [`CustomValue`] without its type.
trait Erased: Any + Send + Sync + fmt::Debug {
    fn type_name(&self) -> &'static str;
    fn collate(&self, batch: &[&Value], collation: &Collation<'_>) -> Result<Value, BoxError>;
    fn convert(self: Arc<Self>) -> Result<Value, BoxError>;
    fn pin_memory(self: Arc<Self>) -> Result<Value, BoxError>;
}

impl<T: CustomValue> Erased for T {
    fn type_name(&self) -> &'static str {
        type_name::<T>()
    }

    fn collate(&self, batch: &[&Value], collation: &Collation<'_>) -> Result<Value, BoxError> {
        T::collate(&all::<T>(batch, collation)?, collation)
    }

    fn convert(self: Arc<Self>) -> Result<Value, BoxError> {
        T::convert(self)
    }

    fn pin_memory(self: Arc<Self>) -> Result<Value, BoxError> {
        T::pin_memory(self)
    }
}

impl Custom {
    /// Returns the name of the value's Rust type.
    pub fn type_name(&self) -> &'static str {
        self.0.type_name()
    }

    /// Returns the value if it is a `T`.
    pub fn downcast_ref<T: CustomValue>(&self) -> Option<&T> {
        self.as_any().downcast_ref()
    }

    pub(crate) fn as_any(&self) -> &dyn Any {
        &*self.0
    }

    /// Collates a batch whose first sample has this value.
    pub(crate) fn collate(&self, batch: &[&Value], collation: &Collation<'_>) -> Result<Value, BoxError> {
        self.0.collate(batch, collation)
    }

    pub(crate) fn convert(&self) -> Result<Value, BoxError> {
        self.0.clone().convert()
    }

    pub(crate) fn pin_memory(&self) -> Result<Value, BoxError> {
        self.0.clone().pin_memory()
    }
}

impl<T: CustomValue> From<Arc<T>> for Custom {
    fn from(value: Arc<T>) -> Self {
        Self(value)
    }
}

impl PartialEq for Custom {
    /// Returns whether both are clones of the same value.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0)) && self.type_name() == other.type_name()
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Downcasts all values of the batch to `T`.
pub(crate) fn all<'v, T: CustomValue>(
    batch: &[&'v Value],
    collation: &Collation<'_>,
) -> Result<Vec<&'v T>, CollateError> {
    collation.each(batch, |value| value.as_custom::<T>())
}
