//! Tests that batches on a device equal those of the loader on the host.

mod support;

use std::collections::BTreeSet;

use slotline::Loader;
use slotline::dataset::from_fn;
use slotline::loader::{OnHeld, Overflow, State};
use slotline::sample::Packed;
use slotline_cuda::{Device, DeviceLoader, Error, Stream};
use slotline_cuda_fake::{Fake, Options};
use support::reads::Reads;
use support::{Things, check, check_passes, check_samples, error_of, loader};

#[test]
fn device_batches_match_host_batches_for_all_loaders() {
    for workers in 0..3 {
        for slots in 1..4 {
            let fake = Fake::load().session(Options { seed: 10 * workers as u64 + slots as u64, ..Options::default() });
            let device = Device::new(0).unwrap();
            let stream = Stream::new(&device).unwrap();
            let builder = || Loader::builder(Things(50)).batch_size(8).shuffle(true).seed(7).num_workers(workers);
            let shared = builder().hold(slots).memory(device.pinned()).build().unwrap();
            check_passes(&mut DeviceLoader::with_slots(shared, &device, slots).unwrap(), &stream, 50, 3);
            // The minimum number of host slots.
            let tight = builder().memory(device.pinned()).build().unwrap();
            check_passes(&mut DeviceLoader::with_slots(tight, &device, slots).unwrap(), &stream, 50, 3);
            let per_worker = builder().memory(device.pinned()).round_robin(true).build().unwrap();
            check_passes(&mut DeviceLoader::with_slots(per_worker, &device, slots).unwrap(), &stream, 50, 3);
            let builder = Loader::iterable(Things(50)).batch_size(8).num_workers(workers);
            let iterable = builder.memory(device.pinned()).build().unwrap();
            check_stream(&mut DeviceLoader::with_slots(iterable, &device, slots).unwrap(), &stream, 50);
            #[cfg(target_os = "linux")]
            if workers > 0 {
                let builder = Loader::builder(Things(50)).batch_size(8).shuffle(true).seed(7).num_workers(workers);
                let processes = builder.hold(slots).memory(device.pinned_shared()).processes().build().unwrap();
                check_passes(&mut DeviceLoader::with_slots(processes, &device, slots).unwrap(), &stream, 50, 3);
            }
            assert_eq!(fake.violations(), Vec::<String>::new());
        }
    }
}

/// Checks batches without indices, whose first field identifies their samples.
fn check_stream(loader: &mut DeviceLoader, stream: &Stream, samples: usize) {
    for _ in 0..2 {
        let mut seen = Vec::new();
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            batch.ready_on(stream).unwrap();
            let numbers = support::bytes_of(&batch.field(0).unwrap(), stream);
            let numbers = numbers.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().unwrap()) as usize);
            let numbers: Vec<_> = numbers.collect();
            check_samples(&batch, stream, &numbers);
            seen.extend(numbers);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..samples).collect::<Vec<_>>());
    }
}

#[test]
fn single_samples_have_no_batch_dimension() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let host = Loader::builder(from_fn(5, |index, _| Ok(([index as u8; 3], index as i64)))).batch_size(None);
    let mut loader = DeviceLoader::new(host.memory(device.pinned()).build().unwrap(), &device).unwrap();
    for (i, batch) in loader.epoch().unwrap().enumerate() {
        let batch = batch.unwrap();
        batch.ready_on(&stream).unwrap();
        let bytes = batch.by_name("0").unwrap();
        assert_eq!((bytes.shape(), batch.field(1).unwrap().shape()), (&[3][..], &[][..]));
        assert_eq!(support::bytes_of(&bytes, &stream), [i as u8; 3]);
        assert!(batch.by_name("2").is_none() && batch.field(2).is_none());
    }
}

#[test]
fn an_empty_dataset_gives_empty_passes() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let host = Loader::builder(Things(0)).memory(device.pinned()).build().unwrap();
    let mut loader = DeviceLoader::new(host, &device).unwrap();
    assert_eq!(loader.epoch().unwrap().count(), 0);
}

