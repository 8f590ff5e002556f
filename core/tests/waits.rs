//! Tests of waiting through the operating system: threads yield their core, and deadlines are times
//! of the system's clock.
#![cfg(all(feature = "std", target_os = "linux"))]

use std::mem;
use std::time::{Duration, Instant};

use slotline_core::ordered::{Config, NextError, Ring, Slot};
use slotline_core::spsc;
use slotline_core::wait::{Backoff, Park, SystemFutex, Wait};

const MS: Duration = Duration::from_millis(1);

/// Returns the processor time that this thread has used, which does not depend on other load on the
/// machine.
fn used() -> Duration {
    // SAFETY: all zeroes are a valid `rusage`, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as _, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Keeps this thread, and those that it starts, on one core.
fn stay_on_one_core() {
    // SAFETY: all zeroes are a valid set, the calls only access the sets, and the core is in the
    // range of a set.
    unsafe {
        let (mut all, mut one): (libc::cpu_set_t, libc::cpu_set_t) = (mem::zeroed(), mem::zeroed());
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&all), &raw mut all), 0);
        let core = (0..libc::CPU_SETSIZE as usize).find(|&core| libc::CPU_ISSET(core, &all)).expect("a core");
        libc::CPU_SET(core, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
    }
}

fn ring<W: Wait>(wait: impl Fn() -> W) -> Ring<[Slot<usize>; 4], W> {
    Ring::inline_with_wait([const { Slot::new(0) }; 4], Config::new(), wait(), wait())
}

/// Takes 1000 tickets that two workers make on the same core as the consumer.
fn squares<W: Wait + Send + Sync>(ring: &Ring<[Slot<usize>; 4], W>) {
    let mut consumer = ring.consumer().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let worker = ring.worker();
            scope.spawn(move || {
                while let Ok(mut claim) = worker.claim(1) {
                    let square = claim.ticket() * claim.ticket();
                    *claim.get_mut().unwrap() = square;
                    claim.publish();
                }
            });
        }
        (0..1000).for_each(|ticket| assert_eq!(*consumer.next().unwrap(), ticket * ticket));
        ring.close();
    });
}

#[test]
fn threads_that_wait_give_their_core_away() {
    stay_on_one_core();
    let limit = |name, run: &dyn Fn()| {
        let before = used();
        run();
        // A thread that kept the core for its whole time slice would use a millisecond or more for
        // each ticket.
        assert!(used() - before < 300 * MS, "{name}: {:?}", used() - before);
    };
    limit("default", &|| squares(&Ring::inline([const { Slot::new(0) }; 4], Config::new())));
    limit("Park", &|| squares(&ring(|| Park::new(SystemFutex::new()))));
    limit("the default of the other ring", &|| {
        let (mut producer, mut consumer) = spsc::Ring::boxed(4, |_| 0).into_split();
        std::thread::scope(|scope| {
            scope.spawn(move || (0..1000).for_each(|item| producer.push(item).unwrap()));
            (0..1000).for_each(|item| assert_eq!(*consumer.next().unwrap(), item));
        });
    });
}

#[test]
fn a_parked_thread_sleeps_until_it_is_woken() {
    let ring = ring(|| Park::new(SystemFutex::new()));
    let (mut consumer, worker) = (ring.consumer().unwrap(), ring.worker());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(500 * MS);
            worker.claim(1).unwrap().publish();
        });
        let before = used();
        assert_eq!(*consumer.next().unwrap(), 0);
        assert!(used() - before < 100 * MS, "{:?}", used() - before);
    });
}

#[test]
fn a_wait_ends_at_an_instant() {
    fn check<W: Wait>(ring: Ring<[Slot<usize>; 4], W>) {
        let (mut consumer, worker) = (ring.consumer().unwrap(), ring.worker());
        let end = Instant::now() + 20 * MS;
        assert_eq!(consumer.next_until(&end).unwrap_err(), NextError::Empty);
        assert!(Instant::now() >= end);
        // The deadline has passed, so this does not wait.
        assert_eq!(consumer.next_until(&Some(end)).unwrap_err(), NextError::Empty);
        worker.claim_until(1, &end).unwrap().publish();
        assert_eq!(*consumer.next_until(&None::<Instant>).unwrap(), 0);
    }
    check(ring(|| Backoff));
    check(ring(|| Park::new(SystemFutex::new())));
}
