//! Batches as Python arrays and tensors that share the batch's memory.
//!
//! A field of varying length is a list with one array for each sample, or a list of strings. The
//! samples are contiguous in the batch's memory, so the whole field can also be returned as one
//! array with the samples' offsets.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyString, PyTuple};
use slotline::Batch;
use slotline::dtype;
use slotline::sample::{Columns, Dynamic, OwnedSample};

use super::failure;
use super::field::{self, Form, Kind};
use super::source::Node;
use super::tensor::{Memory, Tensor};
use crate::dlpack::{DType, Owner, Torch};
use crate::pool::Copied;

/// The library whose arrays or tensors the fields of a batch become.
enum Library {
    /// `numpy.ndarray`, whose constructor makes the arrays.
    NumPy(Py<PyAny>),
    Torch(Torch),
    DLPack,
}

/// The element type of an array or tensor.
struct Elements {
    /// NumPy's dtype, for arrays.
    numpy: Option<Py<PyAny>>,
    /// DLPack's type, for tensors.
    kind: DType,
    name: Box<str>,
    /// The size of an element in bytes.
    size: usize,
}

impl Elements {
    fn new(py: Python<'_>, kind: &Kind) -> Self {
        Self {
            numpy: kind.numpy.as_ref().map(|numpy| numpy.clone_ref(py)),
            kind: kind.dlpack.unwrap_or_default(),
            name: kind.name().into(),
            size: kind.size,
        }
    }
}

/// The dimensions of a field in a batch.
enum Shape {
    Fixed {
        /// The dimensions, beginning with that of the rows unless samples are not batched.
        dims: Box<[i64]>,
        /// The dimensions of a full batch as a Python tuple.
        whole: Py<PyTuple>,
    },
    /// The dimensions of an item.
    Items(Box<[i64]>),
    Text,
}

impl Shape {
    /// Returns the dimensions of as many items as `len`.
    fn dims(&self, len: i64) -> Vec<i64> {
        let item: &[i64] = if let Self::Items(item) = self { item } else { &[] };
        [&[len], item].concat()
    }
}

/// One field of each batch.
struct Field {
    elements: Elements,
    shape: Shape,
    /// Whether its arrays have memory of their own, because the field is a small part of a batch.
    is_small: bool,
    /// How a field of varying length is padded, if it is.
    padding: Option<Padding>,
}

/// How a field is padded to the longest sample of a batch.
struct Padding {
    /// The bytes of the element that pads it.
    element: Box<[u8]>,
    /// The number that the padded length is a multiple of.
    multiple: usize,
    /// The type of masks.
    mask: Elements,
}

/// How many times as large as a small field the batch is at least. If the program keeps small fields, such as the labels of all
/// pictures, it does not keep the batches.
const SMALL: usize = 32;

/// How a loader's batches are represented in Python.
pub(crate) struct Output {
    library: Library,
    fields: Vec<Field>,
    /// The names of the fields; `None` if a batch is a tuple.
    names: Option<Vec<Py<PyString>>>,
    /// The number of rows in a full batch; `None` if samples are not batched.
    rows: Option<usize>,
    /// The type of offsets, if fields of varying length become one array with offsets.
    offsets: Option<Elements>,
    /// The name of the samples' indices, and their type, if a batch has them.
    index: Option<(Py<PyString>, Elements)>,
}

