//! Builds and runs the programs in `examples`.

use std::path::PathBuf;
use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};

const CPP: &[&str] = &["-std=c++17", "-O2"];

fn example(name: &str) -> PathBuf {
    here().join("examples").join(name)
}

#[test]
fn the_c_example_prints_its_counts() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let program = scratch("example_c").join("plain");
    compile(&cc, &["-std=c99", "-O1"], &example("plain.c"), &program);
    let output = run(&mut Command::new(program));
    assert!(output.contains("1797 digits in 29 batches, the labels add up to 8070"), "{output}");
    assert!(output.contains("10 squares, the sum is 285"), "{output}");
    assert!(output.contains("seven is refused\n9 squares, the sum is 236"), "{output}");
}

#[test]
fn the_cpp_example_gets_the_weights_of_the_demo() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let program = scratch("example_digits").join("digits");
    compile(&cxx, &[CPP, &["-ffp-contract=off"]].concat(), &example("digits/digits.cpp"), &program);
    let weights = |output: String| {
        let line = output.lines().rfind(|line| line.starts_with("sha256 of the weights: ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no digest in {output}"))
    };
    let here = weights(run(Command::new(&program).args(["2", "2"])));
    assert_eq!(weights(run(Command::new(&program).args(["2", "0"]))), here);

    let demo = crate::native::cargo("run", &["--quiet", "--package", "slotline-demo", "--", "demo", "--epochs", "2"]);
    assert_eq!(weights(demo), here);
}

/// Finds the headers and libraries in the torch package of a Python (`SLOTLINE_PYTHON`, or `python3`).
#[test]
fn libtorch_trains_without_copies() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let python = std::env::var("SLOTLINE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let ask = "import torch.utils.cpp_extension as c; print('\\n'.join(['-I' + p for p in c.include_paths()] + \
               ['-L' + p + '\\n-Wl,-rpath,' + p for p in c.library_paths()]))";
    let answer = Command::new(python).args(["-c", ask]).output().ok().filter(|answer| answer.status.success());
    let Some(answer) = answer else {
        // This test is skipped even if the C++ tests are required, because torch takes gigabytes.
        eprintln!("skipped: no Python with torch; SLOTLINE_PYTHON names one");
        return;
    };
    let paths = String::from_utf8(answer.stdout).unwrap();
    let program = scratch("example_libtorch").join("libtorch");
    let mut command = Command::new(cxx);
    // Recent torch headers require C++20.
    command.args(["-std=c++20", "-O1"]).args(paths.lines()).arg("-I").arg(here().join("include"));
    command.arg(example("libtorch.cpp")).arg(crate::native::library()).arg("-o").arg(&program);
    run(command.args(["-Wl,--allow-shlib-undefined", "-ltorch_cpu", "-lc10", "-pthread", "-ldl", "-lm"]));
    let output = run(&mut Command::new(program));
    assert_eq!(output.lines().count(), 5, "{output}");
}

/// Skipped unless MPI is installed.
#[test]
fn the_mpi_example_misses_no_digit() {
    let exists = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !exists("mpicxx") || !exists("mpirun") {
        return eprintln!("skipped: there is no mpicxx or no mpirun");
    }
    let program = scratch("example_mpi").join("mpi");
    // The headers of Open MPI's own C++ interface cause warnings.
    compile("mpicxx", &[CPP, &["-DOMPI_SKIP_MPICXX"]].concat(), &example("mpi.cpp"), &program);
    for (ranks, says) in
        [("2", "2 processes, 29 steps each: 1797 digits, 1 of them twice"), ("3", "3 processes, 19 steps")]
    {
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", ranks]).arg(&program);
        let output = run(&mut command);
        assert!(output.contains(says), "{output}");
    }
}
