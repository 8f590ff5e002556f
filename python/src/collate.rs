//! Collation of samples into batches, as `torch.utils.data.default_collate` does it.
//!
//! Tensors, arrays, numbers and strings in tuples, lists and dicts are collated here: first the
//! layout is determined, then memory is allocated, and then the elements are copied. For all other
//! types, and wherever samples do not fit together, torch's own function is called with that part
//! of the samples. It returns the batch, or raises the error.
//!
//! Shapes and addresses of tensors are read without calling Python, and so are the elements when
//! they are copied. In between, code of the program may run (torch's function calls methods of
//! samples, keys of dicts are compared, objects are pickled) and resize tensors. So wherever such
//! code may run, this is recorded ([`Gathered::ran`]). Before anything is copied, every tensor is
//! then inspected again and compared with its earlier layout ([`Gathered::recheck`]). Memory that
//! belongs to a tensor, such as its list of dimensions, is not read after such code. The same
//! applies to arrays: `resize(refcheck=False)` of NumPy resizes an array even while its memory is
//! exported.

use std::collections::HashMap;
use std::ops::Range;
#[cfg(feature = "files")]
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{ffi, intern};

use crate::detached::detached;
use crate::dlpack::{DType, Torch, View, size};
#[cfg(feature = "files")]
use crate::lift::{Drawn, Picture};
use crate::numpy::Buffer;
use crate::rows::{self, RowView};
use crate::tree::Node;

/// The most levels of nested containers. Deeper ones are pickled as one object.
const DEEPEST: usize = 32;

/// The functions and classes of torch, NumPy and this package's Python code that collation uses.
pub(crate) struct TorchApi {
    pub(crate) torch: Torch,
    /// `numpy.ndarray` and `numpy.memmap`, if NumPy is installed.
    arrays: Vec<Py<PyAny>>,
    /// `numpy.integer`.
    array_integer: Option<Py<PyAny>>,
    /// Collates a part of the samples with torch's function.
    fallback: Py<PyAny>,
    /// Adds a note to an error that locates it in the samples.
    explain: Py<PyAny>,
    /// Returns whether a type was made by `collections.namedtuple`, unchanged.
    is_plain_named: Py<PyAny>,
}

impl TorchApi {
    /// Returns the instance of this process.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static API: PyOnceLock<TorchApi> = PyOnceLock::new();
        if let Some(api) = API.get(py) {
            return Ok(api);
        }
        // Import this first: the module itself calls this function during its import.
        py.import("slotline.torch._samples.collate")?;
        API.get_or_try_init(py, || Self::new(py))
    }

    fn new(py: Python<'_>) -> PyResult<Self> {
        let ours = py.import("slotline.torch._samples.collate")?;
        let [fallback, explain, is_plain_named] = ["part", "explain", "is_plain_named"].map(|name| ours.getattr(name));
        let (arrays, array_integer) = match py.import("numpy") {
            Ok(numpy) => (
                vec![numpy.getattr("ndarray")?.unbind(), numpy.getattr("memmap")?.unbind()],
                Some(numpy.getattr("integer")?.unbind()),
            ),
            Err(_) => (Vec::new(), None),
        };
        Ok(Self {
            torch: Torch::new(py)?,
            arrays,
            array_integer,
            fallback: fallback?.unbind(),
            explain: explain?.unbind(),
            is_plain_named: is_plain_named?.unbind(),
        })
    }

    pub(crate) fn is_tensor(&self, value: &Bound<'_, PyAny>) -> bool {
        value.get_type().as_ptr() == self.torch.tensor.as_ptr()
    }

    /// Returns the row that an index selects, if tensors and arrays take it as one row: an `int`,
    /// an integer of NumPy, or a tensor of one integer. (A `bool` adds a dimension, a `uint8`
    /// tensor is a mask, and a sequence selects several rows.)
    pub(crate) fn row_number(&self, index: &Bound<'_, PyAny>) -> Option<i64> {
        if index.is_exact_instance_of::<PyInt>() {
            return integer(index);
        }
        if self.is_tensor(index) {
            // SAFETY: the view is used only while `index` is borrowed.
            let view = unsafe { self.torch.view(index) }?;
            return (view.shape.is_empty() && view.dtype.code == DType::I64.code).then(|| index.extract().ok())?;
        }
        let integer = self.array_integer.as_ref()?;
        // Checks the type itself, since `isinstance` may run code of the program. Classes of the
        // program are excluded too, since their conversion to a number is such code.
        let kind = index.get_type();
        // SAFETY: `kind` is a type object.
        let is_own = unsafe { ffi::PyType_GetFlags(kind.as_type_ptr()) } & ffi::Py_TPFLAGS_HEAPTYPE != 0;
        if !is_own && kind.is_subclass(integer.bind(index.py())).ok()? { index.extract().ok() } else { None }
    }

    /// Returns whether an object is a tensor that is sent without pickling it.
    pub(crate) fn is_sendable(&self, value: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the view is used only while `value` is borrowed.
        self.is_tensor(value) && unsafe { self.torch.view(value) }.is_some_and(|view| view.span().is_some())
    }

    pub(crate) fn is_array(&self, value: &Bound<'_, PyAny>) -> bool {
        let kind = value.get_type();
        self.arrays.iter().any(|array| array.as_ptr() == kind.as_ptr())
    }
}

