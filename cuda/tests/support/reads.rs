//! Kernels that read device memory, for tests that run on the fake driver or a real one. A test that is not about
//! slotline's Rust interface includes this file alone.
#![allow(dead_code)] // Each test uses only some of it.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUfunction, CUresult};
use slotline_cuda_fake::Fake;

const PTX: &str = concat!(include_str!("../../check/kernels/check.ptx"), "\0");
/// The maximum number of reads before a check.
const MAX: usize = 1024;
/// How long a read takes on a real device, in nanoseconds.
const PAUSE: u64 = 200_000;

macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: all pointers and handles are valid, and memory is freed after the kernels are done.
        assert_eq!(unsafe { sys::$name($($arg),*) }, CUresult::CUDA_SUCCESS, stringify!($name))
    };
}

/// Launches kernels that read device memory, and checks that the bytes do not change while a kernel
/// runs. With the fake driver, the driver checks this (see [`Fake::read_on`]). On a real device,
/// each kernel sums the bytes at its start and at its end.
pub(crate) struct Reads<'a> {
    fake: &'a Fake,
    /// The address of two sums for each read, on a real device; `None` with the fake driver.
    sums: Option<CUdeviceptr>,
    made: Cell<usize>,
}

/// The kernels of device 0. Its primary context is never released.
#[derive(Clone, Copy)]
struct Kernels {
    context: CUcontext,
    fold: CUfunction,
    spin: CUfunction,
}

// SAFETY: the driver allows these handles to be used on any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

/// Makes the context of device 0 current during a function.
fn in_context<T>(run: impl FnOnce(&Kernels) -> T) -> T {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    let mut former = null_mut();
    cu!(cuInit(0));
    cu!(cuCtxGetCurrent(&mut former));
    let kernels = KERNELS.get_or_init(|| {
        let (mut context, mut module, mut fold, mut spin) = (null_mut(), null_mut(), null_mut(), null_mut());
        cu!(cuDevicePrimaryCtxRetain(&mut context, 0));
        cu!(cuCtxSetCurrent(context));
        cu!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        cu!(cuModuleGetFunction(&mut fold, module, c"fold".as_ptr()));
        cu!(cuModuleGetFunction(&mut spin, module, c"spin".as_ptr()));
        Kernels { context, fold, spin }
    });
    cu!(cuCtxSetCurrent(kernels.context));
    let result = run(kernels);
    cu!(cuCtxSetCurrent(former));
    result
}

fn launch(function: CUfunction, threads: u32, stream: *mut c_void, values: &mut [u64]) {
    let mut params: Vec<_> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
    cu!(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream.cast(), params.as_mut_ptr(), null_mut()));
}

impl<'a> Reads<'a> {
    pub(crate) fn new(fake: &'a Fake) -> Self {
        let new = |_: &Kernels| {
            let mut sums = 0;
            cu!(cuMemAlloc_v2(&mut sums, MAX * 16));
            cu!(cuMemsetD8Async(sums, 0, MAX * 16, null_mut()));
            cu!(cuStreamSynchronize(null_mut()));
            sums
        };
        Self { fake, sums: fake.is_absent().then(|| in_context(new)), made: Cell::new(0) }
    }

    /// Reads these bytes, which start at a multiple of 8, behind the work that is on the stream.
    pub(crate) fn read(&self, stream: *mut c_void, from: u64, bytes: usize) {
        let Some(sums) = self.sums else {
            self.fake.read_on(stream, from, bytes).unwrap();
            return;
        };
        let at = self.made.replace(self.made.get() + 1);
        assert!(at < MAX);
        let sum = |i: usize| sums + (16 * at + 8 * i) as u64;
        in_context(|kernels| {
            launch(kernels.fold, 256, stream, &mut [from, bytes as u64, 7, 1, 0, sum(0)]);
            launch(kernels.spin, 1, stream, &mut [PAUSE]);
            launch(kernels.fold, 256, stream, &mut [from, bytes as u64, 7, 1, 0, sum(1)]);
        });
    }

    /// Keeps the stream busy for this time. Does nothing with the fake driver, which has no clock.
    pub(crate) fn spin(&self, stream: *mut c_void, nanos: u64) {
        if self.fake.is_absent() {
            in_context(|kernels| launch(kernels.spin, 1, stream, &mut [nanos]));
        }
    }

    /// Waits for the device, and checks what was read.
    #[track_caller]
    pub(crate) fn check(self, about: &str) {
        assert_eq!(self.fake.violations(), Vec::<String>::new(), "{about}");
        let Some(from) = self.sums else { return };
        let mut sums = vec![[0_u64; 2]; MAX];
        in_context(|_| {
            cu!(cuCtxSynchronize());
            cu!(cuMemcpyDtoH_v2(sums.as_mut_ptr().cast(), from, MAX * 16));
            cu!(cuMemFree_v2(from));
        });
        let changed = (0..self.made.get()).filter(|&i| sums[i][0] != sums[i][1]);
        assert_eq!(changed.collect::<Vec<_>>(), [0_usize; 0], "{about}: these reads saw bytes that changed");
    }
}
