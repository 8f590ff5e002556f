//! Tests of workers: their seeds, `worker_info`, and `worker_init`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use slotline::rng::Generator;
use slotline::{Error, Loader, WorkerInfo, worker_info};

use crate::support::{Notes, shared};
use crate::{KINDS, Kind, Options, Passes, in_turn, nothing, numbers, shares};

#[test]
fn a_workers_seed_is_the_base_seed_plus_its_number() {
    for kind in KINDS {
        for workers in [1, 2, 3] {
            for persistent in [false, true] {
                let seen = Notes::default();
                let see = seen.clone();
                let options = Options { workers, persistent, seed: 9, ..Options::default() };
                let mut loader = options.build(kind, move |_| {
                    if let Some(worker) = worker_info() {
                        see.push((worker.id(), worker.num_workers(), worker.seed()));
                    }
                    Ok(())
                });
                let mut generator = Generator::from_seed(9);
                let mut base = generator.random_i64() as u64;
                for pass in 0..3 {
                    seen.clear();
                    drop(loader.whole());
                    let seen: BTreeSet<_> = seen.all().into_iter().collect();
                    let info = |id| format!("{:?}", (id, workers, base.wrapping_add(id as u64)));
                    let all: BTreeSet<_> = (0..workers).map(info).collect();
                    // Any free worker takes the next batch of a shared ring, so one worker may take
                    // all of them.
                    assert!(seen.is_subset(&all) && !seen.is_empty(), "{seen:?} in pass {pass}, {all:?}");
                    let takes_any = matches!(kind, Kind::Shared | Kind::Processes);
                    assert!(takes_any || seen == all, "{seen:?} in pass {pass}, {all:?}");
                    if !persistent {
                        base = generator.random_i64() as u64;
                    }
                }
            }
        }
    }
}

/// `WorkerInfo` is read-only by its type: it has no public fields, and `worker_info` returns a
/// copy.
#[test]
fn worker_info_is_set_only_in_worker_threads() {
    let here = thread::current().id();
    for kind in KINDS {
        for (workers, help) in [(0, false), (1, false), (2, false), (2, kind == Kind::Shared)] {
            let first = Arc::new(Mutex::new(Vec::<(usize, ThreadId, WorkerInfo)>::new()));
            let passes = shared::<AtomicUsize>();
            let work = move |_: usize| {
                let (info, thread) = (worker_info(), thread::current().id());
                let pass = passes.load(Ordering::SeqCst);
                if pass == 0 {
                    return Ok(());
                }
                assert_eq!(info.is_none(), thread == here);
                // A thread that a worker starts is not a worker.
                assert_eq!(thread::spawn(worker_info).join().unwrap(), None);
                let Some(info) = info else { return Ok(()) };
                let mut known = first.lock().unwrap();
                match known.iter().find(|(begun, of, _)| (*begun, *of) == (pass, thread)) {
                    Some((.., known)) => assert_eq!(*known, info),
                    None => known.push((pass, thread, info)),
                }
                Ok(())
            };
            let options = Options { workers, ..Options::default() };
            let mut loader: Box<dyn Passes> = match kind {
                Kind::Shared => Box::new(options.set(Loader::builder(numbers(20, work))).help(help).build().unwrap()),
                _ => options.build(kind, work),
            };
            assert_eq!(worker_info(), None);
            for _ in 0..2 {
                passes.fetch_add(1, Ordering::SeqCst);
                for batch in loader.pass().unwrap() {
                    batch.unwrap();
                    assert_eq!(worker_info(), None);
                }
            }
        }
    }
}

thread_local! {
    /// The `WorkerInfo` with which `worker_init` last ran in this thread; `None` if it has not run.
    static READY: Cell<Option<WorkerInfo>> = const { Cell::new(None) };
}

#[test]
fn worker_init_runs_in_each_worker_before_it_loads() {
    for kind in KINDS {
        for workers in [1, 3] {
            for persistent in [false, true] {
                let options = Options { workers, persistent, ..Options::default() };
                // The `WorkerInfo`s with which `worker_init` has run. `early` is the number of
                // samples that were read in threads in which it had not run.
                let ready = Notes::default();
                let early = shared::<AtomicUsize>();
                let work = move |_: usize| {
                    let known = READY.get() == worker_info();
                    early.fetch_add(usize::from(!known), Ordering::SeqCst);
                    Ok(())
                };
                let list = ready.clone();
                let init = move |info: WorkerInfo| {
                    assert_eq!(worker_info(), Some(info));
                    READY.set(Some(info));
                    list.push((info.id(), info.seed()));
                    Ok(())
                };
                let mut loader = options.build_with(kind, work, Some(init));
                early.store(0, Ordering::SeqCst);
                let mut seeds = BTreeSet::new();
                for pass in 0..3 {
                    if !persistent {
                        ready.clear();
                    }
                    assert_eq!(loader.whole(), options.expected(kind));
                    let mut ready = ready.all();
                    ready.sort();
                    let is_of = |(id, info): (usize, &String)| info.starts_with(&format!("({id}, "));
                    assert!(ready.len() == workers && ready.iter().enumerate().all(is_of), "pass {pass}: {ready:?}");
                    seeds.extend(ready);
                }
                assert_eq!(early.load(Ordering::SeqCst), 0, "{kind:?} {options:?}");
                assert_eq!(seeds.len(), if persistent { workers } else { 3 * workers });
            }
        }
    }
}

