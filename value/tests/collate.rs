//! Tests of each rule of `default_collate`, `default_convert` and `pin_memory`.

#[path = "../../runtime/tests/support/chain.rs"]
mod chain;

use std::sync::Arc;

use chain::chain;
use slotline::array::Array;
use slotline::dataset::from_fn;
use slotline::loader::{Budget, OnError};
use slotline::{BoxError, Loader};
use slotline_value::{
    CollateError, CollateValues, Collation, Collator, CustomValue, Kind, MAX_DEPTH, PinError, Value, default_collate,
    default_convert,
};

/// Returns a tensor of this shape whose elements count up from `first`.
fn tensor(first: i32, shape: &[usize]) -> Value {
    let len = shape.iter().product::<usize>() as i32;
    Array::new((first..first + len).collect(), shape).unwrap().into()
}

fn point(x: i64, y: f64) -> Value {
    Value::named("Point", [("x", x.into()), ("y", y.into())])
}

/// Returns the message with which collating the samples fails.
#[track_caller]
fn failure<V: Into<Value>>(samples: impl IntoIterator<Item = V>) -> String {
    default_collate(samples).unwrap_err().to_string()
}

#[test]
fn tensors_are_stacked_along_a_new_first_dimension() {
    let batch = default_collate([tensor(0, &[2, 3]), tensor(6, &[2, 3])]).unwrap();
    assert_eq!(batch, tensor(0, &[2, 2, 3]));
    let single = default_collate([tensor(7, &[])]).unwrap();
    assert_eq!(single, tensor(7, &[1]));
    assert_eq!(default_collate([tensor(0, &[0, 3]), tensor(0, &[0, 3])]).unwrap(), tensor(0, &[2, 0, 3]));
}

#[test]
fn tensors_of_unequal_shape_are_an_error() {
    let error = failure([tensor(0, &[2, 3]), tensor(0, &[2, 3]), tensor(0, &[3, 2])]);
    assert!(error.starts_with("element 2: each tensor of a batch must be of equal size"), "{error}");
    assert!(error.contains("this one is [3, 2] and element 0 has [2, 3]"), "{error}");
}

#[test]
fn tensors_of_unequal_dtype_are_an_error() {
    let error = failure([Value::map([("x", [1_i32].into())]), Value::map([("x", [1_i64].into())])]);
    assert!(error.starts_with("element 1, at .x: "), "{error}");
    assert!(error.contains("this one is i64 and element 0 has i32"), "{error}");
}

#[test]
fn numbers_become_i64_f64_or_bool() {
    assert_eq!(default_collate([1_u8, 2, 3]).unwrap(), Value::from([1_i64, 2, 3]));
    assert_eq!(default_collate([i64::MIN, i64::MAX]).unwrap(), Value::from([i64::MIN, i64::MAX]));
    assert_eq!(default_collate([0.5_f32, 1.5]).unwrap(), Value::from([0.5_f64, 1.5]));
    assert_eq!(default_collate([true, false]).unwrap(), Value::from([true, false]));
    // Beyond i64, which torch cannot collate.
    assert_eq!(default_collate([u64::MAX, 1]).unwrap(), Value::from([u64::MAX, 1]));
}

#[test]
fn numbers_of_different_kinds_are_an_error_in_any_order() {
    let all = [Value::from(1), 2.5.into(), true.into(), [1_i64].into()];
    for (i, first) in all.iter().enumerate() {
        for (j, second) in all.iter().enumerate().filter(|&(j, _)| i != j) {
            let error = default_collate([first, second]).unwrap_err();
            assert!(matches!(error, CollateError::Mixed { sample: 1, .. }), "{i} {j} {error}");
        }
    }
    assert!(failure([Value::from(1), 2.5.into()]).contains("expected int, as in element 0, found float"));
}

#[test]
fn texts_and_bytes_become_a_list() {
    assert_eq!(default_collate(["a", "b"]).unwrap(), Value::list(["a", "b"]));
    let bytes = [Value::bytes(*b"x"), Value::bytes(*b"yz")];
    assert_eq!(default_collate(&bytes).unwrap(), Value::list(bytes));
    assert!(failure([Value::from("a"), Value::bytes(*b"a")]).contains("expected text, as in element 0, found bytes"));
}

