//! Loaders go on from a state as if they had never stopped: whatever they load, wherever they are stopped, and however
//! they are built.

#[path = "support/damage.rs"]
mod damage;
mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::dataset::{Context, Dataset};
use slotline::loader::{Batch, Builder, LaneLoader, State, Warning};
use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{
    BatchSampler, CipherSampler, DistributedSampler, Order, RandomSampler, Sampler, SamplerError, SequentialSampler,
    SubsetRandomSampler, WeightedRandomSampler,
};
use slotline::{BoxError, Error, Loader};

use damage::damage;
use support::{dawdle, pixels, prefetch};

/// Some samples that know what they are, and some that fail.
#[derive(Clone)]
struct Items {
    len: usize,
    /// Whether some samples take longer.
    dawdles: bool,
}

impl Dataset for Items {
    type Sample<'a> = (i64, [[u8; 3]; 2], u64);

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        if self.dawdles {
            dawdle(index, cx);
        }
        if index % 17 == 11 {
            return Err("bad".into());
        }
        Ok((index as i64, pixels(index), cx.rng().next_u64() ^ cx.position()))
    }
}

/// What comes of a pass: a batch with all that is in it, or the failure in its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    Batch { epoch: u32, task: usize, indices: Vec<i64>, bytes: Vec<u8>, words: Vec<u64> },
    Failed { epoch: u32, task: usize, index: usize, position: usize },
}

impl Came {
    fn new<D: slotline::dataset::Loadable>(epoch: u32, got: Result<Batch<D>, Error>) -> Self {
        let batch = match got {
            Ok(batch) => batch,
            Err(Error::Sample { index, position, task, .. }) => return Self::Failed { epoch, task, index, position },
            Err(error) => panic!("{error}"),
        };
        let columns = batch.columns();
        Self::Batch {
            epoch: batch.epoch(),
            task: batch.task(),
            indices: batch.indices().to_vec(),
            bytes: columns.get(1).unwrap().typed::<u8>().unwrap().as_slice().to_vec(),
            words: columns.get(2).unwrap().typed::<u64>().unwrap().as_slice().to_vec(),
        }
    }

    /// What order it has, where batches come as they are finished.
    fn key(&self) -> (u32, usize) {
        match *self {
            Self::Batch { epoch, task, .. } | Self::Failed { epoch, task, .. } => (epoch, task),
        }
    }
}

/// A sampler that saves nothing, and draws anew in each pass.
struct Forgetful(usize, Generator);

impl Sampler for Forgetful {
    fn len(&self) -> usize {
        self.0
    }

    fn memory(&self) -> usize {
        4 * self.0
    }

    fn order(&mut self, _: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        self.1.randperm_into(self.0, order.u32_table()).map_err(|error| BoxError::from(error.to_string()).into())
    }
}

/// Where the order comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Sequential,
    Shuffle,
    SequentialSampler,
    Random,
    Shared,
    Draws,
    Subset,
    Weighted,
    Cipher,
    Distributed,
    BatchSampler,
    Forgetful,
    Iterator,
    Lists,
}

const ALL: [From; 14] = [
    From::Sequential,
    From::Shuffle,
    From::SequentialSampler,
    From::Random,
    From::Shared,
    From::Draws,
    From::Subset,
    From::Weighted,
    From::Cipher,
    From::Distributed,
    From::BatchSampler,
    From::Forgetful,
    From::Iterator,
    From::Lists,
];

/// What decides the batches.
#[derive(Clone, Debug)]
struct What {
    len: usize,
    batch_size: Option<usize>,
    drop_last: bool,
    from: From,
    persistent: bool,
    epochs: u32,
}

/// What must not.
#[derive(Clone, Debug)]
struct How {
    workers: usize,
    prefetch: usize,
    part_size: Option<usize>,
    hold: usize,
    in_order: bool,
    dealt: bool,
}

/// When a loader stops: after so many batches, or at the end of the pass in which they are.
type Cut = (usize, bool);

enum Any {
    Shared(Loader<Items>),
    Dealt(LaneLoader<Items>),
}

