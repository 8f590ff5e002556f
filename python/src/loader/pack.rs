//! Rows of one length, filled with documents of any length, as `PackedDataset` of slotline-sequences makes them. Here the
//! types are known at run time only.

use std::sync::Arc;

use pyo3::prelude::*;
use slotline::BoxError;
use slotline::dataset::{Context, Dataset, Upcoming};
use slotline::dtype::DType;
use slotline::sample::{OwnedSample, Row};
use slotline_sequences::packing::Packing;

use super::failure;
use super::field::{Field, Form, Kind, Room};
use super::source::Node;

/// Documents that are packed into bins, which are the rows.
#[derive(Debug)]
pub(crate) struct Packed {
    documents: Arc<Node>,
    packing: Packing,
    fields: Box<[Field]>,
    /// The bytes of the element that fills the rest of each sequence.
    padding: Box<[Box<[u8]>]>,
}

/// A thread's memory for samples that are read before there is a row for them, each with the address of its user.
#[derive(Default)]
pub(crate) struct Read(Vec<(usize, OwnedSample)>);

impl Read {
    /// Takes the memory of a user for samples of `node`.
    pub(crate) fn take(cx: &mut Context, user: usize, node: &Node) -> Result<OwnedSample, BoxError> {
        let read = &mut cx.local::<Self>().0;
        match read.iter().position(|(of, _)| *of == user) {
            Some(place) => Ok(read.swap_remove(place).1),
            None => Ok(OwnedSample::new(node.fields().unwrap_or_default())?),
        }
    }

    /// Keeps the memory for the user's next sample.
    pub(crate) fn put(cx: &mut Context, user: usize, sample: OwnedSample) {
        cx.local::<Self>().0.push((user, sample));
    }
}

impl Packed {
    /// Packs the samples of a dataset, all of whose fields have any length.
    pub(crate) fn new(py: Python<'_>, documents: Arc<Node>, packing: Packing, padding: Vec<Vec<u8>>) -> PyResult<Self> {
        let (capacity, most) = (packing.capacity(), packing.most_pieces());
        let invalid = |what: String| failure::invalid(py, what);
        let kind =
            |dtype| Kind::of_engine(py, dtype).unwrap_or_else(|| Err(invalid(format!("elements of type {dtype}"))));
        let row = |dtype| Field::fixed(kind(dtype)?, &[capacity]).map_err(|what| invalid(format!("a bin {what}")));
        let sequence = |field: &Field| match field.form {
            Form::Items(dtype, ..) if field.shape.is_empty() => row(dtype),
            _ => Err(invalid(format!("documents are {}; pack fields of any length", field.about()))),
        };
        let mut fields = documents.list().into_iter().map(sequence).collect::<PyResult<Vec<_>>>()?;
        fields.extend([row(DType::I32)?, row(DType::I32)?]);
        let room = Room { items: most + 1, exceeded: false };
        fields.push(Field::items(kind(DType::I32)?, DType::I32, &[], room));
        let padding = padding.into_iter().map(Into::into).collect();
        Ok(Self { documents, packing, fields: fields.into(), padding })
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub(crate) fn documents(&self) -> &Arc<Node> {
        &self.documents
    }

    pub(crate) fn len(&self) -> usize {
        self.packing.len()
    }

    /// Says how documents are packed.
    pub(crate) fn format(&self) -> String {
        format!("packed {} {:016x}", self.packing.capacity(), self.packing.digest())
    }

    /// Announces to the dataset of documents which documents the upcoming bins need.
    pub(crate) fn begin_pass(&self, upcoming: Upcoming) {
        self.documents.begin_pass(self.packing.upcoming(&upcoming));
    }

    /// Writes a bin.
    pub(crate) fn write(&self, index: usize, row: &mut Row<'_>, cx: &mut Context) -> Result<(), BoxError> {
        let key = std::ptr::from_ref(self).addr();
        let mut document = Read::take(cx, key, &self.documents)?;
        let read = |number, row: &mut Row<'_>| self.documents.write(number, row, cx);
        let ends = self.packing.write_untyped(index, &self.padding, row, &mut document, read)?;
        row.write_packed(&ends, &[])?;
        Read::put(cx, key, document);
        Ok(())
    }
}
