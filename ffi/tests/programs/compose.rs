//! Tests of datasets, written in C and C++: those made of other datasets, pointers to datasets, and their element types.

use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};

fn prints_ok(name: &str) {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let program = scratch(name).join(name);
    let source = here().join("tests/cpp").join(name).with_extension("cpp");
    compile(&cxx, &["-std=c++17", "-O1", "-Wconversion", "-Wshadow"], &source, &program);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}

#[test]
fn datasets_of_other_datasets_work() {
    prints_ok("compose");
}

#[test]
fn sixteen_bit_floating_point_numbers_work() {
    prints_ok("half");
}

#[test]
fn complex_numbers_work_in_c_and_cpp() {
    prints_ok("complex");
    let Some(cc) = tool("CC", "gcc") else { return };
    let program = scratch("complex_c").join("complex");
    compile(&cc, &["-std=c11", "-Wconversion"], &here().join("tests/c/complex.c"), &program);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}

/// Copies of a base would silently lose what the derived class adds, and a pointer does not say how long the object lives.
#[test]
fn what_a_dataset_cannot_hold_is_one_clear_error() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let source = r"
#include <slotline.hpp>
#include <mutex>
struct base {
  virtual ~base() = default;
  virtual std::size_t size() const { return 1; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<int>(std::string())}; }
  virtual void read(std::size_t, slotline::sample&) const {}
};
struct last final : base {};
struct locked {
  std::mutex lock;
  std::size_t size() const { return 1; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<int>(std::string())}; }
  void read(std::size_t, slotline::sample&) const {}
};
slotline::dataset made(const base& reference, const last& copied, locked& alone) {
  (void)reference, (void)copied, (void)alone;
  return GIVEN;
}
";
    let path = scratch("cut").join("cut.cpp");
    std::fs::write(&path, source).unwrap();
    let compile = |given: &str| {
        let mut command = Command::new(&cxx);
        command.args(["-std=c++17", "-fsyntax-only", &format!("-DGIVEN={given}"), "-I"]);
        String::from_utf8(command.arg(here().join("include")).arg(&path).output().unwrap().stderr).unwrap()
    };
    for accepted in ["copied", "std::ref(reference)", "std::ref(alone)", "std::make_shared<locked>()"] {
        assert_eq!(compile(accepted), "", "{accepted}");
    }
    for (refused, words) in [
        ("reference", "a class with virtual functions is not accepted by value"),
        ("alone", "this dataset cannot be copied"),
        ("&reference", "a pointer does not say how long the dataset lives"),
        ("&alone", "a pointer does not say how long the dataset lives"),
        ("5", "a dataset must have `void read"),
    ] {
        let message = compile(refused);
        assert!(message.contains(words) && message.matches("error:").count() == 1, "{refused}: {message}");
    }
}
