//! Reads and writes whole pipelines as text.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::scan::Scanner;
use super::{Arguments, Known, Literal, Value, similar, snake_case};
use crate::error::ImageError;
use crate::pipeline::{Pipeline, PipelineBuilder, Reading};
use crate::pixel::Pixel;
use crate::transform::Transform;

/// Returns the transform with this name.
fn find(scanner: &Scanner<'_>, at: usize, name: &str) -> Result<&'static Known<Transform>, ImageError> {
    let known = Transform::KNOWN;
    if let Some(found) = known.iter().find(|known| known.short.contains(&name) || snake_case(known.name) == name) {
        return Ok(found);
    }
    let names: Vec<String> = known
        .iter()
        .flat_map(|known| std::iter::once(snake_case(known.name)).chain(known.short.iter().map(|&name| name.into())))
        .chain(Reading::default().options().map(|option| option.0.to_owned()))
        .collect();
    let advice = similar::advice(name, names.iter().map(String::as_str));
    Err(scanner.error(at, format!("unknown transform {name}{advice}; known are {}", names.join(", "))))
}

/// Reads transforms separated by commas. Their names are in snake case (`hflip` and `vflip` are
/// short forms of the flips). Their arguments follow in parentheses, as in torchvision by position
/// or by name.
///
/// Options may stand between the transforms. Options that say how files are read:
/// [`exif`](Pipeline::exif), [`reduced`](Pipeline::reduced), [`strict`](Pipeline::strict) and
/// [`check(false)`](Pipeline::check). The option [`exact`](PipelineBuilder::exact) says how
/// pictures are transformed.
///
/// A number can be a fraction, and lists are in brackets or parentheses. There may be white space
/// anywhere between the parts.
///
/// ```
/// use slotline_image::{Pipeline, PipelineBuilder};
///
/// let builder: PipelineBuilder = "random_resized_crop(224, scale=[0.5, 1], ratio=[3/4, 4/3]), hflip".parse()?;
/// let with_padding: PipelineBuilder = "random_crop(32, padding=4, padding_mode=reflect)".parse()?;
/// let test: Pipeline = "exif, resize(256), center_crop(224), normalize(imagenet)".parse()?;
///
/// let error = "resize(256), centre_crop(224)".parse::<PipelineBuilder>().unwrap_err();
/// assert!(error.to_string().contains("did you mean center_crop?"));
/// # Ok::<(), slotline_image::ImageError>(())
/// ```
impl FromStr for PipelineBuilder {
    type Err = ImageError;

    /// # Errors
    ///
    /// [`ImageError::Text`] says what is wrong, and where. Values are checked when the pipeline is
    /// built.
    fn from_str(text: &str) -> Result<Self, ImageError> {
        let mut scanner = Scanner::new(text);
        let mut builder = Self::default();
        while !scanner.at_end() {
            let (at, name) = scanner.name("the name of a transform")?;
            if let Some((_, option)) = builder.reading.options().into_iter().find(|option| option.0 == name) {
                *option = true;
                Arguments::read(&mut scanner, at, name).and_then(|mut arguments| {
                    arguments.optional("on", option)?;
                    arguments.finish()
                })?;
            } else {
                let known = find(&scanner, at, name)?;
                let mut arguments = Arguments::read(&mut scanner, at, name)?;
                builder = builder.then((known.read)(&mut arguments)?);
                arguments.finish()?;
            }
            if !scanner.at_end() {
                scanner.expect(',', "a comma and another transform")?;
            }
        }
        Ok(builder)
    }
}

/// Reads the text of a [`PipelineBuilder`], and builds the pipeline.
///
/// ```
/// let bytes: slotline_image::Pipeline<u8> = "resize([224, 160]), hflip".parse()?;
/// assert_eq!(bytes.shape(), [3, 224, 160]);
/// # Ok::<(), slotline_image::ImageError>(())
/// ```
impl<T: Pixel> FromStr for Pipeline<T> {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        text.parse::<PipelineBuilder>()?.build()
    }
}

/// Writes the text that parses to this list of transforms.
impl fmt::Display for PipelineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.reading, &self.transforms)
    }
}

/// Writes the options and the transforms as text.
impl<T> fmt::Display for Pipeline<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.reading, &self.transforms)
    }
}

fn list(f: &mut fmt::Formatter<'_>, mut reading: Reading, transforms: &[Transform]) -> fmt::Result {
    let mut default = Reading::default();
    let options = reading.options().into_iter().zip(default.options());
    let options = options
        .filter(|((_, option), (_, default))| option != default)
        .map(|((name, option), _)| if *option { name.to_owned() } else { format!("{name}(false)") });
    for (i, part) in options.chain(transforms.iter().map(Transform::to_string)).enumerate() {
        write!(f, "{}{part}", if i > 0 { ", " } else { "" })?;
    }
    Ok(())
}

/// Writes the transform as text, without the arguments that equal their defaults.
///
/// ```
/// use slotline_image::transform::{RandomCrop, RandomHorizontalFlip, Transform};
///
/// assert_eq!(Transform::from(RandomCrop::new(32).padding(4)).to_string(), "random_crop(32, padding=4)");
/// assert_eq!(Transform::from(RandomHorizontalFlip::new(0.5)).to_string(), "random_horizontal_flip");
/// ```
impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&snake_case(self.name()))?;
        let arguments = self.written();
        if !arguments.is_empty() {
            write!(f, "({})", arguments.join(", "))?;
        }
        Ok(())
    }
}

/// A list of transforms as one argument of a transform.
impl Value for Vec<Transform> {
    fn expected() -> Cow<'static, str> {
        "the text of transforms in quotation marks, as in random_apply('color_jitter(0.4)')".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        let text = match literal {
            Literal::Word(text) => *text,
            Literal::Escaped(text) => text,
            _ => return None,
        };
        let builder: PipelineBuilder = text.parse().ok()?;
        (builder.reading == Default::default()).then_some(builder.transforms)
    }

    fn write(&self) -> String {
        let transforms: Vec<String> = self.iter().map(Transform::to_string).collect();
        let text = transforms.join(", ");
        if text.contains('\\') || text.contains('\'') && text.contains('"') {
            return format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
        }
        let quote = if text.contains('\'') { '"' } else { '\'' };
        format!("{quote}{text}{quote}")
    }
}
