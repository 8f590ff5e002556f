//! Tests that `include/slotline.h` is what cbindgen generates from the sources.
//!
//! After a change of the interface, run `SLOTLINE_WRITE_HEADER=1 cargo test -p slotline-ffi --test header`.

use std::fs;
use std::path::Path;

fn header() -> String {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    let mut text = Vec::new();
    cbindgen::generate_with_config(crate_dir, config).expect("the sources parse").write(&mut text);
    for_c(&String::from_utf8(text).expect("sources are UTF-8"))
}

/// Adapts the text for C: removes the sections `# Safety`, whose rules for pointers are at the top
/// of the header, and the Markdown of headings.
fn for_c(header: &str) -> String {
    let header = header.replace("// # Errors\n//\n", "// Errors:\n");
    let mut parts = header.split("//\n// # Safety\n");
    let mut text = parts.next().expect("a header").to_owned();
    for part in parts {
        let after = part.split_inclusive('\n').skip_while(|line| line.starts_with("//"));
        text.extend(after);
    }
    assert!(!text.contains("// # "), "a heading of Rust is left");
    text
}

#[test]
fn the_header_matches_the_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/slotline.h");
    let made = header();
    if std::env::var_os("SLOTLINE_WRITE_HEADER").is_some() {
        fs::write(&path, &made).expect("the header can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(kept.lines()).position(|(made, kept)| made != kept);
    assert!(
        made == kept,
        "include/slotline.h differs from the sources, first in line {:?}; regenerate it (see the top of this file)",
        differs.map(|line| line + 1)
    );
}

/// Header lines must fit into editors and terminals side by side.
#[test]
fn no_header_has_lines_of_more_than_130_characters() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let files = fs::read_dir(include.join("slotline")).unwrap().map(|entry| entry.unwrap().path());
    let mut read = 0;
    for path in files.chain(["slotline.h", "slotline.hpp"].map(|name| include.join(name))) {
        read += 1;
        for (i, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            assert!(line.chars().count() <= 130, "{}, line {}: {line}", path.display(), i + 1);
        }
    }
    assert!(read > 20);
}
