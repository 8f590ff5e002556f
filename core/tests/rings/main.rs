//! Tests of the rings with concrete operations: step by step on one thread, with random sequences
//! of operations, and with real threads.
#![cfg(not(loom))]

mod ordered;
#[cfg(not(shuttle))]
mod robust;
#[cfg(not(shuttle))]
mod robust_model;
#[cfg(feature = "alloc")]
mod spsc;

use std::time::Duration;

use slotline_core::wait::Deadline;

/// A deadline that has passed, so that a wait checks its condition once.
struct Now;

impl Deadline for Now {
    fn remaining(&self) -> Duration {
        Duration::ZERO
    }
}
