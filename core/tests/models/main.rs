//! Models of the rings under loom: every interleaving of a few threads, up to a bound of
//! preemptions. There are also mutants of the rings, each of which must be caught by a model.
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
