//! A CUDA driver over host memory that watches what is done with it, for tests without a GPU.
//!
//! The crate is two things. Its dynamic library has the driver's functions and is loaded under the name `libcuda.so`,
//! so that CUDA programs take it for the real one, cudarc without a change among them. Its Rust library is the test's
//! side: [`Fake::load`] puts the driver in place, and [`Fake`] sets it up and says what it saw.
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
//! # How it runs
//!
//! Streams do their work in small steps: a copy is many pieces of [`Options::piece_bytes`], the last one first, and a
//! kernel takes some steps too. Each driver call first makes a few steps, of streams that a generator seeded with
//! [`Options::seed`] picks; calls that wait make steps until what they wait for is done. There is no clock and no
//! thread, so the same calls with the same seed give the same schedule, and many seeds give many. With
//! [`Options::ticker`] a thread makes steps as well, which is real concurrency, and no schedule comes twice.
//!
//! Contexts, streams, events, memory and modules are checked as a driver checks them: codes are the driver's. Where
//! drivers differ or are silent, this one is strict. Every call on memory, streams and events needs a current context
//! (201); of a device only the primary context is there. Kernels' code is not run: [`Fake::kernel`] gives a function of
//! the host in its place.
//!
//! # What it sees
//!
//! [`Fake::violations`] has a line for each of these:
//!
//! - host memory that is written while a copy from it is in flight (compared by hash, at each piece and at the end);
//! - jobs on the same bytes, one of them writing, that nothing keeps apart: two copies, a copy and a kernel that
//!   [reads](Fake::watch) what is copied, or memory that is freed on one stream and used on another;
//! - bytes that change while a kernel reads them, whoever wrote them;
//! - memory that is freed or unregistered while it is in use, or freed twice; addresses outside an allocation, or past
//!   its end; a stream of one device with memory of another; host memory that is page-locked only in part.
//!
//! With [`Options::read_only_sources`] an early write is a `SIGSEGV` where it happens instead. [`Fake::skip`] takes one
//! gate of the overlap protocol away, to see that the detectors notice; [`Fake::fail_call`] lets any one call fail;
//! [`Fake::live`] says what was not given back.
//!
//! It says nothing about bandwidth or about the habits of real drivers.

mod client;
mod control;
mod driver;

pub use client::{Fake, Launch, LoadError, Session};
pub use control::{Live, Options, Skip};
