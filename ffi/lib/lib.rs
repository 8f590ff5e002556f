//! The C interface as `libslotline.so` and `libslotline.a`; all of it is in `slotline-ffi`.

pub use slotline_ffi::*;
