//! What samplers save of themselves: names and values, as `len=10 generator=42:1248`.

use std::fmt::{Display, Write};
use std::str::FromStr;

use crate::BoxError;
use crate::rng::{Place, SharedGenerator};

/// Why a sampler cannot go on from what was saved.
#[derive(Debug, thiserror::Error)]
enum SavedError {
    #[error("{sampler}: its {name} was {saved} when it was saved, and is {own}; make the sampler as it was")]
    Differs { sampler: &'static str, name: &'static str, saved: String, own: String },
    #[error("{sampler}: {name} is missing from what was saved, or cannot be read")]
    Unreadable { sampler: &'static str, name: &'static str },
    #[error("{sampler}: its {name} was {saved} when it was saved, and {reason}")]
    Impossible { sampler: &'static str, name: &'static str, saved: String, reason: String },
}

/// Adds a value.
pub(super) fn put(to: &mut String, name: &str, value: impl Display) {
    let space = if to.is_empty() { "" } else { " " };
    write!(to, "{space}{name}={value}").expect("a string takes all that is written to it");
}

/// Adds where a sampler's own generator is, if it has one.
pub(super) fn put_generator(to: &mut String, generator: Option<&SharedGenerator>) {
    match generator.map(SharedGenerator::lock) {
        Some(generator) => put(to, "generator", Place::of(&generator)),
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
    pub(super) fn impossible(&self, name: &'static str, saved: impl Display, reason: impl Into<String>) -> BoxError {
        let (saved, reason) = (saved.to_string(), reason.into());
        SavedError::Impossible { sampler: self.sampler, name, saved, reason }.into()
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
        if saved == "none" {
            return Err(differs(name, saved, generator.initial_seed()));
        }
        let place: Place = self.get(name)?;
        if place.seed != generator.initial_seed() {
            return Err(differs("generator's seed", &place.seed.to_string(), generator.initial_seed()));
        }
        if let Some(reason) = place.unreachable() {
            return Err(self.impossible(name, saved, reason));
        }
        place.put(&mut generator);
        Ok(())
    }
}

/// A number made of many: equal for equal ones, and else most surely not. It is the same on every machine and in every version
/// of this crate (FNV-1a, 64 bits at a time, and a rotation).
///
/// With it a sampler of your own can [save](super::Sampler::save) in a few bytes what list it has, and refuse to be restored
/// with another one.
///
/// ```
/// use slotline::sampler::digest;
///
/// assert_eq!(digest([3, 1, 4]), digest(vec![3, 1, 4]));
/// assert_ne!(digest([3, 1, 4]), digest([3, 4, 1]));
/// ```
pub fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29))
}