/// A tensor of a batch before it is written: its layout, and where its elements come from.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    /// The strides in elements, unless they are those of a new contiguous tensor.
    pub(crate) strides: Option<Vec<i64>>,
    /// The bytes from the first element to the end of the last one.
    pub(crate) bytes: usize,
    pub(crate) rows: Rows,
}

#[derive(Debug)]
pub(crate) enum Rows {
    /// One view for each row. If they are tensors or arrays, also the index of the first one in
    /// `Gathered::kept`.
    Views(Vec<View<'static>>, Option<usize>),
    /// Several rows of one tensor or array.
    RowView(RowView),
    /// A whole tensor with its memory layout: its address, and its index in `Gathered::kept`.
    Memory(*const u8, usize),
    /// A piece of memory that several tensors share: the number of unused bytes before it, and its
    /// address.
    Piece(usize, *const u8),
    /// A tensor in a shared piece: the piece's number, and the offset in bytes.
    Part(usize, usize),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<u8>),
    /// Pictures that have not been decoded yet, one for each row.
    #[cfg(feature = "files")]
    Pictures(Vec<Arc<Drawn>>),
}

impl Leaf {
    /// Writes the elements, except for those of pictures.
    ///
    /// # Safety
    ///
    /// `to` must have room for `bytes` bytes, and the samples must be unchanged since they were
    /// gathered.
    pub(crate) unsafe fn write(&self, to: *mut u8) {
        // SAFETY: the caller guarantees room for `bytes`, the sum of all rows.
        unsafe {
            match &self.rows {
                Rows::Views(views, _) => rows::copy(views, self.bytes / views.len().max(1), to),
                Rows::RowView(taken) => taken.copy(to),
                Rows::Memory(start, _) => to.copy_from_nonoverlapping(*start, self.bytes),
                Rows::Piece(lead, start) => to.add(*lead).copy_from_nonoverlapping(*start, self.bytes - lead),
                Rows::Part(..) => {}
                #[cfg(feature = "files")]
                Rows::Pictures(_) => {}
                Rows::Ints(values) => to.copy_from_nonoverlapping(values.as_ptr().cast(), self.bytes),
                Rows::Floats(values) => to.copy_from_nonoverlapping(values.as_ptr().cast(), self.bytes),
                Rows::Bools(values) => to.copy_from_nonoverlapping(values.as_ptr(), self.bytes),
            }
        }
    }

    /// Decodes the pictures, if there are any, without holding the interpreter's lock. All other
    /// elements must have been written before.
    ///
    /// # Errors
    ///
    /// Returns [`NotLifted`](crate::NotLifted) if a picture has to be decoded by PIL.
    ///
    /// # Safety
    ///
    /// `to` must have room for `bytes` bytes, which no other code accesses.
    #[cfg_attr(not(feature = "files"), allow(unused_variables))]
    pub(crate) unsafe fn paint(&self, py: Python<'_>, to: *mut u8) -> PyResult<()> {
        #[cfg(feature = "files")]
        if let Rows::Pictures(pictures) = &self.rows {
            // SAFETY: guaranteed by the caller.
            let to = unsafe { std::slice::from_raw_parts_mut(to, self.bytes) };
            let rows = to.chunks_exact_mut((self.bytes / pictures.len()).max(1));
            let made = detached(py, || pictures.iter().zip(rows).try_for_each(|(picture, row)| picture.write(row)));
            return made.map_err(|error| crate::NotLifted::new_err(error.to_string()));
        }
        Ok(())
    }
}

