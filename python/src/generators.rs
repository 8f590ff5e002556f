//! Detects whether a worker's random generators were used.
//!
//! A worker checks this after each batch, and most batches draw from none or few of the generators.
//! Requesting the state of Python's or NumPy's generator takes about ten microseconds, so the
//! states are read directly in the generators' memory while no other thread draws from them:
//! Python's generator is protected by the interpreter's lock, and NumPy's by a lock of its own.

use std::ptr::NonNull;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyBytes, PyType};
use slotline_python_shielded::shielded;

use crate::collate::TorchApi;
use crate::dlpack::DType;

/// The size of a Mersenne Twister's state in bytes: 624 words and the position in them, of four bytes each.
const WORDS: usize = 625 * 4;

/// The state of a Mersenne Twister in its own memory, and a copy of the state at the last check.
struct Words {
    owner: Py<PyAny>,
    start: NonNull<u8>,
    /// The lock that is held while numbers are drawn. `None`: the interpreter's lock, or the
    /// owner's critical section.
    lock: Option<Py<PyAny>>,
    last: [u8; WORDS],
}

// SAFETY: the memory belongs to the owner, and is only read while the generator is locked.
unsafe impl Send for Words {}
// SAFETY: see above.
unsafe impl Sync for Words {}

impl Words {
    /// # Safety
    ///
    /// `start` must point to `WORDS` bytes that belong to `owner` for its lifetime, and that only
    /// threads change which hold `lock`, or without `lock`, the owner's critical section.
    unsafe fn new(owner: Bound<'_, PyAny>, start: NonNull<u8>, lock: Option<Bound<'_, PyAny>>) -> Self {
        Self { owner: owner.unbind(), start, lock: lock.map(Bound::unbind), last: [0; WORDS] }
    }

    /// Returns the state, or `None` if another thread is drawing. (Waiting could block forever in a
    /// process that was forked meanwhile.)
    fn now(&self, py: Python<'_>) -> PyResult<Option<[u8; WORDS]>> {
        // SAFETY: `owner` keeps these bytes, and no thread changes them while it is locked.
        let read = || unsafe { self.start.cast::<[u8; WORDS]>().read() };
        let Some(lock) = &self.lock else { return Ok(Some(with_critical_section(self.owner.bind(py), read))) };
        if !lock.bind(py).call_method1(intern!(py, "acquire"), (false,))?.is_truthy()? {
            return Ok(None);
        }
        let words = read();
        lock.bind(py).call_method0(intern!(py, "release"))?;
        Ok(Some(words))
    }

    /// Returns whether the state may have changed since the last call.
    fn is_new(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(now) = self.now(py)? else { return Ok(true) };
        let is_new = now != self.last;
        self.last = now;
        Ok(is_new)
    }
}

/// Moves the position after the words. In the memory of Python's generator it comes first.
fn key_first(words: &[u8; WORDS]) -> Vec<u8> {
    let (position, key) = words.split_at(4);
    [key, position].concat()
}

/// Detects whether the default random generators of this process were used.
#[pyclass(module = "slotline._slotline")]
pub(crate) struct Generators {
    api: &'static TorchApi,
    torchs: Py<PyAny>,
    torch: Vec<u8>,
    random: Words,
    /// The second number of a pair that `random.gauss` has generated but not returned yet.
    gauss: Py<PyAny>,
    numpy: Option<Words>,
    /// Whether NumPy's generator stores a normally distributed number that it has not returned yet.
    /// Returning it does not change the words.
    #[pyo3(set)]
    waiting: bool,
}

#[shielded]
#[pymethods]
impl Generators {
    /// Takes torch's generator, Python's with the words and the position of its state, and, if it
    /// is a Mersenne Twister, NumPy's with the address of its state.
    ///
    /// # Errors
    ///
    /// Returns a `ValueError` if the memory of Python's generator does not have the expected
    /// layout.
    #[new]
    fn new(
        torch: &Bound<'_, PyAny>,
        random: Bound<'_, PyAny>,
        words: &[u8],
        numpy: Option<(Bound<'_, PyAny>, usize)>,
    ) -> PyResult<Self> {
        let py = torch.py();
        let base = py.import("_random")?.getattr("Random")?;
        let size = |kind: &Bound<'_, PyType>| kind.getattr("__basicsize__")?.extract::<usize>();
        let head = size(&py.get_type::<PyAny>())?;
        let unexpected = || pyo3::exceptions::PyValueError::new_err("the generator has another layout");
        if !random.is_instance(&base)? || size(base.cast::<PyType>()?)? < head + WORDS || words.len() != WORDS {
            return Err(unexpected());
        }
        let place = NonNull::new(random.as_ptr().cast::<u8>()).ok_or_else(unexpected)?;
        // SAFETY: an instance of this class has `WORDS` bytes after the header that every object
        // has.
        let random = unsafe { Words::new(random, place.add(head), None) };
        if random.now(py)?.is_none_or(|now| key_first(&now) != words) {
            return Err(unexpected());
        }
        let numpy = match numpy {
            Some((owner, address)) => {
                let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).ok_or_else(unexpected)?;
                let lock = owner.getattr("lock")?;
                // SAFETY: NumPy exposes the address of the state, a `mt19937_state`, and the lock
                // for use by other code.
                Some(unsafe { Words::new(owner, start, Some(lock)) })
            }
            None => None,
        };
        let gauss = py.None();
        let api = TorchApi::get(py)?;
        let mut made = Self {
            api,
            torchs: torch.getattr("get_state")?.unbind(),
            torch: Vec::new(),
            random,
            gauss,
            numpy,
            waiting: false,
        };
        made.changed(py)?;
        Ok(made)
    }

    /// The words of the state of Python's generator, and the position in them.
    #[getter]
    fn random<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let words = self.random.now(py)?.expect("it has no lock of its own");
        Ok(PyBytes::new(py, &key_first(&words)))
    }

    /// The words and the position of NumPy's generator. `None` if another thread is using it.
    #[getter]
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let words = self.numpy.as_ref().map(|words| words.now(py)).transpose()?.flatten();
        Ok(words.map(|words| PyBytes::new(py, &words)))
    }

    /// Returns whether the state of any generator may have changed since the last call.
    fn changed(&mut self, py: Python<'_>) -> PyResult<bool> {
        let state = self.torchs.bind(py).call0()?;
        // SAFETY: the tensor lives until the end of this function, and nothing else refers to it.
        let view = unsafe { self.api.torch.view(&state) };
        let copy;
        let now = match view.filter(|view| view.dtype == DType::U8) {
            // SAFETY: the elements, of one byte each, are contiguous.
            Some(view) => unsafe { std::slice::from_raw_parts(view.data, view.shape.iter().product::<i64>() as usize) },
            None => {
                copy = state.call_method0("numpy")?.call_method0("tobytes")?.cast_into::<PyBytes>()?;
                copy.as_bytes()
            }
        };
        let mut changed = self.waiting;
        if now != self.torch {
            self.torch = now.to_vec();
            changed = true;
        }
        changed |= self.random.is_new(py)?;
        let gauss = self.random.owner.bind(py).getattr(intern!(py, "gauss_next"))?;
        changed |= !gauss.is(&self.gauss);
        self.gauss = gauss.unbind();
        if let Some(numpy) = &mut self.numpy {
            changed |= numpy.is_new(py)?;
        }
        Ok(changed)
    }
}
