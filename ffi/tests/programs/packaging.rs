//! The three ways to use slotline in a project: an installed CMake package, pkg-config, and the sources.

use std::path::Path;
use std::process::Command;

use crate::native::{here, run, scratch, tool};

const MAIN: &str = r#"
#include <slotline.hpp>
#include <cstdio>

int main() {
  slotline::loader loader(slotline::dataset::open("digits"), slotline::options().batch_size(64).num_workers(1));
  std::size_t samples = 0;
  for (auto& batch : loader.epoch()) samples += batch.size();
  std::printf("%zu samples\n", samples);
}
"#;

/// Writes a user's project to a folder.
fn project(folder: &Path, find: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("main.cpp"), MAIN).unwrap();
    let lists = format!(
        "cmake_minimum_required(VERSION 3.18)\nproject(user CXX)\nset(CMAKE_CXX_STANDARD 17)\n{find}\n\
         add_executable(main main.cpp)\ntarget_link_libraries(main slotline::slotline)\n"
    );
    std::fs::write(folder.join("CMakeLists.txt"), lists).unwrap();
}

/// Configures and builds a project.
fn build(cmake: &str, source: &Path, build: &Path, settings: &[String]) {
    run(Command::new(cmake).arg("-S").arg(source).arg("-B").arg(build).args(settings));
    run(Command::new(cmake).arg("--build").arg(build));
}

#[test]
fn projects_build_with_each_kind_of_package() {
    let (Some(cmake), Some(cxx)) = (tool("CMAKE", "cmake"), tool("CXX", "g++")) else { return };
    let folder = scratch("packaging");
    // The same settings as for the tests, so that everything except the library is built already.
    let profile = [
        format!("-DSLOTLINE_PROFILE={}", crate::native::profile()),
        format!("-DSLOTLINE_CARGO_DIR={}", crate::native::target().display()),
    ];
    let prefix = folder.join("prefix");
    build(&cmake, here(), &folder.join("build"), &[&profile[..], &["-DCMAKE_INSTALL_LIBDIR=lib".to_owned()]].concat());
    run(Command::new(&cmake).arg("--install").arg(folder.join("build")).arg("--prefix").arg(&prefix));

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

    project(&folder.join("sources"), &format!("add_subdirectory({} slotline)", here().display()));
    build(&cmake, &folder.join("sources"), &folder.join("sources/build"), &profile);
    assert_eq!(run(&mut Command::new(folder.join("sources/build/main"))), "1797 samples\n");

    // The README's own lines, with the sources taken from this checkout instead of the branch that the lines name.
    let readme = std::fs::read_to_string(here().join("README.md")).unwrap();
    let fetch =
        readme.split("```").find_map(|block| block.strip_prefix("cmake\n")).expect("the README has lines for CMake");
    assert!(fetch.contains(" GIT_TAG main "), "{fetch}");
    let fetch = fetch.lines().filter(|line| !line.starts_with("target_link_libraries")).collect::<Vec<_>>().join("\n");
    project(&folder.join("fetched"), &fetch);
    let sources = format!("-DFETCHCONTENT_SOURCE_DIR_SLOTLINE={}", here().parent().unwrap().display());
    build(&cmake, &folder.join("fetched"), &folder.join("fetched/build"), &[&profile[..], &[sources]].concat());
    assert_eq!(run(&mut Command::new(folder.join("fetched/build/main"))), "1797 samples\n");

    let Some(pkg_config) = tool("PKG_CONFIG", "pkg-config") else { return };
    let libraries = prefix.join("lib");
    let flags = |kind: &[&str]| {
        let mut command = Command::new(&pkg_config);
        command.env("PKG_CONFIG_PATH", libraries.join("pkgconfig")).args(kind);
        run(command.args(["--cflags", "--libs", "slotline"]))
    };
    let program = folder.join("by_pkg_config");
    let mut command = Command::new(&cxx);
    command.arg("-std=c++17").arg(folder.join("found/main.cpp")).args(flags(&[]).split_whitespace());
    run(command.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-o").arg(&program));
    assert_eq!(run(&mut Command::new(&program)), "1797 samples\n");
    assert!(flags(&["--static"]).contains("-lm"));
}
