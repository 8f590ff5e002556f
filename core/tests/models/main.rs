//! Models of the rings: tests with a few threads, of which loom explores every interleaving, up to
//! a bound of preemptions. There are also mutants of the rings (weakened sources), each of which
//! must make a model fail.
//!
//! The words of the rings (run, part, claim, lease, lap, arrival mode) are defined in
//! `ARCHITECTURE.md`.
//!
//! `proof/loom` and `proof/mutants` run them. To run them by hand:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p slotline-core --release --features alloc --test models
//! ```
//!
//! The models are small (two workers, a consumer, one to three slots, a few tickets), since the
//! number of interleavings is exponential in the number of atomic operations. Threads that wait go
//! to sleep without spinning, so that a lost wake-up is a deadlock, which loom reports. If a value
//! is accessed by two threads at the same time, or is read too early, that is a race, which loom
//! reports, too.
#![cfg(loom)]

mod loan;
mod mutants;
mod ordered;
mod park;
mod robust;
mod spsc;
mod support;
