//! `slotline state`: works with saved states.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use slotline::loader::State;
use slotline_demo::output::print_line;

use crate::checkpoint::{self, StateFile};

/// The command-line arguments.
#[derive(Args, Debug)]
pub(crate) struct StateCommand {
    #[command(subcommand)]
    command: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Merge the states of all ranks into one, which any number of ranks can resume from
    ///
    /// The states must be from the same run, saved after the same step.
    Merge {
        /// The state of each rank
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,

        /// Where to write the merged state. It is written to FILE.next, which is then renamed to
        /// FILE
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
}

impl StateCommand {
    pub(crate) fn run(self) -> Result<()> {
        let Kind::Merge { files, output } = self.command;
        let read = |path: &PathBuf| checkpoint::read(path).with_context(|| format!("cannot read {}", path.display()));
        let states: Vec<State> = files.iter().map(read).collect::<Result<_>>()?;
        let list = || {
            let names = files.iter().enumerate().map(|(number, path)| format!("{number} is {}", path.display()));
            format!("cannot merge the states ({})", names.collect::<Vec<_>>().join(", "))
        };
        let merged = State::merge(&states).with_context(list)?;
        StateFile::create(output, std::time::Duration::ZERO, &merged)?;
        print_line(format_args!(
            "merged {} states: pass {}, {} batches delivered",
            states.len(),
            merged.epoch(),
            merged.batches()
        ))?;
        Ok(())
    }
}
