//! Models of the rings under loom: every interleaving of a few threads, up to a bound of preemptions. There are also
//! mutants of the rings, each of which must be caught by a model.
//!
//! `proof/loom` and `proof/mutants` run them. To run them by hand:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p slotline-core --release --features alloc --test models
//! ```
//!
//! The models stay tiny (two workers, a consumer, one to three slots, a few tickets), since the number of interleavings
//! is exponential in the number of atomic operations. Sides park at once, so that a lost wake-up is a deadlock, which
//! loom reports. A second reader of a value, or a reader that comes too early, is a race, which loom also reports.
#![cfg(loom)]

mod loan;
mod mutants;
mod ordered;
mod park;
mod robust;
mod spsc;
mod support;
