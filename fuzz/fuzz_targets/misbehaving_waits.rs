//! The libFuzzer entry point of [`slotline_fuzz::misbehaving_waits`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::misbehaving_waits(data));
