//! A fake CUDA driver that runs on host memory and detects misuse, for tests without a GPU.
//!
//! The crate has two parts. Its dynamic library implements the driver's functions and is loaded
//! under the name `libcuda.so`, so that CUDA programs use it instead of a real driver; cudarc works
//! unmodified. Its Rust library is the interface for tests: [`Fake::load`] installs the fake
//! driver, and [`Fake`] configures it and reports what it detected.
//!
//! ```
//! use slotline_cuda_fake::{Fake, Options};
//!
//! let fake = Fake::load().session(Options { seed: 7, ..Options::default() });
//! assert_eq!(cudarc::driver::CudaContext::device_count(), Ok(1));
//! assert_eq!((fake.calls(), fake.count("cuInit")), (2, 1));
//! assert!(fake.violations().is_empty());
//! ```
//!
//! # Execution model
//!
//! Streams work in small steps: a copy consists of many pieces of [`Options::piece_bytes`], the
//! last one first, and a kernel also takes several steps. Each driver call first makes a few steps
//! of streams picked by a generator that is seeded with [`Options::seed`]. Calls that wait make
//! steps until the awaited work is done. There is no clock and no thread, so the same calls with
//! the same seed give the same schedule, and different seeds give different schedules. With
//! [`Options::ticker`] a thread makes steps concurrently, and schedules are not reproducible.
//!
//! Contexts, streams, events, memory and modules are checked as a real driver checks them, with the
//! same error codes. Misuse that a real driver accepts is recorded as a violation. Where drivers
//! differ or the documentation is silent, the fake driver is strict. An invalid handle or memory
//! that is not mapped is refused (with code 400 or 1), where a real driver may crash the process.
//! Which calls need a current context (and return 201 without one) depends on
//! [`Options::driver_version`]. Each device has only its primary context. The code of kernels is
//! not run: [`Fake::kernel`] registers a host function to run instead.
//!
//! Many of these rules were compared with a real driver (580.159.04, CUDA 13.0) on an H200, on 26
//! November 2026. It confirmed these rules:
//!
//! - which calls need a context;
//! - the codes for null handles, invalid sizes and addresses, broken modules, host memory that is
//!   registered twice, and calls in a destroyed context;
//! - the codes for copies past the end of an allocation, to freed memory, or from host memory that
//!   is registered in part or in two pieces;
//! - how default streams are ordered, and that a destroyed stream finishes its work.
//!
//! These rules remain assumptions: everything about older drivers and about several devices, a
//! handle that is invalid but not null, memory that is freed twice or during a copy, pages that are
//! unmapped while registered, the errors that follow a fault on the device, what other calls return
//! without a context (such as `cuMemHostUnregister`), and the address of page-locked memory of 0
//! bytes (null).
//!
//! # Violations
//!
//! [`Fake::violations`] returns one line for each of these:
//!
//! - host memory that is written while a copy from it is in progress (compared by hash, at each
//!   piece and at the end);
//! - unordered jobs on the same bytes, at least one of which writes: two copies, a copy and a
//!   kernel that [reads](Fake::watch) the copied bytes, or memory that is freed on one stream and
//!   used on another;
//! - bytes that change while a kernel reads them, regardless of the writer;
//! - memory that is freed or unregistered while in use, or freed twice; addresses outside an
//!   allocation or past its end, or of host memory where device memory is expected; a stream of one
//!   device with memory of another; host memory that is only partly page-locked.
//!
//! With [`Options::read_only_sources`], an early write raises `SIGSEGV` at the faulting instruction
//! instead. [`Fake::skip`] disables one of the four gates of the overlap protocol (the waits and
//! records that keep copies and kernels apart), to verify that the detectors notice.
//! [`Fake::fail_call`] makes any single call fail. [`Fake::live`] reports resources that were not
//! released.
//!
//! The fake driver does not model bandwidth or the behaviour of particular real drivers.

mod client;
mod control;
mod driver;

pub use client::{Fake, Launch, LoadError, Session};
pub use control::{Live, Options, Skip};
