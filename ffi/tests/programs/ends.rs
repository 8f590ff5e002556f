//! The ends of loaders and batches: those that are freed twice, and threads that a loader leaves behind.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};

#[test]
fn what_is_freed_twice_is_reported() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let program = scratch("freed").join("freed");
    compile(&cc, &["-std=c11"], &here().join("tests/c/freed.c"), &program);
    assert_eq!(run(Command::new(&program).arg("nothing")), "ok\n");
    assert_eq!(run(Command::new(&program).arg("next")), "loader was freed; free it after its last use\nok\n");
    for what in ["loader", "batch"] {
        let output = Command::new(&program).arg(what).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(&format!("slotline: a {what} was freed twice")), "{}\n{text}", output.status);
        assert!(output.status.signal().is_some(), "{}", output.status);
    }
}

#[test]
fn freeing_a_loader_waits_as_long_as_close_timeout_says() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let program = scratch("ends_c").join("ends");
    compile(&cc, &["-std=c11", "-O1"], &here().join("tests/c/ends.c"), &program);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}

#[test]
fn destroying_a_loader_waits_as_long_as_close_timeout_says() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let program = scratch("ends_cpp").join("ends");
    let flags = ["-std=c++17", "-O1", "-Wconversion", "-Wshadow"];
    compile(&cxx, &flags, &here().join("tests/cpp/ends.cpp"), &program);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}