#[test]
fn a_batch_takes_few_driver_calls_in_addition_to_its_copy() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let host =
        Loader::builder(Things(400)).batch_size(8).num_workers(1).hold(2).memory(device.pinned()).build().unwrap();
    let mut loader = DeviceLoader::new(host, &device).unwrap();
    let mut calls = Vec::new();
    let mut pass = loader.epoch().unwrap();
    loop {
        // The training step takes longer than the copy.
        fake.advance(1000);
        let before = fake.calls();
        let Some(batch) = pass.next() else { break };
        let batch = batch.unwrap();
        let loaded = fake.calls();
        batch.ready_on(&stream).unwrap();
        fake.read_on(stream.as_raw(), batch.field(0).unwrap().ptr(), 64).unwrap();
        drop(batch);
        calls.push((loaded - before, fake.calls() - loaded));
    }
    assert_eq!(calls.len(), 50);
    // If the next batch is not ready in time, its driver calls are made in the `next` after that.
    let next: u64 = calls[4..46].iter().map(|calls| calls.0).sum();
    let callers: u64 = calls[4..46].iter().map(|calls| calls.1).sum();
    assert!(next <= 4 * 42 + 4, "{calls:?}");
    assert!(callers <= 2 * 42, "{calls:?}");
    // The first call on a thread without a context is made twice.
    assert!((50..=51).contains(&fake.count("cuMemcpyHtoDAsync_v2")));
}

/// If slots were not used in turn, the copy into a slot would wait for the training step that was
/// started last, and copies would not overlap with steps.
#[test]
fn slots_are_used_in_turn_even_if_the_loop_is_ahead_of_the_device() {
    for slots in 2..5 {
        // The device hardly moves while the loop runs.
        let fake = Fake::load().session(Options { seed: slots as u64, max_steps_per_call: 1, ..Options::default() });
        let device = Device::new(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut loader = loader(&device, 400, 1, slots);
        let (mut places, reads) = (Vec::new(), Reads::new(&fake));
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            batch.ready_on(&stream).unwrap();
            let field = batch.field(1).unwrap();
            places.push(field.ptr());
            reads.read(stream.as_raw(), field.ptr(), field.bytes());
        }
        assert_eq!(places.len(), 50);
        for window in places.windows(slots) {
            assert_eq!(window.iter().collect::<BTreeSet<_>>().len(), slots, "{places:x?}");
        }
        reads.check(&format!("{slots} slots"));
    }
}

/// If copies did not get ahead again, each batch would be copied only when it is requested, and a
/// loop that waits for its training steps would wait for each copy, too.
#[test]
fn copies_get_ahead_again_after_they_were_late() {
    for slots in 2..5 {
        let fake = Fake::load().session(Options::default());
        let device = Device::new(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut loader = loader(&device, 400, 1, slots);
        loader.begin_epoch().unwrap();
        for task in 0..40 {
            // The copies of the first batches end only after these batches were delivered.
            fake.hold(task < slots);
            fake.advance(u64::MAX);
            while !loader.loader().is_ready() {
                std::thread::yield_now();
            }
            let batch = loader.next_batch().unwrap().unwrap();
            batch.ready_on(&stream).unwrap();
            batch.release_on(&stream).unwrap();
            let copies = fake.count("cuMemcpyHtoDAsync_v2");
            assert!(task <= slots || copies > task as u64 + 1, "{slots} slots: {copies} copies after batch {task}");
        }
    }
}

#[test]
fn a_stream_waits_only_for_copies_not_known_to_be_done() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut loader = loader(&device, 16, 0, 2);
    let mut pass = loader.epoch().unwrap();
    fake.hold(true);
    let batch = pass.next().unwrap().unwrap();
    batch.ready_on(&stream).unwrap();
    batch.ready_on(&stream).unwrap();
    assert_eq!(fake.count("cuStreamWaitEvent"), 1, "the second call does nothing, since the stream already waits");
    fake.hold(false);
    check(&batch, &stream);
    drop(batch);
    let batch = pass.next().unwrap().unwrap();
    let waits = fake.count("cuStreamWaitEvent");
    batch.wait().unwrap();
    batch.ready_on(&stream).unwrap();
    assert_eq!(fake.count("cuStreamWaitEvent"), waits, "a finished copy needs no wait");
    check(&batch, &stream);
}

