//! Loaders over datasets by index: whatever their options, wherever they are stopped, left and gone on with.

mod expected;
mod what;

use slotline::Loader;
use slotline::loader::{BatchOf, BuildError, State};

use self::expected::Expected;
use self::what::{How, Items, What, build};
use crate::came::{Given, Hands, Schema};
use crate::choices::Choices;

/// Runs some passes as `data` says, given up here, and gone on with by another loader there, and checks that what comes is
/// what a plain loop gives, that it does not change while it is held, and that memory keeps to its limit.
pub fn loader(data: &[u8]) {
    let mut choices = Choices::new(data);
    let what = What::choose(&mut choices);
    let mut how = How::choose(&what, &mut choices);
    let mut loader = match build(&what, &how) {
        Ok(loader) => loader,
        Err(error) => return refused(&what, &error),
    };
    let mut hands = Hands::new(how.hold, how.on_held, &mut choices);
    let mut expected = Expected::new(&what);
    for epoch in 0..what.epochs {
        let mut left = expected.pass();
        loop {
            assert_eq!(loader.next_epoch(), epoch);
            let most = if choices.one_in(3) { choices.below(left.len() + 2) } else { usize::MAX };
            let (Given { came, ended }, state) = pass(&mut loader, &mut hands, most, &mut choices);
            for it in came {
                let place = left.iter().position(|other| other.task() == it.task());
                assert!(!how.in_order || place.is_none_or(|place| place == 0), "{it:?} before {:?}", left[0]);
                assert_eq!(place.map(|place| left.remove(place)), Some(it));
            }
            assert!(!ended || left.is_empty(), "these never came: {left:?}\n{how:?} of {what:?}");
            if !choices.one_in(if ended { 8 } else { 2 }) {
                break;
            }
            hands.empty(&mut choices);
            drop(loader);
            how = How::choose(&what, &mut choices);
            loader = build(&what, &how).expect("the same as before");
            hands = Hands::new(how.hold, how.on_held, &mut choices);
            loader.load_state(&stored(&state)).expect("of such a loader");
            if ended {
                break;
            }
        }
    }
    drop(loader);
    hands.empty(&mut choices);
}

/// A state that was written and read.
fn stored(state: &State) -> State {
    let json = serde_json::to_string(state).expect("a state");
    let read = serde_json::from_str(&json).expect("a state");
    assert_eq!(*state, read);
    read
}

/// Checks that there is a reason not to build a loader.
fn refused(what: &What, error: &BuildError) {
    match error {
        BuildError::Sampler(_) => assert!(what.items.faults.is_empty()),
        error => panic!("{error}"),
    }
}

/// Takes up to `most` batches of a pass, which is then given up if there are more. What came, and where that is.
fn pass(
    loader: &mut Loader<BatchOf<Items>>,
    hands: &mut Hands<Schema>,
    most: usize,
    choices: &mut Choices<'_>,
) -> (Given, State) {
    let mut pass = loader.epoch().expect("a pass");
    let given = hands.take(&mut pass, most, true, choices);
    let state = pass.state();
    drop(pass);
    assert_eq!(loader.state(), state, "a pass that is dropped stays where it was");
    (given, state)
}
