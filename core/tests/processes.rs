//! The robust ring between processes: workers that are killed, and a worker that is stopped after
//! each of its instructions.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slotline_core::ordered::Delivery;
use slotline_core::robust::{Claim, Owner, Recovery, Ring, Shape, SlotStatus, Word};
use slotline_core::wait::{Deadline, Never, Wait};

/// A way of waiting that yields the time slice, which works between processes.
struct Yield;

impl Wait for Yield {
    fn wait_until(&self, deadline: &impl Deadline, mut ready: impl FnMut() -> bool) -> bool {
        loop {
            if ready() {
                return true;
            }
            if deadline.remaining().is_zero() {
                return false;
            }
            std::thread::yield_now();
        }
    }

    fn notify(&self, _: impl FnOnce() -> bool) {}
}

/// A ring and the contents of its parts, in memory that forked processes share.
#[derive(Clone, Copy)]
struct Shared {
    memory: &'static [AtomicU64],
    shape: Shape,
    delivery: Delivery,
}

impl Shared {
    fn new(shape: Shape, delivery: Delivery) -> Self {
        let words = shape.words() + shape.depth() * shape.parts();
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), words * 8, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping has this many words, which are zero, and it is never unmapped.
        let memory = unsafe { std::slice::from_raw_parts(start.cast(), words) };
        Self { memory, shape, delivery }
    }

    /// Returns a copy in memory that only this process has: the state that would be left if the
    /// other processes were killed at this moment.
    fn copy(&self) -> Self {
        let memory: Vec<_> = self.memory.iter().map(|word| AtomicU64::new(word.load(Ordering::SeqCst))).collect();
        Self { memory: memory.leak(), ..*self }
    }

    fn ring(&self) -> Ring<&'static [Word], Yield> {
        Ring::new(&self.memory[..self.shape.words()], self.shape, self.delivery, Yield, Yield)
    }

    /// Returns the contents of a part.
    fn content(&self, slot: usize, part: usize) -> &AtomicU64 {
        &self.memory[self.shape.words() + slot * self.shape.parts() + part]
    }

    /// Claims up to `max` parts, fills and publishes them. Returns whether there were any.
    fn work(&self, ring: &Ring<&'static [Word], Yield>, owner: Owner, max: usize) -> bool {
        ring.try_claim(owner, max).map(|claim| self.fill(claim, 0)).is_ok()
    }

    /// Works until the ring is closed, and takes some time for each part.
    fn work_slowly(&self, owner: Owner) {
        let ring = self.ring();
        while let Ok(claim) = ring.claim(owner, 2, &Never) {
            self.fill(claim, 1000);
        }
    }

    fn fill(&self, claim: Claim<'_, &'static [Word], Yield>, spins: u32) {
        for part in claim.parts() {
            let content = self.content(claim.slot(), part);
            content.store(u64::MAX, Ordering::Relaxed); // The part is half-written.
            (0..spins).for_each(|_| std::hint::spin_loop());
            content.store(value(claim.ticket(), part), Ordering::Relaxed);
        }
        claim.publish();
    }

    /// Checks that a slot has the contents for a ticket.
    #[track_caller]
    fn check(&self, slot: usize, ticket: u64) {
        for part in 0..self.shape.parts() {
            assert_eq!(self.content(slot, part).load(Ordering::Relaxed), value(ticket, part), "ticket {ticket}");
        }
    }
}

fn value(ticket: u64, part: usize) -> u64 {
    ticket << 8 | part as u64
}

/// Runs `child` in a forked process. It must not allocate, since other threads may hold the
/// allocator's locks.
fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child only runs `child` and ends.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        pid => pid,
    }
}

fn wait_for(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid, "{}", std::io::Error::last_os_error());
    status
}

fn kill(pid: libc::pid_t) {
    // SAFETY: the child was not waited for, so no other process can have its id.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    assert!(libc::WIFSIGNALED(wait_for(pid)));
}

