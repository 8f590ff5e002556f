//! Unmodified cudarc over the fake driver: what its safe layer does works, and its data arrive.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use slotline_cuda_fake::{Fake, Live, Options};

const PTX: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 .ptr .global .align 4 values, .param .u32 n, .param .f32 by) { ret; }
";

#[test]
fn bytes_go_to_the_device_and_come_back() {
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
        assert_eq!(fake.live(), Live::default(), "seed {seed}");
    }
}

#[test]
fn a_launch_runs_the_host_function_with_its_parameters() {
    let fake = Fake::load().session(Options::default());
    fake.watch("scale", 0, 1, 4);
    fake.kernel("scale", |launch| {
        // SAFETY: as the PTX declares them; the kernel reads and writes `n` values of the device's memory.
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
