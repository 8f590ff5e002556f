//! Bytes in page-locked memory.

use std::io;

use crate::arena::{Memory, Pages, has_room, lock_limit};

/// Why an array could not be copied to page-locked memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinMemoryError {
    /// There is not so much memory.
    #[error("{bytes} bytes of memory can't be had ({source}); make the array smaller")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused to lock the memory.
    #[error(
        "{bytes} bytes could not be locked into memory ({source}): RLIMIT_MEMLOCK is {}; raise it (ulimit -l), or pin less at a time",
        limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes"))
    )]
    Lock {
        /// Bytes to be locked: whole pages.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes, for all that this process locks together; `None` if there is no limit.
        limit: Option<u64>,
        /// What the system said.
        source: io::Error,
    },
}

/// A copy in locked pages, which are zero from its end on.
pub(super) fn locked_copy(bytes: &[u8]) -> Result<Pages, PinMemoryError> {
    let refused = |source| PinMemoryError::Memory { bytes: bytes.len(), source };
    if !has_room(bytes.len()) {
        return Err(refused(io::ErrorKind::OutOfMemory.into()));
    }
    let mut pages = Pages::new(bytes.len()).map_err(refused)?;
    pages.lock().map_err(|source| PinMemoryError::Lock { bytes: pages.len(), limit: lock_limit(), source })?;
    // SAFETY: the pages are new, nobody else's, and as many bytes or more.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pages.start().as_ptr(), bytes.len()) };
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use crate::array::{AnyArray, Array};

    #[test]
    fn a_pinned_array_is_a_copy_on_pages_of_its_own() {
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
    fn arrays_without_elements_can_be_pinned_too() {
        let pinned = AnyArray::from(Array::<f64>::new(vec![], &[0, 7]).unwrap()).pin_memory().unwrap();
        assert!(pinned.is_pinned() && pinned.typed::<f64>().unwrap().is_empty());
    }
}
