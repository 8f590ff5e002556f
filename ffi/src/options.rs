//! How a loader loads: the options of `slotline::loader::Builder`, under the same names.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use slotline::WaitStrategy;
use slotline::loader::{Affinity, Budget, BuildError, Builder, OnError, OnHeld, Overflow};
use slotline::sampler::SequentialSampler;

use crate::batch_sampler::slotline_batch_sampler;
use crate::boundary::guarded;
use crate::callback::{call, slotline_failure, slotline_worker};
use crate::check;
use crate::collate::{Collator, slotline_collate, slotline_drop_batch};
use crate::dataset::Data;
use crate::failure::Failure;
use crate::owner::{Owner, slotline_drop};
use crate::sampler::slotline_sampler;
use crate::versioned::{self, Versioned};

/// For `batch_size`: no batches. A pass then gives the samples themselves, whose tensors lack the dimension of the rows.
pub const SLOTLINE_NO_BATCHES: i64 = -1;

/// For `help`: as is best, see there.
pub const SLOTLINE_HELP_AUTO: i32 = -1;

/// Workers run wherever the system puts them.
pub const SLOTLINE_AFFINITY_OFF: u32 = 0;
/// Worker i on the i-th core that this process may use, and so on from the start.
pub const SLOTLINE_AFFINITY_SPREAD: u32 = 1;
/// Worker i on the i-th of `cores`, and so on from the start.
pub const SLOTLINE_AFFINITY_CORES: u32 = 2;

/// Spin a little, yield a little, then sleep until woken.
pub const SLOTLINE_WAIT_PARK: u32 = 0;
/// Spin a little, then yield over and over.
pub const SLOTLINE_WAIT_BACKOFF: u32 = 1;
/// Spin: each waiting thread takes a whole core.
pub const SLOTLINE_WAIT_SPIN: u32 = 2;

/// A bad sample makes its batch an error.
pub const SLOTLINE_ON_ERROR_RAISE: u32 = 0;
/// A batch goes without its bad samples.
pub const SLOTLINE_ON_ERROR_SKIP: u32 = 1;
/// Another sample takes the place of a bad one. Not for streams.
pub const SLOTLINE_ON_ERROR_REPLACE: u32 = 2;

/// Packed samples that find no room in their batch are bad samples.
pub const SLOTLINE_OVERFLOW_ERROR: u32 = 0;
/// They get memory from the heap, for that batch.
pub const SLOTLINE_OVERFLOW_SPILL: u32 = 1;

/// More memory is taken for batches that are kept beyond `hold`, as far as `memory_limit` and the system allow it.
pub const SLOTLINE_ON_HELD_GROW: u32 = 0;
/// The thread that asks for the next batch waits until another one frees a batch.
pub const SLOTLINE_ON_HELD_WAIT: u32 = 1;
/// Asking for the next batch is `SLOTLINE_HELD` until a batch is freed.
pub const SLOTLINE_ON_HELD_FAIL: u32 = 2;

