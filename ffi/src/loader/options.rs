//! The options of a loader: those of `slotline::loader::Builder`, with the same names.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use slotline::dataset::{Dataset, Iterable, IterableDataset};
use slotline::loader::{
    AddressSanitizer, Affinity, BatchOf, Budget, BuildError, Builder, GRACE, OnError, OnHeld, Overflow,
};
use slotline::rng::Generator;
use slotline::sampler::SequentialSampler;
use slotline::{BoxError, Loader, Ranks, WaitStrategy};

use crate::abi::{
    Failure, Owner, Versioned, call, check, guarded, slotline_drop, slotline_failure, slotline_worker, versioned,
};
use crate::batch::collate::{Collator, slotline_collate, slotline_drop_batch};
use crate::batch::memory::{self, Lent, slotline_allocate};
use crate::data::dataset::Data;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
use crate::loader::processes;
use crate::loader::warning::{Listener, slotline_on_warning};
use crate::sampling::{slotline_batch_sampler, slotline_generator, slotline_sampler};

/// For `batch_size`: no batching. A pass then returns single samples, whose tensors lack the first
/// dimension.
pub const SLOTLINE_NO_BATCHES: i64 = -1;

/// For `help`: chosen automatically, as described there.
pub const SLOTLINE_HELP_AUTO: i32 = -1;

/// Workers run on the cores that the system chooses.
pub const SLOTLINE_AFFINITY_OFF: u32 = 0;
/// Worker i runs on the i-th core that this process may use, wrapping around.
pub const SLOTLINE_AFFINITY_SPREAD: u32 = 1;
/// Worker i runs on the i-th core in `cores`, wrapping around.
pub const SLOTLINE_AFFINITY_CORES: u32 = 2;

/// Spin briefly, yield briefly, then sleep until woken up.
pub const SLOTLINE_WAIT_PARK: u32 = 0;
/// Spin briefly, then yield repeatedly.
pub const SLOTLINE_WAIT_BACKOFF: u32 = 1;
/// Spin without yielding: each waiting thread occupies a whole core.
pub const SLOTLINE_WAIT_SPIN: u32 = 2;

/// A bad sample turns its batch into an error.
pub const SLOTLINE_ON_ERROR_RAISE: u32 = 0;
/// Bad samples are left out of their batch.
pub const SLOTLINE_ON_ERROR_SKIP: u32 = 1;
/// Another sample replaces a bad one. Not available for streams.
pub const SLOTLINE_ON_ERROR_REPLACE: u32 = 2;

/// Samples that are packed or padded to the longest and do not fit into their batch are bad samples.
pub const SLOTLINE_OVERFLOW_ERROR: u32 = 0;
/// Samples that are packed or padded to the longest and do not fit into their batch get additional
/// memory from the heap, for that batch.
pub const SLOTLINE_OVERFLOW_SPILL: u32 = 1;

/// More memory is allocated for batches that the caller holds beyond `hold`, up to `memory_limit`
/// and what the system allows.
pub const SLOTLINE_ON_HELD_GROW: u32 = 0;
/// The thread that requests the next batch waits until another thread frees a batch.
pub const SLOTLINE_ON_HELD_WAIT: u32 = 1;
/// Requesting the next batch returns `SLOTLINE_ERROR_HELD` until a batch is freed.
pub const SLOTLINE_ON_HELD_FAIL: u32 = 2;

/// The number of additional batches to allocate memory for under AddressSanitizer.
const RESTING: usize = 16;
/// Whether this build supports worker processes.
const PROCESSES: bool = cfg!(all(target_os = "linux", not(any(shuttle, delays))));

