//! Stress tests of the ordered ring: every ticket of a run (the tickets of one pass) must come
//! once, complete and in order, published or failed.

use std::cell::UnsafeCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use slotline_core::ordered::{self, Claim, ClaimError, Config, Delivery, Lease, NextError, Slot, Worker};
use slotline_core::wait::{Backoff, Deadline, Futex, Never, Park, Wait, Word};

use crate::dice::Dice;

pub(crate) static TICKETS: AtomicU64 = AtomicU64::new(0);

/// The way in which the threads of a ring wait: they park after some spins, or back off.
pub(crate) enum Way {
    Park(Park<Sleep>),
    Backoff,
}

impl Way {
    pub(crate) fn new(mut dice: Dice) -> Self {
        match dice.below(5) {
            0 => Self::Backoff,
            spins => Self::Park(Park::new(Sleep { spins: [0, 1, 5, 100][spins - 1] })),
        }
    }
}

impl Wait for Way {
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        match self {
            Self::Park(park) => park.wait_until(deadline, ready),
            Self::Backoff => Backoff.wait_until(deadline, ready),
        }
    }

    fn notify(&self, wanted: impl FnOnce() -> bool) {
        if let Self::Park(park) = self {
            park.notify(wanted);
        }
    }
}

/// The system's futex, with sequentially consistent fences.
pub(crate) struct Sleep {
    spins: u32,
}

impl Futex for Sleep {
    fn wait(&self, word: &Word, expected: u32, timeout: Duration) {
        let tv_sec = timeout.as_secs().min(1 << 30) as _;
        let timeout = libc::timespec { tv_sec, tv_nsec: timeout.subsec_nanos() as _ };
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: `word` and `timeout` outlive the call, and the time is valid.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, &raw const timeout) };
    }

    fn wake_all(&self, word: &Word) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the call only uses the word's address.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
    }

    fn light_fence(&self) {
        std::sync::atomic::fence(SeqCst);
    }

    fn heavy_fence(&self) {
        std::sync::atomic::fence(SeqCst);
    }

    fn spin(&self, round: u32) -> bool {
        thread::yield_now();
        round < self.spins
    }
}

const PARTS: usize = 3;

/// The contents of a ticket's slot: the words of each part, which the thread that has claimed the
/// part writes.
#[derive(Default)]
struct Row([UnsafeCell<[u64; 4]>; PARTS]);

// SAFETY: the ring gives each part to one claim at a time, and all parts to the lease only after
// they are published. The stress tests check this.
unsafe impl Sync for Row {}

