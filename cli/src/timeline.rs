//! `--trace FILE`: writes a timeline of what each thread did, as a Chrome trace, which ui.perfetto.dev opens.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

/// A timeline that is being recorded.
pub(crate) struct Timeline {
    guard: FlushGuard,
    failure: Arc<Mutex<Option<io::Error>>>,
    path: PathBuf,
}

impl Timeline {
    /// Starts a timeline. The returned layer writes the loader's spans to it.
    pub(crate) fn start<S>(path: &Path) -> Result<(impl Layer<S>, Self)>
    where
        S: tracing_subscriber::layer::SubscriberExt + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let file = File::create(path).with_context(|| format!("cannot write the trace to {}", path.display()))?;
        let failure = Arc::default();
        let sink = Sink { file: BufWriter::new(file), failure: Arc::clone(&failure) };
        let builder = ChromeLayerBuilder::new().writer(sink).include_args(true).include_locations(false);
        let (layer, guard) = builder.build();
        let layer = layer.with_filter(Targets::new().with_target("slotline", LevelFilter::TRACE));
        Ok((layer, Self { guard, failure, path: path.to_owned() }))
    }

    /// Ends the timeline and flushes it to the file.
    pub(crate) fn finish(self) -> Result<()> {
        let Self { guard, failure, path } = self;
        drop(guard);
        let failure = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), Err).with_context(|| format!("cannot write the trace to {}", path.display()))
    }
}

/// A writer that stores its first error instead of returning it, since the tracing thread panics on errors.
struct Sink {
    file: BufWriter<File>,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl Sink {
    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            *failure = write(&mut self.file).err();
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|file| file.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(Write::flush);
        Ok(())
    }
}
