//! `default_collate`: collates a batch of values into one value.

use slotline::BoxError;
use slotline::array::{AnyArray, StackError};

use crate::collator::Collator;
use crate::path::{Place, To};
use crate::tree::describe;
use crate::{CollateError, Items, MAX_DEPTH, Path, Value};

/// Collates the samples of a batch into one value, as torch's `default_collate` does. The [crate's documentation](crate)
/// lists the rules.
///
/// ```
/// use slotline_value::{Value, default_collate};
///
/// let batch = default_collate([(1, "a"), (2, "b")])?;
/// assert_eq!(batch, Value::list([Value::from([1_i64, 2]), Value::list(["a", "b"])]));
///
/// let error = default_collate([vec![1, 2, 3], vec![4]]).unwrap_err().to_string();
/// assert!(error.starts_with("element 1: each tensor of a batch must be of equal size"));
/// # Ok::<(), slotline_value::CollateError>(())
/// ```
///
/// # Errors
///
/// See [`CollateError`]. An empty batch is also an error.
pub fn default_collate<V: Into<Value>>(samples: impl IntoIterator<Item = V>) -> Result<Value, CollateError> {
    Collator::new().collate(samples)
}

/// The collation of the values at one place (one key or index) in the samples of a batch. A collate
/// function uses it to collate the values inside its own values.
#[derive(Debug)]
pub struct Collation<'a> {
    collator: &'a Collator,
    place: Place<'a>,
    /// The number of collations that enclose this one.
    depth: usize,
}

impl<'a> Collation<'a> {
    pub(crate) fn new(collator: &'a Collator) -> Self {
        Self { collator, place: Place::TOP, depth: 0 }
    }

    /// Collates a batch of values at this place, with the user's function for them if there is one.
    ///
    /// # Errors
    ///
    /// See [`CollateError`].
    pub fn collate(&self, batch: &[&Value]) -> Result<Value, CollateError> {
        let first = batch.first().ok_or(CollateError::Empty)?;
        let inner = self.deeper(MAX_DEPTH)?;
        match self.collator.function(first) {
            Some(function) => function(batch, &inner).map_err(|error| inner.failed(first, error)),
            None => inner.collate_default(batch),
        }
    }

    /// Collates a batch of values at this place by the rule of [`default_collate`], even if there
    /// is a user's function for them. Values inside these values are collated as usual, with the
    /// user's functions.
    ///
    /// # Errors
    ///
    /// See [`CollateError`].
    pub fn collate_default(&self, batch: &[&Value]) -> Result<Value, CollateError> {
        let first = batch.first().ok_or(CollateError::Empty)?;
        match first {
            Value::Bool(_) => Ok(self.each(batch, Value::as_bool)?.into()),
            Value::Int(_) => Ok(self.each(batch, Value::as_int)?.into()),
            Value::Float(_) => Ok(self.each(batch, Value::as_float)?.into()),
            Value::Text(_) => self.each(batch, |value| value.as_str().map(|_| value)).map(Value::list),
            Value::Bytes(_) => self.each(batch, |value| value.as_bytes().map(|_| value)).map(Value::list),
            Value::Tensor(_) => self.stack(&self.each(batch, Value::as_tensor)?),
            Value::Map(first) => {
                let maps = self.each(batch, Value::as_map)?;
                let columns = first.keys().map(|key| {
                    let missing = |sample| CollateError::MissingKey { path: self.path(), sample, key: key.to_owned() };
                    let below = maps.iter().enumerate().map(|(i, map)| map.get(key).ok_or_else(|| missing(i)));
                    self.at_key(key).collate(&below.collect::<Result<Vec<_>, _>>()?)
                });
                Ok(Value::Map(first.with_values(columns.collect::<Result<_, _>>()?)))
            }
            Value::Named(first) => {
                let alike = self.each(batch, |value| value.as_named().filter(|named| first.same_type(named)))?;
                let columns = first.fields().keys().enumerate().map(|(i, key)| {
                    let below: Vec<_> = alike.iter().map(|named| &named.fields().values()[i]).collect();
                    self.at_key(key).collate(&below)
                });
                Ok(Value::Named(first.with_values(columns.collect::<Result<_, _>>()?)))
            }
            Value::Tuple(_) => self.transpose(
                &self.each(batch, |value| if let Value::Tuple(items) = value { Some(items) } else { None })?,
            ),
            Value::List(_) => self
                .transpose(&self.each(batch, |value| if let Value::List(items) = value { Some(items) } else { None })?),
            Value::Custom(custom) => {
                // One more level, since a leaf may be at the maximum depth of `collate`.
                let inner = self.deeper(MAX_DEPTH + 1)?;
                custom.collate(batch, &inner).map_err(|error| self.failed(first, error))
            }
        }
    }

