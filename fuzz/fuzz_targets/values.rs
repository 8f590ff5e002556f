//! The libFuzzer entry point of [`slotline_fuzz::values`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::values(data));
