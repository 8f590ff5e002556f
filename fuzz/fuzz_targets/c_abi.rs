//! The libFuzzer entry point of [`slotline_fuzz::c_abi`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::c_abi(data));