    /// Returns this place one level deeper. The limit also stops functions that call each other
    /// endlessly.
    fn deeper(&self, most: usize) -> Result<Collation<'_>, CollateError> {
        if self.depth > most {
            return Err(CollateError::TooDeep { path: self.path() });
        }
        Ok(Collation { depth: self.depth + 1, ..*self })
    }

    /// Stacks a batch of tensors into one tensor.
    fn stack(&self, tensors: &[&AnyArray]) -> Result<Value, CollateError> {
        let stacked = AnyArray::stack(tensors.iter().map(|tensor| tensor.view()));
        stacked.map(Value::from).map_err(|error| match error {
            StackError::Empty => CollateError::Empty,
            StackError::DType { at: sample, expected, found } => {
                CollateError::DType { path: self.path(), sample, expected, found }
            }
            StackError::Shape { at: sample, expected, found } => {
                CollateError::Shape { path: self.path(), sample, expected, found }
            }
            StackError::Result(source) => CollateError::Stack { path: self.path(), source },
            StackError::Memory { tensors: samples, bytes } => {
                CollateError::Memory { path: self.path(), samples, bytes }
            }
        })
    }

    /// Turns a batch of lists into a list of batches.
    fn transpose(&self, lists: &[&Items]) -> Result<Value, CollateError> {
        let expected = lists[0].len();
        if let Some((sample, list)) = lists.iter().enumerate().find(|(_, list)| list.len() != expected) {
            return Err(CollateError::Length { path: self.path(), sample, expected, found: list.len() });
        }
        let columns = (0..expected).map(|i| {
            let below: Vec<_> = lists.iter().map(|list| &list[i]).collect();
            self.at_index(i).collate(&below)
        });
        Ok(Value::List(columns.collect::<Result<_, _>>()?))
    }

    /// Returns the result of `get` for each value of the batch.
    ///
    /// # Errors
    ///
    /// Returns [`CollateError::Mixed`] if `get` returns `None` for one of them.
    pub fn each<'v, T>(
        &self,
        batch: &[&'v Value],
        get: impl Fn(&'v Value) -> Option<T>,
    ) -> Result<Vec<T>, CollateError> {
        let found = batch.iter().enumerate().map(|(sample, value)| {
            get(value).ok_or_else(|| CollateError::Mixed {
                path: self.path(),
                sample,
                expected: describe(batch[0]),
                found: describe(value),
            })
        });
        found.collect()
    }

    /// Returns the collation of the values under `key`.
    pub fn at_key<'s>(&'s self, key: &'s str) -> Collation<'s> {
        Collation { place: self.place.at(To::Key(key)), ..*self }
    }

    /// Returns the collation of the values at index `i`.
    pub fn at_index(&self, i: usize) -> Collation<'_> {
        Collation { place: self.place.at(To::Index(i)), ..*self }
    }

    /// Returns the path from the sample to this place.
    pub fn path(&self) -> Path {
        self.place.path()
    }

    /// Returns the error for a type that cannot be collated.
    pub(crate) fn unsupported(&self, found: &str) -> CollateError {
        CollateError::Unsupported { path: self.path(), found: found.to_owned() }
    }

    /// Wraps an error of a user's function. A [`CollateError`] from inside the value is passed on unchanged.
    fn failed(&self, first: &Value, error: BoxError) -> CollateError {
        match error.downcast() {
            Ok(known) => *known,
            Err(source) => CollateError::Custom { path: self.path(), what: describe(first), source },
        }
    }
}

#[cfg(test)]
mod tests {
    use slotline::array::Array;
    use slotline::shape::ShapeError;

    use super::*;

    #[test]
    fn a_batch_larger_than_memory_is_an_error() {
        let sample = Value::from(vec![0_u8; 1 << 24]);
        let error = default_collate(vec![sample; 1 << 20]).unwrap_err();
        assert!(matches!(&error, CollateError::Memory { bytes, .. } if *bytes == 1 << 44), "{error}");
    }

    #[test]
    fn impossible_batch_shapes_are_errors() {
        let hollow = Value::from(Array::<u8>::new(vec![], &[0, isize::MAX as usize]).unwrap());
        assert!(default_collate([&hollow]).is_ok());
        let error = default_collate([&hollow, &hollow]).unwrap_err();
        assert!(matches!(error, CollateError::Stack { source: ShapeError::TooLarge { .. }, .. }), "{error}");
        let full = Value::from(Array::new(vec![1_u8], &[1; 8]).unwrap());
        let error = default_collate([full]).unwrap_err();
        assert!(matches!(error, CollateError::Stack { source: ShapeError::TooManyDims { .. }, .. }), "{error}");
    }
}
