//! Tests of subscribers of `tracing` that panic. They are user code in every thread of a loader.
//!
//! | panic at | outcome |
//! |---|---|
//! | the span `fill`, in a worker or in a caller that loads | the batch is an error with the panic, and the next batch is delivered |
//! | the spans `wait` and `pass`, and messages | nothing: the panic hook has reported the panic |
//!
//! The subscriber is global, so the tests run one at a time.

mod support;

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, mpsc};
use std::time::Duration;

use slotline::dataset::from_fn;
use slotline::loader::{Batch, Budget, By, Error, OnError};
use slotline::rng::rand_core::Rng;
use slotline::sampler::DistributedSampler;
use slotline::{BoxError, Loader};
use support::{LONG, Latch, OneByOne, items};
use tracing::span;
use tracing::subscriber::Interest;

/// The methods of a subscriber that can panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Enabled,
    New,
    Enter,
    Record,
    Exit,
    Close,
    Event,
}

/// The span or message and the call at which the subscriber panics, and the number of panics that
/// are left.
static TARGET: Mutex<Option<(&str, Call, usize)>> = Mutex::new(None);

thread_local! {
    /// The span and the call at which the subscriber panics in this thread, once.
    static HERE: Cell<Option<(&'static str, Call)>> = const { Cell::new(None) };
}

/// The names of the spans, by id.
const SPANS: [&str; 4] = ["", "pass", "fill", "wait"];

fn panic_at(at: &str, call: Call) {
    if HERE.get() == Some((at, call)) {
        HERE.set(None);
        resume_unwind(Box::new(format!("{call:?} of {at}, here")));
    }
    let mut target = TARGET.lock().unwrap();
    if let Some((name, place, left)) = &mut *target
        && (*name, *place) == (at, call)
        && *left > 0
    {
        *left -= 1;
        drop(target);
        // This does not call the panic hook.
        resume_unwind(Box::new(format!("{call:?} of {at}")));
    }
}

struct PanickingSubscriber;

impl PanickingSubscriber {
    fn at(id: &span::Id, call: Call) {
        panic_at(SPANS[id.into_u64() as usize], call);
    }
}

impl tracing::Subscriber for PanickingSubscriber {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        panic_at(if metadata.is_event() { "message" } else { metadata.name() }, Call::Enabled);
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        panic_at(span.metadata().name(), Call::New);
        let id = SPANS.iter().position(|&name| name == span.metadata().name());
        span::Id::from_u64(id.unwrap_or(0).max(1) as u64)
    }

    fn record(&self, id: &span::Id, _: &span::Record<'_>) {
        Self::at(id, Call::Record);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic_at("message", Call::Event);
    }

    fn enter(&self, id: &span::Id) {
        Self::at(id, Call::Enter);
    }

    fn exit(&self, id: &span::Id) {
        Self::at(id, Call::Exit);
    }

    fn try_close(&self, id: span::Id) -> bool {
        Self::at(&id, Call::Close);
        true
    }
}

/// Installs the subscriber, and returns a guard that gives one test at a time access to it.
fn subscriber() -> MutexGuard<'static, ()> {
    static SET: OnceLock<()> = OnceLock::new();
    let guard = support::alone();
    SET.get_or_init(|| tracing::subscriber::set_global_default(PanickingSubscriber).unwrap());
    guard
}

/// Sets where and how often the subscriber panics from now on. Returns the number of panics of the
/// previous target that are left.
fn aim(target: Option<(&'static str, Call, usize)>) -> usize {
    std::mem::replace(&mut *TARGET.lock().unwrap(), target).map_or(0, |(_, _, left)| left)
}

/// Runs a function on a separate thread, and panics if it hangs.
fn within<T: Send + 'static>(what: String, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, results) = mpsc::channel();
    let runner = std::thread::spawn(move || sender.send(run()));
    match results.recv_timeout(LONG / 4) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(_) => panic!("{what} panicked: {:?}", runner.join().map(|_| ()).unwrap_err().downcast_ref::<String>()),
    }
}

