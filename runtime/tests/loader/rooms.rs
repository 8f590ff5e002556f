//! The folders of the loader, from the bottom to the top: none imports from one above it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom to the top.
const ROOMS: [&str; 13] = [
    "error",
    "spans",
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
    "build",
];

#[test]
fn no_import_runs_back_up_between_the_folders_of_the_loader() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loader");
    let mut imports = BTreeSet::new();
    let mut files = vec![root.clone()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path != root.join("mod.rs") {
            imports.extend(of_file(&path, &room(&root, &path)));
        }
    }
    assert!(imports.len() > ROOMS.len(), "{imports:?}");
    let rank = |room: &str| ROOMS.iter().position(|name| *name == room);
    let back: Vec<_> = imports.iter().filter(|(from, to, _)| rank(to).is_none_or(|to| Some(to) > rank(from))).collect();
    assert!(back.is_empty(), "{back:#?}");
}

/// The folder below the loader's that a file is in, or the file's own name.
fn room(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).expect("a file of the loader").with_extension("");
    inside.iter().next().expect("a name").to_string_lossy().into_owned()
}

/// What a file imports from other rooms: from where, to where, and the file. Tests, and links of the documentation, may name
/// anything. What is imported by its public name counts as from above, since only the top knows all.
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
