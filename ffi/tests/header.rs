//! `include/slotline.h` must be what cbindgen generates from the sources.
//!
//! After a change of the interface, run `SLOTLINE_WRITE_HEADER=1 cargo test -p slotline-ffi --test header`.

use std::fs;
use std::path::Path;

fn header() -> String {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    let mut text = Vec::new();
    cbindgen::generate_with_config(crate_dir, config).expect("the sources parse").write(&mut text);
    String::from_utf8(text).expect("sources are UTF-8")
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
