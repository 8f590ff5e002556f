//! What was delivered, as two numbers that can be compared between runs.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use slotline::Batch;

/// For `--help`.
pub(crate) const DIGEST_HELP: &str = "\
Whether to take the digests of what was delivered [default: with --json]

order_digest is the SHA-256 of all indices as delivered, \
little-endian i64; data_digest that of all bytes as delivered: batch by batch, in each its fields in order, in this \
machine's byte order. Both are the same for any number of workers, prefetch_factor or part_size, and data_digest \
depends on the batch size where there is more than one field. They are taken in the loop, as a part of its step: their \
time counts, so for the loader's own rate take --digest=false";

/// The digests of everything delivered so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digests {
    order: Sha256,
    data: Sha256,
}

impl Digests {
    /// Takes in a batch.
    pub(crate) fn update<S>(&mut self, batch: &Batch<S>) {
        for index in batch.indices() {
            self.order.update(index.to_le_bytes());
        }
        let columns = batch.columns();
        for field in (0..columns.len()).filter_map(|i| columns.get(i)) {
            self.data.update(field.bytes());
        }
    }

    /// The digest of the order, in hexadecimal digits.
    pub(crate) fn order(&self) -> String {
        hex(self.order.clone())
    }

    /// The digest of the data, in hexadecimal digits.
    pub(crate) fn data(&self) -> String {
        hex(self.data.clone())
    }
}

/// The SHA-256 of numbers as little-endian f32, in hexadecimal digits.
pub(crate) fn of_floats(numbers: &[f32]) -> String {
    let mut sha = Sha256::new();
    numbers.iter().for_each(|number| sha.update(number.to_le_bytes()));
    hex(sha)
}

fn hex(sha: Sha256) -> String {
    sha.finalize().iter().fold(String::new(), |mut text, byte| {
        // A String takes whatever it is given.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_bytes() {
        let mut sha = Sha256::new();
        sha.update([0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(of_floats(&[1.0, -2.0]), hex(sha));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digests::default().order(), empty);
    }
}
