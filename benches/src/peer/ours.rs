//! slotline.

use std::time::Instant;

use anyhow::{Result, ensure};
use slotline::dataset::Dataset;
use slotline::loader::BatchOf;
use slotline::loader::Builder;

use crate::record::Kind;
use crate::rounds::{Contender, Entry, Pass};

/// slotline's entry.
pub fn entry(contender: Result<impl Contender + 'static>) -> Entry {
    Entry::new("slotline", Kind::Ours, contender).package()
}

/// slotline's entry with an option set, which `what` says.
pub fn variant(what: &str, contender: Result<impl Contender + 'static>) -> Entry {
    Entry::new(format!("slotline, {what}"), Kind::Variant, contender)
}

/// A loader that went through one pass, in which `verify` looked at every byte. A pass has so many batches, and what `check`
/// says of them adds up to `total`.
///
/// # Errors
///
/// If the loader can't be built, or that pass fails.
pub fn contender<D: Dataset>(
    builder: Builder<D>,
    (batches, total): (f64, u64),
    check: impl Fn(&BatchOf<D>) -> u64,
    verify: impl Fn(&BatchOf<D>) -> Result<()>,
) -> Result<impl Contender> {
    let mut loader = builder.build()?;
    for batch in loader.epoch()? {
        verify(&batch?)?;
    }
    Ok(move || {
        let mut sum = 0;
        let start = Instant::now();
        for batch in loader.epoch()? {
            sum += check(&batch?);
        }
        let seconds = start.elapsed().as_secs_f64();
        ensure!(sum == total, "the check sum is {sum}, not {total}");
        Ok(Pass { batches, seconds })
    })
}