#[test]
fn an_error_of_the_host_s_loader_replaces_its_batch() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    for workers in [0, 2] {
        let dataset = from_fn(20, |index, _| if index == 9 { Err("a bad one".into()) } else { Ok(index as i64) });
        let builder = Loader::builder(dataset).batch_size(4).num_workers(workers).memory(device.pinned());
        let mut loader = DeviceLoader::new(builder.build().unwrap(), &device).unwrap();
        let outcomes: Vec<_> = loader.epoch().unwrap().map(|batch| batch.map(|batch| batch.batch_index())).collect();
        let tasks: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().ok().copied()).collect();
        assert_eq!(tasks, [Some(0), Some(1), None, Some(3), Some(4)]);
        let Err(Error::Loader(slotline::Error::Sample { index: 9, task: 2, .. })) = outcomes[2] else { panic!() };
    }
}

#[test]
fn a_loader_without_page_locked_memory_is_refused() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let host = Loader::builder(Things(9)).pin_memory(true).build().unwrap();
    let error = DeviceLoader::new(host, &device).unwrap_err();
    assert!(matches!(error, Error::NotPageLocked), "{error}");
    let host = Loader::builder(Things(9)).memory(device.pinned()).build().unwrap();
    assert!(matches!(DeviceLoader::with_slots(host, &device, 0), Err(Error::NoSlots)));
}

#[test]
fn a_batch_with_spilled_fields_is_an_error() {
    static LONG: [u8; 100] = [7; 100];
    struct Lengths;
    impl slotline::Dataset for Lengths {
        type Sample<'a> = Packed<'a, u8>;
        fn len(&self) -> usize {
            6
        }
        fn get<'a>(
            &'a self,
            index: usize,
            _: &'a mut slotline::dataset::Context,
        ) -> Result<Packed<'a, u8>, slotline::BoxError> {
            Ok(Packed::new(&LONG[..if index == 3 { 100 } else { 5 }], 10))
        }
    }
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let builder = Loader::builder(Lengths).batch_size(2).on_overflow(Overflow::Spill).memory(device.pinned());
    let mut loader = DeviceLoader::new(builder.build().unwrap(), &device).unwrap();
    let outcomes: Vec<_> = loader.epoch().unwrap().map(|batch| batch.map(|batch| batch.batch_index())).collect();
    assert!(matches!(&outcomes[..], [Ok(0), Err(Error::Spilled { task: 1, .. }), Ok(2)]), "{outcomes:?}");
}

#[test]
fn holding_all_device_slots_is_an_error_until_a_drop() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    for workers in [0, 2] {
        let mut loader = loader(&device, 80, workers, 2);
        let mut pass = loader.epoch().unwrap();
        let first = pass.next().unwrap().unwrap();
        let second = pass.next().unwrap().unwrap();
        assert!(matches!(error_of(pass.next()), Error::Held { slots: 2 }));
        drop(first);
        let third = pass.next().unwrap().unwrap();
        assert_eq!(third.batch_index(), 2, "nothing was lost");
        check(&second, &stream);
        check(&third, &stream);
        for _ in 0..3 {
            assert!(matches!(error_of(pass.next()), Error::Held { .. }));
        }
        drop((second, third));
        assert!(pass.map(|batch| batch.unwrap().batch_index()).eq(3..10));
        check_passes(&mut loader, &stream, 80, 1);
    }
}

#[test]
fn a_stuck_copy_times_out_and_the_next_call_waits_again() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let host = Loader::builder(Things(40)).batch_size(8).memory(device.pinned()).build().unwrap();
    let mut loader = DeviceLoader::new(host, &device).unwrap().timeout(std::time::Duration::from_millis(20));
    let mut pass = loader.epoch().unwrap();
    fake.hold(true);
    let mut given = Vec::new();
    // The ring has two slots, and both are being copied.
    let error = loop {
        match pass.next().unwrap() {
            Ok(batch) => given.push(batch.batch_index()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Timeout { task: 0, .. }), "{error}");
    fake.hold(false);
    for batch in pass {
        let batch = batch.unwrap();
        check(&batch, &stream);
        given.push(batch.batch_index());
    }
    assert_eq!(given, [0, 1, 2, 3, 4]);
}

