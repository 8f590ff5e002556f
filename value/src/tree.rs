//! [`Value`]: a tree whose leaves are numbers, texts, tensors and a user's own types.

use std::fmt;
use std::sync::Arc;

use slotline::array::AnyArray;
use slotline::dtype::Element;
use slotline::tensor::TensorView;

use crate::{Custom, CustomValue, Items, Map, Named};

/// A value whose type is known at run time.
///
/// Made by `From` of whatever it may hold, or by [`map`](Self::map), [`named`](Self::named), [`tuple`](Self::tuple),
/// [`list`](Self::list), [`bytes`](Self::bytes) and [`custom`](Self::custom).
///
/// Signed integers, and unsigned ones of up to 32 bits, are an `Int`; floating-point numbers a `Float`. A `u64`, which may be
/// more than an i64 holds, is a u64 tensor without dimensions. Arrays, slices and vectors of numbers are tensors.
///
/// Two values are equal if their kinds and contents are: tensors by dtype, shape and elements (so a NaN is not equal to
/// itself), maps whatever the order of their keys. A custom value is equal to its clones only.
///
/// ```
/// use slotline_value::Value;
///
/// let value = Value::map([("boxes", Value::list([[0.0, 0.5], [1.0, 2.0]])), ("name", "street".into())]);
/// assert_eq!(value.get("boxes").unwrap().at(1).unwrap().typed::<f64>().unwrap().as_slice(), [1.0, 2.0]);
/// assert_eq!(value.get("name").unwrap().as_str(), Some("street"));
/// assert_eq!(Value::from((1, 2.5, true)).type_name(), "tuple");
/// ```
#[derive(Clone)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(Arc<str>),
    /// Bytes that are not numbers: an encoded image, say.
    Bytes(Arc<[u8]>),
    /// An n-dimensional array.
    Tensor(Arc<AnyArray>),
    /// Values under keys, in the order in which these were given.
    Map(Map),
    /// A tuple or struct with a name and named fields.
    Named(Named),
    /// Values that belong together, each with a meaning of its own.
    Tuple(Items),
    /// Values of the same meaning.
    List(Items),
    /// A type of the user's.
    Custom(Custom),
}

/// What a [`Value`] is, as far as collating it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Value::Bool`].
    Bool,
    /// [`Value::Int`].
    Int,
    /// [`Value::Float`].
    Float,
    /// [`Value::Text`].
    Text,
    /// [`Value::Bytes`].
    Bytes,
    /// [`Value::Tensor`].
    Tensor,
    /// [`Value::Map`].
    Map,
    /// [`Value::Named`].
    Named,
    /// [`Value::Tuple`].
    Tuple,
    /// [`Value::List`].
    List,
    /// [`Value::Custom`].
    Custom,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Tensor => "tensor",
            Self::Map => "map",
            Self::Named => "named tuple",
            Self::Tuple => "tuple",
            Self::List => "list",
            Self::Custom => "custom value",
        })
    }
}

impl Value {
    /// A map. A key that comes again keeps its place and takes the later value.
    pub fn map<K: Into<Arc<str>>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Map(entries.into_iter().collect())
    }

    /// A named tuple (or struct) of type `name`. A field that comes again keeps its place and takes the later value.
    pub fn named<K: Into<Arc<str>>>(name: impl Into<Arc<str>>, fields: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Named(Named::new(name, fields.into_iter().collect()))
    }

    /// A tuple; Rust's own ones are made values by `From`.
    pub fn tuple<V: Into<Value>>(items: impl IntoIterator<Item = V>) -> Self {
        Self::Tuple(items.into_iter().map(Into::into).collect())
    }

    /// A list.
    pub fn list<V: Into<Value>>(items: impl IntoIterator<Item = V>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }

    /// Bytes that are not numbers. (A `Vec<u8>` made a value by `From` is a tensor.)
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// A value of a type of one's own. (One that is shared already, an [`Arc`], is made a value by `From`.)
    pub fn custom<T: CustomValue>(value: T) -> Self {
        Self::from(Arc::new(value))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Int,
            Self::Float(_) => Kind::Float,
            Self::Text(_) => Kind::Text,
            Self::Bytes(_) => Kind::Bytes,
            Self::Tensor(_) => Kind::Tensor,
            Self::Map(_) => Kind::Map,
            Self::Named(_) => Kind::Named,
            Self::Tuple(_) => Kind::Tuple,
            Self::List(_) => Kind::List,
            Self::Custom(_) => Kind::Custom,
        }
    }

    /// The name of its type: `int`, `tensor`, `map`; a named tuple's own name; a custom value's Rust type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::Tensor(_) => "tensor",
            Self::Map(_) => "map",
            Self::Named(named) => named.name(),
            Self::Tuple(_) => "tuple",
            Self::List(_) => "list",
            Self::Custom(custom) => custom.type_name(),
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// The floating-point number, if it is one.
    pub fn as_float(&self) -> Option<f64> {
        if let Self::Float(value) = self { Some(*value) } else { None }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }

    /// The bytes, if it is [`Bytes`](Self::Bytes).
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(value) = self { Some(value) } else { None }
    }

    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&AnyArray> {
        if let Self::Tensor(array) = self { Some(array) } else { None }
    }

    /// A view of the tensor's elements, if it is one, and they are `T`.
    pub fn typed<T: Element>(&self) -> Option<TensorView<'_, T>> {
        self.as_tensor()?.typed()
    }

    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// The named tuple, if it is one.
    pub fn as_named(&self) -> Option<&Named> {
        if let Self::Named(named) = self { Some(named) } else { None }
    }

    /// The custom value, if it is one, and of type `T`.
    pub fn as_custom<T: CustomValue>(&self) -> Option<&T> {
        if let Self::Custom(custom) = self { custom.downcast_ref() } else { None }
    }

    /// What a map has under `key`, or a named tuple in the field of that name.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Map(map) => map.get(key),
            Self::Named(named) => named.fields().get(key),
            _ => None,
        }
    }

    /// The value at place `i` of a list or a tuple, named or not, or of a map.
    pub fn at(&self, i: usize) -> Option<&Value> {
        self.items().get(i)
    }

    /// The values right below: of a map, a tuple or a list; none below anything else.
    pub fn items(&self) -> &[Value] {
        match self {
            Self::Map(map) => map.values(),
            Self::Named(named) => named.fields().values(),
            Self::Tuple(items) | Self::List(items) => items,
            _ => &[],
        }
    }

    /// How many values are right [below](Self::items).
    pub fn len(&self) -> usize {
        self.items().len()
    }

    /// Whether no value is [below](Self::items): so for every leaf.
    pub fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    /// Takes the values right below out, if nobody else shares them.
    pub(crate) fn take_items(&mut self) -> Option<Vec<Value>> {
        match self {
            Self::Map(map) => map.values_mut().take_unique(),
            Self::Named(named) => named.fields_mut().values_mut().take_unique(),
            Self::Tuple(items) | Self::List(items) => items.take_unique(),
            _ => None,
        }
    }
}

/// What errors say that a value is: more than its kind where that may be what's wrong.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Tensor(array) => format!("{} tensor of shape {:?}", array.dtype(), array.shape()),
        Value::Named(named) => {
            let fields: Vec<&str> = named.fields().keys().collect();
            format!("named tuple {} ({})", named.name(), fields.join(", "))
        }
        Value::Custom(custom) => custom.type_name().to_owned(),
        other => other.kind().to_string(),
    }
}