fn build(what: &What, how: &How) -> Any {
    let n = what.len;
    let builder = prefetch(Loader::builder(Items { len: n, dawdles: !how.in_order }), how.workers, how.prefetch);
    let builder = builder.hold(how.hold).in_order(how.in_order).persistent_workers(what.persistent && how.workers > 0);
    let ours = SharedGenerator::from(Generator::from_seed(5));
    let own = || Generator::from_seed(9);
    let builder = builder.generator(ours.clone());
    let sized = |builder: Builder<Items>| builder.batch_size(what.batch_size).drop_last(what.drop_last);
    let random = || RandomSampler::new(n).unwrap();
    let size = what.batch_size.unwrap_or(1);
    let builder = match what.from {
        From::Sequential => sized(builder),
        From::Shuffle => sized(builder).shuffle(true),
        From::SequentialSampler => sized(builder).sampler(SequentialSampler::new(n)),
        From::Random => sized(builder).sampler(random().generator(own()).num_samples(n + 3).unwrap()),
        From::Shared => sized(builder).sampler(Box::new(random().generator(ours)) as Box<dyn Sampler>),
        From::Draws => sized(builder).sampler(random().generator(own()).replacement(true)),
        From::Subset => sized(builder).sampler(SubsetRandomSampler::new((0..n).step_by(2)).generator(own())),
        From::Weighted => {
            let weights = (0..n).map(|i| 1.0 + (i % 3) as f64);
            sized(builder).sampler(WeightedRandomSampler::new(weights, n).unwrap().generator(own()))
        }
        From::Cipher => sized(builder).sampler(CipherSampler::new(n).generator(own())),
        From::Distributed => sized(builder).sampler(DistributedSampler::new(n, 3, 1).unwrap().seed(4)),
        From::BatchSampler => {
            builder.batch_sampler(BatchSampler::new(random().generator(own()), size, what.drop_last).unwrap())
        }
        From::Forgetful => sized(builder).sampler(Forgetful(n, own())),
        From::Iterator => {
            let mut passes = 0;
            sized(builder).sampler_iter(move || {
                passes += 1;
                (0..n).map(move |i| (i * 7 + passes) % n)
            })
        }
        From::Lists => {
            let mut passes = 0;
            builder.batch_sampler_iter(3, move || {
                passes += 1;
                (0..n).map(move |i| (0..(i + passes) % 4).map(|j| (i + j) % n).collect::<Vec<_>>())
            })
        }
    };
    let feed = matches!(what.from, From::Iterator | From::Lists);
    if how.dealt && !feed {
        return Any::Dealt(builder.build_dealt().unwrap());
    }
    let builder = match how.part_size {
        Some(part_size) => builder.part_size(part_size),
        None => builder,
    };
    Any::Shared(builder.build().unwrap())
}

/// Runs a loader to its end, or to the cut; then its state is given, too.
macro_rules! run {
    ($loader:expr, $what:expr, $cut:expr, $came:expr) => {{
        let (loader, (mut left, at_end)): (_, Cut) = ($loader, $cut);
        let mut state = (left == 0 && !at_end).then(|| loader.state());
        while state.is_none() && loader.next_epoch() < $what.epochs {
            let epoch = loader.next_epoch();
            let mut pass = loader.epoch().unwrap();
            while let Some(got) = pass.next() {
                $came.push(Came::new(epoch, got));
                left = left.saturating_sub(1);
                if left == 0 && !at_end {
                    state = Some(pass.state());
                    break;
                }
            }
            drop(pass);
            match &state {
                Some(state) => assert_eq!(*state, loader.state(), "a pass that is dropped stays where it was"),
                None if left == 0 => state = Some(loader.state()),
                None => {}
            }
        }
        state
    }};
}

impl Any {
    fn run(&mut self, what: &What, cut: Cut, came: &mut Vec<Came>) -> Option<State> {
        match self {
            Self::Shared(loader) => run!(loader, what, cut, came),
            Self::Dealt(loader) => run!(loader, what, cut, came),
        }
    }

    fn load(&mut self, state: &State) -> Result<(), slotline::loader::StateError> {
        match self {
            Self::Shared(loader) => loader.load_state(state),
            Self::Dealt(loader) => loader.load_state(state),
        }
    }

