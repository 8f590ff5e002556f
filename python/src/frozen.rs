//! Objects of Python in memory that is never written again.
//!
//! Python writes to every object that it uses, to count references. So forked worker processes that
//! share a list of objects soon have copies of it. [`freeze`] instead writes the objects into a file
//! without a name, which processes map. The file contains one record for each object, then a table
//! of the combinations of keys that dicts have, then the offset of each record. [`Columns`] makes a
//! new object from a record on each access.
//!
//! A value is a tag, followed by data that depends on the tag. Numbers are varints, and lengths come
//! before contents. Objects of other types (paths, arrays) are stored as tuples: `split` and `join`
//! of `slotline._frozen` convert them.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use memmap2::Mmap;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use slotline_python_shielded::shielded;

use crate::detached::detached;
use crate::loader::failure;
use crate::memory;

const NONE: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
/// An integer of 64 bits.
const INT: u8 = 3;
/// A larger integer: its bytes, least significant first.
const LONG: u8 = 4;
const FLOAT: u8 = 5;
const STR: u8 = 6;
/// A string that is not valid as UTF-8.
const SURROGATES: u8 = 7;
const BYTES: u8 = 8;
const LIST: u8 = 9;
const TUPLE: u8 = 10;
/// A dict: the number of its combination of keys in the table, and the values.
const DICT: u8 = 11;
/// A dict whose keys are not in the table because it is full: the keys and the values.
const KEYED: u8 = 12;
/// An object of another type: the tuple from which `join` makes it.
const OTHER: u8 = 13;

/// The maximum depth of nested containers.
const DEEPEST: usize = 100;
/// The most combinations of keys in the table. Each process keeps all of them as objects.
const SHAPES: usize = 4096;
/// The most bytes of a combination of keys in the table.
const SHAPE: usize = 4096;
/// The number of bytes to write to the file at once.
const CHUNK: usize = 1 << 20;
/// The size in bytes of the numbers at the end of the file: the starts of the table and of the
/// offsets, and the number of records.
const TAIL: usize = 24;

/// The reason why objects cannot be frozen.
enum Failure {
    /// One of them, with its place in the record.
    Refused(String, String),
    Other(PyErr),
}

impl Failure {
    fn at(self, place: impl Display) -> Self {
        match self {
            Self::Refused(inner, reason) => Self::Refused(format!("{place}{inner}"), reason),
            other => other,
        }
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Other(error)
    }
}

struct Writer<'py> {
    py: Python<'py>,
    file: File,
    /// The number of bytes written to the file so far.
    written: usize,
    /// The bytes that follow and are not written yet.
    next: Vec<u8>,
    offsets: Vec<usize>,
    /// The numbers of combinations of keys.
    shapes: HashMap<Box<[u8]>, usize>,
    /// The combinations of keys, in the order of their numbers.
    table: Vec<u8>,
}

impl<'py> Writer<'py> {
    fn records(&mut self, objects: &Bound<'py, PyAny>) -> PyResult<()> {
        for (k, object) in objects.try_iter()?.enumerate() {
            self.offsets.push(self.end());
            self.value(&object?, 0).map_err(|failure| match failure.at(format_args!("[{k}]")) {
                Failure::Refused(place, reason) => PyTypeError::new_err(format!("objects{place} {reason}")),
                Failure::Other(error) => error,
            })?;
            if self.next.len() >= CHUNK {
                self.flush()?;
                self.py.check_signals()?;
            }
        }
        Ok(())
    }

    fn end(&self) -> usize {
        self.written + self.next.len()
    }

    fn flush(&mut self) -> PyResult<()> {
        let Self { file, next, .. } = self;
        detached(self.py, || file.write_all(next))?;
        self.written += self.next.len();
        self.next.clear();
        Ok(())
    }

    /// Writes everything that follows the records.
    fn finish(mut self) -> PyResult<File> {
        let table = self.end();
        self.next.extend_from_slice(&std::mem::take(&mut self.table));
        let offsets = self.end();
        let width = width(table);
        for offset in std::mem::take(&mut self.offsets) {
            self.next.extend_from_slice(&offset.to_le_bytes()[..width]);
            if self.next.len() >= CHUNK {
                self.flush()?;
            }
        }
        let count = (self.end() - offsets) / width;
        self.next.extend([table, offsets, count].into_iter().flat_map(usize::to_le_bytes));
        self.flush()?;
        Ok(self.file)
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.next.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.next.push(number as u8);
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.next.push(tag);
        self.number(bytes.len() as u64);
        self.next.extend_from_slice(bytes);
    }

