//! `slotline order`: prints the indices of each batch, as the loader delivers them.

use anyhow::{Result, bail};
use clap::Args;
use slotline::dataset::{Dataset, from_fn};
use slotline::loader::{Batch, Pass};
use slotline::sample::Schema;
use slotline_demo::meter::Meter;
use slotline_demo::options::{LoaderOptions, TORCH};
use slotline_demo::output::ReportOptions;

use crate::checkpoint::BatchLine;
use crate::opening::FileOptions;
use crate::screen::Screen;
use crate::source::{Named, Opened, SOURCE_HELP, ServerOptions};
use crate::stream::{Step, stream};

/// The command-line flags.
#[derive(Args, Debug)]
pub(crate) struct Order {
    /// Number of samples, instead of a SOURCE
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "source")]
    len: usize,

    #[arg(help = SOURCE_HELP)]
    source: Option<Named>,

    #[command(flatten)]
    files: FileOptions,

    #[command(flatten)]
    server: ServerOptions,

    #[command(flatten)]
    report: ReportOptions,

    #[command(flatten)]
    options: LoaderOptions,
}

impl Order {
    pub(crate) fn run(self) -> Result<()> {
        match &self.source {
            // SAFETY: the help text requires that the files do not change while the program runs, and this command writes
            // no files.
            Some(source) => match self.server.limited(|| unsafe { source.open(&self.files) })? {
                Opened::Arrays(arrays) => self.print(arrays),
                Opened::Records(records) => self.print(records),
                Opened::Stream(_) => {
                    bail!("packed tars are read as a stream, whose samples have no indices; unpack {source}")
                }
                #[cfg(feature = "image")]
                Opened::Pictures(pictures) => self.print(*pictures),
            },
            None => self.print(from_fn(self.len, |_, _| Ok(()))),
        }
    }

    fn print<D: Dataset>(&self, dataset: D) -> Result<()> {
        let mut screen = Screen::streaming(&self.report);
        let mut loader = self.options.build(dataset, &TORCH)?;
        let mut meter = Meter::new(self.report.digest());
        let epochs = self.options.epochs(&TORCH);
        stream(&mut loader, epochs, self.options.hold, &mut meter, &mut screen, &mut Print)?;
        let summary = meter.summary(loader.memory_ceiling());
        screen.finish(&summary)
    }
}

struct Print;

impl Step for Print {
    fn batch<S: Schema>(&mut self, screen: &mut Screen, batch: &Batch<S>, _: &Pass<'_, Batch<S>>) -> Result<()> {
        screen.record(&BatchLine::of(batch))
    }
}
