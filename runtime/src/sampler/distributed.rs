//! Distributes a dataset among replicas, as torch's `DistributedSampler` does.
//!
//! Every replica makes the same list: 0 .. n, or its permutation by a generator seeded with seed +
//! epoch. The list is made divisible by the number of replicas R, by repeating entries from its
//! start or by dropping some from its end. Rank r gets entries r, r + R, r + 2R, and so on. No
//! other generator is used, and the replicas exchange no messages.
//!
//! A replica gathers its share in the memory of the list. Entry j of the share comes from entry r +
//! jR of the list, which is not before j, so in ascending order no entry is overwritten before it
//! is read. Only the last entry of a share can be a repeated one from the start of the list, since
//! fewer than R entries are repeated, and each rank has one of the last R. It is read first.
//!
//! If the list is not shuffled, or is the order of another sampler, the share is not gathered. Then
//! each lookup computes the position of the entry in the list.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::saved::{Saved, put};
use super::{Order, ReplicaStride, Sampler, SamplerError, make_room};
use crate::BoxError;
use crate::loader::tell;
use crate::rng::{Generator, IndexWord, fill_table, randperm_prefix};

/// The sampler's name in errors.
const NAME: &str = "DistributedSampler";
/// The name of the wrapped sampler's state in the saved state.
const INNER: &str = "over";

/// Visits one replica's share of a dataset (`torch.utils.data.DistributedSampler`).
///
/// The order is the same as torch's for the same arguments. All replicas have the same number of
/// samples, so that they make the same number of steps. If the number of samples isn't divisible by
/// the number of replicas, some samples are repeated or, with [`drop_last`](Self::drop_last),
/// dropped. Every replica must have the same seed, and the same epoch in each pass.
///
/// As in torch, the permutation of a pass depends only on seed and epoch, and the epoch does not
/// change by itself: without [`set_epoch`](Self::set_epoch) all passes have the same order (the
/// second shuffled one logs a warning). A loader owns its sampler, so take a handle to the epoch
/// before the loader is built:
///
/// ```
/// use slotline::sampler::{DistributedSampler, Sampler};
///
/// let sampler = DistributedSampler::new(10, 3, 0)?.seed(42);
/// let epoch = sampler.epoch();
/// let mut owner: Box<dyn Sampler> = Box::new(sampler); // like a loader
/// assert!(owner.indices()?.eq([2, 8, 0, 7]));
/// epoch.set(1);
/// assert!(!owner.indices()?.eq([2, 8, 0, 7]));
/// # Ok::<(), slotline::sampler::SamplerError>(())
/// ```
///
/// A [state](crate::loader::Loader::state) of any replica can be loaded by any number of replicas,
/// if it was taken when all replicas had delivered the same number of batches. The rest of the pass
/// is then distributed among the new replicas, and later passes are distributed as usual. (This is
/// not possible if batches are delivered [as they are finished](crate::loader::Builder::in_order)
/// and some were skipped.) The epoch is then that of the state, and must not be changed for the
/// rest of that pass.
///
/// The random numbers of a sample depend on its *global position*, which is its position in the list
/// before that is distributed ([`global_positions`](Sampler::global_positions)). So they are the same for any number of
/// replicas, if all loaders have the same [`seed`](crate::loader::Builder::seed). A repeated sample
/// has a global position of its own, and so different random numbers.
///
/// [`over`](Self::over) distributes the order of another sampler in the same way.
///
/// An order takes 4 bytes for each sample of the dataset (8 for more than 2³² samples), since each
/// replica permutes all samples. Without shuffling it takes no memory. For random order without
/// memory, use [`over`](Self::over) with a [`CipherSampler`](super::CipherSampler).
#[derive(Clone, Debug)]
pub struct DistributedSampler {
    /// The number of entries in the list.
    dataset_len: usize,
    /// The sampler that makes the list; `None` if the list is 0 .. `dataset_len`, or its
    /// permutation.
    inner: Option<Inner>,
    num_replicas: NonZero<usize>,
    /// The number of this replica, below `num_replicas`.
    rank: usize,
    shuffle: bool,
    drop_last: bool,
    seed: u64,
    epoch: EpochHandle,
    /// Whether drawing a pass adds 1 to the epoch.
    advances: bool,
    /// The epoch of the next pass and how much of it was already delivered, if the pass resumes a
    /// saved one; otherwise `None`.
    resumed: Option<Resumed>,
    /// How the list of the last drawn pass is distributed.
    drawn: Distributed,
    /// The epoch of the last drawn pass.
    drawn_epoch: Option<u64>,
    /// Whether the warning that two passes have the same epoch was logged.
    warned: bool,
}