/// A batch before it is written: its tensors and its other objects, and what they refer to.
pub(crate) struct Gathered<'py> {
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) objects: Vec<Bound<'py, PyAny>>,
    /// Whether no object can contain a tensor.
    pub(crate) is_plain: bool,
    /// Whether code of the program may have run since the tensors were inspected.
    pub(crate) ran: bool,
    /// Whether the batch stays in this process, so that parts that torch collates are kept as whole
    /// objects.
    is_local: bool,
    /// The containers and tensors seen so far, by address. A tensor is mapped to its number, since
    /// one that occurs twice is sent once.
    seen: HashMap<usize, usize>,
    /// The tensors and arrays that the views refer to.
    pub(crate) kept: Vec<Bound<'py, PyAny>>,
    pub(crate) buffers: Vec<Buffer>,
}

impl<'py> Gathered<'py> {
    pub(crate) fn new(is_local: bool) -> Self {
        let (leaves, objects, kept, buffers) = Default::default();
        Self { leaves, objects, is_plain: true, ran: false, is_local, seen: HashMap::new(), kept, buffers }
    }

    /// Collates samples as `default_collate` does.
    ///
    /// # Errors
    ///
    /// Returns the errors of `default_collate`, with a note that locates them in the samples.
    pub(crate) fn collate(&mut self, api: &TorchApi, samples: &Bound<'py, PyList>) -> PyResult<Node> {
        let py = samples.py();
        self.column(py, api, samples.iter().collect(), false, 0).inspect_err(|error| {
            if !error.is_instance_of::<crate::NotLifted>(py) {
                // An error of `explain` is dropped: the first error matters.
                drop(api.explain.bind(py).call1((samples, error.value(py))));
            }
        })
    }

    /// Collates a column: the values that the samples have in one place. `is_tuple` says whether
    /// torch's function would get them as a tuple instead of a list.
    fn column(
        &mut self,
        py: Python<'py>,
        api: &TorchApi,
        column: Vec<Bound<'py, PyAny>>,
        is_tuple: bool,
        depth: usize,
    ) -> PyResult<Node> {
        if let Some(leaf) = column.first().and_then(|first| self.leaf(api, first, &column)) {
            self.kept.extend(column);
            self.leaves.push(leaf);
            return Ok(Node::Tensor(self.leaves.len() - 1));
        }
        #[cfg(feature = "files")]
        if column.iter().any(|value| value.is_exact_instance_of::<Picture>()) {
            return Err(crate::NotLifted::new_err("the pictures have several sizes or types"));
        }
        let Some(first) = column.first().cloned() else { return self.other(py, api, column, is_tuple) };
        let kind = first.get_type();
        let is_kind = |value: &Bound<'py, PyAny>| value.get_type().is(&kind);
        if depth < DEEPEST && column.iter().all(is_kind) {
            if first.is_exact_instance_of::<PyString>() {
                let strings = sequence(py, column, is_tuple)?;
                return Ok(self.object(strings));
            }
            let is_list = first.is_exact_instance_of::<PyList>();
            let is_plain = is_list || first.is_exact_instance_of::<PyTuple>();
            self.ran |= !is_plain && !first.is_exact_instance_of::<PyDict>();
            let is_named = !is_plain
                && first.is_instance_of::<PyTuple>()
                && first.hasattr(intern!(py, "_fields"))?
                && self.fits_fields(&first)?;
            if is_plain || is_named {
                let len = first.len()?;
                if column.iter().all(|sample| sample.len().is_ok_and(|found| found == len)) {
                    let mut nodes = Vec::with_capacity(len);
                    for k in 0..len {
                        let part = column.iter().map(|sample| item(sample, k)).collect::<PyResult<_>>()?;
                        nodes.push(self.column(py, api, part, true, depth + 1)?);
                    }
                    return Ok(if is_plain { Node::List(nodes) } else { Node::Named(kind.into_any().unbind(), nodes) });
                }
            } else if first.is_exact_instance_of::<PyDict>() {
                let dicts = column.iter().map(|sample| sample.cast::<PyDict>()).collect::<Result<Vec<_>, _>>();
                let dicts = dicts.map_err(PyErr::from)?;
                let mut items = Vec::with_capacity(dicts[0].len());
                // Copy the keys: the dict may change meanwhile.
                for key in dicts[0].keys() {
                    self.ran |= !key.is_exact_instance_of::<PyString>();
                    let part = dicts.iter().map(|dict| dict.get_item(&key)).collect::<PyResult<Option<Vec<_>>>>()?;
                    let Some(part) = part else { return self.other(py, api, column, is_tuple) };
                    items.push((key.unbind(), self.column(py, api, part, false, depth + 1)?));
                }
                if items.len() != dicts[0].len() {
                    return Err(PyRuntimeError::new_err("dictionary changed size during iteration"));
                }
                return Ok(Node::Dict(items));
            }
        }
        self.other(py, api, column, is_tuple)
    }

