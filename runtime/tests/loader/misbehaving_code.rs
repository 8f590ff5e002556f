//! Tests of panics in user code that runs in unexpected places.
//!
//! Other tests cover panics in `tracing` subscribers (`subscribers_that_panic`), in the `Display` or `Drop` of errors
//! (`bad_samples::misbehaving`), in thread-local destructors and in loaders dropped by their own threads (`faults::endings`), and
//! in `get`, `prefetch` and similar methods (`errors`).
//!
//! | panic in | outcome |
//! |---|---|
//! | the drop of a sample | the batch is an error; the next batch is delivered |
//! | the drop of an error of a sample or of `worker_init` that the caller did not take | nothing |
//! | the drop of collated batches with the loader | nothing, however many there are |
//! | `Dataset::len`, `Sampler::order`, and the closure of `sampler_iter` | `epoch` panics; the next `epoch` begins the pass |
//! | the drop of an iterator of indices | nothing |
//! | `Dataset::fields` | `build` panics |
//! | the drop of an error of a sample or of `iter` that `build` met before another one | nothing |

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::support::{OneByOne, WrittenBy, from_fn, sampler_fn};
use slotline::dataset::{Context, Dataset};
use slotline::loader::{Batch, BuildError, Error};
use slotline::sample::{Fields, Row, Sample};
use slotline::sampler::{Order, Sampler};
use slotline::{BoxError, Loader};

const LEN: usize = 12;

/// A value whose drop panics if the flag is set.
#[derive(Debug)]
pub(crate) struct Bomb(pub(crate) bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "a bomb");
    }
}

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bomb as an error")
    }
}

impl std::error::Error for Bomb {}

/// Runs a function, and returns the message of its panic; `None` if it does not panic.
fn panics<T>(run: impl FnOnce() -> T) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}

/// Returns the numbers in each batch of a pass, or the batch's error.
fn pass<S>(loader: &mut Loader<Batch<S>>) -> Vec<Result<Vec<i64>, Error>> {
    let numbers = |batch: Batch<_>| batch.columns().get(0).unwrap().typed().unwrap().as_slice().to_vec();
    loader.epoch().unwrap().map(|batch| batch.map(numbers)).collect()
}

/// Runs `$check` with loaders of several kinds over `$dataset`, in batches of 3, for each number of
/// workers.
macro_rules! with_each {
    ($dataset:expr, $workers:expr, $check:expr) => {{
        for workers in $workers {
            for help in [true, false] {
                let builder = Loader::builder($dataset).batch_size(3).num_workers(workers);
                $check(&mut builder.help(help || workers == 0).build().unwrap());
            }
            $check(
                &mut Loader::builder($dataset).batch_size(3).num_workers(workers).round_robin(true).build().unwrap(),
            );
            $check(&mut Loader::iterable(OneByOne($dataset)).batch_size(3).num_workers(workers).build().unwrap());
        }
    }};
}

#[test]
fn a_sample_that_panics_on_drop_fails_its_batch() {
    fn check<S>(loader: &mut Loader<Batch<S>>) {
        let got = pass(loader);
        let failed = |got: &Result<_, Error>| match got {
            Err(Error::Panic { message, .. }) => message.contains("a bomb"),
            got => got.as_ref().map(|_| false).unwrap(),
        };
        assert_eq!(got.iter().filter(|&got| failed(got)).count(), 1, "{got:?}");
        let good: Vec<_> = got.into_iter().flatten().flatten().collect();
        assert!([1, 2, 9, 10, 11].iter().all(|number| good.contains(number)) && !good.contains(&4), "{good:?}");
    }
    let armed = |index| {
        let bomb = Bomb(index == 4);
        WrittenBy::new(index as i64, move |number: i64, row: &mut Row<'_>| {
            let _ = &bomb;
            number.write(row)
        })
    };
    let dataset = || from_fn(LEN, move |index, _| Ok(armed(index)));
    with_each!(dataset(), [0, 1], check);
}

#[test]
fn unread_errors_that_panic_on_drop_have_no_effect() {
    fn leave<S>(loader: &mut Loader<Batch<S>>) {
        for _ in 0..3 {
            let mut pass = loader.epoch().unwrap();
            if let Some(Err(error)) = pass.next() {
                std::mem::forget(error);
            }
            // Wait until a batch is ready, as otherwise there may be no error to discard.
            while !pass.is_ready() {
                std::thread::yield_now();
            }
        }
    }
    let dataset = || from_fn(LEN, |index, cx: &mut Context| fail(index, cx));
    fn fail(_: usize, cx: &mut Context) -> Result<i64, BoxError> {
        if cx.worker().is_some() { Err(Bomb(true).into()) } else { Ok(0) }
    }
    with_each!(dataset(), [1, 2], leave);
    // Check the errors of `worker_init`.
    for round_robin in [false, true] {
        let builder = Loader::builder(from_fn(LEN, |index, _| Ok(index as i64))).num_workers(3);
        let builder = builder.worker_init(|_| Err(Bomb(true).into()));
        leave(&mut builder.round_robin(round_robin).build().unwrap());
    }
}

#[test]
fn build_survives_errors_that_panic_on_drop() {
    let dataset = from_fn(LEN, |index, _| if index < 3 { Err(Bomb(true).into()) } else { Ok(index as i64) });
    assert_eq!(panics(|| drop(Loader::builder(dataset).build().unwrap())), None);
    // `build` returns the first error, which is not dropped.
    for replicas in [1, 3] {
        let dataset = OneByOne(from_fn(LEN, |_, _| -> Result<i64, BoxError> { Err(Bomb(true).into()) }));
        let built = panics(|| match Loader::iterable(dataset).num_workers(replicas).build() {
            Err(BuildError::Probe { source, .. }) => {
                assert_eq!(source.to_string(), "a bomb as an error");
                std::mem::forget(source);
            }
            built => panic!("{built:?}"),
        });
        assert_eq!(built, None, "{replicas}");
    }
}

