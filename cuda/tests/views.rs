//! Tests of batches as views of the crate cudarc.

mod support;

use std::sync::Arc;

use slotline::Loader;
use slotline::dtype::DType;
use slotline_cuda::cudarc::driver::sys::CUresult::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_OUT_OF_MEMORY};
use slotline_cuda::cudarc::driver::{CudaContext, CudaStream, DevicePtr};
use slotline_cuda::{Device, DeviceLoader, Error, Stream, Views};
use slotline_cuda_fake::{Fake, Options, Session};
#[cfg(target_os = "linux")]
use support::forked::{exit, is_child};
use support::reads::Reads;
use support::{Things, seeds, thing};

fn options(seed: u64) -> Options {
    let latency = [0, 4, 10, 30][seed as usize / 4 % 4];
    Options {
        seed,
        max_steps_per_call: [2, 5, 12, 40][seed as usize % 4],
        latency,
        kernel_steps: 30,
        ..Options::default()
    }
}

fn session(options: Options) -> (Session, Arc<CudaContext>, Device) {
    let fake = Fake::load().session(options);
    let context = CudaContext::new(0).unwrap();
    let device = Device::from_context(&context).unwrap();
    (fake, context, device)
}

/// A loader whose memory is soon used again.
fn loader(device: &Device, samples: usize, slots: usize) -> DeviceLoader {
    let host = Loader::builder(Things(samples)).batch_size(8).shuffle(true).seed(7).hold(slots);
    DeviceLoader::with_slots(host.memory(device.pinned()).build().unwrap(), device, slots).unwrap()
}

/// Reads all fields on the stream, and compares them with the batch's samples.
fn check(views: &Views<'_>, stream: &Arc<CudaStream>) {
    let things: Vec<_> = views.batch().indices().iter().map(|&index| thing(index as usize)).collect();
    let numbers: Vec<i64> = things.iter().map(|thing| thing.0).collect();
    assert_eq!(stream.clone_dtoh(&views.get::<i64>(0).unwrap()).unwrap(), numbers);
    let floats: Vec<f32> = things.iter().flat_map(|thing| thing.1).collect();
    assert_eq!(stream.clone_dtoh(&views.by_name::<f32>("1").unwrap()).unwrap(), floats);
    let lengths: Vec<i64> = numbers.iter().map(|n| n % 40).collect();
    assert_eq!(stream.clone_dtoh(&views.ends(2).unwrap().unwrap()).unwrap(), lengths);
    let words = stream.clone_dtoh(&views.get::<u16>(2).unwrap()).unwrap();
    assert!(
        words.chunks(40).zip(&lengths).all(|(row, &len)| row.iter().filter(|&&word| word > 0).count() == len as usize)
    );
    let bytes =
        numbers.iter().flat_map(|n| (n % 50..).take(*n as usize % 60)).map(|byte| byte as u8).collect::<Vec<_>>();
    assert_eq!(stream.clone_dtoh(&views.get::<u8>(3).unwrap()).unwrap(), bytes);
    let offsets = stream.clone_dtoh(&views.ends(3).unwrap().unwrap()).unwrap();
    assert_eq!((offsets[0], offsets[numbers.len()]), (0, bytes.len() as i64));
    assert!(views.ends(0).unwrap().is_none());
}

/// Launches a kernel that reads the floats of a batch.
fn read(reads: &Reads<'_>, views: &Views<'_>, stream: &Arc<CudaStream>) {
    let floats = views.get::<f32>(1).unwrap();
    let (ptr, _read) = floats.device_ptr(stream);
    reads.read(stream.cu_stream().cast(), ptr, floats.len() * 4);
}

#[track_caller]
fn assert_clean(fake: &Fake, seed: u64) {
    assert_eq!(fake.violations(), Vec::<String>::new(), "seed {seed}");
    fake.assert_released();
}

#[test]
fn views_have_the_elements_of_the_batch() {
    for seed in seeds(40) {
        let (fake, context, device) = session(options(seed));
        if seed % 2 == 1 {
            // SAFETY: everything here runs on one stream.
            unsafe { context.disable_event_tracking() };
        }
        let stream = if seed % 3 == 0 { context.default_stream() } else { context.new_stream().unwrap() };
        let mut loader = loader(&device, 50, 1 + seed as usize % 3);
        for _ in 0..2 {
            for batch in loader.epoch().unwrap() {
                check(&batch.unwrap().views(&stream).unwrap(), &stream);
            }
        }
        drop((loader, stream, device, context));
        assert_clean(&fake, seed);
    }
}