    /// Returns whether a named tuple has as many items as fields, so that its type can be called
    /// with them.
    fn fits_fields(&self, tuple: &Bound<'py, PyAny>) -> PyResult<bool> {
        Ok(tuple.getattr(intern!(tuple.py(), "_fields"))?.len().is_ok_and(|len| tuple.len().is_ok_and(|n| n == len)))
    }

    /// Calls torch's function to collate a column.
    fn other(
        &mut self,
        py: Python<'py>,
        api: &TorchApi,
        column: Vec<Bound<'py, PyAny>>,
        is_tuple: bool,
    ) -> PyResult<Node> {
        let column = sequence(py, column, is_tuple)?;
        self.ran = true;
        let batch = api.fallback.bind(py).call1((column,))?;
        Ok(if self.is_local { self.object(batch) } else { self.walk(api, &batch) })
    }

    /// Returns the leaf for a column of tensors, arrays or numbers of equal type and shape.
    fn leaf(&mut self, api: &TorchApi, first: &Bound<'py, PyAny>, column: &[Bound<'py, PyAny>]) -> Option<Leaf> {
        let rows = i64::try_from(column.len()).ok()?;
        let kind = first.get_type();
        let is_kind = |value: &Bound<'py, PyAny>| value.get_type().is(&kind);
        let scalars = |dtype: DType, rows_of: Rows| {
            Some(Leaf { dtype, shape: vec![rows], strides: None, bytes: size(&[rows], dtype)?, rows: rows_of })
        };
        if api.is_tensor(first) {
            // SAFETY: `column` keeps the tensors alive, and they are not passed to other code
            // before they are copied.
            let view = |tensor| unsafe { api.torch.view(tensor) };
            let views =
                column.iter().map(|tensor| is_kind(tensor).then(|| view(tensor))?).collect::<Option<Vec<_>>>()?;
            return stacked(views, rows, Some(self.kept.len()));
        }
        if api.is_array(first) {
            let start = self.buffers.len();
            for array in column {
                self.buffers.push(is_kind(array).then(|| Buffer::of(array.as_borrowed()))??);
            }
            // SAFETY: the buffers live as long as the leaves, and moving a buffer does not move its
            // contents.
            let views = self.buffers[start..].iter().map(|buffer| unsafe { buffer.view() }).collect();
            return stacked(views, rows, Some(self.kept.len()));
        }
        #[cfg(feature = "files")]
        if let Ok(picture) = first.cast_exact::<Picture>() {
            let drawn = |value: &Bound<'py, PyAny>| {
                let drawn = &value.cast_exact::<Picture>().ok()?.get().0;
                drawn.fits(&picture.get().0).then(|| drawn.clone())
            };
            let pictures = column.iter().map(drawn).collect::<Option<Vec<_>>>()?;
            let (dtype, shape) = (picture.get().0.dtype(), [&[rows][..], &picture.get().0.shape()].concat());
            let bytes = size(&shape, dtype)?;
            return Some(Leaf { dtype, shape, strides: None, bytes, rows: Rows::Pictures(pictures) });
        }
        if first.is_exact_instance_of::<PyBool>() {
            let values = column.iter().map(|value| is_kind(value).then(|| value.is_truthy().ok().map(u8::from))?);
            return scalars(DType::BOOL, Rows::Bools(values.collect::<Option<_>>()?));
        }
        if first.is_exact_instance_of::<PyInt>() {
            let values = column.iter().map(integer);
            return scalars(DType::I64, Rows::Ints(values.collect::<Option<_>>()?));
        }
        if first.is_exact_instance_of::<PyFloat>() {
            let values = column.iter().map(|value| is_kind(value).then(|| value.extract::<f64>().ok())?);
            return scalars(DType::F64, Rows::Floats(values.collect::<Option<_>>()?));
        }
        None
    }

    fn object(&mut self, object: Bound<'py, PyAny>) -> Node {
        self.objects.push(object);
        Node::Object(self.objects.len() - 1)
    }

    /// Takes apart a finished batch that consists of tensors and plain values in plain containers,
    /// each of which occurs once. Everything else becomes one pickled object, so that pickle
    /// preserves shared references.
    pub(crate) fn walk(&mut self, api: &TorchApi, batch: &Bound<'py, PyAny>) -> Node {
        let (leaves, objects, kept) = (self.leaves.len(), self.objects.len(), self.kept.len());
        self.seen.clear();
        self.part(api, batch, 0).unwrap_or_else(|| {
            self.leaves.truncate(leaves);
            self.objects.truncate(objects);
            self.kept.truncate(kept);
            self.is_plain = false;
            self.object(batch.clone())
        })
    }

    fn part(&mut self, api: &TorchApi, part: &Bound<'py, PyAny>, depth: usize) -> Option<Node> {
        let address = part.as_ptr() as usize;
        if api.is_tensor(part) {
            if let Some(&known) = self.seen.get(&address) {
                return Some(Node::Tensor(known));
            }
            let number = self.tensor(api, part)?;
            self.seen.insert(address, number);
            return Some(Node::Tensor(number));
        }
        if is_plain(part) {
            return Some(self.object(part.clone()));
        }
        let tuple = part.cast::<PyTuple>().ok();
        if tuple.is_some_and(|tuple| tuple.is_empty() && part.is_exact_instance_of::<PyTuple>()) {
            // The empty tuple is a singleton, so it does not count as occurring twice.
            return Some(Node::Tuple(Vec::new()));
        }
        if depth == DEEPEST || self.seen.insert(address, usize::MAX).is_some() {
            return None;
        }
        if let Ok(list) = part.cast_exact::<PyList>() {
            return Some(Node::List(list.iter().map(|part| self.part(api, &part, depth + 1)).collect::<Option<_>>()?));
        }
        if let Ok(dict) = part.cast_exact::<PyDict>() {
            // Copy the items: the dict may change meanwhile.
            let items = dict.items().into_iter().map(|item| {
                let (key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = item.extract().ok()?;
                is_plain(&key).then(|| Some((key.unbind(), self.part(api, &value, depth + 1)?)))?
            });
            return Some(Node::Dict(items.collect::<Option<_>>()?));
        }
        let tuple = tuple?;
        let kind = part.get_type();
        let is_exact = part.is_exact_instance_of::<PyTuple>();
        self.ran |= !is_exact;
        if !is_exact && !api.is_plain_named.bind(part.py()).call1((&kind,)).ok()?.is_truthy().ok()? {
            return None;
        }
        let parts = tuple.iter().map(|part| self.part(api, &part, depth + 1)).collect::<Option<_>>()?;
        Some(if is_exact { Node::Tuple(parts) } else { Node::Named(kind.into_any().unbind(), parts) })
    }

    /// Adds a tensor with its layout unchanged, and returns its number among the leaves.
    pub(crate) fn tensor(&mut self, api: &TorchApi, tensor: &Bound<'py, PyAny>) -> Option<usize> {
        // SAFETY: the tensor is kept in `self.kept`.
        let view = unsafe { api.torch.view(tensor) }?;
        let (dtype, shape) = (view.dtype, view.shape.to_vec());
        let strides = view.own_strides().map(<[i64]>::to_vec);
        let bytes = view.span()?;
        self.leaves.push(Leaf { dtype, shape, strides, bytes, rows: Rows::Memory(view.data, self.kept.len()) });
        self.kept.push(tensor.clone());
        Some(self.leaves.len() - 1)
    }

    /// Inspects every tensor and array again if code of the program may have run since. After this
    /// call, no such code may run before the elements are copied.
    ///
    /// # Errors
    ///
    /// Returns an error if the shape or type of one has changed, or if its storage no longer
    /// contains its elements.
    pub(crate) fn recheck(&mut self, api: &TorchApi) -> PyResult<()> {
        if !self.ran {
            return Ok(());
        }
        let kept = &self.kept;
        for tensor in kept.iter().filter(|kept| api.is_tensor(kept)) {
            if !api.torch.has_storage(tensor)? {
                return Err(changed());
            }
        }
        let buffers = &mut self.buffers;
        let mut look = |number: usize| {
            if api.is_tensor(&kept[number]) {
                // SAFETY: the tensors are kept, and no other code runs before they are copied.
                return unsafe { api.torch.view(&kept[number]) };
            }
            buffers.push(Buffer::of(kept[number].as_borrowed())?);
            // SAFETY: the buffers live as long as the leaves.
            buffers.last().map(|buffer| unsafe { buffer.view() })
        };
        for leaf in &mut self.leaves {
            match &mut leaf.rows {
                Rows::Views(views, Some(first)) => {
                    for (number, view) in views.iter_mut().enumerate() {
                        let same = |new: &View<'_>| new.dtype == leaf.dtype && *new.shape == leaf.shape[1..];
                        *view = look(*first + number).filter(same).ok_or_else(changed)?;
                    }
                }
                Rows::Memory(start, number) => {
                    let same = |new: &View<'_>| {
                        new.dtype == leaf.dtype
                            && *new.shape == leaf.shape[..]
                            && new.own_strides() == leaf.strides.as_deref()
                    };
                    *start = look(*number).filter(same).ok_or_else(changed)?.data;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Finds tensors that share memory, and returns these pieces of memory as leaves.
    pub(crate) fn pieces(&mut self) -> PyResult<Vec<Leaf>> {
        let place = |(number, leaf): (usize, &Leaf)| match leaf.rows {
            Rows::Memory(start, _) if leaf.bytes > 0 => {
                Some(MemoryRange { storage: 0, start: start.addr(), end: start.addr() + leaf.bytes, number })
            }
            _ => None,
        };
        let mut places: Vec<_> = self.leaves.iter().enumerate().filter_map(place).collect();
        places.sort_unstable();
        // The storage needs to be known only for tensors that touch others.
        for run in runs(&places).into_iter().filter(|run| run.len() > 1) {
            for place in &mut places[run] {
                place.storage = self.storage(place.number)?;
            }
        }
        places.sort_unstable();
        let mut pieces = Vec::new();
        for run in runs(&places).into_iter().filter(|run| run.len() > 1) {
            pieces.extend(self.piece(&places[run], pieces.len()));
        }
        Ok(pieces)
    }

    /// Returns a number that identifies a tensor's storage.
    fn storage(&self, leaf: usize) -> PyResult<usize> {
        let Rows::Memory(_, kept) = self.leaves[leaf].rows else { return Ok(0) };
        let tensor = &self.kept[kept];
        let py = tensor.py();
        tensor.call_method0(intern!(py, "untyped_storage"))?.getattr(intern!(py, "_cdata"))?.extract()
    }

    /// Returns one leaf for the memory that several tensors share, and makes the tensors refer to
    /// it.
    fn piece(&mut self, views: &[MemoryRange], number: usize) -> Option<Leaf> {
        let first = views.first()?;
        let Rows::Memory(start, _) = self.leaves[first.number].rows else { return None };
        // torch counts offsets from the start in elements, whose sizes may differ, so unused bytes
        // are put in front.
        let mut leads = 0..16;
        let lead = leads.find(|lead| {
            views.iter().all(|view| {
                let size = self.leaves[view.number].dtype.bytes();
                size.is_some_and(|size| (view.start - first.start + lead).is_multiple_of(size))
            })
        })?;
        for view in views {
            self.leaves[view.number].rows = Rows::Part(number, view.start - first.start + lead);
        }
        let bytes = views.iter().map(|view| view.end).max()? - first.start + lead;
        let shape = vec![i64::try_from(bytes).ok()?];
        Some(Leaf { dtype: DType::U8, shape, strides: None, bytes, rows: Rows::Piece(lead, start) })
    }
}

/// Returns the error for a tensor that has changed while its batch was made.
#[cold]
fn changed() -> PyErr {
    PyRuntimeError::new_err(
        "a tensor or an array was resized while a batch was made of it, by code of a sample or of its collate function: leave it as it is there",
    )
}

/// The memory range of a tensor, ordered by storage and address.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct MemoryRange {
    /// The storage's number, or 0 if it is not known.
    storage: usize,
    start: usize,
    end: usize,
    number: usize,
}

/// Splits ascending ranges into groups of the same storage in which each range touches the ones
/// before it.
fn runs(places: &[MemoryRange]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut end = 0;
    for (k, place) in places.iter().enumerate() {
        match runs.last_mut() {
            // Adjacent ranges may be two parts of one tensor, so they stay together.
            Some(run) if place.start <= end && place.storage == places[run.start].storage => run.end = k + 1,
            _ => {
                runs.push(k..k + 1);
                end = 0;
            }
        }
        end = end.max(place.end);
    }
    runs
}

/// Returns whether an object is a Python value without parts.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyBytes>()
}

/// Makes a tuple or a list.
fn sequence<'py>(py: Python<'py>, values: Vec<Bound<'py, PyAny>>, is_tuple: bool) -> PyResult<Bound<'py, PyAny>> {
    Ok(if is_tuple { PyTuple::new(py, values)?.into_any() } else { PyList::new(py, values)?.into_any() })
}

/// Returns an item of a list or tuple.
fn item<'py>(sample: &Bound<'py, PyAny>, k: usize) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(tuple) = sample.cast::<PyTuple>() {
        return tuple.get_item(k);
    }
    sample.cast::<PyList>().map_err(PyErr::from)?.get_item(k)
}

