//! Sources of arrays that have a text form, for command lines and C programs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::SourceError;
use super::{digits, read_idx};
use super::{map_npy, read_npy};
use crate::array::AnyArray;
use crate::causes::with_causes;
use crate::dataset::{LengthMismatch, TensorDataset};
use crate::sanitized::sanitized;

/// A source of arrays of equal length. Its text form is `digits`, `idx:FILE[,FILE...]` or
/// `npy:FILE[,FILE...]`.
///
/// ```
/// use slotline::dataset::Dataset;
/// use slotline::source::Source;
///
/// let source: Source = "digits".parse()?;
/// let dataset = source.load()?;
/// assert_eq!((dataset.len(), dataset.rows().len()), (1797, 2));
/// assert_eq!("idx:images,labels".parse::<Source>()?.to_string(), "idx:images,labels");
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The bundled [digits](digits()): images and labels.
    Digits,
    /// IDX files, [read](read_idx) into memory.
    Idx(Vec<PathBuf>),
    /// `.npy` files, [read](read_npy) into memory or [mapped](map_npy).
    Npy(Vec<PathBuf>),
}

impl Source {
    /// Reads the arrays into memory. A sample of the dataset is a row of each array.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or the arrays have different numbers of rows.
    pub fn load(&self) -> Result<TensorDataset<Vec<AnyArray>>, LoadError> {
        self.dataset(match self {
            Self::Digits => {
                let (images, labels) = digits();
                Ok(vec![images.into(), labels.into()])
            }
            Self::Idx(files) => files.iter().map(read_idx).collect(),
            Self::Npy(files) => files.iter().map(read_npy).collect(),
        })
    }

    /// Works like [`load`](Self::load), but memory-maps `.npy` files, so that a row is read from
    /// the disk when it is first used.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load), or if a file cannot be mapped.
    ///
    /// # Safety
    ///
    /// The files must not change while their arrays exist; see [`map_npy`].
    pub unsafe fn map(&self) -> Result<TensorDataset<Vec<AnyArray>>, LoadError> {
        if let Self::Npy(files) = self {
            // SAFETY: the caller guarantees that the files do not change while their arrays exist,
            // as `map_npy` requires.
            return self.dataset(files.iter().map(|path| unsafe { map_npy(path) }).collect());
        }
        self.load()
    }

    fn dataset(&self, arrays: Result<Vec<AnyArray>, SourceError>) -> Result<TensorDataset<Vec<AnyArray>>, LoadError> {
        let arrays = arrays.map_err(|source| LoadError::File { name: self.clone(), source: Box::new(source) })?;
        TensorDataset::new(arrays).map_err(|source| LoadError::Lengths { name: self.clone(), source })
    }
}

/// The error for a [`Source`] that can't be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file of the source can't be used.
    #[error("cannot load {name}: {}", with_causes(source))]
    File {
        /// The source.
        name: Source,
        /// The file and its problem.
        r#source: Box<SourceError>,
    },
    /// The arrays of the source have different numbers of rows.
    #[error("the arrays of {name} have different lengths: {}", with_causes(source))]
    Lengths {
        /// The source.
        name: Source,
        /// The array whose length differs.
        r#source: LengthMismatch,
    },
}

/// The error for a string that is not the text form of a [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSourceError {
    /// The text is not `digits` and does not start with `idx:` or `npy:`.
    #[error("expected digits, idx:FILE[,FILE...] or npy:FILE[,FILE...]")]
    Kind,
    /// A path in the list of files is empty.
    #[error("expected the path of a file before and after each comma")]
    Path,
}

impl FromStr for Source {
    type Err = ParseSourceError;

    fn from_str(text: &str) -> Result<Self, ParseSourceError> {
        let files = |list: &str| {
            let files: Vec<PathBuf> = list.split(',').map(PathBuf::from).collect();
            let complete = files.iter().all(|file| !file.as_os_str().is_empty());
            complete.then_some(files).ok_or(ParseSourceError::Path)
        };
        match text.split_once(':') {
            None if text == "digits" => Ok(Self::Digits),
            Some(("idx", list)) => files(list).map(Self::Idx),
            Some(("npy", list)) => files(list).map(Self::Npy),
            _ => Err(ParseSourceError::Kind),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, files) = match self {
            Self::Digits => return f.write_str("digits"),
            Self::Idx(files) => ("idx", files),
            Self::Npy(files) => ("npy", files),
        };
        let list: Vec<String> = files.iter().map(|file| sanitized(&file.to_string_lossy())).collect();
        write!(f, "{kind}:{}", list.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_written_the_same() {
        for text in ["digits", "idx:a", "idx:/x/y,z", "npy:/x/y.npy,z.npy"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        let error = "idx:http:/a:b@c/d".parse::<Source>().unwrap().load().unwrap_err().to_string();
        assert!(error.starts_with("cannot load idx:http:/…@c/d: cannot open http:/…@c/d; "), "{error}");
        for (text, error) in [
            ("", ParseSourceError::Kind),
            ("digit", ParseSourceError::Kind),
            ("digits:", ParseSourceError::Kind),
            ("idx", ParseSourceError::Kind),
            ("csv:a", ParseSourceError::Kind),
            ("idx:", ParseSourceError::Path),
            ("idx:a,", ParseSourceError::Path),
            ("npy:,a", ParseSourceError::Path),
        ] {
            assert_eq!(text.parse::<Source>(), Err(error), "{text}");
        }
    }

    #[test]
    fn digits_are_images_and_labels() {
        let arrays = Source::Digits.load().unwrap();
        assert_eq!(arrays.rows().iter().map(AnyArray::row_size).collect::<Vec<_>>(), [64, 8]);
    }

    #[test]
    fn load_errors_name_the_source_and_the_cause() {
        let error = Source::Idx(vec!["/none/a".into()]).load().unwrap_err();
        assert!(
            error.to_string().starts_with("cannot load idx:/none/a: cannot open /none/a; check the path: No such file")
        );
    }
}
