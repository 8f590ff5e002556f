//! `slotline index`: scans tars and TFRecord files once, so that opening them later is fast.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use slotline::dataset::Dataset;
use slotline_demo::output::print_line;

use crate::opening::FileOptions;
use crate::screen::walking;
use crate::source::ServerOptions;

/// The command-line flags.
#[derive(Args, Debug)]
pub(crate) struct Index {
    /// Tars or TFRecord files, also as patterns: 'shard-{000..099}.tar'. With the cargo feature `remote`, also URLs
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    files: FileOptions,

    #[command(flatten)]
    server: ServerOptions,
}

impl Index {
    pub(crate) fn run(self) -> Result<()> {
        for path in &self.paths {
            let begun = Instant::now();
            let (tell, bar) = walking();
            let records = self.server.limited(|| self.files.options().progress(tell).open(path))?;
            bar.finish_and_clear();
            let files = records.format().files();
            let indexes: Vec<_> = (0..files.len()).map(|file| self.files.saved_in().of(&files.path(file))).collect();
            let Some(missing) = indexes.iter().position(|saved| !saved.as_ref().is_some_and(|saved| saved.is_file()))
            else {
                let (time, folder) = (begun.elapsed().as_secs_f64(), indexes.iter().flatten().next());
                let place = folder.and_then(|saved| saved.parent()).unwrap_or(path).display();
                print_line(format_args!(
                    "{}: {} samples, {} files, {time:.2} s; the indexes are in {place}",
                    path.display(),
                    records.len(),
                    files.len()
                ))?;
                continue;
            };
            if let Some(warning) = records.warnings().into_iter().next() {
                bail!(warning);
            }
            bail!("no index of {} was saved: only tars and TFRecord files have one", files.path(missing).display());
        }
        Ok(())
    }
}
