//! Tests of datasets that this build cannot open: the errors must name the CMake option that is
//! needed.

use std::ffi::CString;
use std::ptr::null_mut;

use slotline_ffi::*;

use crate::support::call;

/// Returns the error message for a name that is not opened.
fn refused(name: &str) -> String {
    let (name, mut dataset) = (CString::new(name).unwrap(), null_mut());
    // SAFETY: the string and the out pointer are valid.
    let opened = call(|error| unsafe { slotline_dataset_open(name.as_ptr(), &mut dataset, error) });
    let (status, message) = opened.unwrap_err();
    assert!(
        dataset.is_null() && [SLOTLINE_ERROR_INVALID, SLOTLINE_ERROR_SOURCE].contains(&status),
        "{status:?}: {message}"
    );
    message
}

#[test]
fn what_the_library_does_not_open_is_told_as_in_cmake() {
    for name in ["tests", "data-*.tar", "s3://bucket/data.tar", "https://host/data.parquet"] {
        let message = refused(name);
        assert!(!message.contains("cargo") && !message.contains("feature"), "{message}");
        let wanted = match (cfg!(feature = "sources"), name.contains("://")) {
            (false, _) => "build the library with the CMake option SLOTLINE_SOURCES",
            (true, true) => "is a URL, which this library does not open; download the files",
            (true, false) => "",
        };
        assert!(message.contains(wanted), "{message}");
    }
}
