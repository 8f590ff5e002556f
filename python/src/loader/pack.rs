//! Rows of one length, filled with documents of any length, as `PackedDataset` of slotline-sequences makes them. Here the
//! types are known at run time only.

use std::sync::Arc;

use pyo3::prelude::*;
use slotline::BoxError;
use slotline::dataset::{Context, Dataset, Upcoming};
use slotline::dtype::DType;
use slotline::sample::{OwnedSample, Row};
use slotline_sequences::packing::{Packing, Piece};

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
        let bins = upcoming.positions().filter_map(|position| upcoming.index(position));
        let pieces = bins.filter_map(|bin| self.packing.bin(bin)).flatten();
        let documents: Vec<u32> = pieces.map(|piece| piece.document as u32).collect();
        self.documents.begin_pass(Upcoming::new(documents.len(), move |place| Some(documents[place] as usize)));
    }

    /// Writes a bin.
    pub(crate) fn write(&self, index: usize, row: &mut Row<'_>, cx: &mut Context) -> Result<(), BoxError> {
        let (first, capacity) = (row.next_field(), self.packing.capacity());
        let key = std::ptr::from_ref(self).addr();
        let mut document = Read::take(cx, key, &self.documents)?;
        let (mut at, mut ends) = (0, vec![0_i32]);
        for Piece { document: number, tokens } in self.packing.bin(index).into_iter().flatten() {
            document.fill(|row| self.documents.write(number, row, cx))?;
            let expected = self.packing.length(number);
            for (i, padding) in self.padding.iter().enumerate() {
                let view = document.columns().get(i).ok_or("a field of a document is missing")?;
                let (bytes, size) = (view.bytes(), padding.len());
                if bytes.len() != expected * size {
                    let length = bytes.len() / size;
                    return Err(format!("document {number} has {length} tokens, but {expected} were packed").into());
                }
                row.go_to(first + i);
                let to = row.fill::<u8>(&[capacity * size])?;
                to[at * size..][..tokens.len() * size].copy_from_slice(&bytes[tokens.start * size..tokens.end * size]);
            }
            for (field, value) in [None, Some(ends.len() as i32)].into_iter().enumerate() {
                row.go_to(first + self.padding.len() + field);
                let numbers = row.fill::<u8>(&[capacity * 4])?.as_chunks_mut().0[at..][..tokens.len()].iter_mut();
                for (to, position) in numbers.zip(0_i32..) {
                    *to = value.unwrap_or(position).to_ne_bytes();
                }
            }
            at += tokens.len();
            ends.push(at as i32); // At most 2^28.
        }
        let zero: Box<[u8]> = [0; 4].into();
        for (i, padding) in self.padding.iter().chain([&zero, &zero]).enumerate() {
            row.go_to(first + i);
            let size = padding.len();
            row.fill::<u8>(&[capacity * size])?[at * size..]
                .chunks_exact_mut(size)
                .for_each(|to| to.copy_from_slice(padding));
        }
        row.go_to(first + self.fields.len() - 1);
        row.write_packed(&ends, &[])?;
        Read::put(cx, key, document);
        Ok(())
    }
}
