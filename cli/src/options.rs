//! The loader's options as flags, under torch's names where torch has them.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use slotline::dataset::Dataset;
use slotline::loader::{Affinity, Builder};
use slotline::{Loader, WaitStrategy};

/// For `--help`: what a SOURCE is.
pub(crate) const SOURCE_HELP: &str = "\
digits (1797 images and labels that come with the program), idx:FILE[,FILE...] (as MNIST has them, such as \
idx:IMAGES,LABELS), or npy:FILE[,FILE...] (NumPy's, memory-mapped: nobody may change them while this runs); a sample is a row of each";

/// What a command does where the flag is not given; the other defaults are the same for all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) num_workers: usize,
    pub(crate) epochs: u32,
    /// `None`: the process's default generator, which starts anew in each run.
    pub(crate) seed: Option<u64>,
}

/// Torch's: nobody helps, one pass, another order in each run.
pub(crate) const TORCH: Defaults = Defaults { num_workers: 0, epochs: 1, seed: None };

/// The flags.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Loader options")]
pub(crate) struct LoaderOptions {
    /// Samples in a batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    batch_size: usize,

    /// Draw a new random order for each pass (demo: always)
    #[arg(long)]
    pub(crate) shuffle: bool,

    /// Threads that load; with 0 the loop's own thread does it all [default: 2 for demo, otherwise 0]
    #[arg(long, value_name = "N")]
    num_workers: Option<usize>,

    /// Batches in the ring for each worker [default: 2, or more if they are small]
    #[arg(long, value_name = "N")]
    prefetch_factor: Option<usize>,

    /// Leave out a last batch that is not full
    #[arg(long)]
    drop_last: bool,

    /// Whether batches come in order, or as they are finished
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    in_order: bool,

    /// How long the wait for one batch may take; needs a worker [default: for ever]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    timeout: Option<Duration>,

    /// Seed of the generator that orders and augmentation are drawn from [default: 42 for demo, otherwise another in
    /// each run]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<u64>,

    /// Passes over the dataset [default: 20 for demo, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    epochs: Option<u32>,

    /// Lock the memory of the batches, so that it is never swapped out
    #[arg(long)]
    pin_memory: bool,

    /// Samples of a batch that a worker claims at once [default: by measurement]
    #[arg(long, value_name = "N")]
    part_size: Option<usize>,

    /// Let the loop's thread only wait while it waits, instead of loading, too
    #[arg(long)]
    no_helping: bool,

    /// Cores of the workers: off, spread (worker i on core i), or a list such as 0,2
    #[arg(long, value_name = "CORES", default_value = "off", value_parser = affinity)]
    affinity: Affinity,

    /// How threads wait for each other
    #[arg(long, value_enum, default_value_t = Wait::Park)]
    wait: Wait,

    /// The most memory that the batches and the order may take: as many batches are loaded ahead as fit
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<usize>,

    /// Say when a thread has been at one sample for so long [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watchdog: Option<Duration>,

    /// Batches that the loop keeps at a time, the current one among them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) hold: usize,
}

/// [`WaitStrategy`] as a flag's value.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    /// Spin a little, then sleep until woken
    Park,
    /// Spin, then yield over and over
    Backoff,
    /// Spin; takes a core for each waiting thread
    Spin,
}

impl LoaderOptions {
    /// A loader's builder with these options.
    pub(crate) fn builder<D: Dataset>(&self, dataset: D, defaults: &Defaults) -> Builder<D> {
        let mut builder = Loader::builder(dataset)
            .batch_size(self.batch_size)
            .shuffle(self.shuffle)
            .num_workers(self.num_workers(defaults))
            .drop_last(self.drop_last)
            .in_order(self.in_order)
            .timeout(self.timeout.unwrap_or_default())
            .pin_memory(self.pin_memory)
            .watchdog(self.watchdog.unwrap_or_default())
            .help(!self.no_helping)
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
        // Without workers it means nothing, and a loader wants it left out.
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

    pub(crate) fn num_workers(&self, defaults: &Defaults) -> usize {
        self.num_workers.unwrap_or(defaults.num_workers)
    }

    pub(crate) fn epochs(&self, defaults: &Defaults) -> u32 {
        self.epochs.unwrap_or(defaults.epochs)
    }

    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }
}

/// A time as a flag's value.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds, such as 2.5".to_owned())?;
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| "expected a number of seconds from 0 to about 1e19".to_owned())?;
    // Zero stands for no timeout at all, which a tiny one must not become.
    if time.is_zero() && seconds > 0.0 {
        return Err("expected 0 or at least a nanosecond, 1e-9".to_owned());
    }
    Ok(time)
}

/// As torch's `manual_seed`, where a negative seed counts back from 2^64.
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
    fn affinities_and_times_are_read() {
        assert_eq!(affinity("spread"), Ok(Affinity::Spread));
        assert_eq!(affinity("0, 2"), Ok(Affinity::Cores(vec![0, 2])));
        assert!(affinity("").is_err() && affinity("0,,1").is_err() && affinity("on").is_err());
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(["-1", "nan", "1e300", "inf", "1e-10", "x"].iter().all(|text| seconds(text).is_err()));
        assert_eq!((seed("-1"), seed("18446744073709551615")), (Ok(u64::MAX), Ok(u64::MAX)));
        assert!(seed("18446744073709551616").is_err() && seed("1.5").is_err());
    }
}