/// The wrapped sampler whose order is distributed.
#[derive(Clone)]
struct Inner(Arc<Mutex<dyn Sampler>>);

impl Inner {
    fn lock(&self) -> MutexGuard<'_, dyn Sampler + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.lock().name())
    }
}

/// A pass that is resumed.
#[derive(Clone, Copy, Debug)]
struct Resumed {
    epoch: u64,
    distributed: Distributed,
}

/// How much of the list was already distributed when the rest was divided among the current
/// replicas: nothing, unless the pass is resumed. The number of replicas may have been different
/// before the pass was interrupted.
#[derive(Clone, Copy, Debug, Default)]
struct Distributed {
    /// The position in this replica's pass at which the current share begins.
    position: usize,
    /// The number of entries of the list that were distributed before, including entries repeated
    /// at its end.
    entries: usize,
}

/// The epoch of a [`DistributedSampler`], which can be set while a loader owns the sampler.
///
/// Clones share one epoch. A pass uses the epoch that was set last when it starts; changes do not
/// affect running passes.
#[derive(Clone, Debug, Default)]
pub struct EpochHandle(Arc<AtomicU64>);

impl EpochHandle {
    /// Sets the epoch.
    pub fn set(&self, epoch: u64) {
        // Relaxed is enough: nothing else is published, and the thread that sets the epoch also
        // starts the next pass, or synchronises with the one that does.
        self.0.store(epoch, Relaxed);
    }

    /// Returns the epoch that was set last; initially 0.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl DistributedSampler {
    /// Makes a sampler for replica `rank` of `num_replicas`, with shuffling, seed 0 and epoch 0.
    ///
    /// The dataset may be empty, and then so is the replica's share.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NoReplicas`] if `num_replicas` is 0, [`SamplerError::Rank`] if `rank` is not below it.
    pub fn new(dataset_len: usize, num_replicas: usize, rank: usize) -> Result<Self, SamplerError> {
        let replicas = NonZero::new(num_replicas).ok_or(SamplerError::NoReplicas { sampler: NAME })?;
        if rank >= num_replicas {
            return Err(SamplerError::Rank { sampler: NAME, rank, num_replicas });
        }
        Ok(Self {
            dataset_len,
            inner: None,
            num_replicas: replicas,
            rank,
            shuffle: true,
            drop_last: false,
            seed: 0,
            epoch: EpochHandle::default(),
            advances: false,
            resumed: None,
            drawn: Distributed::default(),
            drawn_epoch: None,
            warned: false,
        })
    }