/// The options of a loader, with the names and meanings of torch's `DataLoader`. Initialise them with `slotline_options_init`.
///
/// `slotline_loader_new` takes ownership of the user pointers of `worker_init`, `collate`,
/// `on_warning` and `allocate`, even if it fails. Options with a drop function can therefore be
/// used for only one loader.
///
/// Fields of type `uint8_t` are flags: 0 is no, 1 is yes. Defaults are in parentheses.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_options {
    /// `sizeof(slotline_options)`; `slotline_options_init` sets it.
    pub struct_size: usize,
    /// The number of samples in a batch (1), or `SLOTLINE_NO_BATCHES`.
    pub batch_size: i64,
    /// The number of workers (0: the thread that requests batches loads them).
    pub num_workers: usize,
    /// How many times in total a worker process that has ended is replaced by a new one (0). The
    /// new process repeats the read that was interrupted, so the batches are the same. Requires
    /// `processes`.
    pub restart_workers: usize,
    /// The time that a sample may take, in milliseconds (0: no limit). If a sample takes longer,
    /// its worker process is killed and replaced, independently of `restart_workers`, and the
    /// sample counts as bad (see `on_error`). For a stream, the new worker continues with the next
    /// sample, but may have to read the slow one again to get there; if that exceeds the time
    /// again, the loader ends. Requires `processes`.
    pub sample_timeout_ms: u64,
    /// The program that starts each worker process, and its arguments, with a NULL after the last
    /// one (NULL: workers are forked). Read when the loader is created. Requires `processes`; not
    /// available for streams, or with `round_robin` or `worker_init`.
    ///
    /// The program must call `slotline_work_if_spawned` first in its `main`. Usually it is this
    /// program itself, "/proc/self/exe". A program name without a slash is looked up in `PATH`.
    ///
    /// Such a worker has no copy of this program's memory or locks, so the loader may be created
    /// while other threads run. It shares only the memory of batches, and must be built with the
    /// same version of slotline. If the worker ends before it is ready, or if its dataset differs
    /// from the loader's in length or fields, it is not replaced, and the loader returns
    /// `SLOTLINE_ERROR_WORKER_DIED` with the reason. If the program neither ends nor becomes a
    /// worker, the loader waits, for up to `timeout_ms` if that is set. The worker's standard input
    /// is replaced.
    pub spawn: *const *const c_char,
    /// Any bytes to pass to the workers that `spawn` starts; they are copied.
    pub spawn_setup: *const u8,
    /// The number of bytes in `spawn_setup`.
    pub spawn_setup_len: usize,
    /// The number of batches to prefetch per worker (0: 2, or more if batches are small).
    pub prefetch_factor: usize,
    /// The number of batches that the caller holds while it requests the next one (1). Memory for
    /// them is allocated when the loader is created.
    pub hold: usize,
    /// The number of samples that a worker takes at a time (0: chosen by measurement).
    pub part_size: usize,
    /// The maximum memory of the loader, in bytes (0: no limit).
    pub memory_limit: usize,
    /// The maximum time to wait for a batch, in milliseconds (0: no limit).
    pub timeout_ms: u64,
    /// The time after which a slow sample is reported to `on_warning` and in
    /// `slotline_loader_stats_json`, in milliseconds (0: never).
    pub watchdog_ms: u64,
    /// The seed of `shuffle` and of the samples' random numbers, if `has_seed` is set; otherwise
    /// they are drawn from the process's default generator. A `sampler` has its own seed (see
    /// `slotline_sampler`).
    pub seed: u64,
    /// Whether `seed` is used (no).
    pub has_seed: u8,
    /// Whether each pass has a new random order (no).
    pub shuffle: u8,
    /// Whether to leave out the last batch if it is not full (no).
    pub drop_last: u8,
    /// Whether batches come in order (yes). Otherwise they come as soon as they are finished.
    pub in_order: u8,
    /// Whether the memory of batches is page-locked (no).
    pub pin_memory: u8,
    /// Whether all passes share one base seed and one call of `worker_init` per worker (no).
    pub persistent_workers: u8,
    /// Whether workers make batches in turn, as torch's do (no: any free worker makes the next
    /// batch).
    pub round_robin: u8,
    /// Whether workers are processes (no: threads). Only on Linux; not available with `collate`, `help` = 1, `on_overflow`, or on
    /// a device.
    ///
    /// A callback that crashes then ends only one worker, not the program. Unless the worker is
    /// replaced (`restart_workers`), `SLOTLINE_ERROR_SAMPLE` takes the place of its batch, and once
    /// all workers have ended, `SLOTLINE_ERROR_WORKER_DIED` ends the pass. With streams or
    /// `round_robin`, the first worker that is not replaced ends the loader.
    ///
    /// Unless a command starts them (`spawn`), workers are forked: in `slotline_loader_new`, or
    /// later for a replacement. A worker has a copy of the program's memory from that moment, and a
    /// single thread, which runs the callbacks. The program and other workers do not see what a
    /// callback changes in memory. A lock that another thread of the program held during the fork
    /// stays locked in the worker, so create the loader before other threads, unless the callbacks
    /// do not need their locks. Open files are shared, with their positions. In a worker, a
    /// callback must not use, stop or free the loader. Drop functions run only in the program.
    ///
    /// The workers are child processes, which `wait` may report. They end with the program. A
    /// worker that is still in a callback 2 s after its loader was freed is killed. Batches held
    /// beyond `hold` are limited to 4 GiB and to 1,024 batches.
    pub processes: u8,
    /// Whether the thread that requests batches also loads samples instead of waiting: 0, 1 or
    /// `SLOTLINE_HELP_AUTO`, which means yes unless `in_order` is off or there is a `worker_init`.
    /// With a timeout it never does.
    pub help: i32,
    /// How waiting threads wait (`SLOTLINE_WAIT_PARK`).
    pub wait_strategy: u32,
    /// The cores that the workers run on (`SLOTLINE_AFFINITY_OFF`).
    pub affinity: u32,
    /// What happens to samples that are packed or padded to the longest and do not fit into their batch
    /// (`SLOTLINE_OVERFLOW_ERROR`).
    pub on_overflow: u32,
    /// What happens if the caller requests the next batch while it holds more than `hold` batches
    /// (`SLOTLINE_ON_HELD_GROW`).
    pub on_held: u32,
    /// The cores for `SLOTLINE_AFFINITY_CORES`, as numbered by the system; read when the loader is
    /// created.
    pub cores: *const usize,
    /// The number of `cores`.
    pub num_cores: usize,
    /// What happens to bad samples (`SLOTLINE_ON_ERROR_RAISE`).
    pub on_error: u32,
    /// The maximum number of bad samples in a pass; batches with further bad samples become
    /// `SLOTLINE_ERROR_BAD_SAMPLES` (`SIZE_MAX`: no fixed number, but at most half of 1,000 samples
    /// in a row).
    pub bad_samples: usize,
    /// The maximum share of bad samples in a pass, from 0 to 1, instead of `bad_samples` (-1: `bad_samples` applies).
    pub bad_share: f64,
    /// The order of the passes (NULL: the order of the dataset, or a random one with `shuffle`).
    pub sampler: *const slotline_sampler,
    /// The batches of the passes as lists of indices (NULL: batches of `batch_size`).
    pub batch_sampler: *const slotline_batch_sampler,
    /// Runs in each worker before it loads anything in a pass (NULL: none).
    pub worker_init: slotline_worker_init,
    /// The user pointer that is passed to `worker_init`.
    pub worker_init_user: *mut c_void,
    /// Called once when `worker_init` is no longer needed, on any thread; may be NULL.
    pub worker_init_drop: slotline_drop,
    /// Makes the batches (NULL: samples are stacked).
    pub collate: slotline_collate,
    /// The user pointer that is passed to `collate`.
    pub collate_user: *mut c_void,
    /// Called once when `collate` is no longer needed, on any thread; may be NULL.
    pub collate_drop: slotline_drop,
    /// Drops an object that `collate` made; may be NULL.
    pub collate_drop_batch: slotline_drop_batch,
    /// Receives warnings and the watchdog's reports (NULL: none).
    pub on_warning: slotline_on_warning,
    /// The user pointer that is passed to `on_warning`.
    pub on_warning_user: *mut c_void,
    /// Called once when `on_warning` is no longer needed, on any thread; may be NULL.
    pub on_warning_drop: slotline_drop,
    /// How long `slotline_loader_free` waits until the loader's threads have left callbacks, in
    /// milliseconds (0: 5 s; `UINT64_MAX`: without limit, so that no callback runs afterwards).
    /// Threads that have not left by then are abandoned, and a warning is issued. A device loader
    /// also waits up to this long for its copies.
    pub close_timeout_ms: u64,
    /// The generator that `shuffle` and the samples' random numbers are drawn from, instead of
    /// using `seed` (NULL: `seed`, or the process's default generator). It is shared, and may be
    /// freed once the loader was created.
    pub generator: *const slotline_generator,
    /// Allocates the memory that batches are written into, for example memory that a device can
    /// read (NULL: the library allocates it). `pin_memory` does not apply to it. Not available with
    /// `processes`, `collate`, or on a device.
    pub allocate: slotline_allocate,
    /// The user pointer that is passed to `allocate`.
    pub allocate_user: *mut c_void,
    /// Called once when `allocate` is no longer needed, on any thread; may be NULL.
    pub allocate_drop: slotline_drop,
    /// The index of this process among `world_size` ranks, from 0 (0). Used if `world_size` is not
    /// 0.
    pub rank: usize,
    /// The number of ranks that each load a share of each pass (0: passes are not divided). All
    /// ranks must have the same options, and the same seed, which is 0 if none is set. They have
    /// equally many batches: samples at the end of a pass are repeated to make the shares equal, or
    /// left out with `drop_last`. With `shuffle` the order is that of torch's `DistributedSampler`
    /// with the number of the pass as its epoch. Any number of ranks can load the state of any rank
    /// that was saved after all ranks had delivered equally many batches. Not available for
    /// streams, which have to divide themselves.
    pub world_size: usize,
}