#[test]
fn every_stream_that_uses_a_batch_is_waited_for() {
    for seed in 0..40 {
        let fake = Fake::load().session(Options { seed, kernel_steps: 40, ..Options::default() });
        let device = Device::new(0).unwrap();
        let streams: Vec<_> = (0..4).map(|_| Stream::new(&device).unwrap()).collect();
        let (mut loader, reads) = (loader(&device, 80, 0, 2), Reads::new(&fake));
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            for stream in &streams {
                batch.ready_on(stream).unwrap();
                let field = batch.field(1).unwrap();
                reads.read(stream.as_raw(), field.ptr(), field.bytes());
            }
            if batch.batch_index() == 3 {
                let fifth = Stream::new(&device).unwrap();
                assert!(matches!(batch.ready_on(&fifth), Err(Error::TooManyStreams { most: 4 })));
            }
        }
        device.synchronize().unwrap();
        reads.check(&format!("seed {seed}"));
    }
}

#[test]
fn a_batch_refuses_streams_of_another_device() {
    let fake = Fake::load().session(Options { devices: 2, ..Options::default() });
    let devices = [0, 1].map(|ordinal| Device::new(ordinal).unwrap());
    let streams = [0, 1].map(|i| Stream::new(&devices[i]).unwrap());
    let mut loaders = [0, 1].map(|i| loader(&devices[i], 60, 1, 2));
    // Memory that is page-locked for one device is page-locked for the other.
    let host = Loader::builder(Things(60)).batch_size(8).memory(devices[0].pinned()).build().unwrap();
    check_passes(&mut DeviceLoader::new(host, &devices[1]).unwrap(), &streams[1], 60, 1);
    let [first, second] = &mut loaders;
    for (one, other) in first.epoch().unwrap().zip(second.epoch().unwrap()) {
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(matches!(one.ready_on(&streams[1]), Err(Error::WrongDevice { stream: 1, batch: 0 })));
        check(&one, &streams[0]);
        check(&other, &streams[1]);
        assert!(matches!(other.release_on(&streams[0]), Err(Error::WrongDevice { stream: 0, batch: 1 })));
        one.release_on(&streams[0]).unwrap();
    }
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[test]
fn several_loaders_share_a_device() {
    let fake = Fake::load().session(Options { ticker: true, ..Options::default() });
    let device = Device::new(0).unwrap();
    std::thread::scope(|scope| {
        for workers in [0, 1, 2] {
            let device = &device;
            scope.spawn(move || {
                let stream = Stream::new(device).unwrap();
                check_passes(&mut loader(device, 100, workers, 2), &stream, 100, 3);
            });
        }
    });
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[test]
fn a_resumed_pass_continues_after_the_delivered_batches() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let all: Vec<_> = loader(&device, 100, 0, 2).epoch().unwrap().map(|b| b.unwrap().indices().to_vec()).collect();
    for workers in [0, 2] {
        for cut in [0, 1, 5, 13] {
            let mut first = loader(&device, 100, workers, 3).resumable(true);
            let mut pass = first.epoch().unwrap();
            for expected in &all[..cut] {
                assert_eq!(pass.next().unwrap().unwrap().indices(), expected);
            }
            let state: State = pass.state().unwrap().clone();
            let mut second = loader(&device, 100, 2 - workers, 2);
            second.loader_mut().load_state(&state).unwrap();
            let rest: Vec<_> = second.epoch().unwrap().map(|b| b.unwrap().indices().to_vec()).collect();
            assert_eq!(rest, all[cut..], "cut after {cut}");
            assert!(second.epoch().unwrap().state().is_none(), "the loader is not resumable");
            assert_eq!(pass.by_ref().count(), all.len() - cut);
            let state = pass.state().unwrap().clone();
            drop(pass);
            assert_eq!(state, first.loader().state(), "the state at the end is that of the next pass");
        }
    }
}

#[test]
fn on_held_wait_does_not_deadlock_on_batches_being_copied() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let dataset = from_fn(24, |index, _| if index == 5 { Err("a bad one".into()) } else { Ok(index as i64) });
        let builder = Loader::builder(dataset).batch_size(4).on_held(OnHeld::Wait).memory(device.pinned());
        let mut loader = DeviceLoader::new(builder.build().unwrap(), &device).unwrap();
        let outcomes: Vec<_> = loader.epoch().unwrap().map(|batch| batch.is_ok()).collect();
        drop(loader);
        sender.send(outcomes).unwrap();
    });
    let outcomes = receiver.recv_timeout(std::time::Duration::from_secs(20)).expect("the pass should end");
    assert_eq!(outcomes, [true, false, true, true, true, true]);
    thread.join().unwrap();
}