    /// Makes a sampler that distributes the order of another sampler: replica r of R replicas
    /// visits entries r, r + R, r + 2R, … of that order. So the batches that have the same
    /// number on all replicas are, together, a contiguous piece of the order.
    ///
    /// Each pass is drawn with a generator of seed + epoch in place of the default one, so that all
    /// replicas draw the same order. If the other sampler has a generator of its own, that must be
    /// the same on all replicas. The order is not copied, so the memory is that of the other
    /// sampler's order. Clones share the other sampler.
    ///
    /// ```
    /// use slotline::sampler::{DistributedSampler, RandomSampler, Sampler};
    ///
    /// let draws = || RandomSampler::new(800).map(|draws| draws.replacement(true));
    /// let whole: Vec<_> = DistributedSampler::over(draws()?, 1, 0)?.seed(42).indices()?.collect();
    /// let share: Vec<_> = DistributedSampler::over(draws()?, 4, 3)?.seed(42).indices()?.collect();
    /// assert!(share.iter().eq(whole.iter().skip(3).step_by(4)));
    /// # Ok::<(), slotline::sampler::SamplerError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn over(sampler: impl Sampler + 'static, num_replicas: usize, rank: usize) -> Result<Self, SamplerError> {
        let made = Self::new(sampler.len(), num_replicas, rank)?;
        Ok(Self { inner: Some(Inner(Arc::new(Mutex::new(sampler)))), ..made })
    }

    /// Sets whether the dataset is permuted before it is distributed; true by default. Has no
    /// effect on a sampler made by [`over`](Self::over).
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Sets whether samples at the end are dropped if their number isn't divisible by the number of
    /// replicas; false by default, which repeats samples from the start instead.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Sets the seed of the permutations, which must be the same on all replicas; 0 by default. The
    /// epoch is added to it, with wrapping.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Uses the epoch of an existing handle, so that several samplers share one epoch.
    #[must_use]
    pub fn follow(mut self, epoch: &EpochHandle) -> Self {
        self.epoch = epoch.clone();
        self
    }

    /// Sets the epoch, like [`EpochHandle::set`].
    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.set(epoch);
    }

    /// Returns a handle to the epoch, for the code that starts the passes. Clones of the sampler
    /// share the epoch.
    pub fn epoch(&self) -> EpochHandle {
        self.epoch.clone()
    }

    /// Increments the epoch with each pass. For a loader that distributes its passes among ranks
    /// itself.
    pub(crate) fn advancing(mut self) -> Self {
        self.advances = true;
        self
    }

    /// Returns whether the indices fit in u32.
    fn is_narrow(&self) -> bool {
        u32::fits(self.dataset_len)
    }

    /// Returns the number of entries that each of `replicas` replicas gets when the entries of the
    /// list that were not distributed before are divided among them.
    fn share(&self, distributed: Distributed, replicas: NonZero<usize>) -> usize {
        let left = self.dataset_len.saturating_sub(distributed.entries);
        if self.drop_last { left / replicas } else { left.div_ceil(replicas.get()) }
    }

    /// Returns the position in the list of the share's last entry, or `None` if the share is empty.
    fn last_position(&self, distributed: Distributed) -> Option<usize> {
        let before =
            self.share(distributed, self.num_replicas).checked_sub(1)? * self.num_replicas.get() + distributed.entries;
        // The number of list entries in the last round, in which each rank gets one entry. It is at
        // least 1, since otherwise there would be one round less.
        let left = self.dataset_len - before;
        Some(if self.rank < left { before + self.rank } else { (self.rank - left) % self.dataset_len })
    }

    /// Draws a pass of the wrapped sampler, and returns this replica's share.
    fn draw_over(&self, distributed: Distributed, sampler: &mut dyn Sampler) -> Result<Order, SamplerError> {
        let mut list = Order::default();
        sampler.order(&mut Generator::from_seed(self.seed.wrapping_add(self.epoch.get())), &mut list)?;
        if list.len() != self.dataset_len {
            let (len, name) = (self.dataset_len, sampler.name());
            let error = format!("{NAME}: the sampler {name:?} had {len} samples, but its pass has {}", list.len());
            return Err(BoxError::from(error).into());
        }
        Ok(self.share_of(distributed, list))
    }

    /// Returns this replica's share of a list as an order that computes each entry's position in
    /// the list.
    fn share_of(&self, distributed: Distributed, list: Order) -> Order {
        let (start, share, step) =
            (distributed.position, self.share(distributed, self.num_replicas), self.num_replicas.get());
        // A damaged state may contain any number here. Then there is no last entry, and `first` is
        // not used.
        let (first, last_position) = (distributed.entries.saturating_add(self.rank), self.last_position(distributed));
        let (end, memory) = (start + share, list.memory());
        Order::computed(end, memory, move |position| match (position.checked_sub(start), last_position) {
            (Some(_), Some(last)) if position + 1 == end => list.index(last),
            (Some(j), Some(_)) => list.index(first + j * step),
            // A position that was delivered before the pass was resumed. It is never read.
            _ => 0,
        })
    }

    /// Draws a permutation into a table, which then contains placeholders for positions that were
    /// delivered before, followed by this replica's share of the rest.
    fn draw<I: IndexWord>(&self, distributed: Distributed, table: &mut Vec<I>) -> Result<(), SamplerError> {
        let (start, share, step) =
            (distributed.position, self.share(distributed, self.num_replicas), self.num_replicas.get());
        make_room(NAME, table, self.dataset_len.max(start + share))?;
        let Some(last_position) = self.last_position(distributed) else {
            table.extend((0..start).map(|_| I::from_index(0)));
            return Ok(());
        };
        fill_table(table, 1, self.dataset_len);
        let mut generator = Generator::from_seed(self.seed.wrapping_add(self.epoch.get()));
        randperm_prefix(&mut generator, table, self.dataset_len);
        let (first, last) = (distributed.entries + self.rank, table[last_position]);
        for j in 0..share - 1 {
            table[start + j] = table[first + j * step];
        }
        table[start + share - 1] = last;
        table.truncate(start + share);
        Ok(())
    }
}

