//! Memory that is write-protected while a copy reads it: an early write kills the process at the faulting
//! instruction. So this program runs itself again in a child process to do the write.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use slotline_cuda_fake::{Fake, Options};
use support::*;

const BYTES: usize = 64 << 10;
const SIGSEGV: i32 = 11;
/// Selects which half of the test a child runs.
const ROLE: &str = "SLOTLINE_FAKE_TEST_ROLE";

fn write_after(waits: bool) {
    let fake = Fake::load().session(Options { read_only_sources: true, ..Options::default() });
    context(0);
    let (stream, event, from, to) = (stream(NON_BLOCKING), event(), host_memory(BYTES), device_memory(2 * BYTES));
    // Two copies of the same memory: it is writable again after the second.
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
