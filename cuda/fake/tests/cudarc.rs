//! Runs unmodified cudarc on the fake driver: its safe interface works, and its data arrives.

use cudarc::driver::sys::CUresult::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_OUT_OF_MEMORY};
use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use slotline_cuda_fake::{Fake, Live, Options};

const PTX: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 .ptr .global .align 4 values, .param .u32 n, .param .f32 by) { ret; }
";

#[test]
fn bytes_survive_a_round_trip_to_the_device() {
    for seed in 0..20 {
        let fake = Fake::load().session(Options { seed, ..Options::default() });
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let sent: Vec<u32> = (0..10_000).collect();
        // SAFETY: written before it is read.
        let mut pinned = unsafe { context.alloc_pinned::<u32>(sent.len()) }.unwrap();
        pinned.as_mut_slice().unwrap().copy_from_slice(&sent);
        let there = stream.clone_htod(&pinned).unwrap();
        let back = stream.clone_dtoh(&there).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(back, sent);
        drop((there, pinned, stream, context));
        assert_eq!(fake.violations(), [""; 0]);
        fake.assert_released();
    }
}

#[test]
fn a_launch_runs_the_host_function_with_its_parameters() {
    let fake = Fake::load().session(Options::default());
    fake.watch("scale", 0, 1, 4);
    fake.kernel("scale", |launch| {
        // SAFETY: the types are those that the PTX declares; the kernel reads and writes `n` values
        // of device memory.
        unsafe {
            let (values, n, by) = (launch.param::<*mut f32>(0), launch.param::<u32>(1), launch.param::<f32>(2));
            std::slice::from_raw_parts_mut(values, n as usize).iter_mut().for_each(|value| *value *= by);
        }
        assert_eq!((launch.grid, launch.block), ([1, 1, 1], [1024, 1, 1]));
    });
    let context = CudaContext::new(0).unwrap();
    let module = context.load_module(Ptx::from_src(PTX)).unwrap();
    let scale = module.load_function("scale").unwrap();
    assert!(module.load_function("shrink").is_err());
    let stream = context.new_stream().unwrap();
    let mut values = stream.clone_htod(&[1.0f32, 2.0, 3.0]).unwrap();
    // SAFETY: the parameters are those of the PTX.
    unsafe {
        stream.launch_builder(&scale).arg(&mut values).arg(&3u32).arg(&2.0f32).launch(LaunchConfig::for_num_elems(3))
    }
    .unwrap();
    assert_eq!(stream.clone_dtoh(&values).unwrap(), [2.0, 4.0, 6.0]);
    assert_eq!(fake.violations(), [""; 0]);
}

#[test]
fn two_devices_have_separate_contexts_and_memory() {
    let fake = Fake::load().session(Options { devices: 2, memory_bytes: 1 << 20, ..Options::default() });
    let contexts = [CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap()];
    assert_ne!(contexts[0], contexts[1]);
    assert_ne!(contexts[0].uuid(), contexts[1].uuid());
    let streams = contexts.each_ref().map(|context| context.new_stream().unwrap());
    let full = streams[0].clone_htod(&vec![1u8; 1 << 20]).unwrap();
    // SAFETY: never read.
    let more = unsafe { streams[0].alloc::<u8>(1) };
    assert_eq!(more.map(drop), Err(DriverError(CUDA_ERROR_OUT_OF_MEMORY)));
    let other = streams[1].clone_htod(&[2u8; 100]).unwrap();
    assert_eq!(contexts[1].mem_get_info(), Ok(((1 << 20) - 100, 1 << 20)));
    assert_eq!(streams[0].clone_dtoh(&full).unwrap()[1000], 1);
    assert_eq!(streams[1].clone_dtoh(&other).unwrap(), [2; 100]);
    drop((full, other, streams, contexts));
    assert_eq!(fake.violations(), [""; 0]);
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn every_call_returns_a_sticky_error() {
    let fake = Fake::load().session(Options::default());
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    fake.fail_from(0, CUDA_ERROR_ILLEGAL_ADDRESS as u32);
    assert_eq!(stream.synchronize(), Err(DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)));
    assert_eq!(stream.clone_htod(&[1u8]).map(drop), Err(DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)));
    drop((stream, context));
    assert_eq!((fake.live().streams, fake.live().contexts), (1, 1), "a sticky error prevents the release");
}
