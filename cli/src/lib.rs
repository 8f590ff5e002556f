//! The `slotline` program: trains on the bundled digits, streams datasets, prints orders. [`run`]
//! is the whole program; the Python package calls it, too.
//!
//! - `feed` and `order`: read a dataset and print the throughput or the indices; both run the loop
//!   in `stream`.
//! - `inspect`: prints the fields of a dataset and one sample; `index`: saves the indexes of tars
//!   and TFRecord files.
//! - `source`: the datasets that these commands read, with the flags of `opening`; with the feature
//!   `image`, `pictures` decodes their pictures, and `sheet` writes several pictures into one
//!   image.
//! - `checkpoint`: the files from which an interrupted run resumes; `state`: merges the states of
//!   all ranks; `files`: checks on the files of a run.
//! - `timeline`, with the feature `trace`: records what each thread did and when.
//! - `screen`: the output of commands, with a progress bar.
//!
//! The command `demo`, the loader's flags, the throughput meter and the reports are in
//! `slotline_demo`.

mod checkpoint;
mod feed;
mod files;
mod index;
mod inspect;
mod opening;
mod order;
#[cfg(feature = "image")]
mod pictures;
mod screen;
#[cfg(feature = "image")]
mod sheet;
mod source;
mod state;
mod stream;
#[cfg(feature = "trace")]
mod timeline;

use std::ffi::OsString;

#[cfg(feature = "trace")]
use anyhow::Context;
use anyhow::Result;
use clap::{Parser, Subcommand};
use slotline_demo::{Demo, program};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Debug, Parser)]
#[command(name = "slotline", version, about = "Feeds training loops: datasets, samplers, workers, batches in order")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a small network on the bundled digits, and print its accuracy and the loader's throughput
    Demo(Demo),
    /// Stream a dataset as a training loop would, and report the throughput and the bottleneck
    Feed(Box<feed::Feed>),
    /// Print the indices of each batch, in order, as JSON lines
    Order(order::Order),
    /// Print the fields of a dataset, and one sample
    Inspect(inspect::Inspect),
    /// Scan tars and TFRecord files once, and save the offsets of their samples
    Index(index::Index),
    /// Work with saved states: merge the states of all ranks into one
    State(state::StateCommand),
}

/// Runs the program. `arguments` begin with the program's name. It writes to stdout, and errors to
/// stderr. Returns the exit code: 2 for wrong arguments and 1 for any other error.
///
/// The loader's warnings are printed on stderr, unless the process has a `tracing` subscriber.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    program::run(arguments, |cli: Cli| cli.command.run(), opening::as_flags)
}

impl Command {
    fn run(self) -> Result<()> {
        if let Self::Feed(feed) = &self {
            feed.check_flags()?;
        }
        let log = tracing_subscriber::registry().with(program::warnings());
        #[cfg(feature = "trace")]
        if let Self::Feed(feed) = &self
            && let Some(path) = &feed.trace
        {
            let (layer, timeline) = timeline::Timeline::start(path)?;
            log.with(layer).try_init().context("cannot write the trace: the process has a subscriber already")?;
            // The trace is written even if the run fails; the run's error takes precedence over the trace's.
            let outcome = self.run_logged();
            let written = timeline.finish();
            return outcome.and(written);
        }
        // If the process already has a subscriber, the warnings go there.
        let _ = log.try_init();
        self.run_logged()
    }

    fn run_logged(self) -> Result<()> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Feed(feed) => feed.run(),
            Self::Order(order) => order.run(),
            Self::Inspect(inspect) => inspect.run(),
            Self::Index(index) => index.run(),
            Self::State(state) => state.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_clash() {
        Cli::command().debug_assert();
    }
}
