//! Values: dynamically typed samples, collated and compared with a plain implementation of the rules.

use half::{bf16, f16};
use num_complex::Complex;
use slotline::array::{AnyArray, Array};
use slotline::dtype::DType;
use slotline_value::{MAX_DEPTH, Value, default_collate, default_convert};

use crate::choices::Choices;

/// A value in plain form. Floating-point numbers are stored as bits, so that a NaN is equal to itself.
#[derive(Clone, Debug, PartialEq)]
enum Plain {
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(String),
    Bytes(Vec<u8>),
    Tensor(DType, Vec<usize>, Vec<u8>),
    Map(Vec<(String, Plain)>),
    Named(String, Vec<(String, Plain)>),
    Tuple(Vec<Plain>),
    List(Vec<Plain>),
}

/// Makes samples as `data` says, alike except for some differences, and collates and converts them.
pub fn values(data: &[u8]) {
    let mut choices = Choices::new(data);
    let len = choices.below(5);
    let deep = if choices.one_in(8) { choices.within(MAX_DEPTH - 4, MAX_DEPTH + 4) } else { 0 };
    let sort = choices.below(4);
    let model = plain(&mut choices, 4);
    let wrap = |it| (0..deep).fold(it, |it, _| wrapped(sort, it));
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

fn wrapped(sort: usize, it: Plain) -> Plain {
    match sort {
        0 => Plain::List(vec![it]),
        1 => Plain::Tuple(vec![it]),
        2 => Plain::Map(vec![("k".into(), it)]),
        _ => Plain::Named("N".into(), vec![("f".into(), it)]),
    }
}

/// Returns a tree of at most `levels` levels.
fn plain(choices: &mut Choices<'_>, levels: usize) -> Plain {
    let below = |choices: &mut Choices<'_>| -> Vec<Plain> {
        (0..choices.below(4)).map(|_| plain(choices, levels - 1)).collect()
    };
    let keyed = |choices: &mut Choices<'_>| {
        let mut pairs: Vec<(String, Plain)> = Vec::new();
        for it in below(choices) {
            let key = choices.of(&["a", "b", "c", "", "ä.0"]);
            if pairs.iter().all(|(other, _)| other != key) {
                pairs.push((key.to_owned(), it));
            }
        }
        pairs
    };
    match choices.below(if levels == 0 { 6 } else { 10 }) {
        0 => Plain::Int(choices.word() as i64),
        1 => Plain::Tensor(choices.of(DType::ALL), Vec::new(), Vec::new()).filled(choices),
        2 => Plain::Float(choices.word()),
        3 => Plain::Bool(choices.one_in(2)),
        4 => Plain::Text(String::from_utf8_lossy(choices.bytes(3)).into_owned()),
        5 => Plain::Bytes(choices.bytes(3).to_vec()),
        6 => Plain::List(below(choices)),
        7 => Plain::Tuple(below(choices)),
        8 => Plain::Map(keyed(choices)),
        _ => Plain::Named(choices.of(&["P", "Q"]).to_owned(), keyed(choices)),
    }
}

impl Plain {
    /// Gives a tensor a shape and elements.
    fn filled(self, choices: &mut Choices<'_>) -> Self {
        let Self::Tensor(dtype, ..) = self else { return self };
        let shape: Vec<usize> = (0..choices.of(&[0, 1, 2, 3, 7, 8])).map(|_| choices.of(&[1, 2, 0, 3])).collect();
        Self::Tensor(dtype, shape.clone(), elements(choices, dtype, &shape))
    }
}

fn elements(choices: &mut Choices<'_>, dtype: DType, shape: &[usize]) -> Vec<u8> {
    let len = shape.iter().product::<usize>() * dtype.size();
    (0..len).map(|_| if dtype == DType::Bool { choices.byte() & 1 } else { choices.byte() }).collect()
}

