//! Tests of options that must have the same effect with threads and with processes.

use std::time::{Duration, Instant};

use slotline::loader::{Affinity, BadSample, Budget, OnError};
use slotline::sample::{Packed, PaddedToMax};
use slotline::{Error, Loader, worker_info};

use crate::die;
use crate::support::{LONG, chain, describe, from_fn, items, sleeping_sometimes};

/// Checks that processes give the same batches, errors and counts as threads in several passes.
/// Returns the loader with processes.
macro_rules! both {
    ($builder:expr) => {{
        let mut threads = $builder.num_workers(2).help(false).build().unwrap();
        let mut processes = $builder.num_workers(2).processes().build().unwrap();
        for _ in 0..3 {
            let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
            let got: Vec<String> = processes.epoch().unwrap().map(describe).collect();
            assert_eq!(got, expected);
        }
        let (expected, got) = (threads.stats(), processes.stats());
        assert_eq!((got.batches, got.samples), (expected.batches, expected.samples));
        assert_eq!((got.bad_samples, &got.bad_indices), (expected.bad_samples, &expected.bad_indices));
        processes
    }};
}

#[test]
fn errors_and_panics_are_those_of_threads() {
    both!(
        Loader::builder(from_fn(20, |index, _| match index {
            3 => Err("the third is missing".into()),
            9 => panic!("nine"),
            _ => Ok(index as i64),
        }))
        .batch_size(4)
    );
}

#[test]
fn bad_samples_are_passed_over() {
    let dataset = || {
        items(200, |index, cx| match index % 23 {
            5 => Err(format!("sample {index} is torn").into()),
            6 => panic!("{index}!"),
            _ => sleeping_sometimes(index, cx),
        })
    };
    for on_error in
        [OnError::Skip(Budget::Share(0.5)), OnError::Replace(Budget::Samples(90)), OnError::Skip(Budget::Samples(3))]
    {
        let builder = || Loader::builder(dataset()).batch_size(7).shuffle(true).seed(4).on_error(on_error);
        let loader = both!(builder());
        let torn = |bad: &BadSample| bad.message.contains(&format!("sample {} is torn", bad.index));
        assert!(
            loader.stats().bad_causes.iter().all(|bad| torn(bad) == (bad.index % 23 == 5)),
            "{:?}",
            loader.stats().bad_causes
        );
    }
    // All samples of some batches are bad. Batches have several parts, or only one.
    let odd = || from_fn(40, |index, _| if index / 8 % 2 == 1 { Err("odd".into()) } else { Ok(index as i64) });
    both!(Loader::builder(odd()).batch_size(8).on_error(OnError::Skip(Budget::Samples(100))));
    both!(Loader::builder(odd()).batch_size(8).part_size(8).on_error(OnError::Skip(Budget::Samples(100))));
    const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];
    let words = || {
        from_fn(60, |index, _| match index % 7 {
            3 => Err("no words".into()),
            _ => {
                Ok((Packed::new(&NUMBERS[..index % 5], 5), PaddedToMax::new(&NUMBERS[..index % 4], 4), index % 2 == 0))
            }
        })
    };
    both!(Loader::builder(words()).batch_size(6).on_error(OnError::Skip(Budget::Samples(100))));
}

#[test]
fn without_replacements_the_other_worker_goes_on() {
    let dataset = from_fn(60, |index, _| {
        if index == 21 {
            die();
        }
        Ok(index as i64)
    });
    let builder = Loader::builder(dataset).batch_size(5).num_workers(2).on_error(OnError::Skip(Budget::Samples(1)));
    let mut loader = builder.processes().build().unwrap();
    for _ in 0..3 {
        let got: Vec<i64> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
        assert_eq!(got, (0..60).filter(|&index| index != 21).collect::<Vec<i64>>());
    }
    assert_eq!(loader.stats().bad_indices, [21]);
}

