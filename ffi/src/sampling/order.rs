//! Samplers whose order a callback draws.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{Order, Sampler, SamplerError, Saved, put, put_generator};

use crate::abi::{Failure, Owner, Versioned, call, slotline_drop, slotline_failure, versioned};

/// Writes the `len` indices of pass `pass`, from 0, to `indices`: the whole pass in one call.
/// Returns 0, or another value after setting the reason with `slotline_fail`. It is called by the
/// thread that starts the pass.
///
/// `seed` is a new random number in each pass. It is drawn as for other random samplers: from the
/// sampler's seed or generator, or else from the process's default generator. After loading a
/// state, a loader calls this for the pass that it resumes, with the same `pass` and `seed`, but
/// not for earlier passes. So an order that depends only on these two can be resumed.
pub type slotline_order = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        pass: u64,
        seed: u64,
        indices: *mut u64,
        len: usize,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// A sampler made of a callback. Loaders that share it may call it concurrently.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_order_callback {
    /// `sizeof(slotline_order_callback)`.
    pub struct_size: usize,
    /// The user pointer that is passed to the callbacks.
    pub user: *mut c_void,
    /// The number of indices in a pass.
    pub len: usize,
    /// Writes the order of a pass.
    pub order: slotline_order,
    /// Called once when the sampler is no longer needed, on any thread; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_order_callback {
    const END: usize = versioned::end!(drop);
}

/// The callback and its user pointer.
#[derive(Debug)]
pub(crate) struct Calls {
    owner: Owner,
    len: usize,
    order: unsafe extern "C" fn(*mut c_void, u64, u64, *mut u64, usize, *mut slotline_failure) -> i32,
}

impl Calls {
    /// Takes ownership of the user's sampler.
    ///
    /// # Safety
    ///
    /// `callback` must be NULL or valid as documented at `slotline_order_callback`.
    pub(crate) unsafe fn from_c(callback: *const slotline_order_callback) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees that `callback` is valid for its `struct_size`.
        let (c, owner) = unsafe { versioned::read(callback, "callback", |c| Owner::new(c.user, c.drop))? };
        let order = c.order.ok_or_else(|| Failure::invalid("callback->order is NULL"))?;
        Ok(Self { owner, len: c.len, order })
    }
}

/// The sampler's name in states and errors.
const NAME: &str = "Ordered";

/// The sampler of one loader.
pub(crate) struct Ordered {
    calls: Arc<Calls>,
    /// The generator of the passes' seeds; `None` if it is the one that the loader passes.
    generator: Option<SharedGenerator>,
    /// The number of passes drawn.
    passes: u64,
}

impl Ordered {
    pub(crate) fn new(calls: Arc<Calls>, generator: Option<SharedGenerator>) -> Self {
        Self { calls, generator, passes: 0 }
    }
}

impl Sampler for Ordered {
    fn len(&self) -> usize {
        self.calls.len
    }

    fn memory(&self) -> usize {
        self.calls.len.saturating_mul(size_of::<u64>())
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let (len, table) = (self.calls.len, order.u64_table());
        table.try_reserve_exact(len).map_err(|error| SamplerError::Other(error.into()))?;
        table.resize(len, 0);
        let seed = match &self.generator {
            Some(generator) => generator.lock().random_i64(),
            None => default.random_i64(),
        };
        call("the sampler's order", |failure| {
            let (user, table) = (self.calls.owner.user(), table.as_mut_ptr());
            // SAFETY: the user has guaranteed that any thread may call it this way; `indices` has
            // room for `len` numbers.
            unsafe { (self.calls.order)(user, self.passes, seed as u64, table, len, failure) }
        })?;
        self.passes += 1;
        Ok(())
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "passes", self.passes);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, text: &str, _: Range<usize>) -> Result<(), BoxError> {
        // States from older versions contain only the number of passes, and no seeds.
        self.passes = if let Ok(passes) = text.parse() {
            passes
        } else {
            let saved = Saved { sampler: NAME, text };
            let passes = saved.get("passes")?;
            saved.restore_generator(self.generator.as_ref())?;
            passes
        };
        Ok(())
    }
}
