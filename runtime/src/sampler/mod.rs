//! Samplers: which indices of a dataset a pass visits, and in which order.
//!
//! A sampler is asked once per pass, by the thread that starts the pass, and answers with an [`Order`]: the indices,
//! looked up by position, without locks and by any number of threads. Workers read the index of the position
//! they work on themselves; no index is ever sent to them.
//!
//! torch's samplers draw little by little while a pass runs; these draw everything when the pass starts. The
//! indices are the same. Only where a pass is left half-way *and* the sampler has a generator of its own does the
//! next pass differ: torch's goes on from what the loader had happened to fetch by then, these from a full pass.

mod error;
mod order;
mod random;
mod sequential;

pub use error::SamplerError;
pub use order::{Indices, Order};
pub use random::RandomSampler;
pub use sequential::SequentialSampler;

use crate::rng::{Generator, default_generator};

/// Decides which indices a pass visits, and in which order.
///
/// A sampler of one's own fills the [`Order`] it is given, and so reuses its memory:
///
/// ```
/// use slotline::rng::Generator;
/// use slotline::sampler::{Order, Sampler, SamplerError};
///
/// /// Every second sample.
/// struct Even {
///     dataset_len: u32,
/// }
///
/// impl Sampler for Even {
///     fn len(&self) -> usize {
///         self.dataset_len.div_ceil(2) as usize
///     }
///
///     fn memory(&self) -> usize {
///         self.len() * size_of::<u32>()
///     }
///
///     fn order(&mut self, _default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
///         order.u32_table().extend((0..self.dataset_len).step_by(2));
///         Ok(())
///     }
/// }
///
/// assert!(Even { dataset_len: 7 }.indices()?.eq([0, 2, 4, 6]));
/// # Ok::<(), SamplerError>(())
/// ```
pub trait Sampler: Send {
    /// Number of indices in a pass.
    fn len(&self) -> usize;

    /// Whether a pass has no indices.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory an order needs while it is made and used; `usize::MAX` where it would be even more.
    fn memory(&self) -> usize;

    /// Draws the order of the next pass.
    ///
    /// Its numbers come from the sampler's own generator; a sampler that was given none uses `default`, which is
    /// the process's default generator, locked, or the one a loader puts in its place. A generator that the
    /// sampler shares with others must not be locked by the caller.
    ///
    /// `order`'s former contents are dropped and its memory is reused: given the same `order` each pass, nothing
    /// is allocated from the second pass on.
    ///
    /// # Errors
    ///
    /// Where the memory of the order can't be had. `order` is then some valid order, but not a pass.
    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError>;

    /// The indices of the next pass, for whoever wants only those.
    ///
    /// Draws them all now; locks the process's default generator meanwhile, whether it is used or not.
    ///
    /// # Errors
    ///
    /// Those of [`order`](Self::order).
    fn indices(&mut self) -> Result<Indices, SamplerError> {
        let mut order = Order::default();
        self.order(&mut default_generator(), &mut order)?;
        Ok(order.into_iter())
    }
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn memory(&self) -> usize {
        (**self).memory()
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        (**self).order(default, order)
    }
}