#[test]
fn a_slot_is_not_refilled_while_kernels_read_its_views() {
    for seed in seeds(400) {
        let (fake, context, device) = session(options(seed));
        let streams = [(); 2].map(|()| context.new_stream().unwrap());
        let (mut loader, reads) = (loader(&device, 120, 1 + seed as usize % 3), Reads::new(&fake));
        for (i, batch) in loader.epoch().unwrap().enumerate() {
            let batch = batch.unwrap();
            let stream = &streams[i * (seed as usize / 3 % 2) % 2];
            let views = batch.views(stream).unwrap();
            read(&reads, &views, stream);
            drop(views);
            if seed % 5 == 0 {
                batch.release_on(&Stream::from_cudarc(&device, stream).unwrap()).unwrap();
            }
        }
        drop((streams, loader, device, context));
        reads.check(&format!("seed {seed}"));
        assert_clean(&fake, seed);
    }
}

#[test]
fn copies_within_the_device_outlive_the_batch() {
    for seed in seeds(100) {
        let (fake, context, device) = session(options(seed));
        let stream = context.new_stream().unwrap();
        let mut loader = loader(&device, 120, 1 + seed as usize % 3);
        let mut copies = Vec::new();
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let numbers = batch.views(&stream).unwrap().get::<i64>(0).map(|view| stream.clone_dtod(&view));
            copies.push((batch.indices().to_vec(), numbers.unwrap().unwrap()));
        }
        for (indices, numbers) in copies {
            assert_eq!(stream.clone_dtoh(&numbers).unwrap(), indices);
        }
        drop((stream, loader, device, context));
        assert_clean(&fake, seed);
    }
}

#[test]
fn cudarc_s_events_order_other_streams() {
    let run = |seed: u64, tracking: bool| {
        let (fake, context, device) = session(options(seed));
        if !tracking {
            // SAFETY: the violations are the subject of the test.
            unsafe { context.disable_event_tracking() };
        }
        let [ready, other] = [(); 2].map(|()| context.new_stream().unwrap());
        let (mut loader, reads) = (loader(&device, 120, 1 + seed as usize % 3), Reads::new(&fake));
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let views = batch.views(&ready).unwrap();
            read(&reads, &views, &ready);
            read(&reads, &views, &other);
        }
        drop((ready, other, loader));
        device.synchronize().unwrap();
        let violations = fake.violations();
        if tracking {
            reads.check(&format!("seed {seed}"));
        }
        violations
    };
    for seed in seeds(400) {
        run(seed, true);
    }
    Fake::load().needs_fake();
    assert!((0..48).filter(|&seed| !run(seed, false).is_empty()).count() >= 12, "violations are found");
}

#[test]
fn only_cudarc_s_events_cost_driver_calls() {
    let (fake, context, device) = session(Options::default());
    let stream = context.new_stream().unwrap();
    let mut loader = loader(&device, 8, 1);
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    batch.ready_on(&Stream::from_cudarc(&device, &stream).unwrap()).unwrap();
    let calls = || {
        let before = fake.calls();
        let views = batch.views(&stream).unwrap();
        assert_eq!(views.get::<i64>(0).unwrap().len(), 8);
        drop(views);
        fake.calls() - before
    };
    assert_eq!(calls(), 18);
    // SAFETY: everything here runs on one stream.
    unsafe { context.disable_event_tracking() };
    assert_eq!(calls(), 0);
}

#[test]
fn a_batch_keeps_the_stream_until_its_kernels_are_done() {
    for seed in seeds(40) {
        let (fake, context, device) = session(Options { kernel_steps: 500, ..options(seed) });
        let mut loader = loader(&device, 64, 2);
        let mut pass = loader.epoch().unwrap();
        let batch = pass.next().unwrap().unwrap();
        let stream = context.new_stream().unwrap();
        let reads = Reads::new(&fake);
        read(&reads, &batch.views(&stream).unwrap(), &stream);
        drop((stream, context));
        assert!(fake.is_absent() || fake.live().streams == 2, "the batch's and the loader's");
        drop(batch);
        assert!(pass.by_ref().all(|batch| batch.is_ok()));
        drop(pass);
        drop(loader);
        drop(device);
        reads.check(&format!("seed {seed}"));
        assert_clean(&fake, seed);
    }
}

