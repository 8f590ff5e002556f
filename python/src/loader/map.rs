//! Functions of the program that are called with a sample: those that make another one of it, and those that choose.

use std::fmt;
use std::sync::Arc;

use pyo3::basic::CompareOp;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};
use slotline::BoxError;
use slotline::dataset::Context;
use slotline::dtype::DType;
use slotline::rng::rand_core::Rng;
use slotline::sample::{OwnedSample, Row};

use super::calls;
use super::failure;
use super::field::{BFLOAT16, Field, Form, Kind, NumPy, Room};
use super::output::Output;
use super::pack::Read;
use super::source::Node;
use crate::{capsule, dlpack};

/// The number of elements that a batch has room for, for each of its samples. A field may have more.
const ROOM: Room = Room { items: 64, exceeded: true };

/// The names of a sample's fields; `None` if it is a tuple.
pub(crate) type Names = Option<Vec<Py<PyString>>>;

/// A field of a function's results: its NumPy dtype, the name of bfloat16 where NumPy does not have it, or `None` for a text;
/// and its shape.
pub(crate) type Declared<'py> = (Option<Bound<'py, PyAny>>, Vec<Option<usize>>);

/// A function of the program, and the samples that it is called with.
pub(crate) struct Function {
    /// The function, which [`Functions`] keep.
    function: Py<PyWeakrefReference>,
    input: Output,
    /// `slotline._rng.current`, which has the key of the random numbers.
    current: Py<PyAny>,
}

/// The functions that the samples of a node are made with.
///
/// They may refer to the dataset that they make, and Python's garbage collector does not see nodes.
/// So a node has weak references, and each object of Python that reads it has these.
#[derive(Default)]
pub(crate) struct Functions(Vec<Py<PyAny>>);

impl Functions {
    pub(crate) fn of(py: Python<'_>, node: &Node) -> Self {
        let mut found = Vec::new();
        node.visit_functions(&mut |function| found.extend(function.function.bind(py).upgrade().map(Bound::unbind)));
        Self(found)
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.iter().map(|function| function.clone_ref(py)).collect())
    }

    /// Shows them to the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.iter().try_for_each(|function| visit.call(function))
    }
}

/// What a function returns.
pub(crate) struct Results {
    names: Names,
    fields: Box<[Field]>,
}

/// The samples that a function makes of those of another dataset.
pub(crate) struct Mapped {
    samples: Arc<Node>,
    function: Function,
    results: Results,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("samples", &self.samples).finish_non_exhaustive()
    }
}

/// Draws the key of the random numbers of one call: a function of the loader's seed and the sample's position.
pub(crate) fn key(cx: &mut Context) -> [u64; 2] {
    let rng = cx.part(0).rng();
    [rng.next_u64(), rng.next_u64()]
}

impl Function {
    /// `names` are those of the fields of the samples of `node`.
    pub(crate) fn new(function: &Bound<'_, PyAny>, node: &Node, names: Names) -> PyResult<Self> {
        let py = function.py();
        calls::watch(py)?;
        let input = Output::new(py, "numpy", (false, false), names, node, None)?;
        let function = PyWeakrefReference::new(function)?.unbind();
        Ok(Self { function, input, current: py.import("slotline._rng")?.getattr("current")?.unbind() })
    }

