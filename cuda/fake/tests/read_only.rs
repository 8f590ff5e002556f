//! Memory that is write-protected while a copy reads it. An early write kills the process at the
//! faulting instruction, so this program runs itself in a child process to do the write.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use slotline_cuda_fake::{Fake, Options};
use support::*;

const BYTES: usize = 64 << 10;
const SIGSEGV: i32 = 11;
/// The environment variable that selects the half of the test that a child process runs.
const ROLE: &str = "SLOTLINE_FAKE_TEST_ROLE";

fn write_after(waits: bool) {
    let fake = Fake::load().session(Options { read_only_sources: true, ..Options::default() });
    context(0);
    let (stream, event, from, to) = (stream(NON_BLOCKING), event(), host_memory(BYTES), device_memory(2 * BYTES));
    // After two copies of the same memory, it is writable only when the second one has ended.
    assert_eq!(to_device(to, from, BYTES, stream), 0);
    assert_eq!(to_device(to + BYTES as u64, from, BYTES, stream), 0);
    assert_eq!(cu!(cuEventRecord(event, stream)), 0);
    while waits && cu!(cuEventQuery(event)) == NOT_READY {}
    write(from, BYTES, 1);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(fake.violations(), [""; 0]);
}

#[test]
fn a_write_during_a_copy_faults() {
    match std::env::var(ROLE).as_deref() {
        Ok("early") => return write_after(false),
        Ok("late") => return write_after(true),
        _ => {}
    }
    let run = |role| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.env(ROLE, role).arg("--exact").arg("a_write_during_a_copy_faults");
        program.output().unwrap().status
    };
    assert!(run("late").success());
    assert_eq!(run("early").signal(), Some(SIGSEGV));
}