/// Returns the words that must be written into a part.
fn words(run: usize, ticket: usize, part: usize) -> [u64; 4] {
    let word = ((run as u64) << 48 | (ticket as u64) << 16 | part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [word, !word, word.rotate_left(17), word ^ 0x5555]
}

impl Row {
    fn write(&self, parts: Range<usize>, run: usize, ticket: usize) {
        for part in parts {
            // SAFETY: the caller holds the claim of this part, so no other thread accesses it.
            unsafe { *self.0[part].get() = words(run, ticket, part) };
        }
    }

    fn check(&self, parts: usize, run: usize, ticket: usize) {
        for part in 0..parts {
            // SAFETY: the caller holds the lease of this ticket, so no thread writes the part.
            let found = unsafe { *self.0[part].get() };
            assert_eq!(found, words(run, ticket, part), "part {part} of ticket {ticket} in run {run}");
        }
    }
}

type Ring = ordered::Ring<Box<[Slot<Row>]>, Way>;

/// The state that all threads share.
struct Shared {
    ring: Arc<Ring>,
    /// The number of the current run. It is written before the run is opened, and read by threads
    /// that claim its tickets.
    run: AtomicUsize,
    /// The tickets of the current run of which a claim was dropped unpublished.
    failed: Mutex<BTreeSet<usize>>,
}

impl Shared {
    /// Fills a claim and publishes it, or drops it in one of 60 cases.
    fn fill(&self, claim: Claim<'_, Ring>, dice: &mut Dice) {
        let (run, ticket) = (self.run.load(Relaxed), claim.ticket());
        claim.get().write(claim.parts(), run, ticket);
        dice.pause();
        if dice.once_in(60) {
            self.failed.lock().unwrap().insert(ticket);
            drop(claim);
        } else {
            claim.publish();
        }
    }

    /// Runs the loop of a worker thread.
    fn work(&self, dice: &mut Dice) {
        let worker = Worker::new(self.ring.clone());
        loop {
            let parts = dice.from(1, PARTS);
            let error = match dice.below(4) {
                0 => match worker.claim_many(dice.from(1, 4)) {
                    Ok(claims) => {
                        // The claims are filled in a random order. Some are dropped, which makes
                        // their tickets fail.
                        let mut claims: Vec<_> = claims.collect();
                        while !claims.is_empty() {
                            let claim = claims.remove(dice.below(claims.len()));
                            self.fill(claim, dice);
                        }
                        continue;
                    }
                    Err(error) => error,
                },
                1 => match worker.claim_until(parts, &(Instant::now() + Duration::from_micros(200))) {
                    Ok(claim) => {
                        self.fill(claim, dice);
                        continue;
                    }
                    Err(error) => error,
                },
                _ => match worker.claim(parts) {
                    Ok(claim) => {
                        self.fill(claim, dice);
                        continue;
                    }
                    Err(error) => error,
                },
            };
            match error {
                ClaimError::Full => {}
                ClaimError::Ended if worker.wait_for_run().is_ok() => {}
                _ => return,
            }
        }
    }
}

/// A lease, with the expected contents of its slot.
struct Taken {
    lease: Lease<Arc<Ring>>,
    run: usize,
    parts: usize,
}

impl Taken {
    fn release(self) {
        self.lease.check(self.parts, self.run, self.lease.ticket());
    }
}

/// Releases leases on another thread, after a delay and in another order.
fn release_late(taken: &Receiver<Taken>, dice: &mut Dice) {
    let mut held = Vec::new();
    loop {
        match taken.recv_timeout(Duration::from_micros(200)) {
            Ok(taken) => held.push(taken),
            // No lease has come for a while: the workers may be waiting for the slots of these
            // leases.
            Err(RecvTimeoutError::Timeout) => held.drain(..).for_each(Taken::release),
            Err(RecvTimeoutError::Disconnected) => return held.drain(..).for_each(Taken::release),
        }
        dice.pause();
        while held.len() > dice.below(4) {
            held.swap_remove(dice.below(held.len())).release();
        }
    }
}

/// The way in which a run ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The run reaches its limit.
    Limit,
    /// The consumer seals the run after this number of tickets.
    Seal(usize),
    /// Another thread seals the run.
    SealByThread,
    /// Another thread closes the ring.
    CloseByThread,
}

/// Ends a run at a random time, on a thread that neither fills nor takes tickets.
fn end_by_thread(ring: &Ring, end: End, closed: &AtomicBool, dice: &mut Dice) {
    for _ in 0..dice.below(60) {
        dice.pause();
    }
    match end {
        End::SealByThread => ring.seal(),
        End::CloseByThread => {
            closed.store(true, SeqCst);
            ring.close();
        }
        End::Limit | End::Seal(_) => {}
    }
}

/// A guard that closes the ring when it is dropped, even if a check panics, since the workers would
/// otherwise never end.
struct Closing(Arc<Ring>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The consumer of a round.
struct Taker<'a> {
    shared: &'a Shared,
    consumer: ordered::Consumer<Arc<Ring>>,
    /// The consumer's own worker, if it works while it waits.
    own: Option<Worker<Arc<Ring>>>,
    in_order: bool,
    held: VecDeque<Taken>,
    /// The average number of tickets for which the consumer keeps a lease.
    keeps: usize,
    releases: Sender<Taken>,
    dice: Dice,
}

