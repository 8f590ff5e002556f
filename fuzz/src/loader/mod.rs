//! Targets for loaders with any options, over map-style datasets and streams. The loaders are
//! stopped, dropped and resumed at any point.

mod expected;
mod received;
mod what;

use slotline::loader::BuildError;

use self::expected::Expected;
use self::received::run_passes;
pub(crate) use self::received::{MAX_TEXT, check_row, pixels, text};
pub(crate) use self::what::Items;
use self::what::{From, What};
use crate::choices::Choices;

/// Runs passes of a loader with `run_passes`. The results must equal those of a plain loop, and
/// memory must stay within its limit.
pub fn loader(data: &[u8]) {
    run(data, What::choose);
}

/// Runs passes of a loader over a stream with `run_passes`. The results must equal those of a plain
/// loop over the workers' shares.
pub fn iterable(data: &[u8]) {
    run(data, What::choose_stream);
}

fn run(data: &[u8], choose: impl FnOnce(&mut Choices<'_>) -> What) {
    let mut choices = Choices::new(data);
    let what = choose(&mut choices);
    let mut expected = Expected::new(&what);
    let build = |choices: &mut Choices<'_>| match what.build(choices) {
        Ok(built) => Some(built),
        Err(BuildError::Sampler(_)) if what.items.faults.is_empty() && !matches!(what.from, From::Stream(_)) => None,
        Err(error) => panic!("{error}"),
    };
    run_passes(&mut choices, &what, what.epochs, || expected.pass(), build);
}