/// The options of a loader, with torch's names and meanings. Begin with `slotline_options_init`.
///
/// `slotline_loader_new` takes over what `worker_init` and `collate` are called with, also if it fails: with a drop function in
/// them, options are good for one loader.
///
/// Where a field says yes or no, 0 is no, and anything else yes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_options {
    /// `sizeof(slotline_options)`; `slotline_options_init` sets it.
    pub struct_size: usize,
    /// Samples in a batch (1), or `SLOTLINE_NO_BATCHES`.
    pub batch_size: i64,
    /// How many threads load (0: all is done in the thread that asks for batches).
    pub num_workers: usize,
    /// Batches that are loaded ahead for each worker (0: 2, or more if they are small).
    pub prefetch_factor: usize,
    /// Batches that the caller keeps while it asks for the next one (1): there is memory for them from the start.
    pub hold: usize,
    /// Samples that a worker claims at once (0: by measurement).
    pub part_size: usize,
    /// The most bytes that the loader may take (0: no limit).
    pub memory_limit: usize,
    /// How many milliseconds the wait for one batch may take (0: for ever).
    pub timeout_ms: u64,
    /// How many milliseconds a sample may take before it is reported (0: for ever).
    pub watchdog_ms: u64,
    /// Where the random numbers of `shuffle` and of samples come from, if `has_seed` says so; else the process's default
    /// generator. A `sampler` has its own (see `slotline_sampler`).
    pub seed: u64,
    /// Whether there is a `seed` (no).
    pub has_seed: u8,
    /// Whether each pass has a new random order (no).
    pub shuffle: u8,
    /// Whether a last batch that is not full is left out (no).
    pub drop_last: u8,
    /// Whether batches come in order (yes), or as they are finished.
    pub in_order: u8,
    /// Whether the memory of batches is locked (no).
    pub pin_memory: u8,
    /// Whether there is one base seed, and one `worker_init`, for all passes (no).
    pub persistent_workers: u8,
    /// Whether workers make batches in turn, as torch's do (no: whoever is free loads).
    pub round_robin: u8,
    /// Whether the thread that asks for batches loads while it waits: 0, 1 or `SLOTLINE_HELP_AUTO`, which is yes but with
    /// `in_order` off or a `worker_init`. With a timeout it never does.
    pub help: i32,
    /// How threads wait (`SLOTLINE_WAIT_PARK`).
    pub wait_strategy: u32,
    /// Which cores the workers run on (`SLOTLINE_AFFINITY_OFF`).
    pub affinity: u32,
    /// What becomes of packed samples that find no room (`SLOTLINE_OVERFLOW_ERROR`).
    pub on_overflow: u32,
    /// What happens when more batches are kept than `hold` and the next one is asked for (`SLOTLINE_ON_HELD_GROW`).
    pub on_held: u32,
    /// For `SLOTLINE_AFFINITY_CORES`: cores by the system's numbers, read when the loader is made.
    pub cores: *const usize,
    /// How many.
    pub num_cores: usize,
    /// What becomes of bad samples (`SLOTLINE_ON_ERROR_RAISE`).
    pub on_error: u32,
    /// How many bad samples a pass may have before their batches become `SLOTLINE_BAD_SAMPLES`: so many (`SIZE_MAX`).
    pub bad_samples: usize,
    /// Or this share of its samples, from 0 to 1 (-1: `bad_samples` says).
    pub bad_share: f64,
    /// The order of the passes (NULL: that of the dataset, or by `shuffle`).
    pub sampler: *const slotline_sampler,
    /// The batches of the passes (NULL: by `batch_size`).
    pub batch_sampler: *const slotline_batch_sampler,
    /// Runs in each worker before it loads anything in a pass (NULL: nothing does).
    pub worker_init: slotline_worker_init,
    /// What `worker_init` is called with.
    pub worker_init_user: *mut c_void,
    /// Called once when `worker_init` is not needed any more, on whichever thread that is; may be NULL.
    pub worker_init_drop: slotline_drop,
    /// Makes the batches (NULL: samples are stacked).
    pub collate: slotline_collate,
    /// What `collate` is called with.
    pub collate_user: *mut c_void,
    /// Called once when `collate` is not needed any more, on whichever thread that is; may be NULL.
    pub collate_drop: slotline_drop,
    /// Drops what `collate` made; may be NULL.
    pub collate_drop_batch: slotline_drop_batch,
}

/// Runs in a worker before a pass. Returns 0, or fails by `slotline_fail`: then the worker takes no part in the pass.
pub type slotline_worker_init = Option<
    unsafe extern "C" fn(user: *mut c_void, worker: *const slotline_worker, failure: *mut slotline_failure) -> i32,
>;

/// The user's pointers in options, which are ours as soon as the options are read.
pub(crate) struct Owned {
    worker_init: Owner,
    collate: Owner,
}

