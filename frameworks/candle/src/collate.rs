//! A function, for a loader's option `collate`, with which workers make tensors.

use std::mem::take;

use candle_core::{Device, Tensor, WithDType};
use slotline::BoxError;
use slotline::dataset::Loadable;
use slotline::dtype::Element;
use slotline::loader::Samples;
use slotline::sample::{OwnedSample, Columns, Field, Fields, Sample};
use slotline::tensor::AnyTensorView;

use crate::dtype::{numbers, with_type};
use crate::{Error, Tensors};

/// Makes tensors in host memory from the samples of a batch. This is a
/// [collate function](slotline::loader::Builder::collate). The shapes are those of the loader's own
/// batches.
///
/// A worker copies each sample into the memory of the tensors. A sample that cannot be decoded, or
/// that has other fields than the first sample of its batch, is a bad sample
/// ([`OnError`](slotline::loader::OnError)). For the limits of collate functions see
/// [`Builder::collate`](slotline::loader::Builder::collate).
///
/// # Errors
///
/// The error of a sample, or [`Error::DType`] for a field whose type candle does not have. Fields
/// that are [padded to the longest sample](slotline::sample::PaddedToLongest) are an error, too,
/// since only the loader's own batches support them; use [`tensors`](crate::tensors) for these.
pub fn collate<D: Loadable>(samples: &mut Samples<'_, D>) -> Result<Tensors<Tensor>, BoxError> {
    let (most, single) = (samples.len(), samples.is_single());
    let mut batch: Option<Result<(OwnedSample, Vec<Column>), BoxError>> = None;
    let mut rows = 0;
    samples.for_each(|sample| {
        // If tensors can't be made at all, this is not treated as a bad sample.
        let Ok((apart, columns)) = batch.get_or_insert_with(|| begin(&sample, most)) else { return Ok(()) };
        if let Err(error) = apart.fill(|row| sample.write(row)) {
            // If there are no rows yet, the next sample determines the fields.
            if rows == 0 {
                batch = None;
            }
            return Err(error);
        }
        let written = apart.columns();
        columns.iter_mut().enumerate().for_each(|(i, column)| column.push(&written, i));
        rows += 1;
        Ok(())
    })?;
    let (apart, mut columns) = batch.ok_or("a batch without samples has no tensors; leave empty batches out")??;
    let tensors = slotline_fields::convert(&apart.columns(), |i, field, ends| {
        let column = &mut columns[i];
        match ends {
            None => column.tensor((!single).then_some(rows), field).map_err(Error::of(field)),
            Some(_) => Tensor::new(take(&mut column.ends), &Device::Cpu).map_err(Error::of(field)),
        }
    });
    Ok(tensors?)
}

/// Allocates a buffer for a sample like this one, and memory for the tensors of `most` samples.
fn begin(sample: &impl Sample, most: usize) -> Result<(OwnedSample, Vec<Column>), BoxError> {
    let apart = OwnedSample::new(Fields::of(sample))?;
    let fields = apart.columns();
    let columns = (0..fields.len()).filter_map(|i| fields.field(i)).map(|field| Column::new(field, most));
    let columns = columns.collect::<Result<_, _>>()?;
    Ok((apart, columns))
}

/// The tensors of a field, with the samples that were written so far.
struct Column {
    elements: Box<dyn Elements>,
    /// The lengths or offsets of the samples, if samples differ in length.
    ends: Vec<i64>,
}

impl Column {
    fn new(field: &Field, most: usize) -> Result<Self, BoxError> {
        if field.is_padded_to_longest() {
            let name = field.name();
            return Err(format!(
                "field {name} is padded to the longest sample of the batch, which slotline_candle::collate cannot do; \
                 use slotline_candle::tensors on the loader's own batches"
            )
            .into());
        }
        let room = field.shape().iter().product::<usize>().saturating_mul(most);
        let elements = with_type!(field, T => Ok(Box::new(Vec::<T>::with_capacity(room)) as Box<dyn Elements>))?;
        Ok(Self { elements, ends: if field.is_packed() { vec![0] } else { Vec::new() } })
    }

    /// Appends field `i` of a sample.
    fn push(&mut self, sample: &Columns<'_>, i: usize) {
        self.elements.push(&numbers(&sample.get(i).expect("there is a column for each field")));
        if let Some(lengths) = sample.lengths(i) {
            self.ends.extend(lengths);
        } else if let Some(&[_, len]) = sample.offsets(i) {
            self.ends.push(self.ends[self.ends.len() - 1] + len);
        }
    }

    /// Makes the tensor of the elements. Its first dimension is `rows`, unless it is a single
    /// sample.
    fn tensor(&mut self, rows: Option<usize>, field: &Field) -> candle_core::Result<Tensor> {
        let (first, rest) = match field.shape() {
            [_, item @ ..] if field.is_packed() => (self.ends.last().map(|&items| items as usize), item),
            shape => (rows, shape),
        };
        let shape: Vec<usize> = first.into_iter().chain(rest.iter().copied()).collect();
        self.elements.tensor(&shape)
    }
}

/// A `Vec` whose elements have a type that candle has.
trait Elements {
    fn push(&mut self, view: &AnyTensorView<'_>);

    /// Moves the elements into a tensor.
    fn tensor(&mut self, shape: &[usize]) -> candle_core::Result<Tensor>;
}

impl<T: Element + WithDType> Elements for Vec<T> {
    fn push(&mut self, view: &AnyTensorView<'_>) {
        self.extend_from_slice(view.typed().expect("all samples have the first one's type").as_slice());
    }

    fn tensor(&mut self, shape: &[usize]) -> candle_core::Result<Tensor> {
        Tensor::from_vec(take(self), shape, &Device::Cpu)
    }
}
