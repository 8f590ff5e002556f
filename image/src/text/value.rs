//! The types of values that arguments have.

use std::borrow::Cow;

use super::scan::Literal;

/// A type of argument values.
pub(crate) trait Value: Sized {
    /// Describes which values are allowed, for error messages.
    fn expected() -> Cow<'static, str>;

    fn read(literal: &Literal<'_>) -> Option<Self>;

    fn write(&self) -> String;
}

macro_rules! whole_numbers {
    ($($type:ty)*) => { $(
        impl Value for $type {
            fn expected() -> Cow<'static, str> {
                if size_of::<$type>() == 1 { "a whole number from 0 to 255".into() } else { "a whole number".into() }
            }

            fn read(literal: &Literal<'_>) -> Option<Self> {
                if let Literal::Number(text) = literal { text.parse().ok() } else { None }
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )* };
}

whole_numbers!(u8 usize);

macro_rules! numbers {
    ($($type:ty)*) => { $(
        impl Value for $type {
            fn expected() -> Cow<'static, str> {
                "a number".into()
            }

            fn read(literal: &Literal<'_>) -> Option<Self> {
                let Literal::Number(text) = literal else { return None };
                let number: Self = match text.split_once('/') {
                    Some((a, b)) => a.parse::<Self>().ok()? / b.parse::<Self>().ok()?,
                    None => text.parse().ok()?,
                };
                // No transform has other numbers, and they could not be read back.
                number.is_finite().then_some(number)
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )* };
}

numbers!(f32 f64);

impl Value for bool {
    fn expected() -> Cow<'static, str> {
        "true or false".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        match literal {
            Literal::Word("true" | "True") => Some(true),
            Literal::Word("false" | "False") => Some(false),
            _ => None,
        }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// An argument whose default is `none`.
impl<T: Value> Value for Option<T> {
    fn expected() -> Cow<'static, str> {
        format!("{}, or none", T::expected()).into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        match literal {
            Literal::Word("none" | "None") => Some(None),
            _ => T::read(literal).map(Some),
        }
    }

    fn write(&self) -> String {
        self.as_ref().map_or("none".to_owned(), T::write)
    }
}

impl<T: Value, const N: usize> Value for [T; N] {
    fn expected() -> Cow<'static, str> {
        format!("a list of {N}, each {}", T::expected()).into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        let Literal::List(items) = literal else { return None };
        items.iter().map(T::read).collect::<Option<Vec<T>>>()?.try_into().ok()
    }

    fn write(&self) -> String {
        let items: Vec<String> = self.iter().map(T::write).collect();
        format!("[{}]", items.join(", "))
    }
}

/// Returns the value that is listed for a word.
pub(crate) fn word_of<T: Copy>(literal: &Literal<'_>, words: &[(&str, T)]) -> Option<T> {
    let Literal::Word(word) = literal else { return None };
    words.iter().find(|(known, _)| known == word).map(|known| known.1)
}