#[test]
fn leaked_host_slots_are_replaced_or_reported_as_held() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    for on_held in [OnHeld::Grow, OnHeld::Fail] {
        let builder = Loader::builder(Things(80)).batch_size(8).on_held(on_held).memory(device.pinned());
        let mut loader = DeviceLoader::with_slots(builder.build().unwrap(), &device, 5).unwrap();
        let mut pass = loader.epoch().unwrap();
        let mut given = Vec::new();
        for _ in 0..2 {
            given.extend([(); 2].map(|()| pass.next().unwrap().unwrap().batch_index()));
            fake.fail_call(0, 999);
            assert!(matches!(error_of(pass.next()), Error::Leaked { .. }));
            fake.fail_none();
        }
        // Batches are dropped: there are five slots on the device.
        let rest: Vec<_> = pass.by_ref().map(|batch| batch.map(|batch| batch.batch_index())).collect();
        match on_held {
            OnHeld::Grow => {
                given.extend(rest.into_iter().map(Result::unwrap));
                assert!(given.into_iter().eq(0..10));
                assert!(pass.stats().extra_batches > 0);
            }
            _ => {
                let last = rest.last().unwrap().as_ref().unwrap_err();
                assert!(matches!(last, Error::Loader(slotline::Error::Held { .. })), "{last}");
                assert!(given.len() + rest.len() < 10 + 2);
            }
        }
    }
}

#[test]
fn held_slots_after_a_driver_error_do_not_end_the_pass() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut loader = loader(&device, 80, 0, 2);
    let mut pass = loader.epoch().unwrap();
    let (first, second) = (pass.next().unwrap().unwrap(), pass.next().unwrap().unwrap());
    fake.fail_call(0, 2);
    assert!(first.release_on(&stream).is_err());
    fake.fail_none();
    assert!(matches!(error_of(pass.next()), Error::Lost { left: 1, .. }));
    assert!(matches!(error_of(pass.next()), Error::Held { slots: 1 }));
    drop(second);
    assert_eq!(pass.next().unwrap().unwrap().batch_index(), 2);
    assert_eq!(pass.filter(|batch| batch.is_ok()).count(), 7);
}

#[test]
fn a_loader_without_slots_reports_the_driver_s_error() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let mut loader = loader(&device, 80, 0, 1);
    let mut pass = loader.epoch().unwrap();
    drop(pass.next().unwrap().unwrap());
    fake.advance(1000);
    // The copy is refused, and the query whether it started anyway fails.
    fake.fail_from(1, 999);
    assert!(matches!(error_of(pass.next()), Error::Copy { task: 1, .. }));
    assert!(matches!(error_of(pass.next()), Error::Leaked { task: 1, .. }));
    fake.fail_none();
    drop(pass);
    let error = error_of(loader.epoch().unwrap().next());
    assert!(matches!(&error, Error::Lost { left: 0, source } if source.code == 999), "{error}");
}

#[test]
fn a_batch_without_samples_is_not_spilled() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    static LONG: [u8; 100] = [7; 100];
    let lists = || [vec![40], vec![], vec![], vec![1]];
    let builder = Loader::builder(Runs).batch_sampler_iter(1, lists).on_overflow(Overflow::Spill);
    let mut loader = DeviceLoader::new(builder.memory(device.pinned()).build().unwrap(), &device).unwrap();
    let outcomes: Vec<_> = loader.epoch().unwrap().map(|batch| batch.map(|batch| batch.len())).collect();
    assert!(matches!(&outcomes[..], [Err(Error::Spilled { task: 0, .. }), Ok(0), Ok(0), Ok(1)]), "{outcomes:?}");

    /// Samples with as many bytes as their index, and room for ten.
    struct Runs;
    impl slotline::Dataset for Runs {
        type Sample<'a> = Packed<'a, u8>;
        fn len(&self) -> usize {
            100
        }
        fn get<'a>(
            &'a self,
            index: usize,
            _: &'a mut slotline::dataset::Context,
        ) -> Result<Packed<'a, u8>, slotline::BoxError> {
            Ok(Packed::new(&LONG[..index], 10))
        }
    }
}

