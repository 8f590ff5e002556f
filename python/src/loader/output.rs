//! Batches as arrays and tensors of Python, which share the batch's memory.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use slotline::Batch;
use slotline::sample::Dynamic;

use super::column::Column;
use super::failure;
use super::source::Node;
use super::tensor::{Memory, Tensor};
use crate::dlpack::{DType, Owner, Torch};

/// What the fields of a batch become.
enum Library {
    /// Arrays: `numpy.ndarray`.
    NumPy(Py<PyAny>),
    Torch(Torch),
    DLPack,
}

/// One field of every batch.
struct Field {
    /// NumPy's dtype, for arrays.
    numpy: Option<Py<PyAny>>,
    /// The type for tensors.
    kind: DType,
    name: Box<str>,
    /// The dimensions, with that of the rows first if there is one.
    shape: Box<[i64]>,
    /// The same, for a whole batch.
    whole: Py<PyTuple>,
    /// The bytes of a row.
    bytes: usize,
}

/// How a loader's batches look in Python.
pub(crate) struct Output {
    library: Library,
    fields: Vec<Field>,
    /// `None`: a batch is a tuple.
    names: Option<Vec<Py<PyString>>>,
    /// The rows of a whole batch; `None`: samples are not batched.
    rows: Option<usize>,
}

impl Output {
    pub(crate) fn new(
        py: Python<'_>,
        library: &str,
        names: Option<Vec<Py<PyString>>>,
        node: &Node,
        rows: Option<usize>,
    ) -> PyResult<Self> {
        let columns = node.columns();
        if let Some(names) = names.as_ref().filter(|names| names.len() != columns.len()) {
            let (names, fields) = (names.len(), columns.len());
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
        let field = |(place, column): (usize, &&Column)| {
            let (kind, arrays) = (column.kind(), matches!(found, Library::NumPy(_)));
            if if arrays { kind.numpy.is_none() } else { kind.dlpack.is_none() } {
                let (field, kind) = (name(place), kind.name());
                return Err(failure::invalid(
                    py,
                    format!(
                        "{field} has the type {kind}, which output={library:?} does not have; convert it, or choose another output"
                    ),
                ));
            }
            let dims = || rows.into_iter().chain(column.shape().iter().copied());
            Ok(Field {
                numpy: kind.numpy.as_ref().filter(|_| arrays).map(|kind| kind.clone_ref(py)),
                kind: kind.dlpack.unwrap_or_default(),
                name: kind.name().into(),
                shape: dims().map(|dim| dim as i64).collect(),
                whole: PyTuple::new(py, dims().collect::<Vec<_>>())?.unbind(),
                bytes: column.bytes(),
            })
        };
        let fields = columns.iter().enumerate().map(field).collect::<PyResult<_>>()?;
        Ok(Self { library: found, fields, names, rows })
    }

    /// Makes a batch of Python.
    pub(crate) fn make<'py>(&self, py: Python<'py>, batch: Batch<Dynamic>) -> PyResult<Bound<'py, PyAny>> {
        let rows = batch.len();
        let batch = Arc::new(batch);
        let mut place = 0;
        let mut next = || {
            let field = &self.fields[place];
            // A pointer and no reference, since whoever has the field may write to it.
            let memory = batch.columns().raw(place).map(|(_, memory)| memory.as_ptr().cast::<u8>());
            place += 1;
            self.field(py, field, memory.expect("the field was declared"), rows, &batch)
        };
        match &self.names {
            Some(names) => {
                let fields = PyDict::new(py);
                for name in names {
                    fields.set_item(name, next()?)?;
                }
                Ok(fields.into_any())
            }
            None => {
                let fields = self.fields.iter().map(|_| next()).collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, fields)?.into_any())
            }
        }
    }

    fn field<'py>(
        &self,
        py: Python<'py>,
        field: &Field,
        start: *mut u8,
        rows: usize,
        batch: &Arc<Batch<Dynamic>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let whole = self.rows.is_none_or(|whole| whole == rows);
        let mut short = None;
        if !whole {
            let mut dims = field.shape.clone();
            dims[0] = rows as i64;
            short = Some(dims);
        }
        let dims = short.as_ref().unwrap_or(&field.shape);
        match &self.library {
            Library::NumPy(array) => {
                let memory = Bound::new(py, Memory::new(start, rows * field.bytes, batch))?;
                let kind = field.numpy.as_ref();
                match whole {
                    true => array.bind(py).call1((&field.whole, kind, memory)),
                    false => array.bind(py).call1((PyTuple::new(py, dims)?, kind, memory)),
                }
            }
            Library::Torch(torch) => {
                // SAFETY: the batch has the elements there, which nobody else accesses while it exists.
                unsafe { torch.make(py, start, field.kind, (dims, None), Owner::Batch(batch.clone())) }
            }
            Library::DLPack => {
                let tensor = Tensor::new(start, field.kind, &field.name, dims, batch);
                Ok(Bound::new(py, tensor)?.into_any())
            }
        }
    }
}
