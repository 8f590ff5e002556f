//! Sets the library's soname to the name that CUDA programs look for. The file itself has a
//! different name: cargo puts its folder on the loader's path, where a file named `libcuda.so`
//! would hide a real driver.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rerun-if-changed=build.rs");
}
