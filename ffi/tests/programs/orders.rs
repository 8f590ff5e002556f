//! Tests that C, C++ and Rust deliver the same samples in the same order, with the same options.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::native::{compile, here, scratch, tool};
use slotline::Loader;
use slotline::source::Source;

/// Batch size, workers, whether to shuffle, whether to drop the last batch, and seed.
const OPTIONS: [(usize, usize, bool, bool, u64); 8] = [
    (64, 0, false, false, 0),
    (64, 2, false, true, 1),
    (64, 0, true, false, 42),
    (64, 1, true, false, 42),
    (64, 2, true, true, 42),
    (1, 2, true, false, 7),
    (7, 1, true, true, u64::MAX),
    (1797, 2, true, false, 1 << 40),
];

/// Returns the FNV-1a hash of the indices and both fields of every batch, over two passes.
fn of_rust((batch_size, workers, shuffle, drop_last, seed): (usize, usize, bool, bool, u64)) -> String {
    let digits = "digits".parse::<Source>().unwrap().load().unwrap();
    let builder = Loader::builder(digits).batch_size(batch_size).num_workers(workers).shuffle(shuffle);
    let mut loader = builder.drop_last(drop_last).seed(seed).build().unwrap();
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    for _ in 0..2 {
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            batch.indices().iter().flat_map(|index| index.to_ne_bytes()).for_each(&mut add);
            let columns = batch.columns();
            for i in 0..2 {
                columns.get(i).unwrap().bytes().iter().copied().for_each(&mut add);
            }
        }
    }
    format!("{digest:016x}\n")
}

/// Returns what a program prints for all options.
fn of_program(program: &Path) -> String {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for (batch_size, workers, shuffle, drop_last, seed) in OPTIONS {
        let (shuffle, drop_last) = (u8::from(shuffle), u8::from(drop_last));
        writeln!(stdin, "{batch_size} {workers} {shuffle} {drop_last} {seed}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {}", program.display(), output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn orders_are_the_same_in_c_cpp_and_rust() {
    let (Some(cc), Some(cxx)) = (tool("CC", "gcc"), tool("CXX", "g++")) else { return };
    let folder = scratch("orders");
    let (c, cpp) = (folder.join("c"), folder.join("cpp"));
    compile(&cc, &["-std=c99", "-O1"], &here().join("tests/c/orders.c"), &c);
    compile(&cxx, &["-std=c++17", "-O1"], &here().join("tests/cpp/orders.cpp"), &cpp);
    let rust: String = OPTIONS.into_iter().map(of_rust).collect();
    assert_eq!(of_program(&c), rust, "C");
    assert_eq!(of_program(&cpp), rust, "C++");
    let different: std::collections::HashSet<_> = rust.lines().collect();
    // The number of workers makes no difference, and two rows differ only in that.
    assert_eq!(different.len(), OPTIONS.len() - 1, "{rust}");
}
