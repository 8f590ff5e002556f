//! Batches of datasets that hold their samples as tensors or arrays.
//!
//! Such a dataset only looks up rows, so its batches are made by copying rows, without a call for
//! each sample. The tensors of the dataset are looked up for each batch, since programs may replace
//! them between batches.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyRange, PyString, PyTuple};

use crate::collate::{Gathered, TorchApi, stacked, taken};
use crate::dlpack::View;
use crate::numpy::Buffer;
use crate::rows::RowView;
use crate::tree::Node;

/// The most levels of nested datasets.
const DEEPEST: usize = 32;

/// The dataset classes of torch whose samples can be gathered.
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

/// The structure of a batch's samples, with the rows of each tensor. If the batch comes from
/// several datasets, the rows are filled in one dataset at a time.
enum Found {
    /// Rows of one tensor or array.
    RowView(RowView),
    /// Rows of several tensors or arrays.
    Rows(Vec<Option<View<'static>>>),
    Tuple(Vec<Option<Found>>),
    Dict(Vec<(Py<PyAny>, Option<Found>)>),
}

/// Finds the samples at these indices and the structure of their batch. Returns `None` if only the
/// dataset itself can do so.
pub(crate) fn gather<'py>(
    gathered: &mut Gathered<'py>,
    api: &TorchApi,
    kinds: &Kinds,
    dataset: &Bound<'py, PyAny>,
    index: &[i64],
) -> Option<Node> {
    let mut found = None;
    Search { gathered, api, kinds, len: index.len() }.find(&mut found, dataset, index, None, 0)?;
    place(gathered, found)
}

/// Makes the nodes of a batch with the structure that `default_collate` gives it.
fn place(gathered: &mut Gathered<'_>, found: Option<Found>) -> Option<Node> {
    Some(match found? {
        Found::RowView(rows) => {
            gathered.leaves.push(taken(rows)?);
            Node::Tensor(gathered.leaves.len() - 1)
        }
        Found::Rows(views) => {
            let rows = i64::try_from(views.len()).ok()?;
            gathered.leaves.push(stacked(views.into_iter().collect::<Option<_>>()?, rows, None)?);
            Node::Tensor(gathered.leaves.len() - 1)
        }
        Found::Tuple(parts) => Node::List(parts.into_iter().map(|part| place(gathered, part)).collect::<Option<_>>()?),
        Found::Dict(items) => {
            let node = |(key, part)| Some((key, place(gathered, part)?));
            Node::Dict(items.into_iter().map(node).collect::<Option<_>>()?)
        }
    })
}

struct Search<'a, 'py> {
    gathered: &'a mut Gathered<'py>,
    api: &'a TorchApi,
    kinds: &'a Kinds,
    /// The number of samples in the whole batch.
    len: usize,
}

