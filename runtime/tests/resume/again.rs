//! A loader resumes from any state at any time: before a pass, during one, or after one was dropped or leaked; from its own states
//! and those of other loaders; and repeatedly from the same state.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::Loader;
use slotline::loader::{BatchOf, State};

use crate::resumed::*;

/// An operation on a loader.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Begins a pass, takes this many batches, and drops the pass, or leaks it if the flag is set.
    Pass(usize, bool),
    /// Saves the loader's state.
    Save,
    /// Loads one of the saved states, into this loader if the flag is set and into a new one otherwise.
    Load(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_usize..14, any::<bool>()).prop_map(|(most, leaks)| Step::Pass(most, leaks)),
        2 => Just(Step::Save),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(state, here)| Step::Load(state, here)),
    ]
}

/// Takes up to `most` batches of a pass, and compares them with those of an uninterrupted run.
fn pass(loader: &mut Loader<BatchOf<Items>>, whole: &[Outcome], at: usize, most: usize, leaks: bool) -> State {
    let epoch = loader.next_epoch();
    let mut pass = loader.epoch().unwrap();
    let rest: Vec<Outcome> = whole.iter().filter(|outcome| outcome.key().0 == epoch).skip(at).cloned().collect();
    for want in rest.iter().take(most) {
        assert_eq!(&Outcome::new(epoch, pass.next().unwrap()), want);
    }
    if rest.len() < most {
        assert!(pass.next().is_none());
    }
    let state = pass.state();
    if leaks {
        std::mem::forget(pass);
    } else {
        drop(pass);
    }
    assert_eq!(loader.state(), state);
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_loader_resumes_from_any_state_at_any_time(
        what in what(),
        hows in vec(how(true), 1..4),
        steps in vec(step(), 1..14),
    ) {
        let what = What { epochs: 15, ..what };
        prop_assume!(!FORGETFUL.contains(&what.from));
        let whole = uninterrupted(&what);
        let with = |how: &How| How { workers: how.workers.max(usize::from(what.persistent)), ..how.clone() };
        let mut hows = hows.iter().map(with).cycle();
        let mut loader = build(&what, &hows.next().unwrap());
        // The number of batches of the next pass that were delivered before.
        let (mut at, mut states) = (0, Vec::<State>::new());
        for step in steps {
            match step {
                Step::Pass(most, leaks) => {
                    states.push(pass(&mut loader, &whole, at, most, leaks));
                    at = 0;
                }
                Step::Save => states.push(loader.state()),
                Step::Load(state, here) if !states.is_empty() => {
                    if !here {
                        loader = build(&what, &hows.next().unwrap());
                    }
                    let state = &states[state % states.len()];
                    loader.load_state(state).unwrap();
                    prop_assert_eq!(&loader.state(), state);
                    at = state.batches();
                }
                Step::Load(..) => {}
            }
        }
    }
}
