//! Places in a value: an owned [`Path`], and a borrowed [`Place`] during a traversal.

use std::fmt;

/// The path from a value to a part of it. Displayed as `.boxes[1]`; the path to the value itself is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

/// One step of a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the value under a key of a map, or in a field of a named tuple.
    Key(String),
    /// To an element of a tuple or list.
    Index(usize),
}

impl Path {
    /// Returns the steps, from the top.
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

/// Returns whether a key can be written after a dot without quotes.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// A path during a traversal: a linked list on the stack, so that a [`Path`] is only allocated for an error.
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

    /// Returns the place of a part of the value at this place.
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
    fn paths_are_displayed_like_code() {
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
