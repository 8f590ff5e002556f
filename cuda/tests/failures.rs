//! Tests in which the driver calls of a run fail, one in each run.

mod support;

use std::collections::BTreeSet;

use slotline::Loader;
use slotline_cuda::{Device, DeviceLoader, Error, Stream, leaked};
use slotline_cuda_fake::{Fake, Options};
use support::{Things, check, nothing_is_lost};

const OUT_OF_MEMORY: u32 = 2;
const ILLEGAL_ADDRESS: u32 = 700;

/// The outcome of a run.
#[derive(Debug)]
enum Outcome {
    /// The loader could not be built.
    NotBuilt(String),
    /// Both passes were started.
    Ran { delivered: Vec<usize>, errors: Vec<Error>, closed: Result<(), Error> },
}

/// Runs two passes of four batches without workers, so that each run makes the same calls.
fn run() -> Outcome {
    match try_run() {
        Ok(outcome) => outcome,
        Err(error) => {
            let causes = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
            Outcome::NotBuilt(causes.map(|error| error.to_string()).collect::<Vec<_>>().join(": "))
        }
    }
}

fn try_run() -> Result<Outcome, slotline::BoxError> {
    let device = Device::new(0)?;
    let stream = Stream::new(&device)?;
    let host = Loader::builder(Things(16)).batch_size(4).memory(device.pinned()).build()?;
    let mut loader = DeviceLoader::new(host, &device)?;
    let (mut delivered, mut errors) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        for (step, batch) in loader.epoch()?.enumerate() {
            match batch {
                Ok(batch) => {
                    delivered.push(batch.batch_index());
                    errors.extend(batch.ready_on(&stream).err());
                    if step % 2 == 0 {
                        errors.extend(batch.release_on(&stream).err());
                    }
                }
                Err(error) => errors.push(error),
            }
            assert!(step < 20, "the pass does not end: {errors:?}");
        }
    }
    let closed = loader.close().map(drop);
    Ok(Outcome::Ran { delivered, errors, closed })
}

#[test]
fn every_leak_of_a_single_failing_call_is_counted() {
    // The older driver needs a context for more calls.
    for driver_version in [13_000, 12_000] {
        fail_each_call(&Options { driver_version, ..Options::default() });
    }
}

