//! Waits that are given up. Of loaders with one ring see `tests/timeouts.rs`.

use std::time::Duration;

use slotline::{Error, Loader, worker_info};

use crate::support::{Gone, Latch};
use crate::workers::with_init;
use crate::{KINDS, Kind, Options, Outcomes, Passes, nothing, numbers, stream, values};

/// Short against a latch that stays closed.
const SHORT: Duration = Duration::from_millis(20);

/// A loader with a timeout, one worker, and a number at which a worker waits at the latch.
fn stuck_at(kind: Kind, number: usize, in_order: bool, latch: &Latch) -> Box<dyn Passes> {
    let stuck = latch.clone();
    let options = Options { len: 12, batch_size: 2, workers: 1, prefetch: 3, in_order, ..Options::default() };
    Options { timeout: SHORT, ..options }.build(kind, move |at| {
        if at == number && worker_info().is_some() {
            stuck.wait();
        }
        Ok(())
    })
}

/// The next outcome that is no timeout: a busy machine may be late with anything.
fn patiently<T>(mut next: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match next() {
            Err(Error::Timeout { .. }) => {}
            outcome => return outcome.unwrap(),
        }
    }
}

/// Begins a pass, likewise.
fn begin<T>(loader: &mut dyn Passes, body: impl FnOnce(Outcomes<'_, Vec<i64>>) -> T) -> T {
    loop {
        match loader.pass() {
            Err(Error::Timeout { .. }) => {}
            pass => return body(pass.unwrap()),
        }
    }
}

/// All of its batches, timeouts left out.
fn all(mut pass: Outcomes<'_, Vec<i64>>) -> Vec<Vec<i64>> {
    let on_time = pass.by_ref().filter(|outcome| !matches!(outcome, Err(Error::Timeout { .. })));
    on_time.map(Result::unwrap).collect()
}

#[test]
fn a_wait_for_a_batch_is_given_up_after_the_timeout_with_who_reads_what_and_asking_again_waits_again() {
    for kind in KINDS {
        for in_order in [true, false] {
            let latch = Latch::default();
            let mut loader = stuck_at(kind, 5, in_order, &latch);
            let mut pass = loader.pass().unwrap();
            let mut good = || patiently(|| pass.next().unwrap());
            assert_eq!([good(), good()], [[0, 1], [2, 3]]);
            latch.until_waiting(1);
            for _ in 0..2 {
                let error = pass.next().unwrap().unwrap_err();
                assert!(
                    matches!(&error, Error::Timeout { after: SHORT, task: 2, busy } if busy[..] == [(0, 5)]),
                    "{kind:?}, in order: {in_order}: {error}"
                );
                let text = "loader timed out after 0.02 seconds waiting for batch 2: worker 0 is reading sample 5";
                assert_eq!(error.to_string(), text);
            }
            latch.open();
            let mut good = || patiently(|| pass.next().unwrap());
            assert_eq!([good(), good(), good(), good()], [[4, 5], [6, 7], [8, 9], [10, 11]]);
            assert!(pass.next().is_none());
        }
    }
}

#[test]
fn a_pass_cannot_begin_while_a_worker_is_stuck_in_the_one_before_and_says_so() {
    for kind in [Kind::Dealt, Kind::Iterable] {
        let latch = Latch::default();
        let mut loader = stuck_at(kind, 5, true, &latch);
        let mut pass = loader.pass().unwrap();
        assert_eq!(patiently(|| pass.next().unwrap()), [0, 1]);
        latch.until_waiting(1);
        drop(pass);
        for _ in 0..2 {
            let error = loader.pass().err().unwrap();
            assert!(matches!(&error, Error::Timeout { busy, .. } if busy[..] == [(0, 5)]), "{kind:?}: {error}");
        }
        latch.open();
        let batches = begin(&mut *loader, all);
        assert!(batches.concat().into_iter().eq(0..12) && batches.len() == 6);
    }
}

#[test]
fn a_pass_cannot_begin_while_a_worker_init_is_stuck_and_says_so() {
    for kind in KINDS {
        let latch = Latch::default();
        let stuck = latch.clone();
        let init = move |_| {
            stuck.wait();
            Ok(())
        };
        let options = Options { len: 12, batch_size: 2, timeout: SHORT, ..Options::default() };
        let mut loader = with_init(kind, &options, nothing, init);
        for _ in 0..2 {
            let error = loader.pass().err().unwrap();
            assert!(matches!(error, Error::Timeout { .. }), "{kind:?}: {error}");
        }
        latch.open();
        let batches = begin(&mut *loader, all);
        assert_eq!(batches, options.expected(kind));
    }
}

#[test]
fn a_timeout_beyond_any_clock_is_none_for_a_ring_of_each_worker_too() {
    let mut dealt =
        Loader::builder(numbers(9, nothing)).num_workers(1).timeout(Duration::MAX).round_robin(true).build().unwrap();
    let mut iterable = Loader::iterable(stream(9, nothing)).num_workers(1).timeout(Duration::MAX).build().unwrap();
    for _ in 0..2 {
        assert!(dealt.whole().concat().into_iter().eq(0..9));
        assert!(iterable.whole().concat().into_iter().eq(0..9));
    }
}

#[test]
fn a_loader_dropped_with_a_worker_stuck_in_an_iterable_leaves_it_behind_with_its_memory() {
    let latch = Latch::default();
    let gone = Gone::default();
    let (stuck, told) = (latch.clone(), gone.telltale());
    let dataset = stream(8, move |number| {
        assert!(!told.is_gone(), "the dataset is there while a worker runs it");
        if number == 3 {
            stuck.wait();
        }
        Ok(())
    });
    let mut loader = Loader::iterable(dataset).batch_size(2).num_workers(1).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    let batch = pass.next().unwrap().unwrap();
    // Not before: a worker does not begin what nobody waits for.
    latch.until_waiting(1);
    drop(pass);
    // Returns, after GRACE.
    drop(loader);
    assert!(!gone.is_gone());
    // The worker now writes its row, into memory that is still there.
    latch.open();
    gone.until();
    assert_eq!(values(&batch), [0, 1]);
}