#[test]
fn a_sample_that_takes_too_long_is_reported_or_passed_over() {
    let dataset = || {
        from_fn(40, |index, _| {
            if index == 13 {
                std::thread::sleep(LONG * 10);
            }
            Ok(index as i64)
        })
    };
    let limit = Duration::from_millis(300);
    let builder = || Loader::builder(dataset()).batch_size(5).num_workers(2);
    let begun = Instant::now();
    let mut loader = builder().processes().sample_timeout(limit).build().unwrap();
    for _ in 0..3 {
        let all: Vec<_> = loader.epoch().unwrap().collect();
        assert_eq!(all.iter().filter(|batch| batch.is_ok()).count(), 7);
        assert!(matches!(&all[2], Err(Error::Sample { index: 13, task: 2, .. })), "{:?}", all[2]);
        let text = chain(all[2].as_ref().unwrap_err());
        assert!(text.contains("was killed, since the sample took longer than 300ms"), "{text}");
    }
    let mut loader =
        builder().on_error(OnError::Skip(Budget::Samples(1))).processes().sample_timeout(limit).build().unwrap();
    for _ in 0..3 {
        let got: Vec<i64> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
        assert_eq!(got, (0..40).filter(|&index| index != 13).collect::<Vec<i64>>());
    }
    assert!(begun.elapsed() < LONG);
}

#[test]
fn the_time_of_a_sample_that_took_too_long_counts() {
    let limit = Duration::from_millis(500);
    let parent = std::process::id();
    let slow = || {
        from_fn(40, move |index, _| {
            if index == 13 && std::process::id() != parent {
                std::thread::sleep(LONG * 10);
            }
            Ok(index as i64)
        })
    };
    let builder = || Loader::builder(slow()).batch_size(5).num_workers(1);
    for builder in [builder(), builder().round_robin(true)] {
        let mut loader = builder.processes().sample_timeout(limit).build().unwrap();
        // On a busy machine other samples may take too long as well.
        assert!(loader.epoch().unwrap().any(|batch| matches!(batch, Err(Error::Sample { index: 13, .. }))));
        let stats = loader.stats();
        assert!(stats.workers[0].reading >= limit / 2, "{stats:?}");
        assert!(stats.slowest.iter().any(|slow| slow.index == 13 && slow.time >= limit), "{stats:?}");
    }
}

#[test]
fn iterators_as_samplers_are_the_same() {
    let numbers = || from_fn(50, |index, _| Ok(index as i64));
    both!(Loader::builder(numbers()).batch_size(4).sampler_iter(|| (0..50).rev().step_by(3)));
    both!(Loader::builder(numbers()).batch_size(4).drop_last(true).sampler_iter(|| 0..50));
    both!(Loader::builder(numbers()).batch_size(4).sampler_iter(|| 0..0));
    let lists = || (0..9).map(|len| (len..2 * len).collect::<Vec<usize>>());
    both!(Loader::builder(numbers()).batch_sampler_iter(8, lists));
    // The iterator returns a list that is too long, or panics.
    both!(Loader::builder(numbers()).batch_sampler_iter(4, lists));
    let fails = |_| (0..9).map(|at| if at == 3 { Err("three".into()) } else { Ok([at]) });
    both!(Loader::builder(numbers()).batch_sampler_try_iter(1, fails));
    let breaks = || (0..50).map(|index| if index == 21 { panic!("twenty-one") } else { index });
    both!(Loader::builder(numbers()).batch_size(4).sampler_iter(breaks));
    // The last batch is kept, so there is no memory for another one.
    let builder = Loader::builder(numbers()).batch_size(25).num_workers(1).sampler_iter(|| 0..50);
    let mut loader = builder.prefetch_factor(1).on_held(slotline::loader::OnHeld::Fail).processes().build().unwrap();
    let mut pass = loader.epoch().unwrap();
    let kept: Vec<_> = pass.by_ref().take(2).map(|batch| batch.unwrap()).collect();
    assert!(pass.next().is_none(), "{} kept", kept.len());
    // Batches are delivered out of order.
    let builder = Loader::builder(numbers()).batch_size(4).sampler_iter(|| (0..50).rev());
    let mut loader = builder.num_workers(2).in_order(false).processes().build().unwrap();
    for _ in 0..3 {
        let mut got: Vec<i64> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
        got.sort_unstable();
        assert_eq!(got, (0..50).collect::<Vec<i64>>());
    }
}