/// Returns the leaf for rows of equal shape and type. `kept` is the index of the first row's tensor
/// in `Gathered::kept`.
pub(crate) fn stacked(views: Vec<View<'static>>, rows: i64, kept: Option<usize>) -> Option<Leaf> {
    let first = views.first()?;
    let (dtype, dims) = (first.dtype, first.shape);
    if !views.iter().all(|view| view.dtype == dtype && view.shape == dims) || keeps_order(first) {
        return None;
    }
    let shape: Vec<i64> = std::iter::once(rows).chain(dims.iter().copied()).collect();
    let bytes = size(&shape, dtype)?;
    Some(Leaf { dtype, shape, strides: None, bytes, rows: Rows::Views(views, kept) })
}

/// Returns whether torch would lay out a batch of such samples with permuted dimensions, as with
/// `channels_last`. It may do so if the samples are batches themselves, and is then called.
fn keeps_order(view: &View<'_>) -> bool {
    view.shape.len() >= 4 && view.is_permuted()
}

/// Returns the leaf for rows of one tensor. There must be at least one row.
pub(crate) fn taken(rows: RowView) -> Option<Leaf> {
    let first = rows.first();
    if keeps_order(first) {
        return None;
    }
    let count = i64::try_from(rows.len()).ok().filter(|&count| count > 0)?;
    let (dtype, shape) = (first.dtype, std::iter::once(count).chain(first.shape.iter().copied()).collect::<Vec<_>>());
    let bytes = size(&shape, dtype)?;
    Some(Leaf { dtype, shape, strides: None, bytes, rows: Rows::RowView(rows) })
}

