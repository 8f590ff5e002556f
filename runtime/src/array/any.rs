//! [`AnyArray`]: an n-dimensional array whose type is known at run time.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use memmap2::Mmap;

use super::pinned::locked_copy;
use super::storage::Storage;
use super::{Array, PinMemoryError};
use crate::dtype::{DType, Element};
use crate::prefetch::prefetch;
use crate::shape::{Shape, ShapeError};
use crate::tensor::{AnyTensorView, TensorView, describe, no_such_row};

/// An array of any dtype, with elements in C order, that owns its memory or its memory-mapped file.
///
/// Made from an [`Array`] by `From`, without a copy, or by the functions of [`source`](crate::source). The first
/// dimension counts the rows. An array without dimensions is a single number and has one row: itself.
///
/// A mapped file must not change while the array exists, as the caller of
/// [`map_npy`](crate::source::map_npy) has guaranteed.
///
/// ```
/// use slotline::array::{AnyArray, Array};
/// use slotline::dtype::DType;
///
/// let array = AnyArray::from(Array::new(vec![1_i64, 2, 3, 4], &[2, 2])?);
/// assert_eq!((array.dtype(), array.len()), (DType::I64, 2));
/// assert_eq!(array.typed::<i64>().unwrap().row(1).as_slice(), [3, 4]);
/// # Ok::<(), slotline::shape::ShapeError>(())
/// ```
pub struct AnyArray {
    /// Exactly the elements of the shape, aligned to the dtype and valid for it.
    storage: Storage,
    dtype: DType,
    shape: Shape,
    /// Cached `shape.rows()`.
    len: usize,
    /// The size of a row, in bytes.
    row_size: usize,
}

impl AnyArray {
    /// Makes an array over the part of a mapped file that starts at `offset` bytes. The code that
    /// made the mapping guarantees that the file does not change while it is mapped.
    ///
    /// Returns `None` if the data can't be read in place: it isn't aligned to `dtype`, the file is too short, or
    /// `dtype` is `Bool`, for which not all bytes are valid.
    pub(crate) fn from_map(map: Mmap, offset: usize, dtype: DType, shape: Shape) -> Option<Self> {
        let size = shape.elements()?.checked_mul(dtype.size())?;
        let storage = Storage::file(map, offset, size)?;
        let aligned = storage.bytes().as_ptr().align_offset(dtype.align()) == 0;
        (aligned && dtype != DType::Bool).then(|| Self::from_checked(storage, dtype, shape))
    }

    /// Makes an array over storage that holds exactly `shape`'s elements, aligned and valid.
    /// [`row_bytes`](Self::row_bytes) relies on that.
    fn from_checked(storage: Storage, dtype: DType, shape: Shape) -> Self {
        // The product saturates only if there are no rows.
        let row_size = shape.row_elements().saturating_mul(dtype.size());
        AnyArray { storage, dtype, len: shape.rows(), row_size, shape }
    }

