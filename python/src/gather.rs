//! Batches of datasets that hold their samples as tensors or arrays.
//!
//! Such a dataset does nothing but look up rows, so a batch is made by copying these, without a call for each sample. What
//! the dataset holds is looked up for each batch, since programs change it between batches.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::collate::{Gathered, Leaf, Tools, stacked};
use crate::dlpack::View;
use crate::numpy::Buffer;
use crate::tree::Node;

/// How deep datasets may be in each other.
const DEEPEST: usize = 32;

/// The types of torch's datasets.
pub(crate) struct Kinds {
    tensors: Py<PyAny>,
    stack: Py<PyAny>,
    concat: Py<PyAny>,
    subset: Py<PyAny>,
}

impl Kinds {
    pub(crate) fn new([tensors, stack, concat, subset]: [Py<PyAny>; 4]) -> Self {
        Self { tensors, stack, concat, subset }
    }
}

/// Rows of a dataset: what they look like, and the column of each tensor.
enum Found {
    /// A tensor, or a row of an array.
    Rows(Vec<View<'static>>),
    Tuple(Vec<Found>),
    Dict(Vec<(Py<PyAny>, Found)>),
}

/// Finds the samples with these indices, and what their batch is. Returns `None` if only the dataset can say.
pub(crate) fn gather<'py>(
    gathered: &mut Gathered<'py>,
    tools: &Tools,
    kinds: &Kinds,
    dataset: &Bound<'py, PyAny>,
    index: &[i64],
) -> Option<Node> {
    if index.is_empty() {
        return None;
    }
    let found = rows(gathered, tools, kinds, dataset, index, 0)?;
    place(gathered, found)
}

/// Makes nodes as `default_collate` does.
fn place(gathered: &mut Gathered<'_>, found: Found) -> Option<Node> {
    Some(match found {
        Found::Rows(views) => {
            let rows = i64::try_from(views.len()).ok()?;
            let leaf: Leaf = stacked(views, rows)?;
            gathered.leaves.push(leaf);
            Node::Tensor(gathered.leaves.len() - 1)
        }
        Found::Tuple(parts) => Node::List(parts.into_iter().map(|part| place(gathered, part)).collect::<Option<_>>()?),
        Found::Dict(items) => {
            let node = |(key, part)| Some((key, place(gathered, part)?));
            Node::Dict(items.into_iter().map(node).collect::<Option<_>>()?)
        }
    })
}

fn rows<'py>(
    gathered: &mut Gathered<'py>,
    tools: &Tools,
    kinds: &Kinds,
    dataset: &Bound<'py, PyAny>,
    index: &[i64],
    depth: usize,
) -> Option<Found> {
    let py = dataset.py();
    let kind = dataset.get_type();
    let is = |other: &Py<PyAny>| kind.as_ptr() == other.as_ptr();
    if depth > DEEPEST {
        None
    } else if tools.is_tensor(dataset) {
        gathered.kept.push(dataset.clone());
        // SAFETY: the tensor is kept as long as what is gathered.
        let view = unsafe { tools.torch.view(dataset) }?;
        Some(Found::Rows(rows_of(&view, index)?))
    } else if tools.is_array(dataset) {
        let buffer = Buffer::of(dataset.as_borrowed())?;
        // SAFETY: the buffer is kept as long as what is gathered.
        let view = unsafe { buffer.view() };
        gathered.buffers.push(buffer);
        Some(Found::Rows(rows_of(&view, index)?))
    } else if is(&kinds.tensors) {
        let tensors = dataset.getattr(intern!(py, "tensors")).ok()?;
        let part = |tensor: Bound<'py, PyAny>| {
            tools.is_tensor(&tensor).then(|| rows(gathered, tools, kinds, &tensor, index, depth + 1))?
        };
        Some(Found::Tuple(tensors.cast::<PyTuple>().ok()?.iter().map(part).collect::<Option<_>>()?))
    } else if is(&kinds.stack) {
        let parts = dataset.getattr(intern!(py, "datasets")).ok()?;
        if let Ok(parts) = parts.cast_exact::<PyTuple>() {
            let part = |part| rows(gathered, tools, kinds, &part, index, depth + 1);
            return Some(Found::Tuple(parts.iter().map(part).collect::<Option<_>>()?));
        }
        let part = |(key, part): (Bound<'py, _>, _)| {
            Some((key.unbind(), rows(gathered, tools, kinds, &part, index, depth + 1)?))
        };
        Some(Found::Dict(parts.cast_exact::<PyDict>().ok()?.iter().map(part).collect::<Option<_>>()?))
    } else if is(&kinds.subset) {
        let indices = dataset.getattr(intern!(py, "indices")).ok()?;
        let inner = index.iter().map(|&k| indices.get_item(k).ok()?.extract().ok()).collect::<Option<Vec<i64>>>()?;
        rows(gathered, tools, kinds, &dataset.getattr(intern!(py, "dataset")).ok()?, &inner, depth + 1)
    } else if is(&kinds.concat) {
        let parts = dataset.getattr(intern!(py, "datasets")).ok()?;
        let ends: Vec<i64> = dataset.getattr(intern!(py, "cumulative_sizes")).ok()?.extract().ok()?;
        let len = *ends.last()?;
        // The rows of each part, and where each of them goes.
        let mut inner = vec![(Vec::new(), Vec::new()); ends.len()];
        for (place, &k) in index.iter().enumerate() {
            let k = if k < 0 { k + len } else { k };
            if k < 0 {
                return None;
            }
            let part = ends.partition_point(|&end| end <= k);
            let (wanted, places) = inner.get_mut(part)?;
            wanted.push(if part == 0 { k } else { k - ends[part - 1] });
            places.push(place);
        }
        let mut all = None;
        for (part, (wanted, places)) in inner.into_iter().enumerate() {
            if !wanted.is_empty() {
                let found = rows(gathered, tools, kinds, &parts.get_item(part).ok()?, &wanted, depth + 1)?;
                merge(&mut all, found, &places, index.len(), py)?;
            }
        }
        resolve(all?)
    } else {
        None
    }
}

