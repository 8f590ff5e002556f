//! The libFuzzer entry point of [`slotline_fuzz::loader`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::loader(data));
