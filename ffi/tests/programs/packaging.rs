//! Tests of the three ways to use slotline in a project: an installed CMake package, pkg-config,
//! and the sources.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::native::{here, run, scratch, tool};

const MAIN: &str = r#"
#include <slotline.hpp>
#include <cstdio>

int main() {
  if (std::string(SLOTLINE_VERSION) != slotline_version()) return 1;
  slotline::loader loader(slotline::dataset::open("digits"), slotline::options().batch_size(64).num_workers(1));
  std::size_t samples = 0;
  for (auto& batch : loader.epoch()) samples += batch.size();
  std::printf("%zu samples\n", samples);
}
"#;

/// Writes a user's CMake project to a folder.
fn project(folder: &Path, find: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("main.cpp"), MAIN).unwrap();
    std::fs::write(folder.join("plugin.c"), PLUGIN).unwrap();
    let lists = format!(
        "cmake_minimum_required(VERSION 3.18)\nproject(user C CXX)\nset(CMAKE_CXX_STANDARD 17)\n{find}\n\
         add_executable(main main.cpp)\ntarget_link_libraries(main slotline::slotline)\n\
         add_library(plugin MODULE plugin.c)\ntarget_link_libraries(plugin slotline::static)\n"
    );
    std::fs::write(folder.join("CMakeLists.txt"), lists).unwrap();
}

/// Configures and builds a project.
fn build(cmake: &str, source: &Path, build: &Path, settings: &[String]) {
    build_with(&[], cmake, source, build, settings);
}

/// Configures and builds a project with additional environment variables.
fn build_with(environment: &[(&str, &OsStr)], cmake: &str, source: &Path, build: &Path, settings: &[String]) {
    let environment = environment.iter().copied();
    run(Command::new(cmake).arg("-S").arg(source).arg("-B").arg(build).args(settings).envs(environment.clone()));
    run(Command::new(cmake).arg("--build").arg(build).envs(environment));
}

/// Returns the folder in which cargo builds the packages. The tests' own library, which has other
/// features, is in another one.
fn built() -> PathBuf {
    crate::native::target().join("packages")
}

/// Returns the settings with which all tests build the same library.
fn settings() -> [String; 2] {
    [format!("-DSLOTLINE_PROFILE={}", crate::native::profile()), format!("-DSLOTLINE_CARGO_DIR={}", built().display())]
}

/// A Rust library that is independent of slotline, and below it a program that uses both.
const OTHER: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn other() -> i32 {
    std::panic::set_hook(Box::new(|_| ()));
    std::panic::catch_unwind(|| std::hint::black_box(None::<i32>).expect("a number")).unwrap_or(7)
}
"#;
const BOTH: &str = r#"
#include <slotline.hpp>
#include <cstdio>

extern "C" int other();
struct picky {
  std::size_t size() const { return 4; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t, slotline::sample&) const { throw std::runtime_error("refused"); }
};
int main() {
  if (other() != 7) return 1;
  slotline::loader loader(picky{}, slotline::options().num_workers(1));
  try {
    for (auto& batch : loader) return int(batch.size());
  } catch (const slotline::error&) {
    std::puts("caught");
  }
}
"#;
/// A plugin that loads the digits with a worker, and prints their number and the address of its
/// copy of slotline.
const PLUGIN: &str = r#"
#include <slotline.h>
typedef const char *version(void);
version *plugin(size_t *samples) {
  slotline_dataset *digits = NULL;
  slotline_loader *loader = NULL;
  slotline_batch *batch = NULL;
  slotline_options options;
  slotline_options_init(&options, sizeof options);
  options.batch_size = 64;
  options.num_workers = 1;
  slotline_dataset_open("digits", &digits, NULL);
  slotline_loader_new(digits, &options, &loader, NULL);
  slotline_loader_epoch(loader, NULL);
  for (*samples = 0; slotline_loader_next(loader, &batch, NULL) == SLOTLINE_OK; slotline_batch_free(batch))
    *samples += slotline_batch_len(batch);
  slotline_loader_free(loader);
  slotline_dataset_free(digits);
  return slotline_version;
}
"#;
/// A program that loads a plugin, and itself links slotline.
const HOST: &str = r#"
#include <slotline.h>
#include <dlfcn.h>
#include <stdio.h>
typedef const char *version(void);
int main(int count, char **words) {
  void *library = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
  if (!library) return puts(dlerror()), 1;
  version *(*plugin)(size_t *samples);
  *(void **)&plugin = dlsym(library, "plugin");
  size_t samples = 0;
  version *of_plugin = plugin(&samples);
  printf("%zu samples, with %s copy of version %s\n", samples, of_plugin == slotline_version ? "this" : "its own",
         of_plugin());
  return 0;
}
"#;

