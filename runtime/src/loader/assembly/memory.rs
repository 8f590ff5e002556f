//! Makes the memory of a loader: decides how many batches it has room for, and divides the cells
//! (each the memory of one batch) between the ring's slots and the user.

use crate::arena::shortage;
use crate::dataset::{Dataset, Loadable};
use crate::loader::builder::memory_budget::{MemoryBudget, Size};
use crate::loader::builder::options::Options;
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::{MadeSlots, SlotRequest};
use crate::loader::collate::batch_memory::BatchMemory;
use crate::loader::collate::cell::CellOwner;
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::loader_memory::LoaderMemory;
use crate::loader::collate::overflow::{Overflow, Spills};
use crate::loader::collate::storage::Storage;
use crate::loader::error::build::BuildError;
use crate::loader::metrics::reader::ConsumerStats;
use crate::loader::order::index_source::Batching;
use crate::sample::Fields;
use crate::wait::Waiter;

/// What the memory of a loader depends on, besides its options.
pub(crate) struct MemoryPlan<'a> {
    /// Determines the fields of the samples.
    pub(crate) fields: &'a dyn Fn() -> Result<Fields, BuildError>,
    /// The maximum number of rows of a batch.
    pub(crate) rows: usize,
    /// Returns the number of batches for which a loader of this size has memory.
    pub(crate) cells: &'a dyn Fn(Size) -> usize,
    /// Returns the bytes of everything except the batches, for a loader of this size with this
    /// number of cells.
    pub(crate) overhead: &'a dyn Fn(Size, usize) -> usize,
    /// The bytes that the loader allocates before the memory of the batches.
    pub(crate) reserved: usize,
    /// The minimum number of workers, if memory is limited.
    pub(crate) fewest: usize,
    /// Whether the default prefetch factor may depend on the size of a batch.
    pub(crate) settles: bool,
    /// The number of workers that can touch the memory after that of the first batch.
    pub(crate) touchers: usize,
    /// Whether worker processes write into the memory.
    pub(crate) forked: bool,
}

/// The memory of all batches, and its cost.
pub(crate) struct Cells<P> {
    pub(crate) made: MadeSlots<P>,
    ceiling: usize,
    /// Whether a collate function writes each batch as a single row.
    pub(crate) is_whole: bool,
}

/// Makes the memory of all batches, and decides how many are loaded ahead.
pub(crate) fn make_cells<D: Loadable, C: Collate<D>>(
    options: &mut Options,
    collate: &mut C,
    plan: &MemoryPlan<'_>,
) -> Result<Cells<C::Payload>, BuildError> {
    let &MemoryPlan { fields, rows, cells, overhead, reserved, fewest, settles, touchers, forked } = plan;
    let (pin_memory, memory) = (options.pin_memory, options.memory.take());
    let spilling = options.on_overflow == Overflow::Spill;
    let made = collate.make_slots(SlotRequest {
        fields,
        rows,
        slots: &mut |batch| {
            let known = batch.filter(|_| settles).map_or(usize::MAX, |bytes| bytes(rows));
            options.settle_below_limit(known, rows, batch, &MemoryBudget { fewest, slots: cells, overhead })?;
            Ok(cells(options.size(rows)))
        },
        reserved,
        pin_memory,
        memory,
        spilling,
        touchers,
        forked,
    })?;
    let ceiling = made.bytes.saturating_add(overhead(options.size(rows), made.payloads.len()));
    Ok(Cells { made, ceiling, is_whole: forked && !C::STACKS })
}

impl<P: Storage> Cells<P> {
    /// Divides the cells. Returns those for `placed` slots, the loader's memory with the other
    /// cells, which allow the user to hold `hold` batches, and the statistics of the consumer.
    pub(crate) fn divide(
        self,
        options: &Options,
        batching: Batching,
        (placed, hold): (usize, usize),
    ) -> (Vec<CellOwner<P>>, LoaderMemory<P>, ConsumerStats) {
        let Self { made, ceiling, is_whole } = self;
        // The sizes of a collate function's results may differ, so each is counted.
        let sample_bytes = made.payloads.first().filter(|_| !is_whole).map_or(Some(0), Storage::sample_bytes);
        let stats = ConsumerStats::new(sample_bytes, Spills::new(made.spills, &options.on_warning));
        let (block, on_held) = (BatchMemory::of(&made.payloads), options.on_held);
        let (single, released) = (batching.single || is_whole, Waiter::new(options.wait_strategy));
        let (cell_pool, cells) = CellPool::new(made.payloads, (placed, hold), single, made.more, on_held, released);
        (cells, LoaderMemory { cell_pool, block, ceiling, limit: options.memory_limit, on_held }, stats)
    }
}

/// Returns the number of indices that each thread needs room for in bulk reads: those of a full
/// batch, or 0 if samples are read one by one, as they are with `batch_size(None)`. `stacks` says
/// whether threads of this process stack samples.
pub(crate) fn bulk(dataset: &impl Dataset, rows: usize, batching: Batching, stacks: bool) -> usize {
    let many = dataset.reads_many() || stacks && dataset.writes_many();
    if many && !batching.single { rows } else { 0 }
}

/// Returns the bytes of the indices that all threads have room for, where `bulk` is the number of
/// indices for each thread; `usize::MAX` on overflow.
pub(crate) fn bulk_memory(bulk: usize, size: Size) -> usize {
    if bulk == 0 {
        return 0;
    }
    size.rows.saturating_mul(size.workers.saturating_add(1)).saturating_mul(size_of::<usize>())
}

/// Checks that there is enough memory for the order of a pass.
pub(crate) fn check_order(bytes: usize) -> Result<(), BuildError> {
    shortage(bytes).map_or(Ok(()), |available| Err(BuildError::OrderMemory { bytes, available }))
}
