//! Compiles `src/from_blob.cpp` against the libtorch that torch-sys found.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=src/from_blob.cpp");
    let lib = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys reports where libtorch is");
    let include = Path::new(&lib).parent().expect("libtorch's libraries are in a folder").join("include");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    cc::Build::new()
        .cpp(true)
        .warnings(false)
        .std("c++17") // Before CXXFLAGS, which can override it.
        .include(&include)
        .file("src/from_blob.cpp")
        .compile("slotline_tch");
}
