//! Cases in which loading the fake driver is refused. None of these tests loads it successfully.

use std::path::Path;

use slotline_cuda_fake::{Fake, LoadError};

#[test]
fn a_missing_file_is_refused_by_name() {
    let error = Fake::load_from(Path::new("/nowhere/libfake.so")).unwrap_err();
    assert!(matches!(error, LoadError::Refused { .. }));
    assert!(error.to_string().contains("/nowhere/libfake.so"), "{error}");
}

#[test]
fn another_library_is_refused_by_name() {
    let error = Fake::load_from(Path::new("libc.so.6")).unwrap_err();
    assert_eq!(error.to_string(), "libc.so.6 is not a fake driver of this build; rebuild it");
}

#[test]
fn a_second_driver_in_a_process_is_refused() {
    let fake = Fake::find().unwrap();
    // The loader treats a copy of the file as a different library.
    let other = std::env::temp_dir().join(format!("slotline-fake-{}.so", std::process::id()));
    std::fs::copy(fake, &other).unwrap();
    let name = std::ffi::CString::new(other.to_str().unwrap()).unwrap();
    // SAFETY: loading the fake driver's library runs none of its code.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    std::fs::remove_file(&other).unwrap();
    assert!(!library.is_null());
    assert!(matches!(Fake::load_from(&Fake::find().unwrap()), Err(LoadError::TooLate)));
}

#[test]
fn the_client_adds_no_driver_functions_to_the_program() {
    // SAFETY: the call only looks up a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuInit".as_ptr()) };
    assert!(found.is_null());
}
