//! Tests of forking a process that uses a device.
#![cfg(target_os = "linux")]

mod support;

use slotline::Loader;
use slotline_cuda::{Device, DeviceLoader, Error, Pinned, Stream, Unavailable, leaked, probe};
use slotline_cuda_fake::{Fake, Options};
use support::forked::{exit, is_child};
use support::reads::Reads;
use support::{Things, check_passes, loader, nothing_is_lost};

/// Returns whether the error says that CUDA does not survive a fork.
fn is_forked<T>(outcome: Result<T, Error>) -> bool {
    match outcome.err() {
        Some(Error::Loader(error)) => matches!(error, slotline::Error::Forked),
        Some(error @ (Error::Driver(_) | Error::Unavailable(_))) => {
            error.to_string().contains("does not survive a fork")
        }
        _ => false,
    }
}

#[test]
fn a_forked_child_releases_nothing_and_never_calls_the_driver() {
    for seed in 0..24 {
        let fake = Fake::load().session(Options { seed, kernel_steps: 50, ..Options::default() });
        let before = leaked();
        let device = Device::new(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let borrowed = Stream::per_thread_default(&device);
        let pinned = [Pinned::registered(&device, 5 << 20).unwrap(), Pinned::allocated(&device, 5000).unwrap()];
        let mut loader = loader(&device, 200, seed as usize % 3, 3);
        let mut unused = {
            let host = Loader::builder(Things(64)).batch_size(8).memory(device.pinned()).build().unwrap();
            DeviceLoader::new(host, &device).unwrap()
        };
        let mut pass = loader.epoch().unwrap();
        let [first, second, third] = [(); 3].map(|()| pass.next().unwrap().unwrap());
        first.ready_on(&stream).unwrap();
        let reads = Reads::new(&fake);
        reads.read(stream.as_raw(), first.field(1).unwrap().ptr(), 4);
        // Copies are in progress, depending on the seed, and this slot is being returned.
        drop(second);
        if !fake.is_absent() {
            fake.hold(true);
        }
        if is_child() {
            let calls = || if fake.is_absent() { 0 } else { fake.calls() };
            let before_calls = calls();
            assert!(is_forked(first.ready_on(&borrowed)));
            assert!(pass.next().is_some_and(is_forked));
            assert!(pass.next().is_none());
            drop(pass);
            assert!(is_forked(third.release_on(&stream)));
            assert!(is_forked(unused.epoch().map(drop)));
            assert!(
                is_forked(Stream::new(&device)) && is_forked(stream.synchronize()) && is_forked(borrowed.is_idle())
            );
            assert!(is_forked(Pinned::registered(&device, 1)) && is_forked(device.synchronize()));
            assert!(is_forked(Device::new(0)) && matches!(probe(), Err(Unavailable::Driver(_))));
            match seed % 4 {
                0 => drop((first, loader, unused, pinned, stream, borrowed, device)),
                1 => drop((device, borrowed, stream, pinned, unused, loader, first)),
                2 => {
                    assert!(is_forked(unused.close()));
                    drop((pinned, loader, stream, first, borrowed, device));
                }
                _ => {
                    drop((loader, device));
                    assert!(is_forked(first.release_on(&stream)));
                    drop((stream, borrowed, pinned, unused));
                }
            }
            assert_eq!(calls(), before_calls, "the child must not call the driver");
            assert_eq!(leaked(), before, "the parent's resources are not counted as leaked");
            exit(0)
        }
        if !fake.is_absent() {
            fake.hold(false);
        }
        drop((first, third, pass));
        check_passes(&mut loader, &stream, 200, 1);
        drop((loader, unused, pinned, borrowed, stream, device));
        reads.check(&format!("seed {seed}"));
        nothing_is_lost(&fake, before);
    }
}
