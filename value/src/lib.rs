//! Samples for [slotline] whose types are known at run time only, with torch's `default_collate`, `default_convert` and
//! pinning.
//!
//! A [`Sample`](slotline::sample::Sample) has a type, and writes itself into a batch's memory. Where the parts of a sample
//! are only known when it is read (from JSON, from another language), it is a [`Value`]: a tree of numbers, texts,
//! tensors, maps, tuples, lists and types of your own. [`default_collate`] makes one value of a batch of them:
//!
//! | samples | batch of B |
//! |---|---|
//! | [`Tensor`](Value::Tensor)s of one dtype and shape | a tensor `[B, …]` |
//! | [`Int`](Value::Int)s, [`Float`](Value::Float)s, [`Bool`](Value::Bool)s | a tensor `[B]` of i64, f64, bool |
//! | [`Text`](Value::Text)s, [`Bytes`](Value::Bytes) | a list of them |
//! | [`Map`](Value::Map)s | a map with the keys of the first one; what other samples have beyond those is left out |
//! | [`Named`](Value::Named) tuples | a named tuple, field by field |
//! | [`Tuple`](Value::Tuple)s | a **list**, place by place, as in torch |
//! | [`List`](Value::List)s of one length | a list, place by place |
//! | [`Custom`](Value::Custom) values | as their [`CustomValue::collate`] says, or a function given to a [`Collator`] |
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
//! [`collate_values`](CollateValues::collate_values), an option of the [`Builder`](slotline::loader::Builder), makes values of
//! samples (everything that is `Into<Value>`: numbers, texts, arrays, tensors, tuples of these) and collates them.
//!
//! A value of numbers and tensors is also a [`Sample`](slotline::sample::Sample) by itself, which needs no collate
//! function: its leaves are the fields of the batch, with names such as `boxes.0.x`. Every sample must then have the
//! leaves of the first one, in the same order.
//!
//! # What differs from torch
//!
//! Torch looks at the type of the first element, and takes what it gets of the others. Here a batch whose samples are
//! not alike is an error that names the sample and the place in it, where torch
//! - makes one tensor of numbers, truth values and tensors of one element: f32 of integers with a float among them, f64 of
//!   floats with an integer, i64 of truth values with an integer;
//! - converts tensors to the type that holds all of theirs;
//! - collates tuples, lists and texts of one length with each other, named tuples of different types (cut to the
//!   shortest), texts with anything, and anything with a map or a named tuple that is empty.
//!
//! Texts are a list wherever they stand; torch has a tuple of those inside of a container. Integers beyond i64, which
//! torch can't collate, become a u64 tensor if the samples have them as `u64`. Keys of maps are texts.
//!
//! # Sharing, depth and size
//!
//! Cloning a value is cheap: texts, tensors and containers are shared by the clones. Values may be nested to any depth,
//! but are collated, converted, pinned or made a sample to a depth of [`MAX_DEPTH`] only; a deeper one is an error,
//! never an overflow of the stack. (Custom values with values in them are their author's to keep shallow.) A batch
//! whose tensors together need more memory than there is becomes an error, too.
//!
//! # Features
//!
//! - `half`, off by default: numbers and elements of the types `f16` and `bf16` of the crate `half`.

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

/// How many containers deep a value may be nested to be collated, converted, pinned or made a sample.
pub const MAX_DEPTH: usize = 128;
