//! Tests that loaders resume from a state as if they had not been interrupted, for any source of
//! indices, point of interruption and options.

use proptest::prelude::*;
use slotline::loader::Warning;
use slotline::{Error, Loader};

use crate::orders::*;
use crate::resumed::*;
use crate::support::{HAS_PROCESSES, Latch, Resizable, Workers, stuck, worker_kinds};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn an_interrupted_run_equals_an_uninterrupted_one(what in what(), parts in parts(true), last in how(true)) {
        prop_assert_eq!(interrupted(&what, &parts, &last), uninterrupted(&what));
    }

    #[test]
    fn out_of_order_each_batch_arrives_once(what in what(), parts in parts(false), last in how(true)) {
        let mut delivered = interrupted(&what, &parts, &last);
        delivered.sort_by_key(Outcome::key);
        prop_assert_eq!(delivered, uninterrupted(&what));
    }
}

#[test]
fn orders_that_cannot_be_saved_are_fast_forwarded() {
    for from in WITHOUT_SAVE {
        let (what, state) = state_of(from);
        let how = How {
            workers: 2,
            prefetch: 2,
            part_size: None,
            hold: 1,
            in_order: true,
            round_robin: false,
            processes: false,
        };
        let mut loader = build(&what, &how);
        loader.load_state(&state).unwrap();
        assert!(matches!(loader.warnings(), [Warning::FastForward { .. }]), "{:?}", loader.warnings());
        assert!(loader.epoch().unwrap().next().is_some());
        let error = loader.load_state(&state).unwrap_err();
        assert_eq!(error.field(), "epoch", "{error}");
        assert!(error.to_string().contains("new loader"), "{error}");
    }
    for from in ALL.into_iter().filter(|from| !WITHOUT_SAVE.contains(from)) {
        let (what, state) = state_of(from);
        let how = How {
            workers: 0,
            prefetch: 2,
            part_size: None,
            hold: 1,
            in_order: true,
            round_robin: false,
            processes: false,
        };
        let mut loader = build(&what, &how);
        loader.load_state(&state).unwrap();
        assert!(loader.warnings().is_empty(), "{from:?}: {:?}", loader.warnings());
    }
}

#[test]
fn a_loader_with_a_collate_function_resumes() {
    let build = |workers| {
        let builder = Loader::builder(Items { len: 11, sleeps: false }).batch_size(2).shuffle(true).seed(1);
        let sum = |samples: &mut slotline::loader::Samples<'_, Items>| {
            let mut sum = 0;
            while let Some(sample) = samples.next() {
                sum += sample?.0;
            }
            Ok(sum)
        };
        builder.num_workers(workers).hold(4).collate(sum).build().unwrap()
    };
    let whole: Vec<i64> = build(0).epoch().unwrap().map(Result::unwrap).collect();
    for cut in 0..=whole.len() {
        let (mut before, mut after) = (build(2), build(1));
        let mut pass = before.epoch().unwrap();
        let mut delivered: Vec<i64> = pass.by_ref().take(cut).map(Result::unwrap).collect();
        after.load_state(&pass.state()).unwrap();
        let rest = after.epoch().unwrap();
        assert_eq!(rest.remaining(), Some(whole.len() - cut));
        delivered.extend(rest.map(Result::unwrap));
        assert_eq!(delivered, whole);
        assert_eq!(after.next_epoch(), 1);
    }
}

#[test]
fn a_timeout_does_not_count_as_a_delivered_batch() {
    for kind in worker_kinds([1]) {
        let latch = Latch::default();
        let dataset = stuck(8, &latch, |index, _| index == 5);
        let builder = Loader::builder(dataset).num_workers(1).timeout(std::time::Duration::from_millis(60));
        let mut loader = kind.build(builder).unwrap();
        let mut pass = loader.epoch().unwrap();
        // On a busy machine any batch may be late.
        assert_eq!(pass.by_ref().filter(Result::is_ok).take(5).count(), 5);
        assert!(matches!(pass.next(), Some(Err(Error::Timeout { task: 5, .. }))));
        assert_eq!(pass.state().batches(), 5);
        drop(pass);
        assert!(matches!(loader.epoch(), Err(Error::Timeout { .. })), "the worker is stuck");
        assert_eq!((loader.state().epoch(), loader.state().batches()), (0, 5), "the position must not change");
        latch.open();
    }
}

#[test]
fn a_timeout_names_a_missing_batch_of_the_state() {
    let kinds = [(true, true, false), (false, true, false), (true, false, false), (false, false, false)];
    let by_processes = [(true, false, HAS_PROCESSES), (false, false, HAS_PROCESSES)];
    for (in_order, round_robin, processes) in kinds.into_iter().chain(by_processes) {
        let latch = Latch::default();
        let dataset = stuck(20, &latch, |index, _| index == 3);
        let builder = Loader::builder(dataset).seed(1).num_workers(1).in_order(in_order);
        let builder = builder.timeout(std::time::Duration::from_millis(20));
        let (_, state) = state_of(From::Sequential);
        let mut state = serde_json::to_value(&state).unwrap();
        (state["dataset_len"], state["batch_size"], state["batches"]) = (20.into(), 1.into(), 6.into());
        (state["missing"], state["start"]["generator"]) = (vec![3, 4].into(), "1:0".into());
        let state = serde_json::from_value(state).unwrap();
        let mut loader = Workers { workers: 1, processes }.build(builder.round_robin(round_robin)).unwrap();
        loader.load_state(&state).unwrap();
        let got = loader.epoch().unwrap().next();
        latch.open();
        assert!(matches!(got, Some(Err(Error::Timeout { task: 3, .. }))), "{in_order} {round_robin} {got:?}");
    }
}

#[test]
fn an_epoch_that_timed_out_is_not_drawn_again() {
    let (what, state) = state_of(From::Shuffle);
    let latch = Latch::default();
    let gate = latch.clone();
    let init = move |_| {
        gate.wait();
        Ok(())
    };
    let builder = Loader::builder(Items { len: 40, sleeps: false }).batch_size(4).shuffle(true).seed(5);
    let builder = builder.num_workers(1).worker_init(init).timeout(std::time::Duration::from_millis(20));
    let mut loader = builder.build().unwrap();
    loader.load_state(&state).unwrap();
    for _ in 0..2 {
        assert!(matches!(loader.epoch(), Err(Error::Timeout { .. })));
        assert_eq!(loader.state(), state);
    }
    latch.open();
    let mut delivered = Vec::new();
    while loader.next_epoch() < what.epochs {
        let epoch = loader.next_epoch();
        if let Ok(pass) = loader.epoch() {
            delivered.extend(pass.map(|got| Outcome::new(epoch, got)));
        }
    }
    let whole = uninterrupted(&what);
    assert_eq!(delivered, whole[whole.len() - delivered.len()..]);
    assert_eq!(delivered.len(), 8 + 10);
}

#[test]
fn a_dataset_that_shrank_since_the_state_is_an_error() {
    let len = std::sync::Arc::new(9.into());
    let mut loader = Loader::builder(Resizable(std::sync::Arc::clone(&len))).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.by_ref().take(5).count(), 5);
    let state = pass.state();
    drop(pass);
    loader.load_state(&state).unwrap();
    len.store(4, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..2 {
        let error = loader.epoch().unwrap_err();
        assert!(error.to_string().contains("the state's batches is 5, but its pass has 4"), "{error}");
    }
    len.store(9, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(loader.epoch().unwrap().count(), 4);
}
