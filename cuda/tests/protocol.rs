//! Tests of the protocol by which copies overlap with kernels, under seeded schedules of a fake
//! driver. Each *gate* makes one side wait for the other; without any one of them, the tests must
//! detect an error.

mod support;

use std::process::Command;

use slotline::Loader;
use slotline_cuda::{Device, DeviceLoader, Stream, leaked};
use slotline_cuda_fake::{Fake, Options, Skip};
use support::reads::Reads;
use support::{Things, nothing_is_lost, seeds};

/// The number of schedules; thousands take some seconds.
const SCHEDULES: u64 = 2000;

/// The options that a seed determines in addition to the driver's schedule.
fn options(seed: u64) -> Options {
    Options {
        seed,
        max_steps_per_call: [2, 5, 12, 40][seed as usize % 4],
        latency: [0, 4, 10, 30][seed as usize / 4 % 4],
        piece_bytes: [1024, 4096][seed as usize / 16 % 2],
        kernel_steps: [1, 6, 30][seed as usize / 32 % 3],
        // The older driver needs a context for more calls.
        driver_version: [13_000, 12_000][seed as usize / 64 % 2],
        ..Options::default()
    }
}

/// Loads fifteen batches of some pages each, of which kernels read every byte: on one stream or two, released by
/// dropping or by `release_on`, held for a while or not.
fn train(fake: &Fake, seed: u64) -> Reads<'_> {
    let device = Device::new(0).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let (workers, slots) = (usize::from(seed.is_multiple_of(16)), 2 + seed as usize / 5 % 2);
    let mut builder = Loader::builder(Things(120)).batch_size(8).shuffle(true).seed(seed).num_workers(workers);
    if workers > 0 {
        // Few slots, so that each is soon refilled.
        builder = builder.prefetch_factor(2);
    }
    let host = builder.hold(1 + seed as usize % 3).memory(device.pinned()).build().unwrap();
    let mut loader = DeviceLoader::with_slots(host, &device, slots).unwrap();
    let (mut held, reads) = (None, Reads::new(fake));
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let stream = &streams[batch.batch_index() * (seed as usize / 7 % 2) % 2];
        batch.ready_on(stream).unwrap();
        for field in (0..batch.fields()).filter_map(|i| batch.field(i)).filter(|field| field.bytes() > 0) {
            reads.read(stream.as_raw(), field.ptr(), field.bytes());
        }
        match seed / 3 % 3 {
            0 => drop(batch),
            1 => batch.release_on(stream).unwrap(),
            // Dropped late, after the next batch was requested.
            _ => held = Some(batch),
        }
    }
    drop(held);
    drop(loader);
    device.synchronize().unwrap();
    assert!(fake.is_absent() || fake.pageable_copies() == 0);
    reads
}

#[test]
fn thousands_of_schedules_are_clean() {
    for seed in seeds(SCHEDULES) {
        let fake = Fake::load().session(options(seed));
        let before = leaked();
        train(&fake, seed).check(&format!("seed {seed}"));
        nothing_is_lost(&fake, before);
    }
}

#[test]
fn schedules_with_a_concurrent_device_are_clean() {
    for seed in seeds(60) {
        let fake = Fake::load().session(Options { ticker: true, ..options(seed) });
        train(&fake, 16 * seed).check(&format!("seed {seed}"));
    }
}

#[test]
fn every_missing_gate_is_detected() {
    for gate in [Skip::HostWait, Skip::CopyWait, Skip::TrainingWait, Skip::Consumed] {
        let caught = (0..48).filter(|&seed| {
            let fake = Fake::load().session(options(seed));
            fake.skip(&[gate]);
            train(&fake, seed);
            fake.skip(&[]);
            !fake.violations().is_empty()
        });
        let caught = caught.count();
        println!("{gate:?}: caught in {caught} of 48 schedules");
        assert!(caught >= 12, "{gate:?} was caught in only {caught} of 48 schedules");
    }
}

/// Selects what a child process runs.
const CHILD: &str = "SLOTLINE_TEST_PROTECTED";

#[test]
fn no_byte_is_written_while_it_is_copied() {
    Fake::load().needs_fake();
    // This runs in a child process, since a write to a page that is being copied kills the process.
    if let Ok(gates) = std::env::var(CHILD) {
        let gates = if gates == "none" { vec![Skip::HostWait] } else { Vec::new() };
        for seed in 0..40 {
            let options = Options { read_only_sources: true, latency: 30, ..options(seed) };
            let fake = Fake::load().session(options);
            fake.skip(&gates);
            train(&fake, seed);
            fake.skip(&[]);
        }
        return;
    }
    let run = |gates| {
        let test = std::env::current_exe().unwrap();
        let name = "no_byte_is_written_while_it_is_copied";
        Command::new(test).args(["--exact", name]).env(CHILD, gates).output().unwrap().status
    };
    assert!(run("all").success());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&run("none")), Some(libc::SIGSEGV));
}