impl Output {
    /// `rows`: the number of rows in a full batch; `None` if samples are not batched.
    pub(crate) fn new(
        py: Python<'_>,
        library: &str,
        (packed, include_index): (bool, bool),
        names: Option<Vec<Py<PyString>>>,
        node: &Node,
        rows: Option<usize>,
    ) -> PyResult<Self> {
        let list = node.list();
        if let Some(names) = names.as_ref().filter(|names| names.len() != list.len()) {
            let (names, fields) = (names.len(), list.len());
            return Err(failure::invalid(py, format!("there are {names} names, but a sample has {fields} fields")));
        }
        let found = match library {
            "numpy" => Library::NumPy(py.import("numpy")?.getattr("ndarray")?.unbind()),
            "torch" => Library::Torch(Torch::new(py)?),
            "dlpack" => Library::DLPack,
            _ => {
                let hint = "it must be \"numpy\", \"torch\" or \"dlpack\"";
                return Err(failure::option(py, format!("output is {library:?}; {hint}")));
            }
        };
        let name = |place: usize| match &names {
            Some(names) => format!("field '{}'", names[place]),
            None => format!("field {place}"),
        };
        let bytes = |field: &field::Field| match field.form {
            Form::Fixed(bytes) => bytes,
            Form::Items(_, elements, room) => room.items.saturating_mul(elements).saturating_mul(field.kind.size),
            Form::Text(room) => room.items,
        };
        let total = list.iter().map(|field| bytes(field)).fold(0, usize::saturating_add);
        let field = |(place, field): (usize, &&field::Field)| {
            let (kind, arrays) = (&field.kind, matches!(found, Library::NumPy(_)));
            if if arrays { kind.numpy.is_none() } else { kind.dlpack.is_none() } {
                let (field, kind) = (name(place), kind.name());
                return Err(failure::invalid(
                    py,
                    format!(
                        "{field} has the type {kind}, which output={library:?} does not have; convert it, or choose another output"
                    ),
                ));
            }
            let shape = match field.form {
                Form::Items(..) => Shape::Items(field.shape.iter().map(|&dim| dim as i64).collect()),
                Form::Text(_) => Shape::Text,
                Form::Fixed(_) => {
                    let dims: Vec<usize> = rows.into_iter().chain(field.shape.iter().copied()).collect();
                    let whole = PyTuple::new(py, &dims)?.unbind();
                    Shape::Fixed { dims: dims.into_iter().map(|dim| dim as i64).collect(), whole }
                }
            };
            let is_small = matches!(shape, Shape::Fixed { .. }) && bytes(field).saturating_mul(SMALL) <= total;
            Ok(Field { elements: Elements::new(py, kind), shape, is_small, padding: None })
        };
        let fields = list.iter().enumerate().map(field).collect::<PyResult<_>>()?;
        let integers = || {
            let kind = Kind::of_engine(py, dtype::DType::I64).transpose();
            kind.map(|kind| kind.map(|kind| Elements::new(py, &kind)))
        };
        let offsets = if packed { integers()? } else { None };
        let index = if include_index { integers()? } else { None };
        let index = index.map(|index| (PyString::intern(py, "index").unbind(), index));
        Ok(Self { library: found, fields, names, rows, offsets, index })
    }

    /// Pads fields of varying length with these elements, given as bytes, to a multiple of a number. Each becomes a pair: an
    /// array, and a mask of the elements that are not padding.
    pub(crate) fn pad(&mut self, py: Python<'_>, padding: Vec<Option<Vec<u8>>>, multiple_of: usize) -> PyResult<()> {
        let Some(kind) = Kind::of_engine(py, dtype::DType::Bool).transpose()? else { return Ok(()) };
        for (field, element) in self.fields.iter_mut().zip(padding) {
            let Some(element) = element else { continue };
            if element.len() != field.elements.size || matches!(field.shape, Shape::Fixed { .. }) {
                return Err(failure::option(py, "padding is for elements of fields of varying length"));
            }
            let (element, multiple) = (element.into(), multiple_of.max(1));
            field.padding = Some(Padding { element, multiple, mask: Elements::new(py, &kind) });
        }
        Ok(())
    }

