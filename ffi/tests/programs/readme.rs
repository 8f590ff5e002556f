//! Tests that every C++ and C block of this crate's README compiles and runs.

use std::path::Path;
use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};

/// Returns the blocks of a page in a language, without their fences.
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
    let (programs, snippets) = programs();
    for (i, program) in programs.iter().enumerate() {
        compile_and_run(&cxx, &folder.join(format!("{i}.cpp")), program);
    }
    compile_and_run(&cxx, &folder.join("snippets.cpp"), &snippets);
}

#[test]
fn the_programs_of_the_book_compile_and_run() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let folder = scratch("book_cpp");
    let page = std::fs::read_to_string(here().join("../docs/src/c-and-cpp.md")).unwrap();
    let programs: Vec<_> = blocks(&page, "cpp").into_iter().filter(|block| block.contains("int main()")).collect();
    assert!(programs.len() >= 5, "{programs:?}");
    let needs_pictures = |program: &str| program.contains("batch.mix");
    for (i, program) in programs.iter().enumerate().filter(|(_, it)| cfg!(feature = "image") || !needs_pictures(it)) {
        compile_and_run(&cxx, &folder.join(format!("{i}.cpp")), program);
    }
}

/// Returns the README's programs, and one program that contains all of its snippets: compiling them
/// together takes a quarter of the time.
pub(crate) fn programs() -> (Vec<String>, String) {
    let blocks = blocks(&readme(), "cpp");
    assert!(blocks.len() > 5 && blocks[0].contains("int main()") && blocks[0].lines().count() <= 20);
    let (programs, snippets): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|block| block.contains("int main()"));
    let headers = ["slotline.hpp", "atomic", "chrono", "cmath", "cstdio", "mutex", "numeric", "random", "thread"];
    let mut all: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    for (i, snippet) in snippets.iter().enumerate() {
        all += &function(i, snippet);
    }
    all += "int main() {\n";
    for i in 0..snippets.len() {
        all += &format!("if (snippet{i}::run() != 0) return 1;\n");
    }
    (programs, all + "}\n")
}

/// Makes a function from a snippet. As the README says, types are at namespace scope, and
/// statements are in a function that has a loader.
fn function(number: usize, snippet: &str) -> String {
    let (types, statements) = snippet.split_once("\n// …\n").unwrap_or(("", snippet));
    format!(
        "namespace snippet{number} {{\n{types}\nstatic int run() {{\n\
         slotline::loader loader(slotline::dataset::open(\"digits\"), slotline::options().batch_size(64));\n\
         {statements}\nreturn 0;\n}}\n}}\n"
    )
}

fn compile_and_run(cxx: &str, path: &Path, source: &str) {
    let program = path.with_extension("");
    std::fs::write(path, source).unwrap();
    let pictures: &[&str] = if cfg!(feature = "image") { &["-DSLOTLINE_HAS_IMAGE"] } else { &[] };
    compile(cxx, &[&["-std=c++17", "-Wno-unused"], pictures].concat(), path, &program);
    run(&mut Command::new(program));
}

/// Returns the README's programs in C: either those meant for ThreadSanitizer, or the others.
pub(crate) fn c_programs(for_thread_sanitizer: bool) -> Vec<String> {
    let mut programs = blocks(&readme(), "c");
    programs.retain(|program| program.contains("tsan_interface.h") == for_thread_sanitizer);
    programs
}

#[test]
fn the_readme_c_program_runs() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let folder = scratch("readme_c");
    let programs = c_programs(false);
    assert!(!programs.is_empty());
    for (i, block) in programs.iter().enumerate() {
        let (path, program) = (folder.join(format!("{i}.c")), folder.join(format!("{i}")));
        std::fs::write(&path, block).unwrap();
        compile(&cc, &["-std=c99"], &path, &program);
        run(&mut Command::new(program));
    }
}
