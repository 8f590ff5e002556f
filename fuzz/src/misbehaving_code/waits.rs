//! Target for rings whose workers and consumer wait in faulty ways, and whose slots were used by
//! other rings before.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use slotline_core::ordered::{Claim, Claims, Config, Delivery, Lease, NextError, Ring, Slot, Worker};
use slotline_core::spsc;
use slotline_core::storage::Storage;
use slotline_core::wait::{Deadline, Futex, Park, Wait, Word};

use super::{Script, Site, Tracked, caught, watch_panics};
use crate::choices::Choices;
use crate::ordered::written;

const SLOTS: usize = 4;
const MAX_PARTS: usize = 3;

/// The value of a slot: a word for each part, which identifies the claim or lease that owns the
/// part, or is the number that was published.
struct Value {
    marks: [AtomicU64; MAX_PARTS],
    tracked: Tracked,
}

/// A wait strategy that breaks its contract, or `Park` with a futex that breaks its own.
enum FaultyWait {
    Plain(Arc<Script>),
    Park(Park<FaultyFutex>),
}

impl FaultyWait {
    fn choose(script: &Arc<Script>, choices: &mut Choices<'_>) -> Self {
        if choices.one_in(3) {
            Self::Park(Park::new(FaultyFutex(script.clone(), AtomicUsize::new(0))))
        } else {
            Self::Plain(script.clone())
        }
    }
}

/// The number of times that a correct wait checks its condition. More checks would not help, since
/// no other thread can change the ring.
const LOOKS: usize = 5;

impl Wait for FaultyWait {
    fn wait_until(&self, deadline: &impl Deadline, mut ready: impl FnMut() -> bool) -> bool {
        let script = match self {
            Self::Park(park) => return park.wait_until(deadline, ready),
            Self::Plain(script) => script,
        };
        match script.ask(Site::Wait, 7) {
            1 => true,
            2 => false,
            // Calls `ready` again after it returned true.
            3 => {
                // A claim may be made and then lost.
                script.lost.store(true, Ordering::Relaxed);
                (0..4).fold(false, |_, _| ready())
            }
            4 => {
                ready();
                script.panic()
            }
            5 => script.panic(),
            6 => {
                ready();
                false
            }
            7 => {
                while deadline.remaining() > Duration::ZERO && !ready() && script.ask(Site::Wait, 1) == 1 {}
                true
            }
            _ => {
                for _ in 0..LOOKS {
                    if ready() {
                        return true;
                    }
                    if deadline.remaining().is_zero() {
                        break;
                    }
                }
                false
            }
        }
    }

    fn notify(&self, wanted: impl FnOnce() -> bool) {
        let script = match self {
            Self::Park(park) => return park.notify(wanted),
            Self::Plain(script) => script,
        };
        match script.ask(Site::Notify, 3) {
            1 => _ = wanted(),
            2 => script.panic(),
            3 => {
                wanted();
                script.panic()
            }
            _ => {}
        }
    }
}

/// A futex that does not sleep and wakes no thread.
struct FaultyFutex(Arc<Script>, AtomicUsize);

impl Futex for FaultyFutex {
    fn wait(&self, word: &Word, expected: u32, _: Duration) {
        if self.0.panics(Site::Futex, 2) == 2 {
            word.store(expected.wrapping_add(7), Ordering::Relaxed);
        }
        // Ends the wait with a panic, since no thread will ever wake this one.
        if self.1.fetch_add(1, Ordering::Relaxed) % 50 == 49 {
            self.0.panic();
        }
    }

    fn wake_all(&self, _: &Word) {
        self.0.panics(Site::Futex, 2);
    }

    fn light_fence(&self) {
        self.0.panics(Site::Notify, 8);
    }

    fn heavy_fence(&self) {
        self.0.panics(Site::Futex, 2);
    }

    fn spin(&self, round: u32) -> bool {
        round < self.0.ask(Site::Futex, 9) as u32
    }
}

/// A deadline that passes at any time.
struct FaultyDeadline(Arc<Script>, AtomicUsize);

impl Deadline for FaultyDeadline {
    fn remaining(&self) -> Duration {
        if self.1.fetch_add(1, Ordering::Relaxed) >= 20 {
            return Duration::ZERO;
        }
        match self.0.ask(Site::Deadline, 3) {
            1 => Duration::MAX,
            2 => self.0.panic(),
            3 => Duration::from_nanos(1),
            _ => Duration::ZERO,
        }
    }
}

