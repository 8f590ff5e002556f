//! The kinds of cases for which no loader is needed: generators, samplers and splits.

use std::num::NonZero;

use serde::Deserialize;
use serde_json::Value;
use slotline::BoxError;
use slotline::dataset::{SplitLength, from_fn, random_split};
use slotline::rng::Generator;
use slotline::sampler::{
    BatchSampler, DistributedSampler, Order, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
    WeightedRandomSampler,
};

use super::compare::{pack, same};
use super::{Drawn, some};

/// A case with numbers from a generator: six integers, then four floats (as their bits), then four
/// draws below 1000.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Engine {
    seed: u64,
    random_i64: Value,
    then_rand_f64_bits: Value,
    then_randint_1000: Value,
}

impl Engine {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        const BOUND: NonZero<u64> = NonZero::new(1000).unwrap();
        let mut generator = Generator::from_seed(self.seed);
        same("random_i64", &self.random_i64, &(0..6).map(|_| generator.random_i64()).collect())?;
        let floats = (0..4).map(|_| generator.rand_f64().to_bits()).collect();
        same("then_rand_f64_bits", &self.then_rand_f64_bits, &floats)?;
        same("then_randint_1000", &self.then_randint_1000, &(0..4).map(|_| generator.randint(BOUND)).collect())?;
        Ok(())
    }
}

/// A case with a permutation, as `u32` and as `u64`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Randperm {
    n: usize,
    seed: u64,
    indices: Value,
}

impl Randperm {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let mut narrow: Vec<u32> = Vec::new();
        Generator::from_seed(self.seed).randperm_into(self.n, &mut narrow)?;
        same("indices", &self.indices, &pack(narrow.iter().map(|&index| index as usize)))?;
        let mut wide: Vec<u64> = Vec::new();
        Generator::from_seed(self.seed).randperm_into(self.n, &mut wide)?;
        Ok(same("indices (u64)", &self.indices, &pack(wide.iter().map(|&index| index as usize)))?)
    }
}

/// A case with passes of a `RandomSampler`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Random {
    n: usize,
    replacement: bool,
    #[serde(deserialize_with = "Option::deserialize")] // The key is required, but can be null.
    num_samples: Option<usize>,
    seed: u64,
    generator: Drawn,
    len: Value,
    #[serde(deserialize_with = "some")]
    passes: Vec<Value>,
}

impl Random {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let mut sampler = RandomSampler::new(self.n)?.replacement(self.replacement);
        if let Some(num_samples) = self.num_samples {
            sampler = sampler.num_samples(num_samples)?;
        }
        same("len", &self.len, &sampler.len().into())?;
        let mut default = Generator::from_seed(self.seed);
        match self.generator {
            Drawn::FromDefault => passes(&mut sampler, &mut default, &self.passes),
            Drawn::FromGiven => own_passes(sampler.generator(default), &self.passes),
        }
    }
}

/// A case with passes of a `SubsetRandomSampler` that has its own generator.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubsetRandom {
    indices: Vec<usize>,
    seed: u64,
    #[serde(deserialize_with = "some")]
    passes: Vec<Value>,
}

impl SubsetRandom {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let sampler = SubsetRandomSampler::new(self.indices.iter().copied());
        own_passes(sampler.generator(Generator::from_seed(self.seed)), &self.passes)
    }
}

/// A case with passes of a `WeightedRandomSampler` that has its own generator.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightedRandom {
    weights: Vec<f64>,
    num_samples: usize,
    replacement: bool,
    seed: u64,
    #[serde(deserialize_with = "some")]
    passes: Vec<Value>,
}

impl WeightedRandom {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let sampler = WeightedRandomSampler::new(self.weights.iter().copied(), self.num_samples)?;
        let sampler = sampler.replacement(self.replacement)?.generator(Generator::from_seed(self.seed));
        own_passes(sampler, &self.passes)
    }
}

/// A case with the lists of a `BatchSampler` over a `SequentialSampler`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    n: usize,
    batch_size: usize,
    drop_last: bool,
    len: Value,
    batches: Vec<Vec<usize>>,
}

