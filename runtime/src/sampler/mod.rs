//! Samplers: which indices of a dataset a pass visits, and in which order.
//!
//! A sampler is asked once per pass, by the thread that starts the pass, and answers with an [`Order`]: the indices,
//! looked up by position, without locks and by any number of threads. Workers read the index of the position
//! they work on themselves; no index is ever sent to them.
//!
//! torch's samplers draw little by little while a pass runs; these draw everything when the pass starts. The
//! indices are the same. Only where a pass is left half-way *and* the sampler has a generator of its own does the
//! next pass differ: torch's goes on from what the loader had happened to fetch by then, these from a full pass.
//!
//! | Sampler | a pass visits | bytes for each of n samples (n < 2³²) |
//! |---|---|---|
//! | [`SequentialSampler`] | 0, 1, 2, … | 0 |
//! | [`RandomSampler`] | a permutation, or draws with replacement | 4 |
//! | [`SubsetRandomSampler`] | a permutation of given indices | 4 |
//! | [`WeightedRandomSampler`] | draws by weight, with or without replacement | 8, and 4 for each sample drawn |
//! | [`DistributedSampler`] | one replica's share of a permutation that all replicas know | 4 |
//! | [`CipherSampler`] | a permutation computed position by position; torch has none | 0 |
//!
//! [`BatchSampler`] groups the indices of any of them into lists.

mod batch;
mod cipher;
mod distributed;
mod error;
mod feistel;
mod order;
mod random;
mod saved;
mod sequential;
mod subset_random;
mod weighted_random;

pub use batch::{BatchSampler, Batches};
pub use cipher::CipherSampler;
pub use distributed::{DistributedSampler, EpochHandle};
pub use error::SamplerError;
pub use feistel::Cipher;
pub use order::{Indices, Order};
pub use random::RandomSampler;
pub use saved::digest;
pub use sequential::SequentialSampler;
pub use subset_random::SubsetRandomSampler;
pub use weighted_random::WeightedRandomSampler;

use std::ops::Range;

use crate::BoxError;
use crate::rng::{Generator, IndexWord, SharedGenerator, default_generator, reserve_table};

/// What states call a sampler that gives itself no name.
pub(crate) const UNNAMED: &str = "custom";

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

    /// Where the positions of the order drawn last are in the pass of all replicas.
    ///
    /// The random numbers of a sample are a function of that place, so that they are the same for any number of replicas. A
    /// sampler that has the whole pass to itself, as all have unless they say otherwise, need not say it.
    fn places(&self) -> Places {
        Places::default()
    }

    /// What states of a loader call it: a state is refused by a loader whose sampler has another name.
    ///
    /// A name of your own, which must stay the same as long as there are states with it, keeps the states of two kinds of
    /// sampler apart. Those of this crate have torch's names.
    fn name(&self) -> &str {
        UNNAMED
    }

    /// Writes what [`restore`](Self::restore) needs so that the next [`order`](Self::order) is the one that comes next here,
    /// for the [state of a loader](crate::loader::Loader::state); whether it can.
    ///
    /// It is asked before each pass. `to` is empty, with the memory of what was saved before. A sampler that cannot, as
    /// none can unless it says so, is brought to its place by drawing all the orders before, if need be, and the loader
    /// warns.
    fn save(&self, to: &mut String) -> bool {
        let _ = to;
        false
    }

    /// Goes on from what another sampler of its kind has [saved](Self::save), so that the next [`order`](Self::order) is the
    /// one that came next there.
    ///
    /// Of that order positions before `seen.start` were delivered, those from `seen.end` on were not, and of those between
    /// some were (there are none, unless batches come as they are finished). What is delivered already is never looked at,
    /// and what is there may be any indices; the others must be in their places.
    ///
    /// # Errors
    ///
    /// Whatever does not fit this sampler, or cannot be read; it is then as it was before.
    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        let _ = (saved, seen);
        Err(format!("the sampler {:?} saves nothing that it could be restored from", self.name()).into())
    }

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

    fn places(&self) -> Places {
        (**self).places()
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
}

/// Where the positions of one replica's pass are in the pass of all replicas: position `p` is at `first + p × step`, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// The place of position 0.
    pub first: u64,
    /// From one position's place to the next one's: the number of replicas.
    pub step: u64,
}

impl Places {
    /// The place of a position.
    #[inline]
    pub fn of(self, position: usize) -> u64 {
        self.first.wrapping_add((position as u64).wrapping_mul(self.step))
    }

    /// The places from a position on.
    #[inline]
    pub(crate) fn from(self, position: usize) -> Self {
        Self { first: self.of(position), ..self }
    }
}

/// Each position is its own place.
impl Default for Places {
    fn default() -> Self {
        Self { first: 0, step: 1 }
    }
}

/// Hands `draw` the generator that was given, locked, or else the default one itself.
fn with_generator<T>(
    given: Option<&SharedGenerator>,
    default: &mut Generator,
    draw: impl FnOnce(&mut Generator) -> T,
) -> T {
    match given {
        Some(shared) => draw(&mut shared.lock()),
        None => draw(default),
    }
}

/// Empties `table` and makes room for `entries`; allocates only where it has less.
fn make_room<I: IndexWord>(sampler: &'static str, table: &mut Vec<I>, entries: usize) -> Result<(), SamplerError> {
    reserve_table(table, entries).map_err(|source| {
        let bytes = entries.saturating_mul(size_of::<I>());
        SamplerError::Memory { sampler, bytes, source }
    })
}

/// The next pass of `sampler`, for its tests.
#[cfg(test)]
fn order_of(sampler: &mut impl Sampler, default: &mut Generator) -> Vec<usize> {
    let mut order = Order::default();
    sampler.order(default, &mut order).unwrap();
    order.iter().collect()
}
