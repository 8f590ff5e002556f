//! Batch memory that a user's callback provides.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use slotline::BoxError;
use slotline::arena::{ALIGN, Memory};

use crate::abi::{Owner, call, slotline_drop, slotline_failure};

/// The alignment of memory for batches, in bytes.
pub const SLOTLINE_MEMORY_ALIGN: usize = 4096;
const _: () = assert!(SLOTLINE_MEMORY_ALIGN == ALIGN);

/// Memory provided by the user for batches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_memory {
    /// The size of this struct in the library.
    pub struct_size: usize,
    /// The first byte, at a multiple of `SLOTLINE_MEMORY_ALIGN`. The library first sets all bytes
    /// to zero. Until `drop` is called, only the library and the readers of its batches may use
    /// them.
    pub data: *mut c_void,
    /// The number of bytes.
    pub len: usize,
    /// The user pointer that is passed to `drop`.
    pub user: *mut c_void,
    /// Called once, on any thread, when the memory is no longer needed: after the loader, its last
    /// batch and the last tensor exported from a batch were freed. May be NULL.
    pub drop: slotline_drop,
}

/// Allocates memory for batches. It fills in `*out`, whose fields are all zero except
/// `struct_size`, with at least `bytes` bytes, which the loader then owns. It returns 0 on success,
/// or another value after setting the reason with `slotline_fail`. It is called when the loader is
/// created, and later for each batch that the caller keeps beyond `hold`, on any thread, but never
/// concurrently.
pub type slotline_allocate = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        bytes: usize,
        out: *mut slotline_memory,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Memory that a callback returned.
#[derive(Debug)]
pub(crate) struct Lent {
    start: NonNull<u8>,
    len: usize,
    /// Frees the memory.
    _owner: Owner,
}

// SAFETY: when `new` returned, the memory had `len` bytes, was aligned and set to zero, and the
// user has guaranteed that no other code uses it until `_owner` is dropped.
unsafe impl Memory for Lent {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: the user has guaranteed that any thread may use the memory.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

/// Returns a function that allocates memory with a user's callback.
pub(crate) fn allocator(
    allocate: slotline_allocate,
    owner: Owner,
) -> Option<impl FnMut(usize) -> Result<Lent, BoxError> + Send + 'static> {
    let allocate = allocate?;
    Some(move |bytes| {
        let (struct_size, user) = (size_of::<slotline_memory>(), null_mut());
        let mut out = slotline_memory { struct_size, data: null_mut(), len: 0, user, drop: None };
        // SAFETY: the user has guaranteed that any thread may call `allocate` this way; `out` and
        // `failure` are valid during the call.
        call("allocate", |failure| unsafe { allocate(owner.user(), bytes, &mut out, failure) })?;
        let memory = Owner::new(out.user, out.drop);
        let start = NonNull::new(out.data.cast::<u8>()).ok_or("allocate returned 0, but no memory in out->data")?;
        if start.align_offset(ALIGN) != 0 {
            return Err(format!("allocate returned memory whose address is not a multiple of {ALIGN}").into());
        }
        if out.len < bytes || out.len > isize::MAX as usize {
            return Err(format!("allocate was asked for {bytes} bytes, but returned {}", out.len).into());
        }
        // SAFETY: the user has guaranteed that `len` bytes are writable, and that only the library
        // uses them.
        unsafe { start.write_bytes(0, out.len) };
        Ok(Lent { start, len: out.len, _owner: memory })
    })
}