impl Batch {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let indices = SequentialSampler::new(self.n);
        let mut sampler = BatchSampler::new(indices, self.batch_size, self.drop_last)?;
        same("len", &self.len, &sampler.len().into())?;
        // Checked before any list is made, as the lists could be too large for memory.
        let samples: usize = self.batches.iter().map(Vec::len).sum();
        let dropped = if self.drop_last { self.n % self.batch_size } else { 0 };
        same("samples in all batches", &samples.into(), &(self.n - dropped).into())?;
        let torch = Value::from_iter(self.batches.iter().cloned());
        for _pass in 0..2 {
            same("batches", &torch, &Value::from_iter(sampler.batches()?))?;
        }
        Ok(())
    }
}

/// A case with the passes of every rank of a `DistributedSampler`, for several epochs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Distributed {
    n: usize,
    num_replicas: usize,
    shuffle: bool,
    drop_last: bool,
    seed: u64,
    #[serde(deserialize_with = "some")]
    epochs: Vec<Vec<Value>>,
}

impl Distributed {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        for (epoch, ranks) in self.epochs.iter().enumerate() {
            same(&format!("number of epochs[{epoch}]'s ranks"), &ranks.len().into(), &self.num_replicas.into())?;
        }
        let mut order = Order::default();
        for rank in 0..self.num_replicas {
            let sampler = DistributedSampler::new(self.n, self.num_replicas, rank)?.seed(self.seed);
            let mut sampler = sampler.shuffle(self.shuffle).drop_last(self.drop_last);
            for (epoch, ranks) in self.epochs.iter().enumerate() {
                sampler.set_epoch(epoch as u64);
                pass(
                    &mut sampler,
                    &mut Generator::new(),
                    &mut order,
                    &format!("epochs[{epoch}][{rank}]"),
                    &ranks[rank],
                )?;
            }
        }
        Ok(())
    }
}

/// A case with the parts of a `random_split`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Split {
    n: usize,
    lengths: Lengths,
    seed: u64,
    parts: Value,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Lengths {
    Numbers(Vec<usize>),
    Fractions(Vec<f64>),
}

impl Split {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        match &self.lengths {
            Lengths::Numbers(numbers) => self.check_by(numbers),
            Lengths::Fractions(fractions) => self.check_by(fractions),
        }
    }

    fn check_by<L: SplitLength>(&self, lengths: &[L]) -> Result<(), BoxError> {
        let mut generator = Generator::from_seed(self.seed);
        let dataset = from_fn(self.n, |index, _| Ok(index as i64));
        let parts = random_split(dataset, lengths, &mut generator)?;
        let parts: Vec<Vec<usize>> = parts.iter().map(|part| part.indices().collect()).collect();
        same("parts", &self.parts, &parts.iter().map(|part| pack(part.iter().copied())).collect())?;
        // A split draws one permutation from the given generator.
        Ok(same("numbers drawn", &self.n.saturating_sub(1).into(), &generator.drawn().into())?)
    }
}

/// Checks the passes of a sampler that has its own generator, and that it draws nothing from the
/// default one.
fn own_passes(mut sampler: impl Sampler, torch: &[Value]) -> Result<(), BoxError> {
    let mut default = Generator::new();
    passes(&mut sampler, &mut default, torch)?;
    Ok(same("numbers drawn from the default generator", &0.into(), &default.drawn().into())?)
}

/// Checks the passes of a sampler, all of which reuse the memory of one order.
fn passes(sampler: &mut impl Sampler, default: &mut Generator, torch: &[Value]) -> Result<(), BoxError> {
    let mut order = Order::default();
    for (number, torch) in torch.iter().enumerate() {
        pass(sampler, default, &mut order, &format!("passes[{number}]"), torch)?;
    }
    Ok(())
}

/// Checks one pass of a sampler, and that its length is the one that the sampler reports.
fn pass(
    sampler: &mut impl Sampler,
    default: &mut Generator,
    order: &mut Order,
    what: &str,
    torch: &Value,
) -> Result<(), BoxError> {
    sampler.order(default, order)?;
    same(what, torch, &pack((0..order.len()).map(|position| order.index(position))))?;
    Ok(same(&format!("{what}'s length"), &sampler.len().into(), &order.len().into())?)
}
