//! Where in a value something is: [`Path`] to keep, [`Place`] on the way there.

use std::fmt;

/// The way from a value down to a part of it. Displayed as `.boxes[1]`; nothing, if that is the value itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

/// One step of a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To what a map has under a key, or a named tuple in a field.
    Key(String),
    /// To a place in a tuple or list.
    Index(usize),
}

impl Path {
    /// The steps, from the top.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| match step {
            Step::Key(key) if is_plain(key) => write!(f, ".{key}"),
            Step::Key(key) => write!(f, "[{key:?}]"),
            Step::Index(i) => write!(f, "[{i}]"),
        })
    }
}

/// Whether a key can stand after a dot and be read as what it is.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// A path while it is being walked: a list on the stack, so that only an error has to put it together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    last: Option<(&'a Place<'a>, To<'a>)>,
}

/// A step that borrows its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> Place<'a> {
    /// The value itself.
    pub(crate) const TOP: Self = Self { last: None };

    /// A part of what is here.
    pub(crate) fn at(&'a self, to: To<'a>) -> Self {
        Self { last: Some((self, to)) }
    }

    pub(crate) fn path(&self) -> Path {
        let mut steps = Vec::new();
        let mut place = self;
        while let Some((before, to)) = place.last {
            steps.push(match to {
                To::Key(key) => Step::Key(key.to_owned()),
                To::Index(i) => Step::Index(i),
            });
            place = before;
        }
        steps.reverse();
        Path(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_as_code_would_have_them() {
        let top = Place::TOP;
        let boxes = top.at(To::Key("boxes"));
        let second = boxes.at(To::Index(1));
        let odd = second.at(To::Key("a.b \"c\""));
        assert_eq!(odd.path().to_string(), r#".boxes[1]["a.b \"c\""]"#);
        assert_eq!(second.path().steps(), [Step::Key("boxes".into()), Step::Index(1)]);
        assert_eq!(top.path().to_string(), "");
        assert_eq!(top.at(To::Key("")).path().to_string(), r#"[""]"#);
    }
}
