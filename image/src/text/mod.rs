//! Pipelines as text: `random_resized_crop(224), hflip, normalize(imagenet)`.
//!
//! A transform implements [`Configure::arguments`] once, for reading and for writing.

mod arguments;
mod pipeline;
mod scan;
mod similar;
mod value;

pub(crate) use self::arguments::Arguments;
pub(crate) use self::scan::Literal;
pub(crate) use self::value::{Value, word_of};
use crate::error::ImageError;

/// A transform that can be written as text.
pub(crate) trait Configure: Clone {
    /// Short forms of the transform's name.
    const SHORT: &'static [&'static str] = &[];

    /// Creates a transform with the defaults, and with arbitrary values for the required arguments.
    fn blank() -> Self;

    /// Visits all arguments, in torchvision's order.
    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError>;
}

/// A transform, of the enum `T`, that text can name.
pub(crate) struct Known<T> {
    /// The name of the transform's type.
    name: &'static str,
    short: &'static [&'static str],
    read: fn(&mut Arguments<'_>) -> Result<T, ImageError>,
}

impl<T> Known<T> {
    pub(crate) const fn new<C: Configure + Into<T>>(name: &'static str) -> Self {
        let read = |arguments: &mut Arguments<'_>| {
            let mut transform = C::blank();
            transform.arguments(arguments)?;
            Ok(transform.into())
        };
        Self { name, short: C::SHORT, read }
    }
}

/// Turns `RandomCrop` into `random_crop`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for char in name.chars() {
        if char.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(char.to_lowercase());
    }
    snake
}

/// Returns the arguments of a transform as text, except for those that have their defaults.
pub(crate) fn written<T: Configure>(transform: &T) -> Vec<String> {
    let visit = |mut transform: T| {
        let mut arguments = Arguments::write();
        // Writing cannot fail.
        let _ = transform.arguments(&mut arguments);
        arguments
    };
    visit(transform.clone()).differences(&visit(T::blank()))
}