/// Runs in a worker before a pass. Returns 0, or another value after setting the reason with
/// `slotline_fail`; a worker in which it fails takes no part in the pass.
pub type slotline_worker_init = Option<
    unsafe extern "C" fn(user: *mut c_void, worker: *const slotline_worker, failure: *mut slotline_failure) -> i32,
>;

/// The user pointers in options. The library owns them from when the options are read.
pub(crate) struct Owned {
    worker_init: Owner,
    collate: Owner,
    on_warning: Owner,
    /// `None` once `allocator` has taken it.
    allocate: Option<Owner>,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_options {
    const END: usize = versioned::end!(world_size);

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            batch_size: 1,
            num_workers: 0,
            restart_workers: 0,
            sample_timeout_ms: 0,
            spawn: null(),
            spawn_setup: null(),
            spawn_setup_len: 0,
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
            processes: 0,
            help: SLOTLINE_HELP_AUTO,
            wait_strategy: SLOTLINE_WAIT_PARK,
            affinity: SLOTLINE_AFFINITY_OFF,
            on_overflow: SLOTLINE_OVERFLOW_ERROR,
            on_held: SLOTLINE_ON_HELD_GROW,
            cores: null(),
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
            on_warning: None,
            on_warning_user: null_mut(),
            on_warning_drop: None,
            close_timeout_ms: 0,
            generator: null(),
            allocate: None,
            allocate_user: null_mut(),
            allocate_drop: None,
            rank: 0,
            world_size: 0,
        }
    }
}