#[test]
fn maps_are_collated_by_the_keys_of_the_first_one() {
    let first = Value::map([("z", 1.into()), ("a", "one".into())]);
    let second = Value::map([("more", 3.into()), ("a", "two".into()), ("z", 2.into())]);
    let batch = default_collate([&first, &second]).unwrap();
    assert_eq!(batch, Value::map([("z", [1_i64, 2].into()), ("a", Value::list(["one", "two"]))]));
    assert_eq!(batch.as_map().unwrap().keys().collect::<Vec<_>>(), ["z", "a"]);

    let error = failure([Value::list([second]), Value::list([first])]);
    assert!(error.starts_with("element 1, at [0]: the key \"more\" is missing, which element 0 has"), "{error}");
}

#[test]
fn named_tuples_are_collated_by_field_and_keep_their_name() {
    let batch = default_collate([point(1, 0.5), point(2, 1.5)]).unwrap();
    assert_eq!(batch, Value::named("Point", [("x", [1_i64, 2].into()), ("y", [0.5, 1.5].into())]));
    assert_eq!(batch.type_name(), "Point");

    let pixel = Value::named("Pixel", [("x", 1.into()), ("y", 2.5.into())]);
    let error = failure([point(1, 0.5), pixel]);
    assert!(
        error.contains("expected named tuple Point (x, y), as in element 0, found named tuple Pixel (x, y)"),
        "{error}"
    );
    let solid = Value::named("Point", [("x", 1.into()), ("y", 2.5.into()), ("z", 2.5.into())]);
    assert!(failure([point(1, 0.5), solid]).contains("found named tuple Point (x, y, z)"));
}

#[test]
fn tuples_become_a_list_as_in_torch() {
    let batch = default_collate([(1, "a", true), (2, "b", false)]).unwrap();
    assert_eq!(batch, Value::list([[1_i64, 2].into(), Value::list(["a", "b"]), [true, false].into()]));
    assert!(failure([Value::tuple([1]), Value::list([1])]).contains("expected tuple, as in element 0, found list"));
}

#[test]
fn lists_are_transposed() {
    let batch = default_collate([Value::list([1, 2, 3]), Value::list([4, 5, 6])]).unwrap();
    assert_eq!(batch, Value::list([[1_i64, 4], [2, 5], [3, 6]]));
}