/// Rows of several datasets, of which some may be missing yet.
enum Merged {
    Rows(Vec<Option<View<'static>>>),
    Tuple(Vec<Option<Merged>>),
    Dict(Vec<(Py<PyAny>, Option<Merged>)>),
}

/// Puts the rows of one part where they belong. All parts must be alike.
fn merge(all: &mut Option<Merged>, found: Found, places: &[usize], len: usize, py: Python<'_>) -> Option<()> {
    match found {
        Found::Rows(views) => {
            let Merged::Rows(rows) = all.get_or_insert_with(|| Merged::Rows(vec![None; len])) else { return None };
            for (view, &place) in views.into_iter().zip(places) {
                rows[place] = Some(view);
            }
        }
        Found::Tuple(parts) => {
            let count = parts.len();
            let empty = || Merged::Tuple((0..count).map(|_| None).collect());
            let Merged::Tuple(merged) = all.get_or_insert_with(empty) else { return None };
            if merged.len() != count {
                return None;
            }
            for (merged, part) in merged.iter_mut().zip(parts) {
                merge(merged, part, places, len, py)?;
            }
        }
        Found::Dict(items) => {
            let empty = || Merged::Dict(items.iter().map(|(key, _)| (key.clone_ref(py), None)).collect());
            let Merged::Dict(merged) = all.get_or_insert_with(empty) else { return None };
            if merged.len() != items.len() {
                return None;
            }
            for ((key, merged), (other, part)) in merged.iter_mut().zip(items) {
                if !key.bind(py).eq(other).ok()? {
                    return None;
                }
                merge(merged, part, places, len, py)?;
            }
        }
    }
    Some(())
}

fn resolve(merged: Merged) -> Option<Found> {
    Some(match merged {
        Merged::Rows(rows) => Found::Rows(rows.into_iter().collect::<Option<_>>()?),
        Merged::Tuple(parts) => Found::Tuple(parts.into_iter().map(|part| resolve(part?)).collect::<Option<_>>()?),
        Merged::Dict(items) => {
            Found::Dict(items.into_iter().map(|(key, part)| Some((key, resolve(part?)?))).collect::<Option<_>>()?)
        }
    })
}

/// Returns the rows with these indices; negative ones count from the end.
fn rows_of(view: &View<'static>, index: &[i64]) -> Option<Vec<View<'static>>> {
    let (&len, shape) = view.shape.split_first()?;
    let (stride, strides) = match view.strides {
        Some(strides) => {
            let (&first, rest) = strides.split_first()?;
            (first, Some(rest))
        }
        None => (shape.iter().product(), None),
    };
    let step = stride * i64::try_from(view.dtype.bytes()?).ok()?;
    let row = |&k: &i64| {
        let k = if k < 0 { k + len } else { k };
        let data = view.data.wrapping_offset((k * step) as isize);
        (0..len).contains(&k).then_some(View { data, dtype: view.dtype, shape, strides })
    };
    index.iter().map(row).collect()
}
