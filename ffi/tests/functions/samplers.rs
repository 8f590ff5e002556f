//! Tests that samplers and batch samplers deliver the same orders as those of the Rust crate.

use std::ffi::c_void;
use std::mem::take;
use std::ptr::{null, null_mut};
use std::slice;
use std::sync::Mutex;

use slotline::dataset::Context;
use slotline::loader::Builder;
use slotline::rng::Generator;
use slotline::sampler::{
    BatchSampler, CipherSampler, DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler,
};
use slotline::{BoxError, Dataset, Loader as Engine};

use slotline_ffi::*;

use crate::support::datasets::{Drops, dropped};
use crate::support::{Loader, call, options};

/// The number of digits.
pub(crate) const LEN: usize = 1797;

pub(crate) type Batches = Vec<Vec<i64>>;

/// Returns two passes of a loader of the digits as lists of batches.
pub(crate) fn passes(set: impl Fn(&mut slotline_options)) -> Batches {
    let all = |num_workers| -> Batches {
        let loader = Loader::with(options(|options| {
            (options.num_workers, options.has_seed, options.seed) = (num_workers, 1, 11);
            set(options);
        }));
        let pass = || {
            loader.epoch().unwrap();
            loader.rest()
        };
        [pass(), pass()].concat()
    };
    let (alone, together) = (all(0), all(2));
    assert!(alone == together, "the number of workers does not matter");
    alone
}

/// Returns two passes of a Rust loader with the same options.
pub(crate) fn engine(set: impl FnOnce(Builder<Numbers>) -> Builder<Numbers>) -> Batches {
    let mut loader = set(Engine::builder(Numbers).seed(11)).build().unwrap();
    let mut pass = || -> Batches { loader.epoch().unwrap().map(|batch| batch.unwrap().indices().to_vec()).collect() };
    [pass(), pass()].concat()
}

/// A dataset of as many numbers as there are digits.
pub(crate) struct Numbers;

impl Dataset for Numbers {
    type Sample<'a> = i64;