    fn call<'py>(&self, py: Python<'py>, sample: &OwnedSample, key: [u64; 2]) -> PyResult<Bound<'py, PyAny>> {
        let gone = || failure::invalid(py, "no dataset, loader or iterator has this function any more".to_owned());
        let function = self.function.bind(py).upgrade().ok_or_else(gone)?;
        let (current, attribute) = (self.current.bind(py), intern!(py, "key"));
        let sample = self.input.sample(py, sample)?;
        let before = current.getattr(attribute)?;
        current.setattr(attribute, ((key[0], key[1]), py.None()))?;
        let result = function.call1((sample,));
        current.setattr(attribute, before)?;
        result
    }

    /// Returns whether the function's result is true.
    #[cfg(feature = "files")] // Only streams are filtered by the engine.
    pub(crate) fn chooses(&self, sample: &OwnedSample, key: [u64; 2]) -> Result<bool, BoxError> {
        calls::attached(|py| self.call(py, sample, key)?.is_truthy())
    }

    /// Writes the chosen fields of the function's result.
    pub(crate) fn write(
        &self,
        sample: &OwnedSample,
        key: [u64; 2],
        results: &Results,
        mut chosen: impl Iterator<Item = usize>,
        row: &mut Row<'_>,
    ) -> Result<(), BoxError> {
        calls::attached(|py| {
            let values = results.values(&self.call(py, sample, key)?)?;
            chosen.try_for_each(|field| results.write(field, &values[field], row))
        })
    }
}

impl Results {
    pub(crate) fn new(py: Python<'_>, names: Names, fields: Vec<Declared<'_>>) -> PyResult<Self> {
        let invalid = |what: String| failure::invalid(py, what);
        let field = |(place, (dtype, dims)): (usize, Declared<'_>)| {
            let name = described(&names, place);
            let Some(dtype) = dtype else {
                let kind = Kind::of_engine(py, DType::U8).expect("NumPy has bytes")?;
                return Ok(Field { kind, shape: Box::default(), form: Form::Text(ROOM) });
            };
            let kind = match dtype.is_instance_of::<PyString>() {
                true => Kind::bfloat16(),
                false if dtype.getattr("hasobject")?.is_truthy()? => {
                    return Err(invalid(format!(
                        "{name} holds Python objects; return numbers, texts and arrays of numbers"
                    )));
                }
                false => Kind::of_numpy(&dtype)?,
            };
            if let Some(shape) = dims.iter().copied().collect::<Option<Vec<_>>>() {
                return Field::fixed(kind, &shape).map_err(|what| invalid(format!("{name} {what}")));
            }
            let same =
                |dtype: &DType, of: dlpack::DType| (dtype.kind() as u8, 8 * dtype.size()) == (of.code, of.bits.into());
            let dtype = kind.dlpack.and_then(|of| DType::ALL.iter().copied().find(|dtype| same(dtype, of)));
            let item = dims.get(1..).and_then(|item| item.iter().copied().collect::<Option<Vec<_>>>());
            match (dtype, item) {
                (Some(dtype), Some(item)) if !item.contains(&0) => Ok(Field::items(kind, dtype, &item, ROOM)),
                _ => {
                    let kind = kind.name();
                    let hint = "only the first dimension of numbers may have any length, as in (None,) and (None, 4)";
                    Err(invalid(format!("{name} has the type {kind} and {} dimensions, but {hint}", dims.len())))
                }
            }
        };
        let fields = fields.into_iter().enumerate().map(field).collect::<PyResult<_>>()?;
        Ok(Self { names, fields })
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the value of each field.
    fn values<'py>(&self, result: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = result.py();
        let found = match (&self.names, result.cast::<PyDict>(), result.cast::<PyTuple>()) {
            (Some(names), Ok(dict), _) if dict.len() == names.len() => {
                names.iter().map(|name| dict.get_item(name)).collect::<PyResult<Option<_>>>()?
            }
            (None, _, Ok(tuple)) if tuple.len() == self.fields.len() => Some(tuple.iter().collect()),
            _ => None,
        };
        found.ok_or_else(|| {
            let expected = match &self.names {
                Some(names) => format!(
                    "a dict with {}",
                    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
                ),
                None => format!("a tuple of {}", self.fields.len()),
            };
            let found = result.repr().map_or_else(|_| String::new(), |repr| repr.to_string());
            let found: String = found.chars().take(200).collect();
            failure::invalid(py, format!("the function returned {found}; it must return {expected}"))
        })
    }

