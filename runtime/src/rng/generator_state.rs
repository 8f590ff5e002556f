//! The position of a generator in its sequence, and its text form in saved states.

use std::fmt;
use std::str::FromStr;

use super::Generator;

/// The position of a generator in its sequence. Its text form is `seed:drawn`, such as `42:1248`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GeneratorState {
    pub(crate) seed: u64,
    /// The number of 32-bit words drawn since seeding.
    pub(crate) drawn: u64,
}

impl GeneratorState {
    /// Returns the position of a generator.
    pub(crate) fn of(generator: &Generator) -> Self {
        Self { seed: generator.initial_seed(), drawn: generator.drawn() }
    }

    /// Sets a generator to this position. Seeds it again only if it has another seed, or has already
    /// drawn more words.
    pub(crate) fn put(&self, generator: &mut Generator) {
        if generator.initial_seed() != self.seed || generator.drawn() > self.drawn {
            generator.manual_seed(self.seed);
        }
        generator.discard(self.drawn - generator.drawn());
    }
}

impl fmt::Display for GeneratorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.drawn)
    }
}

/// The error for a string that is not the text form of a position.
#[derive(Debug, thiserror::Error)]
#[error("expected a generator's seed and the number of words drawn, as 42:1248")]
pub(crate) struct NoPlace;

impl FromStr for GeneratorState {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (seed, drawn) = text.split_once(':').ok_or(NoPlace)?;
        Ok(Self { seed: seed.parse().map_err(|_| NoPlace)?, drawn: drawn.parse().map_err(|_| NoPlace)? })
    }
}

#[cfg(feature = "serde")]
mod saved {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::GeneratorState;

    impl Serialize for GeneratorState {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for GeneratorState {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            /// A position as it occurs in saved states. `Parts` is the format of version 1 of the states.
            #[derive(Deserialize)]
            #[serde(untagged, expecting = "a generator's position, as 42:1248")]
            enum Saved {
                Text(String),
                Parts { seed: u64, drawn: u64 },
            }
            match Saved::deserialize(deserializer)? {
                Saved::Text(text) => text.parse().map_err(serde::de::Error::custom),
                Saved::Parts { seed, drawn } => Ok(Self { seed, drawn }),
            }
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_text_and_can_be_read_in_parts() {
        let state = GeneratorState { seed: u64::MAX, drawn: 1248 };
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"18446744073709551615:1248\"");
        for saved in ["\"18446744073709551615:1248\"", r#"{"seed": 18446744073709551615, "drawn": 1248}"#] {
            assert_eq!(serde_json::from_str::<GeneratorState>(saved).unwrap(), state);
        }
        for saved in ["\"42\"", "\"42:\"", "\"-1:3\"", "\"1:2:3\"", "7", "null", r#"{"seed": 1}"#] {
            assert!(serde_json::from_str::<GeneratorState>(saved).is_err(), "{saved}");
        }
    }

    #[test]
    fn a_generator_can_move_forward_and_back() {
        let state = GeneratorState { seed: 7, drawn: 1000 };
        for (seed, drawn) in [(7, 0), (7, 1000), (7, 1001), (8, 5)] {
            let mut generator = Generator::from_seed(seed);
            generator.discard(drawn);
            state.put(&mut generator);
            assert_eq!(GeneratorState::of(&generator), state);
            let mut other = Generator::from_seed(7);
            other.discard(1000);
            assert_eq!(generator.random_i64(), other.random_i64());
        }
    }
}
