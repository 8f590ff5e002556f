//! A loader goes on from whatever state it is given, whatever it was about: before a pass, in one, or in one that was
//! dropped or leaked, from states of its own and of others, and from the same one again.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::Loader;
use slotline::loader::{BatchOf, State};

use crate::resumed::*;

/// What is done with a loader.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Begins a pass, and takes so many batches of it; then it is dropped, or leaked.
    Pass(usize, bool),
    /// Notes the loader's state.
    Save,
    /// Goes on from one of the states, in this loader or in the next one.
    Load(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_usize..14, any::<bool>()).prop_map(|(most, leaks)| Step::Pass(most, leaks)),
        2 => Just(Step::Save),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(state, here)| Step::Load(state, here)),
    ]
}

/// Takes a pass's first batches; what comes must be what comes there in a run that nobody disturbs.
fn pass(loader: &mut Loader<BatchOf<Items>>, whole: &[Came], at: usize, most: usize, leaks: bool) -> State {
    let epoch = loader.next_epoch();
    let mut pass = loader.epoch().unwrap();
    let rest: Vec<Came> = whole.iter().filter(|came| came.key().0 == epoch).skip(at).cloned().collect();
    for want in rest.iter().take(most) {
        assert_eq!(&Came::new(epoch, pass.next().unwrap()), want);
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
    fn any_state_is_gone_on_from_at_any_time(
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
        // How much of the next pass was delivered before.
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
