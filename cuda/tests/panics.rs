//! Tests of `tracing` subscribers that panic on a warning, which unwinds through the loader. The
//! unwinding must not free memory that the device may still use.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{self, CUresult};
use slotline_cuda::{Device, Error, Stream, leaked};
use slotline_cuda_fake::{Fake, Options, Session};
use support::{check, loader, nothing_is_lost};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Panics on the first warning.
#[derive(Default)]
struct Loud(AtomicBool);

impl Subscriber for Loud {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let is_first = *event.metadata().level() == Level::WARN && !self.0.swap(true, Ordering::Relaxed);
        assert!(!is_first, "a subscriber that panics");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Runs `body`, which must panic on a warning.
fn panics(body: impl FnOnce()) {
    let outcome = tracing::subscriber::with_default(Loud::default(), || catch_unwind(AssertUnwindSafe(body)));
    assert!(outcome.is_err(), "there must be a warning");
}

/// Runs `body`, whose first driver call must panic after it was made. The thread's context was destroyed, so the call
/// is repeated in the device's context, and a warning reports that the former context cannot be restored.
fn panics_in_the_first_call(body: impl FnOnce()) {
    let other = Device::new(1).unwrap();
    let mut context = ptr::null_mut();
    // SAFETY: the driver writes the context, which is released again immediately.
    let codes = unsafe {
        [
            sys::cuDevicePrimaryCtxRetain(&mut context, 1),
            sys::cuCtxSetCurrent(context),
            sys::cuDevicePrimaryCtxRelease_v2(1),
        ]
    };
    assert_eq!(codes, [CUresult::CUDA_SUCCESS; 3]);
    drop(other);
    panics(body);
    // SAFETY: null selects no context.
    assert_eq!(unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) }, CUresult::CUDA_SUCCESS);
}

fn session(seed: u64) -> Session {
    Fake::load().session(Options { seed, devices: 2, kernel_steps: 400, max_steps_per_call: 1, ..Options::default() })
}

#[test]
fn memory_is_leaked_before_the_warning_about_it() {
    let fake = session(0);
    let before = leaked();
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut loader = loader(&device, 64, 0, 2);
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    check(&batch, &stream);
    drop(loader);
    fake.hold(true);
    fake.read_on(stream.as_raw(), batch.field(1).unwrap().ptr(), 64).unwrap();
    panics(|| drop(batch));
    assert_eq!(fake.violations(), Vec::<String>::new());
    assert!(leaked().device_bytes > before.device_bytes, "a kernel may still read it");
    drop((stream, device));
    nothing_is_lost(&fake, before);
    fake.hold(false);
}

#[test]
fn a_panic_at_the_start_of_a_copy_does_not_free_its_slots() {
    for seed in 0..20 {
        let fake = session(seed);
        let before = leaked();
        let device = Device::new(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut loader = loader(&device, 64, 0, 2);
        let mut pass = loader.epoch().unwrap();
        panics_in_the_first_call(|| drop(pass.next()));
        assert_eq!(fake.count("cuMemcpyHtoDAsync_v2"), 2, "the copy was started at the second attempt");
        // The batch is lost, and those after it are complete.
        let rest: Vec<_> = pass
            .map(|batch| batch.unwrap())
            .inspect(|batch| check(batch, &stream))
            .map(|batch| batch.batch_index())
            .collect();
        assert_eq!(rest, [1, 2, 3, 4, 5, 6, 7]);
        drop((loader, stream, device));
        assert_eq!(fake.violations(), Vec::<String>::new(), "seed {seed}");
        nothing_is_lost(&fake, before);
    }
}

#[test]
fn a_panic_while_a_loader_waits_for_copies_leaks_memory() {
    for close in [true, false] {
        let fake = session(0);
        let before = leaked();
        let device = Device::new(0).unwrap();
        let mut loader = loader(&device, 64, 0, 2);
        fake.hold(true);
        drop(loader.epoch().unwrap().next().unwrap().unwrap());
        panics_in_the_first_call(|| if close { drop(loader.close()) } else { drop(loader) });
        drop(device);
        assert_eq!(fake.violations(), Vec::<String>::new());
        nothing_is_lost(&fake, before);
        fake.hold(false);
    }
}

#[test]
fn a_panic_while_a_batch_is_released_loses_its_slot() {
    for release in [true, false] {
        let fake = session(0);
        let before = leaked();
        let device = Device::new(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut loader = loader(&device, 64, 0, 2);
        let mut pass = loader.epoch().unwrap();
        let batch = pass.next().unwrap().unwrap();
        check(&batch, &stream);
        let field = batch.field(1).unwrap();
        fake.read_on(stream.as_raw(), field.ptr(), field.bytes()).unwrap();
        panics_in_the_first_call(|| if release { drop(batch.release_on(&stream)) } else { drop(batch) });
        let lost = pass.next().unwrap();
        assert!(matches!(lost, Err(Error::Lost { left: 1, .. })), "{lost:?}");
        for batch in pass {
            check(&batch.unwrap(), &stream);
        }
        drop((loader, stream, device));
        assert_eq!(fake.violations(), Vec::<String>::new());
        nothing_is_lost(&fake, before);
    }
}

#[test]
fn a_panic_while_a_batch_waits_for_its_copy_leaks_it() {
    let fake = session(0);
    let before = leaked();
    let device = Device::new(0).unwrap();
    let mut loader = loader(&device, 64, 0, 2);
    fake.hold(true);
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    // The loader stops waiting for the copy, but does not free the batch's memory.
    drop(loader);
    let without_batch = leaked().device_bytes;
    panics_in_the_first_call(|| drop(batch));
    assert!(leaked().device_bytes > without_batch, "the copy may still write it");
    drop(device);
    assert_eq!(fake.violations(), Vec::<String>::new());
    nothing_is_lost(&fake, before);
    fake.hold(false);
}
