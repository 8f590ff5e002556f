//! Compiling and running C and C++ programs against the library that cargo built.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether what these tests need has to be there.
fn required() -> bool {
    std::env::var_os("SLOTLINE_REQUIRE_CPP").is_some_and(|value| value == "1")
}

/// A program that these tests need: its name, or `None` (and a word) where it is missing.
pub(crate) fn tool(variable: &str, name: &str) -> Option<String> {
    let tool = std::env::var(variable).unwrap_or_else(|_| name.to_owned());
    let runs = Command::new(&tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if runs.is_ok_and(|status| status.success()) {
        return Some(tool);
    }
    missing(&tool);
    None
}

/// Says that a test is skipped, or fails it.
pub(crate) fn missing(what: &str) {
    assert!(!required(), "{what} is missing, and SLOTLINE_REQUIRE_CPP=1");
    eprintln!("skipped: {what} is missing");
}

/// This crate's folder.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for what a test makes, under the target folder, emptied.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", folder.display());
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The static library, which cargo builds for the first test that asks, with the profile and in the folder of the tests.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        cargo("build", &["--quiet", "--package", "slotline-c"]);
        built().join("libslotline.a")
    })
}

/// Where cargo puts what it builds with the profile of the tests: this program lies below, in `deps`.
fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).expect("a test lies two folders deep").to_owned()
}

/// Cargo's folder for what it builds.
pub(crate) fn target() -> PathBuf {
    built().parent().unwrap().to_owned()
}

/// The name of the profile that the tests are built with.
pub(crate) fn profile() -> String {
    let folder = built().file_name().and_then(OsStr::to_str).unwrap().to_owned();
    if folder == "debug" { "dev".to_owned() } else { folder }
}

/// Runs a command of cargo's in this workspace, with the profile and in the folder of the tests; what it printed.
#[track_caller]
pub(crate) fn cargo(command: &str, arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([command, "--profile", &profile(), "--target-dir"]).arg(target());
    run(cargo.args(arguments).current_dir(here()))
}

/// Compiles one source file with the library, all warnings being errors.
pub(crate) fn compile(compiler: &str, flags: &[&str], source: &Path, program: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic"]).args(flags).arg("-I").arg(here().join("include"));
    command.arg(source).arg(library()).args(["-pthread", "-ldl", "-lm", "-o"]).arg(program);
    run(&mut command);
}

/// Runs a command that has to succeed; what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{complained}", output.status);
    said.into_owned()
}