    /// Makes an array over memory that other code allocated and owns, without a copy: elements from `start`, in C
    /// order. When the array is dropped, `owner` is dropped too, on the same thread.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use std::sync::Arc;
    ///
    /// use slotline::array::AnyArray;
    /// use slotline::dtype::DType;
    /// use slotline::shape::Shape;
    ///
    /// let memory: Arc<[f32]> = [1.0, 2.0, 3.0, 4.0].into();
    /// let start = NonNull::from(&memory[0]).cast();
    /// // SAFETY: the slice has four numbers that cannot change, and the clone keeps it alive.
    /// let array = unsafe { AnyArray::from_raw_parts(DType::F32, Shape::new(&[2, 2])?, start, memory.clone())? };
    /// assert_eq!(array.typed::<f32>().unwrap().row(1).as_slice(), [3.0, 4.0]);
    /// # Ok::<(), slotline::shape::ShapeError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeError::TooLarge`] if the shape has more bytes than can be addressed.
    ///
    /// # Safety
    ///
    /// `start` must point to as many elements as `shape` has. They must be aligned to `dtype` (even if there are none),
    /// valid (for `Bool`, only 0 and 1), and must stay in place and unchanged until `owner` is dropped. `owner` is
    /// moved, so it must hold the elements behind a pointer that may be moved: an `Arc`, a `Vec` or a handle, but not a
    /// `Box` or the elements themselves.
    pub unsafe fn from_raw_parts(
        dtype: DType,
        shape: Shape,
        start: NonNull<u8>,
        owner: impl Any + Send + Sync,
    ) -> Result<Self, ShapeError> {
        let bytes = shape.elements().and_then(|elements| elements.checked_mul(dtype.size()));
        let Some(bytes) = bytes.filter(|&bytes| bytes <= isize::MAX as usize) else {
            return Err(ShapeError::TooLarge { shape });
        };
        debug_assert_eq!(start.align_offset(dtype.align()), 0);
        // SAFETY: the caller guarantees that the elements are in place, initialised and unchanged until `owner` is
        // dropped.
        let storage = unsafe { Storage::foreign(start, bytes, Box::new(owner)) };
        Ok(Self::from_checked(storage, dtype, shape))
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the lengths of the dimensions, first to last.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Returns the shape of a row.
    #[inline]
    pub(crate) fn row_shape(&self) -> &[usize] {
        self.shape.row_dims()
    }

    /// Returns the number of rows: the length of the first dimension, or 1 if there are no dimensions.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the elements are in a memory-mapped file.
    pub fn is_mapped(&self) -> bool {
        self.storage.is_mapped()
    }

    /// Returns whether the elements are in page-locked memory.
    pub fn is_pinned(&self) -> bool {
        self.storage.is_pinned()
    }

    /// Copies the array to page-locked memory, which a GPU's copy engine reads directly, without an intermediate copy.
    ///
    /// The copy owns its memory: whole pages, aligned to 4096 bytes, locked by `mlock` until they are dropped.
    ///
    /// # Errors
    ///
    /// [`PinMemoryError`] if the memory cannot be allocated or locked.
    pub fn pin_memory(&self) -> Result<AnyArray, PinMemoryError> {
        let pages = locked_copy(self.bytes())?;
        let storage = Storage::pinned(pages, self.bytes().len());
        Ok(Self::from_checked(storage, self.dtype, self.shape.clone()))
    }

    /// Returns the size of a row, in bytes.
    #[inline]
    pub fn row_size(&self) -> usize {
        self.row_size
    }

    /// Returns all elements as bytes in the machine's byte order, aligned to the dtype.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// Returns row `i` as bytes in the machine's byte order, aligned to the dtype. This is the fastest way to read a
    /// row.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`len`](AnyArray::len).
    #[inline]
    #[track_caller]
    pub fn row_bytes(&self, i: usize) -> &[u8] {
        if i >= self.len {
            no_such_row(i, self.len);
        }
        let start = i * self.row_size;
        // SAFETY: the storage has len * row_size bytes, which the constructor checked and nothing changes later, and i
        // < len. So the row's end, (i + 1) * row_size, is at most that, and nothing overflows.
        unsafe { self.bytes().get_unchecked(start..start + self.row_size) }
    }

    /// Returns row `i` as a view with its type and shape.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`len`](AnyArray::len).
    #[inline]
    #[track_caller]
    pub fn row(&self, i: usize) -> AnyTensorView<'_> {
        // SAFETY: the row is as long as its shape requires. It starts at a multiple of the dtype's size from the
        // storage's aligned start, and the storage's elements are valid.
        unsafe { AnyTensorView::from_raw_parts(self.dtype, self.shape.row(), self.row_bytes(i)) }
    }

    /// Returns a view of the whole array.
    pub fn view(&self) -> AnyTensorView<'_> {
        // SAFETY: by the invariant of `storage`, it holds exactly the elements of the shape, aligned and valid.
        unsafe { AnyTensorView::from_raw_parts(self.dtype, self.shape.clone(), self.bytes()) }
    }

    /// Returns a view of the whole array with its type known to the compiler, or `None` if `T` isn't the dtype.
    pub fn typed<T: Element>(&self) -> Option<TensorView<'_, T>> {
        self.view().typed()
    }

    /// Converts the array to one with its type known to the compiler.
    ///
    /// This does not copy if the elements are in ordinary memory. Elements in a mapped file, in pinned memory or in
    /// memory of other code are copied, and the file or memory is released.
    ///
    /// # Errors
    ///
    /// The array itself, unchanged, if `T` isn't the dtype.
    #[expect(clippy::result_large_err, reason = "both variants are arrays, of much the same size")]
    pub fn into_typed<T: Element>(self) -> Result<Array<T>, AnyArray> {
        if self.dtype != T::DTYPE {
            return Err(self);
        }
        let copied = if !self.storage.is_vec() { self.typed::<T>().map(|view| view.as_slice().to_vec()) } else { None };
        let AnyArray { storage, dtype, shape, .. } = self;
        match copied.map_or_else(|| storage.into_vec(), Ok) {
            Ok(data) => Ok(Array::from_checked(data, shape)),
            Err(storage) => Err(Self::from_checked(storage, dtype, shape)),
        }
    }

    /// Hints to the CPU that row `i` will be read soon: prefetches its first 32 cache lines.
    ///
    /// Does nothing if there is no row `i`, or on machines other than x86-64. Never waits for a disk: pages of a mapped
    /// file that aren't in memory are not loaded.
    #[inline]
    pub fn prefetch_row(&self, i: usize) {
        if i < self.len {
            prefetch(self.row_bytes(i));
        }
    }
}

impl<T: Element> From<Array<T>> for AnyArray {
    fn from(array: Array<T>) -> Self {
        let (data, shape) = array.into_parts();
        Self::from_checked(Storage::memory(data), T::DTYPE, shape)
    }
}

impl PartialEq for AnyArray {
    /// Compares dtype, shape and elements, as [`AnyTensorView`] does.
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl fmt::Debug for AnyArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.is_mapped(), self.is_pinned()) {
            (true, _) => "AnyArray(mapped)",
            (_, true) => "AnyArray(pinned)",
            _ => "AnyArray",
        };
        describe(f, name, self.dtype, &self.shape)
    }
}
