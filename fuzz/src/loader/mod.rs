//! Loaders over map-style datasets, with any options, that are stopped, dropped and resumed at any point.

mod expected;
mod what;

use slotline::Loader;
use slotline::loader::{BatchOf, BuildError, State};

use self::expected::Expected;
use self::what::{How, Items, What, build};
use crate::came::{Holder, Outcome, Schema};
use crate::choices::Choices;

/// Runs some passes as `data` says, abandons some of them, and resumes some with another loader. Checks that the batches are
/// those of a plain loop, that they do not change while they are held, and that memory stays within its limit.
pub fn loader(data: &[u8]) {
    let mut choices = Choices::new(data);
    let what = What::choose(&mut choices);
    let mut how = How::choose(&what, &mut choices);
    let mut loader = match build(&what, &how) {
        Ok(loader) => loader,
        Err(error) => return check_error(&what, &error),
    };
    let mut holder = Holder::new(how.hold, how.on_held, &mut choices);
    let mut expected = Expected::new(&what);
    for epoch in 0..what.epochs {
        let mut left = expected.pass();
        loop {
            assert_eq!(loader.next_epoch(), epoch);
            let most = if choices.one_in(3) { choices.below(left.len() + 2) } else { usize::MAX };
            let (Outcome { received, ended }, state) = pass(&mut loader, &mut holder, most, &mut choices);
            for it in received {
                let place = left.iter().position(|other| other.task() == it.task());
                assert!(!how.in_order || place.is_none_or(|place| place == 0), "{it:?} before {:?}", left[0]);
                assert_eq!(place.map(|place| left.remove(place)), Some(it));
            }
            assert!(!ended || left.is_empty(), "never received: {left:?}\n{how:?} of {what:?}");
            if !choices.one_in(if ended { 8 } else { 2 }) {
                break;
            }
            holder.empty(&mut choices);
            drop(loader);
            how = How::choose(&what, &mut choices);
            loader = build(&what, &how).expect("the options were accepted before");
            holder = Holder::new(how.hold, how.on_held, &mut choices);
            loader.load_state(&stored(&state)).expect("a state of an equal loader");
            if ended {
                break;
            }
        }
    }
    drop(loader);
    holder.empty(&mut choices);
}

/// Serializes a state and reads it back.
fn stored(state: &State) -> State {
    let json = serde_json::to_string(state).expect("a state");
    let read = serde_json::from_str(&json).expect("a state");
    assert_eq!(*state, read);
    read
}

/// Checks that there is a reason for the error of a loader that cannot be built.
fn check_error(what: &What, error: &BuildError) {
    match error {
        BuildError::Sampler(_) => assert!(what.items.faults.is_empty()),
        error => panic!("{error}"),
    }
}

/// Takes up to `most` batches of a pass, and abandons it if there are more. Returns the results and the state after them.
fn pass(
    loader: &mut Loader<BatchOf<Items>>,
    holder: &mut Holder<Schema>,
    most: usize,
    choices: &mut Choices<'_>,
) -> (Outcome, State) {
    let mut pass = loader.epoch().expect("a pass");
    let given = holder.take(&mut pass, most, true, choices);
    let state = pass.state();
    drop(pass);
    assert_eq!(loader.state(), state, "dropping a pass changed the state");
    (given, state)
}