/// Uses the same slots in several rings one after another, with the state that each ring leaves in
/// them. Checks that claims and leases are exclusive, that everything received was claimed and
/// equals what was published, and that a correct ring works at the end.
pub fn misbehaving_waits(data: &[u8]) {
    watch_panics();
    let mut choices = Choices::new(data);
    let script = {
        let turns = choices.bytes(200).to_vec();
        let script = Script::new(&mut choices);
        let mut turns = Choices::new(&turns);
        if turns.one_in(3) {
            single(&script, &mut turns);
        } else {
            many(&script, &mut turns);
        }
        script
    };
    script.all_dropped();
}

fn value(script: &Arc<Script>) -> Slot<Value> {
    Slot::new(Value { marks: Default::default(), tracked: script.quiet() })
}

fn config(choices: &mut Choices<'_>) -> (Config, usize, Delivery) {
    let (parts, delivery) = (choices.within(1, MAX_PARTS), choices.of(&[Delivery::InOrder, Delivery::Arrival]));
    let config = Config::new().parts(parts).delivery(delivery);
    (if choices.one_in(3) { config.wake_at(choices.below(9)) } else { config }, parts, delivery)
}

fn many(script: &Arc<Script>, choices: &mut Choices<'_>) {
    let mut slots: [Slot<Value>; SLOTS] = std::array::from_fn(|_| value(script));
    let mut others: Vec<Slot<Value>> = (0..2).map(|_| value(script)).collect();
    for _ in 0..choices.within(1, 3) {
        let (config, parts, delivery) = config(choices);
        let (items, space) = (FaultyWait::choose(script, choices), FaultyWait::choose(script, choices));
        let from = choices.below(SLOTS);
        let ring = Ring::with_wait(&mut slots[from..], config, items, space);
        Run::new(&ring.worker(), &ring, script, parts, delivery).go(choices);
        drop(ring);
        // Swap slots with each other and with other slots.
        for _ in 0..choices.below(3) {
            slots.swap(choices.below(SLOTS), choices.below(SLOTS));
            std::mem::swap(&mut slots[choices.below(SLOTS)], &mut others[choices.below(2)]);
        }
    }
    let (config, parts, delivery) = config(choices);
    let form = choices.below(6);
    // The workers and the consumer of the last ring may be faulty, too.
    if form % 2 == 1 {
        script.stop();
    }
    let (items, space) = (FaultyWait::choose(script, choices), FaultyWait::choose(script, choices));
    match form / 2 {
        0 => last(&Ring::inline_with_wait(slots, config, items, space), script, parts, delivery, choices),
        1 => last(&Ring::with_wait(Box::<[_]>::from(slots), config, items, space), script, parts, delivery, choices),
        _ => {
            script.stop();
            last(&Ring::inline(slots, config), script, parts, delivery, choices);
        }
    }
}

fn last<B: Storage<Slot = Slot<Value>>, W: Wait>(
    ring: &Ring<B, W>,
    script: &Arc<Script>,
    parts: usize,
    delivery: Delivery,
    choices: &mut Choices<'_>,
) {
    if script.left.load(Ordering::Relaxed) > 0 {
        return Run::new(&ring.worker(), ring, script, parts, delivery).go(choices);
    }
    // Process one task after another, for three rounds of the ring.
    let (worker, mut consumer) = (ring.worker(), ring.consumer().expect("the consumer is not taken yet"));
    for ticket in 0..3 * ring.depth() {
        while let Ok(claim) = worker.try_claim(1) {
            let here = claim.ticket();
            claim.parts().for_each(|part| claim.get().marks[part].store(written(here, part), Ordering::Relaxed));
            claim.publish();
        }
        let lease = consumer.try_next().expect("it was published");
        lease.tracked.check();
        assert_eq!(lease.ticket(), ticket);
        (0..parts).for_each(|part| assert_eq!(lease.marks[part].load(Ordering::Relaxed), written(ticket, part)));
    }
}

/// The state of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Claimed,
    Published,
    Failed,
}