    /// Converts a batch to Python objects.
    pub(crate) fn make<'py>(&self, py: Python<'py>, batch: Batch<Dynamic>) -> PyResult<Bound<'py, PyAny>> {
        let batch = Arc::new(batch);
        let owned = |memory| Ok((memory, Owner::Batch(batch.clone())));
        self.of(py, &batch.columns(), batch.len(), batch.indices(), owned)
    }

    /// Converts a copy of a single sample to Python objects.
    pub(crate) fn sample<'py>(&self, py: Python<'py>, sample: &OwnedSample) -> PyResult<Bound<'py, PyAny>> {
        self.of(py, &sample.columns(), 1, &[], |memory| copied(memory.cast(), memory.len()))
    }

    /// Converts fields to Python objects. `owned` returns the memory for an array over some of theirs, and its owner.
    fn of<'py>(
        &self,
        py: Python<'py>,
        columns: &Columns<'_>,
        rows: usize,
        indices: &[i64],
        owned: impl Fn(NonNull<[u8]>) -> PyResult<(NonNull<[u8]>, Owner)>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fields = self.fields.iter().enumerate();
        let mut fields = fields.map(|(place, field)| self.field(py, place, field, columns, rows, &owned));
        match &self.names {
            Some(names) => {
                let dict = PyDict::new(py);
                for (name, field) in names.iter().zip(fields) {
                    dict.set_item(name, field?)?;
                }
                if let Some((name, kind)) = &self.index {
                    dict.set_item(name, self.indices(py, kind, indices)?)?;
                }
                Ok(dict.into_any())
            }
            None => {
                let mut fields = fields.by_ref().collect::<PyResult<Vec<_>>>()?;
                if let Some((_, kind)) = &self.index {
                    fields.push(self.indices(py, kind, indices)?);
                }
                Ok(PyTuple::new(py, fields)?.into_any())
            }
        }
    }

    /// Makes an array of the samples' indices, or of the index of the only one.
    fn indices<'py>(&self, py: Python<'py>, kind: &Elements, indices: &[i64]) -> PyResult<Bound<'py, PyAny>> {
        match self.rows {
            Some(_) => self.copy(py, kind, indices, &[indices.len() as i64]),
            None => self.copy(py, kind, &indices[..1], &[]),
        }
    }

    /// Makes an array of a copy of integers, since the engine relies on its own.
    fn copy<'py>(&self, py: Python<'py>, kind: &Elements, from: &[i64], dims: &[i64]) -> PyResult<Bound<'py, PyAny>> {
        let (memory, owner) = copied(NonNull::from(from).cast(), size_of_val(from))?;
        self.array(py, kind, memory, (dims, None), owner)
    }

    fn field<'py>(
        &self,
        py: Python<'py>,
        place: usize,
        field: &Field,
        columns: &Columns<'_>,
        rows: usize,
        owned: &impl Fn(NonNull<[u8]>) -> PyResult<(NonNull<[u8]>, Owner)>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A pointer instead of a reference, since the owner of the field may write to it.
        let (_, memory) = columns.raw(place).expect("the field was declared");
        if let Shape::Fixed { dims, whole } = &field.shape {
            let (memory, owner) = if field.is_small { copied(memory.cast(), memory.len())? } else { owned(memory)? };
            if self.rows.is_none_or(|whole| whole == rows) {
                return self.array(py, &field.elements, memory, (dims, Some(whole)), owner);
            }
            let mut dims = dims.clone();
            dims[0] = rows as i64;
            return self.array(py, &field.elements, memory, (&dims, None), owner);
        }
        let offsets = columns.offsets(place).expect("the field is packed");
        if let Some(padding) = &field.padding {
            return self.padded(py, field, padding, memory, offsets);
        }
        if let Some(kind) = &self.offsets {
            let dims = field.shape.dims(offsets.last().copied().unwrap_or_default());
            let (memory, owner) = owned(memory)?;
            let values = self.array(py, &field.elements, memory, (&dims, None), owner)?;
            let offsets = self.copy(py, kind, offsets, &[offsets.len() as i64])?;
            return Ok((values, offsets).into_pyobject(py)?.into_any());
        }
        let mut samples = match field.shape {
            Shape::Text => texts(py, memory, offsets)?,
            _ => {
                let (memory, owner) = owned(memory)?;
                self.items(py, field, memory, offsets, owner)?
            }
        };
        match self.rows {
            Some(_) => Ok(PyList::new(py, samples)?.into_any()),
            None => Ok(samples.swap_remove(0)),
        }
    }

    /// Returns the samples as one array, padded to the longest, and the mask of what is not padding.
    fn padded<'py>(
        &self,
        py: Python<'py>,
        Field { elements, shape, .. }: &Field,
        Padding { element, multiple, mask }: &Padding,
        memory: NonNull<[u8]>,
        offsets: &[i64],
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the memory belongs to the batch, and no array refers to it.
        let all = unsafe { memory.as_ref() };
        let samples = || offsets.windows(2).map(|pair| pair[0] as usize..pair[1] as usize);
        let rows = offsets.len() - 1;
        let longest = samples().map(|sample| sample.len()).max().unwrap_or_default();
        let too_large =
            || PyMemoryError::new_err(format!("there is no memory for {rows} samples, padded to {longest}"));
        let width = longest.checked_next_multiple_of(*multiple).ok_or_else(too_large)?;
        let dims = [&[rows as i64], &*shape.dims(width as i64)].concat();
        let item = elements.size * shape.dims(1).iter().product::<i64>() as usize;
        let bytes = width.checked_mul(item).and_then(|row| row.checked_mul(rows)).ok_or_else(too_large)?;
        let is_zero = element.iter().all(|&byte| byte == 0);
        let values = Copied::filled(bytes, |to| {
            for (sample, to) in samples().zip(to.chunks_exact_mut((width * item).max(1))) {
                let (own, rest) = to.split_at_mut(sample.len() * item);
                own.copy_from_slice(&all[sample.start * item..sample.end * item]);
                if !is_zero {
                    rest.chunks_exact_mut(element.len()).for_each(|to| to.copy_from_slice(element));
                }
            }
        })?;
        let present = Copied::filled(rows * width, |to| {
            samples().zip(to.chunks_exact_mut(width.max(1))).for_each(|(sample, to)| to[..sample.len()].fill(1));
        })?;
        let array = |of: &Elements, memory: Copied, bytes, dims: &[i64]| {
            let start = NonNull::slice_from_raw_parts(memory.start(), bytes);
            self.array(py, of, start, (dims, None), Owner::Own(Arc::new(memory)))
        };
        let mask = array(mask, present, rows * width, &dims[..2])?;
        Ok((array(elements, values, bytes, &dims)?, mask).into_pyobject(py)?.into_any())
    }

    /// Returns an array for each sample.
    fn items<'py>(
        &self,
        py: Python<'py>,
        Field { elements, shape, .. }: &Field,
        memory: NonNull<[u8]>,
        offsets: &[i64],
        owner: Owner,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let pairs = offsets.windows(2).map(|pair| (pair[0], pair[1]));
        if let Library::NumPy(_) = self.library {
            // Slicing a NumPy array is faster than creating one.
            let dims = shape.dims(offsets.last().copied().unwrap_or_default());
            let all = self.array(py, elements, memory, (&dims, None), owner)?;
            return pairs.map(|(start, end)| all.get_item(PySlice::new(py, start as isize, end as isize, 1))).collect();
        }
        let item = elements.size * shape.dims(1).iter().product::<i64>() as usize;
        let sample = |(start, end): (i64, i64)| {
            // SAFETY: the offsets are within the field's memory.
            let first = unsafe { memory.cast::<u8>().add(start as usize * item) };
            let memory = NonNull::slice_from_raw_parts(first, (end - start) as usize * item);
            self.array(py, elements, memory, (&shape.dims(end - start), None), owner.clone())
        };
        pairs.map(sample).collect()
    }

    /// Creates an array over memory that contains its elements, and that no other code accesses
    /// while the owner exists. `dims` may also be given as a tuple.
    fn array<'py>(
        &self,
        py: Python<'py>,
        elements: &Elements,
        memory: NonNull<[u8]>,
        (dims, tuple): (&[i64], Option<&Py<PyTuple>>),
        owner: Owner,
    ) -> PyResult<Bound<'py, PyAny>> {
        let start = memory.cast::<u8>().as_ptr();
        match &self.library {
            Library::NumPy(array) => {
                let memory = Bound::new(py, Memory::new(start, memory.len(), owner))?;
                match tuple {
                    Some(dims) => array.bind(py).call1((dims, &elements.numpy, memory)),
                    None => array.bind(py).call1((PyTuple::new(py, dims)?, &elements.numpy, memory)),
                }
            }
            Library::Torch(torch) => {
                // SAFETY: all callers pass memory that contains the elements, and that no other
                // code accesses while the owner exists.
                unsafe { torch.make(py, start, elements.kind, (dims, None), owner) }
            }
            Library::DLPack => {
                Ok(Bound::new(py, Tensor::new(start, elements.kind, &elements.name, dims, owner))?.into_any())
            }
        }
    }
}

/// Copies bytes of a batch, and returns the copy and its owner.
fn copied(from: NonNull<u8>, bytes: usize) -> PyResult<(NonNull<[u8]>, Owner)> {
    // SAFETY: all callers pass the start and the size of memory of a batch or a sample that only they use.
    let copy = Arc::new(unsafe { Copied::new(from.as_ptr(), bytes)? });
    Ok((NonNull::slice_from_raw_parts(copy.start(), bytes), Owner::Own(copy)))
}

/// Returns a string for each sample.
fn texts<'py>(py: Python<'py>, memory: NonNull<[u8]>, offsets: &[i64]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    // SAFETY: the memory belongs to the batch, and no array refers to it.
    let bytes = unsafe { memory.as_ref() };
    let text = |pair: &[i64]| PyString::from_bytes(py, &bytes[pair[0] as usize..pair[1] as usize]);
    offsets.windows(2).map(|pair| Ok(text(pair)?.into_any())).collect()
}
