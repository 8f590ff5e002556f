//! Models of [`Park`](slotline_core::wait::Park) alone, with a condition that is ordered only by
//! the fences.

use std::cell::Cell;
use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use slotline_core::wait::{Never, Wait};

use super::support::{Looks, Parking, explore};

/// Two conditions that a thread can wait for, and which of them the sleeping thread waits for. All
/// accesses are relaxed, so that the model depends only on `Park`'s own orderings.
#[derive(Default)]
struct Shared {
    park: Parking,
    done: [AtomicUsize; 2],
    wanted: AtomicUsize,
}

impl Shared {
    fn is_done(&self, index: usize) -> bool {
        self.done[index].load(Ordering::Relaxed) == 1
    }

    fn finish(&self, index: usize) {
        self.done[index].store(1, Ordering::Relaxed);
    }
}

#[test]
fn a_sleeper_is_woken_by_the_change_it_waits_for() {
    explore(4, || {
        let shared = Arc::new(Shared::default());
        let other = shared.clone();
        let notifier = thread::spawn(move || {
            other.finish(0);
            other.park.notify(|| true);
        });
        assert!(shared.park.wait_until(&Never, || shared.is_done(0)));
        notifier.join().unwrap();
    });
}

#[test]
fn one_change_wakes_every_sleeper() {
    explore(3, || {
        let shared = Arc::new(Shared::default());
        let sleeper =
            |shared: Arc<Shared>| thread::spawn(move || assert!(shared.park.wait_until(&Never, || shared.is_done(0))));
        let sleepers = [sleeper(shared.clone()), sleeper(shared.clone())];
        shared.finish(0);
        shared.park.notify(|| true);
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

/// Two threads make one condition true each, and wake the sleeping thread only if it waits for that
/// condition.
#[test]
fn a_notifier_that_declines_sees_what_the_sleeper_wants() {
    explore(3, || {
        let shared = Arc::new(Shared::default());
        let notifier = |index: usize| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.finish(index);
                shared.park.notify(|| shared.wanted.load(Ordering::Relaxed) == index);
            })
        };
        let notifiers = [0, 1].map(notifier);
        for index in [1, 0] {
            shared.wanted.store(index, Ordering::Relaxed);
            assert!(shared.park.wait_until(&Never, || shared.is_done(index)));
        }
        notifiers.into_iter().for_each(|notifier| notifier.join().unwrap());
    });
}

#[test]
fn a_wait_that_times_out_does_not_affect_the_next_one() {
    explore(3, || {
        let shared = Arc::new(Shared::default());
        let other = shared.clone();
        let notifier = thread::spawn(move || {
            other.finish(0);
            other.park.notify(|| true);
        });
        if !shared.park.wait_until(&Looks(Cell::new(2)), || shared.is_done(0)) {
            assert!(shared.park.wait_until(&Never, || shared.is_done(0)));
        }
        notifier.join().unwrap();
    });
}
