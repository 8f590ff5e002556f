//! Arrays from files.
//!
//! | function | format | where the elements are |
//! |---|---|---|
//! | [`read_npy`] | `.npy`, as NumPy's `np.save` writes it | in memory |
//! | [`map_npy`] | the same | memory-mapped if the file allows it; `unsafe`, as the file must not change |
//! | [`read_idx`] | IDX, as used by MNIST and similar datasets | in memory |
//! | [`digits()`] | 1797 handwritten digits that come with this crate | in memory |
//!
//! A [`Source`] names one of these as text (`idx:IMAGES,LABELS`), and loads it as a dataset. [`parse_npy`] and
//! [`parse_idx`] read the same formats from bytes. Everything in a file is checked against the file's real size before
//! it is used: an invalid file is an error that names the file, what was expected, what was found, and what to do. It
//! never causes a panic or a large allocation.
//!
//! The modules: `layout` is the common form of both formats' headers, `file` opens and reads, `npy_header` parses
//! the headers of `.npy` files, `named` has the sources by name, and `error` has the errors and recognizes files of other
//! kinds.

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
