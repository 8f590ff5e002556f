//! Gives the driver the name that CUDA programs look for. Its file keeps a name of its own: cargo puts its folder on the
//! loader's path, where a `libcuda.so` would hide a real one.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rerun-if-changed=build.rs");
}
