//! Values in a loader, with and without a collate function, and a property test that batches contain their samples.

#[path = "../../runtime/tests/support/chain.rs"]
mod chain;

use chain::chain;
use proptest::prelude::*;
use slotline::array::Array;
use slotline::dataset::{TensorDataset, from_fn, iter_fn};
use slotline::dtype::DType;
use slotline::loader::{Budget, BuildError, OnError};
use slotline::{Error, Loader};
use slotline_value::{CollateError, CollateValues, CustomValue, Value, default_collate, default_convert};

/// Returns a tensor of two elements that count up from `first`.
fn pair(first: i32) -> Value {
    [[first], [first + 1]].into()
}

const LEN: usize = 11;

/// Returns a sample with many kinds of values.
fn item(i: usize) -> Value {
    Value::map([
        ("index", (i as i64).into()),
        ("name", format!("no. {i}").into()),
        ("boxes", Value::list([(pair(i as i32), i.is_multiple_of(2)), (pair(-(i as i32)), true)])),
    ])
}

#[test]
fn a_loader_collates_values_in_order_with_any_workers() {
    for workers in [0, 2] {
        let dataset = from_fn(LEN, |index, _| {
            // The first samples of a batch are the slowest.
            std::thread::sleep(std::time::Duration::from_micros(if index % 8 < 4 { 300 } else { 0 }));
            Ok(item(index))
        });
        let loader = Loader::builder(dataset).batch_size(4).num_workers(workers).collate(|samples| {
            let values = std::iter::from_fn(|| samples.next());
            Ok(default_collate(values.collect::<Result<Vec<_>, _>>()?)?)
        });
        let mut loader = loader.build().unwrap();
        for _ in 0..3 {
            let batches: Vec<Value> = loader.epoch().unwrap().map(Result::unwrap).collect();
            let by_hand = [0..4, 4..8, 8..LEN].map(|range| default_collate(range.map(item)).unwrap());
            assert_eq!(batches, by_hand);
        }
    }
}

#[test]
fn a_loader_collates_typed_samples_as_values() {
    let images = Array::new((0..LEN as u8 * 4).collect(), &[LEN, 2, 2]).unwrap();
    let dataset = TensorDataset::new((images, (0..LEN as i64).collect::<Vec<_>>())).unwrap();
    let loader = Loader::builder(dataset).batch_size(LEN).collate(|samples| {
        let values = std::iter::from_fn(|| Some(samples.next()?.map(Value::from)));
        Ok(default_collate(values.collect::<Result<Vec<_>, _>>()?)?)
    });
    let batch = loader.build().unwrap().epoch().unwrap().next().unwrap().unwrap();
    assert_eq!(batch.at(0).unwrap().as_tensor().unwrap().shape(), [LEN, 2, 2]);
    assert_eq!(batch.at(1).unwrap(), &(0..LEN as i64).collect::<Vec<_>>().into());
}

#[test]
fn the_loader_returns_collate_errors() {
    let dataset = from_fn(4, |index, _| Ok(if index == 3 { Value::from("three") } else { Value::from(index as i64) }));
    let loader = Loader::builder(dataset).batch_size(2).num_workers(1).collate(|samples| {
        let values = std::iter::from_fn(|| samples.next());
        Ok(default_collate(values.collect::<Result<Vec<_>, _>>()?)?)
    });
    let mut loader = loader.build().unwrap();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.next().unwrap().unwrap(), Value::from([0_i64, 1]));
    let error = pass.next().unwrap().unwrap_err();
    let Error::Sample { source, .. } = &error else { panic!("{error}") };
    assert!(matches!(source.downcast_ref(), Some(CollateError::Mixed { sample: 1, .. })), "{error}");
}

