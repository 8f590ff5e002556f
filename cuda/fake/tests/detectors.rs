//! Runs the overlap protocol in plain driver calls. With all gates there is no violation under any
//! seed, and each missing gate is detected.

mod support;

use slotline_cuda_fake::{Fake, Options, Session, Skip};
use support::*;

const BATCHES: usize = 20;
const SLOTS: usize = 2;
const BYTES: usize = 64 << 10;
/// The number of schedules that are run without a gate. Not each of them shows a violation.
const SEEDS: usize = 100;

/// Copies batches through two host slots and two device slots, and reads each on another stream.
fn run_protocol() {
    context(0);
    let (copies, training) = (stream(NON_BLOCKING), stream(NON_BLOCKING));
    let host: Vec<_> = (0..SLOTS).map(|_| host_memory(BYTES)).collect();
    let device: Vec<_> = (0..SLOTS).map(|_| device_memory(BYTES)).collect();
    let copied: Vec<_> = (0..SLOTS).map(|_| event()).collect();
    let consumed: Vec<_> = (0..SLOTS).map(|_| event()).collect();
    for batch in 0..BATCHES {
        let slot = batch % SLOTS;
        while cu!(cuEventQuery(copied[slot])) == NOT_READY {}
        write(host[slot], BYTES, batch as u8);
        assert_eq!(cu!(cuStreamWaitEvent(copies, consumed[slot], 0)), 0);
        assert_eq!(to_device(device[slot], host[slot], BYTES, copies), 0);
        assert_eq!(cu!(cuEventRecord(copied[slot], copies)), 0);
        assert_eq!(cu!(cuStreamWaitEvent(training, copied[slot], 0)), 0);
        assert_eq!(Fake::load().read_on(training.cast(), device[slot], BYTES), Ok(()));
        assert_eq!(cu!(cuEventRecord(consumed[slot], training)), 0);
    }
    assert_eq!(cu!(cuCtxSynchronize()), 0);
}

fn session(seed: u64) -> Session {
    Fake::load().session(Options { seed, trace: seed == 0, ..Options::default() })
}

#[test]
fn a_thousand_schedules_with_all_gates_are_clean() {
    for seed in 0..1000 {
        let fake = session(seed);
        run_protocol();
        assert_eq!(fake.violations(), [""; 0], "seed {seed}");
        assert_eq!(fake.pageable_copies(), 0);
    }
}

/// Returns how many of the schedules had a violation that contains `what`.
fn schedules_with(gate: Skip, what: &str) -> usize {
    let has_it = |seed: &u64| {
        let fake = session(*seed);
        fake.skip(&[gate]);
        run_protocol();
        fake.violations().iter().any(|violation| violation.contains(what))
    };
    (0..SEEDS as u64).filter(has_it).count()
}

fn assert_most(schedules: usize) {
    assert!(schedules > SEEDS / 2, "noticed in {schedules} of {SEEDS} schedules");
}

#[test]
fn a_host_that_does_not_wait_for_the_copy_is_noticed() {
    assert_most(schedules_with(Skip::HostWait, "were written while in flight"));
}

#[test]
fn a_copy_that_does_not_wait_for_the_training_is_noticed() {
    assert_most(schedules_with(Skip::CopyWait, "begins before kernel reader"));
}

#[test]
fn training_that_does_not_wait_for_the_copy_is_noticed() {
    assert_most(schedules_with(Skip::TrainingWait, "begins before copy"));
}

#[test]
fn a_missing_consumed_event_is_noticed() {
    assert_most(schedules_with(Skip::Consumed, "begins before kernel reader"));
}

#[test]
fn the_seed_determines_the_schedule() {
    let trace = |seed| {
        let fake = Fake::load().session(Options { seed, trace: true, ..Options::default() });
        run_protocol();
        fake.trace()
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

#[test]
fn a_ticker_makes_steps_without_any_call() {
    let fake = Fake::load().session(Options { ticker: true, ..Options::default() });
    run_protocol();
    let (stream, from, to) = (stream(0), host_memory(BYTES), device_memory(BYTES));
    assert_eq!(to_device(to, from, BYTES, stream), 0);
    while fake.pending() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(fake.violations(), [""; 0]);
}

#[test]
fn bytes_that_change_during_a_kernel_are_noticed() {
    let fake = Fake::load().session(Options { latency: 0, kernel_steps: 1000, seed: 1, ..Options::default() });
    context(0);
    let (stream, memory) = (stream(NON_BLOCKING), device_memory(BYTES));
    assert_eq!(fake.read_on(stream.cast(), memory, BYTES), Ok(()));
    fake.advance(1);
    write(memory as *mut u8, 1, 1);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(fake.violations(), ["kernel reader (job 1, stream 1): the bytes that it reads changed while it ran"]);
}

#[test]
fn a_write_to_an_already_copied_piece_is_noticed() {
    let fake = Fake::load().session(Options { latency: 0, ..Options::default() });
    context(0);
    let (stream, from, to) = (stream(NON_BLOCKING), host_memory(BYTES), device_memory(BYTES));
    write(from, BYTES, 1);
    fake.hold(true);
    assert_eq!(to_device(to, from, BYTES, stream), 0);
    fake.hold(false);
    // The copy reads the last piece of the memory first.
    fake.advance(1);
    // SAFETY: the last byte of the memory.
    write(unsafe { from.add(BYTES - 1) }, 1, 2);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(bytes_on_device(to, BYTES), [1; BYTES]);
    let expected =
        "host bytes 61440..65536 were written while in flight: copy of 65536 bytes to the device (job 1, stream 1)";
    assert_eq!(fake.violations(), [expected]);
}

#[test]
fn two_copies_to_the_same_bytes_from_two_streams_are_noticed() {
    let noticed = (0..SEEDS as u64).filter(|&seed| {
        let fake = session(seed);
        context(0);
        let (one, two) = (stream(NON_BLOCKING), stream(NON_BLOCKING));
        let (from, to) = (host_memory(BYTES), device_memory(BYTES));
        assert_eq!(to_device(to, from, BYTES, one), 0);
        assert_eq!(to_device(to, from, BYTES, two), 0);
        assert_eq!(cu!(cuCtxSynchronize()), 0);
        fake.violations().iter().any(|violation| violation.contains("on the same bytes"))
    });
    assert_most(noticed.count());
}
