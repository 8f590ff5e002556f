//! [`Collator`]: chooses the function that collates each value.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use slotline::BoxError;

use crate::custom::all;
use crate::{CollateError, Collation, CustomValue, Kind, Value};

/// A function from a batch to one value.
pub(crate) type Function = dyn Fn(&[&Value], &Collation<'_>) -> Result<Value, BoxError> + Send + Sync;

/// A [`default_collate`](crate::default_collate) with custom functions for some [kinds](Kind) of values, or for some
/// types of [custom values](CustomValue), like torch's `collate_fn_map`.
///
/// A function is called for each place in the samples where such a value occurs. It gets the values at that place, one
/// from each sample of the batch (so at least one), and a [`Collation`] to collate the values inside them.
///
/// ```
/// use slotline_value::{Collator, Kind, Value};
///
/// // Joins the texts of a batch into one text, with a line for each sample.
/// let collator = Collator::new().with_kind(Kind::Text, |batch, collation| {
///     Ok(Value::from(collation.each(batch, Value::as_str)?.join("\n")))
/// });
/// assert_eq!(collator.collate([("one", 1), ("two", 2)])?, Value::list(["one\ntwo".into(), Value::from([1_i64, 2])]));
/// # Ok::<(), slotline_value::CollateError>(())
/// ```
#[derive(Clone, Default)]
pub struct Collator {
    kinds: HashMap<Kind, Arc<Function>>,
    types: HashMap<TypeId, (&'static str, Arc<Function>)>,
}

impl Collator {
    /// Creates a collator that works as [`default_collate`](crate::default_collate), without custom functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Collates with `function` wherever the first sample of the batch has a value of this kind.
    ///
    /// Only the first value is certain to be of this kind. Use [`Collation::each`] to return an
    /// error if another value of the batch is not.
    pub fn with_kind(
        mut self,
        kind: Kind,
        function: impl Fn(&[&Value], &Collation<'_>) -> Result<Value, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.insert(kind, Arc::new(function));
        self
    }

    /// Collates custom values of type `T` with `function`, instead of [`CustomValue::collate`] or a function for
    /// [`Kind::Custom`].
    pub fn with_type<T: CustomValue>(
        mut self,
        function: impl Fn(&[&T], &Collation<'_>) -> Result<Value, BoxError> + Send + Sync + 'static,
    ) -> Self {
        let function =
            move |batch: &[&Value], collation: &Collation<'_>| function(&all::<T>(batch, collation)?, collation);
        self.types.insert(TypeId::of::<T>(), (std::any::type_name::<T>(), Arc::new(function)));
        self
    }

    /// Collates the samples of a batch into one value.
    ///
    /// # Errors
    ///
    /// See [`CollateError`].
    pub fn collate<V: Into<Value>>(&self, samples: impl IntoIterator<Item = V>) -> Result<Value, CollateError> {
        let samples: Vec<Value> = samples.into_iter().map(Into::into).collect();
        Collation::new(self).collate(&samples.iter().collect::<Vec<_>>())
    }

    /// Returns the user's function for values like this one, if there is one.
    pub(crate) fn function(&self, value: &Value) -> Option<&Function> {
        let by_type = match value {
            Value::Custom(custom) => self.types.get(&custom.as_any().type_id()).map(|(_, function)| function),
            _ => None,
        };
        by_type.or_else(|| self.kinds.get(&value.kind())).map(|function| &**function)
    }
}

impl fmt::Debug for Collator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.types.values().map(|(name, _)| name).collect();
        let kinds: Vec<_> = self.kinds.keys().collect();
        f.debug_struct("Collator").field("kinds", &kinds).field("types", &types).finish()
    }
}
