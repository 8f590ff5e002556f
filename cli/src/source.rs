//! What a SOURCE argument names, and loading it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use slotline::array::AnyArray;
use slotline::dataset::TensorDataset;
use slotline::source::{digits, map_npy, read_idx};

/// Any source, once loaded: a sample is a row of each array.
pub(crate) type Arrays = TensorDataset<Vec<AnyArray>>;

/// Where arrays of equal length come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The bundled digits.
    Digits,
    /// IDX files, read into memory.
    Idx(Vec<PathBuf>),
    /// NumPy's files, memory-mapped.
    Npy(Vec<PathBuf>),
}

/// For `--help`.
pub(crate) const SOURCE_HELP: &str = "\
digits (1797 images and labels that come with the program), idx:FILE[,FILE...] (as MNIST has them, such as \
idx:IMAGES,LABELS), or npy:FILE[,FILE...] (NumPy's, memory-mapped); a sample is a row of each";

impl Source {
    /// Reads or maps the arrays, and checks that they have as many rows as each other.
    pub(crate) fn load(&self) -> Result<Arrays> {
        let arrays = match self {
            Self::Digits => {
                let (images, labels) = digits();
                Ok(vec![images.into(), labels.into()])
            }
            Self::Idx(files) => files.iter().map(read_idx).collect(),
            Self::Npy(files) => files.iter().map(map_npy).collect::<Result<Vec<AnyArray>, _>>(),
        };
        let arrays = arrays.with_context(|| format!("cannot load {self}"))?;
        TensorDataset::new(arrays).with_context(|| format!("the arrays of {self} do not belong together"))
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let files = |list: &str| {
            let files: Vec<PathBuf> = list.split(',').map(PathBuf::from).collect();
            let complete = files.iter().all(|file| !file.as_os_str().is_empty());
            complete
                .then_some(files)
                .ok_or_else(|| "expected the path of a file before and after each comma".to_owned())
        };
        match text.split_once(':') {
            None if text == "digits" => Ok(Self::Digits),
            Some(("idx", list)) => files(list).map(Self::Idx),
            Some(("npy", list)) => files(list).map(Self::Npy),
            _ => Err("expected digits, idx:FILE[,FILE...] or npy:FILE[,FILE...]".to_owned()),
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
        let list: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        write!(f, "{kind}:{}", list.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_written_the_same() {
        for text in ["digits", "idx:a", "idx:a,b", "npy:/x/y.npy,z.npy"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for text in ["", "digit", "digits:", "idx", "idx:", "idx:a,", "npy:,a", "csv:a"] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }

    #[test]
    fn digits_are_images_and_labels() {
        let arrays = Source::Digits.load().unwrap();
        assert_eq!(arrays.rows().iter().map(AnyArray::row_size).collect::<Vec<_>>(), [64, 8]);
    }
}
