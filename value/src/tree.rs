//! [`Value`]: a tree whose leaves are numbers, texts, tensors and user-defined types.

use std::fmt;
use std::sync::Arc;

use slotline::array::AnyArray;
use slotline::dtype::Element;
use slotline::tensor::TensorView;

use crate::{Custom, CustomValue, Items, Map, Named};

/// A value whose type is known only at run time.
///
/// Values are created with `From`, or with [`map`](Self::map), [`named`](Self::named), [`tuple`](Self::tuple),
/// [`list`](Self::list), [`bytes`](Self::bytes) and [`custom`](Self::custom).
///
/// Signed integers, and unsigned integers of up to 32 bits, become an `Int`; floating-point numbers
/// become a `Float`. A `u64`, which may not fit into an i64, becomes a u64 tensor without
/// dimensions; a complex number also becomes a tensor without dimensions. Arrays, slices and
/// vectors of numbers become tensors.
///
/// Two values are equal if their kinds and contents are equal. Tensors are compared by dtype, shape and elements (so a NaN
/// is not equal to itself), and maps without regard to the order of their keys. A custom value is equal only to its clones.
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
    /// Bytes that are not numbers, such as an encoded image.
    Bytes(Arc<[u8]>),
    /// An n-dimensional array.
    Tensor(Arc<AnyArray>),
    /// Values under keys, in insertion order.
    Map(Map),
    /// A tuple or struct with a name and named fields.
    Named(Named),
    /// Values at fixed positions, each with its own meaning.
    Tuple(Items),
    /// A sequence of values with the same meaning.
    List(Items),
    /// A value of a user-defined type.
    Custom(Custom),
}

/// The kind of a [`Value`], which determines how it is collated.
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
    /// Creates a map. A repeated key keeps its place and takes the later value.
    pub fn map<K: Into<Arc<str>>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Map(entries.into_iter().collect())
    }

    /// Creates a named tuple (or struct) of type `name`. A repeated field keeps its place and takes the later value.
    pub fn named<K: Into<Arc<str>>>(name: impl Into<Arc<str>>, fields: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Named(Named::new(name, fields.into_iter().collect()))
    }

    /// Creates a tuple. Rust tuples can also be converted with `From`.
    pub fn tuple<V: Into<Value>>(items: impl IntoIterator<Item = V>) -> Self {
        Self::Tuple(items.into_iter().map(Into::into).collect())
    }

    /// Creates a list.
    pub fn list<V: Into<Value>>(items: impl IntoIterator<Item = V>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }

    /// Creates bytes that are not numbers. (With `From`, a `Vec<u8>` becomes a tensor.)
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// Creates a value of a user-defined type. (Use `From` for a value that is already in an [`Arc`].)
    pub fn custom<T: CustomValue>(value: T) -> Self {
        Self::from(Arc::new(value))
    }

    /// Returns the kind of the value.
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

    /// Returns the name of the value's type, such as `int`, `tensor` or `map`. For a named tuple, this is the tuple's name;
    /// for a custom value, its Rust type.
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

    /// Returns the bool, if the value is a [`Bool`](Self::Bool).
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// Returns the integer, if the value is an [`Int`](Self::Int).
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// Returns the floating-point number, if the value is a [`Float`](Self::Float).
    pub fn as_float(&self) -> Option<f64> {
        if let Self::Float(value) = self { Some(*value) } else { None }
    }

    /// Returns the text, if the value is a [`Text`](Self::Text).
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }

    /// Returns the bytes, if the value is [`Bytes`](Self::Bytes).
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(value) = self { Some(value) } else { None }
    }

    /// Returns the tensor, if the value is a [`Tensor`](Self::Tensor).
    pub fn as_tensor(&self) -> Option<&AnyArray> {
        if let Self::Tensor(array) = self { Some(array) } else { None }
    }

    /// Returns a view of the elements, if the value is a tensor with elements of type `T`.
    pub fn typed<T: Element>(&self) -> Option<TensorView<'_, T>> {
        self.as_tensor()?.typed()
    }

    /// Returns the map, if the value is a [`Map`](Self::Map).
    pub fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// Returns the named tuple, if the value is a [`Named`](Self::Named).
    pub fn as_named(&self) -> Option<&Named> {
        if let Self::Named(named) = self { Some(named) } else { None }
    }

    /// Returns the custom value, if the value is a [`Custom`](Self::Custom) of type `T`.
    pub fn as_custom<T: CustomValue>(&self) -> Option<&T> {
        if let Self::Custom(custom) = self { custom.downcast_ref() } else { None }
    }

    /// Returns the value under `key` of a map, or in the field `key` of a named tuple.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Map(map) => map.get(key),
            Self::Named(named) => named.fields().get(key),
            _ => None,
        }
    }

    /// Returns the value at index `i` of a list, a tuple, a named tuple or a map.
    pub fn at(&self, i: usize) -> Option<&Value> {
        self.items().get(i)
    }

    /// Returns the direct child values of a map, a named tuple, a tuple or a list. Every other value has none.
    pub fn items(&self) -> &[Value] {
        match self {
            Self::Map(map) => map.values(),
            Self::Named(named) => named.fields().values(),
            Self::Tuple(items) | Self::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the number of direct [child values](Self::items).
    pub fn len(&self) -> usize {
        self.items().len()
    }

    /// Returns whether there are no [child values](Self::items), as in every leaf.
    pub fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    /// Takes the direct child values, and returns them if they are not shared.
    pub(crate) fn take_items(&mut self) -> Option<Vec<Value>> {
        match self {
            Self::Map(map) => map.values_mut().take_unique(),
            Self::Named(named) => named.fields_mut().values_mut().take_unique(),
            Self::Tuple(items) | Self::List(items) => items.take_unique(),
            _ => None,
        }
    }
}

/// Describes a value for an error message, with details of a tensor or a named tuple.
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
