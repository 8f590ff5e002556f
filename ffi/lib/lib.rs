//! The C interface as `libslotline.so` and `libslotline.a`. The implementation is in `slotline-ffi`.

pub use slotline_ffi::*;
