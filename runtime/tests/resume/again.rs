//! Tests that a loader can resume from any state at any time: before a pass, during one, or after
//! one was dropped or leaked; from its own states and those of other loaders; and repeatedly from
//! the same state.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::dataset::from_fn;
use slotline::loader::{Batch, BatchOf, State};
use slotline::rng::{Generator, SharedGenerator};
use slotline::{Error, Loader};

use crate::orders::*;
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
        prop_assume!(!WITHOUT_SAVE.contains(&what.from));
        let whole = uninterrupted(&what);
        let with = |how: &How| How { workers: how.workers.max(usize::from(what.persistent)), ..how.clone() };
        let mut hows = hows.iter().map(with).cycle();
        let mut loader = build(&what, &hows.next().unwrap());
        // `at` is the number of batches of the next pass that were delivered before.
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

#[test]
fn the_next_pass_can_be_given_a_number() {
    let numbers = || from_fn(10, |index, cx| Ok((index as i64, cx.epoch())));
    let generator = || SharedGenerator::from(Generator::from_seed(42));
    let build = |generator: &SharedGenerator| {
        Loader::builder(numbers())
            .batch_size(4)
            .shuffle(true)
            .num_workers(1)
            .generator(generator.clone())
            .build()
            .unwrap()
    };
    let read = |batch: Result<Batch<(i64, u32)>, Error>| {
        let batch = batch.unwrap();
        let (numbers, epochs) = batch.tensors();
        assert!(epochs.as_slice().iter().all(|&epoch| epoch == batch.epoch()));
        (batch.epoch(), batch.batch_index(), numbers.as_slice().to_vec())
    };
    let mut whole = build(&generator());
    let passes: Vec<Vec<_>> = (0..3).map(|_| whole.epoch().unwrap().map(read).collect()).collect();

    let shared = generator();
    let (mut first, mut second) = (build(&shared), build(&shared));
    assert_eq!(first.state().seed(), Some(42));
    assert!(first.epoch().unwrap().map(read).eq(passes[0].clone()));
    // Load a state in the middle of a pass, and then one from which the loader does not resume.
    second.load_state(&first.state()).unwrap();
    second.set_next_epoch(1);
    second.begin_epoch().unwrap();
    assert_eq!(read(second.next_batch().unwrap()), passes[1][0]);
    second.set_next_epoch(2);
    assert!(second.next_batch().is_none(), "the pass was abandoned");
    assert_eq!((second.state().epoch(), second.state().batches()), (2, 0));
    assert!(second.epoch().unwrap().map(read).eq(passes[2].clone()));
}
