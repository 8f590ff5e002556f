//! Tests of whole loaders whose worker processes are killed after any of their instructions.
//!
//! A *moment* is a certain point in the work of a worker. The worker is stopped at a moment, then
//! executes a given number of instructions one at a time, and is killed. Each number of
//! instructions is tried with a new loader.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(any(shuttle, delays))))]

mod support;

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use slotline::Loader;
use slotline::loader::{Batch, By, Error};

use crate::support::{Delivered, OneByOne, Run, alone, chain, items, shared, until};

const RUN: Run = Run { len: 3, batch_size: 2, drop_last: false, shuffle: false, seed: 7 };
/// The number of moments: the start of the worker's `worker_init`, and of the reading of each
/// sample. After the last moment, instructions are counted until the worker ends.
const MOMENTS: usize = 1 + RUN.len;

/// The state that the worker and the test share.
#[derive(Default)]
struct Scene {
    /// The moment, counted from 1, at which the first worker that reaches it waits to be traced.
    awaited: AtomicUsize,
    /// The id of the process that waits; 0 if none does.
    worker: AtomicI32,
    is_traced: AtomicBool,
    /// The last moment that a worker has reached.
    reached: AtomicUsize,
}

impl Scene {
    /// Called by a worker when it reaches a moment. Waits to be traced if this is the awaited one.
    fn come_to(&self, moment: usize) {
        self.reached.store(moment, Ordering::SeqCst);
        if self.awaited.compare_exchange(moment, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // SAFETY: `getpid` has no preconditions.
            self.worker.store(unsafe { libc::getpid() }, Ordering::SeqCst);
            until(|| self.is_traced.load(Ordering::SeqCst), "nobody traces the worker");
        }
    }

    fn set(&self, moment: usize) {
        self.worker.store(0, Ordering::SeqCst);
        self.is_traced.store(false, Ordering::SeqCst);
        self.awaited.store(moment, Ordering::SeqCst);
    }

    /// Waits until a worker has reached the awaited moment, and traces it.
    fn trace(&self) -> Traced<'_> {
        until(|| self.worker.load(Ordering::SeqCst) != 0, "no worker came to the moment");
        let traced = Traced { scene: self, worker: self.worker.load(Ordering::SeqCst) };
        traced.ask(libc::PTRACE_ATTACH, 0, 0).and_then(|_| traced.stop()).expect("the worker waits");
        self.is_traced.store(true, Ordering::SeqCst);
        traced
    }
}

/// A worker process that is traced.
struct Traced<'s> {
    scene: &'s Scene,
    worker: libc::pid_t,
}

/// The methods return `None` if the worker has ended.
impl Traced<'_> {
    fn ask(&self, request: libc::c_uint, address: u64, data: u64) -> Option<i64> {
        // SAFETY: none of the requests writes memory of this process, and the worker is a child of
        // this process.
        let answer = unsafe { libc::ptrace(request, self.worker, address, data) };
        // -1 can also be a word that was read, but none that this test reads is -1.
        let error = (answer == -1).then(std::io::Error::last_os_error);
        assert!(error.as_ref().is_none_or(|error| error.raw_os_error() == Some(libc::ESRCH)), "{request}: {error:?}");
        error.is_none().then_some(answer)
    }

    /// Waits until the worker has stopped.
    fn stop(&self) -> Option<()> {
        let mut status = 0;
        // SAFETY: this waits for a child of this process.
        let waited = unsafe { libc::waitpid(self.worker, &raw mut status, libc::__WALL) };
        // If the worker has ended, the loader may have waited for it already.
        (waited == self.worker && libc::WIFSTOPPED(status)).then_some(())
    }

    /// Makes the worker execute one instruction.
    fn step(&self) -> Option<()> {
        self.ask(libc::PTRACE_SINGLESTEP, 0, 0)?;
        self.stop()
    }

    /// Returns the address of the worker's next instruction.
    fn at(&self) -> Option<u64> {
        Some(self.ask(libc::PTRACE_PEEKUSER, RIP, 0)? as u64)
    }

    /// Steps until the worker reaches the next moment, or ends. Appends the address of each
    /// instruction, and whether it is executed for the first time.
    fn record(&self, moment: usize, all: &mut Vec<(u64, bool)>) -> Option<()> {
        let mut known = HashSet::new();
        while self.scene.reached.load(Ordering::SeqCst) == moment {
            let at = self.at()?;
            all.push((at, known.insert(at)));
            self.step()?;
        }
        self.ask(libc::PTRACE_DETACH, 0, 0).map(drop)
    }

    /// Kills the worker before instruction `number` of those in `all`.
    fn kill(&self, all: &[(u64, bool)], number: usize) -> Option<()> {
        const BREAKPOINT: u64 = 0xcc;
        // Most of the way is not stepped: the worker runs to a breakpoint at an address that it
        // reaches there for the first time, the last such address up to instruction `number`.
        let (begin, &(address, _)) = all[..=number].iter().enumerate().rfind(|(_, at)| at.1)?;
        let code = self.ask(libc::PTRACE_PEEKTEXT, address, 0)? as u64;
        self.ask(libc::PTRACE_POKETEXT, address, code & !0xff | BREAKPOINT)?;
        self.ask(libc::PTRACE_CONT, 0, 0)?;
        self.stop()?;
        assert_eq!(self.at()?, address + 1);
        self.ask(libc::PTRACE_POKETEXT, address, code)?;
        self.ask(libc::PTRACE_POKEUSER, RIP, address)?;
        (begin..number).try_for_each(|_| self.step())?;
        // SAFETY: this sends a signal to a stopped child, which still has its process id.
        (unsafe { libc::kill(self.worker, libc::SIGKILL) } == 0).then_some(())
    }
}