#[test]
fn values_of_numbers_and_tensors_need_no_collate_function() {
    let sample = |i: usize| {
        let parts = [Value::from((i as i64, i.is_multiple_of(2))), (-(i as i64), true).into()];
        let value = Value::map([
            ("a", Value::list(parts)),
            ("b", Value::named("Point", [("x", (i as i64).into()), ("y", 0.5.into())])),
            ("c", pair(i as i32)),
        ]);
        (value, i as u8, Value::from(i as f64))
    };
    for workers in [0, 2] {
        let dataset = from_fn(LEN, move |index, _| Ok(sample(index)));
        let mut loader = Loader::builder(dataset).batch_size(4).num_workers(workers).build().unwrap();
        let mut seen = 0;
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let (value, bytes, number) = batch.tensors();
            let names: Vec<_> = (0..value.len()).map(|i| value.field(i).unwrap().name()).collect();
            assert_eq!(names, ["0.a.0.0", "0.a.0.1", "0.a.1.0", "0.a.1.1", "0.b.x", "0.b.y", "0.c"]);
            assert_eq!((number.len(), number.field(0).unwrap().name()), (1, "2"));
            assert_eq!(value.field(3).unwrap().dtype(), DType::Bool);
            for row in 0..batch.len() {
                let i = seen + row;
                assert_eq!(value.get(2).unwrap().typed::<i64>().unwrap().as_slice()[row], -(i as i64));
                assert_eq!(value.get(1).unwrap().typed::<bool>().unwrap().as_slice()[row], i.is_multiple_of(2));
                assert_eq!(Value::from(value.get(6).unwrap().row(row)), pair(i as i32));
                assert_eq!(bytes[[row]], i as u8);
                assert_eq!(number.get(0).unwrap().typed::<f64>().unwrap().as_slice()[row], i as f64);
            }
            seen += batch.len();
        }
        assert_eq!(seen, LEN);
    }
}

/// A type without a fixed size.
#[derive(Debug)]
struct Opaque;

impl CustomValue for Opaque {}