    fn state(&self) -> State {
        match self {
            Self::Shared(loader) => loader.state(),
            Self::Dealt(loader) => loader.state(),
        }
    }
}

const WHOLE: Cut = (usize::MAX, true);

/// All passes of one loader.
fn uninterrupted(what: &What) -> Vec<Came> {
    let workers = usize::from(what.persistent);
    let how = How { workers, prefetch: 1, part_size: None, hold: 1, in_order: true, dealt: false };
    let mut came = Vec::new();
    assert_eq!(build(what, &how).run(what, WHOLE, &mut came), None);
    came
}

/// The passes of one loader after the other, each from where the one before was cut.
fn interrupted(what: &What, parts: &[(How, Cut)], last: &How) -> Vec<Came> {
    let (mut came, mut state) = (Vec::new(), None::<State>);
    for (i, (how, cut)) in parts.iter().map(|(how, cut)| (how, *cut)).chain([(last, WHOLE)]).enumerate() {
        let mut how = how.clone();
        if i == 0 && what.persistent {
            how.workers = how.workers.max(1);
        }
        let mut loader = build(what, &how);
        if let Some(state) = &state {
            let json = serde_json::to_string(state).unwrap();
            assert!(json.len() < 1000, "{json}");
            let read: State = serde_json::from_str(&json).unwrap();
            assert_eq!(read, *state);
            loader.load(&read).unwrap();
            assert_eq!(loader.state(), *state, "nothing was delivered yet");
        }
        state = loader.run(what, cut, &mut came);
        if state.is_none() {
            break;
        }
    }
    came
}

fn what() -> impl Strategy<Value = What> {
    let from = proptest::sample::select(&ALL[..]);
    let batch_size = prop_oneof![1 => Just(None), 6 => (1_usize..12).prop_map(Some), 1 => Just(Some(1000))];
    (1_usize..60, batch_size, any::<bool>(), from, any::<bool>(), 1_u32..4).prop_map(
        |(len, batch_size, drop_last, from, persistent, epochs)| {
            let drop_last = drop_last && batch_size.is_some();
            What { len, batch_size, drop_last, from, persistent, epochs }
        },
    )
}

fn how(in_order: bool) -> impl Strategy<Value = How> {
    (0_usize..4, 1_usize..4, proptest::option::of(1_usize..6), 1_usize..3, any::<bool>()).prop_map(
        move |(workers, prefetch, part_size, hold, dealt)| {
            let part_size = part_size.filter(|_| !dealt);
            How { workers, prefetch, part_size, hold, in_order, dealt }
        },
    )
}

