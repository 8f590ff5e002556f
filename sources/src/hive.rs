//! Hive partitioning: files in folders that are named after values, such as `year=2024/month=5`, as
//! Hive and Spark write tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotline::dtype::DType;

use crate::columns::View;
use crate::files::{below, is_url, names_in};
use crate::saved::is_index;
use crate::{CapacityHint, Error, FieldKind, Format, RecordFields, Records, Value};

/// The maximum depth of folders.
const DEEPEST: usize = 16;

/// The text in a folder's name that stands for a missing value.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A file, and the values that its folders are named after.
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) values: Vec<(String, String)>,
}

/// Whether this is the name of a folder that is named after a value, `key=value`.
pub(crate) fn is_part(name: &str) -> bool {
    name.split_once('=').is_some_and(|(key, _)| !key.is_empty())
}

/// Returns the names of folders, without names that begin with a dot or `_`, whose folders hold no
/// data.
pub(crate) fn folders<'a>(folder: &Path, names: &'a [String]) -> Vec<&'a str> {
    let is_folder = |name: &&str| if is_url(folder) { name.ends_with('/') } else { folder.join(name).is_dir() };
    let visible = names.iter().map(String::as_str).filter(|name| !name.starts_with(['.', '_']));
    visible.filter(is_folder).map(|name| name.trim_end_matches('/')).collect()
}

/// Returns the files below a folder, sorted by their folders' names.
pub(crate) fn parts(folder: &Path) -> Result<Vec<Part>, Error> {
    let mut found = Vec::new();
    list(folder, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Returns the keys in the folders' names, which must be the same for all files.
pub(crate) fn keys(parts: &[Part]) -> Result<Vec<&str>, Error> {
    let keys = |part: usize| -> Vec<&str> { parts[part].values.iter().map(|(key, _)| key.as_str()).collect() };
    let first = if parts.is_empty() { Vec::new() } else { keys(0) };
    for (number, part) in parts.iter().enumerate() {
        let problem = match keys(number) {
            // `list` returns an empty key for a folder that is not named after a value.
            found if found.contains(&"") => {
                "in a folder that is not named after a value, among others that are".to_owned()
            }
            found if found != first => format!("folders for {}, not {}", found.join(", "), first.join(", ")),
            _ => continue,
        };
        let advice = "name all folders of a level after the same key, as in `year=2024/month=5`, or move it away";
        return Err(Error::in_file(&part.path, problem, advice));
    }
    Ok(first)
}

/// Adds the files below a folder to `found`. A folder that is not named after a value gets the
/// empty key.
fn list(folder: &Path, values: &mut Vec<(String, String)>, found: &mut Vec<Part>) -> Result<(), Error> {
    let names = names_in(folder)?;
    let folders = folders(folder, &names);
    for name in &folders {
        let path = below(folder, name);
        if values.len() == DEEPEST {
            let problem = format!("a folder more than {DEEPEST} deep");
            return Err(Error::in_file(path, problem, "move it away"));
        }
        let (key, value) = name.split_once('=').unwrap_or(("", name));
        values.push((decoded(key), decoded(value)));
        list(&path, values, found)?;
        values.pop();
    }
    let visible = names.iter().filter(|name| !name.starts_with(['.', '_']) && !name.ends_with('/') && !is_index(name));
    let files = visible.filter(|name| !folders.contains(&name.as_str()));
    found.extend(files.map(|name| Part { path: below(folder, name), values: values.clone() }));
    Ok(())
}

/// Percent-decodes a name. If the result is not UTF-8, returns the name unchanged.
fn decoded(name: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| byte == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}

/// Adds a field to all samples for each key, with the value in the name of the folder that contains
/// the sample's file. If the files have a field with that name, none is added. The field is an
/// integer if all values are, and otherwise text.
pub(crate) fn with_values(
    inner: Arc<dyn Format>,
    parts: &[Part],
    missing_as_zero: bool,
) -> Result<Records<View<dyn Format>>, Error> {
    let of_files = inner.fields().as_slice();
    let mut fields: Vec<_> = of_files.iter().map(|field| (field.name.clone(), field.kind.clone())).collect();
    let mut values = Vec::new();
    for level in 0..parts.first().map_or(0, |part| part.values.len()) {
        let name = &parts[0].values[level].0;
        if fields.iter().any(|(other, _)| other == name) {
            continue;
        }
        let texts = || parts.iter().map(|part| part.values[level].1.as_str());
        if let Some(part) = parts.iter().find(|part| part.values[level].1 == NULL).filter(|_| !missing_as_zero) {
            let problem = format!("{name} has no value ({NULL})");
            let advice = "leave it out with `columns`, or set `missing_as_zero`";
            return Err(Error::in_file(&part.path, problem, advice));
        }
        let is_integer = texts().all(|text| text == NULL || text.parse::<i64>().is_ok());
        let text = |text: &str| if text == NULL { String::new() } else { text.to_owned() };
        let kind = match is_integer {
            true => FieldKind::Number(DType::I64),
            false => FieldKind::Text(CapacityHint::of(texts().map(|value| text(value).len() as u64))),
        };
        fields.push((name.clone(), kind));
        let value = |value: &str| match is_integer {
            true => Value::number(value.parse::<i64>().unwrap_or(0)),
            false => Value::Bytes(text(value).into_bytes().into()),
        };
        values.push(texts().map(value).collect::<Vec<_>>());
    }
    let (mut starts, mut files) = (vec![0], Vec::new());
    for len in inner.shard_lens().into_iter().filter(|&len| len > 0) {
        let first = starts[starts.len() - 1];
        files.push(inner.file_of(first).unwrap_or(0));
        starts.push(first + len);
    }
    let of_shards = |of_files: Vec<Value<'static>>| files.iter().map(|&file| of_files[file].clone()).collect();
    let values = values.into_iter().map(of_shards).collect();
    Ok(Records::new(View::with_values(inner, RecordFields::new(fields), starts, values)))
}
