//! Bins of documents whose types are known at run time only, as those of other languages.

use slotline::BoxError;
use slotline::sample::{OwnedSample, Row};

use super::{Packing, Piece};

impl Packing {
    /// Writes a bin, whose fields are those of `PackedDataset`: one for each sequence of a document,
    /// with the bytes of the element that pads it, and those of positions and documents. Returns the
    /// contents of the last field, which the caller writes.
    ///
    /// `read` reads a document into `document`, whose fields are its sequences. Their types are those
    /// of the bin's fields, or the bin declares as many bytes.
    ///
    /// # Errors
    ///
    /// That of `read`, or if a document has another length than was packed, or the row has other
    /// fields.
    #[doc(hidden)]
    pub fn write_untyped(
        &self,
        bin: usize,
        padding: &[Box<[u8]>],
        row: &mut Row<'_>,
        document: &mut OwnedSample,
        mut read: impl FnMut(usize, &mut Row<'_>) -> Result<(), BoxError>,
    ) -> Result<Vec<i32>, BoxError> {
        let (first, positions, ids) = (row.next_field(), padding.len(), padding.len() + 1);
        let (mut at, mut ends) = (0, vec![0_i32]);
        for Piece { document: number, tokens } in self.bin(bin).into_iter().flatten() {
            document.fill(|row| read(number, row))?;
            let (columns, packed) = (document.columns(), self.length(number));
            for (i, padding) in padding.iter().enumerate() {
                let elements = columns.get(i).ok_or("a field of a document is missing")?;
                let (bytes, size) = (elements.bytes(), padding.len());
                // A padded field has its own number of elements, and a packed one has no others.
                let length = columns.lengths(i).map_or(bytes.len() / size, |lengths| lengths[0] as usize);
                if length != packed {
                    let error = format!(
                        "document {number} has {length} tokens, but {packed} were packed; pack the lengths of the samples"
                    );
                    return Err(error.into());
                }
                let to = memory(row, first + i)?;
                to[at * size..][..tokens.len() * size].copy_from_slice(&bytes[tokens.start * size..tokens.end * size]);
            }
            let (piece, id) = (at * 4..(at + tokens.len()) * 4, ends.len() as i32);
            let numbers = memory(row, first + positions)?[piece.clone()].as_chunks_mut().0;
            numbers.iter_mut().zip(0_i32..).for_each(|(to, position)| *to = position.to_ne_bytes());
            memory(row, first + ids)?[piece].as_chunks_mut().0.fill(id.to_ne_bytes());
            at += tokens.len();
            ends.push(at as i32); // At most 2^28.
        }
        let sequences = padding.iter().map(|padding| &**padding);
        for (i, padding) in sequences.chain([&[0; 4][..]; 2]).enumerate() {
            let rest = &mut memory(row, first + i)?[at * padding.len()..];
            rest.chunks_exact_mut(padding.len()).for_each(|to| to.copy_from_slice(padding));
        }
        row.go_to(first + ids + 1);
        Ok(ends)
    }
}

/// Returns the memory of a field of fixed shape. Only elements of the field's type may be written.
fn memory<'a>(row: &'a mut Row<'_>, field: usize) -> Result<&'a mut [u8], BoxError> {
    row.go_to(field);
    let memory = row.fill_raw()?;
    // SAFETY: the memory is initialised, and belongs to the row, which is borrowed as long as it.
    Ok(unsafe { &mut *memory.as_ptr() })
}
