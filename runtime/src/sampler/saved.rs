//! The text format of samplers' saved states: names and values, such as `len=10 generator=42:1248`.

use std::fmt::{Display, Write};
use std::str::FromStr;

use crate::BoxError;
use crate::rng::{GeneratorState, SharedGenerator};

/// The error for a sampler that cannot be restored from a state.
#[derive(Debug, thiserror::Error)]
enum SavedError {
    #[error("{sampler}: {name} was {saved} in the saved state, but is {own}; create the sampler with the same options")]
    Differs { sampler: &'static str, name: &'static str, saved: String, own: String },
    #[error("{sampler}: its {what} are not those of the saved state; create the sampler with the same {what}")]
    Other { sampler: &'static str, what: &'static str },
    #[error("{sampler}: {name} is missing or invalid in the saved state")]
    Unreadable { sampler: &'static str, name: &'static str },
    #[error("{sampler}: {name} was {saved} in the saved state, but {reason}")]
    Impossible { sampler: &'static str, name: &'static str, saved: String, reason: String },
}

/// Appends a named value to the state that a sampler [saves](super::Sampler::save). Neither the
/// name nor the value may contain spaces.
pub fn put(to: &mut String, name: &str, value: impl Display) {
    let space = if to.is_empty() { "" } else { " " };
    write!(to, "{space}{name}={value}").expect("writing to a string does not fail");
}

/// Appends the position of a sampler's own generator, or `none` if it has no generator.
pub fn put_generator(to: &mut String, generator: Option<&SharedGenerator>) {
    match generator.map(SharedGenerator::lock) {
        Some(generator) => put(to, "generator", GeneratorState::of(&generator)),
        None => put(to, "generator", "none"),
    }
}

/// The values that a sampler has saved with [`put`], from which it is
/// [restored](super::Sampler::restore). All errors contain the names of the sampler and of the
/// value.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    /// The sampler's name in errors.
    pub sampler: &'static str,
    /// The text that the sampler has saved.
    pub text: &'a str,
}

impl<'a> Saved<'a> {
    fn value(&self, name: &'static str) -> Result<&'a str, SavedError> {
        let mut pairs = self.text.split(' ').filter_map(|pair| pair.split_once('='));
        let value = pairs.find_map(|(key, value)| (key == name).then_some(value));
        value.ok_or(SavedError::Unreadable { sampler: self.sampler, name })
    }

    /// Parses the value with this name.
    ///
    /// # Errors
    ///
    /// If there is no such value, or it cannot be parsed.
    pub fn get<T: FromStr>(&self, name: &'static str) -> Result<T, BoxError> {
        let value = self.value(name)?.parse();
        value.map_err(|_| SavedError::Unreadable { sampler: self.sampler, name }.into())
    }

    /// Checks that the value with this name is equal to `own`, the value of the sampler that is being
    /// restored.
    ///
    /// # Errors
    ///
    /// If there is no such value, or it differs.
    pub fn check(&self, name: &'static str, own: impl Display) -> Result<(), BoxError> {
        let (saved, own) = (self.value(name)?, own.to_string());
        if saved != own {
            // The digest itself means nothing to a reader.
            if let Some(what) = name.strip_prefix("digest_of_") {
                let what = if what == "lens" { "lengths" } else { what };
                return Err(SavedError::Other { sampler: self.sampler, what }.into());
            }
            return Err(SavedError::Differs { sampler: self.sampler, name, saved: saved.to_owned(), own }.into());
        }
        Ok(())
    }

    /// Makes the error for a value that no sampler can have saved.
    pub fn impossible(&self, name: &'static str, saved: impl Display, reason: impl Into<String>) -> BoxError {
        let (saved, reason) = (saved.to_string(), reason.into());
        SavedError::Impossible { sampler: self.sampler, name, saved, reason }.into()
    }

    /// Restores the position of the sampler's own generator. Call this after all other checks,
    /// since a failed check must leave the sampler unchanged.
    ///
    /// # Errors
    ///
    /// If the saved generator had another seed, or if only one of the saved sampler and the restored one has its own
    /// generator.
    pub fn restore_generator(&self, generator: Option<&SharedGenerator>) -> Result<(), BoxError> {
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
        let state: GeneratorState = self.get(name)?;
        if state.seed != generator.initial_seed() {
            return Err(differs("generator's seed", &state.seed.to_string(), generator.initial_seed()));
        }
        state.put(&mut generator);
        Ok(())
    }
}

/// Hashes a sequence of words. Equal sequences have equal digests, and different sequences almost
/// certainly have different ones. The result is the same on every machine and in every version of
/// this crate (FNV-1a, 64 bits at a time, with a rotation).
///
/// A custom sampler can [save](super::Sampler::save) the digest of its list in a few bytes, and
/// refuse to be restored with another list.
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