/// Kills at least `SLOTLINE_KILLS` workers (1,000 by default) at random times.
#[test]
fn killed_workers_lose_and_repeat_nothing() {
    let kills = std::env::var("SLOTLINE_KILLS").map_or(1000, |kills| kills.parse().expect("a number"));
    for (delivery, parts) in [(Delivery::InOrder, 1), (Delivery::InOrder, 4), (Delivery::Arrival, 2)] {
        let shared = Shared::new(Shape::new(4, parts), delivery);
        let ring = shared.ring();
        let owners = [Owner::new(1), Owner::new(2)];
        let start = |owner| fork(|| shared.work_slowly(owner));
        let mut workers = owners.map(start);
        let mut tickets: [u64; 4] = [0, 1, 2, 3];
        tickets.iter().enumerate().for_each(|(slot, &ticket)| ring.assign(slot, ticket));
        let (mut next, mut killed, mut recovered, mut random) = (0, 0, 0, 1_u64);
        let mut delivered = Vec::new();
        // On a busy machine most workers are killed before they do anything, so the test continues
        // until enough parts were recovered.
        while killed < kills / 3 || recovered < 10 && killed < 100 * kills {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (which, pause) = ((random >> 60) as usize % 2, Duration::from_nanos((random >> 32) % 200_000));
            let begun = Instant::now();
            while begun.elapsed() < pause {
                // With delivery in order, only the slot of the next ticket can be taken; in order
                // of arrival, any slot can.
                let slot = match delivery {
                    Delivery::InOrder => (next % 4) as usize,
                    Delivery::Arrival => (random >> 40) as usize % 4,
                };
                random = random.rotate_left(7).wrapping_add(1);
                match ring.slot_status(slot, tickets[slot]) {
                    SlotStatus::Pending => std::thread::yield_now(),
                    SlotStatus::Ready => {
                        shared.check(slot, tickets[slot]);
                        delivered.push(tickets[slot]);
                        tickets[slot] = next + 4;
                        next += 1;
                        ring.assign(slot, tickets[slot]);
                    }
                    other => panic!("ticket {}: {other:?}", tickets[slot]),
                }
            }
            kill(workers[which]);
            killed += 1;
            let assigned = tickets.iter().copied().enumerate();
            recovered += ring.recover(owners[which], assigned, |_, _| Recovery::Redo);
            workers[which] = start(owners[which]);
        }
        workers.into_iter().for_each(kill);
        if delivery == Delivery::Arrival {
            // Tickets that are still in slots may be any.
            delivered.extend(tickets);
            delivered.sort_unstable();
        }
        assert!(delivered.iter().copied().eq(0..delivered.len() as u64), "each ticket once, in order");
        assert!(delivered.len() > 100 && recovered >= 10, "{} tickets, {recovered} recovered", delivered.len());
        println!(
            "{delivery:?}, {parts} parts: {killed} kills, {} tickets, {recovered} parts recovered",
            delivered.len()
        );
    }
}

/// A worker is stopped after each of its instructions. If it vanished there, another worker must be
/// able to do the rest.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_worker_can_vanish_after_any_instruction() {
    for (delivery, max) in [(Delivery::InOrder, 1), (Delivery::InOrder, 2), (Delivery::Arrival, 2)] {
        let shared = Shared::new(Shape::new(2, 2), delivery);
        let (ring, one, two) = (shared.ring(), Owner::new(1), Owner::new(2));
        let assigned = [(0, 0), (1, 1)];
        assigned.iter().for_each(|&(slot, ticket)| ring.assign(slot, ticket));
        let pid = fork(|| {
            // SAFETY: lets the parent stop this process.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
            }
            while shared.work(&ring, one, max) {}
        });
        let (mut steps, mut outcomes) = (0, std::collections::BTreeSet::new());
        while libc::WIFSTOPPED(wait_for(pid)) {
            let left = shared.copy();
            let ring = left.ring();
            let recovered = ring.recover(one, assigned, |_, _| Recovery::Redo);
            let mut redone = 0;
            while left.work(&ring, two, 1) {
                redone += 1;
            }
            for (slot, ticket) in assigned {
                assert_eq!(ring.slot_status(slot, ticket), SlotStatus::Ready, "after {steps} steps");
                left.check(slot, ticket);
            }
            outcomes.insert((4 - redone, recovered));
            // SAFETY: `copy` leaked it, and the ring is not used any more.
            drop(unsafe { Vec::from_raw_parts(left.memory.as_ptr().cast_mut(), left.memory.len(), left.memory.len()) });
            // SAFETY: the child is stopped by this process.
            let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
            assert_eq!(stepped, 0, "{}", std::io::Error::last_os_error());
            steps += 1;
        }
        // The worker must have been stopped before, within and after each claim.
        let all: std::collections::BTreeSet<_> = match max {
            1 => (0..4).flat_map(|done| [(done, 0), (done, 1)]).chain([(4, 0)]).collect(),
            _ => [0, 2]
                .iter()
                .flat_map(|&done| [(done, 0), (done, 1), (done, 2), (done + 1, 1)])
                .chain([(4, 0)])
                .collect(),
        };
        assert_eq!(outcomes, all, "{steps} steps");
        println!("{delivery:?}, claims of {max}: {steps} steps");
    }
}
