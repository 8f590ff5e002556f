//! See [`slotline_fuzz::mad_workers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::mad_workers(data));
