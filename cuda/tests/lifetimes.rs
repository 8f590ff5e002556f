//! Tests of dropping batches, passes, loaders, streams and devices in any order.

mod support;

use std::time::{Duration, Instant};

use slotline::Loader;
use slotline::loader::GRACE;
use slotline_cuda::{Device, DeviceLoader, Error, Stream, leaked};
use slotline_cuda_fake::{Fake, Options};
use support::reads::Reads;
use support::{Things, check, check_passes, loader, loader_closed_within, nothing_is_lost, seeds};

/// A `close_timeout`.
const SHORT: Duration = Duration::from_millis(100);

#[test]
fn batches_can_outlive_everything_else() {
    for seed in seeds(60) {
        let fake = Fake::load().session(Options { seed, kernel_steps: 50, ..Options::default() });
        let before = leaked();
        let device = Device::new(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut loader = loader(&device, 64, seed as usize % 3, 3);
        let mut pass = loader.epoch().unwrap();
        let batches = [(); 3].map(|()| pass.next().unwrap().unwrap());
        let reads = Reads::new(&fake);
        for batch in &batches {
            batch.ready_on(&stream).unwrap();
            let field = batch.field(1).unwrap();
            reads.read(stream.as_raw(), field.ptr(), field.bytes());
        }
        let [first, second, third] = batches;
        drop(pass);
        drop(second);
        match seed % 4 {
            0 => {
                drop((loader, device, stream));
                drop((third, first));
            }
            1 => {
                drop((first, loader));
                drop((stream, device, third));
            }
            2 => {
                first.release_on(&stream).unwrap();
                let host = loader.close().unwrap();
                drop((device, host, stream));
                std::thread::spawn(move || drop(third)).join().unwrap();
            }
            _ => {
                drop((first, third, stream));
                drop((device, loader));
            }
        }
        reads.check(&format!("seed {seed}"));
        nothing_is_lost(&fake, before);
    }
}

#[test]
fn an_abandoned_pass_does_not_affect_the_next_one() {
    let fake = Fake::load().session(Options::default());
    let before = leaked();
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    for workers in [0, 2] {
        let mut loader = loader(&device, 100, workers, 2);
        for delivered in 0..6 {
            let mut pass = loader.epoch().unwrap();
            let last = pass.by_ref().take(delivered).last();
            drop(pass);
            last.inspect(|batch| check(batch.as_ref().unwrap(), &stream));
        }
        check_passes(&mut loader, &stream, 100, 1);
    }
    drop((stream, device));
    assert_eq!(fake.violations(), Vec::<String>::new());
    nothing_is_lost(&fake, before);
}

#[test]
fn a_stuck_copy_is_leaked_after_the_close_timeout() {
    let fake = Fake::load().session(Options::default());
    let before = leaked();
    let device = Device::new(0).unwrap();
    let mut loader = loader_closed_within(SHORT, &device, 64, 0, 2);
    let mut pass = loader.epoch().unwrap();
    fake.hold(true);
    drop(pass.next().unwrap().unwrap());
    drop(pass);
    let start = Instant::now();
    let error = loader.close().unwrap_err();
    assert!(matches!(error, Error::Leaked { task: 0, .. }) && error.to_string().contains("after 100ms"), "{error}");
    assert!((SHORT..GRACE).contains(&start.elapsed()), "{:?}", start.elapsed());
    drop(device);
    let leaked = leaked();
    assert!(leaked.host_bytes > before.host_bytes && leaked.device_bytes > before.device_bytes);
    nothing_is_lost(&fake, before);
    fake.hold(false);
}

#[test]
fn a_batch_with_a_stuck_kernel_is_leaked_without_a_loader() {
    let fake = Fake::load().session(Options::default());
    let before = leaked();
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut loader = loader_closed_within(SHORT, &device, 64, 0, 2);
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    check(&batch, &stream);
    drop(loader);
    fake.hold(true);
    fake.read_on(stream.as_raw(), batch.field(1).unwrap().ptr(), 64).unwrap();
    let start = Instant::now();
    drop(batch);
    assert!((SHORT..GRACE).contains(&start.elapsed()), "{:?}", start.elapsed());
    let bytes = leaked().device_bytes - before.device_bytes;
    assert!(bytes > 0, "a kernel may still read it");
    drop((stream, device));
    nothing_is_lost(&fake, before);
    fake.hold(false);
}

#[test]
fn memory_is_not_freed_during_a_kernel_after_a_refused_wait() {
    let mut refused = 0;
    for n in 0..4 {
        let fake = Fake::load().session(Options { kernel_steps: 4000, ..Options::default() });
        let device = Device::new(0).unwrap();
        let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
        let host = Loader::builder(Things(80)).batch_size(8).memory(device.pinned()).build().unwrap();
        let mut loader = DeviceLoader::with_slots(host, &device, 1).unwrap();
        let mut pass = loader.epoch().unwrap();
        let batch = pass.next().unwrap().unwrap();
        streams.iter().for_each(|stream| batch.ready_on(stream).unwrap());
        let field = batch.field(1).unwrap();
        fake.read_on(streams[0].as_raw(), field.ptr(), field.bytes()).unwrap();
        drop(batch);
        fake.fail_call(n, 2);
        let outcome = pass.next();
        fake.fail_none();
        let is_wait = |error: &Error| matches!(error, Error::Copy { source, .. } if source.call == "cuStreamWaitEvent");
        refused += usize::from(outcome.as_ref().unwrap().as_ref().is_err_and(is_wait));
        drop((outcome, pass));
        drop(loader);
        device.synchronize().unwrap();
        assert_eq!(fake.violations(), Vec::<String>::new(), "call {n}");
    }
    assert_eq!(refused, 2, "each of the two waits");
}

#[test]
fn leaked_memory_keeps_the_device_that_locked_it() {
    let fake = Fake::load().session(Options { devices: 2, ..Options::default() });
    let before = leaked();
    let [here, there] = [0, 1].map(|ordinal| Device::new(ordinal).unwrap());
    let host = Loader::builder(Things(80)).batch_size(8).memory(there.pinned()).build().unwrap();
    let mut loader = DeviceLoader::new(host, &here).unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    fake.fail_call(0, 999);
    assert!(matches!(loader.close(), Err(Error::Leaked { task: 0, .. })));
    fake.fail_none();
    drop((batch, here, there));
    assert_eq!(fake.live().contexts, 1, "only the context that locked the memory is left");
    nothing_is_lost(&fake, before);
}