/// Returns a sample like the model, with other numbers and texts, and rarely with other differences.
fn varied(model: &Plain, choices: &mut Choices<'_>) -> Plain {
    if choices.one_in(40) {
        return plain(choices, 2);
    }
    let each = |items: &[Plain], choices: &mut Choices<'_>| {
        let mut items: Vec<Plain> = items.iter().map(|it| varied(it, choices)).collect();
        if choices.one_in(40) {
            items.pop();
        }
        items
    };
    let keyed = |pairs: &[(String, Plain)], choices: &mut Choices<'_>| {
        let mut pairs: Vec<_> = pairs.iter().map(|(key, it)| (key.clone(), varied(it, choices))).collect();
        if choices.one_in(20) {
            pairs.reverse();
        }
        if choices.one_in(40) {
            pairs.pop();
        }
        pairs
    };
    match model {
        Plain::Bool(_) => Plain::Bool(choices.one_in(2)),
        Plain::Int(_) => Plain::Int(choices.word() as i64),
        Plain::Float(_) => Plain::Float(choices.word()),
        Plain::Text(_) => Plain::Text(String::from_utf8_lossy(choices.bytes(3)).into_owned()),
        Plain::Bytes(_) => Plain::Bytes(choices.bytes(3).to_vec()),
        Plain::Tensor(dtype, shape, _) => Plain::Tensor(*dtype, shape.clone(), elements(choices, *dtype, shape)),
        Plain::Map(pairs) => {
            let mut pairs = keyed(pairs, choices);
            if choices.one_in(20) && pairs.iter().all(|(key, _)| key != "more") {
                pairs.push(("more".into(), Plain::Int(1)));
            }
            Plain::Map(pairs)
        }
        Plain::Named(name, pairs) => Plain::Named(name.clone(), keyed(pairs, choices)),
        Plain::Tuple(items) => Plain::Tuple(each(items, choices)),
        Plain::List(items) => Plain::List(each(items, choices)),
    }
}

fn value(plain: &Plain) -> Value {
    let pairs = |pairs: &[(String, Plain)]| -> Vec<(String, Value)> {
        pairs.iter().map(|(key, it)| (key.clone(), value(it))).collect()
    };
    match plain {
        Plain::Bool(it) => (*it).into(),
        Plain::Int(it) => (*it).into(),
        Plain::Float(bits) => f64::from_bits(*bits).into(),
        Plain::Text(it) => it.clone().into(),
        Plain::Bytes(it) => Value::bytes(it.clone()),
        Plain::Tensor(dtype, shape, bytes) => array(*dtype, shape, bytes).into(),
        Plain::Map(it) => Value::map(pairs(it)),
        Plain::Named(name, it) => Value::named(name.clone(), pairs(it)),
        Plain::Tuple(items) => Value::tuple(items.iter().map(value)),
        Plain::List(items) => Value::list(items.iter().map(value)),
    }
}

fn array(dtype: DType, shape: &[usize], bytes: &[u8]) -> AnyArray {
    macro_rules! numbers {
        ($type:ident) => {
            Array::new(bytes.as_chunks().0.iter().map(|word| $type::from_ne_bytes(*word)).collect(), shape)
                .expect("as many as the shape has")
                .into()
        };
    }
    macro_rules! complex {
        ($part:ident) => {{
            let part = |part: &[u8]| $part::from_ne_bytes(part.try_into().expect("half of an element"));
            let elements = bytes.chunks_exact(dtype.size()).map(|element| {
                let (re, im) = element.split_at(dtype.size() / 2);
                Complex::new(part(re), part(im))
            });
            Array::new(elements.collect(), shape).expect("as many as the shape has").into()
        }};
    }
    match dtype {
        DType::Bool => Array::new(bytes.iter().map(|&byte| byte == 1).collect(), shape).expect("as many").into(),
        DType::U8 => numbers!(u8),
        DType::I8 => numbers!(i8),
        DType::U16 => numbers!(u16),
        DType::I16 => numbers!(i16),
        DType::U32 => numbers!(u32),
        DType::I32 => numbers!(i32),
        DType::U64 => numbers!(u64),
        DType::I64 => numbers!(i64),
        DType::F32 => numbers!(f32),
        DType::F64 => numbers!(f64),
        DType::F16 => numbers!(f16),
        DType::BF16 => numbers!(bf16),
        DType::Complex64 => complex!(f32),
        DType::Complex128 => complex!(f64),
        other => unreachable!("{other} is not in DType::ALL"),
    }
}

/// Returns the plain form of a value.
fn seen(value: &Value) -> Plain {
    let items = |items: &[Value]| items.iter().map(seen).collect();
    match value {
        Value::Bool(it) => Plain::Bool(*it),
        Value::Int(it) => Plain::Int(*it),
        Value::Float(it) => Plain::Float(it.to_bits()),
        Value::Text(it) => Plain::Text(it.to_string()),
        Value::Bytes(it) => Plain::Bytes(it.to_vec()),
        Value::Tensor(it) => Plain::Tensor(it.dtype(), it.shape().to_vec(), it.bytes().to_vec()),
        Value::Map(it) => Plain::Map(it.iter().map(|(key, it)| (key.to_owned(), seen(it))).collect()),
        Value::Named(it) => {
            let fields = it.fields().iter().map(|(key, it)| (key.to_owned(), seen(it)));
            Plain::Named(it.name().to_owned(), fields.collect())
        }
        Value::Tuple(it) => Plain::Tuple(items(it)),
        Value::List(it) => Plain::List(items(it)),
        Value::Custom(_) => unreachable!("no custom value was made"),
    }
}

