//! Tests of bad samples in loaders with a collate function.

use slotline::dataset::Loadable;
use slotline::loader::Samples;
use slotline::sample::OwnedSample;

use super::*;

fn indices(batch: &[Seen]) -> Vec<usize> {
    batch.iter().map(|seen| seen.index).collect()
}

/// Returns the indices of each collated batch. The collate function takes samples with `for_each`
/// if `each` is set, and with `next` otherwise. It fails on an empty batch.
fn collated(
    fault: Fault,
    bad: fn(usize) -> bool,
    on_error: OnError,
    how: How,
    each: bool,
) -> Vec<Result<Vec<usize>, String>> {
    let builder = builder::<false>(fault, bad, how.many).num_workers(how.workers).on_error(on_error);
    let builder = builder.collate(move |samples| {
        assert_eq!(samples.index(), None);
        let (most, mut batch) = (samples.len(), Vec::new());
        if each {
            samples.for_each(|sample| {
                batch.push(sample.index);
                Ok(())
            })?;
        } else {
            while let Some(sample) = samples.next() {
                batch.push(sample?.index);
            }
        }
        assert!(samples.is_empty() && batch.len() <= most);
        match batch.len() {
            0 => Err("no batch without samples".into()),
            _ if batch.contains(&20) => panic!("no batch with 20"),
            _ => Ok(batch),
        }
    });
    let of = |batch: Result<_, _>| batch.map_err(|error| describe(&error));
    builder.round_robin(how.round_robin).build().unwrap().epoch().unwrap().map(of).collect()
}

#[test]
fn a_collate_function_gets_no_bad_samples_and_may_fail() {
    let [good, _] = good::<false>();
    let place = good.iter().position(|batch| indices(batch).contains(&20)).unwrap();
    for fault in [Fault::Error, Fault::Panic] {
        for how in HOWS.map(|how| How { part_size: None, ..how }).into_iter().filter(|how| !how.processes) {
            for each in [false, true] {
                let bad: fn(usize) -> bool = |i| i % 5 == 3;
                let skipped = collated(fault, bad, SKIP, how, each);
                let replaced = collated(fault, bad, REPLACE, how, each);
                assert_eq!((skipped.len(), replaced.len()), (good.len(), good.len()));
                for (task, good) in good.iter().enumerate() {
                    let good = indices(good);
                    if task == place {
                        assert!(skipped[task].as_ref().unwrap_err().contains("no batch with 20"), "{how:?}");
                        continue;
                    }
                    let left: Vec<_> = good.iter().copied().filter(|&index| !bad(index)).collect();
                    assert_eq!(skipped[task].as_ref(), Ok(&left), "{fault:?}, {how:?}, {each}");
                    // The substitute may be sample 20, at which the function panics.
                    if let Ok(replaced) = &replaced[task] {
                        let fits = |(got, good): (&usize, &usize)| !bad(*got) && (got == good || bad(*good));
                        assert!(replaced.len() == good.len() && replaced.iter().zip(&good).all(fits), "{replaced:?}");
                    }
                }
                assert!(replaced.iter().filter(|batch| batch.is_ok()).count() >= 3);
                assert_eq!(replaced, collated(fault, bad, REPLACE, HOWS[0], false), "{how:?}, {each}");
            }
        }
    }
}

#[test]
fn a_batch_collated_from_no_samples_is_discarded() {
    for how in HOWS.map(|how| How { part_size: None, ..how }).into_iter().filter(|how| !how.processes) {
        for each in [false, true] {
            let got = collated(Fault::Panic, |i| i != 7, SKIP, how, each);
            assert_eq!(got, [Ok(vec![7])], "{how:?}");
            assert_eq!(collated(Fault::Error, |_| true, SKIP, how, each), []);
            let got = collated(Fault::Error, |_| true, REPLACE, how, each);
            assert!(got.len() == 6 && got.iter().all(|batch| batch.as_ref().unwrap_err().contains("8 substitutes")));
        }
    }
}

/// Collates samples by writing each into separate memory, which fails in the same cases as writing
/// it into a row of a batch. Returns the samples.
pub(super) fn written<D>(samples: &mut Samples<'_, D>, each: bool) -> Result<Vec<Seen>, BoxError>
where
    D: for<'a> Loadable<Item<'a> = Sheet<false>>,
{
    let (mut apart, mut batch) =
        (OwnedSample::new(Fields::of(&Sheet::<false> { index: 0, word: 0, fault: None }))?, Vec::new());
    let mut write = |sample: Sheet<false>| {
        let seen = Seen { index: sample.index, word: sample.word };
        apart.fill(|row| sample.write(row)).map(|()| seen)
    };
    if each {
        samples.for_each(|sample| {
            batch.push(write(sample)?);
            Ok(())
        })?;
    } else {
        while let Some(seen) = samples.next_as(&mut write) {
            batch.push(seen?);
        }
    }
    if batch.is_empty() { Err("no batch without samples".into()) } else { Ok(batch) }
}

#[test]
fn what_stacking_leaves_out_collate_functions_leave_out() {
    let bad: fn(usize) -> bool = |i| i % 5 == 3;
    let few = OnError::Skip(Budget::Samples(3));
    for (fault, on_error) in
        FAULTS.into_iter().flat_map(|fault| [OnError::Raise, SKIP, REPLACE, few].map(|on_error| (fault, on_error)))
    {
        let stacked = report::<false>(builder(fault, bad, false).on_error(on_error), HOWS[0]);
        for how in HOWS.map(|how| How { part_size: None, ..how }).into_iter().filter(|how| !how.processes) {
            for each in [false, true] {
                let builder = builder::<false>(fault, bad, how.many).on_error(on_error).num_workers(how.workers);
                let builder = builder.round_robin(how.round_robin).collate(move |samples| written(samples, each));
                let mut loader = builder.build().unwrap();
                let passes = [(); 2].map(|()| {
                    let pass = loader.epoch().unwrap().enumerate();
                    pass.map(|(task, batch)| batch.map(|batch| (task, batch)).map_err(|error| describe(&error)))
                        .collect()
                });
                let stats = loader.stats();
                let got = Report { passes, bad: stats.bad_samples as usize, indices: stats.bad_indices };
                assert_eq!(got, stacked, "{fault:?}, {on_error:?}, {how:?}, {each}");
            }
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
fn collate_functions_in_processes_leave_the_same_out() {
    let bad: fn(usize) -> bool = |i| i % 5 == 3;
    for (round_robin, on_error) in [(false, SKIP), (false, REPLACE), (true, SKIP), (true, REPLACE)] {
        let builder = || {
            let builder = builder::<false>(Fault::Write, bad, false).on_error(on_error).num_workers(2);
            builder.round_robin(round_robin).collate(|samples| {
                let batch = written(samples, true)?;
                Ok((batch.len() as i64, batch.iter().fold(0, |digest, seen| (digest ^ seen.word).wrapping_mul(31))))
            })
        };
        let mut threads = builder().build().unwrap();
        let mut processes = builder().processes().build().unwrap();
        let wanted: Vec<_> = threads.epoch().unwrap().map(Result::unwrap).collect();
        let got = processes.epoch().unwrap().map(|batch| {
            let batch = batch.unwrap();
            let (len, digest) = batch.tensors();
            (len.as_slice()[0], digest.as_slice()[0])
        });
        assert_eq!(got.collect::<Vec<_>>(), wanted, "{on_error:?}");
        assert!(wanted.iter().map(|batch| batch.0).sum::<i64>() == if on_error == SKIP { 34 } else { 42 });
        assert_eq!(processes.stats().bad_indices, threads.stats().bad_indices);
    }
}