#[test]
fn messages_have_no_double_spaces() {
    let leaked = Error::Leaked { task: 1, bytes: 2, why: "late".to_owned() };
    for error in [leaked, Error::Spilled { task: 1, field: "words".to_owned() }] {
        assert!(!error.to_string().contains("  "), "{error}");
    }
}

#[test]
fn a_replaced_host_loader_is_refused() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut loader = loader(&device, 40, 0, 2);
    let build = |builder: slotline::loader::Builder<Things>| builder.batch_size(8).build().unwrap().untyped();
    let others = [Loader::builder(Things(40)), Loader::builder(Things(40)).memory(device.pinned())].map(build);
    for other in others {
        let own = std::mem::replace(loader.loader_mut(), other);
        assert!(matches!(loader.epoch(), Err(Error::Exchanged)));
        *loader.loader_mut() = own;
        check_passes(&mut loader, &stream, 40, 1);
    }
}

#[test]
fn replacing_the_host_loader_ends_the_pass() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let mut loader = loader(&device, 80, 0, 2);
    loader.begin_epoch().unwrap();
    drop(loader.next_batch().unwrap().unwrap());
    let mut other = Loader::builder(Things(80)).batch_size(80).build().unwrap().untyped();
    other.begin_epoch().unwrap();
    // The batches of the new loader are larger than the slots, and not in page-locked memory.
    *loader.loader_mut() = other;
    assert!(loader.next_batch().is_none());
    assert!(matches!(loader.begin_epoch(), Err(Error::Exchanged)));
    assert!(loader.next_batch().is_none());
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[test]
fn next_batch_returns_the_same_batches_as_a_pass() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    for workers in 0..3 {
        let mut passes = loader(&device, 50, workers, 2);
        let mut loader = loader(&device, 50, workers, 2).resumable(true);
        assert!(loader.next_batch().is_none(), "no pass was started");
        for kept in [usize::MAX, 3, 0, usize::MAX] {
            loader.begin_epoch().unwrap();
            let mut pass = passes.epoch().unwrap();
            for expected in pass.by_ref().take(kept) {
                let batch = loader.next_batch().unwrap().unwrap();
                check(&batch, &stream);
                let expected = expected.unwrap();
                assert_eq!((batch.epoch(), batch.indices()), (expected.epoch(), expected.indices()));
                assert_eq!(
                    loader.state().unwrap().batches(),
                    batch.batch_index() + 1,
                    "the state excludes batches that are copied ahead"
                );
            }
            if kept == usize::MAX {
                assert!(loader.next_batch().is_none());
                assert_eq!(loader.state().unwrap(), loader.loader().state(), "the state is that of the next pass");
                assert!(loader.next_batch().is_none());
            }
        }
        // An abandoned pass leaves no batches to take.
        drop(loader.epoch().unwrap().next());
        assert!(loader.next_batch().is_none());
    }
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[test]
fn a_loop_can_wait_until_another_thread_drops_a_batch() {
    let _fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let mut loader = loader(&device, 80, 0, 2).wait_for_release(true);
    let (give, given) = std::sync::mpsc::channel::<slotline_cuda::DeviceBatch>();
    let tasks = std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            let stream = Stream::new(&device).unwrap();
            let slow = |batch: slotline_cuda::DeviceBatch| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                check(&batch, &stream);
                batch.batch_index()
            };
            given.into_iter().map(slow).collect::<Vec<_>>()
        });
        loader.epoch().unwrap().for_each(|batch| give.send(batch.unwrap()).unwrap());
        drop(give);
        user.join().unwrap()
    });
    assert_eq!(tasks, (0..10).collect::<Vec<_>>());
    let mut loader = loader.timeout(std::time::Duration::from_millis(5));
    let mut pass = loader.epoch().unwrap();
    let _held = [(); 2].map(|()| pass.next().unwrap().unwrap());
    assert!(matches!(error_of(pass.next()), Error::Held { slots: 2 }));
}
