//! Tests of a user's program that is compiled for ThreadSanitizer, with a library that is not.
//! There must be no false reports, and races in the user's code must be reported.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::native::{compile_sanitized, here, sanitizes, scratch, tool};
use crate::readme;

/// A program in which workers write one counter without a lock.
const RACE: &str = r#"
#include <slotline.hpp>
#include <chrono>
#include <thread>

struct counting {
  std::size_t size() const { return 100; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    *calls += 1;
    sample.row<std::int64_t>(0)[0] = std::int64_t(index);
  }
  std::shared_ptr<int> calls = std::make_shared<int>(0);
};

int main() {
  slotline::loader loader(counting(), slotline::options().batch_size(10).num_workers(2));
  std::int64_t sum = 0;
  for (auto& batch : loader) sum += batch.field<std::int64_t>(0)[0];
  return sum == 450 ? 0 : 1;
}
"#;

/// A program without races, which passes data between threads in all other ways.
const NO_RACE: &str = r#"
#include <slotline.hpp>
#include <stdexcept>

struct waves {
  std::size_t size() const { return 1000; }
  std::vector<slotline::field> fields() const {
    return {slotline::fixed<float>("wave", {16}), slotline::fixed<std::int64_t>("number")};
  }
  void read(std::size_t index, slotline::sample& sample) const {
    for (float& value : sample.row<float>(0)) value = float(index);
    sample.row<std::int64_t>(1)[0] = std::int64_t(index);
  }
};
struct lines {
  struct cursor {
    std::int64_t at;
    bool next(slotline::sample& sample) { return at < 50 && (sample.write(0, at++), true); }
  };
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("line")}; }
  cursor open(const slotline::worker&) const { return {0}; }
};
struct refuses {
  std::size_t size() const { return 10; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t, slotline::sample&) const { throw std::runtime_error("refused"); }
};

int main() {
  auto options = slotline::options().batch_size(10).num_workers(2);
  {
    slotline::loader loader(waves{}, options);
    for (int epoch = 0; epoch < 3; ++epoch) {
      double sum = 0;
      for (auto& batch : loader) {
        auto [wave, number] = batch.fields<float, std::int64_t>();
        for (float value : wave) sum += value;
        for (std::int64_t value : number) sum += double(value);
      }
      if (sum != 17.0 * 499500) return 1;
    }
  }
  {
    slotline::loader loader(lines{}, options);
    std::size_t samples = 0;
    for (auto& batch : loader) samples += batch.size();
    if (samples != 100) return 2;
  }
  {
    auto sums = slotline::options().batch_size(10).num_workers(2).collate([](slotline::samples& samples) {
      std::vector<float> sum(16);
      while (samples.next())
        for (std::size_t i = 0; i < 16; ++i) sum[i] += samples.field<float>(0)[i];
      return sum;
    });
    slotline::loader loader(waves{}, sums);
    float sum = 0;
    for (auto& batch : loader) sum += batch.made<std::vector<float>>()[7];
    if (sum != 499500) return 3;
  }
  {
    slotline::loader loader(refuses{}, options);
    try {
      for (auto& batch : loader) return int(batch.size());
    } catch (const slotline::error& error) {
      if (error.index() != 0) return 4;
    }
  }
  return 0;
}
"#;

/// Returns the compilers of a language that are installed.
fn compilers(tools: [(&str, &str); 2], name: &str) -> Vec<(String, PathBuf)> {
    let there = tools.into_iter().filter_map(|(variable, default)| {
        let (compiler, folder) = (tool(variable, default)?, scratch(&format!("thread_sanitizer_{name}_{default}")));
        sanitizes(&compiler, &folder, "-fsanitize=thread").then_some((compiler, folder))
    });
    there.collect()
}

const CPP: [(&str, &str); 2] = [("CXX", "g++"), ("CLANGXX", "clang++")];
const C: [(&str, &str); 2] = [("CC", "gcc"), ("CLANG", "clang")];

/// Compiles a program for ThreadSanitizer, with the shared library, and runs it with the
/// suppressions that the package installs.
fn run(compiler: &str, folder: &Path, file: &str, source: &str) -> Output {
    let path = folder.join(file);
    std::fs::write(&path, source).unwrap();
    let program = compile_sanitized(compiler, "-fsanitize=thread", &path);
    let options = format!("suppressions={}", here().join("share/tsan.supp").display());
    Command::new(program).env("TSAN_OPTIONS", options).output().unwrap()
}

#[track_caller]
fn expect_no_report(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("ThreadSanitizer"), "{}\n{text}", output.status);
}

#[track_caller]
fn expect_race_in(function: &str, output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("data race") && text.contains(function), "{text}");
}

#[test]
fn there_are_no_false_reports() {
    let (programs, snippets) = readme::programs();
    for (cxx, folder) in compilers(CPP, "cpp") {
        expect_no_report(&run(&cxx, &folder, "no_race.cpp", NO_RACE));
        expect_no_report(&run(&cxx, &folder, "readme.cpp", &programs[0]));
        expect_no_report(&run(&cxx, &folder, "snippets.cpp", &snippets));
    }
}

#[test]
fn races_of_the_user_are_reported() {
    for (cxx, folder) in compilers(CPP, "race") {
        expect_race_in("counting::read", &run(&cxx, &folder, "race.cpp", RACE));
    }
}

/// The README's C program annotates the ordering for ThreadSanitizer. Without these annotations,
/// writes in place are reported.
#[test]
fn c_programs_say_what_is_ordered() {
    let programs = readme::c_programs(true);
    let [program] = &programs[..] else { panic!("{programs:?}") };
    let silent: Vec<_> = program.lines().filter(|line| !line.contains("__tsan_")).collect();
    // Without help from the loop's own thread, which could otherwise load all batches before a
    // worker wakes up.
    let workers = "options.num_workers = 2;";
    let silent = silent.join("\n").replace(workers, &format!("{workers} options.help = 0;"));
    assert!(silent.contains("options.help"), "{silent}");
    for (cc, folder) in compilers(C, "c") {
        expect_no_report(&run(&cc, &folder, "told.c", program));
        expect_race_in("read_row", &run(&cc, &folder, "silent.c", &silent));
    }
}
