//! Machines without a driver, with an old one, or with something else of its name. Each has a process of its own, as what is
//! loaded stays loaded; and nothing is asked of a machine that has a driver but that nothing panics.

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

/// Some library that this process has.
fn any_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap().into()
}

#[test]
fn without_a_driver_there_is_an_error_that_says_so() {
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
fn a_file_that_is_no_library_is_said_to_be_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libcuda.so"), "no library").unwrap();
    run("child_that_finds_a_broken_file", folder.path());
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_finds_a_broken_file() {
    // Further names may be those of a driver.
    if let Err(Unavailable::NoLibrary { reason, .. }) = probe() {
        assert!(reason.contains("libcuda.so") && !reason.contains("No such file"), "{reason}");
    }
}

#[test]
fn a_library_without_a_function_is_named_with_it() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(any_library(), folder.path().join("libcuda.so")).unwrap();
    run("child_that_finds_another_library", folder.path());
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_finds_another_library() {
    for _ in 0..2 {
        let error = probe().unwrap_err();
        assert!(matches!(error, Unavailable::MissingSymbol { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("libcuda.so has no cuCtxGetCurrent") && text.contains("11.4"), "{text}");
    }
}