/// A ring, and the claims and leases that were taken from it.
struct Run<'a, B: Storage<Slot = Slot<Value>>, W: Wait> {
    ring: &'a Ring<B, W>,
    worker: &'a Worker<&'a Ring<B, W>>,
    script: &'a Arc<Script>,
    parts: usize,
    delivery: Delivery,
    claims: Vec<(Claim<'a, Ring<B, W>>, u64)>,
    rows: Vec<Claims<'a, Ring<B, W>>>,
    leases: Vec<(Lease<&'a Ring<B, W>>, u64)>,
    /// The slots and parts that a claim or a lease holds.
    out: HashSet<(usize, usize)>,
    /// The claimed tickets of this run that are not taken yet.
    tickets: BTreeMap<usize, [Option<Part>; MAX_PARTS]>,
    /// The next ticket in order.
    next: usize,
    stamp: u64,
    /// Whether a claim may have been lost in a panic, or was leaked.
    lost: bool,
}

impl<'a, B: Storage<Slot = Slot<Value>>, W: Wait> Run<'a, B, W> {
    fn new(
        worker: &'a Worker<&'a Ring<B, W>>,
        ring: &'a Ring<B, W>,
        script: &'a Arc<Script>,
        parts: usize,
        delivery: Delivery,
    ) -> Self {
        Self {
            ring,
            worker,
            script,
            parts,
            delivery,
            claims: Vec::new(),
            rows: Vec::new(),
            leases: Vec::new(),
            out: HashSet::new(),
            tickets: BTreeMap::new(),
            next: 0,
            stamp: 0,
            lost: false,
        }
    }

    fn deadline(&self) -> FaultyDeadline {
        FaultyDeadline(self.script.clone(), AtomicUsize::new(0))
    }

    /// Makes a call in which the user's code may panic.
    fn call<T>(&mut self, code: impl FnOnce() -> T) -> Option<T> {
        let it = caught(code);
        self.lost |= it.is_none();
        it
    }

    fn go(mut self, choices: &mut Choices<'_>) {
        let (ring, worker) = (self.ring, self.worker);
        let mut consumer = ring.consumer().expect("the consumer is not taken yet");
        for _ in 0..choices.below(60) {
            let deadline = self.deadline();
            let max = choices.within(1, self.parts + 1);
            match choices.below(15) {
                way @ 0..3 => {
                    let claim = self.call(|| match way {
                        0 => worker.try_claim(max).ok(),
                        1 => worker.claim_until(max, &deadline).ok(),
                        _ => worker.claim(max).ok(),
                    });
                    self.hold(claim.flatten());
                }
                way @ 3..5 => {
                    let claims = self.call(|| match way {
                        3 => worker.try_claim_many(max).ok(),
                        _ => worker.claim_many(max).ok(),
                    });
                    self.rows.extend(claims.flatten());
                }
                5 | 6 if !self.rows.is_empty() => {
                    let row = choices.below(self.rows.len());
                    let next = self.rows[row].next();
                    if next.is_none() || choices.one_in(5) {
                        let row = self.rows.swap_remove(row);
                        self.call(|| drop(row));
                    }
                    self.hold(next);
                }
                7 | 8 if !self.claims.is_empty() => self.finish(choices),
                9 | 10 => {
                    let next = match choices.below(3) {
                        0 => self.call(|| consumer.try_next()),
                        1 => self.call(|| consumer.next_until(&deadline)),
                        _ => self.call(|| consumer.next()),
                    };
                    next.into_iter().for_each(|next| self.take(next));
                }
                11 if !self.leases.is_empty() => {
                    let lease = self.leases.swap_remove(choices.below(self.leases.len()));
                    self.release(lease);
                }
                12 => {
                    self.call(|| consumer.wait(&deadline));
                    self.call(|| consumer.wait_or_work(&deadline));
                    self.call(|| consumer.wait_for_release(&deadline));
                    self.call(|| consumer.call_workers());
                    self.call(|| worker.wait_for_run());
                    assert!(consumer.ready() <= ring.depth());
                    let _ = consumer.is_ready();
                }
                13 => match choices.below(8) {
                    0 => _ = self.call(|| ring.close()),
                    1 => std::mem::forget(self.claims.pop().inspect(|_| self.lost = true)),
                    2 => std::mem::forget(self.leases.pop().inspect(|_| self.lost = true)),
                    _ => _ = self.call(|| ring.seal()),
                },
                _ => {
                    let tickets = choices.of(&[None, Some(0), Some(1), Some(5)]);
                    let opened = self.call(|| consumer.open(tickets));
                    // A panic occurs either after or before the run is opened.
                    if matches!(opened, Some(Ok(())) | None) && consumer.ring().claimed() == 0 {
                        let left = &self.tickets;
                        assert!(self.lost || left.is_empty(), "a run was opened although tickets are left: {left:?}");
                        self.tickets.clear();
                        self.next = 0;
                    }
                }
            }
        }
        // Publish or drop all claims, and release all leases. Then every claimed ticket must be
        // received.
        while let Some(row) = self.rows.pop() {
            self.call(|| drop(row));
        }
        while !self.claims.is_empty() {
            self.finish(choices);
        }
        while let Some(lease) = self.leases.pop() {
            self.release(lease);
        }
        for _ in 0..100 {
            match self.call(|| consumer.try_next()) {
                Some(Err(NextError::Empty | NextError::Held | NextError::Ended | NextError::Closed)) => break,
                Some(next) => self.take(next),
                None => {}
            }
            while let Some(lease) = self.leases.pop() {
                self.release(lease);
            }
        }
        self.lost |= self.script.lost.load(Ordering::Relaxed);
        // A ticket with unclaimed parts cannot be received.
        let whole = |parts: &[Option<Part>; MAX_PARTS]| parts[..self.parts].iter().all(Option::is_some);
        assert!(self.lost || !self.tickets.values().any(whole), "tickets were never received: {:?}", self.tickets);
    }

    /// Stores a new claim, and checks that no other claim or lease has its parts.
    fn hold(&mut self, claim: Option<Claim<'a, Ring<B, W>>>) {
        let Some(mut claim) = claim else { return };
        self.stamp += 1;
        let (mark, slot, ticket) = (self.stamp, claim.slot(), claim.ticket());
        claim.get().tracked.check();
        let parts = self.tickets.entry(ticket).or_default();
        assert!(!claim.parts().is_empty() && claim.parts().end <= self.parts);
        for part in claim.parts() {
            assert!(self.out.insert((slot, part)), "part {part} of slot {slot} is already held");
            assert_eq!(parts[part].replace(Part::Claimed), None, "part {part} of ticket {ticket} was claimed before");
            claim.get().marks[part].store(mark, Ordering::Relaxed);
        }
        assert_eq!(claim.get_mut().is_some(), claim.parts().len() == self.parts);
        self.claims.push((claim, mark));
    }

    fn finish(&mut self, choices: &mut Choices<'_>) {
        let (claim, mark) = self.claims.swap_remove(choices.below(self.claims.len()));
        let fails = choices.one_in(4);
        let (slot, ticket) = (claim.slot(), claim.ticket());
        for part in claim.parts() {
            let was = claim.get().marks[part].swap(written(ticket, part), Ordering::Relaxed);
            assert_eq!(was, mark, "a claim was written to from elsewhere");
            assert!(self.out.remove(&(slot, part)));
            let parts = self.tickets.get_mut(&ticket).expect("it is claimed");
            parts[part] = Some(if fails { Part::Failed } else { Part::Published });
        }
        // The claim is finished even if this panics.
        caught(|| if fails { drop(claim) } else { claim.publish() });
    }

    fn take(&mut self, next: Result<Lease<&'a Ring<B, W>>, NextError>) {
        let (ticket, failed) = match &next {
            Ok(lease) => (lease.ticket(), false),
            Err(NextError::Failed { ticket }) => (*ticket, true),
            Err(_) => return,
        };
        let parts = match self.tickets.remove(&ticket) {
            // The ticket belongs to a set of claims that was dropped, or lost in a panic.
            None if failed => [Some(Part::Failed); MAX_PARTS],
            None => panic!("ticket {ticket} was received but never claimed"),
            Some(parts) => parts,
        };
        let parts = &parts[..self.parts];
        assert!(
            failed || parts.iter().all(|&part| part == Some(Part::Published)),
            "ticket {ticket} was received unpublished: {parts:?}"
        );
        assert!(!failed || !parts.contains(&Some(Part::Claimed)), "ticket {ticket} was received too early: {parts:?}");
        if self.delivery == Delivery::InOrder {
            assert!(ticket == self.next || self.lost && ticket > self.next, "ticket {ticket} is out of order");
            self.next = ticket + 1;
        }
        let Ok(mut lease) = next else { return };
        self.stamp += 1;
        let mark = self.stamp;
        lease.tracked.check();
        for part in 0..self.parts {
            assert!(self.out.insert((lease.slot(), part)), "slot {} is already held", lease.slot());
            let was = std::mem::replace(lease.marks[part].get_mut(), mark);
            assert_eq!(was, written(ticket, part), "the lease does not have what was published");
        }
        self.leases.push((lease, mark));
    }

    fn release(&mut self, (lease, mark): (Lease<&'a Ring<B, W>>, u64)) {
        for part in 0..self.parts {
            assert_eq!(lease.marks[part].load(Ordering::Relaxed), mark, "a lease was written to from elsewhere");
            assert!(self.out.remove(&(lease.slot(), part)));
        }
        caught(|| drop(lease));
    }
}

type Cell = (u64, Tracked);

/// Runs the single-producer ring: everything received must equal what was published, in order.
fn single(script: &Arc<Script>, choices: &mut Choices<'_>) {
    let mut slots: Vec<spsc::Slot<Cell>> = (0..SLOTS).map(|_| spsc::Slot::new((0, script.quiet()))).collect();
    for _ in 0..choices.within(1, 3) {
        let (items, space) = (FaultyWait::choose(script, choices), FaultyWait::choose(script, choices));
        let from = choices.below(SLOTS);
        let ring = spsc::Ring::with_wait(&mut slots[from..], items, space);
        let mut stamp = 0;
        for _ in 0..choices.within(1, 3) {
            Sides::new(&ring, script).go(choices, &mut stamp);
        }
        drop(ring);
        slots.reverse();
    }
    for slot in slots {
        slot.into_inner().1.check();
    }
}

struct Sides<'a, B: Storage<Slot = spsc::Slot<Cell>>, W: Wait> {
    producer: Option<spsc::Producer<&'a spsc::Ring<B, W>>>,
    consumer: Option<spsc::Consumer<&'a spsc::Ring<B, W>>>,
    /// The items that were published and not received yet.
    published: VecDeque<u64>,
    script: &'a Arc<Script>,
}

impl<'a, B: Storage<Slot = spsc::Slot<Cell>>, W: Wait> Sides<'a, B, W> {
    fn new(ring: &'a spsc::Ring<B, W>, script: &'a Arc<Script>) -> Self {
        let (producer, consumer) = (ring.producer(), ring.consumer());
        assert!(producer.is_some() && consumer.is_some(), "both sides are free again");
        Self { producer, consumer, published: VecDeque::new(), script }
    }

    fn go(mut self, choices: &mut Choices<'_>, stamp: &mut u64) {
        for _ in 0..choices.below(60) {
            let deadline = FaultyDeadline(self.script.clone(), AtomicUsize::new(0));
            match choices.below(12) {
                0..5 => {
                    let Some(producer) = &mut self.producer else { continue };
                    let (before, way) = (producer.ticket(), choices.below(4));
                    let (first, count) = (*stamp + 1, choices.within(1, SLOTS));
                    *stamp += count as u64;
                    let script = self.script;
                    caught(|| match way {
                        0 => _ = producer.push_until((first, script.quiet()), &deadline),
                        1 => _ = producer.push((first, script.quiet())),
                        2 => {
                            if let Ok(mut claim) = producer.claim_until(&deadline) {
                                claim.1.check();
                                *claim = (first, script.quiet());
                                claim.publish();
                            }
                        }
                        _ => {
                            let Ok(mut chunk) = producer.claim_chunk_until(count, &deadline) else { return };
                            let (head, tail) = chunk.as_mut_slices();
                            for (number, cell) in (first..).zip(head.iter_mut().chain(tail)) {
                                cell.1.check();
                                *cell = (number, script.quiet());
                            }
                            chunk.publish_all();
                        }
                    });
                    // Even after a panic or an error, the ticket tells how many items were published.
                    let new = producer.ticket().wrapping_sub(before);
                    assert!(new <= count);
                    self.published.extend(first..first + new as u64);
                }
                5..10 => {
                    let Some(consumer) = &mut self.consumer else { continue };
                    let (published, way) = (&mut self.published, choices.below(4));
                    let most = choices.within(1, SLOTS);
                    let before = consumer.ticket();
                    let mut seen = Vec::new();
                    caught(|| match way {
                        0 => _ = consumer.next_until(&deadline).map(|cell| seen.push(read(&cell))),
                        1 => _ = consumer.next().map(|cell| seen.push(read(&cell))),
                        2 => {
                            _ = consumer
                                .peek_until(&deadline)
                                .map(|cell| assert_eq!(Some(&read(cell)), published.front()))
                        }
                        _ => {
                            if let Ok(chunk) = consumer.chunk_until(most, &deadline) {
                                let (head, tail) = chunk.as_slices();
                                seen.extend(head.iter().chain(tail).map(read));
                            }
                        }
                    });
                    let taken = consumer.ticket().wrapping_sub(before);
                    assert_eq!(seen.len(), taken);
                    assert!(seen.iter().eq(published.iter().take(taken)), "received {seen:?}, expected {published:?}");
                    published.drain(..taken);
                    assert!(consumer.ready() <= consumer.capacity());
                }
                10 if choices.one_in(4) => {
                    let producer = self.producer.take();
                    caught(|| drop(producer));
                }
                11 if choices.one_in(4) => {
                    let consumer = self.consumer.take();
                    caught(|| drop(consumer));
                }
                _ => {}
            }
        }
        let Self { producer, consumer, .. } = self;
        caught(|| drop(producer));
        caught(|| drop(consumer));
    }
}

fn read(cell: &Cell) -> u64 {
    cell.1.check();
    cell.0
}
