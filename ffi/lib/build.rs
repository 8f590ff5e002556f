//! Sets the soname of the shared library. Before 1.0, libraries of the same minor version replace each other, then those of the
//! same major version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let mut version = of("CARGO_PKG_VERSION_MAJOR");
    if version == "0" {
        version = format!("0.{}", of("CARGO_PKG_VERSION_MINOR"));
    }
    if of("CARGO_CFG_TARGET_OS") == "linux" {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libslotline.so.{version}");
    }
}
