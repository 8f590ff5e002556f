//! Checks that the folders of the loader are layers: none imports from a higher layer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders and files of the loader, from the lowest layer to the highest.
const LAYERS: [&str; 13] = [
    "error",
    "trace",
    "cores",
    "checkpoint",
    "order",
    "collate",
    "metrics",
    "bad_samples",
    "worker",
    "builder",
    "backend",
    "consumer",
    "assembly",
];

#[test]
fn no_folder_of_the_loader_imports_from_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loader");
    let mut imports = BTreeSet::new();
    let mut files = vec![root.clone()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path != root.join("mod.rs") {
            imports.extend(of_file(&path, &layer(&root, &path)));
        }
    }
    assert!(imports.len() > LAYERS.len(), "{imports:?}");
    let rank = |layer: &str| LAYERS.iter().position(|name| *name == layer);
    let back: Vec<_> = imports.iter().filter(|(from, to, _)| rank(to).is_none_or(|to| Some(to) > rank(from))).collect();
    assert!(back.is_empty(), "{back:#?}");
}

/// Returns the layer of a file: the folder of the loader that contains it, or its own name if it is
/// in none.
fn layer(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).expect("a file of the loader").with_extension("");
    inside.iter().next().expect("a name").to_string_lossy().into_owned()
}

/// Returns the imports of a file that is in the layer `from`. Each import is the file's layer, the
/// imported layer, and the file. Imports in tests and documentation links are ignored. An import by
/// a public name counts as one from the highest layer, because only that layer exports all names.
fn of_file(path: &PathBuf, from: &str) -> Vec<(String, String, PathBuf)> {
    let text = fs::read_to_string(path).expect("a source file");
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut imports = Vec::new();
    while let Some(line) = lines.next() {
        if line == "#[cfg(doc)]" {
            lines.next();
            continue;
        }
        for rest in line.split("crate::loader::").skip(1) {
            let name: String = rest.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect();
            imports.push((from.to_owned(), name, path.clone()));
        }
    }
    imports
}