    /// Writes the value of a field.
    fn write(&self, place: usize, value: &Bound<'_, PyAny>, row: &mut Row<'_>) -> PyResult<()> {
        let (py, field) = (value.py(), &self.fields[place]);
        let invalid = |what: String| failure::invalid(py, format!("{} {what}", described(&self.names, place)));
        let failed = |error: slotline::sample::Mismatch| invalid(format!("can't be written: {error}"));
        if let Form::Text(_) = field.form {
            // An array without dimensions may be a text, too.
            let item = match value.is_instance(NumPy::get(py)?.array.bind(py))? {
                true => value.call_method0(intern!(py, "item")).unwrap_or_else(|_| value.clone()),
                false => value.clone(),
            };
            let Ok(text) = item.cast::<PyString>() else {
                return Err(invalid(format!("is a {}, but a str was declared", value.get_type().name()?)));
            };
            return row.write_bytes(DType::U8, text.to_str()?.as_bytes()).map_err(failed);
        }
        let array = as_array(value, &field.kind)?;
        let shape: Vec<usize> = array.getattr(intern!(py, "shape"))?.extract()?;
        let bytes = || PyResult::Ok(array.call_method0(intern!(py, "tobytes"))?.cast_into::<PyBytes>()?);
        match field.form {
            Form::Items(dtype, ..) if shape.get(1..) == Some(&field.shape) => {
                row.write_bytes(dtype, bytes()?.as_bytes()).map_err(failed)
            }
            Form::Fixed(size) if *shape == *field.shape => {
                let to = row.fill_raw().map_err(failed)?.cast::<u8>();
                // Another thread may write to the array meanwhile, so no reference to its memory is made.
                let copy = |from: *const u8| {
                    // SAFETY: the field was declared with `size` bytes, and the array has as many in C order, since it
                    // has the declared type and shape.
                    unsafe { to.as_ptr().copy_from_nonoverlapping(from, size) };
                };
                match PyUntypedBuffer::get(&array) {
                    Ok(buffer) if buffer.is_c_contiguous() && buffer.len_bytes() == size => {
                        copy(buffer.buf_ptr().cast());
                        buffer.release(py);
                    }
                    // Not contiguous, or of a type that has no buffers, such as dates.
                    _ => copy(bytes()?.as_bytes().as_ptr()),
                }
                Ok(())
            }
            _ => Err(invalid(format!(
                "has shape {shape:?}, but {} was declared, or found in the first sample; pass fields, with the shape (None,) if \
                 the length differs",
                field.about()
            ))),
        }
    }
}

/// Names a field in errors.
fn described(names: &Names, place: usize) -> String {
    names.as_ref().map_or_else(|| format!("field {place}"), |names| format!("field '{}'", names[place]))
}

