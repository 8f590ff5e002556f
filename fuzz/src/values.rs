//! Target for values: dynamically typed samples are collated, and compared with a simple
//! implementation of the rules.

use std::mem::discriminant;
use std::ptr::NonNull;

use slotline::array::AnyArray;
use slotline::dtype::DType;
use slotline::shape::{MAX_DIMS, Shape};
use slotline_value::{MAX_DEPTH, Value, default_collate, default_convert};

use crate::choices::Choices;

/// A value in plain form. Floating-point numbers are stored as bytes, so that a NaN is equal to itself.
#[derive(Clone, Debug, PartialEq)]
enum Plain {
    /// The dtype, the shape and the bytes of a tensor; for a plain number, the shape is `None`.
    Numbers(DType, Option<Vec<usize>>, Vec<u8>),
    Text(String),
    Bytes(Vec<u8>),
    /// A container: its kind, its keys and its items. A map and a named tuple have as many keys as
    /// items; other containers have no keys.
    Tree(Kind, Vec<String>, Vec<Plain>),
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    List,
    Tuple,
    Map,
    Named(String),
}

/// Creates the similar samples that `data` encodes, collates and converts them, and compares the
/// results with the rules.
pub fn values(data: &[u8]) {
    let mut choices = Choices::new(data);
    let len = choices.below(5);
    let deep = if choices.one_in(8) { choices.within(MAX_DEPTH - 4, MAX_DEPTH + 4) } else { 0 };
    let (kind, keys) = match choices.below(4) {
        0 => (Kind::List, Vec::new()),
        1 => (Kind::Tuple, Vec::new()),
        2 => (Kind::Map, vec!["k".to_owned()]),
        _ => (Kind::Named("N".to_owned()), vec!["f".to_owned()]),
    };
    let model = plain(&mut choices, 4);
    let wrap = |it| (0..deep).fold(it, |it, _| Plain::Tree(kind.clone(), keys.clone(), vec![it]));
    let samples: Vec<Plain> = (0..len).map(|_| wrap(varied(&model, &mut choices))).collect();
    let values: Vec<Value> = samples.iter().map(value).collect();
    assert!(
        samples.iter().zip(&values).all(|(sample, value)| seen(value) == *sample),
        "a value differs from what it was made of"
    );

    let got = default_collate(&values);
    let expected = collated(&samples.iter().collect::<Vec<_>>(), 0);
    match (&got, expected) {
        (Ok(got), Some(expected)) => assert_eq!(seen(got), expected),
        (got, expected) => assert_eq!(got.is_ok(), expected.is_some(), "{got:?}"),
    }
    for (sample, value) in samples.iter().zip(values) {
        let got = default_convert(value);
        assert_eq!(got.ok().as_ref().map(seen), converted(sample, 0));
    }
}

/// Returns a number that is stored in 8 bytes.
fn number(dtype: DType, choices: &mut Choices<'_>) -> Plain {
    Plain::Numbers(dtype, None, choices.word().to_ne_bytes().into())
}

fn truth(choices: &mut Choices<'_>) -> Plain {
    Plain::Numbers(DType::Bool, None, vec![u8::from(choices.one_in(2))])
}

fn tensor(dtype: DType, shape: Vec<usize>, choices: &mut Choices<'_>) -> Plain {
    let len = shape.iter().product::<usize>() * dtype.size();
    let most = if dtype == DType::Bool { 1 } else { u8::MAX };
    Plain::Numbers(dtype, Some(shape), (0..len).map(|_| choices.byte() & most).collect())
}

fn text(choices: &mut Choices<'_>) -> Plain {
    Plain::Text(String::from_utf8_lossy(choices.bytes(3)).into_owned())
}

