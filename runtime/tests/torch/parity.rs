//! Compares slotline with torch, using the checks of the example `torch_parity`.
//!
//! `torch/vectors.json` contains the answers of torch 2.15.0 to 210 cases.

#[path = "../../examples/torch_parity/checks/mod.rs"]
mod checks;

use serde_json::{Value, json};

use self::checks::compare::pack;
use self::checks::{Failure, Vectors, answers, check, describe, guarded};

/// The kinds of cases in `vectors.json` and the number of cases of each, to check that none is
/// skipped.
const KINDS: [(&str, usize); 11] = [
    ("engine", 15),
    ("randperm", 15),
    ("random_sampler", 15),
    ("subset_random_sampler", 15),
    ("weighted_random_sampler", 15),
    ("batch_sampler", 15),
    ("distributed_sampler", 15),
    ("random_split", 15),
    ("loader", 45),
    ("iterable_loader", 30),
    ("worker_seeds", 15),
];

fn cases(kind: &str) -> Vec<Value> {
    let vectors: Vectors = serde_json::from_str(include_str!("vectors.json")).unwrap();
    assert_eq!(vectors.torch, "2.15.0+cu132");
    vectors.cases.into_iter().filter(|case| case["kind"] == kind).collect()
}

#[test]
fn every_case_has_torchs_answer() {
    for (kind, count) in KINDS {
        let cases = cases(kind);
        assert_eq!(cases.len(), count, "{kind}");
        for case in &cases {
            if let Err(failure) = check(case) {
                panic!("{}:\n  {failure}", describe(case));
            }
        }
    }
}

/// Returns variants of an answer that each contain one error: a changed number or hash, or a
/// missing entry.
fn corruptions(answer: &Value) -> Vec<Value> {
    let within = |list: &Vec<Value>, at: usize| {
        let with = |entry| Value::from([&list[..at], &[entry], &list[at + 1..]].concat());
        corruptions(&list[at]).into_iter().map(with).collect::<Vec<_>>()
    };
    match answer {
        Value::Array(list) if list.is_empty() => vec![json!([[]])],
        Value::Array(list) => {
            let fewer = vec![Value::from(&list[1..])];
            [within(list, 0), within(list, list.len() / 2), within(list, list.len() - 1), fewer].concat()
        }
        Value::Object(entries) => {
            let with = |key: &str, entry| {
                let mut entries = entries.clone();
                entries[key] = entry;
                Value::from(entries)
            };
            entries.iter().flat_map(|(key, entry)| corruptions(entry).into_iter().map(|e| with(key, e))).collect()
        }
        Value::String(hash) => vec![hash.replace(|digit| digit != '0', "0").into()],
        Value::Number(number) => vec![(number.as_i64().unwrap() ^ 1).into()],
        other => panic!("an answer cannot contain {other}"),
    }
}

/// Returns the JSON pointers to a case's answers. Each pass has its own pointer, as a case can have
/// any number of passes.
fn places(case: &Value) -> Vec<String> {
    let kind = case["kind"].as_str().unwrap();
    let place = |&key: &&str| match key {
        "passes" | "epochs" => (0..case[key].as_array().unwrap().len()).map(|pass| format!("/{key}/{pass}")).collect(),
        _ => vec![format!("/{key}")],
    };
    answers(kind).iter().flat_map(place).collect()
}

#[test]
fn a_wrong_answer_of_any_kind_is_reported_as_a_difference() {
    for (kind, _) in KINDS {
        for case in cases(kind) {
            let places = places(&case);
            assert!(!places.is_empty());
            for place in places {
                for wrong in corruptions(case.pointer(&place).unwrap()) {
                    let mut case = case.clone();
                    *case.pointer_mut(&place).unwrap() = wrong;
                    assert!(matches!(check(&case), Err(Failure::Differs(_))), "{case}");
                }
            }
        }
    }
}

