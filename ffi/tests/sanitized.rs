//! Runs C programs with sanitizers, which find use after free, double frees, leaks and data races.
//!
//! AddressSanitizer instruments the C code, and sees the library's allocations. ThreadSanitizer
//! must see the library's own accesses, so this test builds the library for it, with an unstable
//! flag of stable Rust. GCC's runtime lacks functions that Rust's code calls, but not vice versa,
//! so the programs are linked with the runtime that is part of rustc.

mod native;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use native::{here, library, missing, profile, run, sanitizes, scratch, target, tool};

const WARNINGS: [&str; 6] = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"];

fn compile(cc: &str, flags: &[&str], name: &str, object: &Path) {
    let mut command = Command::new(cc);
    command.args(WARNINGS).arg("-pedantic").args(flags).arg("-I").arg(here().join("include"));
    run(command.arg("-c").arg(here().join("tests/c").join(name).with_extension("c")).arg("-o").arg(object));
}

fn link(cc: &str, flags: &[&str], object: &Path, library: &Path) -> PathBuf {
    let program = object.with_extension("");
    let mut command = Command::new(cc);
    command.arg(object).arg(library).args(flags).args(["-pthread", "-ldl", "-lm", "-lrt", "-o"]).arg(&program);
    run(&mut command);
    program
}

const ADDRESSES: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Runs one of `tests/c` with AddressSanitizer and UndefinedBehaviorSanitizer, and returns what it printed.
fn with_addresses(name: &str) -> Option<String> {
    build_with_addresses(name).map(|program| run_with_addresses(&mut Command::new(program)))
}

fn build_with_addresses(name: &str) -> Option<PathBuf> {
    let cc = tool("CC", "gcc")?;
    let folder = scratch(&format!("addresses-{name}"));
    if !sanitizes(&cc, &folder, ADDRESSES[0]) {
        return None;
    }
    let object = folder.join(name).with_extension("o");
    compile(&cc, &ADDRESSES, name, &object);
    Some(link(&cc, &ADDRESSES, &object, library()))
}

fn run_with_addresses(program: &mut Command) -> String {
    let options = "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1";
    run(program.env("ASAN_OPTIONS", options))
}

/// Runs one of `tests/c` with ThreadSanitizer, and returns what it printed.
fn with_threads(name: &str) -> Option<String> {
    let cc = tool("CC", "gcc")?;
    let folder = scratch(&format!("threads-{name}"));
    let (runtime, library) = threads_library()?;
    if !sanitizes(&cc, &folder, "-fsanitize=thread") {
        return None;
    }
    let object = folder.join(name).with_extension("o");
    compile(&cc, &["-fsanitize=thread"], name, &object);
    let runtime = runtime.to_str().expect("the path of rustc is UTF-8");
    let program = link(&cc, &["-Wl,--whole-archive", runtime, "-Wl,--no-whole-archive", "-rdynamic"], &object, library);
    let mut command = Command::new(program);
    if with_std_source().is_none() {
        let suppressions = here().join("tests/c/thread.supp");
        command.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
    }
    Some(run(&mut command))
}

/// Returns a rustc that has the source of std, if the environment names one. std is then also
/// compiled for ThreadSanitizer, and no suppressions are needed (`proof/sanitizers`).
fn with_std_source() -> Option<OsString> {
    std::env::var_os("SLOTLINE_RUSTC_WITH_STD_SOURCE")
}

/// Returns Rust's ThreadSanitizer runtime, and the static library built for it.
fn threads_library() -> Option<(&'static Path, &'static Path)> {
    static LIBRARIES: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    let libraries = LIBRARIES.get_or_init(|| {
        let rustc = |what: &str| run(Command::new("rustc").args(["--print", what])).trim().to_owned();
        let (sysroot, host) = (rustc("sysroot"), rustc("host-tuple"));
        let runtimes = Path::new(&sysroot).join("lib/rustlib").join(&host).join("lib");
        let runtimes = std::fs::read_dir(runtimes).unwrap().map(|file| file.unwrap().path());
        let Some(runtime) = runtimes.into_iter().find(|path| path.to_string_lossy().ends_with("_rt.tsan.a")) else {
            missing("ThreadSanitizer's runtime in this Rust");
            return None;
        };
        let (folder, profile) = (target().join("tsan"), profile());
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "slotline-c", "--profile", &profile, "--target-dir"]).arg(&folder);
        // With an explicit target, the flags do not apply to build scripts and macros.
        cargo.args(["--target", &host]).current_dir(here()).env("RUSTC_BOOTSTRAP", "1");
        cargo.env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer");
        if let Some(rustc) = with_std_source() {
            cargo.env("RUSTC", rustc).env("CARGO_UNSTABLE_BUILD_STD", "std");
        }
        run(&mut cargo);
        let built = if profile == "dev" { "debug" } else { &profile };
        Some((runtime, folder.join(host).join(built).join("libslotline.a")))
    });
    libraries.as_ref().map(|(runtime, library)| (runtime.as_path(), library.as_path()))
}

#[test]
fn every_function_refuses_nulls_and_short_structs() {
    let Some(output) = with_addresses("refusals") else { return };
    assert!(output.lines().count() > 50, "{output}");
}

/// Checks the output of C programs, which must be "ok" unless there is no compiler.
#[track_caller]
fn is_ok(output: Option<String>) {
    assert!(output.is_none_or(|output| output == "ok\n"));
}

#[test]
fn callbacks_can_fail_stop_and_free() {
    is_ok(with_addresses("callbacks"));
}

#[test]
fn callbacks_do_not_race() {
    is_ok(with_threads("callbacks"));
}

/// Runs one of `tests/cpp` with AddressSanitizer and UndefinedBehaviorSanitizer.
fn cpp_with_addresses(name: &str) {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let folder = scratch(&format!("addresses-{name}"));
    if !sanitizes(&cxx, &folder, ADDRESSES[0]) {
        return;
    }
    let (source, program) = (here().join("tests/cpp").join(name).with_extension("cpp"), folder.join(name));
    native::compile(&cxx, &[&["-std=c++17", "-g", "-O1"][..], &ADDRESSES].concat(), &source, &program);
    assert_eq!(run_with_addresses(&mut Command::new(program)), "ok\n");
}

#[test]
fn the_cpp_layer_has_no_dangling_pointers() {
    cpp_with_addresses("layer");
}

#[test]
fn exceptions_are_destroyed_once() {
    cpp_with_addresses("exceptions");
}

#[test]
fn listeners_outlive_the_threads_that_call_them() {
    cpp_with_addresses("observing");
}

#[cfg(target_os = "linux")]
#[test]
fn programs_can_be_their_own_workers() {
    let Some(program) = build_with_addresses("spawned") else { return };
    let files = scratch("addresses-spawned-files");
    assert_eq!(run_with_addresses(Command::new(program).arg("test").arg(files)), "ok\n");
}

#[test]
fn objects_can_be_freed_in_any_order() {
    is_ok(with_addresses("lifetimes"));
}

#[test]
fn threads_that_are_left_behind_use_no_freed_memory() {
    is_ok(with_addresses("ends"));
}

#[test]
fn objects_shared_by_threads_are_freed_once() {
    is_ok(with_addresses("threads"));
}

#[test]
fn threads_do_not_race() {
    is_ok(with_threads("threads"));
}
