//! The README for C++ programmers: every C++ and C block compiles and runs.

use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};

/// Returns the README's blocks in a language, without their fences.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let (mut blocks, mut rest) = (Vec::new(), page);
    while let Some(start) = rest.find(&fence) {
        let block = &rest[start + fence.len()..];
        let end = block.find("```").expect("a block ends");
        blocks.push(block[..end].to_owned());
        rest = &block[end + 3..];
    }
    blocks
}

fn readme() -> String {
    std::fs::read_to_string(here().join("README.md")).unwrap()
}

#[test]
fn the_readme_cpp_blocks_compile_and_run() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let folder = scratch("readme_cpp");
    let blocks = blocks(&readme(), "cpp");
    assert!(blocks.len() > 5 && blocks[0].contains("int main()") && blocks[0].lines().count() <= 20);
    for (i, block) in blocks.iter().enumerate() {
        // A block without a `main` is the body of a function that has a loader, as the README says.
        let source = if block.contains("int main()") { block.clone() } else { wrapped(block) };
        let (path, program) = (folder.join(format!("{i}.cpp")), folder.join(format!("{i}")));
        std::fs::write(&path, source).unwrap();
        compile(&cxx, &["-std=c++17", "-Wno-unused"], &path, &program);
        run(&mut Command::new(program));
    }
}

/// Makes a program from a snippet: types at namespace scope, and statements in `main`.
fn wrapped(block: &str) -> String {
    let (types, statements) = block.split_once("\n// …\n").unwrap_or(("", block));
    format!(
        "#include <slotline.hpp>\n#include <chrono>\n#include <cmath>\n#include <cstdio>\n#include <numeric>\n\
         #include <random>\n#include <thread>\n{types}\nint main() {{\n\
         slotline::loader loader(slotline::dataset::open(\"digits\"), slotline::options().batch_size(64));\n\
         {statements}\n}}\n"
    )
}

#[test]
fn the_readme_c_program_runs() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let folder = scratch("readme_c");
    let blocks = blocks(&readme(), "c");
    assert!(!blocks.is_empty());
    for (i, block) in blocks.iter().enumerate() {
        let (path, program) = (folder.join(format!("{i}.c")), folder.join(format!("{i}")));
        std::fs::write(&path, block).unwrap();
        compile(&cc, &["-std=c99"], &path, &program);
        run(&mut Command::new(program));
    }
}
