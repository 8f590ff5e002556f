//! Digests of the delivered indices and data, for comparing runs.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use slotline::Batch;

/// The long `--help` text of `--digest`.
pub(crate) const DIGEST_HELP: &str = "\
Whether to compute digests of the delivered samples [default: with --json]

order_digest is the SHA-256 of all indices in the order of delivery, as little-endian i64. data_digest is the SHA-256 of \
all bytes in the order of delivery: batch by batch, field by field, in this machine's byte order, and with the length of each sample of a packed field. Both are the same for \
any number and kind of workers, prefetch_factor or part_size; data_digest depends on the batch size if there is more \
than one field. The digests are computed in the loop as a part of its step, and their time is measured with it: to measure the \
loader alone, pass --digest=false";

/// The digests of all batches delivered so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digests {
    order: Sha256,
    data: Sha256,
}

impl Digests {
    /// Adds a batch to the digests.
    pub(crate) fn update<S>(&mut self, batch: &Batch<S>) {
        for index in batch.indices() {
            self.order.update(index.to_le_bytes());
        }
        let columns = batch.columns();
        for i in 0..columns.len() {
            if let Some(field) = columns.get(i) {
                self.data.update(field.bytes());
            }
            // For packed data, the lengths of the samples are part of the digest.
            for ends in columns.offsets(i).into_iter().flat_map(|offsets| offsets.windows(2)) {
                self.data.update((ends[1] - ends[0]).to_le_bytes());
            }
        }
    }

    /// Returns the digest of the order, in hexadecimal.
    pub(crate) fn order(&self) -> String {
        hex(self.order.clone())
    }

    /// Returns the digest of the data, in hexadecimal.
    pub(crate) fn data(&self) -> String {
        hex(self.data.clone())
    }
}

/// Returns the SHA-256 of `numbers` as little-endian f32, in hexadecimal.
pub(crate) fn of_floats(numbers: &[f32]) -> String {
    let mut sha = Sha256::new();
    numbers.iter().for_each(|number| sha.update(number.to_le_bytes()));
    hex(sha)
}

fn hex(sha: Sha256) -> String {
    sha.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_sha256_of_the_bytes() {
        let mut sha = Sha256::new();
        sha.update([0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(of_floats(&[1.0, -2.0]), hex(sha));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digests::default().order(), empty);
    }
}
