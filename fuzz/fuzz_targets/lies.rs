//! See [`slotline_fuzz::lies`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::lies(data));