fn parts(in_order: bool) -> impl Strategy<Value = Vec<(How, Cut)>> {
    vec((how(in_order), (0_usize..20, proptest::bool::weighted(0.2))), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_parts_of_a_run_are_the_whole_run(what in what(), parts in parts(true), last in how(true)) {
        prop_assert_eq!(interrupted(&what, &parts, &last), uninterrupted(&what));
    }

    #[test]
    fn as_they_arrive_each_batch_comes_once(what in what(), parts in parts(false), last in how(true)) {
        let mut came = interrupted(&what, &parts, &last);
        came.sort_by_key(Came::key);
        prop_assert_eq!(came, uninterrupted(&what));
    }
}

/// A loader of `from` in the middle of its second pass, as a state says it.
fn state_of(from: From) -> (What, State) {
    let what = What { len: 40, batch_size: Some(4), drop_last: false, from, persistent: false, epochs: 3 };
    let how = How { workers: 0, prefetch: 1, part_size: None, hold: 1, in_order: true, dealt: false };
    let mut came = Vec::new();
    let mut loader = build(&what, &how);
    let first = loader.run(&What { epochs: 1, ..what.clone() }, WHOLE, &mut came);
    assert_eq!(first, None);
    let state = loader.run(&what, (2, false), &mut came).unwrap();
    assert_eq!((state.epoch(), state.batches()), (1, 2));
    (what, state)
}

#[test]
fn a_state_goes_on_from_where_it_is_in_the_loader_that_it_was_taken_from() {
    for from in [From::Sequential, From::Shuffle, From::Random, From::Cipher, From::Distributed] {
        let what = What { len: 40, batch_size: Some(4), drop_last: false, from, persistent: false, epochs: 2 };
        for workers in [0, 2] {
            let how = How { workers, prefetch: 2, part_size: None, hold: 1, in_order: true, dealt: workers == 0 };
            let (mut loader, mut came, mut again) = (build(&what, &how), Vec::new(), Vec::new());
            let state = loader.run(&what, (2, false), &mut came).unwrap();
            assert_eq!(loader.run(&what, WHOLE, &mut Vec::new()), None);
            for _ in 0..2 {
                again.clone_from(&came);
                loader.load(&state).unwrap();
                assert_eq!(loader.run(&what, WHOLE, &mut again), None);
                assert_eq!(again, uninterrupted(&what), "{from:?}");
            }
        }
    }
}

#[test]
fn what_does_not_save_itself_is_fast_forwarded_with_a_warning_and_does_not_go_back() {
    for from in [From::Forgetful, From::Iterator, From::Lists] {
        let (what, state) = state_of(from);
        let how = How { workers: 2, prefetch: 2, part_size: None, hold: 1, in_order: true, dealt: false };
        let Any::Shared(mut loader) = build(&what, &how) else { unreachable!("not dealt") };
        loader.load_state(&state).unwrap();
        assert!(matches!(loader.warnings(), [Warning::FastForward { .. }]), "{:?}", loader.warnings());
        assert!(loader.epoch().unwrap().next().is_some());
        let error = loader.load_state(&state).unwrap_err();
        assert_eq!(error.field(), "epoch", "{error}");
        assert!(error.to_string().contains("new loader"), "{error}");
    }
    for from in ALL.into_iter().filter(|from| ![From::Forgetful, From::Iterator, From::Lists].contains(from)) {
        let (what, state) = state_of(from);
        let how = How { workers: 0, prefetch: 2, part_size: None, hold: 1, in_order: true, dealt: false };
        let Any::Shared(mut loader) = build(&what, &how) else { unreachable!("not dealt") };
        loader.load_state(&state).unwrap();
        assert!(loader.warnings().is_empty(), "{from:?}: {:?}", loader.warnings());
    }
}

#[test]
fn batches_of_a_collate_function_and_held_ones_are_delivered_like_any_other() {
    let build = |workers| {
        let builder = Loader::builder(Items { len: 11, dawdles: false }).batch_size(2).shuffle(true).seed(1);
        let sum = |samples: &mut slotline::loader::Samples<'_, Items>| {
            let mut sum = 0;
            while let Some(sample) = samples.next() {
                sum += sample?.0;
            }
            Ok(sum)
        };
        builder.num_workers(workers).hold(4).collate(sum).build().unwrap()
    };
    let whole: Vec<i64> = build(0).epoch().unwrap().map(Result::unwrap).collect();
    for cut in 0..=whole.len() {
        let (mut before, mut after) = (build(2), build(1));
        let mut pass = before.epoch().unwrap();
        let mut came: Vec<i64> = pass.by_ref().take(cut).map(Result::unwrap).collect();
        after.load_state(&pass.state()).unwrap();
        let rest = after.epoch().unwrap();
        assert_eq!(rest.remaining(), Some(whole.len() - cut));
        came.extend(rest.map(Result::unwrap));
        assert_eq!(came, whole);
        assert_eq!(after.next_epoch(), 1);
    }
}

#[test]
fn held_slots_and_timeouts_are_not_deliveries() {
    let latch = support::Latch::default();
    let gate = latch.clone();
    let dataset = slotline::dataset::from_fn(8, move |index, _| {
        if index == 5 {
            gate.wait();
        }
        Ok(index as i64)
    });
    let builder = Loader::builder(dataset).num_workers(1).timeout(std::time::Duration::from_millis(20));
    let mut loader = builder.build().unwrap();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.by_ref().take(5).filter(Result::is_ok).count(), 5);
    assert!(matches!(pass.next(), Some(Err(Error::Timeout { task: 5, .. }))));
    assert_eq!(pass.state().batches(), 5);
    drop(pass);
    assert!(matches!(loader.epoch(), Err(Error::Timeout { .. })), "its worker is stuck");
    assert_eq!((loader.state().epoch(), loader.state().batches()), (0, 5), "and it is where it was");
    latch.open();
}

