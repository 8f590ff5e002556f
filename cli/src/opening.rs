//! The options for files as command-line flags, named as in `OpenOptions`.

use std::path::PathBuf;

use clap::{Args, Command};
use slotline::dtype::DType;
use slotline_demo::output::print_error_line;
use slotline_sources::{DefaultNumber, FieldKind, Format, IndexFiles, OpenOptions, Records};

use crate::source::ServerOptions;

/// The command-line flags.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "File options")]
pub(crate) struct FileOptions {
    /// Read only these fields, in this order; the others may have types that slotline cannot read.
    /// In a tar, 'jpg;png' is one field: the first of these files that a sample has
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,

    /// Leave out samples of tars that lack a field
    #[arg(long)]
    skip_incomplete: bool,

    /// Accept tars without the block of zeros at their end, which may be truncated
    #[arg(long)]
    missing_end: bool,

    /// Read missing values as zeros, or as empty texts, bytes and lists
    #[arg(long)]
    missing_as_zero: bool,

    /// Read decimals of Arrow and Parquet as the closest f64
    #[arg(long)]
    decimals_as_f64: bool,

    /// The type of a field of tars or TFRecord: bytes, text, i64, 'f32 [2, 3]', 'i64 list'
    #[arg(long, value_name = "NAME=KIND", value_parser = pair::<FieldKind>)]
    decode: Vec<(String, FieldKind)>,

    /// The column of CSV or JSONL that contains file names. Further columns name other files, such
    /// as masks, whose bytes are fields
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    file_column: Vec<String>,

    /// Read 'file_name' and 'image' of CSV or JSONL as ordinary fields, not as names of files
    #[arg(long)]
    without_files: bool,

    /// The value that replaces a missing number in a column of a table; once for each column
    #[arg(long, value_name = "NAME=NUMBER", value_parser = pair::<DefaultNumber>)]
    default_number: Vec<(String, DefaultNumber)>,

    /// The endings of the files to read in folders of classes [default: those of pictures]
    #[arg(long, value_name = "EXTENSION,...", value_delimiter = ',')]
    extensions: Option<Vec<String>>,

    /// Accept folders of classes without files
    #[arg(long)]
    allow_empty: bool,

    /// The folder with a mask for each picture in a folder, at the same relative path with the
    /// extension .png. They are the field 'mask'
    #[arg(long, value_name = "FOLDER")]
    mask_folder: Option<PathBuf>,

    /// Number of tokens in a block [default: 1024]
    #[arg(long, value_name = "N")]
    block_size: Option<usize>,

    /// The type of tokens in a file without a header [default: u16]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<DType>,

    /// The folder for the indexes of tars and TFRecord files [default: beside the files]
    #[arg(long, value_name = "FOLDER")]
    index_files: Option<PathBuf>,

    /// The most bytes of decoded batches, pages, shards or arrays to keep in memory [default: 1
    /// GiB]
    #[arg(long, value_name = "BYTES")]
    source_memory: Option<u64>,

    /// Factor by which to enlarge the memory that batches reserve for bytes, texts and lists, for
    /// worker processes
    #[arg(long, value_name = "TIMES")]
    room: Option<usize>,
}

impl FileOptions {
    /// Returns where to save indexes.
    pub(crate) fn saved_in(&self) -> IndexFiles {
        self.index_files.clone().map_or(IndexFiles::Beside, IndexFiles::In)
    }

    /// Returns the options as `OpenOptions`.
    pub(crate) fn options(&self) -> OpenOptions {
        // SAFETY: the program's documentation forbids modifying Arrow files while they are used.
        let mut options = unsafe { OpenOptions::new().map_arrow() }
            .skip_incomplete(self.skip_incomplete)
            .missing_end(self.missing_end)
            .missing_as_zero(self.missing_as_zero)
            .decimals_as_f64(self.decimals_as_f64)
            .without_files(self.without_files)
            .allow_empty(self.allow_empty)
            .index_files(self.saved_in());
        if let Some(names) = &self.columns {
            options = options.columns(names);
        }
        for (name, kind) in &self.decode {
            options = options.decode(name, kind.clone());
        }
        if let Some(folder) = &self.mask_folder {
            options = options.mask_folder(folder);
        }
        for name in &self.file_column {
            options = options.file_column(name);
        }
        for (name, number) in &self.default_number {
            options = options.default_number(name, *number);
        }
        if let Some(extensions) = &self.extensions {
            options = options.extensions(extensions);
        }
        if let Some(tokens) = self.block_size {
            options = options.block_size(tokens);
        }
        if let Some(dtype) = self.dtype {
            options = options.dtype(dtype);
        }
        if let Some(bytes) = self.source_memory {
            options = options.memory_limit(bytes);
        }
        match self.room {
            Some(times) => options.room(times),
            None => options,
        }
    }
}

/// Prints the warnings about the records.
pub(crate) fn warn(records: &Records<dyn Format>) {
    for warning in records.warnings() {
        print_error_line(format_args!("warning: {}", as_flags(warning)));
    }
}

/// Parses `NAME=VALUE`.
fn pair<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<(String, T), String> {
    let (name, value) = text.rsplit_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.parse().map_err(|error| format!("{error}"))?))
}

/// Replaces the names of options in a message by the command-line flags.
pub(crate) fn as_flags(message: String) -> String {
    let flags = ServerOptions::augment_args(FileOptions::augment_args(Command::new("")));
    let message = message.replace("`memory_limit`", "`source_memory`");
    flags.get_arguments().fold(message, |message, flag| {
        let long = flag.get_long().unwrap_or_default();
        message.replace(&format!("`{}`", flag.get_id()), &format!("--{long}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_flags() {
        let message = "list `columns` that all have, or set `skip_incomplete`; raise `memory_limit` of `x`";
        let flags = "list --columns that all have, or set --skip-incomplete; raise --source-memory of `x`";
        assert_eq!(as_flags(message.to_owned()), flags);
    }

    #[test]
    fn values_follow_the_last_equals_sign() {
        assert_eq!(pair::<f64>("a=b=1.5"), Ok(("a=b".to_owned(), 1.5)));
        assert!(pair::<f64>("a").is_err() && pair::<FieldKind>("a=numbers").is_err());
    }
}
