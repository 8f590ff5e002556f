//! The libFuzzer entry point of [`slotline_fuzz::sources`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::sources(data));
