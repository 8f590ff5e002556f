//! The structure of a batch: containers of tensors and other objects.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// A container, or the tensor or object in it.
#[derive(Debug)]
pub(crate) enum Node {
    /// A tensor, as its index in the batch's list of tensors.
    Tensor(usize),
    /// Any other object, as its index in the batch's list of objects.
    Object(usize),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    /// The type and the items of a named tuple.
    Named(Py<PyAny>, Vec<Node>),
    Dict(Vec<(Py<PyAny>, Node)>),
}

/// The first items of the tuples that describe nodes.
const TENSOR: u8 = 0;
const OBJECT: u8 = 1;
const LIST: u8 = 2;
const TUPLE: u8 = 3;
const NAMED: u8 = 4;
const DICT: u8 = 5;

impl Node {
    /// Returns whether both structures are the same, so that a batch of one can be built from the
    /// other.
    pub(crate) fn is(&self, other: &Self, py: Python<'_>) -> bool {
        let all = |a: &[Self], b: &[Self]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b, py));
        match (self, other) {
            (Self::Tensor(a), Self::Tensor(b)) | (Self::Object(a), Self::Object(b)) => a == b,
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => all(a, b),
            (Self::Named(a, x), Self::Named(b, y)) => a.is(b) && all(x, y),
            (Self::Dict(a), Self::Dict(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|((x, a), (y, b))| is_key(x.bind(py), y.bind(py)) && a.is(b, py))
            }
            _ => false,
        }
    }

    /// Builds the batch from its tensors and objects.
    pub(crate) fn build<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
        objects: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyAny>> {
        let missing = || crate::dlpack::broken("it lacks a part");
        let all = |nodes: &[Self]| -> PyResult<Vec<_>> {
            nodes.iter().map(|node| node.build(py, tensors, objects)).collect()
        };
        Ok(match self {
            Self::Tensor(k) => tensors.get(*k).ok_or_else(missing)?.clone(),
            Self::Object(k) => objects.get(*k).ok_or_else(missing)?.clone(),
            Self::List(nodes) => PyList::new(py, all(nodes)?)?.into_any(),
            Self::Tuple(nodes) => PyTuple::new(py, all(nodes)?)?.into_any(),
            Self::Named(kind, nodes) => kind.bind(py).call1(PyTuple::new(py, all(nodes)?)?)?,
            Self::Dict(items) => {
                let dict = PyDict::new(py);
                for (key, node) in items {
                    dict.set_item(key, node.build(py, tensors, objects)?)?;
                }
                dict.into_any()
            }
        })
    }

    /// Describes the structure with Python objects that can be pickled.
    pub(crate) fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let all = |nodes: &[Self]| -> PyResult<Vec<_>> { nodes.iter().map(|node| node.describe(py)).collect() };
        match self {
            Self::Tensor(k) => (TENSOR, k).into_bound_py_any(py),
            Self::Object(k) => (OBJECT, k).into_bound_py_any(py),
            Self::List(nodes) => (LIST, all(nodes)?).into_bound_py_any(py),
            Self::Tuple(nodes) => (TUPLE, all(nodes)?).into_bound_py_any(py),
            Self::Named(kind, nodes) => (NAMED, kind, all(nodes)?).into_bound_py_any(py),
            Self::Dict(items) => {
                let items: Vec<_> =
                    items.iter().map(|(key, node)| Ok((key, node.describe(py)?))).collect::<PyResult<_>>()?;
                (DICT, items).into_bound_py_any(py)
            }
        }
    }

    /// Reads the structure from its description.
    pub(crate) fn read(described: &Bound<'_, PyAny>) -> PyResult<Self> {
        let all = |nodes: Bound<'_, PyAny>| -> PyResult<Vec<Self>> {
            nodes.try_iter()?.map(|node| Self::read(&node?)).collect()
        };
        let item = |k: usize| described.get_item(k);
        Ok(match item(0)?.extract::<u8>()? {
            TENSOR => Self::Tensor(item(1)?.extract()?),
            OBJECT => Self::Object(item(1)?.extract()?),
            LIST => Self::List(all(item(1)?)?),
            TUPLE => Self::Tuple(all(item(1)?)?),
            NAMED => Self::Named(item(1)?.unbind(), all(item(2)?)?),
            DICT => {
                let read = |item: Bound<'_, PyAny>| {
                    let (key, node) = item.extract::<(Py<PyAny>, Bound<'_, PyAny>)>()?;
                    Ok((key, Self::read(&node)?))
                };
                Self::Dict(item(1)?.try_iter()?.map(|item| read(item?)).collect::<PyResult<_>>()?)
            }
            _ => return Err(crate::dlpack::broken("it has a container that is not known")),
        })
    }
}

/// Returns whether a key can be replaced with the key of the previous batch. It must be immutable,
/// and equal values must be indistinguishable. Since `0.0` and `-0.0` are equal but distinct, other
/// types must be identical objects.
fn is_key(key: &Bound<'_, PyAny>, before: &Bound<'_, PyAny>) -> bool {
    if key.is_exact_instance_of::<PyString>()
        || key.is_exact_instance_of::<PyInt>()
        || key.is_exact_instance_of::<PyBytes>()
    {
        return key.get_type().is(before.get_type()) && key.eq(before).unwrap_or(false);
    }
    key.is(before) && (key.is_none() || key.is_exact_instance_of::<PyBool>() || key.is_exact_instance_of::<PyFloat>())
}
