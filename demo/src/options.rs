//! The loader's options as command-line flags, named as in torch where torch has them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args, ValueEnum};
use slotline::dataset::{Dataset, Iterable, IterableDataset};
use slotline::loader::{Affinity, BatchOf, Builder};
use slotline::{Loader, Ranks, WaitStrategy};

use crate::output::print_error_line;

/// The defaults that differ between commands. All other defaults are the same for every command.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// The default of `--num-workers`.
    pub num_workers: usize,
    /// The default of `--epochs`.
    pub epochs: u32,
    /// The default of `--seed`.
    ///
    /// `None`: the process's default generator, which is seeded differently in each run.
    pub seed: Option<u64>,
}

/// Torch's defaults: no workers, one pass, and a different order in each run.
pub const TORCH: Defaults = Defaults { num_workers: 0, epochs: 1, seed: None };

/// The command-line flags.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Loader options")]
pub struct LoaderOptions {
    /// Samples in a batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    batch_size: usize,

    /// Draw a new random order for each pass (demo: always)
    #[arg(long)]
    pub shuffle: bool,

    /// Number of samples that each worker shuffles at a time, for compressed tars, which are read
    /// as streams; needs --shuffle
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub shuffle_buffer: usize,

    /// Number of workers; with 0 the loop's thread loads everything [default: 2 for demo, otherwise 0]
    #[arg(long, value_name = "N")]
    num_workers: Option<usize>,

    /// Whether workers are threads or processes
    #[arg(long, value_enum, default_value_t = WorkerKind::Thread)]
    pub worker_kind: WorkerKind,

    /// How many times in total a worker process that has ended is replaced; needs --worker-kind
    /// process
    #[arg(long, value_name = "N", default_value_t = 0)]
    restart_workers: usize,

    /// Batches loaded ahead per worker [default: 2, or more if they are small]
    #[arg(long, value_name = "N")]
    prefetch_factor: Option<usize>,

    /// Drop the last batch if it is not full
    #[arg(long)]
    drop_last: bool,

    /// Whether batches are delivered in order (true) or as they are finished (false)
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    in_order: bool,

    /// Longest time to wait for one batch; needs at least one worker [default: no limit]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    timeout: Option<Duration>,

    /// Seed of the generator for shuffling and augmentation [default: 42 for demo, otherwise a new one for each run]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<u64>,

    /// Number of passes over the dataset [default: 20 for demo, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    epochs: Option<u32>,

    /// Lock the memory of the batches so that it is never swapped out
    #[arg(long)]
    pin_memory: bool,

    /// Number of samples of a batch that a worker takes at a time [default: set from measurements]
    #[arg(long, value_name = "N")]
    part_size: Option<usize>,

    /// Keep the loop's thread from loading samples while it waits for a batch, as worker processes always do
    #[arg(long)]
    no_helping: bool,

    /// Cores to pin the workers to: off, spread (worker i on core i), or a list such as 0,2
    #[arg(long, value_name = "CORES", default_value = "off", value_parser = affinity)]
    affinity: Affinity,

    /// How threads wait for each other
    #[arg(long, value_enum, default_value_t = Wait::Park)]
    wait: Wait,

    /// Maximum memory for the batches and the order; limits how many batches are loaded ahead
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<usize>,

    /// Warn if a thread has worked on one sample for this long [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watchdog: Option<Duration>,

    /// Number of batches that the loop keeps at a time, including the current one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hold: usize,

    /// Load the share of this rank, from 0; all ranks need the same options
    #[arg(long, value_name = "N", requires = "world_size")]
    rank: Option<usize>,

    /// Number of ranks that share each pass
    #[arg(long, value_name = "N", requires = "rank")]
    world_size: Option<usize>,

    /// Load the share of the rank that the environment names
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with_all = ["rank", "world_size"])]
    ranks: Option<RanksFrom>,
}

/// The place from which the rank is read.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RanksFrom {
    /// The variables of torchrun, MPI or Slurm; without any, everything is loaded
    Env,
}

/// [`WaitStrategy`] as the value of a flag.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    /// Spin briefly, then sleep until woken
    Park,
    /// Spin, then yield repeatedly
    Backoff,
    /// Spin; occupies a core for each waiting thread
    Spin,
}

/// The kind of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkerKind {
    /// Threads of the program
    Thread,
    /// Processes, forked when the loader is built (on Linux): a crash ends one of them and not the program
    Process,
}

/// Builds a loader from a builder, with the kind of workers in the options. A macro, since the
/// builders of indexed datasets and of streams have methods of the same names, but no common trait.
macro_rules! build {
    ($options:expr, $builder:expr) => {
        match $options.worker_kind {
            WorkerKind::Thread if $options.restart_workers > 0 => {
                bail!("--restart-workers replaces worker processes; add --worker-kind process, or drop it")
            }
            WorkerKind::Thread => $builder.build().context("cannot build the loader"),
            #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
            WorkerKind::Process => $builder
                .processes()
                .restart_workers($options.restart_workers)
                .build()
                .context("cannot build the loader with --worker-kind process"),
            #[cfg(not(all(target_os = "linux", not(any(shuttle, delays)))))]
            WorkerKind::Process => bail!("--worker-kind process needs Linux; use --worker-kind thread"),
        }
    };
}

