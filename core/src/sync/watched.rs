//! Atomics whose operations can be intercepted: see the [parent module](super).
//!
//! They have the names and methods of those in `core`, as far as slotline uses them.

use core::panic::Location;

#[cfg(delays)]
use core::sync::atomic as real;
#[cfg(loom)]
use loom::sync::atomic as real;
#[cfg(shuttle)]
use shuttle::sync::atomic as real;

pub use core::sync::atomic::Ordering;

/// Is called before each operation, with the operation's name and source location. Returns the
/// ordering to use.
#[inline]
fn step(_operation: &'static str, order: Ordering, _place: &'static Location<'static>) -> Ordering {
    #[cfg(delays)]
    super::delays::delay();
    #[cfg(loom)]
    super::vanish::step();
    #[cfg(loom)]
    let order = super::mutants::weaken(_operation, order, _place);
    order
}

/// Like the function of this name in `core`, for fences within a ring.
#[track_caller]
pub fn fence(order: Ordering) {
    #[cfg(loom)]
    if super::mutants::leaves_out("fence", Location::caller()) {
        return;
    }
    real::fence(step("fence", order, Location::caller()));
}

macro_rules! watched {
    ($name:ident, $value:ty) => {
        /// Like the type of this name in `core`.
        #[derive(Debug)]
        pub struct $name(real::$name);

        #[allow(missing_docs)]
        impl $name {
            #[cfg(not(loom))]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            #[cfg(loom)]
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(step("load", order, Location::caller()))
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, step("store", order, Location::caller()));
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, step("swap", order, Location::caller()))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = step("compare_exchange, success", success, Location::caller());
                let failure = step("compare_exchange, failure", failure, Location::caller());
                self.0.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = step("compare_exchange_weak, success", success, Location::caller());
                let failure = step("compare_exchange_weak, failure", failure, Location::caller());
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            #[track_caller]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_and(value, step("fetch_and", order, Location::caller()))
            }

            #[track_caller]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_or(value, step("fetch_or", order, Location::caller()))
            }

            #[track_caller]
            pub fn fetch_xor(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_xor(value, step("fetch_xor", order, Location::caller()))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }
    };
}

macro_rules! watched_integer {
    ($name:ident, $value:ty) => {
        watched!($name, $value);

        #[allow(missing_docs)]
        impl $name {
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, step("fetch_add", order, Location::caller()))
            }

            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_sub(value, step("fetch_sub", order, Location::caller()))
            }

            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_max(value, step("fetch_max", order, Location::caller()))
            }

            /// Returns the word's address, for a futex.
            #[cfg(delays)]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
        }
    };
}

watched!(AtomicBool, bool);
watched_integer!(AtomicU8, u8);
watched_integer!(AtomicU32, u32);
watched_integer!(AtomicU64, u64);
watched_integer!(AtomicUsize, usize);