impl Sampler for DistributedSampler {
    fn len(&self) -> usize {
        self.share(Distributed::default(), self.num_replicas)
    }

    fn memory(&self) -> usize {
        if let Some(inner) = &self.inner {
            return inner.lock().memory();
        }
        if !self.shuffle {
            return 0;
        }
        let entry = if self.is_narrow() { size_of::<u32>() } else { size_of::<u64>() };
        self.dataset_len.saturating_mul(entry)
    }

    /// Draws the order. Does not use the default generator.
    fn order(&mut self, _default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let epoch = self.epoch.get();
        if let Some(was) = self.resumed.map(|resumed| resumed.epoch).filter(|&was| was != epoch) {
            let error =
                format!("{NAME}: the resumed pass has epoch {was}, but {epoch} was set; set the epoch to {was}");
            return Err(BoxError::from(error).into());
        }
        let distributed = self.resumed.map_or(Distributed::default(), |resumed| resumed.distributed);
        if let Some(inner) = &self.inner {
            *order = self.draw_over(distributed, &mut *inner.lock())?;
        } else if !self.shuffle {
            *order = self.share_of(distributed, Order::Range(self.dataset_len));
        } else if self.is_narrow() {
            self.draw(distributed, order.u32_table())?
        } else {
            self.draw(distributed, order.u64_table())?
        }
        (self.resumed, self.drawn) = (None, distributed);
        if self.advances {
            self.epoch.set(epoch.wrapping_add(1));
        } else if self.drawn_epoch.replace(epoch) == Some(epoch)
            && (self.shuffle || self.inner.is_some())
            && !self.warned
        {
            self.warned = true;
            tell(|| {
                tracing::warn!(
                    epoch,
                    "{NAME}: two passes with one epoch have the same order; set the epoch before each pass, with the \
                 handle that `epoch` returns"
                )
            });
        }
        Ok(())
    }

