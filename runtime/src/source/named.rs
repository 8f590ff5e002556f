//! Sources by name, as a command line or a C program gives them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::SourceError;
use super::{digits, read_idx};
#[cfg(feature = "npy")]
use super::{map_npy, read_npy};
use crate::array::AnyArray;
use crate::dataset::{LengthMismatch, TensorDataset};

/// Where arrays of equal length come from, as a text says: `digits`, `idx:FILE[,FILE...]` or `npy:FILE[,FILE...]`.
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
    /// The [digits](digits()) that come with this crate: images and labels.
    Digits,
    /// IDX files, [read](read_idx) into memory.
    Idx(Vec<PathBuf>),
    /// NumPy's files, [read](read_npy) into memory or [mapped](map_npy); with the feature `npy`.
    #[cfg(feature = "npy")]
    Npy(Vec<PathBuf>),
}

impl Source {
    /// Reads the arrays into memory. A sample is a row of each.
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
            #[cfg(feature = "npy")]
            Self::Npy(files) => files.iter().map(read_npy).collect(),
        })
    }

    /// The same with NumPy's files memory-mapped, so that a row is read from the disk when it is first used.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), or if a file cannot be mapped.
    ///
    /// # Safety
    ///
    /// Nobody may change these files as long as their arrays live, as [`map_npy`] says.
    pub unsafe fn map(&self) -> Result<TensorDataset<Vec<AnyArray>>, LoadError> {
        #[cfg(feature = "npy")]
        if let Self::Npy(files) = self {
            // SAFETY: the caller's word.
            return self.dataset(files.iter().map(|path| unsafe { map_npy(path) }).collect());
        }
        self.load()
    }

    fn dataset(&self, arrays: Result<Vec<AnyArray>, SourceError>) -> Result<TensorDataset<Vec<AnyArray>>, LoadError> {
        let arrays = arrays.map_err(|source| LoadError::File { name: self.clone(), source: Box::new(source) })?;
        TensorDataset::new(arrays).map_err(|source| LoadError::Lengths { name: self.clone(), source })
    }
}

/// Why a [`Source`] can't be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// One of its files can't be used.
    #[error("cannot load {name}")]
    File {
        /// The whole source.
        name: Source,
        /// The file, and what is wrong with it.
        source: Box<SourceError>,
    },
    /// Its arrays don't have as many rows as each other.
    #[error("the arrays of {name} do not belong together")]
    Lengths {
        /// The whole source.
        name: Source,
        /// Which one differs.
        source: LengthMismatch,
    },
}

/// A text that names no [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSourceError {
    /// Neither `digits`, nor a known kind of file before a colon.
    #[error("expected digits, idx:FILE[,FILE...] or npy:FILE[,FILE...]")]
    Kind,
    /// A list of files with a gap.
    #[error("expected the path of a file before and after each comma")]
    Path,
    /// NumPy's files, in a build that cannot read them.
    #[cfg(not(feature = "npy"))]
    #[error("npy:FILE needs slotline's cargo feature `npy`; build with it")]
    Feature,
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
            #[cfg(feature = "npy")]
            Some(("npy", list)) => files(list).map(Self::Npy),
            #[cfg(not(feature = "npy"))]
            Some(("npy", _)) => Err(ParseSourceError::Feature),
            _ => Err(ParseSourceError::Kind),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, files) = match self {
            Self::Digits => return f.write_str("digits"),
            Self::Idx(files) => ("idx", files),
            #[cfg(feature = "npy")]
            Self::Npy(files) => ("npy", files),
        };
        let list: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        write!(f, "{kind}:{}", list.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_written_the_same() {
        for text in ["digits", "idx:a", "idx:/x/y,z"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for (text, error) in [
            ("", ParseSourceError::Kind),
            ("digit", ParseSourceError::Kind),
            ("digits:", ParseSourceError::Kind),
            ("idx", ParseSourceError::Kind),
            ("csv:a", ParseSourceError::Kind),
            ("idx:", ParseSourceError::Path),
            ("idx:a,", ParseSourceError::Path),
        ] {
            assert_eq!(text.parse::<Source>(), Err(error), "{text}");
        }
    }

    #[cfg(feature = "npy")]
    #[test]
    fn numpys_files_are_a_source() {
        assert_eq!("npy:/x/y.npy,z.npy".parse::<Source>().unwrap().to_string(), "npy:/x/y.npy,z.npy");
        assert_eq!("npy:,a".parse::<Source>(), Err(ParseSourceError::Path));
    }

    #[cfg(not(feature = "npy"))]
    #[test]
    fn numpys_files_are_an_error_that_names_the_feature() {
        let error = "npy:a".parse::<Source>().unwrap_err();
        assert!(error.to_string().contains("feature `npy`"), "{error}");
    }

    #[test]
    fn digits_are_images_and_labels() {
        let arrays = Source::Digits.load().unwrap();
        assert_eq!(arrays.rows().iter().map(AnyArray::row_size).collect::<Vec<_>>(), [64, 8]);
    }

    #[test]
    fn what_cannot_be_loaded_is_named_with_its_cause() {
        let error = Source::Idx(vec!["/none/a".into()]).load().unwrap_err();
        assert_eq!(error.to_string(), "cannot load idx:/none/a");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("/none/a"), "{cause}");
    }
}
