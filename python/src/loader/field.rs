//! The fields of a sample: element types, shapes and sizes.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use slotline::BoxError;
use slotline::dtype;
use slotline::sample::{Fields, Row, Sample};

use crate::dlpack::DType;

/// The element type of a field.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The NumPy dtype; `None` if NumPy does not have the type.
    pub(crate) numpy: Option<Py<PyAny>>,
    /// The DLPack type; `None` if DLPack does not have the type.
    pub(crate) dlpack: Option<DType>,
    /// The size of an element in bytes.
    pub(crate) size: usize,
    name: String,
}

/// The name of the type that ml_dtypes adds to NumPy's.
pub(crate) const BFLOAT16: &str = "bfloat16";

impl Kind {
    pub(crate) fn of_numpy(dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        let kind: char = dtype.getattr("kind")?.extract()?;
        let size: usize = dtype.getattr("itemsize")?.extract()?;
        let name = dtype.str()?.to_string();
        let code = match kind {
            'i' => Some(0),
            'u' => Some(1),
            'f' => Some(2),
            'c' => Some(5),
            'b' => Some(6),
            // Of ml_dtypes, since NumPy has no such type.
            'V' if name == BFLOAT16 => Some(4),
            _ => None,
        };
        let dlpack = match u8::try_from(8 * size) {
            Ok(bits) if dtype.getattr("isnative")?.is_truthy()? => code.map(|code| DType { code, bits, lanes: 1 }),
            _ => None,
        };
        Ok(Self { numpy: Some(dtype.clone().unbind()), dlpack, size, name })
    }

    /// Returns `None` for types that neither NumPy nor torch supports.
    pub(crate) fn of_dlpack(py: Python<'_>, dtype: DType) -> Option<PyResult<Self>> {
        let size = dtype.bytes().filter(|_| dtype.lanes == 1)?;
        let letter = match dtype.code {
            0 => 'i',
            1 => 'u',
            2 => 'f',
            5 => 'c',
            6 if size == 1 => 'b',
            4 if size == 2 => return Some(Ok(Self::bfloat16())),
            _ => return None,
        };
        Some(
            NumPy::get(py).and_then(|numpy| Self::of_numpy(&numpy.dtype.bind(py).call1((format!("{letter}{size}"),))?)),
        )
    }

    /// Returns the type of torch and other libraries that NumPy does not have.
    pub(crate) fn bfloat16() -> Self {
        let dlpack = Some(DType { code: 4, bits: 16, lanes: 1 });
        Self { numpy: None, dlpack, size: 2, name: BFLOAT16.to_owned() }
    }

    /// Whether it is bfloat16, with ml_dtypes or without.
    pub(crate) fn is_bfloat16(&self) -> bool {
        self.name == BFLOAT16
    }

    /// Returns `None` for types that neither NumPy nor torch supports.
    pub(crate) fn of_engine(py: Python<'_>, dtype: dtype::DType) -> Option<PyResult<Self>> {
        Self::of_dlpack(py, DType { code: dtype.kind() as u8, bits: 8 * dtype.size() as u8, lanes: 1 })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// How many elements of a field a sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Each sample has exactly this many bytes. The engine only copies them; Python knows their
    /// type.
    Fixed(usize),
    /// Each sample has any number of items, each of as many elements of this type.
    Items(dtype::DType, usize, Room),
    /// Each sample has a UTF-8 string of any length.
    Text(Room),
}

/// The number of items that a batch reserves memory for, for each sample of a full batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) items: usize,
    /// Whether a sample may have more items than that.
    pub(crate) exceeded: bool,
}

impl Room {
    fn widen(&mut self, other: Self) {
        self.items = self.items.max(other.items);
        self.exceeded |= other.exceeded;
    }
}

impl Form {
    /// Enlarges the reserved memory to what the samples of another dataset need.
    pub(crate) fn widen(&mut self, other: Self) {
        match (self, other) {
            (Self::Items(_, _, room), Self::Items(_, _, other)) | (Self::Text(room), Self::Text(other)) => {
                room.widen(other);
            }
            _ => {}
        }
    }

    pub(crate) fn is_fixed(self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}

/// Declares the field of a form. Samples of this type are never written.
impl Sample for Form {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        let (dtype, elements, room) = match *self {
            Self::Fixed(bytes) => return fields.fixed(dtype::DType::U8, &[bytes]),
            Self::Items(dtype, elements, room) => (dtype, elements, room),
            Self::Text(room) => (dtype::DType::U8, 1, room),
        };
        fields.packed(dtype, if elements == 1 { &[] } else { std::slice::from_ref(&elements) }, room.items);
        if room.exceeded {
            fields.spill();
        }
    }

    fn write(self, _: &mut Row<'_>) -> Result<(), BoxError> {
        Err("a declaration has nothing to write".into())
    }
}

/// One field of a sample.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) kind: Kind,
    /// The dimensions, if the form is `Fixed`; of an item, if it is `Items`.
    pub(crate) shape: Box<[usize]>,
    pub(crate) form: Form,
}

impl Field {
    /// Creates a field that has this shape in each sample.
    pub(crate) fn fixed(kind: Kind, shape: &[usize]) -> Result<Self, String> {
        let product = shape.iter().try_fold(kind.size, |bytes, &dim| bytes.checked_mul(dim));
        let bytes = product.filter(|&bytes| bytes <= isize::MAX as usize).ok_or("has rows that are too large")?;
        Ok(Self { kind, shape: shape.into(), form: Form::Fixed(bytes) })
    }

    /// Creates a field that has any number of items of this type and shape in each sample.
    pub(crate) fn items(kind: Kind, dtype: dtype::DType, shape: &[usize], room: Room) -> Self {
        Self { kind, shape: shape.into(), form: Form::Items(dtype, shape.iter().product(), room) }
    }

    /// Returns whether both fields have the same type and shape.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.dtype() == other.dtype()
            && self.kind.size == other.kind.size
            && self.shape == other.shape
            && self.form.is_fixed() == other.form.is_fixed()
    }

    /// Returns the name of the element type; `"str"` for strings.
    pub(crate) fn dtype(&self) -> &str {
        match self.form {
            Form::Text(_) => "str",
            _ => self.kind.name(),
        }
    }

    /// Returns the dimensions in a sample, where `None` stands for any length. A string has no
    /// dimensions.
    pub(crate) fn dims(&self) -> Vec<Option<usize>> {
        let any = matches!(self.form, Form::Items(..)).then_some(None);
        any.into_iter().chain(self.shape.iter().copied().map(Some)).collect()
    }

    /// Describes the field, for example as `uint8 [28, 28]`.
    pub(crate) fn about(&self) -> String {
        let dims: Vec<_> =
            self.dims().into_iter().map(|dim| dim.map_or("None".to_owned(), |dim| dim.to_string())).collect();
        format!("{} [{}]", self.dtype(), dims.join(", "))
    }
}

/// The functions and classes of NumPy that are used.
pub(crate) struct NumPy {
    pub(crate) array: Py<PyAny>,
    pub(crate) asarray: Py<PyAny>,
    dtype: Py<PyAny>,
}

impl NumPy {
    pub(crate) fn get(py: Python<'_>) -> PyResult<&Self> {
        static NUMPY: PyOnceLock<NumPy> = PyOnceLock::new();
        NUMPY.get_or_try_init(py, || {
            let numpy = py.import("numpy")?;
            let part = |name| PyResult::Ok(numpy.getattr(name)?.unbind());
            Ok(Self { array: part("ndarray")?, asarray: part("asarray")?, dtype: part("dtype")? })
        })
    }
}
