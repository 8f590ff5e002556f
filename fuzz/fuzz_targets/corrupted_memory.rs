//! The libFuzzer entry point of [`slotline_fuzz::corrupted_memory`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slotline_fuzz::corrupted_memory(data));
