//! Target for states of loaders: any bytes are either rejected, or the loader resumes exactly from
//! the state that they describe.

use serde_json::Value;
use slotline::dataset::{Iterable, from_fn};
use slotline::loader::{BatchOf, State};
use slotline::rng::rand_core::Rng;
use slotline::{Batch, Error, Loader};

use crate::choices::Choices;
use crate::loader::Items;
use crate::plain::Plain;

const LEN: usize = 13;
const BATCH: usize = 3;
const SEED: u64 = 5;
/// The maximum number of words by which to advance a generator, since advancing further takes long.
const MAX_DRAWN: u64 = 1 << 20;

/// Loads a state into a small loader. If `data` is JSON, it is the state itself; otherwise it
/// chooses damage to a valid state. If the state is accepted, the rest of the pass must be the one
/// that it describes.
pub fn state(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice(data) {
        load(value, 0);
        return;
    }
    let mut choices = Choices::new(data);
    let (kind, workers) = (choices.below(3), choices.of(&[0, 0, 0, 0, 0, 1, 2]));
    let taken = choices.below(6);
    let state = match kind {
        0 => state_after(indexed(true, 0), taken),
        1 => indexed(false, 0).state(),
        _ => state_after(stream(choices.one_in(2)), taken),
    };
    let mut value = serde_json::to_value(state).expect("a state");
    let good = value.clone();
    if choices.one_in(3) {
        value["missing"] = (0..choices.below(4)).map(|_| choices.below(7)).collect();
    }
    for _ in 0..choices.below(4) {
        damage(&mut value, &mut choices);
    }
    let is_good = value == good;
    assert!(load(value, workers) || !is_good, "a valid state was rejected");
}

/// Returns the state of a loader in its first pass, after some batches.
fn state_after<S>(mut loader: Loader<Batch<S>>, batches: usize) -> State {
    let mut pass = loader.epoch().expect("a pass");
    pass.by_ref().take(batches).for_each(drop);
    pass.state()
}

/// Loads a state into a loader, which must not change if it rejects it. Returns whether it was accepted.
fn accepts<S>(loader: &mut Loader<Batch<S>>, state: &State) -> bool {
    let before = loader.state();
    let is_accepted = loader.load_state(state).is_ok();
    assert_eq!(loader.state(), if is_accepted { state.clone() } else { before });
    is_accepted
}

fn sample(index: usize, word: u64) -> (i64, u64) {
    (index as i64, word)
}

fn indexed(shuffle: bool, workers: usize) -> Loader<Batch<(i64, u64)>> {
    let items = from_fn(LEN, |index, cx| Ok(sample(index, cx.rng().next_u64())));
    let builder = Loader::builder(items).batch_size(BATCH).shuffle(shuffle).seed(SEED).num_workers(workers);
    builder.build().expect("a loader")
}

fn stream(saves: bool) -> Loader<BatchOf<Iterable<Items>>> {
    let builder = Loader::iterable(Items::good(LEN, saves)).batch_size(BATCH).seed(SEED);
    builder.build().expect("a loader")
}

