//! Colours as arguments.

use std::borrow::Cow;

use crate::text::{Literal, Value};

/// The argument for a colour.
pub(super) struct Fill(pub(super) [u8; 3]);

impl Value for Fill {
    fn expected() -> Cow<'static, str> {
        "a whole number from 0 to 255, or [red, green, blue]".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        u8::read(literal).map(|all| [all; 3]).or_else(|| Value::read(literal)).map(Self)
    }

    fn write(&self) -> String {
        if self.0 == [self.0[0]; 3] { self.0[0].write() } else { self.0.write() }
    }
}