#[test]
fn a_worker_init_that_fails_is_reported_and_the_others_go_on() {
    let builder = |fails: fn(usize) -> bool| {
        let numbers = from_fn(30, |index, _| Ok(index as i64));
        Loader::builder(numbers).batch_size(4).num_workers(3).worker_init(move |info| match fails(info.id()) {
            true if info.id() == 2 => panic!("two"),
            true => Err(format!("no {}", info.id()).into()),
            false => Ok(()),
        })
    };
    let mut loader = builder(|id| id > 0).processes().build().unwrap();
    for _ in 0..3 {
        let mut pass = loader.epoch().unwrap();
        for (worker, text) in [(1, "no 1"), (2, "two")] {
            let error = pass.next().unwrap().unwrap_err();
            assert!(matches!(error, Error::WorkerInit { worker: of, .. } if of == worker), "{error:?}");
            assert!(chain(&error).contains(text), "{}", chain(&error));
        }
        assert_eq!(pass.map(|batch| batch.unwrap().len()).sum::<usize>(), 30);
    }
    let mut threads = builder(|_| true).build().unwrap();
    let mut processes = builder(|_| true).processes().build().unwrap();
    for _ in 0..2 {
        let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
        assert_eq!(processes.epoch().unwrap().map(describe).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn workers_run_on_the_cores_of_their_affinity() {
    let dataset = from_fn(40, |_, _| {
        std::thread::sleep(Duration::from_micros(200));
        // SAFETY: `sched_getcpu` has no preconditions.
        Ok((worker_info().map_or(0, |info| info.id() as i64), i64::from(unsafe { libc::sched_getcpu() })))
    });
    let cores = core_affinity::get_core_ids().unwrap();
    let builder = Loader::builder(dataset).batch_size(4).num_workers(2).affinity(Affinity::Spread);
    let mut loader = builder.processes().build().unwrap();
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let (id, core) = batch.tensors();
        for (&id, &core) in id.as_slice().iter().zip(core.as_slice()) {
            assert_eq!(core, cores[id as usize % cores.len()].id as i64);
        }
    }
}

#[test]
fn an_interrupt_is_for_the_program() {
    let parent = std::process::id();
    let dataset = from_fn(20, move |index, _| {
        if std::process::id() != parent {
            // SAFETY: this sends a signal to this process.
            unsafe { libc::raise(libc::SIGINT) };
        }
        Ok(index as i64)
    });
    let mut loader = Loader::builder(dataset).batch_size(4).num_workers(2).processes().build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 20);
}

#[test]
fn the_result_of_a_collate_function_must_fit() {
    let numbers = || Loader::builder(from_fn(20, |index, _| Ok(index as i64))).batch_size(6).num_workers(1);
    let mut loader = numbers()
        .collate(|samples| {
            let mut all = Vec::new();
            while let Some(sample) = samples.next() {
                all.push(sample?);
            }
            Ok(all)
        })
        .processes()
        .build()
        .unwrap();
    let all: Vec<_> = loader.epoch().unwrap().collect();
    assert!(all[..3].iter().all(|batch| batch.as_ref().unwrap().tensors().shape() == [6]));
    let text = chain(all[3].as_ref().unwrap_err());
    assert!(text.contains("[2]") && text.contains("[6]"), "{text}");
}

#[test]
fn the_failure_of_a_packed_sample_is_its_own() {
    const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];
    for kills in [false, true] {
        let parent = std::process::id();
        let dataset = from_fn(80, move |index, _| {
            if index == 35 && std::process::id() != parent {
                if kills {
                    die();
                }
                return Err("my own error".into());
            }
            Ok(Packed::new(&NUMBERS[..1 + index * 7 % 5], 5))
        });
        let mut loader = Loader::builder(dataset).batch_size(8).num_workers(2).processes().build().unwrap();
        let all: Vec<_> = loader.epoch().unwrap().collect();
        let text = chain(all[4].as_ref().unwrap_err());
        assert!(text.contains("sample 35 of batch 4"), "{text}");
        assert!(text.contains(if kills { "signal 9" } else { "my own error" }), "{text}");
        assert!(all.iter().enumerate().all(|(task, batch)| batch.is_ok() == (task != 4)));
    }
}