/// Loads a state, and checks the rest of its pass. Returns whether the state was accepted.
fn load(value: Value, workers: usize) -> bool {
    let Ok(state) = serde_json::from_value::<State>(value) else { return false };
    let value = serde_json::to_value(&state).expect("a state");
    let drawn = |generator: &str| {
        let place = value["start"][generator].as_str().and_then(|place| place.split_once(':'));
        place.map_or(0, |(_, drawn)| drawn.parse().expect("a number of words"))
    };
    if drawn("generator") > MAX_DRAWN || drawn("default_generator") > MAX_DRAWN {
        return false;
    }
    if value["kind"] == "iterable" {
        return load_stream(&state, &value);
    }
    let shuffle = value["start"]["sampler"]["name"] == "shuffle";
    let mut loader = indexed(shuffle, workers);
    if !accepts(&mut loader, &state) {
        return false;
    }
    assert_eq!(loader.next_epoch(), state.epoch());
    let number = |value: &Value| value.as_u64().expect("a count") as usize;
    let missing: Vec<usize> = value["missing"].as_array().into_iter().flatten().map(number).collect();
    let next = state.batches() + missing.len();
    let tasks = LEN.div_ceil(BATCH);
    let pass = match loader.epoch() {
        Ok(pass) => pass,
        Err(Error::State(error)) => {
            assert!(next > tasks, "{error}");
            return false;
        }
        Err(error) => panic!("{error}"),
    };
    let mut plain = Plain::after(SEED, drawn("generator"), state.epoch());
    let seeds = plain.pass();
    let order: Vec<usize> = if shuffle { plain.shuffled(LEN) } else { (0..LEN).collect() };
    let expected = missing.into_iter().chain(next..tasks).map(|task| {
        let samples =
            (task * BATCH..LEN.min((task + 1) * BATCH)).map(|position| sample(order[position], seeds.word(position)));
        (task, samples.collect::<Vec<_>>())
    });
    let got: Vec<_> = pass.map(|batch| seen(&batch.expect("a batch"))).collect();
    assert_eq!(got, expected.collect::<Vec<_>>());
    true
}

/// Returns the number of a batch, and the index and the random number of each of its samples.
fn seen<S>(batch: &Batch<S>) -> (usize, Vec<(i64, u64)>) {
    let columns = batch.columns();
    let numbers = columns.get(0).and_then(|it| it.typed::<i64>()).expect("numbers").as_slice().to_vec();
    let words = columns.get(1).and_then(|it| it.typed::<u64>()).expect("words").as_slice().to_vec();
    (batch.batch_index(), numbers.into_iter().zip(words).collect())
}

fn load_stream(state: &State, value: &Value) -> bool {
    let mut loader = stream(true);
    if !accepts(&mut loader, state) {
        return false;
    }
    let pass = loader.epoch().expect("a pass");
    let from = &value["streams"]["workers"][0];
    let samples = from["samples"].as_u64().expect("a count");
    let left = match from["saved"].as_str() {
        _ if from["ended"] == true => Some(0..0),
        None => Some(samples.min(LEN as u64) as usize..LEN),
        Some(saved) => slotline::dataset::IterableDataset::resume(&Items::good(LEN, true), None, saved).ok(),
    };
    match left {
        None => assert!(pass.into_iter().any(|batch| matches!(batch, Err(Error::Start { .. })))),
        Some(left) => {
            let got = pass.flat_map(|batch| {
                let batch = batch.expect("a batch");
                let numbers = batch.columns().get(0).expect("numbers").typed::<i64>().expect("numbers");
                numbers.as_slice().to_vec()
            });
            assert!(got.eq(left.map(|index| index as i64)));
        }
    }
    true
}

/// Replaces one of the values by something else.
fn damage(value: &mut Value, choices: &mut Choices<'_>) {
    fn paths(value: &Value, path: &str, to: &mut Vec<String>) {
        let below: Vec<(String, &Value)> = match value {
            Value::Object(map) => map.iter().map(|(key, value)| (format!("{path}/{key}"), value)).collect(),
            Value::Array(list) => list.iter().enumerate().map(|(i, value)| (format!("{path}/{i}"), value)).collect(),
            _ => return,
        };
        for (path, value) in below {
            paths(value, &path, to);
            to.push(path);
        }
    }
    let mut all = Vec::new();
    paths(value, "", &mut all);
    let Some(path) = all.get(choices.below(all.len().max(1))) else { return };
    let place = value.pointer_mut(path).expect("a path of the value");
    let number = match choices.below(3) {
        0 => choices.word(),
        1 => choices.below(LEN + 3) as u64,
        _ => choices.of(&[0, 1, 1000, 1 << 41, 1 << 63, u64::MAX, u64::MAX / 2]),
    };
    *place = match choices.below(7) {
        0 => Value::Null,
        1 => Value::Bool(choices.one_in(2)),
        2 => format!("{}..{}", choices.below(LEN + 3), choices.below(LEN + 3)).into(),
        3 => vec![number].into(),
        4 => String::from_utf8_lossy(choices.bytes(6)).into(),
        _ => number.into(),
    };
}