#[test]
fn worker_init_is_not_run_without_workers() {
    for kind in KINDS {
        let options = Options { workers: 0, ..Options::default() };
        let mut loader = options.build_with(kind, nothing, Some(|_: WorkerInfo| panic!("there are no workers")));
        assert_eq!(loader.whole(), options.expected(kind));
    }
}

/// Returns the batches that are delivered if, of three workers, those in `bad` fail to start.
fn without(bad: &[usize], kind: Kind, options: &Options) -> Vec<Vec<i64>> {
    let mut all = options.expected(kind);
    if bad.len() == 3 {
        all.clear();
    } else if kind == Kind::Iterable {
        let mut shares = shares(options.len, 3);
        bad.iter().for_each(|&worker| shares[worker].clear());
        all = in_turn(&shares, options.batch_size, options.drop_last);
    }
    all
}

#[test]
fn errors_of_worker_init_come_before_the_batches() {
    for kind in KINDS {
        for panics in [false, true] {
            for persistent in [false, true] {
                for bad in [vec![0], vec![2], vec![0, 1], vec![0, 1, 2]] {
                    let options = Options { workers: 3, persistent, ..Options::default() };
                    let (armed, runs) = (shared::<AtomicBool>(), shared::<AtomicUsize>());
                    let list = bad.clone();
                    let init = move |info: WorkerInfo| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        if !(armed.load(Ordering::SeqCst) && list.contains(&info.id())) {
                            return Ok(());
                        }
                        assert!(!panics, "no init");
                        Err("no init".into())
                    };
                    let mut loader = options.build_with(kind, nothing, Some(init));
                    for (pass, armed_now) in [true, true, false, true].into_iter().enumerate() {
                        armed.store(armed_now, Ordering::SeqCst);
                        // Persistent workers whose `worker_init` has succeeded do not run it again.
                        let bad = if !armed_now || (persistent && pass == 3) { &[] } else { &bad[..] };
                        let mut outcomes = loader.pass().unwrap();
                        for &worker in bad {
                            let error = outcomes.next().unwrap().unwrap_err();
                            let Error::WorkerInit { worker: id, source } = &error else { panic!("{error}") };
                            assert_eq!(*id, worker);
                            assert_eq!(source.to_string(), if panics { "panicked: no init" } else { "no init" });
                            assert!(error.to_string().contains(&format!("worker {worker}")), "{error}");
                        }
                        let batches: Vec<_> = outcomes.map(Result::unwrap).collect();
                        assert_eq!(batches, without(bad, kind, &options), "pass {pass} of {kind:?} without {bad:?}");
                    }
                    let expected = if persistent { 3 + 2 * bad.len() } else { 4 * 3 };
                    assert_eq!(runs.load(Ordering::SeqCst), expected);
                }
            }
        }
    }
}

#[test]
fn a_helping_caller_loads_alone_if_every_worker_init_fails() {
    let here = thread::current().id();
    let dataset = numbers(20, move |_| {
        assert_eq!(thread::current().id(), here);
        Ok(())
    });
    let builder = Loader::builder(dataset).num_workers(2).worker_init(|_| Err("no init".into())).help(true);
    let mut loader = builder.build().unwrap();
    for _ in 0..2 {
        let outcomes: Vec<_> = loader.pass().unwrap().collect();
        assert!(matches!(outcomes[..2], [Err(Error::WorkerInit { worker: 0, .. }), Err(Error::WorkerInit { .. })]));
        assert!(outcomes[2..].iter().map(|batch| batch.as_ref().unwrap()[0]).eq(0..20));
    }
}

#[test]
fn a_pass_left_at_a_worker_init_error_affects_no_other() {
    for kind in KINDS {
        let options = Options { workers: 3, ..Options::default() };
        let armed = shared::<AtomicBool>();
        armed.store(true, Ordering::SeqCst);
        let init = move |info: WorkerInfo| {
            if armed.load(Ordering::SeqCst) && info.id() > 0 { Err("no init".into()) } else { Ok(()) }
        };
        let mut loader = options.build_with(kind, nothing, Some(init));
        assert!(loader.pass().unwrap().next().unwrap().is_err());
        armed.store(false, Ordering::SeqCst);
        assert_eq!(loader.whole(), options.expected(kind));
    }
}
