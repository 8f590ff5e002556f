//! The loop of `feed` and `order`: it counts every batch of every pass, and keeps as many of the
//! newest ones as requested.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use slotline::Loader;
use slotline::loader::{Batch, Pass};
use slotline::sample::Schema;
use slotline_demo::meter::{Meter, Tally};

use crate::screen::Screen;

/// What a command does with each batch and each pass.
pub(crate) trait Step {
    /// Handles a batch of a pass, as a training step would.
    fn batch<S: Schema>(&mut self, screen: &mut Screen, batch: &Batch<S>, pass: &Pass<'_, Batch<S>>) -> Result<()>;

    /// Handles the end of a pass.
    fn pass(&mut self, screen: &mut Screen, epoch: u32, tally: &Tally) -> Result<()> {
        let _ = (screen, epoch, tally);
        Ok(())
    }
}

/// Runs the remaining passes up to `epochs`. The loop keeps the newest `hold` batches, and drops
/// the oldest of them before it requests the next batch.
pub(crate) fn stream<S: Schema>(
    loader: &mut Loader<Batch<S>>,
    epochs: u32,
    hold: usize,
    meter: &mut Meter,
    screen: &mut Screen,
    step: &mut impl Step,
) -> Result<()> {
    let passes = loader.next_epoch()..epochs;
    screen.expect(loader.len().unwrap_or_default() as u64 * passes.len() as u64);
    let mut kept = VecDeque::with_capacity(hold);
    for epoch in passes {
        meter.begin();
        let mut pass = meter.waiting(|| loader.epoch()).context("cannot start a pass")?;
        while let Some(batch) = meter.waiting(|| pass.next()) {
            let batch = batch.with_context(|| format!("epoch {epoch} stopped"))?;
            meter.count(&batch);
            screen.progress(meter.batches());
            step.batch(screen, &batch, &pass)?;
            kept.push_back(batch);
            kept.drain(..(kept.len() + 1).saturating_sub(hold));
        }
        drop(pass);
        let tally = meter.end();
        step.pass(screen, epoch, &tally)?;
    }
    screen.clear();
    Ok(())
}
