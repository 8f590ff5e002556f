//! Tests that are written in C and C++ and print "ok". `sanitized.rs` runs some of them with
//! sanitizers.

use std::collections::BTreeSet;
#[cfg(unix)]
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::native::{here, prints_ok, run, test_program};

#[test]
fn datasets_of_other_datasets_work() {
    prints_ok("cpp/compose.cpp");
}

#[test]
fn mixtures_and_batches_by_length_work_in_c() {
    prints_ok("c/sequences.c");
}

#[test]
fn mixtures_and_batches_by_length_work_in_cpp() {
    prints_ok("cpp/sequences.cpp");
}

#[test]
fn sixteen_bit_floating_point_numbers_work() {
    prints_ok("cpp/half.cpp");
}

#[test]
fn complex_numbers_work_in_c() {
    prints_ok("c/complex.c");
}

#[test]
fn complex_numbers_work_in_cpp() {
    prints_ok("cpp/complex.cpp");
}

#[test]
fn the_cpp_layer_works() {
    prints_ok("cpp/layer.cpp");
}

#[test]
fn exceptions_keep_their_type() {
    prints_ok("cpp/exceptions.cpp");
}

#[test]
fn statistics_and_warnings_come_while_the_loop_runs() {
    prints_ok("cpp/observing.cpp");
}

#[test]
fn callbacks_can_fail_stop_and_free() {
    prints_ok("c/callbacks.c");
}

#[test]
fn objects_can_be_freed_in_any_order() {
    prints_ok("c/lifetimes.c");
}

#[cfg(unix)]
#[test]
fn objects_can_be_shared_by_threads() {
    prints_ok("c/threads.c");
}

#[cfg(unix)]
#[test]
fn freeing_a_loader_waits_as_long_as_close_timeout_says() {
    prints_ok("c/ends.c");
}

#[test]
fn destroying_a_loader_waits_as_long_as_close_timeout_says() {
    prints_ok("cpp/ends.cpp");
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_handler_may_stop_a_loader() {
    prints_ok("c/signals.c");
}

#[cfg(all(target_os = "linux", not(delays)))]
#[test]
fn c_programs_start_themselves_as_workers() {
    let Some(program) = test_program("c/spawned.c") else { return };
    let files = program.with_file_name("files");
    std::fs::create_dir(&files).unwrap();
    assert_eq!(run(Command::new(program).arg("test").arg(files)), "ok\n");
}

#[cfg(all(target_os = "linux", not(delays)))]
#[test]
fn cpp_programs_start_themselves_as_workers() {
    prints_ok("cpp/spawned.cpp");
}

#[cfg(unix)]
#[test]
fn what_is_freed_twice_is_reported() {
    let Some(program) = test_program("c/freed.c") else { return };
    assert_eq!(run(Command::new(&program).arg("nothing")), "ok\n");
    assert_eq!(run(Command::new(&program).arg("next")), "loader was freed; free it after its last use\nok\n");
    for what in ["loader", "batch"] {
        let output = Command::new(&program).arg(what).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(&format!("slotline: a {what} was freed twice")), "{}\n{text}", output.status);
        assert!(output.status.signal().is_some(), "{}", output.status);
    }
}

/// Every function in the header must have a row in `refusals.c`.
#[test]
fn every_function_refuses_nulls_and_short_structs() {
    let Some(program) = test_program("c/refusals.c") else { return };
    let output = run(&mut Command::new(program));
    let tested: BTreeSet<&str> = output.lines().collect();
    let header = std::fs::read_to_string(here().join("include/slotline.h")).unwrap();
    // Skip the declarations for CUDA and pictures, which this library is built without.
    // Declarations begin at the start of a line.
    let mut left_out = false;
    let code = header.lines().filter(|line| {
        left_out = line.starts_with("#if defined(SLOTLINE_") || left_out && !line.starts_with("#endif");
        !left_out && line.starts_with(|first: char| first.is_ascii_alphabetic()) && !line.starts_with("typedef")
    });
    let before = code.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    let names = before.filter_map(|before| before.rsplit([' ', '*']).next());
    let declared: BTreeSet<&str> = names.filter(|name| name.starts_with("slotline_")).collect();
    assert!(declared.len() > 20, "the header was not parsed correctly: {declared:?}");
    assert_eq!(tested, declared, "rows of refusals.c and functions of slotline.h");
}
