//! A loader can be stopped in a signal handler.

use std::process::Command;

use crate::native::{compile, here, run, scratch, tool};

#[test]
fn a_signal_handler_may_stop_a_loader() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let program = scratch("signals").join("signals");
    compile(&cc, &["-std=c11", "-O1"], &here().join("tests/c/signals.c"), &program);
    assert_eq!(run(&mut Command::new(program)), "ok\n");
}