/// The offset of the next instruction's address in the registers of a traced process.
const RIP: u64 = std::mem::offset_of!(libc::user_regs_struct, rip) as u64;

/// Kills the only worker of a loader after each n-th of its instructions, in a new loader each
/// time. `SLOTLINE_STEPS` sets n. By default n is 1,499, and only the instructions after one
/// moment, chosen at random, are counted.
fn check<S>(kind: &str, scene: &'static Scene, build: impl Fn(Option<usize>) -> Loader<Batch<S>> + Sync) {
    let random = RandomState::new().hash_one(0) as usize;
    let (every, moments) = match std::env::var("SLOTLINE_STEPS") {
        Ok(every) => (every.parse().expect("a number"), 1..=MOMENTS),
        Err(_) => (1499, 1 + random % MOMENTS..=1 + random % MOMENTS),
    };
    let expected = support::pass(&mut build(None));
    // Runs a loader, and calls `act` with the worker that reaches the moment first.
    let run = |moment, restarts, act: &mut dyn FnMut(Traced<'_>)| {
        scene.set(moment);
        std::thread::scope(|scope| {
            let outcomes = scope.spawn(|| {
                let mut loader = build(Some(restarts));
                let pass = loader.epoch().expect("a pass begins");
                pass.map(|batch| batch.map(|batch| Delivered::from(&batch))).collect::<Vec<_>>()
            });
            act(scene.trace());
            outcomes.join().unwrap()
        })
    };
    let (mut instructions, mut tried, mut killed) = (0, 0, 0);
    for moment in moments {
        let mut all = Vec::new();
        run(moment, 0, &mut |worker| _ = worker.record(moment, &mut all));
        instructions += all.len();
        for (number, restarts) in (random % every..all.len()).step_by(every).flat_map(|at| [(at, 1), (at, 0)]) {
            let mut was_killed = false;
            let outcomes = run(moment, restarts, &mut |worker| was_killed = worker.kill(&all, number).is_some());
            let context =
                format!("{kind}, {restarts} restarts, at instruction {number} after moment {moment}: {outcomes:?}");
            let (mut tasks, mut errors) = (Vec::new(), Vec::new());
            for batch in &outcomes {
                match batch {
                    Ok(got) => tasks.push(got.task),
                    Err(Error::Sample { task, by: By::Worker(0), .. }) => tasks.push(*task),
                    Err(Error::WorkerInit { worker: 0, .. } | Error::WorkerDied { worker: 0, .. }) => {}
                    Err(error) => panic!("{error}: {context}"),
                }
                errors.extend(batch.as_ref().err().map(|error| chain(error)));
            }
            if kind == ARRIVAL {
                // Tasks may be delivered in another order, if one was assigned while the worker was
                // looking for work.
                tasks.sort_unstable();
                assert!(tasks.is_sorted_by(|one, next| one < next), "{context}");
            } else {
                assert!(tasks.iter().copied().eq(0..tasks.len()), "{context}");
            }
            assert!(outcomes.iter().flatten().all(|got| *got == expected[got.task]), "{context}");
            assert!(errors.iter().all(|error| error.contains("was killed by signal 9")), "{context}");
            // Errors are allowed only for the batch that the worker had begun, and to report that
            // there are no more batches.
            assert!(errors.is_empty() && tasks.len() == expected.len() || was_killed && restarts == 0, "{context}");
            assert!(errors.len() <= 1 + outcomes.len() - tasks.len() && outcomes.len() - tasks.len() <= 1, "{context}");
            assert!(tasks.len() == expected.len() || outcomes.len() > tasks.len(), "{context}");
            tried += 1;
            killed += usize::from(was_killed);
        }
    }
    println!("{kind}: {instructions} instructions, {tried} workers, {killed} of them killed");
    assert!(2 * killed > tried, "the workers did not repeat what the first ones did");
}

const ARRIVAL: &str = "in order of arrival";

#[test]
fn a_worker_that_is_killed_at_any_instruction_costs_at_most_its_batch() {
    let _alone = alone();
    let scene: &'static Scene = shared();
    let parent = std::process::id();
    let at = move |moment| {
        if std::process::id() != parent {
            scene.come_to(moment)
        }
    };
    let samples = move || {
        items(RUN.len, move |index, _| {
            at(2 + index);
            Ok(())
        })
    };
    macro_rules! check {
        ($kind:expr, $builder:expr) => {
            check($kind, scene, |restarts| {
                let builder = $builder.worker_init(move |_| {
                    at(1);
                    Ok(())
                });
                let builder = builder.num_workers(1);
                match restarts {
                    None => builder.build().unwrap(),
                    Some(restarts) => builder.processes().restart_workers(restarts).build().unwrap(),
                }
            })
        };
    }
    check!("in order", RUN.over(samples()));
    check!("in parts", RUN.over(samples()).part_size(1));
    check!(ARRIVAL, RUN.over(samples()).in_order(false));
    check!("round_robin", RUN.over(samples()).round_robin(true));
    check!("iterable", Loader::iterable(OneByOne(samples())).batch_size(RUN.batch_size).seed(RUN.seed));
}