#[test]
fn lists_and_tuples_of_unequal_length_are_an_error() {
    let error = failure([Value::list([1, 2]), Value::list([1])]);
    assert!(error.starts_with("element 1: each element in list of batch should be of equal size"), "{error}");
    assert!(error.contains("this one has 1 and element 0 has 2"), "{error}");
    let nested = |items: &[i64]| Value::map([("a b", Value::tuple(items.iter().copied()))]);
    let error = failure([nested(&[1]), nested(&[1]), nested(&[1, 2])]);
    assert!(error.starts_with(r#"element 2, at ["a b"]: each element in list"#), "{error}");
}

#[test]
fn empty_containers_stay_empty() {
    assert_eq!(default_collate([(), ()]).unwrap(), Value::list::<Value>([]));
    assert_eq!(default_collate([Value::list::<Value>([])]).unwrap(), Value::list::<Value>([]));
    let empty = Value::map::<&str>([]);
    assert_eq!(default_collate([empty.clone(), Value::map([("a", 1.into())])]).unwrap(), empty);
}

#[test]
fn containers_nest_in_each_other() {
    let sample = |n: i32| {
        let pair = |first| Value::from((tensor(first, &[2]), point(n.into(), 0.5)));
        Value::map([
            ("pairs", Value::list([pair(10 * n), pair(10 * n + 2)])),
            ("meta", Value::map([("name", format!("no. {n}").into())])),
        ])
    };
    let batch = default_collate([sample(1), sample(2), sample(3)]).unwrap();
    let second = batch.get("pairs").unwrap().at(1).unwrap();
    assert_eq!(second.kind(), Kind::List);
    assert_eq!(second.at(0).unwrap(), &Value::from([[12_i32, 13], [22, 23], [32, 33]]));
    assert_eq!(second.at(1).unwrap().get("x").unwrap(), &Value::from([1_i64, 2, 3]));
    assert_eq!(batch.get("meta").unwrap().get("name").unwrap(), &Value::list(["no. 1", "no. 2", "no. 3"]));
}

#[test]
fn an_error_names_the_sample_and_the_place() {
    let sample = |last: Value| Value::map([("boxes", Value::list([1.into(), last]))]);
    let error = failure([sample(2.into()), sample(3.into()), sample(4.into()), sample("5".into())]);
    assert!(error.starts_with("element 3, at .boxes[1]: expected int, as in element 0, found text"), "{error}");
}

#[test]
fn an_empty_batch_is_an_error() {
    assert!(matches!(default_collate::<Value>([]), Err(CollateError::Empty)));
}

/// A type without a collate function.
#[derive(Debug)]
struct Opaque;

impl CustomValue for Opaque {}

#[test]
fn an_error_names_a_type_that_cannot_be_collated() {
    let error = failure([Value::map([("x", Value::custom(Opaque))])]);
    let expected =
        "default_collate: batch must contain tensors, arrays, numbers, maps or lists; found collate::Opaque at .x";
    assert!(error.starts_with(expected), "{error}");
    let error = failure([Value::custom(Opaque), 1.into()]);
    assert!(error.contains("expected collate::Opaque, as in element 0, found int"), "{error}");
}

/// A type with its own collate, convert and pin methods.
#[derive(Debug)]
struct Graph {
    nodes: Value,
    edges: i64,
}

impl Graph {
    fn value(nodes: &[i64], edges: i64) -> Value {
        Value::custom(Self { nodes: nodes.to_vec().into(), edges })
    }
}

impl CustomValue for Graph {
    fn collate(batch: &[&Self], collation: &Collation<'_>) -> Result<Value, BoxError> {
        if batch.iter().any(|graph| graph.edges < 0) {
            return Err("edges below zero".into());
        }
        let nodes: Vec<&Value> = batch.iter().map(|graph| &graph.nodes).collect();
        let nodes = collation.at_key("nodes").collate(&nodes)?;
        Ok(Value::custom(Self { nodes, edges: batch.iter().map(|graph| graph.edges).sum() }))
    }

    fn convert(self: Arc<Self>) -> Result<Value, BoxError> {
        if self.edges < 0 {
            Err("edges below zero".into())
        } else {
            Ok(Value::tuple([self.nodes.clone(), self.edges.into()]))
        }
    }

    fn pin_memory(self: Arc<Self>) -> Result<Value, BoxError> {
        if self.edges < 0 {
            return Err("edges below zero".into());
        }
        Ok(Value::custom(Self { nodes: self.nodes.clone().pin_memory()?, edges: self.edges }))
    }
}

#[test]
fn a_custom_type_collates_itself_and_its_content() {
    let batch = default_collate([(Graph::value(&[1, 2], 3), 1), (Graph::value(&[3, 4], 5), 2)]).unwrap();
    let graph: &Graph = batch.at(0).unwrap().as_custom().unwrap();
    assert_eq!((&graph.nodes, graph.edges), (&Value::from([[1_i64, 2], [3, 4]]), 8));

    let error = failure([(0, Graph::value(&[1, 2], 3)), (0, Graph::value(&[3], 5))]);
    assert!(error.starts_with("element 1, at [1].nodes: each tensor of a batch must be of equal size"), "{error}");
    let error = default_collate([(0, Graph::value(&[1], 3)), (0, Graph::value(&[3], -5))]).unwrap_err();
    assert_eq!(error.to_string(), "collate::Graph at [1] could not be collated or converted: edges below zero");
    assert!(failure([Graph::value(&[1], 3), Value::custom(Opaque)]).contains("found collate::Opaque"));
}

#[test]
fn a_collator_overrides_the_function_of_a_type() {
    let collator = Collator::new()
        .with_type(|batch: &[&Opaque], _| Ok(Value::from(format!("{} of them", batch.len()))))
        .with_type(|batch: &[&Graph], _| Ok(batch.iter().map(|graph| graph.edges).collect::<Vec<_>>().into()));
    let batch = collator.collate([(Value::custom(Opaque), Graph::value(&[], 2)); 1]).unwrap();
    assert_eq!(batch, Value::list([Value::from("1 of them"), [2_i64].into()]));
    let mixed = collator.collate([Value::custom(Opaque), Graph::value(&[], 2)]).unwrap_err().to_string();
    assert!(mixed.contains("expected collate::Opaque, as in element 0, found collate::Graph"), "{mixed}");
    assert!(default_collate([Value::custom(Opaque)]).is_err(), "other collators are not affected");
}

/// Pads one-dimensional i32 tensors to the longest one, and stacks all other tensors.
fn padded(batch: &[&Value], collation: &Collation<'_>) -> Result<Value, BoxError> {
    let Ok(rows) = collation.each(batch, Value::typed::<i32>) else { return Ok(collation.collate_default(batch)?) };
    let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let padded: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut row = row.as_slice().to_vec();
            row.resize(longest, 0);
            row.into()
        })
        .collect();
    Ok(collation.collate_default(&padded.iter().collect::<Vec<_>>())?)
}

