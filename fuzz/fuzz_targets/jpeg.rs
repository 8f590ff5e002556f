//! See [`slotline_fuzz::jpeg`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::jpeg(data));