/// Returns the values of a list of integers, which is sent as numbers; otherwise `None`.
pub(crate) fn integers(index: &Bound<'_, PyAny>) -> Option<Vec<i64>> {
    let list = index.cast_exact::<PyList>().ok()?;
    let mut integers = Vec::with_capacity(list.len());
    for value in list {
        integers.push(integer(&value)?);
    }
    Some(integers)
}

/// Returns the value of an `int`. Every index is read with this function, which is twice as fast as
/// `extract`.
fn integer(value: &Bound<'_, PyAny>) -> Option<i64> {
    if !value.is_exact_instance_of::<PyInt>() {
        return None;
    }
    // SAFETY: `value` is an `int`. If it is too large, Python sets an exception.
    let number = unsafe { ffi::PyLong_AsLongLong(value.as_ptr()) };
    if number == -1 && PyErr::take(value.py()).is_some() {
        return None;
    }
    Some(number)
}

/// Returns the length of a non-empty list that contains only `None`; otherwise `None`.
pub(crate) fn nones(index: &Bound<'_, PyAny>) -> Option<usize> {
    let list = index.cast_exact::<PyList>().ok()?;
    (!list.is_empty() && list.iter().all(|value| value.is_none())).then(|| list.len())
}

/// Makes a list of integers from their bytes.
pub(crate) fn list_of<'py>(py: Python<'py>, values: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let (values, _) = values.as_chunks::<8>();
    Ok(PyList::new(py, values.iter().map(|value| i64::from_ne_bytes(*value)))?.into_any())
}

const _: () = assert!(size_of::<ffi::Py_ssize_t>() == 8, "slotline for Python needs a 64-bit system");
