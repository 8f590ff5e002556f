//! Loaders over map-style datasets, with any options, that are stopped, dropped and resumed at any point.

mod expected;
mod what;

use slotline::loader::BuildError;

use self::expected::Expected;
use self::what::{How, What, build};
use crate::choices::Choices;
use crate::received::run_passes;

/// Runs passes of a loader as `run_passes` does. Their results must be those of a plain loop, and memory must stay within its
/// limit.
pub fn loader(data: &[u8]) {
    let mut choices = Choices::new(data);
    let what = What::choose(&mut choices);
    let mut expected = Expected::new(&what);
    let build = |choices: &mut Choices<'_>| match build(&what, &How::choose(&what, choices)) {
        Ok(built) => Some(built),
        Err(BuildError::Sampler(_)) if what.items.faults.is_empty() => None,
        Err(error) => panic!("{error}"),
    };
    run_passes(&mut choices, &what, what.epochs, || expected.pass(), build);
}