#[test]
fn a_wrong_type_or_field_is_an_error_that_names_both() {
    let (_fake, context, device) = session(Options::default());
    let stream = context.new_stream().unwrap();
    let mut loader = loader(&device, 8, 1);
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let views = batch.views(&stream).unwrap();
    let error = views.get::<f64>(1).unwrap_err();
    assert_eq!(error.to_string(), "field 1 has elements of type f32, not f64");
    assert!(matches!(error, Error::DType { has: DType::F32, requested: DType::F64, .. }));
    let error = views.by_name::<u8>("label").unwrap_err();
    assert_eq!(error.to_string(), r#"the batch has no field "label"; it has 0, 1, 2, 3"#);
    assert_eq!(views.ends(4).unwrap_err().to_string(), "the batch has no field 4; it has 0, 1, 2, 3");
}

#[test]
fn contexts_and_streams_of_other_devices_are_refused() {
    let (_fake, context, device) = session(Options { devices: 2, ..Options::default() });
    assert_eq!(device, Device::new(0).unwrap());
    let other = CudaContext::new(1).unwrap();
    assert_eq!(Device::from_context(&other).unwrap(), Device::new(1).unwrap());
    let stream = other.default_stream();
    assert!(matches!(Stream::from_cudarc(&device, &stream), Err(Error::NotPrimary { device: 0 })));
    let mut loader = loader(&device, 8, 1);
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    assert!(matches!(batch.views(&stream), Err(Error::NotPrimary { device: 0 })));
    let handle = other.cu_device();
    // A value that says it is another device.
    // SAFETY: `from_raw_context` gets the device's primary context, which is not destroyed as this one is forgotten.
    let wrong = unsafe { CudaContext::from_raw_context(0, handle, other.cu_ctx()) }.unwrap();
    assert!(matches!(Device::from_context(&wrong), Err(Error::NotPrimary { device: 0 })));
    std::mem::forget(wrong);
    drop(context);
}

#[test]
fn failing_calls_are_errors_and_nothing_is_lost() {
    let mut errors = [0; 2];
    for (n, is_sticky) in (0..24).flat_map(|n| [(n, false), (n, true)]) {
        let (fake, context, device) = session(Options::default());
        let streams = [(); 2].map(|()| context.new_stream().unwrap());
        let mut loader = loader(&device, 64, 2);
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        if is_sticky {
            fake.fail_from(n, CUDA_ERROR_ILLEGAL_ADDRESS as u32);
        } else {
            fake.fail_call(n, CUDA_ERROR_OUT_OF_MEMORY as u32);
        }
        let outcome = batch.views(&streams[0]).map(drop);
        fake.fail_none();
        errors[usize::from(is_sticky)] += usize::from(outcome.is_err());
        assert!(matches!(outcome, Ok(()) | Err(Error::Driver(_))), "call {n}: {outcome:?}");
        drop(batch);
        drop((loader, streams, device));
        drop(context);
        assert_eq!(fake.violations(), Vec::<String>::new(), "call {n}");
        assert_eq!(fake.live().device_bytes, 0, "call {n}");
    }
    assert!(errors.iter().all(|&errors| errors > 5), "{errors:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_never_calls_the_driver() {
    let (fake, context, device) = session(Options::default());
    let streams = [(); 2].map(|()| context.new_stream().unwrap());
    let mut loader = loader(&device, 64, 2);
    let mut pass = loader.epoch().unwrap();
    let [first, second] = [(); 2].map(|()| pass.next().unwrap().unwrap());
    let views = first.views(&streams[0]).unwrap();
    drop(second.views(&streams[1]).unwrap());
    let owner = Stream::from_cudarc(&device, &streams[0]).unwrap();
    // Now only batches and streams of slotline keep them.
    drop(streams);
    if is_child() {
        let calls = || if fake.is_absent() { 0 } else { fake.calls() };
        let before = calls();
        drop((views, owner));
        drop((first, second));
        assert_eq!(calls(), before);
        exit(0)
    }
    drop(views);
    drop((first, second, owner));
    drop(pass);
    drop((loader, device, context));
    assert_clean(&fake, 0);
}