/// Returns the batch of these samples, `depth` containers below the top, or `None` if they cannot be collated.
fn collated(batch: &[&Plain], depth: usize) -> Option<Plain> {
    let first = *batch.first()?;
    if depth > MAX_DEPTH {
        return None;
    }
    let tensor = |dtype, mut shape: Vec<usize>, parts: Option<Vec<Vec<u8>>>| {
        shape.insert(0, batch.len());
        (shape.len() <= slotline::shape::MAX_DIMS).then_some(())?;
        Some(Plain::Tensor(dtype, shape, parts?.concat()))
    };
    let column = |items: Option<Vec<&Plain>>| collated(&items?, depth + 1);
    let transposed = |lists: Option<Vec<&Vec<Plain>>>, len: usize| {
        let lists = lists.filter(|lists| lists.iter().all(|list| list.len() == len))?;
        let columns = (0..len).map(|i| column(Some(lists.iter().map(|list| &list[i]).collect())));
        Some(Plain::List(columns.collect::<Option<_>>()?))
    };
    macro_rules! all {
        ($pattern:pat => $get:expr) => {
            batch.iter().map(|it| if let $pattern = *it { Some($get) } else { None }).collect::<Option<Vec<_>>>()
        };
    }
    match first {
        Plain::Bool(_) => tensor(DType::Bool, Vec::new(), all!(Plain::Bool(it) => vec![u8::from(*it)])),
        Plain::Int(_) => tensor(DType::I64, Vec::new(), all!(Plain::Int(it) => it.to_ne_bytes().to_vec())),
        Plain::Float(_) => tensor(DType::F64, Vec::new(), all!(Plain::Float(it) => it.to_ne_bytes().to_vec())),
        Plain::Text(_) => Some(Plain::List(all!(it @ Plain::Text(_) => it.clone())?)),
        Plain::Bytes(_) => Some(Plain::List(all!(it @ Plain::Bytes(_) => it.clone())?)),
        Plain::Tensor(dtype, shape, _) => {
            let alike = all!(Plain::Tensor(other, other_shape, _) => (other, other_shape) == (dtype, shape))?;
            let parts = all!(Plain::Tensor(_, _, bytes) => bytes.clone());
            tensor(*dtype, shape.clone(), parts.filter(|_| !alike.contains(&false)))
        }
        Plain::Map(pairs) => {
            let maps = all!(Plain::Map(pairs) => pairs)?;
            let columns = pairs.iter().map(|(key, _)| {
                let find = |map: &&'_ Vec<(String, Plain)>| map.iter().position(|(other, _)| other == key);
                let items = maps.iter().map(|map| find(map).map(|place| &map[place].1)).collect();
                Some((key.clone(), column(items)?))
            });
            Some(Plain::Map(columns.collect::<Option<_>>()?))
        }
        Plain::Named(name, pairs) => {
            let others = all!(Plain::Named(other, pairs) => (other, pairs))?;
            let keys = |pairs: &[(String, Plain)]| pairs.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
            let alike = others.iter().all(|(other, fields)| *other == name && keys(fields) == keys(pairs));
            alike.then_some(())?;
            let columns = pairs.iter().enumerate().map(|(i, (key, _))| {
                Some((key.clone(), column(Some(others.iter().map(|(_, fields)| &fields[i].1).collect()))?))
            });
            Some(Plain::Named(name.clone(), columns.collect::<Option<_>>()?))
        }
        Plain::Tuple(items) => transposed(all!(Plain::Tuple(items) => items), items.len()),
        Plain::List(items) => transposed(all!(Plain::List(items) => items), items.len()),
    }
}

/// Returns a single sample converted, `depth` containers below the top, or `None` if it is nested too deep.
fn converted(sample: &Plain, depth: usize) -> Option<Plain> {
    if depth > MAX_DEPTH {
        return None;
    }
    let each = |items: &[Plain]| items.iter().map(|it| converted(it, depth + 1)).collect::<Option<Vec<_>>>();
    let keyed = |pairs: &[(String, Plain)]| {
        pairs.iter().map(|(key, it)| Some((key.clone(), converted(it, depth + 1)?))).collect::<Option<Vec<_>>>()
    };
    Some(match sample {
        Plain::Map(pairs) => Plain::Map(keyed(pairs)?),
        Plain::Named(name, pairs) => Plain::Named(name.clone(), keyed(pairs)?),
        Plain::Tuple(items) | Plain::List(items) => Plain::List(each(items)?),
        leaf => leaf.clone(),
    })
}
