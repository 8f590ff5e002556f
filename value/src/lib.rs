//! Dynamically typed samples for [slotline], with torch's `default_collate`, `default_convert` and pinning.
//!
//! A [`Sample`](slotline::sample::Sample) has a static type, and writes itself into a batch's
//! memory. If the structure of a sample is known only at run time (for example from JSON or another
//! language), use a [`Value`]: a tree of numbers, texts, tensors, maps, tuples, lists and
//! user-defined types. [`default_collate`] collates a batch of values into one value:
//!
//! | samples | batch of B |
//! |---|---|
//! | [`Tensor`](Value::Tensor)s of one dtype and shape | a tensor `[B, …]` |
//! | [`Int`](Value::Int)s, [`Float`](Value::Float)s, [`Bool`](Value::Bool)s | a tensor `[B]` of i64, f64, bool |
//! | [`Text`](Value::Text)s, [`Bytes`](Value::Bytes) | a list of them |
//! | [`Map`](Value::Map)s | a map with the keys of the first sample; other keys of later samples are left out |
//! | [`Named`](Value::Named) tuples | a named tuple, field by field |
//! | [`Tuple`](Value::Tuple)s | a **list**, element by element, as in torch |
//! | [`List`](Value::List)s of one length | a list, element by element |
//! | [`Custom`](Value::Custom) values | the result of [`CustomValue::collate`], or of a function in a [`Collator`] |
//!
//! ```
//! use slotline::array::Array;
//! use slotline_value::{Value, default_collate};
//!
//! let sample = |label: i64| {
//!     Value::map([
//!         ("pixels", Array::new(vec![0_u8; 4], &[2, 2]).unwrap().into()),
//!         ("label", label.into()),
//!         ("file", format!("{label}.png").into()),
//!     ])
//! };
//! let batch = default_collate([sample(3), sample(5)])?;
//! assert_eq!(batch.get("pixels").unwrap().as_tensor().unwrap().shape(), [2, 2, 2]);
//! assert_eq!(batch.get("label").unwrap().typed::<i64>().unwrap().as_slice(), [3, 5]);
//! assert_eq!(batch.get("file"), Some(&Value::list(["3.png", "5.png"])));
//! # Ok::<(), slotline_value::CollateError>(())
//! ```
//!
//! # In a loader
//!
//! The option [`collate_values`](CollateValues::collate_values) of the [`Builder`](slotline::loader::Builder) converts
//! samples into values and collates them. It accepts every sample that is `Into<Value>`: numbers, texts, arrays, tensors
//! and tuples of these.
//!
//! A value of numbers and tensors is also a [`Sample`](slotline::sample::Sample), and needs no collate function: its leaves
//! are the fields of the batch, with names such as `boxes.0.x`. Every sample must then have the same leaves as the first
//! one, in the same order.
//!
//! # Differences from torch
//!
//! Torch chooses the rule by the type of the first element, and accepts many mixed batches. Here, a
//! batch of samples with different types or structures is an error that names the sample and the
//! place in it. In the following cases, which are errors here, torch
//! - makes one tensor of numbers, bools and one-element tensors: f32 of integers with a float among
//!   them, f64 of floats with an integer, i64 of bools with an integer;
//! - converts tensors to a common dtype;
//! - collates tuples, lists and texts of one length with each other, named tuples of different
//!   types (cut to the shortest), texts with anything, and anything with a map or a named tuple
//!   that is empty.
//!
//! Texts always become a list; torch returns a tuple for texts inside a container. Integers beyond
//! i64, which torch cannot collate, become a u64 tensor if the samples contain them as `u64`. Keys
//! of maps are texts.
//!
//! # Sharing, depth and size
//!
//! Cloning a value is cheap: clones share texts, tensors and containers. Values may be nested to any depth, but only values
//! up to a depth of [`MAX_DEPTH`] can be collated, converted, pinned or used as a sample. A deeper value is an error, never
//! a stack overflow. (The author of a custom value that contains values must keep it shallow.) A batch whose tensors need
//! more memory than is available is also an error.
//!
//! # Features
//!
//! - `half`, off by default: supports `f16` and `bf16` of the crate `half` as numbers and elements.
//! - `num-complex`, off by default: supports `Complex<f32>` and `Complex<f64>` of the crate `num-complex` as numbers, which
//!   become tensors without dimensions, and elements.

#![forbid(unsafe_code)]

mod builder;
mod collate;
mod collator;
mod compare;
mod convert;
mod custom;
mod debug;
mod error;
mod from;
mod items;
mod map;
mod path;
mod pin;
mod rebuild;
mod sample;
mod tree;

pub use self::builder::{CollateValues, Values};
pub use self::collate::{Collation, default_collate};
pub use self::collator::Collator;
pub use self::convert::default_convert;
pub use self::custom::{Custom, CustomValue};
pub use self::error::{CollateError, PinError};
pub use self::from::Scalar;
pub use self::items::Items;
pub use self::map::{Map, Named};
pub use self::path::{Path, Step};
pub use self::sample::WrongPart;
pub use self::tree::{Kind, Value};

/// The maximum nesting depth of a value that is collated, converted, pinned or used as a sample.
pub const MAX_DEPTH: usize = 128;
