//! [`CollateValues`]: a loader option that collates values.

use slotline::BoxError;
use slotline::dataset::Loadable;
use slotline::loader::{Builder, Samples, With};

use crate::{Value, default_collate, default_convert};

/// Lets a [`Builder`] make batches of [`Value`]s.
pub trait CollateValues<D: Loadable> {
    /// Collates samples as torch's `default_collate` does, by their types at run time. The samples must be values, or
    /// convert into values.
    ///
    /// Without batching, each sample is converted with [`default_convert`]. With
    /// [`pin_memory`](Builder::pin_memory), the tensors are pinned. To use custom functions for
    /// some types, call a [`Collator`](crate::Collator) in a [collate](Builder::collate) function.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline_value::{CollateValues, Value};
    ///
    /// let dataset = from_fn(5, |index, _| Ok(Value::map([("x", (index as i64).into()), ("name", "five".into())])));
    /// let mut loader = Loader::builder(dataset).batch_size(2).collate_values().build()?;
    /// let batch = loader.epoch()?.next().expect("three batches")?;
    /// assert_eq!(batch.get("x").expect("a key").as_tensor().expect("numbers").shape(), [2]);
    /// assert_eq!(batch.get("name"), Some(&Value::list(["five", "five"])));
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    fn collate_values(self) -> Builder<D, Values<D>>
    where
        Value: for<'a> From<D::Item<'a>>;
}

/// The collate step of a loader built with [`collate_values`](CollateValues::collate_values).
pub type Values<D> = With<fn(&mut Samples<'_, D>) -> Result<Value, BoxError>, Value>;

impl<D: Loadable> CollateValues<D> for Builder<D> {
    fn collate_values(self) -> Builder<D, Values<D>>
    where
        Value: for<'a> From<D::Item<'a>>,
    {
        let collate: fn(&mut Samples<'_, D>) -> _ = collated;
        self.collate(collate).pin_memory_with(|batch| {
            *batch = std::mem::replace(batch, Value::Bool(false)).pin_memory()?;
            Ok(())
        })
    }
}

/// Collates the samples as values, or converts a single sample without batching.
fn collated<D: Loadable>(samples: &mut Samples<'_, D>) -> Result<Value, BoxError>
where
    Value: for<'a> From<D::Item<'a>>,
{
    // An iterable dataset may return far fewer samples than the batch size.
    let mut values = Vec::with_capacity(samples.len().min(1024));
    samples.for_each(|sample| {
        values.push(Value::from(sample));
        Ok(())
    })?;
    match values.pop_if(|_| samples.is_single()) {
        Some(sample) => Ok(default_convert(sample)?),
        None => Ok(default_collate(values)?),
    }
}