impl LoaderOptions {
    /// Builds a loader with these options.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit each other or the dataset.
    pub fn build<D: Dataset>(&self, dataset: D, defaults: &Defaults) -> Result<Loader<BatchOf<D>>> {
        let mut builder = self.builder(Loader::builder(dataset).shuffle(self.shuffle), defaults);
        if let Some(ranks) = self.ranks()? {
            builder = builder.ranks(ranks);
        }
        build!(self, builder)
    }

    /// Builds a loader of a stream with these options. `shuffle` and the ranks are not applied,
    /// since the stream itself applies them.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit each other or the stream.
    pub fn build_stream<D: IterableDataset>(
        &self,
        stream: D,
        defaults: &Defaults,
    ) -> Result<Loader<BatchOf<Iterable<D>>>> {
        // Each batch is made by one worker, so the loop's thread cannot help.
        let builder = self.builder(Loader::iterable(stream), defaults).help(false);
        build!(self, builder)
    }

    /// Applies these options to a builder.
    fn builder<D>(&self, builder: Builder<D>, defaults: &Defaults) -> Builder<D> {
        let mut builder = builder
            .batch_size(self.batch_size)
            .num_workers(self.num_workers(defaults))
            .drop_last(self.drop_last)
            .in_order(self.in_order)
            .timeout(self.timeout.unwrap_or_default())
            .pin_memory(self.pin_memory)
            .watchdog(self.watchdog.unwrap_or_default())
            .help(!self.no_helping && self.worker_kind == WorkerKind::Thread)
            .affinity(self.affinity.clone())
            .wait_strategy(match self.wait {
                Wait::Park => WaitStrategy::Park,
                Wait::Backoff => WaitStrategy::Backoff,
                Wait::Spin => WaitStrategy::Spin,
            })
            .hold(self.hold);
        if let Some(memory_limit) = self.memory_limit {
            builder = builder.memory_limit(memory_limit);
        }
        if let Some(part_size) = self.part_size {
            builder = builder.part_size(part_size);
        }
        // Without workers the option has no meaning, and the loader would reject it.
        if self.num_workers(defaults) > 0
            && let Some(prefetch_factor) = self.prefetch_factor
        {
            builder = builder.prefetch_factor(prefetch_factor);
        }
        match self.seed.or(defaults.seed) {
            Some(seed) => builder.seed(seed),
            None => builder,
        }
    }

    /// Returns the ranks that share the passes; `None` if the flags do not set any.
    ///
    /// # Errors
    ///
    /// Returns an error if the flags or the environment name a rank that does not exist.
    pub fn ranks(&self) -> Result<Option<Ranks>> {
        if let (Some(rank), Some(world_size)) = (self.rank, self.world_size) {
            return Ok(Some(Ranks::new(rank, world_size).context("cannot use --rank and --world-size")?));
        }
        let Some(RanksFrom::Env) = self.ranks else { return Ok(None) };
        let found = Ranks::from_env().context("cannot use --ranks env")?;
        match &found {
            Some(ranks) => print_error_line(ranks),
            None => print_error_line("rank 0 of 1 (no launcher has set its variables)"),
        }
        Ok(Some(found.unwrap_or_default()))
    }

    /// Returns the number of workers.
    pub fn num_workers(&self, defaults: &Defaults) -> usize {
        self.num_workers.unwrap_or(defaults.num_workers)
    }

    /// Returns the number of passes.
    pub fn epochs(&self, defaults: &Defaults) -> u32 {
        self.epochs.unwrap_or(defaults.epochs)
    }

    /// Returns the seed, if one was given.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }
}

/// Parses a flag's value as a time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds, such as 2.5".to_owned())?;
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| "expected a number of seconds from 0 to about 1e19".to_owned())?;
    // Zero means no timeout, so a tiny positive value must not be rounded down to it.
    if time.is_zero() && seconds > 0.0 {
        return Err("expected 0 or at least a nanosecond, 1e-9".to_owned());
    }
    Ok(time)
}

/// Parses a seed as torch's `manual_seed` does: a negative seed counts back from 2^64.
fn seed(text: &str) -> Result<u64, String> {
    let signed = || text.parse::<i64>().map(|seed| seed as u64);
    text.parse().or_else(|_| signed()).map_err(|_| "expected a whole number from -2^63 to 2^64 - 1".to_owned())
}

fn affinity(text: &str) -> Result<Affinity, String> {
    match text {
        "off" => Ok(Affinity::Off),
        "spread" => Ok(Affinity::Spread),
        list => {
            let cores: Result<Vec<usize>, _> = list.split(',').map(|core| core.trim().parse()).collect();
            cores.map(Affinity::Cores).map_err(|_| "expected off, spread, or a list of cores such as 0,2".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinities_times_and_seeds_are_parsed() {
        assert_eq!(affinity("spread"), Ok(Affinity::Spread));
        assert_eq!(affinity("0, 2"), Ok(Affinity::Cores(vec![0, 2])));
        assert!(affinity("").is_err() && affinity("0,,1").is_err() && affinity("on").is_err());
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(["-1", "nan", "1e300", "inf", "1e-10", "x"].iter().all(|text| seconds(text).is_err()));
        assert_eq!((seed("-1"), seed("18446744073709551615")), (Ok(u64::MAX), Ok(u64::MAX)));
        assert!(seed("18446744073709551616").is_err() && seed("1.5").is_err());
    }
}
