//! Tests of a user's program that is compiled for AddressSanitizer, with a library that is not.
//! Accesses through views that outlive their batches must be reported, and nothing else.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::native::{compile_sanitized, scratch, tool};
use crate::readme;

/// A program that reads the last value of each batch through a view after the batch was destroyed.
const KEPT: &str = r#"
#include <slotline.hpp>
#include <cstdlib>
#include <vector>

struct waves {
  std::size_t size() const { return 1000; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<float>("wave", {16})}; }
  void read(std::size_t index, slotline::sample& sample) const {
    for (float& value : sample.row<float>(0)) value = float(index);
  }
};

int main(int count, char** arguments) {
  const auto workers = std::size_t(std::atoi(arguments[1]));
  slotline::loader loader(waves{}, slotline::options().batch_size(10).num_workers(workers));
  std::vector<slotline::view<float>> views;
  float sum = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      auto wave = batch.field<float>(0);
      // Asks for what was delivered 8 batches ago.
      if (count > 2 && views.size() >= 8) sum += views[views.size() - 8][159];
      sum += wave[159];
      views.push_back(wave);
    }
  }
  return sum > 0 ? 0 : 1;
}
"#;

/// Compiles a program for AddressSanitizer, with the shared library.
fn build(cxx: &str, folder: &Path, name: &str, source: &str) -> PathBuf {
    let path = folder.join(name).with_extension("cpp");
    std::fs::write(&path, source).unwrap();
    compile_sanitized(cxx, "-fsanitize=address", &path)
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

#[track_caller]
fn expect_no_report(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("AddressSanitizer"), "{}\n{text}", output.status);
}

#[test]
fn views_that_outlive_their_batch_are_reported() {
    for (variable, compiler) in [("CXX", "g++"), ("CLANGXX", "clang++")] {
        let Some(cxx) = tool(variable, compiler) else { continue };
        let program = build(&cxx, &scratch(&format!("address_sanitizer_{variable}")), "kept", KEPT);
        for workers in ["0", "2"] {
            expect_no_report(&run(&program, &[workers]));
            let output = run(&program, &[workers, "views"]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && text.contains("use-after-poison"), "{}\n{text}", output.status);
        }
    }
}

#[test]
fn there_are_no_false_reports() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let folder = scratch("address_sanitizer");
    let (programs, snippets) = readme::programs();
    expect_no_report(&run(&build(&cxx, &folder, "readme", &programs[0]), &[]));
    expect_no_report(&run(&build(&cxx, &folder, "snippets", &snippets), &[]));
}
