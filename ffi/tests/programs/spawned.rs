//! Programs in C and C++ that start themselves as worker processes.

use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};

#[test]
fn c_programs_start_themselves_as_workers() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let folder = scratch("spawned_c");
    let (program, files) = (folder.join("spawned"), folder.join("files"));
    compile(&cc, &["-std=c11", "-O1"], &here().join("tests/c/spawned.c"), &program);
    std::fs::create_dir(&files).unwrap();
    assert_eq!(run(Command::new(program).arg("test").arg(files)), "ok\n");
}

#[test]
fn cpp_programs_start_themselves_as_workers() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let program = scratch("spawned_cpp").join("spawned");
    compile(&cxx, &["-std=c++17", "-O1", "-Wconversion", "-Wshadow"], &here().join("tests/cpp/spawned.cpp"), &program);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}