/// Returns the array of a value, with elements of this type. If it is bfloat16, they may be integers of the same bits.
fn as_array<'py>(value: &Bound<'py, PyAny>, kind: &Kind) -> PyResult<Bound<'py, PyAny>> {
    let (py, numpy) = (value.py(), NumPy::get(value.py())?);
    if kind.is_bfloat16()
        && !value.is_instance(numpy.array.bind(py))?
        && let Some(array) = bits_of_bfloat16(value, numpy)?
    {
        return Ok(array);
    }
    let array = numpy.asarray.bind(py).call1((value,))?;
    let own = array.getattr(intern!(py, "dtype"))?;
    let Some(dtype) = kind.numpy.as_ref().map(|dtype| dtype.bind(py)) else {
        if own.str()? == BFLOAT16 {
            return Ok(array);
        }
        let what =
            format!("expected bfloat16, found {own}; return a tensor of torch.bfloat16, or an array of ml_dtypes");
        return Err(failure::invalid(py, what));
    };
    if own.is(dtype) || own.eq(dtype)? {
        return Ok(array);
    }
    let letter = |of: &Bound<'py, PyAny>| of.getattr(intern!(py, "kind"))?.extract::<char>();
    // A character of type `U` has four bytes.
    let characters = |of: &Bound<'py, PyAny>| {
        let bytes = of.getattr(intern!(py, "itemsize"))?.extract::<usize>()?;
        Ok::<_, PyErr>(if letter(of)? == 'U' { bytes / 4 } else { bytes })
    };
    // With `same_kind`, NumPy cuts texts and bytes that are longer than those of the type, and makes
    // texts of numbers.
    let is_text = |letter| matches!(letter, 'S' | 'U' | 'V');
    if is_text(letter(dtype)?) {
        let problem = match is_text(letter(&own)?) {
            true if characters(&own)? <= characters(dtype)? => None,
            true => Some(format!("{own} is longer than {dtype}, which was declared or found first")),
            false => Some(format!("{own} is no text, and {dtype} was declared or found first")),
        };
        if let Some(problem) = problem {
            let what =
                "return a str; or for bytes numpy.frombuffer(value, 'uint8'), with fields that have the shape (None,)";
            return Err(failure::invalid(py, format!("{problem}; {what}")));
        }
    }
    // NumPy makes an array of floats from an empty list.
    let is_empty = array.getattr(intern!(py, "size"))?.eq(0)?;
    let options = PyDict::new(py);
    options.set_item("casting", if is_empty { "unsafe" } else { "same_kind" })?;
    let made = array.call_method("astype", (dtype,), Some(&options))?;
    // The rule also lets integers wrap.
    let are_integers = [&own, dtype].into_iter().all(|of| letter(of).is_ok_and(|letter| matches!(letter, 'i' | 'u')));
    if are_integers && !made.rich_compare(&array, CompareOp::Eq)?.call_method0(intern!(py, "all"))?.is_truthy()? {
        let what = "pass fields with a larger type, or make the value smaller";
        return Err(failure::invalid(py, format!("a value of {own} is beyond {dtype}, the type of the field; {what}")));
    }
    Ok(made)
}

/// Returns the elements of a tensor of bfloat16 as integers, in an array of NumPy; `None` for other objects.
fn bits_of_bfloat16<'py>(value: &Bound<'py, PyAny>, numpy: &NumPy) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    if !value.hasattr(intern!(py, "__dlpack__"))? {
        return Ok(None);
    }
    let capsule = capsule::of(value)?;
    // SAFETY: the capsule outlives the view.
    let view = unsafe { capsule::view(&capsule) }.map_err(|what| failure::invalid(py, format!("a tensor {what}")))?;
    let Some(bytes) = view.bytes().filter(|_| Some(view.dtype) == Kind::bfloat16().dlpack) else { return Ok(None) };
    let bits = PyBytes::new_with(py, bytes, |to| {
        // SAFETY: there is room for all elements, which the capsule keeps alive.
        unsafe { view.copy(to.as_mut_ptr()) };
        Ok(())
    })?;
    numpy.array.bind(py).call1((PyTuple::new(py, view.shape)?, "u2", bits)).map(Some)
}

impl Mapped {
    pub(crate) fn new(samples: Arc<Node>, function: Function, results: Results) -> Self {
        Self { samples, function, results }
    }

    pub(crate) fn samples(&self) -> &Arc<Node> {
        &self.samples
    }

    pub(crate) fn function(&self) -> &Function {
        &self.function
    }

    pub(crate) fn fields(&self) -> &[Field] {
        self.results.fields()
    }

    /// Writes the chosen fields of a sample.
    pub(crate) fn write(
        &self,
        chosen: impl Iterator<Item = usize>,
        index: usize,
        row: &mut Row<'_>,
        cx: &mut Context,
    ) -> Result<(), BoxError> {
        let place = std::ptr::from_ref(self).addr();
        let mut sample = Read::take(cx, place, &self.samples)?;
        sample.fill(|row| self.samples.write(index, row, cx))?;
        self.function.write(&sample, key(cx), &self.results, chosen, row)?;
        Read::put(cx, place, sample);
        Ok(())
    }
}
