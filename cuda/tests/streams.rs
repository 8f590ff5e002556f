//! Streams of our own and of others, and times.

use std::ptr;
use std::time::Duration;

use slotline_cuda::{Device, Error, Stream, TimedEvent};
use slotline_cuda_fake::{Fake, Live, Options, Session};

fn code(error: Error) -> u32 {
    let Error::Driver(error) = error else { panic!("{error}") };
    error.code
}

fn session() -> (Session, Device) {
    let fake = Fake::load().session(Options::default());
    (fake, Device::new(0).unwrap())
}

#[test]
fn our_streams_are_destroyed_with_the_last_clone_and_others_are_not() {
    let (fake, device) = session();
    let stream = Stream::new(&device).unwrap();
    // SAFETY: the stream lives on until the end.
    let borrowed = unsafe { Stream::from_raw(&device, stream.as_raw()) };
    assert_eq!(borrowed, stream);
    assert_ne!(stream, Stream::new(&device).unwrap());
    drop(borrowed);
    let clone = stream.clone();
    assert_eq!(clone, stream);
    drop(stream);
    clone.synchronize().unwrap();
    assert_eq!(fake.live().streams, 1);
    drop(clone);
    assert_eq!(fake.live().streams, 0);
}

#[test]
fn the_default_streams_have_their_handles_and_are_never_destroyed() {
    let (fake, device) = session();
    let raw = |handle: usize| {
        // SAFETY: the default streams are always there.
        unsafe { Stream::from_raw(&device, ptr::without_provenance_mut(handle)) }
    };
    assert_eq!(raw(1), Stream::legacy_default(&device));
    assert_eq!(raw(2), Stream::per_thread_default(&device));
    for handle in [0, 1, 2] {
        assert_eq!(raw(handle).as_raw().addr(), handle);
        raw(handle).synchronize().unwrap();
        assert!(raw(handle).is_idle().unwrap());
    }
    assert_eq!(fake.count("cuStreamDestroy_v2"), 0);
}

#[test]
fn a_thread_s_default_stream_is_never_taken_for_another_thread_s() {
    // Streams make steps only while somebody waits, and then one after the other as the seed has it.
    for seed in 0..20 {
        let fake = Fake::load().session(Options { seed, max_steps_per_call: 0, ..Options::default() });
        let device = Device::new(0).unwrap();
        let event = TimedEvent::new(&device).unwrap();
        let stream = Stream::per_thread_default(&device);
        let put_work = || (0..30).for_each(|_| event.record(&stream).unwrap());
        put_work();
        assert!(!stream.is_idle().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(Stream::per_thread_default(&device).is_idle().unwrap(), "this thread's own");
                assert!(!stream.is_idle().unwrap(), "the other one's");
                event.record(&stream).unwrap();
                event.synchronize().unwrap();
                assert_eq!(fake.pending(), 0, "the event is behind what the other thread has put there");
            });
        });
        put_work();
        std::thread::scope(|scope| {
            scope.spawn(|| stream.synchronize().unwrap());
        });
        assert_eq!(fake.pending(), 0);
    }
}

#[test]
fn times_are_there_when_both_events_are_reached() {
    let (fake, device) = session();
    let stream = Stream::new(&device).unwrap();
    let (first, second) = (TimedEvent::new(&device).unwrap(), TimedEvent::new(&device).unwrap());
    assert_eq!(code(second.elapsed_since(&first).unwrap_err()), 400, "never recorded");
    fake.hold(true);
    first.record(&stream).unwrap();
    second.record(&stream).unwrap();
    assert!(!stream.is_idle().unwrap());
    assert_eq!(code(second.elapsed_since(&first).unwrap_err()), 600);
    fake.hold(false);
    second.synchronize().unwrap();
    second.elapsed_since(&first).unwrap();
    assert_eq!(first.elapsed_since(&second).unwrap(), Duration::ZERO, "the other way round");
    assert!(stream.is_idle().unwrap());
    drop((first, second, stream, device));
    assert_eq!((fake.live(), fake.violations()), (Live::default(), vec![]));
}