const LEN: usize = 12;
const ROWS: usize = 3;

/// Returns the samples of each batch of a pass, or the batch's error.
fn pass<S>(loader: &mut Loader<Batch<S>>) -> Vec<Result<Vec<i64>, Error>> {
    let numbers = |batch: Batch<_>| batch.columns().get(0).unwrap().typed().unwrap().as_slice().to_vec();
    let pass = loader.epoch().unwrap().map(|batch| batch.map(numbers));
    // Limits the number of batches, in case the pass never ends.
    pass.take(100).collect()
}

/// Runs a pass while the subscriber panics at `target`, and another one while it does not. Only
/// samples of batches with an error may be missing.
fn check<S>(build: impl FnOnce() -> Loader<Batch<S>>, workers: usize, target: (&'static str, Call, usize)) {
    aim(Some(target));
    let mut loader = build();
    let got = pass(&mut loader);
    let hits = target.2 - aim(None);
    let mut errors = 0;
    for (task, got) in got.iter().enumerate() {
        match got {
            Ok(indices) => assert!(!indices.is_empty() && indices.len() <= ROWS),
            Err(Error::Panic { index, position, task: of, by, message }) => {
                assert_eq!(*message, format!("{:?} of {}", target.1, target.0));
                assert_eq!((*of, *index), (task, *position), "the errors must be in order");
                assert!(*by == By::Consumer || matches!(by, By::Worker(id) if *id < workers), "{by}");
                errors += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    if target.0 == "fill" {
        // Several panics in the parts of a batch, or in one span, are one error.
        assert!((1..=hits).contains(&errors), "{errors} errors of {hits} panics");
    } else {
        assert_eq!(errors, 0);
    }
    let mut samples: Vec<_> = got.iter().flatten().flatten().copied().collect();
    samples.sort_unstable();
    samples.dedup();
    assert!(samples.len() + errors * ROWS >= LEN, "samples are missing without an error: {got:?}");
    let mut next_pass: Vec<_> = pass(&mut loader).into_iter().flat_map(Result::unwrap).collect();
    next_pass.sort_unstable();
    assert!(next_pass.into_iter().eq(0..LEN as i64), "the next pass must be whole");
}

#[test]
fn a_panic_at_a_span_fails_at_most_the_batch_being_filled() {
    let _subscriber = subscriber();
    let data = || items(LEN, |_, _| Ok(()));
    for name in ["fill", "wait", "pass"] {
        for call in [Call::Enabled, Call::New, Call::Enter, Call::Record, Call::Exit, Call::Close] {
            if call == Call::Record && name != "fill" {
                continue;
            }
            for times in [1, 1000] {
                let target = (name, call, times);
                for workers in [0, 1, 2] {
                    let what = format!("{target:?} with {workers} workers");
                    for (help, part_size) in [(false, 1), (true, 1), (false, ROWS)] {
                        if workers == 0 && !help {
                            continue;
                        }
                        within(format!("{what}, help({help})"), move || {
                            let builder = Loader::builder(data()).batch_size(ROWS).num_workers(workers);
                            check(|| builder.help(help).part_size(part_size).build().unwrap(), workers, target);
                        });
                    }
                    within(format!("{what}, an iterator"), move || {
                        let builder = Loader::builder(data()).batch_size(ROWS).num_workers(workers);
                        check(|| builder.sampler_iter(|| 0..LEN).build().unwrap(), workers, target);
                    });
                    within(format!("{what}, round_robin"), move || {
                        let builder = Loader::builder(data()).batch_size(ROWS).num_workers(workers);
                        check(|| builder.round_robin(true).build().unwrap(), workers, target);
                    });
                    within(format!("{what}, iterable"), move || {
                        let builder = Loader::iterable(OneByOne(data())).batch_size(ROWS).num_workers(workers);
                        check(|| builder.build().unwrap(), workers, target);
                    });
                }
            }
        }
    }
}

/// In one batch, a sample of one part fails, and the subscriber panics in another part. The slot
/// must keep neither failure for its next batch.
#[test]
fn a_failed_slot_leaves_nothing_for_its_next_batch() {
    let _subscriber = subscriber();
    within("a slot".to_owned(), || {
        let done = AtomicBool::new(false);
        let dataset = items(LEN, move |index, cx| match index {
            _ if cx.worker().is_none() => Ok(()),
            0 if !done.swap(true, SeqCst) => Err("zero".into()),
            1 => {
                // Panic at the span of the rows that this thread has claimed.
                HERE.set(Some(("fill", Call::Record)));
                Ok(())
            }
            _ => Ok(()),
        });
        let builder = Loader::builder(dataset).batch_size(2).part_size(1).num_workers(2).prefetch_factor(1);
        let mut loader = builder.help(false).build().unwrap();
        let got: Vec<_> = loader.epoch().unwrap().map(|batch| batch.map(|batch| batch.len())).collect();
        assert!(matches!(&got[0], Err(Error::Sample { index: 0, .. })), "{got:?}");
        assert_eq!(got[1..].iter().map(|got| *got.as_ref().unwrap()).collect::<Vec<_>>(), [2; LEN / 2 - 1]);
    });
}

#[test]
fn a_panic_at_a_message_has_no_effect() {
    let _subscriber = subscriber();
    for call in [Call::Enabled, Call::Event] {
        for workers in [0, 1, 99] {
            within(format!("{call:?} with {workers} workers"), move || {
                aim(Some(("message", call, 1000)));
                let bad = |index, _: &mut _| if index % 5 == 0 { Err("five".into()) } else { Ok(()) };
                let skip = OnError::Skip(Budget::Samples(LEN));
                // There is a message about 99 workers when the loader is built, and one about each
                // bad sample.
                let builder = Loader::builder(items(LEN, bad)).batch_size(ROWS).num_workers(workers).on_error(skip);
                let mut loader = builder.build().unwrap();
                let rows: usize = loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum();
                assert_eq!((rows, loader.stats().bad_samples), (LEN - 3, 3));
                assert!(aim(None) < 1000, "there was no message");
            });
        }
    }
}

#[test]
fn a_sampler_whose_warning_panics_draws_the_same_order() {
    let _subscriber = subscriber();
    let run = || {
        let sampler = DistributedSampler::new(LEN, 1, 0).unwrap();
        let dataset = from_fn(LEN, |index, cx| Ok((index as i64, cx.rng().next_u32())));
        let mut loader = Loader::builder(dataset).sampler(sampler).seed(7).build().unwrap();
        let mut numbers = Vec::new();
        for _ in 0..3 {
            loader.epoch().unwrap().for_each(|batch| numbers.push(batch.unwrap().tensors().1[[0]]));
        }
        numbers
    };
    within("a sampler".to_owned(), move || {
        let expected = run();
        aim(Some(("message", Call::Event, 1000)));
        assert_eq!(run(), expected);
        assert!(aim(None) < 1000, "there was no message");
    });
}

#[test]
fn a_watchdog_whose_messages_panic_continues() {
    let _subscriber = subscriber();
    within("the watchdog".to_owned(), || {
        let latches = [Latch::default(), Latch::default()];
        let held = latches.clone();
        let dataset = items(2, move |index, cx| {
            if cx.worker().is_some() {
                held[index].wait();
            }
            Ok::<_, BoxError>(())
        });
        let builder = Loader::builder(dataset).num_workers(1).help(false).watchdog(Duration::from_millis(5));
        let mut loader = builder.build().unwrap();
        aim(Some(("message", Call::Event, 1000)));
        let mut pass = loader.epoch().unwrap();
        for (index, latch) in latches.iter().enumerate() {
            while !pass.stats().stuck.iter().any(|stuck| stuck.index == index) {
                std::thread::yield_now();
            }
            latch.open();
            assert_eq!(pass.next().unwrap().unwrap().indices(), [index as i64]);
        }
        assert!(aim(None) < 1000);
    });
}
