//! `slotline inspect`: prints the fields of a dataset, and one sample.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use slotline::Loader;
use slotline::dataset::{Dataset, Subset};
use slotline::dtype::{DType, Element, from_bytes};
use slotline::loader::Batch;
use slotline::sample::Schema;
use slotline_demo::output::print_line;

#[cfg(feature = "image")]
use crate::files::check_not_source;
#[cfg(feature = "image")]
use crate::sheet::SheetOptions;
use crate::source::{Described, Field, Holds, Input, Opened};

/// The most elements of a tensor or list to print, and the most characters of a string.
const ELEMENTS: usize = 8;
const CHARACTERS: usize = 400;

/// The command-line flags.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    #[command(flatten)]
    input: Input,

    /// Which sample to show
    #[arg(long, value_name = "N", default_value_t = 0)]
    index: usize,

    /// Write the bytes and texts of the sample to files in FOLDER, which is created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    #[cfg(feature = "image")]
    #[command(flatten)]
    sheet: SheetOptions,
}

impl Inspect {
    pub(crate) fn run(self) -> Result<()> {
        // SAFETY: the help text requires that the files do not change while the program runs; this command writes to files
        // only after it has read the sample.
        match unsafe { self.input.open()? } {
            Opened::Arrays(arrays) => self.show(arrays),
            Opened::Records(records) => self.show(records),
            Opened::Stream(tars) => {
                print_line(format_args!("{}: a stream of samples", self.input.source))?;
                let (fields, loader) = (tars.named(), Loader::iterable(tars).batch_size(1).build()?);
                list(&fields)?;
                let index = self.index;
                self.print(&fields, loader, index)
            }
            #[cfg(feature = "image")]
            Opened::Pictures(pictures) => {
                let Some(path) = &self.sheet.sheet else { return self.show(*pictures) };
                check_not_source(&self.input.source, &[("--sheet", path.clone())])?;
                let (visible, normalize) = self.input.image.visible(pictures.records())?;
                let count = self.sheet.write(path, visible, normalize)?;
                let written = format!("a sheet of {count} pictures was written to {}", path.display());
                self.show(*pictures)?;
                print_line(written)
            }
        }
    }

    fn show(self, dataset: impl Dataset + Described) -> Result<()> {
        let (len, fields) = (dataset.len(), dataset.named());
        print_line(format_args!("{}: {len} samples", self.input.source))?;
        list(&fields)?;
        if self.index >= len {
            bail!("there is no sample {}: the dataset has {len}", self.index);
        }
        let loader = Loader::builder(Subset::new(dataset, [self.index])?).batch_size(1).build()?;
        self.print(&fields, loader, 0)
    }