/// Sets options to their defaults, and their `struct_size` to `struct_size`, which must be
/// `sizeof(slotline_options)`. Does nothing for NULL, or if `struct_size` is smaller than a
/// `size_t`. Can be called from any thread.
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
        // SAFETY: the caller guarantees that `struct_size` bytes are writable. If the struct is too short, only its size is
        // written, and the function that uses it returns an error.
        unsafe {
            options.cast::<usize>().write(struct_size);
            let _ = versioned::write(options, &slotline_options::defaults(), "options");
        }
    });
}

impl slotline_options {
    /// Takes ownership of the user pointers. Must be called only once.
    pub(crate) fn own(&self) -> Owned {
        Owned {
            worker_init: Owner::new(self.worker_init_user, self.worker_init_drop),
            collate: Owner::new(self.collate_user, self.collate_drop),
            on_warning: Owner::new(self.on_warning_user, self.on_warning_drop),
            allocate: Some(Owner::new(self.allocate_user, self.allocate_drop)),
        }
    }

    /// Returns a function that calls the user's `allocate`, if there is one.
    pub(crate) fn allocator(
        &self,
        owned: &mut Owned,
    ) -> Option<impl FnMut(usize) -> Result<Lent, BoxError> + Send + 'static> {
        memory::allocator(self.allocate, owned.allocate.take()?)
    }

    /// Applies all options to a builder, and returns the collate callback, if there is one.
    ///
    /// # Safety
    ///
    /// The pointers in the options must be valid as documented at `slotline_options`.
    pub(crate) unsafe fn apply<D>(
        &self,
        owned: Owned,
        data: &Data,
        builder: Builder<D>,
    ) -> Result<(Builder<D>, Option<Arc<Collator>>), Failure> {
        // SAFETY: the caller guarantees that the pointers are valid.
        let mut builder = unsafe { self.apply_plain(builder)? };
        let len = data.len().unwrap_or(0);
        // SAFETY: the caller guarantees that each is NULL or was not freed.
        let (sampler, batches) = unsafe { (self.sampler.as_ref(), self.batch_sampler.as_ref()) };
        builder = match (sampler, data) {
            (None, _) => builder,
            // No sampler can be used for a stream, so any sampler makes the builder return that
            // error.
            (Some(_), Data::Stream(_)) => builder.sampler(SequentialSampler::new(0)),
            (Some(sampler), _) => builder.sampler(sampler.make(len).map_err(BuildError::from)?),
        };
        builder = match (batches, data) {
            (None, _) => builder,
            (Some(_), Data::Stream(_)) => builder.batch_sampler_iter(1, || [[0]]),
            (Some(batches), _) => {
                // SAFETY: the caller guarantees that `generator` is NULL or was not freed.
                let generator = unsafe { self.generator.as_ref() }.map(slotline_generator::shared);
                let ranks = self.ranks()?;
                let seed = if self.has_seed != 0 { Some(self.seed) } else { ranks.map(|_| 0) };
                let generator = generator.or_else(|| seed.map(|seed| Generator::from_seed(seed).into()));
                batches.apply(builder, len, generator, ranks)?
            }
        };
        if let Some(init) = self.worker_init {
            let owner = owned.worker_init;
            builder = builder.worker_init(move |worker| {
                let worker = slotline_worker::from(Some(worker));
                // SAFETY: the user has guaranteed that any thread may call `init` this way.
                call("worker_init", |failure| unsafe { init(owner.user(), &worker, failure) })
            });
        }
        if let Some(listen) = self.on_warning {
            let listener = Listener { owner: owned.on_warning, listen };
            builder = builder.on_warning(move |warning| listener.hear(warning));
        }
        let collator = self
            .collate
            .map(|collate| Arc::new(Collator::new(owned.collate, collate, self.collate_drop_batch, data.fields())));
        Ok((builder, collator))
    }

    /// Returns the number of batches to allocate for the caller. Under AddressSanitizer there are
    /// more, so that a freed batch's memory stays unused for some time, and later accesses to it
    /// are reported.
    fn hold(&self) -> usize {
        let limited = self.memory_limit != 0 || self.on_held != SLOTLINE_ON_HELD_GROW || self.hold == 0;
        if limited || AddressSanitizer::find().is_none() { self.hold } else { self.hold.saturating_add(RESTING) }
    }

    /// Applies the options that need no ownership of user pointers.
    ///
    /// # Safety
    ///
    /// The pointers in the options must be valid as documented at `slotline_options`.
    unsafe fn apply_plain<D, C>(&self, builder: Builder<D, C>) -> Result<Builder<D, C>, Failure> {
        for (name, flag) in [
            ("has_seed", self.has_seed),
            ("shuffle", self.shuffle),
            ("drop_last", self.drop_last),
            ("in_order", self.in_order),
            ("pin_memory", self.pin_memory),
            ("persistent_workers", self.persistent_workers),
            ("round_robin", self.round_robin),
            ("processes", self.processes),
        ] {
            check::flag(flag, &format!("options->{name}"))?;
        }
        let batch_size = match self.batch_size {
            SLOTLINE_NO_BATCHES => None,
            size => Some(number("batch_size", size)?),
        };
        // SAFETY: the caller guarantees that `batch_sampler` is NULL or was not freed.
        let planned = unsafe { self.batch_sampler.as_ref() }.is_some_and(slotline_batch_sampler::is_planned);
        let builder = match self.ranks()? {
            Some(ranks) if !planned => builder.ranks(ranks),
            _ => builder,
        };
        let mut builder = builder
            .batch_size(batch_size)
            .num_workers(self.num_workers)
            .round_robin(self.round_robin != 0)
            .hold(self.hold())
            .timeout(Duration::from_millis(self.timeout_ms))
            .watchdog(Duration::from_millis(self.watchdog_ms))
            .close_timeout(match self.close_timeout_ms {
                0 => GRACE,
                time => Duration::from_millis(time),
            })
            .shuffle(self.shuffle != 0)
            .drop_last(self.drop_last != 0)
            .in_order(self.in_order != 0)
            .pin_memory(self.pin_memory != 0)
            .persistent_workers(self.persistent_workers != 0)
            .on_held(self.on_held()?)
            .wait_strategy(self.wait_strategy()?)
            // SAFETY: the caller guarantees that `cores` is valid.
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
        // SAFETY: the caller guarantees that `generator` is NULL or was not freed.
        if let Some(generator) = unsafe { self.generator.as_ref() } {
            if self.has_seed != 0 {
                return Err(Failure::invalid(
                    "options->seed and options->generator exclude each other; set one of them",
                ));
            }
            builder = builder.generator(generator.shared());
        }
        if self.has_seed != 0 {
            builder = builder.seed(self.seed);
        }
        match self.help {
            SLOTLINE_HELP_AUTO => Ok(builder),
            help @ (0 | 1) => Ok(builder.help(help == 1)),
            help => Err(invalid_value("help", help)),
        }
    }

    /// Checks that the chosen kind of workers can load the dataset, with or without memory for a
    /// `device`.
    pub(crate) fn check_workers(&self, data: &Data, device: bool) -> Result<(), Failure> {
        let (processes, threads) = (self.processes != 0, self.processes == 0);
        let (stream, spawn) = (matches!(data, Data::Stream(_)), !self.spawn.is_null());
        for (given, first, second, hint) in [
            (
                threads && self.restart_workers > 0,
                "restart_workers",
                "threads",
                "set processes, or drop restart_workers",
            ),
            (
                threads && self.sample_timeout_ms > 0,
                "sample_timeout_ms",
                "threads",
                "set processes, or drop sample_timeout_ms",
            ),
            (threads && spawn, "spawn", "threads", "set processes, or drop spawn"),
            (!spawn && self.spawn_setup_len > 0, "spawn_setup", "spawn = NULL", "set spawn, or drop spawn_setup"),
            (spawn && stream, "spawn", "an iterable dataset", "drop spawn, which forks the processes, or use threads"),
            (spawn && self.worker_init.is_some(), "spawn", "worker_init", "drop spawn, which forks the processes"),
            (spawn && self.round_robin != 0, "spawn", "round_robin", "drop spawn, which forks the processes"),
            (processes && !PROCESSES, "processes", "this system", "use threads, or Linux"),
            (processes && self.collate.is_some(), "processes", "collate", "use threads, or drop collate"),
            (processes && self.allocate.is_some(), "processes", "allocate", "use threads, or drop allocate"),
            (self.collate.is_some() && self.allocate.is_some(), "collate", "allocate", "drop one of them"),
            (device && self.allocate.is_some(), "allocate", "a device", "drop allocate, or use slotline_loader_new"),
            (processes && device, "processes", "a device", "use threads"),
        ] {
            if given {
                return Err(BuildError::Clash { first, second, hint }.into());
            }
        }
        Ok(())
    }

    /// Builds a loader that stacks samples, with workers of the chosen kind.
    ///
    /// # Safety
    ///
    /// The pointers in the options must be valid as documented at `slotline_options`.
    pub(crate) unsafe fn build<D: Dataset>(&self, builder: Builder<D>) -> Result<Loader<BatchOf<D>>, Failure> {
        #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
        if self.processes != 0 {
            // SAFETY: the caller upholds this function's safety contract.
            return unsafe { processes::build(self, builder) };
        }
        Ok(builder.build()?)
    }

    /// Builds a loader of a stream, with workers of the chosen kind.
    pub(crate) fn build_stream<D: IterableDataset>(
        &self,
        builder: Builder<Iterable<D>>,
    ) -> Result<Loader<BatchOf<Iterable<D>>>, BuildError> {
        #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
        if self.processes != 0 {
            return processes::build_stream(self, builder);
        }
        builder.build()
    }

    fn ranks(&self) -> Result<Option<Ranks>, Failure> {
        match self.world_size {
            0 if self.rank != 0 => {
                Err(Failure::invalid(format!("rank is {}, but world_size is 0; set both", self.rank)))
            }
            0 => Ok(None),
            world_size => Ok(Some(Ranks::new(self.rank, world_size)?)),
        }
    }

    fn wait_strategy(&self) -> Result<WaitStrategy, Failure> {
        match self.wait_strategy {
            SLOTLINE_WAIT_PARK => Ok(WaitStrategy::Park),
            SLOTLINE_WAIT_BACKOFF => Ok(WaitStrategy::Backoff),
            SLOTLINE_WAIT_SPIN => Ok(WaitStrategy::Spin),
            other => Err(invalid_value("wait_strategy", other)),
        }
    }

    /// # Safety
    ///
    /// `cores` must point to `num_cores` numbers if `affinity` uses it.
    unsafe fn affinity(&self) -> Result<Affinity, Failure> {
        match self.affinity {
            SLOTLINE_AFFINITY_OFF => Ok(Affinity::Off),
            SLOTLINE_AFFINITY_SPREAD => Ok(Affinity::Spread),
            SLOTLINE_AFFINITY_CORES => {
                // SAFETY: the caller guarantees that `cores` points to `num_cores` numbers.
                let cores = unsafe { check::slice(self.cores, self.num_cores, "options->cores")? };
                if cores.is_empty() {
                    return Err(Failure::invalid(
                        "options->num_cores is 0; list at least one core, or set another affinity",
                    ));
                }
                Ok(Affinity::Cores(cores.to_vec()))
            }
            other => Err(invalid_value("affinity", other)),
        }
    }

    fn on_overflow(&self) -> Result<Overflow, Failure> {
        match self.on_overflow {
            SLOTLINE_OVERFLOW_ERROR => Ok(Overflow::Error),
            SLOTLINE_OVERFLOW_SPILL => Ok(Overflow::Spill),
            other => Err(invalid_value("on_overflow", other)),
        }
    }

    fn on_held(&self) -> Result<OnHeld, Failure> {
        match self.on_held {
            SLOTLINE_ON_HELD_GROW => Ok(OnHeld::Grow),
            SLOTLINE_ON_HELD_WAIT => Ok(OnHeld::Wait),
            SLOTLINE_ON_HELD_FAIL => Ok(OnHeld::Fail),
            other => Err(invalid_value("on_held", other)),
        }
    }

    fn on_error(&self) -> Result<OnError, Failure> {
        let budget = match self.bad_share {
            -1.0 if self.bad_samples == usize::MAX => Budget::Minority,
            -1.0 => Budget::Samples(self.bad_samples),
            share => Budget::Share(share),
        };
        match self.on_error {
            SLOTLINE_ON_ERROR_RAISE => Ok(OnError::Raise),
            SLOTLINE_ON_ERROR_SKIP => Ok(OnError::Skip(budget)),
            SLOTLINE_ON_ERROR_REPLACE => Ok(OnError::Replace(budget)),
            other => Err(invalid_value("on_error", other)),
        }
    }
}

fn number(name: &str, value: i64) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| invalid_value(name, value))
}

fn invalid_value(option: &str, value: impl std::fmt::Display) -> Failure {
    Failure::invalid(format!("options->{option} is {value}, which is not a valid value; see slotline.h"))
}