#[test]
fn a_collator_overrides_the_function_of_a_kind() {
    let collator = Collator::new().with_kind(Kind::Tensor, padded);
    let sample = |len: usize| Value::map([("a", Value::list([tensor(1, &[len])])), ("b", [0.5].into())]);
    let batch = collator.collate([sample(1), sample(3)]).unwrap();
    assert_eq!(batch.get("a").unwrap().at(0).unwrap(), &Value::from([[1_i32, 0, 0], [1, 2, 3]]));
    assert_eq!(batch.get("b").unwrap(), &Value::from([[0.5], [0.5]]));
    // The kind of the first sample selects the function, for any kinds of the others.
    let texts = Collator::new().with_kind(Kind::Int, |batch, _| Ok(format!("{batch:?}").into()));
    assert_eq!(texts.collate([Value::from(1), 2.5.into()]).unwrap(), Value::from("[1, 2.5]"));
}

#[test]
fn endless_recursion_of_functions_is_an_error() {
    let collator = Collator::new().with_kind(Kind::Int, |batch, collation| Ok(collation.collate(batch)?));
    assert!(matches!(collator.collate([1]), Err(CollateError::TooDeep { .. })));

    #[derive(Debug)]
    struct Endless;
    impl CustomValue for Endless {
        fn collate(_: &[&Self], collation: &Collation<'_>) -> Result<Value, BoxError> {
            Ok(collation.collate_default(&[&Value::custom(Self)])?)
        }
    }
    assert!(matches!(default_collate([Value::custom(Endless)]), Err(CollateError::TooDeep { .. })));
}

/// Returns a number inside `depth` nested lists.
fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Int(1), |value, _| Value::list([value]))
}

#[test]
fn values_nested_too_deep_are_an_error() {
    let on_a_small_stack = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
        assert!(default_collate([nested(MAX_DEPTH)]).is_ok());
        assert!(default_convert(nested(MAX_DEPTH)).is_ok());
        assert!(nested(MAX_DEPTH).pin_memory().is_ok());
        for depth in [MAX_DEPTH + 1, 200_000] {
            assert!(matches!(default_collate([nested(depth)]), Err(CollateError::TooDeep { .. })));
            assert!(matches!(default_convert(nested(depth)), Err(CollateError::TooDeep { .. })));
            assert!(matches!(nested(depth).pin_memory(), Err(PinError::TooDeep { .. })));
            assert!(!nested(depth).is_pinned());
            let deep = nested(depth);
            let error = Loader::builder(from_fn(1, move |_, _| Ok(deep.clone()))).build().unwrap_err().to_string();
            assert!(error.contains("nested more than 128 deep"), "{error}");
        }
    });
    on_a_small_stack.unwrap().join().unwrap();
}