/// Returns a tree of at most `levels` levels.
fn plain(choices: &mut Choices<'_>, levels: usize) -> Plain {
    let kind = match choices.below(if levels == 0 { 6 } else { 10 }) {
        0 => return number(DType::I64, choices),
        1 => {
            let (dtype, dims) = (choices.of(DType::ALL), choices.of(&[0, 1, 2, 3, 7, 8]));
            let shape = (0..dims).map(|_| choices.of(&[1, 2, 0, 3])).collect();
            return tensor(dtype, shape, choices);
        }
        2 => return number(DType::F64, choices),
        3 => return truth(choices),
        4 => return text(choices),
        5 => return Plain::Bytes(choices.bytes(3).to_vec()),
        6 => Kind::List,
        7 => Kind::Tuple,
        8 => Kind::Map,
        _ => Kind::Named(choices.of(&["P", "Q"]).to_owned()),
    };
    let mut items: Vec<Plain> = (0..choices.below(4)).map(|_| plain(choices, levels - 1)).collect();
    let mut keys: Vec<String> = Vec::new();
    if let Kind::Map | Kind::Named(_) = kind {
        items.retain(|_| {
            let key = choices.of(&["a", "b", "c", "", "ä.0"]).to_owned();
            let is_new = !keys.contains(&key);
            keys.extend(is_new.then_some(key));
            is_new
        });
    }
    Plain::Tree(kind, keys, items)
}

/// Returns a sample with the same structure as the model, with other numbers and strings, and
/// rarely with other differences.
fn varied(model: &Plain, choices: &mut Choices<'_>) -> Plain {
    if choices.one_in(40) {
        return plain(choices, 2);
    }
    match model {
        Plain::Numbers(DType::Bool, None, _) => truth(choices),
        Plain::Numbers(dtype, None, _) => number(*dtype, choices),
        Plain::Numbers(dtype, Some(shape), _) => tensor(*dtype, shape.clone(), choices),
        Plain::Text(_) => text(choices),
        Plain::Bytes(_) => Plain::Bytes(choices.bytes(3).to_vec()),
        Plain::Tree(kind, keys, items) => {
            let mut items: Vec<Plain> = items.iter().map(|it| varied(it, choices)).collect();
            let mut keys = keys.clone();
            if matches!(kind, Kind::Map | Kind::Named(_)) && choices.one_in(20) {
                keys.reverse();
                items.reverse();
            }
            if choices.one_in(40) {
                keys.pop();
                items.pop();
            }
            if *kind == Kind::Map && choices.one_in(20) && !keys.iter().any(|key| key == "more") {
                keys.push("more".to_owned());
                items.push(Plain::Numbers(DType::I64, None, 1_i64.to_ne_bytes().into()));
            }
            Plain::Tree(kind.clone(), keys, items)
        }
    }
}

fn value(plain: &Plain) -> Value {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    match plain {
        Plain::Numbers(dtype, Some(shape), bytes) => array(*dtype, shape, bytes).into(),
        Plain::Numbers(DType::Bool, None, bytes) => (bytes[0] == 1).into(),
        Plain::Numbers(DType::I64, None, bytes) => word(bytes).cast_signed().into(),
        Plain::Numbers(_, None, bytes) => f64::from_bits(word(bytes)).into(),
        Plain::Text(it) => it.clone().into(),
        Plain::Bytes(it) => Value::bytes(it.clone()),
        Plain::Tree(kind, keys, items) => {
            let items = items.iter().map(value);
            match kind {
                Kind::List => Value::list(items),
                Kind::Tuple => Value::tuple(items),
                Kind::Map => Value::map(keys.iter().cloned().zip(items)),
                Kind::Named(name) => Value::named(name.clone(), keys.iter().cloned().zip(items)),
            }
        }
    }
}

fn array(dtype: DType, shape: &[usize], bytes: &[u8]) -> AnyArray {
    let mut words = vec![0_u128; bytes.len().div_ceil(size_of::<u128>())];
    let start = NonNull::new(words.as_mut_ptr().cast::<u8>()).expect("a vector's pointer is not null");
    let shape = Shape::new(shape).expect("few dimensions");
    // SAFETY: the memory has at least as many bytes as are copied, which are all elements of the shape, and valid ones. A word
    // is aligned to any dtype, and the vector's memory stays in place when the vector is moved.
    unsafe {
        start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        AnyArray::from_raw_parts(dtype, shape, start, words).expect("a small shape")
    }
}

