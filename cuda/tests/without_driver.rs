//! Machines without a driver, with an old driver, or with a different library of its name. Each test runs in a
//! separate process, since a loaded library stays loaded. On machines that have a driver, the tests only require that
//! nothing panics.

use std::path::{Path, PathBuf};
use std::process::Command;

use slotline_cuda::{Device, Error, Unavailable, probe};

/// Runs one of the tests below in a process that finds `libcuda.so` in this folder.
fn run(test: &str, folder: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--ignored"]).env("LD_LIBRARY_PATH", folder);
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the path of a library that this process has loaded.
fn any_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap().into()
}

#[test]
fn a_missing_driver_is_an_error() {
    match probe() {
        Err(Unavailable::NoLibrary { tried, reason }) => {
            assert_eq!(tried[0], "libcuda.so");
            assert!(tried.iter().any(|name| name == "libcuda.so.1"));
            assert!(reason.contains("No such file"), "{reason}");
            let error = Device::new(0).unwrap_err();
            assert!(matches!(error, Error::Unavailable(Unavailable::NoLibrary { .. })), "{error}");
            let text = error.to_string();
            assert!(text.contains("libcuda.so") && text.contains("install NVIDIA's driver"), "{text}");
        }
        Err(other) => assert!(!other.to_string().is_empty()),
        Ok(driver) => assert!(!driver.devices.is_empty()),
    }
}

#[test]
fn an_error_names_a_file_that_is_not_a_library() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so"), "not a library").unwrap();
    run("child_that_finds_a_broken_file", folder.path());
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_finds_a_broken_file() {
    // Other names may belong to a real driver.
    if let Err(Unavailable::NoLibrary { reason, .. }) = probe() {
        assert!(reason.contains("libcuda.so") && !reason.contains("No such file"), "{reason}");
    }
}

#[test]
fn an_error_names_a_missing_function_and_its_library() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(any_library(), folder.path().join("libcuda.so")).unwrap();
    run("child_that_finds_another_library", folder.path());
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_finds_another_library() {
    for _ in 0..2 {
        let error = probe().unwrap_err();
        assert!(matches!(error, Unavailable::MissingSymbol { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("libcuda.so has no cuCtxGetCurrent") && text.contains("11.4"), "{text}");
    }
}