    fn len(&self) -> usize {
        LEN
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<i64, BoxError> {
        Ok(index as i64)
    }
}

/// Creates a sampler, sets its seed if one is given, and uses it.
pub(crate) fn with_sampler(
    seed: Option<u64>,
    make: impl FnOnce(*mut *mut slotline_sampler, *mut *mut slotline_error) -> slotline_status,
) -> Batches {
    let mut sampler = null_mut();
    call(|error| make(&mut sampler, error)).unwrap();
    // SAFETY: the sampler is valid, and freed once.
    unsafe {
        if let Some(seed) = seed {
            slotline_sampler_seed(sampler, seed);
        }
        let batches = passes(|options| (options.batch_size, options.sampler) = (100, sampler));
        slotline_sampler_free(sampler);
        batches
    }
}

#[test]
fn samplers_match_the_engines_samplers() {
    let hundreds = |builder: Builder<Numbers>| builder.batch_size(100);
    // SAFETY: all pointers are valid.
    unsafe {
        let sampler = || RandomSampler::new(LEN).unwrap();
        let random = with_sampler(Some(2), |out, error| slotline_sampler_random(0, 0, out, error));
        let own = sampler().generator(Generator::from_seed(2));
        assert_eq!(random, engine(|builder| hundreds(builder).sampler(own)));
        let seeded = with_sampler(Some(3), |out, error| slotline_sampler_random(1, 250, out, error));
        let own = sampler().replacement(true).num_samples(250).unwrap().generator(Generator::from_seed(3));
        assert_eq!(seeded, engine(|builder| hundreds(builder).sampler(own)));

        let some = [5, 900, 17, 1796];
        let subset = with_sampler(Some(4), |out, error| slotline_sampler_subset_random(some.as_ptr(), 4, out, error));
        let own = SubsetRandomSampler::new(some).generator(Generator::from_seed(4));
        assert_eq!(subset, engine(|builder| hundreds(builder).sampler(own)));

        let weights: Vec<f64> = (0..LEN).map(|i| (i % 7) as f64).collect();
        let weighted = with_sampler(Some(5), |out, error| {
            slotline_sampler_weighted(weights.as_ptr(), weights.len(), 300, 0, out, error)
        });
        let own = WeightedRandomSampler::new(weights.iter().copied(), 300).unwrap().replacement(false).unwrap();
        let own = own.generator(Generator::from_seed(5));
        assert_eq!(weighted, engine(|builder| hundreds(builder).sampler(own)));

        let cipher = with_sampler(Some(6), |out, error| slotline_sampler_feistel(out, error));
        assert_eq!(
            cipher,
            engine(|builder| hundreds(builder).sampler(CipherSampler::new(LEN).generator(Generator::from_seed(6))))
        );

        let list = with_sampler(None, |out, error| slotline_sampler_indices(some.as_ptr(), 4, out, error));
        assert_eq!(list, [[5, 900, 17, 1796], [5, 900, 17, 1796]]);
    }
}

#[test]
fn a_distributed_sampler_follows_the_epoch_that_is_set() {
    let mut sampler = null_mut();
    // SAFETY: all pointers are valid, and each object is freed once.
    unsafe {
        call(|error| slotline_sampler_distributed(3, 1, 1, 9, 1, &mut sampler, error)).unwrap();
        let set = options(|options| (options.batch_size, options.sampler) = (100, sampler));
        let loader = Loader::with(set);
        for epoch in [0, 4] {
            slotline_sampler_set_epoch(sampler, epoch);
            loader.epoch().unwrap();
            let own = DistributedSampler::new(LEN, 3, 1).unwrap().seed(9).drop_last(true);
            own.set_epoch(epoch);
            let want = engine(|builder| builder.batch_size(100).sampler(own));
            assert_eq!(loader.rest(), want[..want.len() / 2]);
        }
        slotline_sampler_set_epoch(null(), 1);
        slotline_sampler_free(sampler);
    }
}

/// Draws the indices backwards in the first pass and forwards in the second; the third pass fails.
unsafe extern "C" fn order(
    _: *mut c_void,
    pass: u64,
    _: u64,
    indices: *mut u64,
    len: usize,
    failure: *mut slotline_failure,
) -> i32 {
    if pass == 2 {
        // SAFETY: the pointer is valid during this callback.
        unsafe { slotline_fail(failure, c"out of ideas".as_ptr()) };
        return 1;
    }
    // SAFETY: there is room for `len` indices.
    let indices = unsafe { slice::from_raw_parts_mut(indices, len) };
    let place = |i| if pass == 0 { len - 1 - i } else { i };
    (0..len).for_each(|i| indices[i] = place(i) as u64);
    0
}

#[test]
fn an_order_callback_is_used_and_its_error_reported() {
    let (drops, mut sampler) = (Drops::default(), null_mut());
    let callback = slotline_order_callback {
        struct_size: size_of::<slotline_order_callback>(),
        user: drops.user(),
        len: 5,
        order: Some(order),
        drop: Some(dropped),
    };
    // SAFETY: all pointers are valid, and each object is freed once.
    unsafe {
        call(|error| slotline_sampler_from_callback(&callback, &mut sampler, error)).unwrap();
        let batches = passes(|options| (options.batch_size, options.sampler) = (3, sampler));
        assert_eq!(batches, [vec![4, 3, 2], vec![1, 0], vec![0, 1, 2], vec![3, 4]]);
        let loader = Loader::with(options(|options| options.sampler = sampler));
        slotline_sampler_free(sampler);
        loader.epoch().unwrap();
        loader.epoch().unwrap();
        let Err((SLOTLINE_ERROR_SAMPLER, message)) = loader.epoch() else { panic!("no error") };
        assert!(message.ends_with("out of ideas"), "{message}");
        assert_eq!(drops.count(), 0);
        drop(loader);
        assert_eq!(drops.count(), 1);
    }
}

/// Shuffles the indices with the seed, and records the pass and the seed in the `Mutex` that `user`
/// points to.
unsafe extern "C" fn shuffled(
    user: *mut c_void,
    pass: u64,
    seed: u64,
    indices: *mut u64,
    len: usize,
    _: *mut slotline_failure,
) -> i32 {
    // SAFETY: the tests pass a list that outlives the loaders, and there is room for `len` indices.
    let (noted, indices) =
        unsafe { (&*user.cast::<Mutex<Vec<(u64, u64)>>>(), slice::from_raw_parts_mut(indices, len)) };
    noted.lock().unwrap().push((pass, seed));
    (0..len).for_each(|i| indices[i] = i as u64);
    indices.sort_by_key(|&index| Generator::from_seed(seed ^ index).random_i64());
    0
}

#[test]
fn an_order_callback_gets_a_seed_for_each_pass_which_resumes() {
    let noted = Mutex::<Vec<(u64, u64)>>::default();
    let callback = slotline_order_callback {
        struct_size: size_of::<slotline_order_callback>(),
        user: (&raw const noted).cast_mut().cast(),
        len: 10,
        order: Some(shuffled),
        drop: None,
    };
    let drawn = || take(&mut *noted.lock().unwrap());
    // Each loader gets a new sampler, as in a process that resumes.
    let loader = |source: &dyn Fn(*mut slotline_sampler)| {
        let mut sampler = null_mut();
        // SAFETY: all pointers are valid, and each object is freed once.
        unsafe {
            call(|error| slotline_sampler_from_callback(&callback, &mut sampler, error)).unwrap();
            source(sampler);
            let loader = Loader::with(options(|options| {
                (options.batch_size, options.num_workers, options.sampler) = (4, 2, sampler);
                (options.has_seed, options.seed) = (1, 11);
            }));
            slotline_sampler_free(sampler);
            loader
        }
    };
    let unseeded = |_| {};
    // SAFETY: the sampler is valid.
    let seeded = |sampler| unsafe { slotline_sampler_seed(sampler, 7) };
    // SAFETY: all pointers are valid, and each object is freed once.
    let shared = |sampler| unsafe {
        let mut generator = null_mut();
        call(|error| slotline_generator_new(7, &mut generator, error)).unwrap();
        slotline_sampler_generator(sampler, generator);
        slotline_generator_free(generator);
    };
    let mut states = Vec::new();
    // Other tests also draw from the process's default generator, so its second number is unknown.
    for (source, known) in [(&unseeded as &dyn Fn(*mut slotline_sampler), 1..2), (&seeded, 1..3), (&shared, 1..3)] {
        let first = loader(source);
        let passes = [0, 1, 2].map(|pass| {
            first.epoch().unwrap();
            let mut batches = Vec::new();
            if pass == 1 {
                batches.push(first.next().unwrap().unwrap().indices().to_vec());
                states.push(first.state().unwrap());
            }
            batches.extend(first.rest());
            batches
        });
        let seeds = drawn();
        assert!(passes[0] != passes[1] && passes[1] != passes[2], "{passes:?}");
        assert_eq!(seeds.iter().map(|&(pass, _)| pass).collect::<Vec<_>>(), [0, 1, 2]);
        let resumed = loader(source);
        resumed.load(states.last().unwrap()).unwrap();
        for pass in known.clone() {
            resumed.epoch().unwrap();
            assert_eq!(resumed.rest(), passes[pass][usize::from(pass == 1)..]);
        }
        assert_eq!(drawn(), seeds[known], "the first pass is not drawn again");
        if states.len() > 1 {
            let mut generator = Generator::from_seed(7);
            assert!(seeds.iter().all(|&(_, seed)| seed == generator.random_i64() as u64), "{seeds:?}");
        }
    }
    for (source, state) in [(&unseeded as &dyn Fn(*mut slotline_sampler), &states[1]), (&seeded, &states[0])] {
        let (status, message) = loader(source).load(state).unwrap_err();
        assert_eq!(status, SLOTLINE_ERROR_STATE);
        assert!(message.contains("Ordered: generator was "), "{message}");
    }
}

/// Draws batches of 1, 2 and 3 indices. In the third pass a batch is one index too long, and the
/// fourth pass fails.
unsafe extern "C" fn batches(
    _: *mut c_void,
    pass: u64,
    _: u64,
    batch: u64,
    indices: *mut u64,
    room: usize,
    len: *mut usize,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: the pointers are valid during this callback.
    unsafe {
        match (pass, batch) {
            (_, 3) => return 1,
            (2, 1) => *len = room + 1,
            (3, 1) => {
                slotline_fail(failure, c"no more batches".as_ptr());
                return 5;
            }
            _ => {
                *len = batch as usize + 1;
                (0..*len).for_each(|i| indices.add(i).write(10 * pass + i as u64));
            }
        }
    }
    0
}

#[test]
fn batch_samplers_of_each_kind_are_used() {
    let (drops, mut sampler, mut batch_sampler) = (Drops::default(), null_mut(), null_mut());
    let mut of = |make: &dyn Fn(*mut *mut slotline_batch_sampler, *mut *mut slotline_error) -> slotline_status| {
        call(|error| make(&mut batch_sampler, error)).unwrap();
        let batches = passes(|options| options.batch_sampler = batch_sampler);
        // SAFETY: the batch sampler is freed once.
        unsafe { slotline_batch_sampler_free(batch_sampler) };
        batches
    };
    // SAFETY: all pointers are valid, and each object is freed once.
    unsafe {
        call(|error| slotline_sampler_random(0, 0, &mut sampler, error)).unwrap();
        slotline_sampler_seed(sampler, 8);
        let random = of(&|out, error| slotline_batch_sampler_of(sampler, 64, 1, out, error));
        slotline_sampler_free(sampler);
        let own = || {
            let sampler = RandomSampler::new(LEN).unwrap().generator(Generator::from_seed(8));
            BatchSampler::new(sampler, 64, true).unwrap()
        };
        assert_eq!(random, engine(|builder| builder.batch_sampler(own())));

        let (indices, offsets) = ([7, 1, 2, 3, 4, 9], [0, 1, 4, 4, 6]);
        let lists = of(&|out, error| slotline_batch_sampler_lists(indices.as_ptr(), offsets.as_ptr(), 4, out, error));
        let one = [vec![7], vec![1, 2, 3], vec![], vec![4, 9]];
        assert_eq!(lists, [one.clone(), one].concat());

        let callback = slotline_batches_callback {
            struct_size: size_of::<slotline_batches_callback>(),
            user: drops.user(),
            max_batch_size: 3,
            batches: Some(batches),
            drop: Some(dropped),
        };
        let called = of(&|out, error| slotline_batch_sampler_from_callback(&callback, out, error));
        let want = [vec![0], vec![0, 1], vec![0, 1, 2], vec![10], vec![10, 11], vec![10, 11, 12]];
        assert_eq!((called, drops.count()), (want.to_vec(), 1));
    }
}

/// Writes two batches of one index, and records the pass, the seed and the batch.
unsafe extern "C" fn noting(
    user: *mut c_void,
    pass: u64,
    seed: u64,
    batch: u64,
    indices: *mut u64,
    _: usize,
    len: *mut usize,
    _: *mut slotline_failure,
) -> i32 {
    // SAFETY: the test's own user pointer outlives the loader, and the other pointers are valid
    // during this callback.
    let noted = unsafe { &*user.cast::<Mutex<Vec<(u64, u64, u64)>>>() };
    noted.lock().unwrap().push((pass, seed, batch));
    // SAFETY: there is room for an index.
    unsafe {
        indices.write(seed % 1000);
        len.write(1);
    }
    i32::from(batch == 2)
}

#[test]
fn a_batches_callback_gets_a_seed_for_each_pass_which_resumes() {
    let noted = Mutex::<Vec<(u64, u64, u64)>>::default();
    let callback = slotline_batches_callback {
        struct_size: size_of::<slotline_batches_callback>(),
        user: (&raw const noted).cast_mut().cast(),
        max_batch_size: 1,
        batches: Some(noting),
        drop: None,
    };
    let loader = |seed: Option<u64>| {
        let mut batch_sampler = null_mut();
        // SAFETY: all pointers are valid, and each object is freed once.
        unsafe {
            call(|error| slotline_batch_sampler_from_callback(&callback, &mut batch_sampler, error)).unwrap();
            let loader = Loader::with(options(|options| {
                (options.has_seed, options.seed) = (u8::from(seed.is_some()), seed.unwrap_or(0));
                options.batch_sampler = batch_sampler;
            }));
            slotline_batch_sampler_free(batch_sampler);
            loader
        }
    };
    let pass = |loader: &Loader| {
        loader.epoch().unwrap();
        assert_eq!(loader.rest().len(), 2);
        take(&mut *noted.lock().unwrap())
    };
    for seed in [Some(11), None] {
        let first = loader(seed);
        let (zeroth, one) = (pass(&first), pass(&first));
        first.epoch().unwrap();
        first.next().unwrap();
        let state = first.state().unwrap();
        assert_eq!(first.rest().len(), 1);
        let two = take(&mut *noted.lock().unwrap());
        for (number, calls) in [(0, &zeroth), (1, &one), (2, &two)] {
            let seed = calls[0].1;
            assert_eq!(*calls, [0, 1, 2].map(|batch| (number, seed, batch)));
        }
        assert!(zeroth[0].1 != one[0].1 && one[0].1 != two[0].1);
        let resumed = loader(seed);
        resumed.load(&state).unwrap();
        resumed.epoch().unwrap();
        assert_eq!(resumed.rest().len(), 1);
        assert_eq!(take(&mut *noted.lock().unwrap()), two, "the passes before it are not drawn again");
        if seed.is_some() {
            assert_eq!(pass(&loader(seed)), zeroth, "the loader's seed decides");
            assert_ne!(pass(&loader(Some(12))), zeroth);
        }
    }
}

#[test]
fn a_failed_batch_sampler_ends_the_pass_with_its_error() {
    let mut batch_sampler = null_mut();
    let callback = slotline_batches_callback {
        struct_size: size_of::<slotline_batches_callback>(),
        user: null_mut(),
        max_batch_size: 3,
        batches: Some(batches),
        drop: None,
    };
    // SAFETY: all pointers are valid, and each object is freed once.
    let loader = unsafe {
        call(|error| slotline_batch_sampler_from_callback(&callback, &mut batch_sampler, error)).unwrap();
        let loader = Loader::with(options(|options| options.batch_sampler = batch_sampler));
        slotline_batch_sampler_free(batch_sampler);
        loader
    };
    for words in ["the callback returned 4 indices, but max_batch_size is 3", "no more batches"] {
        if loader.next().is_err() {
            // The first two passes succeed.
            (0..2).for_each(|_| assert_eq!(loader.epoch(), Ok(SLOTLINE_OK)));
        }
        loader.epoch().unwrap();
        assert_eq!(loader.next().unwrap().unwrap().indices().len(), 1);
        let Err((SLOTLINE_ERROR_SAMPLER, message)) = loader.next() else { panic!("no error") };
        let begin = "the batch sampler failed when it was asked for batch 1, in the consumer's thread: ";
        assert_eq!(message, format!("{begin}{words}"));
        assert!(loader.next().unwrap().is_none());
    }
}

#[test]
fn a_list_of_other_indices_refuses_a_state() {
    let loader = |indices: &[usize]| {
        let mut sampler = null_mut();
        // SAFETY: all pointers are valid, and each object is freed once.
        unsafe {
            call(|error| slotline_sampler_indices(indices.as_ptr(), indices.len(), &mut sampler, error)).unwrap();
            let set = options(|options| (options.batch_size, options.sampler) = (2, sampler));
            let loader = Loader::with(set);
            slotline_sampler_free(sampler);
            loader
        }
    };
    let first = loader(&[5, 900, 17, 1796]);
    first.epoch().unwrap();
    assert_eq!(first.next().unwrap().unwrap().indices(), [5, 900]);
    let state = first.state().unwrap();
    let same = loader(&[5, 900, 17, 1796]);
    same.load(&state).unwrap();
    same.epoch().unwrap();
    assert_eq!(same.rest(), [[17, 1796]]);
    let (status, message) = loader(&[5, 900, 17, 1795]).load(&state).unwrap_err();
    assert_eq!(status, SLOTLINE_ERROR_STATE);
    assert!(message.contains("other indices"), "{message}");
    let (_, message) = loader(&[5, 900, 17]).load(&state).unwrap_err();
    assert!(message.contains("the list has 3 indices, but the list of the state has 4"), "{message}");
}
