//! Arrays from files.
//!
//! | function | format | where the elements are |
//! |---|---|---|
//! | [`read_npy`] | `.npy`, as NumPy's `np.save` writes it | in memory |
//! | [`map_npy`] | the same | memory-mapped if the file allows it; `unsafe`, as the file must not change |
//! | [`read_idx`] | IDX, as used by MNIST and similar datasets | in memory |
//! | [`digits()`] | 1797 handwritten digits that come with this crate | in memory |
//!
//! A [`Source`] names one of these in text form (`idx:IMAGES,LABELS`), and loads it as a dataset.
//! [`parse_npy`] and [`parse_idx`] read the same formats from bytes. All values in a file are
//! checked against the file's actual size before they are used. An invalid file is an error that
//! names the file, what was expected, what was found, and what to do; it never causes a panic or a
//! large allocation.
//!
//! The modules: `layout` describes the elements of a file in either format, `file` opens and reads
//! files, `npy_header` parses the headers of `.npy` files, `named` implements [`Source`], and
//! `error` contains the errors and recognizes files of other formats.

mod digits;
mod error;
mod file;
mod idx;
mod layout;
mod named;
mod npy;
mod npy_header;

pub use digits::digits;
pub use error::{FormatError, FormatErrorKind, SourceError};
pub use idx::{parse_idx, read_idx};
pub use named::{LoadError, ParseSourceError, Source};
pub use npy::{map_npy, parse_npy, read_npy};
pub use npy_header::NpyHeader;
