//! What parquet uses of the crate brotli to read files. The encoder and its tables would be 880 kB of a library, since parquet reaches
//! them through the trait that also has the decoder. The workspace puts this crate in its place (`[patch.crates-io]`).

use std::io::{Error, ErrorKind, Result, Write};
use std::marker::PhantomData;

pub use brotli_decompressor::Decompressor;

/// In place of the encoder. Writing fails with [`ErrorKind::Unsupported`].
#[derive(Debug)]
pub struct CompressorWriter<W>(PhantomData<W>);

impl<W> CompressorWriter<W> {
    /// The arguments are those of the encoder.
    pub fn new(_: W, _buffer_size: usize, _quality: u32, _window: u32) -> Self {
        Self(PhantomData)
    }
}

impl<W> Write for CompressorWriter<W> {
    fn write(&mut self, _: &[u8]) -> Result<usize> {
        Err(Error::from(ErrorKind::Unsupported))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
