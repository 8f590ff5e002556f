//! Putting the fake driver in a driver's place, and when that is refused. None of these tests gets so far.

use std::path::Path;

use slotline_cuda_fake::{Fake, LoadError};

#[test]
fn a_file_that_is_not_there_is_refused_by_name() {
    let error = Fake::load_from(Path::new("/nowhere/libfake.so")).unwrap_err();
    assert!(matches!(error, LoadError::Refused { .. }));
    assert!(error.to_string().contains("/nowhere/libfake.so"), "{error}");
}

#[test]
fn another_library_is_refused_by_name() {
    let error = Fake::load_from(Path::new("libc.so.6")).unwrap_err();
    assert_eq!(error.to_string(), "libc.so.6 is no fake driver of this build; build it anew");
}

#[test]
fn a_process_that_has_a_driver_keeps_it() {
    let fake = Fake::find().unwrap();
    // Another file is another library, even with the same in it.
    let other = std::env::temp_dir().join(format!("slotline-fake-{}.so", std::process::id()));
    std::fs::copy(fake, &other).unwrap();
    let name = std::ffi::CString::new(other.to_str().unwrap()).unwrap();
    // SAFETY: loading it runs nothing.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    std::fs::remove_file(&other).unwrap();
    assert!(!library.is_null());
    assert!(matches!(Fake::load_from(&Fake::find().unwrap()), Err(LoadError::TooLate)));
}

#[test]
fn the_client_brings_no_function_of_the_drivers_into_the_program() {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuInit".as_ptr()) };
    assert!(found.is_null());
}
