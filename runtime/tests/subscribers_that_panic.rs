//! Law 5 for subscribers of `tracing`, which are code of the user's in every thread of a loader.
//!
//! | where it panics | outcome |
//! |---|---|
//! | at the span `fill`, in a worker or in a caller that loads | the batch is an error that says so, and the next one comes |
//! | at the spans `wait` and `pass`, and at messages | nothing: the panic hook has said it |
//!
//! The subscriber is that of the whole process, so each test has it to itself.

mod support;

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use slotline::dataset::from_fn;
use slotline::loader::{Batch, Budget, By, Error, OnError};
use slotline::rng::rand_core::Rng;
use slotline::sampler::DistributedSampler;
use slotline::{BoxError, Loader};
use support::{LONG, Latch, OneByOne, items};
use tracing::span;
use tracing::subscriber::Interest;

/// What is asked of a subscriber.
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

/// Where the subscriber panics, how often at most, and how often it has.
static TARGET: Mutex<Option<(&str, Call, usize)>> = Mutex::new(None);

thread_local! {
    /// Where it panics once, in this thread.
    static HERE: Cell<Option<(&'static str, Call)>> = const { Cell::new(None) };
}

/// The names of spans, by their id.
const SPANS: [&str; 4] = ["", "pass", "fill", "wait"];

fn strike(at: &str, call: Call) {
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
        // Without a word to the panic hook.
        resume_unwind(Box::new(format!("{call:?} of {at}")));
    }
}

struct Rude;

impl Rude {
    fn at(id: &span::Id, call: Call) {
        strike(SPANS[id.into_u64() as usize], call);
    }
}

impl tracing::Subscriber for Rude {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        strike(if metadata.is_event() { "message" } else { metadata.name() }, Call::Enabled);
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        strike(span.metadata().name(), Call::New);
        let id = SPANS.iter().position(|&name| name == span.metadata().name());
        span::Id::from_u64(id.unwrap_or(0).max(1) as u64)
    }

    fn record(&self, id: &span::Id, _: &span::Record<'_>) {
        Self::at(id, Call::Record);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        strike("message", Call::Event);
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

/// The subscriber, for one test at a time.
fn subscriber() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static SET: OnceLock<()> = OnceLock::new();
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    SET.get_or_init(|| tracing::subscriber::set_global_default(Rude).unwrap());
    guard
}

/// Has the subscriber panic there so many times from now on; gives how often it has not.
fn aim(target: Option<(&'static str, Call, usize)>) -> usize {
    std::mem::replace(&mut *TARGET.lock().unwrap(), target).map_or(0, |(_, _, left)| left)
}

/// Runs it on a thread of its own, as it may hang.
fn within<T: Send + 'static>(what: String, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (said, hear) = mpsc::channel();
    let runner = std::thread::spawn(move || said.send(run()));
    match hear.recv_timeout(LONG / 4) {
        Ok(said) => said,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(_) => panic!("{what} panicked: {:?}", runner.join().map(|_| ()).unwrap_err().downcast_ref::<String>()),
    }
}

const LEN: usize = 12;
const ROWS: usize = 3;

/// The numbers of the samples of each batch of a pass, or its error.
fn pass<S>(loader: &mut Loader<Batch<S>>) -> Vec<Result<Vec<i64>, Error>> {
    let numbers = |batch: Batch<_>| batch.columns().get(0).unwrap().typed().unwrap().as_slice().to_vec();
    let pass = loader.epoch().unwrap().map(|batch| batch.map(numbers));
    // An endless pass is cut short.
    pass.take(100).collect()
}

/// A pass with the subscriber aimed at `name`, and one without. What an error replaces is missing, and nothing else.
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
                assert_eq!((*of, *index), (task, *position), "in order, and no sample out of order");
                assert!(*by == By::Consumer || matches!(by, By::Worker(id) if *id < workers), "{by}");
                errors += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    if target.0 == "fill" {
        // A batch of parts, or a span that fails in two ways, is one error for several panics.
        assert!((1..=hits).contains(&errors), "{errors} errors of {hits} panics");
    } else {
        assert_eq!(errors, 0);
    }
    let mut samples: Vec<_> = got.iter().flatten().flatten().copied().collect();
    samples.sort_unstable();
    samples.dedup();
    assert!(samples.len() + errors * ROWS >= LEN, "nothing is missing without an error: {got:?}");
    let mut calm: Vec<_> = pass(&mut loader).into_iter().flat_map(Result::unwrap).collect();
    calm.sort_unstable();
    assert!(calm.into_iter().eq(0..LEN as i64), "the next pass is whole");
}

#[test]
fn a_subscriber_that_panics_at_a_span_fails_the_batch_that_it_was_filled_in_and_nothing_else() {
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
                    within(format!("{what}, dealt"), move || {
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

/// The part of a batch that is bad already, and another part that a subscriber has fail, leave nothing behind in the slot.
#[test]
fn a_slot_keeps_nothing_of_what_went_wrong_there_for_its_next_batch() {
    let _subscriber = subscriber();
    within("a slot".to_owned(), || {
        let done = AtomicBool::new(false);
        let dataset = items(LEN, move |index, cx| match index {
            _ if cx.worker().is_none() => Ok(()),
            0 if !done.swap(true, SeqCst) => Err("zero".into()),
            1 => {
                // The span of this very claim.
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
fn a_subscriber_that_panics_at_messages_stops_nothing() {
    let _subscriber = subscriber();
    for call in [Call::Enabled, Call::Event] {
        for workers in [0, 1, 99] {
            within(format!("{call:?} with {workers} workers"), move || {
                aim(Some(("message", call, 1000)));
                let bad = |index, _: &mut _| if index % 5 == 0 { Err("five".into()) } else { Ok(()) };
                let skip = OnError::Skip(Budget::Samples(LEN));
                // So many workers are warned of when the loader is built, and bad samples when they are met.
                let builder = Loader::builder(items(LEN, bad)).batch_size(ROWS).num_workers(workers).on_error(skip);
                let mut loader = builder.build().unwrap();
                let rows: usize = loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum();
                assert_eq!((rows, loader.stats().bad_samples), (LEN - 3, 3));
                assert!(aim(None) < 1000, "there was a message");
            });
        }
    }
}

#[test]
fn a_sampler_whose_warning_panics_draws_the_same() {
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
        assert!(aim(None) < 1000, "there was a message");
    });
}

#[test]
fn a_watchdog_whose_messages_panic_goes_on() {
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
