//! Checks slotline against a file of torch's answers: the results of calls that were made with
//! PyTorch.
//!
//! A case has a kind, the arguments of a call, and torch's answers. The arguments are deserialized
//! strictly, into a separate type for each kind: a missing or unknown argument, or one of the wrong
//! type, is a failure. The answers remain JSON, and those of slotline are converted to the same
//! form.
//!
//! - [`compare`]: compares two answers and shows where they differ.
//! - `samplers`: the kinds of cases that need no loader.
//! - `loaders`: the kinds of cases that need one.

pub(crate) mod compare;
mod loaders;
mod samplers;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use slotline::BoxError;

use self::compare::{Difference, short};

/// A file of torch's answers.
#[derive(Debug, Deserialize)]
pub(crate) struct Vectors {
    /// The version of torch that gave the answers.
    pub(crate) torch: String,
    /// The cases, in any order.
    pub(crate) cases: Vec<Value>,
}

/// A case; the variant is its kind.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Case {
    Engine(samplers::Engine),
    Randperm(samplers::Randperm),
    RandomSampler(samplers::Random),
    SubsetRandomSampler(samplers::SubsetRandom),
    WeightedRandomSampler(samplers::WeightedRandom),
    BatchSampler(samplers::Batch),
    DistributedSampler(samplers::Distributed),
    RandomSplit(samplers::Split),
    Loader(loaders::Map),
    IterableLoader(loaders::Iterable),
    WorkerSeeds(loaders::Seeds),
}

/// The generator that torch drew from. It was seeded with the case's seed.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum Drawn {
    #[serde(rename = "given")]
    FromGiven,
    #[serde(rename = "default")]
    FromDefault,
}

/// The reason why a case did not pass.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The kind is unknown, or its arguments are invalid.
    #[error("the case cannot be checked: {0}")]
    Unreadable(serde_json::Error),
    /// slotline's answer differs.
    #[error(transparent)]
    Differs(Difference),
    /// slotline returned an error where torch has an answer.
    #[error("torch has an answer, but slotline returned an error: {0}")]
    Refused(BoxError),
    /// slotline panicked.
    #[error("slotline panicked: {0}")]
    Panicked(String),
}

/// Distinguishes a [`Difference`], which comes from the check, from all other errors, which come
/// from slotline.
impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Self {
        error.downcast::<Difference>().map_or_else(Self::Refused, |difference| Self::Differs(*difference))
    }
}

/// Makes the call of a case with slotline, and compares the answers with torch's.
pub(crate) fn check(case: &Value) -> Result<(), Failure> {
    let case = Case::deserialize(case).map_err(Failure::Unreadable)?;
    Ok(guarded(|| match &case {
        Case::Engine(case) => case.check(),
        Case::Randperm(case) => case.check(),
        Case::RandomSampler(case) => case.check(),
        Case::SubsetRandomSampler(case) => case.check(),
        Case::WeightedRandomSampler(case) => case.check(),
        Case::BatchSampler(case) => case.check(),
        Case::DistributedSampler(case) => case.check(),
        Case::RandomSplit(case) => case.check(),
        Case::Loader(case) => case.check(),
        Case::IterableLoader(case) => case.check(),
        Case::WorkerSeeds(case) => case.check(),
    })??)
}

/// Runs code, and converts a panic to a failure. No code uses the values that a panic may have left
/// inconsistent.
pub(crate) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic: Box<dyn Any + Send>| {
        let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
        let message = message.or_else(|| panic.downcast_ref().cloned());
        Failure::Panicked(message.unwrap_or_else(|| "without a message".to_owned()))
    })
}

/// Deserializes the answers of all passes. Fails if there are none, because a case without answers
/// would always succeed.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(json: D) -> Result<Vec<T>, D::Error> {
    let answers = Vec::deserialize(json)?;
    if answers.is_empty() { Err(D::Error::invalid_length(0, &"the answers of at least one pass")) } else { Ok(answers) }
}

/// Returns the keys of torch's answers in a case of this kind. The other keys are arguments.
pub(crate) fn answers(kind: &str) -> &'static [&'static str] {
    match kind {
        "engine" => &["random_i64", "then_rand_f64_bits", "then_randint_1000"],
        "randperm" => &["indices"],
        "random_sampler" => &["len", "passes"],
        "subset_random_sampler" | "weighted_random_sampler" => &["passes"],
        "batch_sampler" => &["len", "batches"],
        "distributed_sampler" | "iterable_loader" | "worker_seeds" => &["epochs"],
        "loader" => &["len", "epochs"],
        "random_split" => &["parts"],
        _ => &[],
    }
}

/// Describes a case by its kind and arguments, for the report of a failure.
pub(crate) fn describe(case: &Value) -> String {
    let kind = case["kind"].as_str().unwrap_or("no kind");
    let Some(entries) = case.as_object() else { return format!("{kind} ({})", short(case, 0)) };
    let arguments = entries.iter().filter(|(key, _)| *key != "kind" && !answers(kind).contains(&key.as_str()));
    let arguments: Vec<String> = arguments.map(|(key, value)| format!("{key} = {}", short(value, 0))).collect();
    format!("{kind} ({})", arguments.join(", "))
}
