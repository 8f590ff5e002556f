//! Targets: for each token, the token after it.

/// Splits a sequence of n + 1 tokens into the n inputs and the n targets, each of which is the
/// token after its input.
///
/// ```
/// use slotline::dataset::{Context, Dataset};
/// use slotline_sequences::tokens::shift;
/// # use slotline::BoxError;
///
/// /// Crops of a text, as two fields.
/// struct Crops(Vec<u16>);
///
/// impl Dataset for Crops {
///     type Sample<'a> = (&'a [u16], &'a [u16]);
///
///     fn len(&self) -> usize {
///         (self.0.len() - 1) / 4
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
///         Ok(shift(&self.0[4 * index..][..5]))
///     }
/// }
///
/// let crops = Crops((0..9).collect());
/// assert_eq!(crops.get(1, &mut Context::default())?, (&[4, 5, 6, 7][..], &[5, 6, 7, 8][..]));
/// # Ok::<(), BoxError>(())
/// ```
///
/// If `tokens` is empty, both results are empty.
pub fn shift<T>(tokens: &[T]) -> (&[T], &[T]) {
    (&tokens[..tokens.len().saturating_sub(1)], tokens.get(1..).unwrap_or_default())
}

/// Writes the target of each token of a row that has several documents. The target is the next
/// token if it is of the same document, and `ignore` otherwise, for example -100, which torch's
/// `cross_entropy` leaves out.
///
/// Document 0 is padding. Use this for the rows of a
/// [`PackedDataset`](crate::packing::PackedDataset), or for documents that were concatenated in
/// another way.
///
/// ```
/// use slotline_sequences::tokens::shift_documents;
///
/// let (tokens, documents) = ([5_u16, 6, 7, 8, 9, 0], [1, 1, 1, 2, 2, 0]);
/// let mut targets = [0_i64; 6];
/// shift_documents(&tokens, &documents, -100, &mut targets);
/// assert_eq!(targets, [6, 7, -100, 9, -100, -100]);
/// ```
///
/// # Panics
///
/// If the slices have different lengths.
pub fn shift_documents<T: Copy + Into<U>, U: Copy>(tokens: &[T], documents: &[i32], ignore: U, targets: &mut [U]) {
    assert_eq!(
        (tokens.len(), documents.len()),
        (targets.len(), targets.len()),
        "one document and target for each token"
    );
    let Some(last) = targets.len().checked_sub(1) else { return };
    for (target, (next, pair)) in targets.iter_mut().zip(tokens[1..].iter().zip(documents.windows(2))) {
        *target = if pair[0] == pair[1] && pair[0] != 0 { (*next).into() } else { ignore };
    }
    targets[last] = ignore;
}