    /// Prints the sample at a position of the pass.
    fn print<S: Schema>(self, fields: &[Field], mut loader: Loader<Batch<S>>, position: usize) -> Result<()> {
        let mut pass = loader.epoch()?;
        let batch = pass.nth(position).with_context(|| format!("there is no sample {}", self.index))?;
        let batch = batch.with_context(|| format!("cannot read sample {}", self.index))?;
        print_line(format_args!("sample {}:", self.index))?;
        let columns = batch.columns();
        for (i, field) in fields.iter().enumerate() {
            let column = columns.get(i).context("a field without a column")?;
            // Leave out the first dimension, that of the batch; a packed field has its items there.
            let shape = if columns.offsets(i).is_some() { column.shape() } else { &column.shape()[1..] };
            let bytes = column.bytes();
            let value = match field.holds {
                Holds::Text => text(bytes),
                Holds::Bytes => format!("{} bytes{}", bytes.len(), known(bytes).map_or("", |(_, what)| what)),
                Holds::Elements => elements(column.dtype(), shape, bytes),
            };
            print_line(format_args!("  {}: {value}", field.name))?;
            if let Some(folder) = self.out.as_ref().filter(|_| field.holds != Holds::Elements) {
                let extension = match field.holds {
                    Holds::Text => "txt",
                    _ => known(bytes).map_or("bin", |(extension, _)| extension),
                };
                let path = save(folder, self.index, &field.name, extension, bytes)?;
                print_line(format_args!("    written to {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// Prints the names and types of the fields.
fn list(fields: &[Field]) -> Result<()> {
    fields.iter().try_for_each(|field| print_line(format_args!("  {}: {}", field.name, field.kind)))
}

/// Writes a field to a separate file, and returns its path.
fn save(folder: &Path, index: usize, name: &str, extension: &str, bytes: &[u8]) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let plain = |char: char| if char.is_alphanumeric() || "-_.".contains(char) { char } else { '_' };
    let name: String = name.chars().map(plain).collect();
    let path = folder.join(format!("{index}-{name}.{extension}"));
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], bytes.len()),
        None => format!("{text:?}"),
    }
}

/// Returns the extension and a description of the format of these bytes, if the format is a common
/// one.
fn known(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    Some(match bytes {
        [0xff, 0xd8, 0xff, ..] => ("jpg", ", a JPEG picture"),
        [0x89, b'P', b'N', b'G', ..] => ("png", ", a PNG picture"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ("webp", ", a WebP picture"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => ("wav", ", a WAVE sound"),
        [b'G', b'I', b'F', b'8', ..] => ("gif", ", a GIF picture"),
        [b'f', b'L', b'a', b'C', ..] => ("flac", ", a FLAC sound"),
        [b'O', b'g', b'g', b'S', ..] => ("ogg", ", an Ogg sound"),
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => ("mp4", ", an MP4 film"),
        _ => return None,
    })
}

fn elements(dtype: DType, shape: &[usize], bytes: &[u8]) -> String {
    fn list<T: Element + std::fmt::Debug>(bytes: &[u8]) -> Vec<String> {
        let shown = &bytes[..bytes.len().min(ELEMENTS * size_of::<T>())];
        from_bytes::<T>(shown).unwrap_or_default().iter().map(|element| format!("{element:?}")).collect()
    }
    fn complex<T: Element + std::fmt::Debug>(bytes: &[u8]) -> Vec<String> {
        let shown = &bytes[..bytes.len().min(ELEMENTS * 2 * size_of::<T>())];
        let parts = from_bytes::<T>(shown).unwrap_or_default();
        parts.as_chunks().0.iter().map(|[re, im]| format!("{re:?}{im:+?}i")).collect()
    }
    let shown = match dtype {
        DType::Bool => list::<bool>(bytes),
        DType::U8 => list::<u8>(bytes),
        DType::I8 => list::<i8>(bytes),
        DType::U16 => list::<u16>(bytes),
        DType::I16 => list::<i16>(bytes),
        DType::U32 => list::<u32>(bytes),
        DType::I32 => list::<i32>(bytes),
        DType::U64 => list::<u64>(bytes),
        DType::I64 => list::<i64>(bytes),
        DType::F32 => list::<f32>(bytes),
        DType::F64 => list::<f64>(bytes),
        DType::Complex64 => complex::<f32>(bytes),
        DType::Complex128 => complex::<f64>(bytes),
        _ => vec![format!("{} bytes of {dtype}", bytes.len())],
    };
    if shape.is_empty() {
        return shown.concat();
    }
    let rest = if bytes.len() > ELEMENTS * dtype.size() { ", …" } else { "" };
    format!("{shape:?} [{}{rest}]", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cut_where_they_are_long() {
        assert_eq!(text("naïve\n".as_bytes()), "\"naïve\\n\"");
        assert!(text("ü".repeat(500).as_bytes()).ends_with("ü\"… (1000 bytes)"));
        assert_eq!(elements(DType::I64, &[], &7_i64.to_ne_bytes()), "7");
        assert_eq!(elements(DType::U8, &[2, 5], &[1; 10]), "[2, 5] [1, 1, 1, 1, 1, 1, 1, 1, …]");
        assert_eq!(elements(DType::F32, &[0], &[]), "[0] []");
        let parts: Vec<u8> = [1.5_f64, -2.0, f64::NAN, 0.0].iter().flat_map(|part| part.to_ne_bytes()).collect();
        assert_eq!(elements(DType::Complex128, &[2], &parts), "[2] [1.5-2.0i, NaN+0.0i]");
        assert_eq!(elements(DType::Complex64, &[20], &[0; 160]), format!("[20] [{}…]", "0.0+0.0i, ".repeat(8)));
    }
}