#[test]
fn missing_unknown_or_mistyped_arguments_are_failures() {
    let unreadable = |case: &Value| match check(case) {
        Err(Failure::Unreadable(error)) => error.to_string(),
        other => panic!("{other:?}: {case}"),
    };
    for (kind, _) in KINDS {
        let case = &cases(kind)[0];
        for key in case.as_object().unwrap().keys() {
            // A missing `prefetch_factor` means torch's default.
            if key != "prefetch_factor" {
                let mut without = case.clone();
                without.as_object_mut().unwrap().remove(key);
                let error = unreadable(&without);
                assert!(error.contains(&format!("missing field `{key}`")), "{error}");
            }
            if !answers(kind).contains(&key.as_str()) {
                let mut other = case.clone();
                other[key] = json!({});
                unreadable(&other);
            }
        }
        let mut more = case.clone();
        more["in_order"] = false.into();
        assert!(unreadable(&more).contains("unknown field `in_order`"));
    }
    for (key, none) in [("passes", "random_sampler"), ("epochs", "distributed_sampler")] {
        let mut case = cases(none)[0].clone();
        case[key] = json!([]);
        assert!(unreadable(&case).contains("at least one pass"));
    }
    assert!(unreadable(&json!({ "kind": "grain" })).contains("unknown variant `grain`"));
    [json!({}), json!(null), json!([1, 2]), json!("engine")].iter().for_each(|case| drop(unreadable(case)));
}

/// Checks numbers and lists that are invalid for datasets, samplers and splits.
#[test]
fn impossible_arguments_fail_without_a_panic() {
    let hostile = [json!(0), json!(u64::MAX), json!(u64::MAX / 2), json!(-1), json!(-0.5), json!([]), json!([0, 0.5])];
    for (kind, _) in KINDS {
        for case in cases(kind).iter().take(4) {
            let arguments = case.as_object().unwrap().keys().filter(|key| !answers(kind).contains(&key.as_str()));
            for (key, value) in arguments.flat_map(|key| hostile.iter().map(move |value| (key, value))) {
                let mut case = case.clone();
                case[key] = value.clone();
                let outcome = check(&case);
                assert!(!matches!(outcome, Err(Failure::Panicked(_))), "{key} = {value}: {outcome:?}");
                // A number may be valid: a seed can be any number, and a dataset can be empty.
                assert!(outcome.is_err() || value.is_number(), "{key} = {value} of {kind}");
            }
        }
    }
}

#[test]
fn a_panic_is_a_failure() {
    let failure = |panic: fn()| guarded(panic).unwrap_err().to_string();
    assert_eq!(failure(|| panic!("no such row")), "slotline panicked: no such row");
    assert_eq!(failure(|| panic!("row {}", 7)), "slotline panicked: row 7");
    assert_eq!(failure(|| std::panic::panic_any(7)), "slotline panicked: without a message");
}

#[test]
fn a_failure_shows_where_the_answers_differ() {
    let mut case = cases("random_split")[0].clone();
    let torch = case["parts"][1].as_array().unwrap().clone();
    case["parts"][1][40] = json!(999);
    let failure = check(&case).unwrap_err().to_string();
    let around = |at: Value| {
        let shown: Vec<String> = torch[37..49].iter().map(Value::to_string).collect();
        let [before, after] = [shown[..3].join(", "), shown[4..].join(", ")];
        format!("[…, {before}, {at}, {after}, …] ({} in all)", torch.len())
    };
    let [theirs, ours] = [around(json!(999)), around(torch[40].clone())];
    assert_eq!(failure, format!("parts[1][40] differs\n    torch:    {theirs}\n    slotline: {ours}"));
    case["lengths"] = json!([1, 1]);
    let failure = check(&case).unwrap_err().to_string();
    assert!(
        failure
            .starts_with("torch has an answer, but slotline returned an error: random_split: the lengths add up to 2")
    );
}

#[test]
fn a_case_is_described_by_its_arguments() {
    let case = json!({ "kind": "weighted_random_sampler", "weights": [1, 2], "seed": 3, "passes": [[0]] });
    assert_eq!(describe(&case), "weighted_random_sampler (seed = 3, weights = [1, 2])");
    let long = json!({ "a": vec![vec![0; 9]; 20], "kind": "x".repeat(9), "text": "é".repeat(100) });
    let list = format!("[{}…] (20 in all)", "[0, 0, 0, 0, …] (9 in all), ".repeat(12));
    assert_eq!(describe(&long), format!("xxxxxxxxx (a = {list}, text = \"{}\"…)", "é".repeat(48)));
    assert_eq!(describe(&json!([1])), "no kind ([1])");
}

#[test]
fn a_list_of_more_than_512_indices_is_checked_by_its_hash() {
    // In Python: hashlib.sha256(b"".join(struct.pack("<q", i) for i in range(513))).hexdigest()
    let packed = pack(0..513);
    assert_eq!(packed["sha256"], "277c30e60688876c587e8f1c22f500179bacd8a1b191597556df87678e0dcfa0");
    assert_eq!((packed["len"].as_u64(), packed["tail"][7].as_u64()), (Some(513), Some(512)));
    assert_eq!(pack(0..512), (0..512).collect::<Value>());
}
