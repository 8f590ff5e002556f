//! The syntax of pipelines as text: names, numbers, lists, and their positions.

use crate::error::ImageError;

/// The maximum depth of nested lists.
const MAX_DEPTH: usize = 4;

/// A scanner that reads a text from left to right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'t> {
    text: &'t str,
    /// The index of the next byte.
    at: usize,
}

/// A value in the form in which it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal<'t> {
    Number(&'t str),
    Word(&'t str),
    /// The contents of quotation marks, without the backslashes.
    Escaped(String),
    List(Vec<Self>),
}

impl<'t> Scanner<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Creates an error about the text at this byte.
    pub(crate) fn error(&self, at: usize, message: impl Into<String>) -> ImageError {
        ImageError::Text { character: self.text[..at].chars().count() + 1, message: message.into() }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips white space, and returns the next character.
    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    pub(crate) fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Skips this character if it is next. Returns whether it was.
    pub(crate) fn accept(&mut self, char: char) -> bool {
        let next = self.peek() == Some(char);
        if next {
            self.at += char.len_utf8();
        }
        next
    }

    pub(crate) fn expect(&mut self, char: char, wanted: &str) -> Result<(), ImageError> {
        if self.accept(char) { Ok(()) } else { Err(self.unexpected(wanted)) }
    }

    fn unexpected(&mut self, wanted: &str) -> ImageError {
        let found = self.peek().map_or("the end of the text".to_owned(), |char| format!("{char:?}"));
        // A value is never followed by a parenthesis, but a transform's name is.
        let hint = if found == "'('" { "; transforms as an argument are one text in quotation marks" } else { "" };
        self.error(self.at, format!("expected {wanted}, found {found}{hint}"))
    }

    fn take(&mut self, allowed: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let len = rest.find(|char| !allowed(char)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Reads a name. Returns the position of its first byte and the name.
    pub(crate) fn name(&mut self, wanted: &str) -> Result<(usize, &'t str), ImageError> {
        match self.peek() {
            Some(char) if char.is_alphabetic() || char == '_' => {
                let at = self.at;
                Ok((at, self.take(|char| char.is_alphanumeric() || char == '_')))
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    /// Reads the name of an argument and `=`, if they are next. Returns the position of the name
    /// and the name.
    pub(crate) fn argument_name(&mut self) -> Option<(usize, &'t str)> {
        let mut ahead = *self;
        let name = ahead.name("a name").ok()?;
        ahead.accept('=').then(|| {
            *self = ahead;
            name
        })
    }

    /// Reads a value. Returns the position of its first byte and the value.
    pub(crate) fn value(&mut self) -> Result<(usize, Literal<'t>), ImageError> {
        self.peek();
        Ok((self.at, self.literal(0)?))
    }

    fn literal(&mut self, depth: usize) -> Result<Literal<'t>, ImageError> {
        match self.peek() {
            Some('0'..='9' | '+' | '-' | '.') => {
                Ok(Literal::Number(self.take(|char| char.is_ascii_alphanumeric() || "+-./".contains(char))))
            }
            Some(open @ ('[' | '(')) if depth < MAX_DEPTH => {
                self.accept(open);
                let (close, wanted) = if open == '[' { (']', "a comma or ]") } else { (')', "a comma or )") };
                let mut items = Vec::new();
                while !self.accept(close) {
                    items.push(self.literal(depth + 1)?);
                    if !self.accept(',') {
                        self.expect(close, wanted)?;
                        break;
                    }
                }
                Ok(Literal::List(items))
            }
            Some(quote @ ('"' | '\'')) => {
                self.accept(quote);
                let mut escaped = false;
                let mut ends = |char| {
                    let ends = char == quote && !escaped;
                    escaped = char == '\\' && !escaped;
                    ends
                };
                let len = self.rest().find(&mut ends).unwrap_or(self.rest().len());
                let word = &self.rest()[..len];
                self.at += len;
                self.expect(quote, "the closing quotation mark")?;
                Ok(if word.contains('\\') { Literal::Escaped(unescaped(word)) } else { Literal::Word(word) })
            }
            _ => Ok(Literal::Word(self.name("a number, a word or a list")?.1)),
        }
    }
}

/// Removes the backslashes that escape characters.
fn unescaped(word: &str) -> String {
    let mut chars = word.chars();
    std::iter::from_fn(|| chars.next().and_then(|char| if char == '\\' { chars.next() } else { Some(char) })).collect()
}

impl std::fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(text) | Self::Word(text) => f.write_str(text),
            Self::Escaped(text) => f.write_str(text),
            Self::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}
