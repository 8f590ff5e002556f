//! See [`slotline_fuzz::lying_rings`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::lying_rings(data));
