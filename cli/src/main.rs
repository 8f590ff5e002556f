//! The `slotline` program: trains on the bundled digits, streams datasets, prints orders.
//!
//! - `options`: the loader's options as flags, the same for every command.
//! - `demo`, with its dataset in `digits` and its network in `net`.
//! - `feed` and `order`: read a dataset and print throughput figures or indices; both run the loop in `stream`.
//! - `inspect`: says what a dataset holds, and shows a sample; `index`: saves the indexes of tars and TFRecord files.
//! - `source`: what these commands read; with the feature `image`, `pictures` decodes its pictures, and `sheet` writes
//!   several of them into one image.
//! - `checkpoint`: the files from which an interrupted run resumes; `state`: merges those of all ranks; `files`: checks on the
//!   files of a run.
//! - `meter`: counts and times while a loop runs, with the digests of `digest`.
//! - `timeline`, with the feature `trace`: records what each thread did and when.
//! - `screen`: lines, JSON and the progress bar.

mod checkpoint;
mod demo;
mod digest;
mod digits;
mod feed;
mod files;
mod index;
mod inspect;
mod meter;
mod net;
mod opening;
mod options;
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

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
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
    Demo(demo::Demo),
    /// Stream a dataset as a training loop would, and report the throughput and the bottleneck
    Feed(Box<feed::Feed>),
    /// Print the indices of each batch, in order, as JSON lines
    Order(order::Order),
    /// Say what a dataset holds, and show one sample
    Inspect(inspect::Inspect),
    /// Walk over tars and TFRecord files once, and save where their samples are
    Index(index::Index),
    /// Work with saved states: merge the states of all ranks into one
    State(state::StateCommand),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // The message quotes arguments, which may be file names with control characters.
        Err(error) if error.use_stderr() => {
            let _ = write!(io::stderr(), "{}", screen::plain(&error));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed the pipe (`| head`), which is not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // If this fails too, there is nowhere left to report it.
            let _ = writeln!(io::stderr(), "error: {}", screen::plain(opening::as_flags(with_causes(&error))));
            ExitCode::FAILURE
        }
    }
}

impl Command {
    fn run(self) -> Result<()> {
        if let Self::Feed(feed) = &self {
            feed.check_flags()?;
        }
        let warnings = tracing_subscriber::fmt::layer().with_writer(io::stderr).without_time().with_target(false);
        let log = tracing_subscriber::registry().with(warnings.with_filter(LevelFilter::WARN));
        #[cfg(feature = "trace")]
        if let Self::Feed(feed) = &self
            && let Some(path) = &feed.trace
        {
            let (layer, timeline) = timeline::Timeline::start(path)?;
            log.with(layer).init();
            // The trace is written even if the run fails; the run's error takes precedence over the trace's.
            let outcome = self.run_logged();
            let written = timeline.finish();
            return outcome.and(written);
        }
        log.init();
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

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns the message and its causes, one per line.
fn with_causes(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    causes.join("\n  because: ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_clash() {
        Cli::command().debug_assert();
    }

    #[test]
    fn causes_follow_the_message_line_by_line() {
        let error = anyhow!("no such file").context("cannot open a.npy").context("cannot load npy:a.npy");
        assert_eq!(with_causes(&error), "cannot load npy:a.npy\n  because: cannot open a.npy\n  because: no such file");
    }
}