#[test]
fn substitutes_that_kill_or_hang_are_passed_over_too() {
    let replace = OnError::Replace(Budget::Samples(10_000));
    for hangs in [false, true] {
        let parent = std::process::id();
        let dataset = move |deadly: bool| {
            from_fn(24, move |index, _| match index % 4 {
                1 if deadly && std::process::id() != parent => {
                    if hangs {
                        std::thread::sleep(LONG);
                    }
                    die();
                    unreachable!()
                }
                1 => Err("deadly".into()),
                _ => Ok(index as i64),
            })
        };
        let builder = |deadly| Loader::builder(dataset(deadly)).batch_size(6).seed(3).on_error(replace);
        let mut threads = builder(false).num_workers(2).help(false).build().unwrap();
        let processes = builder(true).num_workers(2).processes().restart_workers(6);
        let mut processes = processes.sample_timeout(Duration::from_millis(250)).build().unwrap();
        for _ in 0..2 {
            let expected: Vec<String> = threads.epoch().unwrap().map(describe).collect();
            assert_eq!(processes.epoch().unwrap().map(describe).collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn a_slow_substitute_is_waited_for() {
    let parent = std::process::id();
    let dataset = from_fn(6, move |index, _| {
        if std::process::id() != parent {
            match index {
                1 => die(),
                _ => std::thread::sleep(Duration::from_millis(2200)),
            }
        }
        Ok(index as i64)
    });
    let builder = Loader::builder(dataset).batch_size(2).num_workers(2).drop_last(true);
    let sampler = slotline::sampler::SequentialSampler::new(2);
    let builder = builder.sampler(sampler).on_error(OnError::Replace(Budget::Samples(5)));
    let mut loader = builder.processes().restart_workers(1).build().unwrap();
    let all: Vec<_> = loader.epoch().unwrap().collect();
    assert!(all.len() == 1 && all[0].is_ok(), "{all:?}");
}

#[test]
fn a_collate_function_is_not_given_a_sample_that_kills() {
    for round_robin in [false, true] {
        let dataset = from_fn(32, |index, _| {
            if index == 11 {
                die();
            }
            Ok(index as i64)
        });
        let builder = Loader::builder(dataset).batch_size(8).num_workers(2).round_robin(round_robin);
        let builder = builder.on_error(OnError::Skip(Budget::Samples(9))).collate(|samples| {
            let mut count = 0_i64;
            while let Some(sample) = samples.next() {
                sample?;
                count += 1;
            }
            Ok(count)
        });
        let mut loader = builder.processes().restart_workers(1).build().unwrap();
        for _ in 0..2 {
            let counts: Vec<i64> =
                loader.epoch().unwrap().map(|batch| batch.unwrap().tensors().as_slice()[0]).collect();
            assert_eq!(counts, [8, 7, 8, 8]);
        }
    }
}

#[test]
fn the_panic_of_a_sampler_is_not_hidden_by_a_collate_function() {
    let numbers = from_fn(20, |index, _| Ok(index as i64));
    let builder = Loader::builder(numbers).batch_size(2).num_workers(1).collate(|samples| match samples.next() {
        None => Err("no samples".into()),
        Some(first) => Ok(first?),
    });
    let builder = builder.sampler_iter(|| (0..20).map(|index| if index == 6 { panic!("six") } else { index }));
    let mut loader = builder.processes().build().unwrap();
    let all: Vec<_> = loader.epoch().unwrap().collect();
    let text = chain(all.last().unwrap().as_ref().unwrap_err());
    assert!(text.contains("the sampler panicked") && text.contains("six"), "{text}");
}

#[test]
fn a_worker_that_ends_in_its_worker_init_is_reported() {
    for restarts in [0, 1] {
        let numbers = from_fn(30, |index, _| Ok(index as i64));
        let builder = Loader::builder(numbers).batch_size(4).num_workers(2).worker_init(|info| {
            if info.id() == 1 {
                die();
            }
            Ok(())
        });
        let mut loader = builder.processes().restart_workers(restarts).build().unwrap();
        let mut pass = loader.epoch().unwrap();
        let error = pass.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::WorkerInit { worker: 1, .. }), "{error:?}");
        assert!(chain(&error).contains("was killed by signal 9"), "{}", chain(&error));
        assert_eq!(pass.map(|batch| batch.unwrap().len()).sum::<usize>(), 30);
    }
}

/// A dataset of numbers whose `prefetch` panics at one of them.
struct Unforeseeable(u32);

impl slotline::Dataset for Unforeseeable {
    type Sample<'a> = i64;

    fn len(&self) -> usize {
        20
    }

    fn get(&self, index: usize, _: &mut slotline::dataset::Context) -> Result<i64, slotline::BoxError> {
        Ok(index as i64)
    }

    fn prefetch(&self, index: usize) {
        if index == 12 && std::process::id() != self.0 {
            die();
        }
    }
}

#[test]
fn a_worker_that_dies_in_prefetch_was_at_the_first_sample_of_its_batch() {
    for round_robin in [false, true] {
        let builder = Loader::builder(Unforeseeable(std::process::id())).batch_size(5).num_workers(1);
        let builder = if round_robin { builder.round_robin(true) } else { builder.part_size(5) };
        let mut loader = builder.processes().build().unwrap();
        let all: Vec<_> = loader.epoch().unwrap().collect();
        assert!(matches!(all[2], Err(Error::Sample { index: 10, task: 2, .. })), "{:?}", all[2]);
    }
}
