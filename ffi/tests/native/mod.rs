//! Compiles and runs C and C++ programs against the library that cargo built.

// Each test program uses a part of this module.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Returns whether a missing tool is a failure instead of a reason to skip a test.
fn required() -> bool {
    std::env::var_os("SLOTLINE_REQUIRE_CPP").is_some_and(|value| value == "1")
}

/// Finds a program that these tests need; prints a message and returns `None` if it is missing.
pub(crate) fn tool(variable: &str, name: &str) -> Option<String> {
    let tool = std::env::var(variable).unwrap_or_else(|_| name.to_owned());
    let runs = Command::new(&tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if runs.is_ok_and(|status| status.success()) {
        return Some(tool);
    }
    missing(&tool);
    None
}

/// Prints that a test is skipped, or panics if the tools are required.
pub(crate) fn missing(what: &str) {
    assert!(!required(), "{what} is missing, and SLOTLINE_REQUIRE_CPP=1");
    eprintln!("skipped: {what} is missing");
}

/// Returns whether the compiler supports a sanitizer.
pub(crate) fn sanitizes(cc: &str, folder: &Path, flags: &str) -> bool {
    let source = folder.join("none.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let linked = Command::new(cc).arg(flags).arg(source).arg("-o").arg(folder.join("none")).output();
    let works = linked.is_ok_and(|output| output.status.success());
    if !works {
        missing(&format!("{cc} with {flags}"));
    }
    works
}

/// Returns this crate's folder.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns an empty folder for a test's files, in the target folder.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", folder.display());
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the path of the static library. Cargo builds it for the first test that needs it, with
/// the profile and target folder of the tests.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut arguments = vec!["--quiet", "--package", "slotline-c"];
        let features = [
            ("cuda", cfg!(feature = "cuda")),
            ("image", cfg!(feature = "image")),
            ("sources", cfg!(feature = "sources")),
        ];
        for (feature, _) in features.iter().filter(|(_, is_on)| *is_on) {
            arguments.extend(["--features", feature]);
        }
        cargo("build", &arguments);
        built().join("libslotline.a")
    })
}

/// Returns the shared library, which cargo builds together with the static one.
pub(crate) fn shared_library() -> PathBuf {
    library().with_file_name("libslotline.so")
}

/// Returns the folder in which cargo builds with the tests' profile. This test program is in its
/// subfolder `deps`.
fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).expect("a test program is two folders deep").to_owned()
}

/// Returns cargo's target folder.
pub(crate) fn target() -> PathBuf {
    built().parent().unwrap().to_owned()
}

/// Returns the name of the tests' profile.
pub(crate) fn profile() -> String {
    let folder = built().file_name().and_then(OsStr::to_str).unwrap().to_owned();
    if folder == "debug" { "dev".to_owned() } else { folder }
}

/// Runs a cargo command in this workspace, with the profile and target folder of the tests, and
/// returns what it printed.
#[track_caller]
pub(crate) fn cargo(command: &str, arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([command, "--profile", &profile(), "--target-dir"]).arg(target());
    run(cargo.args(arguments).current_dir(here()))
}

/// Compiles one source file with the library; warnings are errors.
pub(crate) fn compile(compiler: &str, flags: &[&str], source: &Path, program: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic"]).args(flags).arg("-I").arg(here().join("include"));
    command.arg(source).arg("-o").arg(program);
    link(&mut command, program.parent().unwrap());
}

/// Runs a compiler that links a program in a folder with the shared library, which takes a fiftieth
/// of the time that the static one takes.
fn link(command: &mut Command, folder: &Path) {
    // The library is needed under its own name, and under the soname that the loader of the system
    // looks for.
    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    for name in ["libslotline.so".to_owned(), format!("libslotline.so.{version}")] {
        let _ = std::os::unix::fs::symlink(shared_library(), folder.join(name));
    }
    command.arg("-L").arg(folder).arg("-lslotline").arg(format!("-Wl,-rpath,{}", folder.display()));
    run(command.arg("-pthread"));
}

/// Compiles a test program in C or C++, such as `c/ends.c`. Returns `None` if there is no compiler.
pub(crate) fn test_program(file: &str) -> Option<PathBuf> {
    let (compiler, flags) = match file.ends_with(".c") {
        true => (tool("CC", "gcc")?, &["-std=c11", "-O1"][..]),
        // Warnings about templates appear where they are instantiated, so the tests are compiled
        // with these warnings, too.
        false => (tool("CXX", "g++")?, &["-std=c++17", "-O1", "-Wconversion", "-Wshadow"][..]),
    };
    let program = scratch(&file.replace('/', "_")).join("program");
    compile(&compiler, flags, &here().join("tests").join(file), &program);
    Some(program)
}

/// Compiles and runs a test program, which must print "ok".
#[track_caller]
pub(crate) fn prints_ok(file: &str) {
    if let Some(program) = test_program(file) {
        assert_eq!(run(&mut Command::new(program)), "ok\n");
    }
}

/// Compiles one source file for a sanitizer, with the shared library, and returns the program.
pub(crate) fn compile_sanitized(compiler: &str, sanitizer: &str, source: &Path) -> PathBuf {
    let program = source.with_extension("");
    let standard = if source.extension().is_some_and(|ext| ext == "c") { "-std=c11" } else { "-std=c++17" };
    let mut command = Command::new(compiler);
    command.args([standard, "-g", "-O1", sanitizer, "-Wall", "-Wextra", "-Werror", "-Wno-unused"]);
    // Disables GCC's warning about fences with ThreadSanitizer, which clang does not know.
    command.args(["-Wno-tsan", "-Wno-unknown-warning-option"]);
    command.arg("-I").arg(here().join("include")).arg(source).arg("-o").arg(&program);
    link(&mut command, source.parent().unwrap());
    program
}

/// Runs a command that must succeed, and returns what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}