impl Taker<'_> {
    /// Takes the next ticket in one of several ways.
    fn next(&mut self) -> Result<Lease<Arc<Ring>>, NextError> {
        if let Some(own) = &self.own {
            let outcome = self.consumer.try_next();
            if outcome.as_ref().err() == Some(&NextError::Empty) {
                self.consumer.call_workers();
                match own.try_claim(self.dice.from(1, PARTS)) {
                    Ok(claim) => self.shared.fill(claim, &mut self.dice),
                    Err(_) => assert!(self.consumer.wait_or_work(&Never)),
                }
            }
            return outcome;
        }
        match self.dice.below(3) {
            0 => {
                self.consumer.call_workers();
                thread::yield_now();
                self.consumer.try_next()
            }
            1 => self.consumer.next_until(&(Instant::now() + Duration::from_micros(100))),
            _ => self.consumer.next(),
        }
    }

    /// Takes the tickets of a run until its end and returns how many there were, or `None` if the ring was closed.
    fn run(&mut self, run: usize, end: End) -> Option<usize> {
        let (ring, parts) = (&self.shared.ring, self.shared.ring.parts());
        let mut seen = BTreeSet::new();
        loop {
            if end == End::Seal(seen.len()) {
                ring.seal();
            }
            let outcome = self.next();
            let failed = |ticket| self.shared.failed.lock().unwrap().contains(&ticket);
            let ticket = match outcome {
                Ok(lease) => {
                    let ticket = lease.ticket();
                    lease.check(parts, run, ticket);
                    assert!(!failed(ticket), "a claim of ticket {ticket} was dropped");
                    let taken = Taken { lease, run, parts };
                    match self.dice.below(3) {
                        0 => taken.release(),
                        1 => self.held.push_back(taken),
                        _ => self.releases.send(taken).unwrap(),
                    }
                    ticket
                }
                Err(NextError::Failed { ticket }) => {
                    assert!(failed(ticket), "no claim of ticket {ticket} was dropped");
                    ticket
                }
                Err(NextError::Held) => {
                    match self.held.pop_front() {
                        Some(taken) => taken.release(),
                        None => assert!(self.consumer.wait_for_release(&Never)),
                    }
                    continue;
                }
                Err(NextError::Empty) => continue,
                Err(NextError::Ended) => {
                    let count = seen.len();
                    assert!(seen.into_iter().eq(0..count), "each ticket comes once");
                    assert_eq!(ring.claimed(), count);
                    return Some(count);
                }
                Err(NextError::Closed) => return None,
            };
            assert!(!self.in_order || ticket == seen.len(), "ticket {ticket} came as number {}", seen.len());
            assert!(seen.insert(ticket), "ticket {ticket} came twice");
            TICKETS.fetch_add(1, Relaxed);
            while self.held.len() >= ring.depth() || !self.held.is_empty() && self.dice.once_in(self.keeps) {
                let place = self.dice.below(self.held.len());
                self.held.swap_remove_back(place).into_iter().for_each(Taken::release);
            }
        }
    }
}

pub(crate) fn round(mut dice: Dice) {
    let (depth, parts, workers) = (dice.from(1, 6), dice.from(1, PARTS), dice.below(7));
    let in_order = dice.below(3) > 0;
    let delivery = if in_order { Delivery::InOrder } else { Delivery::Arrival };
    let config = Config::new().parts(parts).delivery(delivery).wake_at(dice.from(1, depth));
    let slots: Box<[_]> = (0..depth).map(|_| Slot::new(Row::default())).collect();
    let way = dice.fork();
    let way = || Way::new(way.clone());
    let ring = Arc::new(match dice.below(3) {
        0 => Ring::near_the_wrap(slots, config, way(), way(), dice.from(1, 3)),
        _ => Ring::with_wait(slots, config, way(), way()),
    });
    ring.seal();
    let shared = Shared { ring: ring.clone(), run: AtomicUsize::new(0), failed: Mutex::default() };
    let (releases, taken) = channel();
    let closed = AtomicBool::new(false);
    thread::scope(|scope| {
        let _closing = Closing(ring.clone());
        for _ in 0..workers {
            let (shared, mut own) = (&shared, dice.fork());
            scope.spawn(move || shared.work(&mut own));
        }
        let mut own = dice.fork();
        scope.spawn(move || release_late(&taken, &mut own));
        let consumer = ordered::Consumer::new(ring.clone()).unwrap();
        let own = dice.once_in(2).then(|| Worker::new(ring.clone()));
        let no_worker = workers == 0 && own.is_none();
        let (held, keeps, runs, takes) = (VecDeque::new(), dice.from(2, 20), dice.from(1, 4), dice.fork());
        let mut taker = Taker { shared: &shared, consumer, own, in_order, held, keeps, releases, dice: takes };
        for run in 1..=runs {
            let tickets = dice.below(60);
            let end = match dice.below(6) {
                _ if no_worker => End::SealByThread,
                0 => End::Seal(dice.below(tickets + 1)),
                1 => End::SealByThread,
                2 if run == runs => End::CloseByThread,
                _ => End::Limit,
            };
            // A run without a limit must be sealed.
            let limit = Some(tickets).filter(|_| end == End::Limit || dice.once_in(2));
            shared.run.store(run, Relaxed);
            shared.failed.lock().unwrap().clear();
            taker.consumer.open(limit).unwrap();
            let ending = {
                let (ring, closed, mut own) = (&ring, &closed, dice.fork());
                scope.spawn(move || end_by_thread(ring, end, closed, &mut own))
            };
            match taker.run(run, end) {
                Some(count) => {
                    assert!(limit.is_none_or(|limit| count <= limit));
                    assert!(end != End::Limit || limit == Some(count), "{count} of {limit:?} tickets");
                }
                None => assert!(closed.load(SeqCst)),
            }
            ending.join().unwrap();
            if closed.load(SeqCst) {
                break;
            }
        }
    });
}
