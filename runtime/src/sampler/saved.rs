//! What samplers save of themselves: names and values, as `len=10 generator=42:1248`.

use std::fmt::{Display, Write};
use std::str::FromStr;

use crate::BoxError;
use crate::rng::{Generator, SharedGenerator};

/// The most words that a generator is asked to pass over: that takes some ten minutes.
const MOST_DRAWN: u64 = 1 << 40;

/// Why a sampler cannot go on from what was saved.
#[derive(Debug, thiserror::Error)]
enum SavedError {
    #[error("{sampler}: its {name} was {saved} when it was saved, and is {own}; make the sampler as it was")]
    Differs { sampler: &'static str, name: &'static str, saved: String, own: String },
    #[error("{sampler}: {name} is missing from what was saved, or cannot be read")]
    Unreadable { sampler: &'static str, name: &'static str },
    #[error("{sampler}: its {name} was {saved} when it was saved, and {reason}")]
    Impossible { sampler: &'static str, name: &'static str, saved: String, reason: &'static str },
}

/// Adds a value.
pub(super) fn put(to: &mut String, name: &str, value: impl Display) {
    let space = if to.is_empty() { "" } else { " " };
    write!(to, "{space}{name}={value}").expect("a string takes all that is written to it");
}

/// Adds where a sampler's own generator is, if it has one.
pub(super) fn put_generator(to: &mut String, generator: Option<&SharedGenerator>) {
    match generator.map(SharedGenerator::lock) {
        Some(generator) => put(to, "generator", format_args!("{}:{}", generator.initial_seed(), generator.drawn())),
        None => put(to, "generator", "none"),
    }
}

/// What was saved.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a> {
    pub(super) sampler: &'static str,
    pub(super) text: &'a str,
}

impl<'a> Saved<'a> {
    fn value(&self, name: &'static str) -> Result<&'a str, SavedError> {
        let mut pairs = self.text.split(' ').filter_map(|pair| pair.split_once('='));
        let value = pairs.find_map(|(key, value)| (key == name).then_some(value));
        value.ok_or(SavedError::Unreadable { sampler: self.sampler, name })
    }

    /// A value.
    pub(super) fn get<T: FromStr>(&self, name: &'static str) -> Result<T, BoxError> {
        let value = self.value(name)?.parse();
        value.map_err(|_| SavedError::Unreadable { sampler: self.sampler, name }.into())
    }

    /// Checks that a value is what the sampler has.
    pub(super) fn check(&self, name: &'static str, own: impl Display) -> Result<(), BoxError> {
        let (saved, own) = (self.value(name)?, own.to_string());
        if saved != own {
            return Err(SavedError::Differs { sampler: self.sampler, name, saved: saved.to_owned(), own }.into());
        }
        Ok(())
    }

    /// That a value cannot be.
    pub(super) fn impossible(&self, name: &'static str, saved: impl Display, reason: &'static str) -> BoxError {
        SavedError::Impossible { sampler: self.sampler, name, saved: saved.to_string(), reason }.into()
    }

    /// Puts the sampler's own generator where it was. The last of all checks: nothing may go wrong after it.
    pub(super) fn restore_generator(&self, generator: Option<&SharedGenerator>) -> Result<(), BoxError> {
        let name = "generator";
        let Some(generator) = generator else { return self.check(name, "none") };
        let saved = self.value(name)?;
        let mut generator = generator.lock();
        let differs = |name, saved: &str, own: u64| -> BoxError {
            let (saved, own) = (saved.to_owned(), own.to_string());
            SavedError::Differs { sampler: self.sampler, name, saved, own }.into()
        };
        let Some((seed, drawn)) = saved.split_once(':') else {
            return Err(differs(name, saved, generator.initial_seed()));
        };
        let unreadable = || SavedError::Unreadable { sampler: self.sampler, name };
        let seed_number: u64 = seed.parse().map_err(|_| unreadable())?;
        let drawn: u64 = drawn.parse().map_err(|_| unreadable())?;
        if seed_number != generator.initial_seed() {
            return Err(differs("generator's seed", seed, generator.initial_seed()));
        }
        if drawn > MOST_DRAWN {
            return Err(self.impossible(name, saved, "going on from there would take too long"));
        }
        *generator = Generator::from_seed(seed_number);
        generator.discard(drawn);
        Ok(())
    }
}

/// A number made of many: equal for equal ones, and else most surely not (FNV-1a, 64 bits at a time).
pub(super) fn digest(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29))
}
