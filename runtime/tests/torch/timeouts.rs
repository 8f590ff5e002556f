//! Tests of waits that time out. Waits with their own limit, and dropping a loader, are tested in
//! `tests/loader/timeouts.rs`.

use std::time::Duration;

use slotline::{Error, worker_info};

use crate::support::Latch;
use crate::{KINDS, Kind, Options, Outcomes, Passes, nothing};

/// A short timeout, for waits that must time out.
const SHORT: Duration = Duration::from_millis(20);

/// Builds a loader with a timeout and one worker, which waits at the latch when it reads `number`.
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

/// Returns the next outcome that is not a timeout. On a busy machine any batch may be late.
fn without_timeouts<T>(mut next: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match next() {
            Err(Error::Timeout { .. }) => {}
            outcome => return outcome.unwrap(),
        }
    }
}

/// Begins a pass, retrying after timeouts.
fn begin<T>(loader: &mut dyn Passes, body: impl FnOnce(Outcomes<'_, Vec<i64>>) -> T) -> T {
    loop {
        match loader.pass() {
            Err(Error::Timeout { .. }) => {}
            pass => return body(pass.unwrap()),
        }
    }
}

/// Returns the batches of a pass, ignoring timeouts.
fn all(mut pass: Outcomes<'_, Vec<i64>>) -> Vec<Vec<i64>> {
    let on_time = pass.by_ref().filter(|outcome| !matches!(outcome, Err(Error::Timeout { .. })));
    on_time.map(Result::unwrap).collect()
}

#[test]
fn a_timeout_names_the_sample_that_each_worker_reads() {
    for kind in KINDS {
        for in_order in [true, false] {
            let latch = Latch::default();
            let mut loader = stuck_at(kind, 5, in_order, &latch);
            let mut pass = loader.pass().unwrap();
            let mut good = || without_timeouts(|| pass.next().unwrap());
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
            let mut good = || without_timeouts(|| pass.next().unwrap());
            assert_eq!([good(), good(), good(), good()], [[4, 5], [6, 7], [8, 9], [10, 11]]);
            assert!(pass.next().is_none());
        }
    }
}

#[test]
fn epoch_times_out_while_a_worker_is_stuck() {
    for kind in KINDS {
        let latch = Latch::default();
        let mut loader = stuck_at(kind, 5, true, &latch);
        let mut pass = loader.pass().unwrap();
        let mut good = || without_timeouts(|| pass.next().unwrap());
        assert_eq!([good(), good()], [[0, 1], [2, 3]]);
        latch.until_waiting(1);
        drop(pass);
        for _ in 0..2 {
            let error = loader.pass().err().unwrap();
            assert!(
                matches!(&error, Error::Timeout { task: 2, busy, .. } if busy[..] == [(0, 5)]),
                "{kind:?}: {error}"
            );
        }
        latch.open();
        let batches = begin(&mut *loader, all);
        assert!(batches.concat().into_iter().eq(0..12) && batches.len() == 6);
    }
}

#[test]
fn a_timeout_beyond_any_clock_never_expires() {
    for kind in KINDS {
        let options = Options { workers: 1, timeout: Duration::MAX, ..Options::default() };
        let mut loader = options.build(kind, nothing);
        assert_eq!(loader.whole(), options.expected(kind));
        assert_eq!(loader.pass().unwrap().take(2).filter(Result::is_ok).count(), 2);
        assert_eq!(loader.whole(), options.expected(kind));
    }
}
