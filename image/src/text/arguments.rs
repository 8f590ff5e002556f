//! Reads the arguments of one transform from text, or writes them.

use super::scan::{Literal, Scanner};
use super::similar;
use super::value::Value;
use crate::error::ImageError;

/// The arguments of a transform, by position or by name.
///
/// A transform visits its arguments in torchvision's order. When reading, a visit sets the value if
/// the text has it; when writing, it records the value.
pub(crate) enum Arguments<'t> {
    Read(Reader<'t>),
    Write(Vec<Written>),
}

/// An argument as text.
pub(crate) struct Written {
    /// The name, or `None` if the argument is written without one.
    name: Option<&'static str>,
    value: String,
    required: bool,
}

pub(crate) struct Reader<'t> {
    scanner: Scanner<'t>,
    transform: &'t str,
    /// The byte at which the transform's name begins.
    at: usize,
    /// The arguments in the text that were not visited yet.
    given: Vec<Given<'t>>,
    visited: Vec<&'static str>,
    presets: Vec<&'static str>,
    /// The error to return if all arguments in the text turn out to be known.
    missing: Option<String>,
}

struct Given<'t> {
    name: Result<&'t str, usize>,
    at: usize,
    value: Literal<'t>,
    value_at: usize,
}

impl<'t> Arguments<'t> {
    /// Reads the arguments of the transform whose name begins at this byte, if parentheses follow
    /// the name.
    pub(crate) fn read(scanner: &mut Scanner<'t>, at: usize, transform: &'t str) -> Result<Self, ImageError> {
        let mut given = Vec::<Given<'t>>::new();
        if scanner.accept('(') {
            while !scanner.accept(')') {
                let name = scanner.argument_name();
                let (value_at, value) = scanner.value()?;
                let at = name.map_or(value_at, |name| name.0);
                if name.is_none() && given.last().is_some_and(|last| last.name.is_ok()) {
                    let message = format!("{transform}: {value} has no name, and follows an argument that has one");
                    return Err(scanner.error(at, message));
                }
                given.push(Given { name: name.map(|name| name.1).ok_or(given.len()), at, value, value_at });
                if !scanner.accept(',') {
                    scanner.expect(')', "a comma or )")?;
                    break;
                }
            }
        }
        Ok(Self::Read(Reader {
            scanner: *scanner,
            transform,
            at,
            given,
            visited: Vec::new(),
            presets: Vec::new(),
            missing: None,
        }))
    }

    pub(crate) fn write() -> Self {
        Self::Write(Vec::new())
    }

    /// Visits an argument without a default.
    pub(crate) fn required<T: Value>(&mut self, name: &'static str, value: &mut T) -> Result<(), ImageError> {
        if !self.visit(name, value, true)?
            && let Self::Read(reader) = self
        {
            reader.missing.get_or_insert_with(|| format!("{name} is missing; it is {}", T::expected()));
        }
        Ok(())
    }

    /// Visits an argument with a default, which `value` has.
    pub(crate) fn optional<T: Value>(&mut self, name: &'static str, value: &mut T) -> Result<(), ImageError> {
        self.visit(name, value, false).map(drop)
    }

    /// When reading, returns whether the arguments are only this word. When writing, writes the
    /// word if `is_preset`.
    pub(crate) fn preset(&mut self, word: &'static str, is_preset: bool) -> bool {
        match self {
            Self::Read(reader) => {
                let given =
                    matches!(&reader.given[..], [Given { name: Err(_), value: Literal::Word(w), .. }] if *w == word);
                if given {
                    reader.given.clear();
                }
                reader.presets.push(word);
                given
            }
            Self::Write(written) => {
                if is_preset {
                    written.push(Written { name: None, value: word.to_owned(), required: true });
                }
                is_preset
            }
        }
    }

    fn visit<T: Value>(&mut self, name: &'static str, value: &mut T, required: bool) -> Result<bool, ImageError> {
        match self {
            Self::Read(reader) => match reader.find(name)? {
                Some(given) => {
                    *value = T::read(&given.value).ok_or_else(|| {
                        let presets = reader.presets.iter().copied();
                        let advice = similar::advice(&given.value.to_string(), presets);
                        let message = format!("{name} is {}, expected {}{advice}", given.value, T::expected());
                        reader.error(given.value_at, &message)
                    })?;
                    Ok(true)
                }
                None => Ok(false),
            },
            Self::Write(written) => {
                // Only the first argument is clear without its name.
                let name = (!required || !written.is_empty()).then_some(name);
                written.push(Written { name, value: value.write(), required });
                Ok(true)
            }
        }
    }

    /// Checks that all arguments were visited.
    pub(crate) fn finish(self) -> Result<(), ImageError> {
        let Self::Read(reader) = self else { return Ok(()) };
        if let Some(message) = reader.missing.as_ref().filter(|_| reader.given.is_empty()) {
            return Err(reader.error(reader.at, message));
        }
        let Some(given) = reader.given.first() else { return Ok(()) };
        let known = match reader.visited.join(", ") {
            names if names.is_empty() => "there are none".to_owned(),
            names => format!("known are {names}"),
        };
        let message = match given.name {
            Ok(name) => {
                let advice = similar::advice(name, reader.visited.iter().copied());
                format!("unknown argument {name}{advice}; {known}")
            }
            Err(_) => format!("{} is one argument too many; {known}", given.value),
        };
        Err(reader.error(given.at, &message))
    }

    /// Returns the text of the arguments that differ from the defaults.
    pub(crate) fn differences(self, defaults: &Self) -> Vec<String> {
        let (Self::Write(written), Self::Write(defaults)) = (self, defaults) else { return Vec::new() };
        let differs = |argument: &Written| {
            argument.required || !defaults.iter().any(|d| d.name == argument.name && d.value == argument.value)
        };
        let text = |Written { name, value, .. }| match name {
            Some(name) => format!("{name}={value}"),
            None => value,
        };
        written.into_iter().filter(differs).map(text).collect()
    }
}

impl<'t> Reader<'t> {
    fn error(&self, at: usize, message: &str) -> ImageError {
        self.scanner.error(at, format!("{}: {message}", self.transform))
    }

    /// Takes the argument with this name, or at its position, out of those in the text.
    fn find(&mut self, name: &'static str) -> Result<Option<Given<'t>>, ImageError> {
        self.visited.push(name);
        let position = self.visited.len() - 1;
        let is_this = |given: &Given<'t>| match given.name {
            Ok(given) => given == name,
            Err(given) => given == position,
        };
        let Some(i) = self.given.iter().position(is_this) else { return Ok(None) };
        let found = self.given.remove(i);
        match self.given.iter().find(|given| is_this(given)) {
            Some(again) => Err(self.error(again.at, &format!("{name} is given twice"))),
            None => Ok(Some(found)),
        }
    }
}
