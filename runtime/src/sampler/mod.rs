//! Samplers, which decide which indices of a dataset a pass visits, and in which order.
//!
//! A sampler is called once per pass, by the thread that starts the pass, and returns an [`Order`]:
//! the indices by position, which any number of threads can look up without locks. Workers look up
//! the index of the position that they work on; indices are never sent to them.
//!
//! torch's samplers draw indices while a pass runs. slotline's samplers draw all of them when the
//! pass starts, and get the same indices. There is one difference: if a pass is left early *and*
//! the sampler has its own generator, the next pass in torch continues from the state of the
//! generator at that time, and in slotline from the state after a full pass.
//!
//! | Sampler | a pass visits | bytes for each of n samples (n < 2³²) |
//! |---|---|---|
//! | [`SequentialSampler`] | 0, 1, 2, … | 0 |
//! | [`RandomSampler`] | a permutation, or draws with replacement | 4 |
//! | [`SubsetRandomSampler`] | a permutation of given indices | 4 |
//! | [`WeightedRandomSampler`] | draws by weight, with or without replacement | 8, and 4 for each sample drawn |
//! | [`DistributedSampler`] | one replica's share of a permutation that all replicas compute, or of 0, 1, 2, … | 4, or 0 |
//! | [`CipherSampler`] | a permutation computed position by position (not in torch) | 0 |
//!
//! [`BatchSampler`] groups the indices of any of these into lists. The crate `slotline-sequences`
//! has samplers that mix datasets, shuffle shards, and make batches by length.
//!
//! # Samplers of your own
//!
//! A type that implements [`Sampler`] is used like those of this crate. A sampler that also plans
//! batches, of different sizes, is passed to a loader as [`SampledBatches`]. [`with_generator`]
//! draws from the sampler's own generator or the loader's, [`make_room`] allocates a table, and
//! [`put`] and [`Saved`] write and read a sampler's part of a loader's state.

mod batch;
mod cipher;
mod distributed;
mod error;
mod feistel;
mod order;
mod random;
mod saved;
mod sequential;
mod spans;
mod subset_random;
mod weighted_random;

pub use batch::{BatchSampler, Batches, SampledBatches};
pub use cipher::CipherSampler;
pub use distributed::{DistributedSampler, EpochHandle};
pub use error::SamplerError;
pub use feistel::Cipher;
#[doc(hidden)]
pub use feistel::{GOLDEN, mix};
pub use order::{Computed, Indices, Order};
pub use random::RandomSampler;
pub use saved::{Saved, digest, put, put_generator};
pub use sequential::SequentialSampler;
pub use spans::Spans;
pub use subset_random::SubsetRandomSampler;
pub use weighted_random::WeightedRandomSampler;

use std::ops::Range;
use std::sync::Arc;

use crate::BoxError;
use crate::rng::{Generator, IndexWord, SharedGenerator, default_generator, reserve_table};

/// The name that a sampler has in states if it does not set one.
pub(crate) const UNNAMED: &str = "custom";

