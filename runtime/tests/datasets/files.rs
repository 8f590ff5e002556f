//! Makes files in the formats that `slotline::source` reads, byte by byte.
#![allow(dead_code, reason = "each test uses some of them")]

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary folder, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a temporary file");
        path
    }
}

/// Returns the bytes of an IDX file with this type code and these dimensions.
pub(crate) fn idx(code: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, code, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|dim| dim.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// Returns the bytes of a `.npy` file of version 1 in C order, padded as NumPy does.
pub(crate) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_header(1, &format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), data)
}

/// Returns the bytes of a `.npy` file with any text as its header, padded to a multiple of 64
/// bytes.
pub(crate) fn npy_header(version: u8, text: &str, data: &[u8]) -> Vec<u8> {
    let preamble = if version == 1 { 10 } else { 12 };
    let padding = 63 - (preamble + text.len()) % 64;
    npy_unpadded(version, &format!("{text}{}\n", " ".repeat(padding)), data)
}

/// Returns the bytes of a `.npy` file with exactly this text as its header.
pub(crate) fn npy_unpadded(version: u8, text: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    if version == 1 {
        bytes.extend((text.len() as u16).to_le_bytes());
    } else {
        bytes.extend((text.len() as u32).to_le_bytes());
    }
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    bytes
}