#[test]
fn an_epoch_that_fails_after_it_was_drawn_is_drawn_no_second_time() {
    let (what, state) = state_of(From::Shuffle);
    let latch = support::Latch::default();
    let gate = latch.clone();
    let init = move |_| {
        gate.wait();
        Ok(())
    };
    let builder = Loader::builder(Items { len: 40, dawdles: false }).batch_size(4).shuffle(true).seed(5);
    let builder = builder.num_workers(1).worker_init(init).timeout(std::time::Duration::from_millis(20));
    let mut loader = builder.build().unwrap();
    loader.load_state(&state).unwrap();
    for _ in 0..2 {
        assert!(matches!(loader.epoch(), Err(Error::Timeout { .. })));
        assert_eq!(loader.state(), state);
    }
    latch.open();
    let mut came = Vec::new();
    while loader.next_epoch() < what.epochs {
        let epoch = loader.next_epoch();
        if let Ok(pass) = loader.epoch() {
            came.extend(pass.map(|got| Came::new(epoch, got)));
        }
    }
    let whole = uninterrupted(&what);
    assert_eq!(came, whole[whole.len() - came.len()..]);
    assert_eq!(came.len(), 8 + 10);
}

#[test]
fn a_dataset_that_has_shrunk_since_is_an_error_that_says_so() {
    struct Shrinking(std::sync::Arc<std::sync::atomic::AtomicUsize>);
    impl Dataset for Shrinking {
        type Sample<'a> = i64;

        fn len(&self) -> usize {
            self.0.load(std::sync::atomic::Ordering::SeqCst)
        }

        fn get(&self, index: usize, _: &mut Context) -> Result<i64, BoxError> {
            Ok(index as i64)
        }
    }
    let len = std::sync::Arc::new(9.into());
    let mut loader = Loader::builder(Shrinking(std::sync::Arc::clone(&len))).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.by_ref().take(5).count(), 5);
    let state = pass.state();
    drop(pass);
    loader.load_state(&state).unwrap();
    len.store(4, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..2 {
        let error = loader.epoch().unwrap_err();
        assert!(error.to_string().contains("the state's batches is 5, and its pass has 4"), "{error}");
    }
    len.store(9, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(loader.epoch().unwrap().count(), 4);
}

#[test]
fn a_state_that_does_not_fit_is_refused_with_the_field_and_leaves_the_loader_as_it_was() {
    let (_, state) = state_of(From::Shuffle);
    let good = || Loader::builder(Items { len: 40, dawdles: false }).batch_size(4).shuffle(true).seed(5);
    let build: [(&str, Builder<Items>); 8] = [
        ("", good()),
        ("dataset_len", Loader::builder(Items { len: 41, dawdles: false }).batch_size(4).shuffle(true).seed(5)),
        ("batch_size", good().batch_size(5)),
        ("batch_size", good().batch_size(None)),
        ("drop_last", good().drop_last(true)),
        ("seed", good().seed(6)),
        ("sampler", good().shuffle(false)),
        ("sampler", good().shuffle(false).sampler(RandomSampler::new(40).unwrap())),
    ];
    for (field, builder) in build {
        let mut loader = builder.build().unwrap();
        let before = (loader.next_epoch(), loader.state());
        match loader.load_state(&state) {
            Ok(()) => assert_eq!((field, loader.next_epoch()), ("", 1)),
            Err(error) => {
                assert_eq!(error.field(), field, "{error}");
                assert!(error.to_string().contains(&format!("the state's {field} is")), "{error}");
                assert_eq!((loader.next_epoch(), loader.state()), before);
            }
        }
    }
    let mut later = serde_json::to_value(&state).unwrap();
    later["version"] = 2.into();
    let error = good().build().unwrap().load_state(&serde_json::from_value(later).unwrap()).unwrap_err();
    assert_eq!(error.field(), "version");
    assert!(error.to_string().contains("the state's version is 2, and the loader's is 1"), "{error}");
}

#[test]
fn a_sampler_of_other_parameters_is_refused_by_their_names() {
    let save = |sampler: &dyn Sampler| {
        let mut text = String::new();
        assert!(sampler.save(&mut text));
        text
    };
    let seeded = |seed| Generator::from_seed(seed);
    let subset = |indices: &[usize]| SubsetRandomSampler::new(indices.to_vec()).generator(seeded(1));
    let weighted = |weights: [f64; 3]| WeightedRandomSampler::new(weights, 2).unwrap();
    let dealt = |n| DistributedSampler::new(n, 2, 0).unwrap();
    let random = |n| RandomSampler::new(n).unwrap();
    type Case = (&'static str, Box<dyn Sampler>, Box<dyn Sampler>);
    let cases: [Case; 14] = [
        ("dataset_len", Box::new(SequentialSampler::new(3)), Box::new(SequentialSampler::new(4))),
        ("dataset_len", Box::new(random(3)), Box::new(random(4))),
        ("num_samples", Box::new(random(3)), Box::new(random(3).num_samples(7).unwrap())),
        ("replacement", Box::new(random(3)), Box::new(random(3).replacement(true))),
        ("generator", Box::new(random(3)), Box::new(random(3).generator(seeded(1)))),
        ("generator", Box::new(random(3).generator(seeded(1))), Box::new(random(3))),
        ("generator's seed", Box::new(random(3).generator(seeded(1))), Box::new(random(3).generator(seeded(2)))),
        ("dataset_len", Box::new(CipherSampler::new(3)), Box::new(CipherSampler::new(2))),
        ("digest_of_indices", Box::new(subset(&[1, 2])), Box::new(subset(&[2, 1]))),
        ("digest_of_weights", Box::new(weighted([1.0, 2.0, 3.0])), Box::new(weighted([1.0, 2.0, 3.5]))),
        ("shuffle", Box::new(dealt(9)), Box::new(dealt(9).shuffle(false))),
        ("drop_last", Box::new(dealt(9)), Box::new(dealt(9).drop_last(true))),
        ("seed", Box::new(dealt(9)), Box::new(dealt(9).seed(3))),
        ("dataset_len", Box::new(dealt(9)), Box::new(dealt(8))),
    ];
    for (name, mut saved, mut other) in cases {
        let text = save(&saved);
        let before = save(&other);
        let error = other.restore(&text, 0..0).unwrap_err().to_string();
        assert!(error.contains(&format!("its {name} was ")), "{name}: {error}");
        assert_eq!(save(&other), before);
        saved.restore(&text, 0..0).unwrap();
        assert_eq!(save(&saved), text);
    }
    assert!(SequentialSampler::new(3).restore("", 0..0).is_err());
    assert!(Forgetful(3, seeded(1)).restore("", 0..0).unwrap_err().to_string().contains("Forgetful"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_damaged_state_is_refused_or_loaded_and_never_more_than_that(
        from in proptest::sample::select(&ALL[..]),
        damages in vec((any::<usize>(), any::<usize>()), 1..4),
        missing in proptest::option::of(vec(0_u64..12, 0..3)),
        workers in 0_usize..3,
    ) {
        let (what, state) = state_of(from);
        let mut value = serde_json::to_value(&state).unwrap();
        if let Some(missing) = missing {
            value["missing"] = missing.into();
        }
        for (at, with) in damages {
            damage(&mut value, at, with);
        }
        let Ok(state) = serde_json::from_value::<State>(value) else { return Ok(()) };
        let how = How { workers, prefetch: 2, part_size: None, hold: 1, in_order: true, dealt: workers == 1 };
        let mut loader = build(&what, &how);
        if loader.load(&state).is_err() {
            return Ok(());
        }
        let pass = match &mut loader {
            Any::Shared(loader) => loader.epoch().map(|pass| pass.count()),
            Any::Dealt(loader) => loader.epoch().map(|pass| pass.count()),
        };
        match pass {
            Ok(batches) => prop_assert!(batches <= 43, "{}", batches),
            Err(error) => prop_assert!(matches!(error, Error::State(_) | Error::Order(_)), "{}", error),
        }
    }
}