/// Returns whether a symbol belongs to slotline.
fn is_ours(name: &str) -> bool {
    name.starts_with("slotline_")
}

/// Returns the names of the symbols that `nm` lists.
fn symbols(arguments: &[&str], library: &Path) -> Vec<String> {
    let listed = run(Command::new("nm").args(arguments).arg(library));
    listed.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

/// Checks the symbols of the installed libraries, their names and their debugging information.
fn libraries_are_as_they_should_be(folder: &Path, installed: &Path, cxx: &str) {
    let global = symbols(&["--extern-only", "--defined-only"], &installed.join("libslotline.a"));
    assert!(global.len() > 50 && global.iter().all(|name| is_ours(name)), "{global:?}");
    let exported = symbols(&["--dynamic", "--defined-only"], &installed.join("libslotline.so"));
    assert!(exported.len() > 50 && exported.iter().all(|name| is_ours(name)), "{exported:?}");

    let (static_library, other) = (installed.join("libslotline.a"), folder.join("libother.a"));
    std::fs::write(folder.join("other.rs"), OTHER).unwrap();
    std::fs::write(folder.join("both.cpp"), BOTH).unwrap();
    run(Command::new("rustc")
        .args(["--edition=2024", "--crate-type=staticlib", "-o"])
        .arg(&other)
        .arg(folder.join("other.rs")));
    let include = format!("-I{}", here().join("include").display());
    for [first, second] in [[&static_library, &other], [&other, &static_library]] {
        let program = folder.join("both");
        let mut command = Command::new(cxx);
        command.args(["-std=c++17", &include]).arg(folder.join("both.cpp")).arg(first).arg(second);
        run(command.args(["-pthread", "-ldl", "-lm", "-o"]).arg(&program));
        assert_eq!(run(&mut Command::new(program)), "caught\n");
    }
    let version = env!("CARGO_PKG_VERSION");
    let shared = installed.join(format!("libslotline.so.{version}"));
    let soname = run(Command::new("readelf").arg("-d").arg(&shared));
    let soname = soname.split("[libslotline.so.").nth(1).and_then(|rest| rest.split(']').next()).expect("a soname");
    assert!(version.starts_with(&format!("{soname}.")), "soname {soname}, version {version}");
    assert!(installed.join(format!("libslotline.so.{soname}")).exists());
    let sections = |path: &Path| run(Command::new("readelf").args(["--sections", "--wide"]).arg(path));
    let debug = installed.join(format!(".debug/libslotline.so.{version}.debug"));
    assert!(!sections(&shared).contains(".debug_line") && sections(&shared).contains(".gnu_debuglink"));
    assert!(sections(&debug).contains(".debug_line"));
}

/// Checks plugins that link the static library: one by its path, and one through CMake's target.
fn plugins_work(folder: &Path, installed: &Path, made_by_cmake: &Path, cxx: &str) {
    let include = format!("-I{}", here().join("include").display());
    let (plain, host) = (folder.join("plugin.so"), folder.join("host"));
    std::fs::write(folder.join("plugin.c"), PLUGIN).unwrap();
    std::fs::write(folder.join("host.c"), HOST).unwrap();
    let compile = |source: &str| {
        let mut command = Command::new(cxx);
        command.args(["-fPIC", &include, "-x", "c"]).arg(folder.join(source)).args(["-x", "none"]);
        command
    };
    let mut command = compile("plugin.c");
    command.arg("-shared").arg(installed.join("libslotline.a"));
    run(command.args(["-pthread", "-ldl", "-lm", "-o"]).arg(&plain));
    let mut command = compile("host.c");
    command.arg("-L").arg(installed).arg("-lslotline").arg(format!("-Wl,-rpath,{}", installed.display()));
    run(command.args(["-ldl", "-o"]).arg(&host));
    for (plugin, exports_slotline, copy) in [(plain.as_path(), true, "this"), (made_by_cmake, false, "its own")] {
        let mut exported = symbols(&["--dynamic", "--defined-only"], plugin);
        assert_eq!(exported.iter().any(|name| is_ours(name)), exports_slotline, "{exported:?}");
        exported.retain(|name| !is_ours(name) && !["_init", "_fini"].contains(&name.as_str()));
        assert_eq!(exported, ["plugin"]);
        let version = env!("CARGO_PKG_VERSION");
        let says = format!("1797 samples, with {copy} copy of version {version}\n");
        assert_eq!(run(Command::new(&host).arg(plugin)), says);
    }
}

#[test]
fn cargo_builds_where_the_environment_says() {
    let Some(cmake) = tool("CMAKE", "cmake") else { return };
    let folder = scratch("cargo_target_dir");
    // A relative path is relative to CMake's build folder.
    let relative = folder.join("relative");
    let depth = relative.strip_prefix(crate::native::target()).unwrap().components().count();
    let path = format!("{}packages", "../".repeat(depth));
    let [profile, _] = settings();
    build_with(&[("CARGO_TARGET_DIR", OsStr::new(&path))], &cmake, here(), &relative, &[profile]);
    assert!(relative.join("lib/libslotline.a").exists() && !relative.join("cargo").exists());

    let mut command = Command::new(cmake);
    command.arg("-S").arg(here()).arg("-B").arg(folder.join("build")).env("CARGO_TARGET_DIR", folder.join("target"));
    run(&mut command);
    let cache = std::fs::read_to_string(folder.join("build/CMakeCache.txt")).unwrap();
    assert!(cache.contains(&format!("SLOTLINE_CARGO_DIR:PATH={}\n", folder.join("target").display())), "{cache}");
}

#[test]
fn config_h_says_what_cmake_builds_in() {
    let (Some(cmake), Some(cxx)) = (tool("CMAKE", "cmake"), tool("CXX", "g++")) else { return };
    let folder = scratch("config");
    let source = folder.join("config.cpp");
    std::fs::write(&source, "#include <slotline.hpp>\nversion SLOTLINE_VERSION").unwrap();
    for (options, expected) in [
        (&[][..], &[][..]),
        (&["-DSLOTLINE_CUDA=ON", "-DSLOTLINE_SOURCES=ON"], &["CUDA", "SOURCES"]),
        (&["-DSLOTLINE_TURBO=ON"], &["IMAGE", "TURBO"]),
    ] {
        let build = folder.join(expected.concat());
        run(Command::new(&cmake).arg("-S").arg(here()).arg("-B").arg(&build).args(options));
        let include = |folder: &Path| format!("-I{}", folder.join("include").display());
        let mut command = Command::new(&cxx);
        command.args(["-std=c++17", &include(&build), &include(here())]);
        let seen = run(command.args(["-E", "-dD"]).arg(&source));
        let has: Vec<_> = seen.lines().filter_map(|line| line.strip_prefix("#define SLOTLINE_HAS_")).collect();
        assert_eq!(has, expected.iter().map(|name| format!("{name} 1")).collect::<Vec<_>>());
        assert!(seen.contains(&format!("version \"{}\"", env!("CARGO_PKG_VERSION"))));
        let declares = |name: &str| seen.contains(name);
        assert_eq!(declares("slotline_loader_new_on_device("), expected.contains(&"CUDA"));
        assert_eq!(declares("slotline_pipeline_new("), expected.contains(&"IMAGE"));
    }
}

#[test]
fn projects_build_with_each_kind_of_package() {
    let (Some(cmake), Some(cxx)) = (tool("CMAKE", "cmake"), tool("CXX", "g++")) else { return };
    let folder = scratch("packaging");
    let profile = settings();
    let prefix = folder.join("prefix");
    build(&cmake, here(), &folder.join("build"), &[&profile[..], &["-DCMAKE_INSTALL_LIBDIR=lib".to_owned()]].concat());
    run(Command::new(&cmake).arg("--install").arg(folder.join("build")).arg("--prefix").arg(&prefix));

    libraries_are_as_they_should_be(&folder, &prefix.join("lib"), &cxx);

    let prefix_path = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    project(&folder.join("found"), "find_package(slotline 0.1 REQUIRED)");
    for (name, shared) in [("static", "OFF"), ("shared", "ON")] {
        let output = folder.join("found").join(name);
        build(&cmake, &folder.join("found"), &output, &[prefix_path.clone(), format!("-DBUILD_SHARED_LIBS={shared}")]);
        assert_eq!(run(&mut Command::new(output.join("main"))), "1797 samples\n");
        let needed = Command::new("readelf").arg("-d").arg(output.join("main")).output().unwrap();
        let needed = String::from_utf8_lossy(&needed.stdout).contains("[libslotline.so.");
        assert_eq!(needed, shared == "ON", "{name}");
    }

    plugins_work(&folder, &prefix.join("lib"), &folder.join("found/static/libplugin.so"), &cxx);

    project(&folder.join("sources"), &format!("add_subdirectory({} slotline)", here().display()));
    build(&cmake, &folder.join("sources"), &folder.join("sources/build"), &profile);
    assert_eq!(run(&mut Command::new(folder.join("sources/build/main"))), "1797 samples\n");

    // The lines are the README's, except that they use the sources of this checkout instead of the
    // branch that the README names.
    let readme = std::fs::read_to_string(here().join("README.md")).unwrap();
    let fetch =
        readme.split("```").find_map(|block| block.strip_prefix("cmake\n")).expect("the README has lines for CMake");
    assert!(fetch.contains(" GIT_TAG main "), "{fetch}");
    let fetch = fetch.lines().filter(|line| !line.starts_with("target_link_libraries")).collect::<Vec<_>>().join("\n");
    project(&folder.join("fetched"), &fetch);
    let sources = format!("-DFETCHCONTENT_SOURCE_DIR_SLOTLINE={}", here().parent().unwrap().display());
    build(&cmake, &folder.join("fetched"), &folder.join("fetched/build"), &[&profile[..], &[sources]].concat());
    assert_eq!(run(&mut Command::new(folder.join("fetched/build/main"))), "1797 samples\n");

    by_pkg_config(&folder, &prefix.join("lib"), &cxx);
}

/// Links programs with the flags that pkg-config prints, with the shared and with the static
/// library.
fn by_pkg_config(folder: &Path, libraries: &Path, cxx: &str) {
    let Some(pkg_config) = tool("PKG_CONFIG", "pkg-config") else { return };
    // A folder with only the static library, so that the linker has to take it.
    let only_static = folder.join("only_static");
    std::fs::create_dir_all(only_static.join("lib/pkgconfig")).unwrap();
    for file in ["libslotline.a", "pkgconfig/slotline.pc"] {
        std::fs::copy(libraries.join(file), only_static.join("lib").join(file)).unwrap();
    }
    std::os::unix::fs::symlink(libraries.parent().unwrap().join("include"), only_static.join("include")).unwrap();
    for (libraries, kind, needs_shared) in
        [(libraries, &[][..], true), (&only_static.join("lib"), &["--static"], false)]
    {
        let mut command = Command::new(&pkg_config);
        command.env("PKG_CONFIG_PATH", libraries.join("pkgconfig")).args(kind);
        let flags = run(command.args(["--cflags", "--libs", "slotline"]));
        let program = folder.join("by_pkg_config");
        let mut command = Command::new(cxx);
        command.arg("-std=c++17").arg(folder.join("found/main.cpp")).args(flags.split_whitespace());
        run(command.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-o").arg(&program));
        assert_eq!(run(&mut Command::new(&program)), "1797 samples\n");
        let dynamic = run(Command::new("readelf").arg("-d").arg(&program));
        assert_eq!(dynamic.contains("[libslotline.so."), needs_shared, "{dynamic}");
    }
}

/// For clang, CMake prefers the linker lld if it finds one. slotline must build even if that lld
/// fails, as the one in this test does.
#[test]
fn slotline_builds_with_clang() {
    let (Some(cmake), Some(cc)) = (tool("CMAKE", "cmake"), tool("CLANG", "clang")) else { return };
    let Some(cxx) = tool("CLANGXX", "clang++") else { return };
    let folder = scratch("packaging_clang");
    let tools = folder.join("tools");
    std::fs::create_dir(&tools).unwrap();
    for linker in ["ld.lld", "lld"] {
        std::fs::write(tools.join(linker), "#!/bin/sh\nexit 1\n").unwrap();
        run(Command::new("chmod").arg("+x").arg(tools.join(linker)));
    }
    let mut path = tools.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let environment = [("CC", OsStr::new(&cc)), ("CXX", OsStr::new(&cxx)), ("PATH", &path)];
    project(&folder, &format!("add_subdirectory({} slotline)", here().display()));
    build_with(&environment, &cmake, &folder, &folder.join("build"), &settings());
    assert_eq!(run(&mut Command::new(folder.join("build/main"))), "1797 samples\n");
    let global = symbols(&["--extern-only", "--defined-only"], &folder.join("build/slotline/lib/libslotline.a"));
    assert!(global.len() > 50 && global.iter().all(|name| is_ours(name)), "{global:?}");
}
