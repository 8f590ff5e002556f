//! Arrays from files.
//!
//! | function | format | where the elements are |
//! |---|---|---|
//! | [`read_npy`] | `.npy`, as NumPy's `np.save` writes it | in memory |
//! | [`map_npy`] | the same | memory-mapped, where the file allows it; `unsafe`, as nobody may change the file |
//! | [`read_idx`] | IDX, as MNIST and its relatives use it | in memory |
//! | [`digits()`] | 1797 handwritten digits that come with this crate | in memory |
//!
//! NumPy's files need the cargo feature `npy`: the crate that parses their headers brings two dozen others.
//!
//! A [`Source`] is one of these by name (`idx:IMAGES,LABELS`), and loads it as a dataset. [`parse_npy`] and [`parse_idx`] read
//! the same formats from bytes. Nothing that a file says is believed before it is
//! checked against the file's real size: a bad file is an error that names the file, what was expected, what was
//! found, and what to do. It is never a panic, nor a large allocation.
//!
//! Inside: `layout` is what both formats' headers come down to, `file` opens and reads, `npy_header` guards the parser
//! of `.npy` headers, `named` has sources by name, `error` has the errors and recognizes files of other kinds.

mod digits;
mod error;
mod file;
mod idx;
mod layout;
mod named;
#[cfg(feature = "npy")]
mod npy;
#[cfg(feature = "npy")]
mod npy_header;

pub use digits::digits;
pub use error::{FormatError, FormatErrorKind, SourceError};
pub use idx::{parse_idx, read_idx};
pub use named::{LoadError, ParseSourceError, Source};
#[cfg(feature = "npy")]
pub use npy::{map_npy, parse_npy, read_npy};