    /// Returns the positions in the list of all replicas.
    fn global_positions(&self) -> ReplicaStride {
        let (Distributed { position, entries }, step) = (self.drawn, self.num_replicas.get() as u64);
        let first = entries.saturating_add(self.rank) as u64;
        ReplicaStride { first: first.wrapping_sub((position as u64).wrapping_mul(step)), step }
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        let distributed = self.resumed.map_or(Distributed::default(), |resumed| resumed.distributed);
        put(to, "dataset_len", self.dataset_len);
        put(to, "shuffle", self.shuffle);
        put(to, "drop_last", self.drop_last);
        put(to, "seed", self.seed);
        put(to, "epoch", self.epoch.get());
        put(to, "num_replicas", self.num_replicas);
        put(to, "position", distributed.position);
        put(to, "dealt", distributed.entries);
        let Some(inner) = &self.inner else { return true };
        let (mut state, inner) = (String::new(), inner.lock());
        let saves = inner.save(&mut state);
        put(to, INNER, format_args!("{}:{state}", inner.name()));
        saves
    }

    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        // The state of the wrapped sampler is the last value, since it may contain spaces.
        let (saved, inner_state) = match saved.split_once(&format!(" {INNER}=")) {
            Some((saved, state)) => (saved, Some(state)),
            None => (saved, None),
        };
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("dataset_len", self.dataset_len)?;
        saved.check("shuffle", self.shuffle)?;
        saved.check("drop_last", self.drop_last)?;
        saved.check("seed", self.seed)?;
        let replicas: NonZero<usize> = saved.get("num_replicas")?;
        let (epoch, position, entries) = (saved.get("epoch")?, saved.get("position")?, saved.get("dealt")?);
        // At least one entry was distributed for each position.
        if position > entries || position > self.dataset_len || (position == 0) != (entries == 0) {
            return Err(saved.impossible("dealt", entries, "that contradicts the saved position"));
        }
        let mut distributed = Distributed { position, entries };
        // `seen` counts the last batch of a pass as a full one, even if it is smaller.
        let end = position + self.share(distributed, replicas);
        let (first, next) = (seen.start.min(end), seen.end.min(end));
        if first < position {
            return Err(saved.impossible("position", position, "fewer samples were delivered"));
        }
        if first == next {
            let entries = entries.saturating_add((next - position).saturating_mul(replicas.get()));
            // A finished pass has nothing left, not even samples to drop.
            let entries = if next == end { entries.max(self.dataset_len) } else { entries };
            distributed = Distributed { position: next, entries };
        } else if replicas != self.num_replicas {
            let reason = "another number of replicas can resume only if no batch was skipped (in_order)";
            return Err(saved.impossible("num_replicas", replicas, reason));
        }
        match (&self.inner, inner_state) {
            (None, None) => {}
            (Some(inner), Some(state)) => {
                let mut inner = inner.lock();
                let (name, state) = state.split_once(':').unwrap_or((state, ""));
                if name != inner.name() {
                    return Err(saved.impossible(INNER, name, format!("it is over {:?}", inner.name())));
                }
                inner.restore(state, 0..0)?;
            }
            (inner, _) => {
                let reason =
                    if inner.is_some() { "it is over another sampler" } else { "it is not over another sampler" };
                return Err(saved.impossible(INNER, if inner.is_some() { "none" } else { "set" }, reason));
            }
        }
        self.epoch.set(epoch);
        self.drawn_epoch = None;
        self.resumed = (distributed.position > 0).then_some(Resumed { epoch, distributed });
        Ok(())
    }

    fn restart(&mut self) {
        self.resumed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order_of(sampler: &mut DistributedSampler) -> Vec<usize> {
        let (mut default, mut order) = (Generator::new(), Order::default());
        sampler.order(&mut default, &mut order).unwrap();
        assert_eq!(default.drawn(), 0);
        order.iter().collect()
    }

    #[test]
    fn the_epoch_is_added_to_the_seed() {
        let mut sampler = DistributedSampler::new(50, 2, 1).unwrap().seed(7);
        let first = order_of(&mut sampler);
        assert_eq!(order_of(&mut sampler), first, "the epoch was not changed");
        let (handle, mut owned) = (sampler.epoch(), sampler.clone());
        std::thread::spawn(move || handle.set(3)).join().unwrap();
        assert_eq!(sampler.epoch().get(), 3);
        let fourth = order_of(&mut owned);
        assert_eq!(fourth, order_of(&mut DistributedSampler::new(50, 2, 1).unwrap().seed(10)));
        sampler.set_epoch(0);
        assert_eq!(order_of(&mut owned), first);
        sampler.set_epoch(u64::MAX);
        assert_eq!(order_of(&mut owned), order_of(&mut DistributedSampler::new(50, 2, 1).unwrap().seed(6)));
    }

    #[test]
    fn tiny_datasets_are_repeated_or_dropped() {
        for (rank, want) in [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0), (5, 1), (6, 0)] {
            let mut sampler = DistributedSampler::new(2, 7, rank).unwrap().shuffle(false);
            assert_eq!(order_of(&mut sampler), [want]);
            assert!(order_of(&mut sampler.drop_last(true)).is_empty());
        }
        for shuffle in [false, true] {
            assert!(order_of(&mut DistributedSampler::new(0, 3, 2).unwrap().shuffle(shuffle)).is_empty());
        }
    }

    #[test]
    fn bad_arguments_are_errors() {
        let error = DistributedSampler::new(10, 0, 0).unwrap_err().to_string();
        assert!(error.contains("DistributedSampler: num_replicas is 0; set it to the number of processes"), "{error}");
        let error = DistributedSampler::new(10, 3, 3).unwrap_err().to_string();
        assert!(error.contains("rank 3 is not one of 3 replicas; use a rank from 0 to 2"), "{error}");
    }

    #[test]
    fn later_passes_reuse_the_memory() {
        for drop_last in [false, true] {
            let mut sampler = DistributedSampler::new(100, 3, 2).unwrap().drop_last(drop_last);
            let (mut default, mut order) = (Generator::new(), Order::default());
            sampler.order(&mut default, &mut order).unwrap();
            let (memory, len) = (order.memory(), order.len());
            assert_eq!((memory, len), (sampler.memory(), sampler.len()));
            assert_eq!(memory, 100 * 4);
            let table = order.u32_table().as_ptr();
            sampler.set_epoch(9);
            sampler.order(&mut default, &mut order).unwrap();
            assert_eq!((order.memory(), order.u32_table().as_ptr()), (memory, table));
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn without_shuffle_a_share_of_any_length_takes_no_memory() {
        let (n, replicas) = (1_000_000_000_001_usize, 32_768);
        let share = n.div_ceil(replicas);
        for (rank, last) in [(0, n / replicas * replicas), (32_767, 32_767 - n % replicas)] {
            let mut sampler = DistributedSampler::new(n, replicas, rank).unwrap().shuffle(false);
            let mut order = Order::default();
            sampler.order(&mut Generator::new(), &mut order).unwrap();
            assert_eq!((order.len(), order.memory(), sampler.memory()), (share, 0, 0));
            assert_eq!([0, 1, share - 1].map(|position| order.index(position)), [rank, rank + replicas, last]);
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn huge_lengths_do_not_overflow() {
        for (n, replicas) in [(usize::MAX, 2), (usize::MAX, usize::MAX), (1, usize::MAX), (usize::MAX - 1, usize::MAX)]
        {
            for rank in [0, replicas - 1] {
                for drop_last in [false, true] {
                    let sampler = DistributedSampler::new(n, replicas, rank).unwrap().drop_last(drop_last);
                    assert!(sampler.last_position(Distributed::default()).is_none_or(|position| position < n));
                }
            }
        }
        let mut huge = DistributedSampler::new(usize::MAX, 2, 1).unwrap();
        let mut order = Order::default();
        let error = huge.order(&mut Generator::new(), &mut order).unwrap_err();
        assert!(matches!(error, SamplerError::Memory { bytes: usize::MAX, .. }), "{error}");
        let mut one = DistributedSampler::new(usize::MAX - 1, usize::MAX, usize::MAX - 1).unwrap().shuffle(false);
        assert_eq!(order_of(&mut one), [0]);
    }

    /// Returns a rank's share by torch's algorithm, which pads or cuts the list.
    fn reference(n: usize, replicas: usize, rank: usize, shuffle: bool, drop_last: bool, seed: u64) -> Vec<usize> {
        let mut list: Vec<u64> = (0..n as u64).collect();
        if shuffle {
            Generator::from_seed(seed).randperm_into(n, &mut list).unwrap();
        }
        let whole = list.clone();
        if drop_last {
            list.truncate(n / replicas * replicas);
        } else {
            list.extend(whole.iter().cycle().take(n.div_ceil(replicas) * replicas - n));
        }
        list.into_iter().skip(rank).step_by(replicas).map(|index| index as usize).collect()
    }

    proptest! {
        #[test]
        fn a_share_is_every_rth_entry_of_the_list(
            n in 0usize..300, replicas in 1usize..40, rank in 0usize..40, shuffle: bool, drop_last: bool, seed: u64,
        ) {
            let rank = rank % replicas;
            let sampler = DistributedSampler::new(n, replicas, rank).unwrap();
            let mut sampler = sampler.shuffle(shuffle).drop_last(drop_last).seed(seed);
            let want = reference(n, replicas, rank, shuffle, drop_last, seed);
            prop_assert_eq!(order_of(&mut sampler), want.clone());
            if shuffle {
                let mut wide = Vec::<u64>::new();
                sampler.draw(Distributed::default(), &mut wide).unwrap();
                prop_assert_eq!(Order::from(wide).iter().collect::<Vec<_>>(), want);
            }
        }
    }
}