impl<'py> Search<'_, 'py> {
    /// Finds samples of a dataset. `places` are their positions in the batch; `None` if they are
    /// the whole batch.
    fn find(
        &mut self,
        found: &mut Option<Found>,
        dataset: &Bound<'py, PyAny>,
        index: &[i64],
        places: Option<&[usize]>,
        depth: usize,
    ) -> Option<()> {
        let py = dataset.py();
        let kind = dataset.get_type();
        let is = |other: &Py<PyAny>| kind.as_ptr() == other.as_ptr();
        if depth > DEEPEST {
            None
        } else if self.api.is_tensor(dataset) {
            self.gathered.kept.push(dataset.clone());
            // SAFETY: the tensor is kept as long as `gathered`.
            let view = unsafe { self.api.torch.view(dataset) }?;
            self.rows(found, &view, index, places)
        } else if self.api.is_array(dataset) {
            let buffer = Buffer::of(dataset.as_borrowed())?;
            // SAFETY: the buffer is kept as long as `gathered`.
            let view = unsafe { buffer.view() };
            self.gathered.buffers.push(buffer);
            self.rows(found, &view, index, places)
        } else if is(&self.kinds.tensors) {
            let tensors = dataset.getattr(intern!(py, "tensors")).ok()?;
            let tensors = tensors.cast::<PyTuple>().ok()?;
            if !tensors.iter().all(|tensor| self.api.is_tensor(&tensor)) {
                return None;
            }
            self.tuple(found, tensors, index, places, depth)
        } else if is(&self.kinds.stack) {
            let parts = dataset.getattr(intern!(py, "datasets")).ok()?;
            match parts.cast_exact::<PyTuple>() {
                Ok(parts) => self.tuple(found, parts, index, places, depth),
                Err(_) => self.dict(found, parts.cast_exact::<PyDict>().ok()?, index, places, depth),
            }
        } else if is(&self.kinds.subset) {
            let indices = dataset.getattr(intern!(py, "indices")).ok()?;
            // Other types would run code of the program while tensors are viewed.
            let is_ours = self.api.is_tensor(&indices) || self.api.is_array(&indices);
            if !is_ours && !indices.is_exact_instance_of::<PyList>() && !indices.is_exact_instance_of::<PyRange>() {
                return None;
            }
            let number = |&k| self.api.row_number(&indices.get_item(k).ok()?);
            let inner = index.iter().map(number).collect::<Option<Vec<i64>>>()?;
            self.find(found, &dataset.getattr(intern!(py, "dataset")).ok()?, &inner, places, depth + 1)
        } else if is(&self.kinds.concat) {
            let parts = dataset.getattr(intern!(py, "datasets")).ok()?;
            let ends: Vec<i64> = dataset.getattr(intern!(py, "cumulative_sizes")).ok()?.extract().ok()?;
            let len = *ends.last()?;
            // The samples of each part, and their positions in the batch.
            let mut inner = vec![(Vec::new(), Vec::new()); ends.len()];
            for (i, &k) in index.iter().enumerate() {
                let place = places.map_or(i, |places| places[i]);
                let k = if k < 0 { k + len } else { k };
                if k < 0 {
                    return None;
                }
                let part = ends.partition_point(|&end| end <= k);
                let (wanted, places) = inner.get_mut(part)?;
                wanted.push(if part == 0 { k } else { k - ends[part - 1] });
                places.push(place);
            }
            for (part, (wanted, places)) in inner.into_iter().enumerate() {
                if !wanted.is_empty() {
                    self.find(found, &parts.get_item(part).ok()?, &wanted, Some(&places), depth + 1)?;
                }
            }
            Some(())
        } else {
            None
        }
    }

    fn tuple(
        &mut self,
        found: &mut Option<Found>,
        parts: &Bound<'py, PyTuple>,
        index: &[i64],
        places: Option<&[usize]>,
        depth: usize,
    ) -> Option<()> {
        let nothing = || Found::Tuple(parts.iter().map(|_| None).collect());
        let Found::Tuple(all) = found.get_or_insert_with(nothing) else { return None };
        if all.len() != parts.len() {
            return None;
        }
        let mut all = all.iter_mut().zip(parts);
        all.try_for_each(|(found, part)| self.find(found, &part, index, places, depth + 1))
    }

    fn dict(
        &mut self,
        found: &mut Option<Found>,
        parts: &Bound<'py, PyDict>,
        index: &[i64],
        places: Option<&[usize]>,
        depth: usize,
    ) -> Option<()> {
        // Copy the items: another thread may change the dict meanwhile.
        let parts: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> = parts.items().extract().ok()?;
        let nothing = || Found::Dict(parts.iter().map(|(key, _)| (key.clone().unbind(), None)).collect());
        let Found::Dict(all) = found.get_or_insert_with(nothing) else { return None };
        if all.len() != parts.len() {
            return None;
        }
        let mut all = all.iter_mut().zip(&parts);
        all.try_for_each(|((key, found), (other, part))| {
            // Comparing other keys would run code of the program.
            let is_same = other.is_exact_instance_of::<PyString>() && key.bind(part.py()).eq(other).ok()?;
            is_same.then(|| self.find(found, part, index, places, depth + 1))?
        })
    }

    /// Puts rows at their positions. The structure must be the same in all parts of a batch.
    fn rows(
        &self,
        found: &mut Option<Found>,
        view: &View<'static>,
        index: &[i64],
        places: Option<&[usize]>,
    ) -> Option<()> {
        let taken = RowView::new(view, index)?;
        let Some(places) = places else {
            *found = Some(Found::RowView(taken));
            return Some(());
        };
        let nothing = || Found::Rows(vec![None; self.len]);
        let Found::Rows(rows) = found.get_or_insert_with(nothing) else { return None };
        for (row, &place) in taken.views().zip(places) {
            *rows.get_mut(place)? = Some(row);
        }
        Some(())
    }
}