/// Decides which indices a pass visits, and in which order.
///
/// A custom sampler fills the [`Order`] that it receives, reusing its memory:
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
    /// Returns the number of indices in a pass.
    fn len(&self) -> usize;

    /// Returns whether a pass has no indices.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that an order needs while it is made and used; `usize::MAX` if
    /// it is more than that.
    fn memory(&self) -> usize;

    /// Draws the order of the next pass.
    ///
    /// If the sampler has its own generator, it draws from that. Otherwise it draws from `default`,
    /// which is the locked default generator of the process, or a generator that the loader passes
    /// instead. If the sampler shares its generator, the caller must not hold that generator's
    /// lock.
    ///
    /// The former contents of `order` are dropped and its memory is reused. If each pass receives
    /// the same `order`, nothing is allocated from the second pass on.
    ///
    /// # Errors
    ///
    /// If the memory for the order cannot be allocated. The contents of `order` are then
    /// unspecified.
    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError>;

    /// Returns the *global positions* of the last drawn order, which are the positions of its
    /// entries in the pass over all replicas.
    ///
    /// The random numbers of a sample depend on its global position, so that they are the same for any
    /// number of replicas. The default is right for a sampler that does not distribute samples among
    /// replicas.
    fn global_positions(&self) -> ReplicaStride {
        ReplicaStride::default()
    }

    /// Returns which positions of the last drawn order belong to which batch, if the sampler plans the batches
    /// ([`SampledBatches::planned`]).
    fn spans(&self) -> Option<Spans> {
        None
    }

    /// Returns the length of each sample of the dataset, in order of the indices, or `None` (the
    /// default) if lengths do not matter.
    ///
    /// If a loader [replaces](crate::loader::OnError::Replace) a bad sample by another one, the
    /// lengths make it choose a sample that is not longer than the bad one; with `None` it may choose
    /// any. So a sampler that plans batches of limited total length should return the lengths, or a
    /// batch could exceed its limit. Only called for samplers that plan batches
    /// ([`SampledBatches::planned`]).
    fn lengths(&self) -> Option<Arc<[u32]>> {
        None
    }

    /// Returns the sampler's name in states of a loader. A loader rejects a state if its sampler
    /// has another name.
    ///
    /// Set a name to distinguish the states of different kinds of samplers. It must not change as
    /// long as there are states with it. The samplers of this crate are named after their types.
    fn name(&self) -> &str {
        UNNAMED
    }

    /// Writes the sampler's state, from which [`restore`](Self::restore) can continue with the same
    /// next [`order`](Self::order), for the [state of a loader](crate::loader::Loader::state).
    /// Returns whether the sampler supports this.
    ///
    /// This is called before each pass. `to` is empty, and reuses the memory of the previous save.
    /// By default a sampler does not support saving. Such a sampler is restored by drawing all
    /// earlier orders again, if necessary, and the loader logs a warning.
    fn save(&self, to: &mut String) -> bool {
        let _ = to;
        false
    }

    /// Restores the state that a sampler of the same kind has [saved](Self::save), so that the next
    /// [`order`](Self::order) is the one that the saved sampler would have drawn next.
    ///
    /// In that order, positions before `seen.start` were delivered, those from `seen.end` on were
    /// not, and those in between may have been. (`seen` is empty if batches are delivered in
    /// order.) Delivered positions are never read, so they may have any indices. All others must
    /// have the correct ones.
    ///
    /// # Errors
    ///
    /// If the state does not fit this sampler, or cannot be parsed; the sampler is then unchanged.
    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        let _ = (saved, seen);
        Err(format!("the sampler {:?} does not save its state, so it cannot be restored", self.name()).into())
    }

    /// Makes the next [`order`](Self::order) that of a whole pass, also if some of its positions
    /// were delivered according to [`restore`](Self::restore). A loader calls this if the program
    /// [chooses a pass](crate::Loader::set_next_epoch) instead of resuming the loaded one. By
    /// default it does nothing, which is right if `restore` ignores `seen`.
    fn restart(&mut self) {}

    /// Draws all indices of the next pass and returns them, for code that needs only the indices.
    /// Locks the process's default generator while drawing, even if the sampler does not use it.
    ///
    /// # Errors
    ///
    /// The errors of [`order`](Self::order).
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

    fn global_positions(&self) -> ReplicaStride {
        (**self).global_positions()
    }

    fn spans(&self) -> Option<Spans> {
        (**self).spans()
    }

    fn lengths(&self) -> Option<Arc<[u32]>> {
        (**self).lengths()
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn save(&self, to: &mut String) -> bool {
        (**self).save(to)
    }

    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        (**self).restore(saved, seen)
    }

    fn restart(&mut self) {
        (**self).restart();
    }
}

/// Maps the positions of one replica's pass to global positions, which are positions in the pass
/// over all replicas: position `p` has the global position `first + p × step`, with wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)] // Worker processes share this type.
pub struct ReplicaStride {
    /// The global position of position 0.
    pub first: u64,
    /// The distance between the global positions of consecutive positions: the number of replicas.
    pub step: u64,
}

impl ReplicaStride {
    /// Returns the global position of a position.
    #[inline]
    pub fn of(self, position: usize) -> u64 {
        self.first.wrapping_add((position as u64).wrapping_mul(self.step))
    }

    /// Returns the mapping for the rest of the pass, in which positions are counted from `position`.
    #[inline]
    pub(crate) fn from(self, position: usize) -> Self {
        Self { first: self.of(position), ..self }
    }
}

impl Default for ReplicaStride {
    fn default() -> Self {
        Self { first: 0, step: 1 }
    }
}

/// Calls `draw` with a sampler's own generator, locked, or with `default` if it has none.
pub fn with_generator<T>(
    given: Option<&SharedGenerator>,
    default: &mut Generator,
    draw: impl FnOnce(&mut Generator) -> T,
) -> T {
    match given {
        Some(shared) => draw(&mut shared.lock()),
        None => draw(default),
    }
}

/// Empties `table` and reserves memory for `entries` entries. Allocates only if its capacity is
/// smaller.
///
/// # Errors
///
/// [`SamplerError::Memory`], with the name `sampler`, if the memory cannot be allocated.
pub fn make_room<I: IndexWord>(sampler: &'static str, table: &mut Vec<I>, entries: usize) -> Result<(), SamplerError> {
    reserve_table(table, entries).map_err(|source| {
        let bytes = entries.saturating_mul(size_of::<I>());
        SamplerError::Memory { sampler, bytes, source }
    })
}

/// Draws the next pass of `sampler`, and returns its indices.
#[cfg(test)]
fn order_of(sampler: &mut impl Sampler, default: &mut Generator) -> Vec<usize> {
    let mut order = Order::default();
    sampler.order(default, &mut order).unwrap();
    order.iter().collect()
}