#[test]
fn a_loader_survives_batches_that_panic_on_drop() {
    macro_rules! check {
        ($builder:expr) => {{
            let made = Arc::new(AtomicUsize::new(0));
            let count = made.clone();
            let builder = $builder.num_workers(2).prefetch_factor(4).collate(move |samples| {
                while let Some(sample) = samples.next() {
                    sample?;
                }
                count.fetch_add(1, SeqCst);
                Ok(Bomb(true))
            });
            let mut loader = builder.build().unwrap();
            let mut pass = loader.epoch().unwrap();
            std::mem::forget(pass.next().unwrap().unwrap());
            // Wait until several batches are ready.
            while made.load(SeqCst) < 6 {
                std::thread::yield_now();
            }
            drop(pass);
            assert_eq!(panics(|| drop(loader)), None);
        }};
    }
    let dataset = || from_fn(LEN, |index, _| Ok(index as i64));
    check!(Loader::builder(dataset()).help(false));
    check!(Loader::builder(dataset()).round_robin(true));
    check!(Loader::iterable(OneByOne(dataset())));
}

/// A dataset that panics once in `len`, if the flag is set, or always in `fields`.
struct PanicsInMethods {
    len: Arc<AtomicBool>,
    fields: bool,
}

impl Dataset for PanicsInMethods {
    type Sample<'a> = i64;

    fn len(&self) -> usize {
        assert!(!self.len.swap(false, SeqCst), "no len");
        LEN
    }

    fn get(&self, index: usize, _: &mut Context) -> Result<i64, BoxError> {
        Ok(index as i64)
    }

    fn fields(&self) -> Option<Fields> {
        assert!(!self.fields, "no fields");
        None
    }
}

#[test]
fn after_len_panics_the_next_epoch_can_begin() {
    let len = Arc::new(AtomicBool::new(false));
    let panicking = || PanicsInMethods { len: len.clone(), fields: false };
    let check = |loader: &mut dyn FnMut() -> usize| {
        for _ in 0..2 {
            len.store(true, SeqCst);
            assert_eq!(panics(&mut *loader).as_deref(), Some("no len"));
            assert_eq!(loader(), LEN / 3);
        }
    };
    for workers in [0, 2] {
        let mut shared = Loader::builder(panicking()).batch_size(3).num_workers(workers).build().unwrap();
        check(&mut || pass(&mut shared).into_iter().map(Result::unwrap).count());
        let mut round_robin =
            Loader::builder(panicking()).batch_size(3).num_workers(workers).round_robin(true).build().unwrap();
        check(&mut || pass(&mut round_robin).into_iter().map(Result::unwrap).count());
    }
}

#[test]
fn a_panic_in_fields_fails_build() {
    let builder = || Loader::builder(PanicsInMethods { len: Arc::default(), fields: true }).num_workers(1);
    for round_robin in [false, true] {
        assert_eq!(panics(|| builder().round_robin(round_robin).build()).as_deref(), Some("no fields"));
    }
}

/// Returns a sampler that panics in every other call of `order`, after it has written part of the
/// order.
fn every_other() -> impl Sampler {
    let mut calls = 0_usize;
    sampler_fn(LEN, move |order| {
        calls += 1;
        *order = Order::U32(vec![0; 5]);
        assert!(calls.is_multiple_of(2), "no order");
        *order = Order::U32((0..LEN as u32).rev().collect());
        Ok(())
    })
}

#[test]
fn after_a_sampler_panics_the_next_epoch_can_begin() {
    let builder = || Loader::builder(from_fn(LEN, |index, _| Ok(index as i64))).batch_size(3).sampler(every_other());
    fn check<S>(mut loader: Loader<Batch<S>>) {
        for _ in 0..2 {
            assert_eq!(panics(|| pass(&mut loader)).as_deref(), Some("no order"));
            let got: Vec<_> = pass(&mut loader).into_iter().flat_map(Result::unwrap).collect();
            assert!(got.into_iter().eq((0..LEN as i64).rev()));
        }
    }
    for workers in [0, 2] {
        check(builder().num_workers(workers).build().unwrap());
        check(builder().num_workers(workers).round_robin(true).build().unwrap());
    }
}

/// An iterator of indices that owns a [`Bomb`].
struct Indices(std::ops::Range<usize>, #[allow(dead_code)] Bomb);

impl Iterator for Indices {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.0.next()
    }
}

#[test]
fn an_index_iterator_may_panic_when_created_or_dropped() {
    for workers in [0, 1, 2] {
        let made = AtomicUsize::new(0);
        let builder = Loader::builder(from_fn(LEN, |index, _| Ok(index as i64))).batch_size(3).num_workers(workers);
        let builder = builder.sampler_iter(move || {
            assert!(made.fetch_add(1, SeqCst) % 3 < 2, "none made");
            Indices(0..LEN, Bomb(true))
        });
        let mut loader = builder.build().unwrap();
        for _ in 0..3 {
            // Run a pass that is dropped early, and a whole pass.
            assert_eq!(loader.epoch().unwrap().next().unwrap().unwrap().indices(), [0, 1, 2]);
            assert_eq!(pass(&mut loader).into_iter().map(Result::unwrap).count(), LEN / 3);
            assert_eq!(panics(|| pass(&mut loader)).as_deref(), Some("none made"));
        }
    }
}