#[test]
fn bad_samples_are_left_out_and_unlike_ones_are_errors() {
    let skip = OnError::Skip(Budget::Samples(1));
    let numbers = from_fn(6, |index, _| match index {
        1 => Err("no number".into()),
        5 => Ok(Value::from("five")),
        _ => Ok(Value::from(index as i64)),
    });
    let mut loader = Loader::builder(numbers).batch_size(3).on_error(skip).collate_values().build().unwrap();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.next().unwrap().unwrap(), default_collate([0_i64, 2]).unwrap());
    assert!(matches!(pass.next().unwrap(), Err(slotline::Error::Sample { .. })));
}

#[test]
fn converting_only_turns_tuples_into_lists() {
    for unchanged in [
        Value::from(1),
        2.5.into(),
        true.into(),
        "text".into(),
        Value::bytes(*b"bytes"),
        tensor(0, &[2, 2]),
        Value::list([Value::from(1), "a".into()]),
        Value::map([("a", point(1, 2.0))]),
        Value::custom(Opaque),
    ] {
        assert_eq!(default_convert(&unchanged).unwrap(), unchanged);
    }
    let converted = default_convert(Value::map([("a", (1, (2, [0.5])).into())])).unwrap();
    let inner = Value::list([Value::from(2), [0.5].into()]);
    assert_eq!(converted, Value::map([("a", Value::list([Value::from(1), inner]))]));
    assert_eq!(default_convert((point(1, 2.0),)).unwrap().at(0), Some(&point(1, 2.0)));
}

#[test]
fn converting_calls_the_method_of_a_custom_type() {
    let converted = default_convert(Value::list([Graph::value(&[1], 2)])).unwrap();
    assert_eq!(converted.at(0), Some(&Value::tuple([Value::from([1_i64]), 2.into()])));
    let error = chain(&default_convert(Value::list([Graph::value(&[1], -2)])).unwrap_err());
    assert_eq!(error, "collate::Graph at [0] could not be collated or converted: edges below zero");
}

#[test]
fn pinning_copies_every_tensor_to_locked_pages() {
    let value = Value::map([
        ("list", Value::list([tensor(0, &[3]), tensor(5, &[2, 2])])),
        ("tuple", (tensor(1, &[]), "text", 1, 2.5, true).into()),
        ("named", Value::named("Named", [("x", tensor(2, &[0]))])),
        ("bytes", Value::bytes(*b"bytes")),
    ]);
    assert!(!value.is_pinned());
    let pinned = value.clone().pin_memory().unwrap();
    assert_eq!(pinned, value);
    assert!(pinned.is_pinned() && !value.is_pinned());
    let first = pinned.get("list").unwrap().at(0).unwrap().as_tensor().unwrap();
    assert!(first.is_pinned());
    assert_eq!(first.bytes().as_ptr().align_offset(4096), 0);
    assert_eq!(pinned.get("tuple").unwrap().kind(), Kind::Tuple);

    // A pinned tensor is not copied again.
    let again = pinned.clone().pin_memory().unwrap();
    assert!(std::ptr::eq(again.get("list").unwrap().at(0).unwrap().as_tensor().unwrap(), first));
    let mixed = Value::list([pinned.get("list").unwrap().clone(), tensor(0, &[1])]);
    assert!(!mixed.is_pinned() && !Value::from("text").is_pinned());
}

#[test]
fn pinning_calls_the_method_of_a_custom_type() {
    let pinned = Value::list([Graph::value(&[1], 2), Value::custom(Opaque)]).pin_memory().unwrap();
    assert!(pinned.at(0).unwrap().as_custom::<Graph>().unwrap().nodes.is_pinned());
    assert!(pinned.at(1).unwrap().as_custom::<Opaque>().is_some());
    let error = Value::map([("g", Graph::value(&[1], -2))]).pin_memory().unwrap_err();
    assert_eq!(chain(&error), "collate::Graph at .g could not be pinned: edges below zero");
}