/// Returns the plain form of a value.
fn seen(value: &Value) -> Plain {
    let tree = |kind, items: &[Value]| Plain::Tree(kind, Vec::new(), items.iter().map(seen).collect());
    let keyed = |kind, it: &slotline_value::Map| {
        let (keys, items) = it.iter().map(|(key, it)| (key.to_owned(), seen(it))).unzip();
        Plain::Tree(kind, keys, items)
    };
    match value {
        Value::Bool(it) => Plain::Numbers(DType::Bool, None, vec![u8::from(*it)]),
        Value::Int(it) => Plain::Numbers(DType::I64, None, it.to_ne_bytes().into()),
        Value::Float(it) => Plain::Numbers(DType::F64, None, it.to_ne_bytes().into()),
        Value::Text(it) => Plain::Text(it.to_string()),
        Value::Bytes(it) => Plain::Bytes(it.to_vec()),
        Value::Tensor(it) => Plain::Numbers(it.dtype(), Some(it.shape().to_vec()), it.bytes().to_vec()),
        Value::List(it) => tree(Kind::List, it),
        Value::Tuple(it) => tree(Kind::Tuple, it),
        Value::Map(it) => keyed(Kind::Map, it),
        Value::Named(it) => keyed(Kind::Named(it.name().to_owned()), it.fields()),
        Value::Custom(_) => unreachable!("no custom value was made"),
    }
}

/// Returns the batch of these samples, which are `depth` containers below the top, or `None` if
/// they cannot be collated.
fn collated(batch: &[&Plain], depth: usize) -> Option<Plain> {
    let first = *batch.first()?;
    if depth > MAX_DEPTH {
        return None;
    }
    match first {
        Plain::Numbers(dtype, shape, _) => {
            let elements = batch.iter().map(|it| match it {
                Plain::Numbers(other, other_shape, bytes) if (other, other_shape) == (dtype, shape) => Some(&bytes[..]),
                _ => None,
            });
            let elements = elements.collect::<Option<Vec<_>>>()?.concat();
            let shape = [&[batch.len()], shape.as_deref().unwrap_or_default()].concat();
            (shape.len() <= MAX_DIMS).then_some(Plain::Numbers(*dtype, Some(shape), elements))
        }
        Plain::Text(_) | Plain::Bytes(_) => {
            let alike = batch.iter().all(|&it| discriminant(it) == discriminant(first));
            alike.then(|| Plain::Tree(Kind::List, Vec::new(), batch.iter().copied().cloned().collect()))
        }
        Plain::Tree(kind, keys, items) => {
            let column = |i: usize| {
                let items = batch.iter().map(|it| match it {
                    // The keys of a map may be in any order, and the other maps may have additional
                    // keys.
                    Plain::Tree(Kind::Map, others, items) => {
                        others.iter().position(|other| *other == keys[i]).map(|place| &items[place])
                    }
                    Plain::Tree(_, _, items) => items.get(i),
                    _ => None,
                });
                collated(&items.collect::<Option<Vec<_>>>()?, depth + 1)
            };
            let alike = |it: &&Plain| match it {
                Plain::Tree(Kind::Map, ..) => *kind == Kind::Map,
                Plain::Tree(other, others, list) => (other, others, list.len()) == (kind, keys, items.len()),
                _ => false,
            };
            batch.iter().all(alike).then_some(())?;
            let columns = (0..items.len()).map(column).collect::<Option<_>>()?;
            Some(Plain::Tree(listed(kind), keys.clone(), columns))
        }
    }
}

/// Returns the kind of container that replaces this one in a batch.
fn listed(kind: &Kind) -> Kind {
    if *kind == Kind::Tuple { Kind::List } else { kind.clone() }
}

/// Returns a single converted sample, which is `depth` containers below the top, or `None` if it is
/// nested too deeply.
fn converted(sample: &Plain, depth: usize) -> Option<Plain> {
    if depth > MAX_DEPTH {
        return None;
    }
    let Plain::Tree(kind, keys, items) = sample else { return Some(sample.clone()) };
    let items = items.iter().map(|it| converted(it, depth + 1)).collect::<Option<_>>()?;
    Some(Plain::Tree(listed(kind), keys.clone(), items))
}
