//! Copies of arrays in page-locked memory.

use std::io;

use crate::arena::{Memory, Pages, has_room, lock_limit};
use crate::causes::with_causes;

/// The error for an array that could not be copied to page-locked memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinMemoryError {
    /// The memory could not be allocated.
    #[error("{bytes} bytes of memory cannot be allocated; make the array smaller: {}", with_causes(source))]
    Memory {
        /// The number of bytes requested.
        bytes: usize,
        /// The system's error.
        r#source: io::Error,
    },
    /// The system refused to lock the memory.
    #[error(
        "{bytes} bytes could not be locked into memory: RLIMIT_MEMLOCK is {}; raise it (ulimit -l), or pin less at a time: {}",
        limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes")), with_causes(source))]
    Lock {
        /// The number of bytes to lock: whole pages.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes, for everything that this process locks; `None` if there is no limit.
        limit: Option<u64>,
        /// The system's error.
        r#source: io::Error,
    },
}

/// Copies the bytes to locked pages. The rest of the last page is zero.
pub(super) fn locked_copy(bytes: &[u8]) -> Result<Pages, PinMemoryError> {
    let refused = |source| PinMemoryError::Memory { bytes: bytes.len(), source };
    if !has_room(bytes.len()) {
        return Err(refused(io::ErrorKind::OutOfMemory.into()));
    }
    let mut pages = Pages::new(bytes.len()).map_err(refused)?;
    pages.lock().map_err(|source| PinMemoryError::Lock { bytes: pages.len(), limit: lock_limit(), source })?;
    // SAFETY: the pages are new, owned only by `pages`, and have at least that many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pages.start().as_ptr(), bytes.len()) };
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use crate::array::{AnyArray, Array};

    #[test]
    fn a_pinned_array_is_a_copy_in_its_own_pages() {
        let array = AnyArray::from(Array::new((0..3000_u32).collect(), &[3, 1000]).unwrap());
        let pinned = array.pin_memory().unwrap();
        assert!(pinned.is_pinned() && !array.is_pinned() && !pinned.is_mapped());
        assert_eq!(pinned.bytes().as_ptr().align_offset(4096), 0);
        assert_eq!((pinned.bytes(), pinned.shape(), pinned.dtype()), (array.bytes(), array.shape(), array.dtype()));
        assert_eq!(format!("{pinned:?}"), "AnyArray(pinned)(u32 [3, 1000])");
        let pinned = pinned.into_typed::<i32>().unwrap_err();
        drop(array);
        assert!(pinned.into_typed::<u32>().unwrap().into_vec().into_iter().eq(0..3000));
    }

    #[test]
    fn arrays_without_elements_can_be_pinned() {
        let pinned = AnyArray::from(Array::<f64>::new(vec![], &[0, 7]).unwrap()).pin_memory().unwrap();
        assert!(pinned.is_pinned() && pinned.typed::<f64>().unwrap().is_empty());
    }
}