// SAFETY: numbers and pointers, the first one the size.
unsafe impl Versioned for slotline_options {
    const END: usize = versioned::end!(collate_drop_batch);

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            batch_size: 1,
            num_workers: 0,
            prefetch_factor: 0,
            hold: 1,
            part_size: 0,
            memory_limit: 0,
            timeout_ms: 0,
            watchdog_ms: 0,
            seed: 0,
            has_seed: 0,
            shuffle: 0,
            drop_last: 0,
            in_order: 1,
            pin_memory: 0,
            persistent_workers: 0,
            round_robin: 0,
            help: SLOTLINE_HELP_AUTO,
            wait_strategy: SLOTLINE_WAIT_PARK,
            affinity: SLOTLINE_AFFINITY_OFF,
            on_overflow: SLOTLINE_OVERFLOW_ERROR,
            on_held: SLOTLINE_ON_HELD_GROW,
            cores: std::ptr::null(),
            num_cores: 0,
            on_error: SLOTLINE_ON_ERROR_RAISE,
            bad_samples: usize::MAX,
            bad_share: -1.0,
            sampler: null(),
            batch_sampler: null(),
            worker_init: None,
            worker_init_user: null_mut(),
            worker_init_drop: None,
            collate: None,
            collate_user: null_mut(),
            collate_drop: None,
            collate_drop_batch: None,
        }
    }
}

/// Sets options to their defaults, and their `struct_size` to this one: `sizeof(slotline_options)`. Does nothing with NULL, or
/// a size that is too short for a `struct_size`. Any thread.
///
/// # Safety
///
/// `options` must be NULL or writable for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_options_init(options: *mut slotline_options, struct_size: usize) {
    guarded((), || {
        if options.is_null() || !options.is_aligned() || struct_size < size_of::<usize>() {
            return;
        }
        // SAFETY: the caller's word. A struct that is too short for us gets its size only, and is refused where it is used.
        unsafe {
            options.cast::<usize>().write(struct_size);
            let _ = versioned::write(options, &slotline_options::defaults(), "options");
        }
    });
}

impl slotline_options {
    /// Takes the user's pointers over. To be done once.
    pub(crate) fn own(&self) -> Owned {
        Owned {
            worker_init: Owner::new(self.worker_init_user, self.worker_init_drop),
            collate: Owner::new(self.collate_user, self.collate_drop),
        }
    }

    /// Tells a builder everything, and gives the collate callback, if there is one.
    ///
    /// # Safety
    ///
    /// Its pointers must be what they are said to be.
    pub(crate) unsafe fn apply<D>(
        &self,
        owned: Owned,
        data: &Data,
        builder: Builder<D>,
    ) -> Result<(Builder<D>, Option<Arc<Collator>>), Failure> {
        // SAFETY: the caller's word.
        let mut builder = unsafe { self.apply_plain(builder)? };
        let len = data.len().unwrap_or(0);
        // SAFETY: the caller's word.
        let (sampler, batches) = unsafe { (self.sampler.as_ref(), self.batch_sampler.as_ref()) };
        builder = match (sampler, data) {
            (None, _) => builder,
            // A stream takes none, and says so.
            (Some(_), Data::Stream(_)) => builder.sampler(SequentialSampler::new(0)),
            (Some(sampler), _) => builder.sampler(sampler.make(len).map_err(BuildError::from)?),
        };
        builder = match (batches, data) {
            (None, _) => builder,
            (Some(_), Data::Stream(_)) => builder.batch_sampler_iter(1, || [[0]]),
            (Some(batches), _) => batches.apply(builder, len)?,
        };
        if let Some(init) = self.worker_init {
            let owner = owned.worker_init;
            builder = builder.worker_init(move |worker| {
                let worker = slotline_worker::from(Some(worker));
                // SAFETY: the user said that it may be called so, by any thread.
                call("worker_init", |failure| unsafe { init(owner.user(), &worker, failure) })
            });
        }
        let collator = self
            .collate
            .map(|collate| Arc::new(Collator::new(owned.collate, collate, self.collate_drop_batch, data.fields())));
        Ok((builder, collator))
    }

