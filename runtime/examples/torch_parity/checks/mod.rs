//! The cases of a file of torch's answers, checked one by one.
//!
//! A case says what was called (its kind and arguments) and what torch answered. The arguments are read into a type of
//! the kind's own, strictly: one that is missing, unknown or of the wrong type is a failure, never passed over. The
//! answers stay JSON, and slotline's are brought into the same form.
//!
//! - [`compare`]: two answers, and where they differ.
//! - `samplers`: the kinds that need no loader; `loaders`: those that do.

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
    /// The version of torch that answered.
    pub(crate) torch: String,
    /// In any order of kinds.
    pub(crate) cases: Vec<Value>,
}

/// A case, by its kind.
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

/// Which generator torch drew from, after it was given the case's seed.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum Drawn {
    #[serde(rename = "given")]
    FromGiven,
    #[serde(rename = "default")]
    FromDefault,
}

/// Why a case did not pass.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Its kind is unknown, or its arguments are not those of its kind.
    #[error("this is no case that can be checked: {0}")]
    Unreadable(serde_json::Error),
    /// slotline answers something else.
    #[error(transparent)]
    Differs(Difference),
    /// torch answered, and slotline didn't.
    #[error("torch has an answer, and slotline an error: {0}")]
    Refused(BoxError),
    /// slotline panicked.
    #[error("slotline panicked: {0}")]
    Panicked(String),
}

/// A check's own errors are differences; all the others are the library's.
impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Self {
        error.downcast::<Difference>().map_or_else(Self::Refused, |difference| Self::Differs(*difference))
    }
}

/// Asks slotline what the case asked torch, and compares the answers.
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

/// Turns a panic into a failure. What `run` leaves half-done nobody sees.
pub(crate) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic: Box<dyn Any + Send>| {
        let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
        let message = message.or_else(|| panic.downcast_ref().cloned());
        Failure::Panicked(message.unwrap_or_else(|| "without a message".to_owned()))
    })
}

/// The answers of some passes; without any, a case would pass whatever slotline does.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(json: D) -> Result<Vec<T>, D::Error> {
    let answers = Vec::deserialize(json)?;
    if answers.is_empty() { Err(D::Error::invalid_length(0, &"the answers of at least one pass")) } else { Ok(answers) }
}

/// The keys under which a case of this kind has torch's answers; its others are arguments.
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

/// The kind of a case and its arguments, for whoever reads about its failure.
pub(crate) fn describe(case: &Value) -> String {
    let kind = case["kind"].as_str().unwrap_or("no kind");
    let Some(entries) = case.as_object() else { return format!("{kind} ({})", short(case, 0)) };
    let arguments = entries.iter().filter(|(key, _)| *key != "kind" && !answers(kind).contains(&key.as_str()));
    let arguments: Vec<String> = arguments.map(|(key, value)| format!("{key} = {}", short(value, 0))).collect();
    format!("{kind} ({})", arguments.join(", "))
}