fn fail_each_call(options: &Options) {
    let fake = Fake::load().session(options.clone());
    assert!(matches!(run(), Outcome::Ran { errors, .. } if errors.is_empty()));
    // The first run makes the calls that happen once per process, so that they do not fail below.
    fake.reset(options.clone());
    run();
    let calls = fake.calls();
    assert!(calls > 60, "{calls} calls");
    let mut outcomes = [0; 3];
    for n in 0..calls {
        fake.reset(options.clone());
        let before = leaked();
        fake.fail_call(n, OUT_OF_MEMORY);
        let outcome = run();
        fake.fail_none();
        assert_eq!(fake.violations(), Vec::<String>::new(), "call {n}: {outcome:?}");
        nothing_is_lost(&fake, before);
        match outcome {
            Outcome::NotBuilt(error) => {
                assert!(error.contains("OUT_OF_MEMORY") || error.contains("page-locked"), "call {n}: {error}");
                outcomes[0] += 1;
            }
            // A failing release at the end only logs a warning, and a failing query is repeated.
            Outcome::Ran { delivered, errors, closed } if errors.is_empty() && closed.is_ok() => {
                assert_eq!(delivered, [0, 1, 2, 3, 0, 1, 2, 3], "call {n}");
                outcomes[1] += 1;
            }
            Outcome::Ran { delivered, errors, closed } => {
                // If a host slot is leaked, each pass may report that slots are held.
                let held = |error: &&Error| matches!(error, Error::Loader(slotline::Error::Held { .. }));
                assert!(errors.iter().filter(held).count() <= 2, "call {n}: {errors:?}");
                assert!(errors.iter().filter(|error| !held(error)).count() <= 2, "call {n}: {errors:?}");
                let in_place = errors.iter().filter(|error| matches!(error, Error::Copy { .. })).count();
                let lost = errors.iter().any(|error| matches!(error, Error::Leaked { .. })) || closed.is_err();
                assert!(delivered.len() + in_place == 8 || lost, "call {n}: {delivered:?} {errors:?}");
                outcomes[2] += 1;
            }
        }
    }
    println!(
        "{calls} calls: {} without a loader, {} without an effect, {} with an error",
        outcomes[0], outcomes[1], outcomes[2]
    );
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

#[test]
fn passes_end_after_a_sticky_error_and_leaks_are_counted() {
    let fake = Fake::load().session(Options::default());
    run();
    fake.reset(Options::default());
    run();
    let calls = fake.calls();
    for n in 0..calls {
        fake.reset(Options::default());
        let before = leaked();
        fake.fail_from(n, ILLEGAL_ADDRESS);
        let outcome = run();
        fake.fail_none();
        nothing_is_lost(&fake, before);
        if let Outcome::Ran { errors, .. } = outcome {
            // Leaked host slots count as held.
            let held = |error: &&Error| matches!(error, Error::Loader(slotline::Error::Held { .. }));
            for error in errors.iter().filter(|error| !held(error)) {
                assert!(error.to_string().contains("(700)"), "call {n}: {error}");
            }
        }
    }
}

#[test]
fn a_failed_copy_is_an_error_and_the_pass_continues() {
    let fake = Fake::load().session(Options::default());
    let mut failed = BTreeSet::new();
    for n in 0..5 {
        let device = Device::new(0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut loader = support::loader(&device, 80, 0, 2);
        let mut pass = loader.epoch().unwrap();
        for _ in 0..3 {
            check(&pass.next().unwrap().unwrap(), &stream);
        }
        fake.fail_call(n, OUT_OF_MEMORY);
        match pass.next().unwrap() {
            Err(Error::Copy { task: 3, source }) => {
                assert_eq!(source.code, OUT_OF_MEMORY);
                failed.insert(source.call);
            }
            // The failed call asked whether a copy is done, so its end is unknown. The host continues with the rest
            // of its memory.
            Err(Error::Leaked { .. }) => {
                fake.fail_none();
                assert!(pass.all(|batch| batch.is_ok()));
                continue;
            }
            // There were fewer calls than `n`.
            Ok(_) => {}
            Err(error) => panic!("call {n}: {error}"),
        }
        fake.fail_none();
        let left = pass.map(|batch| check(&batch.unwrap(), &stream)).count();
        assert_eq!(left, 6);
    }
    assert_eq!(failed, BTreeSet::from(["cuEventRecord", "cuMemcpyHtoDAsync", "cuStreamWaitEvent"]));
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[test]
fn a_query_refused_during_a_stream_capture_loses_nothing() {
    const CAPTURE_UNSUPPORTED: u32 = 900;
    let fake = Fake::load().session(Options::default());
    let mut outcomes = [0; 2];
    for (slots, is_sticky) in [(1, false), (2, false), (1, true), (2, true)] {
        for n in 0..6 {
            let before = leaked();
            let device = Device::new(0).unwrap();
            let stream = Stream::new(&device).unwrap();
            let mut loader = support::loader(&device, 80, 0, slots);
            let mut pass = loader.epoch().unwrap();
            check(&pass.next().unwrap().unwrap(), &stream);
            let queries = fake.count("cuEventQuery");
            if is_sticky {
                fake.fail_from(n, CAPTURE_UNSUPPORTED);
            } else {
                fake.fail_call(n, CAPTURE_UNSUPPORTED);
            }
            let outcome = pass.next().unwrap();
            fake.fail_none();
            let was_queried = fake.count("cuEventQuery") > queries;
            let lost = match outcome {
                Err(Error::Copy { task: 1, .. }) => 1,
                Err(Error::Driver(error)) => {
                    assert!(
                        was_queried && error.call == "cuEventQuery" && error.to_string().contains("graph"),
                        "{error}"
                    );
                    outcomes[0] += 1;
                    0
                }
                Ok(batch) => {
                    check(&batch, &stream);
                    outcomes[1] += 1;
                    1
                }
                Err(error) => panic!("call {n}: {error}"),
            };
            assert_eq!(pass.map(|batch| check(&batch.unwrap(), &stream)).count(), 9 - lost, "call {n}");
            drop(loader);
            assert_eq!(leaked(), before);
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}
