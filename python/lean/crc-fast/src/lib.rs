//! What object_store uses of the crate crc-fast: CRC-64/NVME, for objects that are uploaded to S3.
//!
//! crc-fast has tables for fifty other checksums (644 kB of a compressed wheel), and exports its functions for C from every dynamic
//! library that it is linked into, so that the linker keeps all of them. The workspace puts this crate in its place
//! (`[patch.crates-io]`). It goes bit by bit, without a table: slotline only reads objects.

/// The checksums of crc-fast that there are.
#[derive(Clone, Copy, Debug)]
pub enum CrcAlgorithm {
    /// CRC-64/NVME, as S3 has it.
    Crc64Nvme,
}

/// A checksum of bytes that come in pieces.
#[derive(Clone, Debug)]
pub struct Digest(u64);

impl Digest {
    /// The checksum of no bytes.
    pub fn new(CrcAlgorithm::Crc64Nvme: CrcAlgorithm) -> Self {
        Self(!0)
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 ^= u64::from(byte);
            for _ in 0..8 {
                self.0 = self.0 >> 1 ^ if self.0 & 1 == 1 { 0x9a6c_9329_ac4b_c9b5 } else { 0 };
            }
        }
    }

    /// The checksum of the bytes so far.
    pub fn finalize(&self) -> u64 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_this_checksum() {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(b"12345");
        digest.update(b"6789");
        assert_eq!(digest.finalize(), 0xae8b_1486_0a79_9888);
    }
}
