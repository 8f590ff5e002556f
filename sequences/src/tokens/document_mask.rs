//! Attention masks of rows with several documents.

/// Writes the attention mask of a row of n tokens: `mask[i * n + j]` says whether token i may
/// attend to token j, which is true if j ≤ i and both are of the same document. Tokens of document
/// 0, the padding, attend to nothing.
///
/// `documents` is a row of `document_ids` of a [`PackedDataset`](crate::packing::PackedDataset). As
/// a mask takes n² bytes, make it from the batch in the training loop, or use a kernel that takes
/// `document_ids` or cumulative lengths instead.
///
/// ```
/// use slotline_sequences::tokens::document_mask;
///
/// let mut mask = [false; 16];
/// document_mask(&[1, 1, 2, 0], &mut mask);
/// let rows: Vec<Vec<u8>> = mask.chunks(4).map(|row| row.iter().map(|&may| may.into()).collect()).collect();
/// assert_eq!(rows, [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]);
/// ```
///
/// # Panics
///
/// If the length of `mask` is not the square of the length of `documents`.
pub fn document_mask(documents: &[i32], mask: &mut [bool]) {
    let n = documents.len();
    assert_eq!(n.checked_mul(n), Some(mask.len()), "the mask of {n} tokens has that number squared");
    for (i, &own) in documents.iter().enumerate() {
        let row = &mut mask[i * n..(i + 1) * n];
        let (before, after) = row.split_at_mut(i + 1);
        before.iter_mut().zip(documents).for_each(|(may, &other)| *may = own == other && own != 0);
        after.fill(false);
    }
}