    fn value(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> Result<(), Failure> {
        if depth > DEEPEST {
            let reason = format!(
                "is in more than {DEEPEST} containers: freeze takes no deeper ones, and none that contain themselves"
            );
            return Err(Failure::Refused(String::new(), reason));
        }
        if let Ok(text) = value.cast_exact::<PyString>() {
            match text.encode_utf8() {
                Ok(bytes) => self.bytes(STR, bytes.as_bytes()),
                Err(_) => {
                    let bytes = text.call_method1(intern!(self.py, "encode"), ("utf-8", "surrogatepass"))?;
                    self.bytes(SURROGATES, bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
                }
            }
        } else if let Ok(integer) = value.cast_exact::<PyInt>() {
            self.integer(integer)?;
        } else if let Ok(float) = value.cast_exact::<PyFloat>() {
            self.next.push(FLOAT);
            self.next.extend(float.value().to_le_bytes());
        } else if let Ok(flag) = value.cast_exact::<PyBool>() {
            self.next.push(if flag.is_true() { TRUE } else { FALSE });
        } else if value.is_none() {
            self.next.push(NONE);
        } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            self.bytes(BYTES, bytes.as_bytes());
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            self.values(LIST, &list.to_tuple(), depth)?;
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            self.values(TUPLE, tuple, depth)?;
        } else if let Ok(dict) = value.cast_exact::<PyDict>() {
            self.dict(dict, depth)?;
        } else {
            self.other(value, depth)?;
        }
        Ok(())
    }

    fn integer(&mut self, integer: &Bound<'py, PyInt>) -> PyResult<()> {
        if let Ok(small) = integer.extract::<i64>() {
            self.next.push(INT);
            // Numbers with small absolute values take few bytes.
            self.number((small << 1 ^ small >> 63).cast_unsigned());
            return Ok(());
        }
        let bits: usize = integer.call_method0(intern!(self.py, "bit_length"))?.extract()?;
        let kwargs = PyDict::new(self.py);
        kwargs.set_item("signed", true)?;
        let bytes = integer.call_method(intern!(self.py, "to_bytes"), (bits / 8 + 1, "little"), Some(&kwargs))?;
        self.bytes(LONG, bytes.cast::<PyBytes>()?.as_bytes());
        Ok(())
    }

    fn values(&mut self, tag: u8, values: &Bound<'py, PyTuple>, depth: usize) -> Result<(), Failure> {
        self.next.push(tag);
        self.number(values.len() as u64);
        for (k, value) in values.iter_borrowed().enumerate() {
            self.value(&value, depth + 1).map_err(|failure| failure.at(format_args!("[{k}]")))?;
        }
        Ok(())
    }

    fn dict(&mut self, dict: &Bound<'py, PyDict>, depth: usize) -> Result<(), Failure> {
        // A copy, since another thread may change the dict meanwhile.
        let items: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> = dict.items().extract()?;
        let start = self.next.len();
        self.next.push(KEYED);
        self.number(items.len() as u64);
        for (key, _) in &items {
            self.value(key, depth + 1).map_err(|failure| match failure {
                Failure::Refused(_, reason) => Failure::Refused(", in a key,".to_owned(), reason),
                other => other,
            })?;
        }
        let keys = &self.next[start + 1..];
        let known = self.shapes.get(keys).copied().or_else(|| {
            let number = self.shapes.len();
            (number < SHAPES && keys.len() <= SHAPE).then(|| {
                self.shapes.insert(keys.into(), number);
                self.table.extend_from_slice(keys);
                number
            })
        });
        if let Some(number) = known {
            self.next.truncate(start);
            self.next.push(DICT);
            self.number(number as u64);
        }
        for (key, value) in &items {
            self.value(value, depth + 1).map_err(|failure| failure.at(format_args!("[{}]", described(key))))?;
        }
        Ok(())
    }

    fn other(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> Result<(), Failure> {
        static SPLIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let split = SPLIT.import(self.py, "slotline._frozen", "split")?;
        let parts = split.call1((value,)).map_err(|error| {
            if error.is_instance_of::<PyTypeError>(self.py) {
                return Failure::Refused(String::new(), error.value(self.py).to_string());
            }
            Failure::Other(error)
        })?;
        self.next.push(OTHER);
        self.value(&parts, depth + 1)
    }
}

/// Returns the description of a key for a message.
fn described(key: &Bound<'_, PyAny>) -> String {
    key.repr().map_or_else(|_| "...".to_owned(), |text| text.to_string_lossy().into_owned())
}

/// Returns the number of bytes of each offset if the records end at `end`.
fn width(end: usize) -> usize {
    if u32::try_from(end).is_ok() { 4 } else { 8 }
}

/// Writes objects into a new file, and returns its descriptor, for `Columns`.
#[shielded]
#[pyfunction]
pub(crate) fn freeze(py: Python<'_>, objects: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let mut writer = Writer {
        py,
        file: memory::file(c"frozen-by-slotline")?.into(),
        written: 0,
        next: Vec::new(),
        offsets: Vec::new(),
        shapes: HashMap::new(),
        table: Vec::new(),
    };
    writer.records(objects)?;
    Ok(writer.finish()?.into_raw_fd())
}

/// A list of frozen objects, which are made on each access.
#[pyclass(module = "slotline._slotline", subclass, frozen)]
pub(crate) struct Columns {
    file: File,
    map: Mmap,
    /// Where the records end.
    end: usize,
    /// Where the offsets begin.
    offsets: usize,
    count: usize,
    /// The table of combinations of dict keys.
    shapes: Vec<Vec<Py<PyAny>>>,
}

impl Columns {
    fn open(py: Python<'_>, file: File) -> PyResult<Option<Self>> {
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: sets flags of the file.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the seals prevent all processes from changing or truncating the file.
        let map = unsafe { Mmap::map(&file)? };
        let numbers = map.last_chunk::<TAIL>().map(|tail| tail.as_chunks::<8>().0);
        let Some(&[end, offsets, count]) = numbers else { return Ok(None) };
        let [end, offsets, count] = [end, offsets, count].map(usize::from_le_bytes);
        let bytes = count.checked_mul(width(end));
        let Some(table) = map.get(end..offsets).filter(|_| bytes == map.len().checked_sub(offsets + TAIL)) else {
            return Ok(None);
        };
        let mut table = Reader { py, bytes: table, shapes: &[] };
        let mut shapes = Vec::new();
        while !table.bytes.is_empty() {
            shapes.push(table.values(0)?.into_iter().map(Bound::unbind).collect());
        }
        Ok(Some(Self { file, map, end, offsets, count, shapes }))
    }
}

impl Columns {
    /// Returns a reader of the record of an object.
    fn reader<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Reader<'_, 'py>> {
        let bytes = || {
            if index >= self.count {
                return None;
            }
            let width = width(self.end);
            let mut offset = [0; 8];
            offset[..width].copy_from_slice(self.map.get(self.offsets + index * width..)?.get(..width)?);
            self.map.get(usize::from_le_bytes(offset)..self.end)
        };
        Ok(Reader { py, bytes: bytes().ok_or_else(|| damaged(py))?, shapes: &self.shapes })
    }
}

/// Whether an object is a `FrozenList`.
pub(crate) fn is_list(object: &Bound<'_, PyAny>) -> bool {
    static LIST: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    LIST.import(object.py(), "slotline._frozen", "FrozenList").is_ok_and(|list| object.get_type().is(list))
}

/// Returns an integer of a `FrozenList`. No code of Python runs, other than C's.
pub(crate) fn integer(list: &Bound<'_, PyAny>, index: i64) -> Option<i64> {
    let py = list.py();
    let place = list.getattr(intern!(py, "_places")).ok()?.get_item(index).ok()?.extract().ok()?;
    let columns = list.getattr(intern!(py, "_columns")).ok()?;
    let columns = columns.cast::<Columns>().ok()?.get();
    let mut reader = columns.reader(py, place).ok()?;
    (reader.take(1).ok()? == [INT]).then(|| reader.integer().ok())?
}

#[shielded]
#[pymethods]
impl Columns {
    /// Takes the descriptor of a file that `freeze` has made, which must not be used any more.
    #[new]
    fn new(py: Python<'_>, fd: RawFd) -> PyResult<Self> {
        // SAFETY: the caller transfers ownership of the descriptor.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        Self::open(py, file.into())?.ok_or_else(|| damaged(py))
    }