#[test]
fn values_without_a_fixed_size_need_a_collate_function() {
    for (value, found) in [
        (item(0), "text at name"),
        (Value::list([Value::bytes(*b"x")]), "bytes at 0"),
        (Value::custom(Opaque), "values::Opaque"),
        (Value::list::<Value>([]), "a value without numbers"),
    ] {
        let error = Loader::builder(from_fn(3, move |_, _| Ok(value.clone()))).build().unwrap_err();
        assert!(matches!(error, BuildError::Layout(_)), "{error}");
        let expected = format!("{found} has no place of fixed size in a batch; give the loader a collate function");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

/// Returns the error of a dataset whose second sample differs from the first.
fn second(first: Value, second: Value) -> String {
    let dataset = from_fn(2, move |index, _| Ok((if index == 0 { first.clone() } else { second.clone() }, 7_i64)));
    let mut loader = Loader::builder(dataset).batch_size(2).build().unwrap();
    chain(&loader.epoch().unwrap().next().unwrap().unwrap_err())
}

#[test]
fn values_with_other_fields_than_the_first_are_an_error() {
    let map = |keys: [&str; 2]| Value::map(keys.map(|key| (key, Value::Int(1))));
    let error = second(map(["a", "b"]), map(["b", "a"]));
    assert!(error.contains("field a was declared, but the sample has field b"), "{error}");
    assert!(second(map(["a", "b"]), map(["a", "c"])).contains("field b was declared, but the sample has field c"));
    let error = second(Value::list([map(["a", "b"])]), map(["a", "b"]));
    assert!(error.contains("field 0.a was declared, but the sample has field a"), "{error}");
    let error = second(map(["a", "b"]), 1.into());
    assert!(error.contains("field a was declared, but the sample has a single tensor or number"), "{error}");
    let error = second(Value::list([1, 2]), Value::list([1]));
    assert!(error.contains("a part of 2 fields was declared, but the sample's has 1"), "{error}");
    assert!(second(Value::list([1]), Value::list([1.5])).contains("0.0: i64 [] was declared"));
    assert!(second(Value::list([1]), Value::list(["a"])).contains("text at 0 has no place of fixed size"));
    let error = second(Value::list([1]), Value::list([1, 2]));
    assert!(error.contains("no further field of this value was declared, but the sample has field 1"), "{error}");
}

#[test]
fn no_value_is_written_into_the_fields_of_its_neighbour() {
    let map = |keys: &[&'static str]| Value::map(keys.iter().map(|&key| (key, Value::Int(1))));
    let dataset = from_fn(2, move |index, _| {
        Ok(if index == 0 { (map(&["x", "y"]), map(&["x"])) } else { (map(&["x"]), map(&["y", "x"])) })
    });
    let mut loader = Loader::builder(dataset).batch_size(2).build().unwrap();
    let error = chain(&loader.epoch().unwrap().next().unwrap().unwrap_err());
    assert!(error.contains("a part of 2 fields was declared, but the sample's has 1"), "{error}");
}

#[test]
fn fields_with_the_same_name_are_an_error() {
    let value = Value::map([("a.b", Value::Int(1)), ("a", Value::map([("b", Value::Int(2))]))]);
    let error = Loader::builder(from_fn(2, move |_, _| Ok(value.clone()))).build().unwrap_err().to_string();
    assert!(error.starts_with("two parts of a sample have the field name a.b"), "{error}");
}

/// The type of a value, from which samples with the same structure are made.
#[derive(Clone, Debug)]
enum Like {
    Bool,
    Int,
    Float,
    Text,
    Bytes,
    Tensor(DType, Vec<usize>),
    Map(Vec<(String, Like)>),
    Named(Vec<(String, Like)>),
    Tuple(Vec<Like>),
    List(Vec<Like>),
}

fn like() -> impl Strategy<Value = Like> {
    let dtype = prop::sample::select(vec![DType::Bool, DType::U8, DType::I32, DType::F32]);
    let leaf = prop_oneof![
        Just(Like::Bool),
        Just(Like::Int),
        Just(Like::Float),
        Just(Like::Text),
        Just(Like::Bytes),
        (dtype, prop::collection::vec(0_usize..4, 0..4)).prop_map(|(dtype, shape)| Like::Tensor(dtype, shape)),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let fields = prop::collection::vec(("[a-c .]{0,2}", inner.clone()), 0..4);
        let items = prop::collection::vec(inner, 0..4);
        prop_oneof![
            fields.clone().prop_map(Like::Map),
            fields.prop_map(Like::Named),
            items.clone().prop_map(Like::Tuple),
            items.prop_map(Like::List),
        ]
    })
}

/// Returns a value of this type, made of the next numbers.
fn make(like: &Like, next: &mut impl FnMut() -> i64) -> Value {
    let field = |(key, like): &(String, Like)| (key.clone(), make(like, next));
    match like {
        Like::Map(all) => Value::map(all.iter().map(field)),
        Like::Named(all) => Value::named("Named", all.iter().map(field)),
        Like::Tuple(all) => Value::tuple(all.iter().map(|like| make(like, next))),
        Like::List(all) => Value::list(all.iter().map(|like| make(like, next))),
        Like::Bool => Value::from(next() % 2 == 0),
        Like::Int => Value::from(next()),
        Like::Float => Value::from(next() as f64 / 4.0),
        Like::Text => Value::from(format!("text {}", next())),
        Like::Bytes => Value::bytes(next().to_ne_bytes()),
        Like::Tensor(dtype, shape) => {
            let numbers = std::iter::repeat_with(next).take(shape.iter().product());
            match dtype {
                DType::Bool => Array::new(numbers.map(|n| n % 2 == 0).collect(), shape).unwrap().into(),
                DType::U8 => Array::new(numbers.map(|n| n as u8).collect(), shape).unwrap().into(),
                DType::I32 => Array::new(numbers.map(|n| n as i32).collect(), shape).unwrap().into(),
                _ => Array::new(numbers.map(|n| n as f32).collect(), shape).unwrap().into(),
            }
        }
    }
}

/// Returns sample `i` of a batch, taken from every leaf. `sample` gives the types.
fn nth(batch: &Value, i: usize, sample: &Value) -> Value {
    let below = || batch.items().iter().zip(sample.items()).map(|(batch, sample)| nth(batch, i, sample));
    let row = || batch.as_tensor().unwrap().row(i);
    match sample {
        Value::Bool(_) => row().typed::<bool>().unwrap()[[]].into(),
        Value::Int(_) => row().typed::<i64>().unwrap()[[]].into(),
        Value::Float(_) => row().typed::<f64>().unwrap()[[]].into(),
        Value::Tensor(_) => row().into(),
        Value::Map(_) => Value::map(batch.as_map().unwrap().keys().zip(below())),
        Value::Named(_) => {
            let named = batch.as_named().unwrap();
            Value::named(named.name(), named.fields().keys().zip(below()))
        }
        Value::Tuple(_) | Value::List(_) => Value::list(below()),
        _ => batch.at(i).unwrap().clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_contain_their_samples(like in like(), len in 1_usize..6, seed in any::<i64>()) {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let samples: Vec<Value> = (0..len).map(|_| make(&like, &mut next)).collect();
        let batch = default_collate(&samples).unwrap();
        for (i, sample) in samples.iter().enumerate() {
            prop_assert_eq!(nth(&batch, i, sample), default_convert(sample).unwrap());
        }
    }
}

#[test]
fn collate_values_converts_single_samples() {
    let dataset = || from_fn(LEN, |index, _| Ok(item(index)));
    for workers in [0, 2] {
        let builder = || Loader::builder(dataset()).num_workers(workers).collate_values();
        let batches: Vec<Value> =
            builder().batch_size(4).build().unwrap().epoch().unwrap().map(Result::unwrap).collect();
        assert_eq!(batches, [0..4, 4..8, 8..LEN].map(|range| default_collate(range.map(item)).unwrap()));
        let samples: Vec<Value> =
            builder().batch_size(None).build().unwrap().epoch().unwrap().map(Result::unwrap).collect();
        assert_eq!(samples, (0..LEN).map(|index| default_convert(item(index)).unwrap()).collect::<Vec<_>>());
    }
}

#[test]
fn collate_values_pins_batches_on_request() {
    let dataset = from_fn(2, |index, _| Ok(item(index)));
    let mut loader = Loader::builder(dataset).batch_size(2).collate_values().pin_memory(true).build().unwrap();
    assert!(loader.warnings().is_empty(), "{:?}", loader.warnings());
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    assert!(batch.is_pinned());
}

#[test]
fn bad_samples_are_skipped_with_and_without_batches() {
    let numbers = || from_fn(10, |i, _| if i % 4 == 1 { Err("no".into()) } else { Ok(Value::from(i as i64)) });
    let skip = OnError::Skip(Budget::Samples(usize::MAX));
    for workers in [0, 2] {
        for (size, want) in [(Some(4), vec![3, 3, 1]), (None, vec![1; 7])] {
            let builder = Loader::builder(numbers()).batch_size(size).num_workers(workers).on_error(skip);
            let mut loader = builder.collate_values().build().unwrap();
            let sizes = loader.epoch().unwrap().map(|batch| batch.unwrap().as_tensor().map_or(1, |t| t.len()));
            assert_eq!(sizes.collect::<Vec<_>>(), want);
        }
    }
}

#[test]
fn a_maximal_batch_size_gives_one_batch_of_all_values() {
    let dataset = iter_fn(|_| Ok((0..10_i64).map(Ok)));
    let mut loader = Loader::iterable(dataset).batch_size(usize::MAX).collate_values().build().unwrap();
    let batches: Vec<Value> = loader.epoch().unwrap().map(Result::unwrap).collect();
    assert_eq!(batches, [(0..10).collect::<Vec<i64>>().into()]);
}
