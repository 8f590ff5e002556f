//! Values as samples without a collate function: their leaves are the fields.

use std::slice::from_ref;

use slotline::BoxError;
use slotline::dtype::Element;
use slotline::sample::{Dynamic, Fields, LayoutError, Row, Sample};
use slotline::shape::Shape;
use slotline::tensor::{AnyTensorView, TensorView};

use crate::{MAX_DEPTH, Value};

/// The error for a value whose fields differ from the declared ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} was declared, but the sample has {}; give every sample the same keys in the same order, or the loader a collate function (CollateValues::collate_values)",
    declared.as_deref().map_or_else(|| "no further field of this value".to_owned(), part),
    part(found)
)]
pub struct WrongPart {
    /// The declared field; `None` if the value has more fields than were declared.
    declared: Option<String>,
    found: String,
}

fn part(name: &str) -> String {
    if name.is_empty() { "a single tensor or number".to_owned() } else { format!("field {name}") }
}

/// The fields of a value are its numbers, bools and tensors, in order. Each is named by the path to
/// it, such as `boxes.0.x`.
///
/// Texts, bytes and custom values have no fixed size in a batch. Samples that contain them, and values without any fields,
/// need a [collate function](crate#in-a-loader). A value that is nested deeper than [`MAX_DEPTH`] is an error, and so is a
/// value in which two fields would have the same name (a key `a.b`, and `b` under `a`).
///
/// A sample whose fields differ from those of the first sample in name, dtype or shape is an error that names them. A
/// dataset that implements [`fields`](slotline::Dataset::fields) must take them from an example with [`Fields::of`].
impl Sample for Value {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        let mut leaves = Vec::new();
        let found = each_leaf(self, &mut |name, leaf| {
            leaves.push((name.to_owned(), leaf));
            Ok(())
        });
        match found {
            Ok(()) if leaves.is_empty() => fields.fail(no_place("a value without numbers", "")),
            Ok(()) => fields.named_run(leaves),
            Err(error) => fields.fail(error),
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        row.write_run(|row| {
            each_leaf(&self, &mut |name, leaf| {
                let declared = row.next_part();
                if declared != Some(name) {
                    let declared = declared.map(str::to_owned);
                    return Err(BoxError::from(WrongPart { declared, found: name.to_owned() }));
                }
                Ok(row.write_any(&leaf)?)
            })
        })
    }
}

fn no_place(what: &str, name: &str) -> LayoutError {
    let at = if name.is_empty() { String::new() } else { format!(" at {name}") };
    LayoutError::NoPlace { found: format!("{what}{at}") }
}

/// Calls `look` for every leaf, in order, with the path to the leaf as its name.
fn each_leaf<'v, E: From<LayoutError>>(
    value: &'v Value,
    look: &mut dyn FnMut(&str, AnyTensorView<'v>) -> Result<(), E>,
) -> Result<(), E> {
    below(value, &mut String::new(), 0, look)
}

fn below<'v, E: From<LayoutError>>(
    value: &'v Value,
    name: &mut String,
    depth: usize,
    look: &mut dyn FnMut(&str, AnyTensorView<'v>) -> Result<(), E>,
) -> Result<(), E> {
    if depth > MAX_DEPTH {
        return Err(no_place(&format!("a value nested more than {MAX_DEPTH} deep"), "").into());
    }
    let here = name.len();
    let dot = if here == 0 { "" } else { "." };
    let mut enter = |step: std::fmt::Arguments<'_>, value| {
        use std::fmt::Write as _;
        let _ = write!(name, "{dot}{step}"); // Writing to a String cannot fail.
        let done = below(value, name, depth + 1, look);
        name.truncate(here);
        done
    };
    match value {
        Value::Map(map) => map.iter().try_for_each(|(key, value)| enter(format_args!("{key}"), value)),
        Value::Named(named) => named.fields().iter().try_for_each(|(key, value)| enter(format_args!("{key}"), value)),
        Value::Tuple(items) | Value::List(items) => {
            items.iter().enumerate().try_for_each(|(i, value)| enter(format_args!("{i}"), value))
        }
        Value::Bool(value) => look(name, number(value)),
        Value::Int(value) => look(name, number(value)),
        Value::Float(value) => look(name, number(value)),
        Value::Tensor(array) => look(name, array.view()),
        Value::Text(_) | Value::Bytes(_) | Value::Custom(_) => Err(no_place(value.type_name(), name).into()),
    }
}

fn number<T: Element>(value: &T) -> AnyTensorView<'_> {
    TensorView::with_shape(from_ref(value), Shape::default()).expect("one number").into()
}