    fn __len__(&self) -> usize {
        self.count
    }

    /// Makes the object at this index.
    fn get<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        self.reader(py, index)?.value(0)
    }

    /// Returns the descriptor of the file.
    fn fileno(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the contents of the file.
    fn contents<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.map)
    }

    /// The size of the file in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.map.len()
    }
}

/// The bytes of a record that have not been read yet.
struct Reader<'a, 'py> {
    py: Python<'py>,
    bytes: &'a [u8],
    shapes: &'a [Vec<Py<PyAny>>],
}

impl<'a, 'py> Reader<'a, 'py> {
    fn take(&mut self, len: usize) -> PyResult<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or_else(|| damaged(self.py))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn number(&mut self) -> PyResult<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged(self.py))
    }

    fn integer(&mut self) -> PyResult<i64> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    fn length(&mut self) -> PyResult<usize> {
        // Each counted item has at least one byte, so a larger count is invalid.
        usize::try_from(self.number()?).ok().filter(|&len| len <= self.bytes.len()).ok_or_else(|| damaged(self.py))
    }

    fn content(&mut self) -> PyResult<&'a [u8]> {
        let len = self.length()?;
        self.take(len)
    }

    fn value(&mut self, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        if depth > DEEPEST {
            return Err(damaged(py));
        }
        Ok(match self.take(1)?[0] {
            NONE => py.None().into_bound(py),
            FALSE => PyBool::new(py, false).to_owned().into_any(),
            TRUE => PyBool::new(py, true).to_owned().into_any(),
            INT => PyInt::new(py, self.integer()?).into_any(),
            LONG => {
                let kwargs = PyDict::new(py);
                kwargs.set_item("signed", true)?;
                let bytes = PyBytes::new(py, self.content()?);
                py.get_type::<PyInt>().call_method(intern!(py, "from_bytes"), (bytes, "little"), Some(&kwargs))?
            }
            FLOAT => {
                let bits = self.take(8)?.first_chunk().ok_or_else(|| damaged(py))?;
                PyFloat::new(py, f64::from_le_bytes(*bits)).into_any()
            }
            STR => PyString::from_bytes(py, self.content()?)?.into_any(),
            SURROGATES => {
                let bytes = PyBytes::new(py, self.content()?);
                bytes.call_method1(intern!(py, "decode"), ("utf-8", "surrogatepass"))?
            }
            BYTES => PyBytes::new(py, self.content()?).into_any(),
            LIST => PyList::new(py, self.values(depth)?)?.into_any(),
            TUPLE => PyTuple::new(py, self.values(depth)?)?.into_any(),
            DICT => {
                let number = usize::try_from(self.number()?).ok();
                let shapes = self.shapes;
                let keys = number.and_then(|number| shapes.get(number)).ok_or_else(|| damaged(py))?;
                self.dict(keys.iter().map(|key| key.bind(py)), depth)?
            }
            KEYED => {
                let keys = self.values(depth)?;
                self.dict(keys.iter(), depth)?
            }
            OTHER => {
                static JOIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                JOIN.import(py, "slotline._frozen", "join")?.call1((self.value(depth + 1)?,))?
            }
            _ => return Err(damaged(py)),
        })
    }

    fn values(&mut self, depth: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let len = self.length()?;
        (0..len).map(|_| self.value(depth + 1)).collect()
    }

    fn dict<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        'py: 'k,
    {
        let dict = PyDict::new(self.py);
        for key in keys {
            dict.set_item(key, self.value(depth + 1)?)?;
        }
        Ok(dict.into_any())
    }
}

#[cold]
fn damaged(py: Python<'_>) -> PyErr {
    failure::invalid(py, "these are no frozen objects, or they are damaged")
}