    /// Tells a builder all that is plain.
    ///
    /// # Safety
    ///
    /// Its pointers must be what they are said to be.
    unsafe fn apply_plain<D, C>(&self, builder: Builder<D, C>) -> Result<Builder<D, C>, Failure> {
        let batch_size = match self.batch_size {
            SLOTLINE_NO_BATCHES => None,
            size => Some(number("batch_size", size)?),
        };
        let mut builder = builder
            .batch_size(batch_size)
            .num_workers(self.num_workers)
            .round_robin(self.round_robin != 0)
            .hold(self.hold)
            .timeout(Duration::from_millis(self.timeout_ms))
            .watchdog(Duration::from_millis(self.watchdog_ms))
            .shuffle(self.shuffle != 0)
            .drop_last(self.drop_last != 0)
            .in_order(self.in_order != 0)
            .pin_memory(self.pin_memory != 0)
            .persistent_workers(self.persistent_workers != 0)
            .on_held(self.on_held()?)
            .wait_strategy(self.wait_strategy()?)
            // SAFETY: the caller's word.
            .affinity(unsafe { self.affinity()? })
            .on_overflow(self.on_overflow()?)
            .on_error(self.on_error()?);
        if self.prefetch_factor != 0 {
            builder = builder.prefetch_factor(self.prefetch_factor);
        }
        if self.part_size != 0 {
            builder = builder.part_size(self.part_size);
        }
        if self.memory_limit != 0 {
            builder = builder.memory_limit(self.memory_limit);
        }
        if self.has_seed != 0 {
            builder = builder.seed(self.seed);
        }
        match self.help {
            SLOTLINE_HELP_AUTO => Ok(builder),
            help @ (0 | 1) => Ok(builder.help(help == 1)),
            help => Err(none("help", help)),
        }
    }

    fn wait_strategy(&self) -> Result<WaitStrategy, Failure> {
        match self.wait_strategy {
            SLOTLINE_WAIT_PARK => Ok(WaitStrategy::Park),
            SLOTLINE_WAIT_BACKOFF => Ok(WaitStrategy::Backoff),
            SLOTLINE_WAIT_SPIN => Ok(WaitStrategy::Spin),
            other => Err(none("wait_strategy", other)),
        }
    }

    /// # Safety
    ///
    /// `cores` must be what it is said to be.
    unsafe fn affinity(&self) -> Result<Affinity, Failure> {
        match self.affinity {
            SLOTLINE_AFFINITY_OFF => Ok(Affinity::Off),
            SLOTLINE_AFFINITY_SPREAD => Ok(Affinity::Spread),
            SLOTLINE_AFFINITY_CORES => {
                // SAFETY: the caller's word.
                let cores = unsafe { check::slice(self.cores, self.num_cores, "options->cores")? };
                if cores.is_empty() {
                    return Err(Failure::invalid("options->num_cores is 0; name a core, or another affinity"));
                }
                Ok(Affinity::Cores(cores.to_vec()))
            }
            other => Err(none("affinity", other)),
        }
    }

    fn on_overflow(&self) -> Result<Overflow, Failure> {
        match self.on_overflow {
            SLOTLINE_OVERFLOW_ERROR => Ok(Overflow::Error),
            SLOTLINE_OVERFLOW_SPILL => Ok(Overflow::Spill),
            other => Err(none("on_overflow", other)),
        }
    }

    fn on_held(&self) -> Result<OnHeld, Failure> {
        match self.on_held {
            SLOTLINE_ON_HELD_GROW => Ok(OnHeld::Grow),
            SLOTLINE_ON_HELD_WAIT => Ok(OnHeld::Wait),
            SLOTLINE_ON_HELD_FAIL => Ok(OnHeld::Fail),
            other => Err(none("on_held", other)),
        }
    }

    fn on_error(&self) -> Result<OnError, Failure> {
        let budget = match self.bad_share {
            -1.0 => Budget::Samples(self.bad_samples),
            share => Budget::Share(share),
        };
        match self.on_error {
            SLOTLINE_ON_ERROR_RAISE => Ok(OnError::Raise),
            SLOTLINE_ON_ERROR_SKIP => Ok(OnError::Skip(budget)),
            SLOTLINE_ON_ERROR_REPLACE => Ok(OnError::Replace(budget)),
            other => Err(none("on_error", other)),
        }
    }
}

fn number(name: &str, value: i64) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| none(name, value))
}

fn none(option: &str, value: impl std::fmt::Display) -> Failure {
    Failure::invalid(format!("options->{option} is {value}, which is none of its values"))
}
