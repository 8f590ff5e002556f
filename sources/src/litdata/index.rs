//! The file `index.json` of LitData.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::files::read_whole;
use crate::shards::ADVICE;

#[derive(Deserialize)]
pub(super) struct Index {
    pub(super) chunks: Vec<Chunk>,
    pub(super) config: Config,
}

#[derive(Deserialize)]
pub(super) struct Chunk {
    /// The size of the chunk before compression, in bytes. It is approximate, as some versions of
    /// LitData do not count the table at the start of the chunk.
    pub(super) chunk_bytes: u64,
    /// The number of items in the chunk.
    pub(super) chunk_size: u64,
    /// The number of tokens in the chunk, if it was written for LitData's `TokensLoader`.
    pub(super) dim: Option<u64>,
    pub(super) filename: String,
}

#[derive(Deserialize)]
pub(super) struct Config {
    pub(super) compression: Option<String>,
    compression_level: Option<Value>,
    pub(super) data_format: Vec<String>,
    data_spec: Option<String>,
    encryption: Option<Value>,
    ipc_compression: Option<Value>,
    pub(super) item_loader: Option<String>,
}

/// Reads the index of a folder. Returns an error for features that are not supported.
pub(super) fn read(path: &Path) -> Result<Index, Error> {
    let bytes = read_whole(path)?;
    let wrong = |problem: String, advice| Err(Error::in_file(path, problem, advice));
    let index: Index = match serde_json::from_slice(&bytes) {
        Ok(index) => index,
        Err(error) => return wrong(format!("not an index of LitData: {error}"), ADVICE),
    };
    let config = &index.config;
    if config.encryption.as_ref().is_some_and(|value| !value.is_null()) {
        return wrong("encrypted chunks are not read".into(), "write them without `encryption`");
    }
    if let Some(level) = config.compression_level.as_ref().filter(|level| !level.is_null()) {
        let problem = format!("chunks that are compressed by {level} are not read");
        return wrong(problem, "write them with `compression_level=\"chunk\"`");
    }
    if config.ipc_compression.as_ref().is_some_and(|value| !value.is_null()) {
        return wrong("chunks of Arrow are not read".into(), "write them without Arrow types");
    }
    match config.item_loader.as_deref() {
        None | Some("PyTreeLoader" | "TokensLoader") => Ok(index),
        Some(other) => wrong(format!("chunks for the item loader {other} are not read"), "use PyTreeLoader"),
    }
}

/// Returns the names of the leaves of an item. A name consists of the keys of dictionaries and the
/// positions in lists that lead to the leaf, joined by dots.
pub(super) fn names(path: &Path, config: &Config) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    let wrong = |problem: String| Error::in_file(path, problem, ADVICE);
    let Some(spec) = &config.data_spec else {
        return Ok((0..config.data_format.len()).map(|i| i.to_string()).collect());
    };
    let spec: Value = serde_json::from_str(spec).map_err(|error| wrong(format!("data_spec: {error}")))?;
    // The first element is the version of the format.
    let root = spec.get(1).ok_or_else(|| wrong("data_spec has no tree".into()))?;
    leaves(root, "", &mut names).ok_or_else(|| wrong("data_spec is not a tree".into()))?;
    if names.len() != config.data_format.len() {
        let problem = format!("data_spec has {} leaves, and data_format {}", names.len(), config.data_format.len());
        return Err(wrong(problem));
    }
    Ok(names)
}

/// Adds the names of the leaves of a tree in the form that torch's `treespec_dumps` writes. The
/// recursion is limited, since serde_json limits the depth.
fn leaves(node: &Value, name: &str, names: &mut Vec<String>) -> Option<()> {
    if node.get("type")?.is_null() {
        names.push(if name.is_empty() { "data".to_owned() } else { name.to_owned() });
        return Some(());
    }
    let children = node.get("children_spec")?.as_array()?;
    let keys = node.get("context").and_then(Value::as_str).and_then(|keys| serde_json::from_str(keys).ok());
    let keys: Vec<Value> = keys.unwrap_or_default();
    for (i, child) in children.iter().enumerate() {
        let key = match keys.get(i).filter(|_| keys.len() == children.len()) {
            Some(Value::String(key)) => key.clone(),
            Some(key) => key.to_string(),
            None => i.to_string(),
        };
        let name = if name.is_empty() { key } else { format!("{name}.{key}") };
        leaves(child, &name, names)?;
    }
    Some(())
}
