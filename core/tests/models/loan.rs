//! Models of [`Loan`] alone: a value that an owner lends to a borrower, and that the last of the
//! two frees. Here the value is a counter whose accesses loom checks, and a write stands for
//! freeing it.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use slotline_core::loan::Loan;
use slotline_core::wait::Futex;

use super::support::{LoomFutex, explore};

struct Thing {
    loan: Loan,
    value: UnsafeCell<usize>,
    freed: AtomicUsize,
    fences: LoomFutex,
}

impl Thing {
    fn new(loan: Loan) -> Arc<Self> {
        let (value, freed, fences) = (UnsafeCell::new(0), AtomicUsize::new(0), LoomFutex::default());
        Arc::new(Self { loan, value, freed, fences })
    }

    fn read(&self) -> usize {
        // SAFETY: loom reports a write that happens at the same time.
        self.value.with(|value| unsafe { *value })
    }

    fn write(&self) {
        // SAFETY: loom reports any other access that happens at the same time.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn free_if(&self, last: bool) {
        if last {
            self.write();
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Acts as the borrower: changes the value and gives it back.
    fn use_and_give_back(&self) {
        self.write();
        self.free_if(self.loan.give_back(|| self.fences.light_fence()));
    }

    /// Acts as an owner that gives up the value while it is lent.
    fn abandon(&self) {
        let fence = || {
            self.fences.heavy_fence();
            true
        };
        let pause = || {
            thread::yield_now();
            true
        };
        self.free_if(self.loan.abandon(fence, pause));
    }
}

#[test]
fn the_one_that_is_last_frees_the_thing() {
    explore(4, || {
        let thing = Thing::new(Loan::new(true));
        assert!(thing.loan.take());
        thing.write();
        thing.loan.lend();
        let borrower = thread::spawn({
            let thing = thing.clone();
            move || thing.use_and_give_back()
        });
        thing.abandon();
        borrower.join().unwrap();
        assert_eq!(thing.freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_thing_that_came_back_is_lent_again() {
    explore(4, || {
        let thing = Thing::new(Loan::new(false));
        let lend = |thing: &Arc<Thing>| {
            thing.write();
            thing.loan.lend();
            let thing = thing.clone();
            thread::spawn(move || thing.use_and_give_back())
        };
        let first = lend(&thing);
        let second = thing.loan.take().then(|| lend(&thing));
        thing.abandon();
        first.join().unwrap();
        second.into_iter().for_each(|second| second.join().unwrap());
        assert_eq!(thing.freed.load(Ordering::Relaxed), 1);
    });
}

/// Without the fences, it may happen that neither side frees the value, but never that both do. In
/// this model, the owner also writes a note after it has lent the value, which the borrower must
/// see if it frees the value.
#[test]
fn without_fences_a_thing_may_be_lost_but_is_not_freed_early_or_twice() {
    explore(4, || {
        let (thing, notes) = (Thing::new(Loan::new(false)), Arc::new(UnsafeCell::new(0)));
        // SAFETY: loom reports any other access that happens at the same time.
        let note = |notes: &UnsafeCell<usize>| notes.with_mut(|notes| unsafe { *notes += 1 });
        thing.loan.lend();
        let borrower = thread::spawn({
            let (thing, notes) = (thing.clone(), notes.clone());
            move || {
                thing.write();
                let last = thing.loan.give_back(|| ());
                if last {
                    note(&notes);
                }
                thing.free_if(last);
            }
        });
        let leaving = || {
            note(&notes);
            true
        };
        let pause = || {
            thread::yield_now();
            true
        };
        thing.free_if(thing.loan.abandon(leaving, pause));
        borrower.join().unwrap();
        assert!(thing.freed.load(Ordering::Relaxed) <= 1);
    });
}

#[test]
fn a_thing_without_an_owner_is_freed_by_its_borrower() {
    explore(1, || {
        let thing = Thing::new(Loan::without_owner());
        thing.use_and_give_back();
        assert_eq!((thing.freed.load(Ordering::Relaxed), thing.read()), (1, 2));
    });
}
