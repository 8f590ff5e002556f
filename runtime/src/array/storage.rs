//! Bytes together with what keeps them alive.
//!
//! An [`AnyArray`](super::AnyArray) reads rows through one pointer, wherever the bytes are, so that a row costs no
//! look at what kind of memory it is in. The invariant that every `unsafe` block below stands on:
//!
//! > `start` points to `len` initialized bytes that `owner` keeps in place for as long as it lives, and that nobody
//! > writes to.
//!
//! It holds because the owner is never handed out, moved out or changed, but by `into_vec`, which ends the storage.
//! Moving the storage moves only the `Vec`, `Mmap` or `Pages` itself, not what it points to.

use std::any::Any;
use std::ptr::NonNull;

#[cfg(feature = "npy")]
use memmap2::Mmap;

use crate::arena::{Memory, Pages};
use crate::dtype::{Element, bytes_of};

/// Bytes in memory, locked there or not, or in a mapped file.
pub(super) struct Storage {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    /// A `Vec<T>` of some element type.
    Memory(Box<dyn Any + Send + Sync>),
    /// Whatever keeps memory of another's in place, kept only to be dropped.
    Foreign(#[expect(dead_code)] Box<dyn Any + Send + Sync>),
    /// Kept only to be dropped.
    #[cfg(feature = "npy")]
    File(#[expect(dead_code)] Mmap),
    /// Locked pages, kept only to be dropped.
    Pinned(#[expect(dead_code)] Pages),
}

// SAFETY: the bytes are only ever read, and their owner may itself be sent to another thread.
unsafe impl Send for Storage {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Storage {}

impl Storage {
    /// The bytes of `data`, aligned to `T`.
    pub(super) fn memory<T: Element>(data: Vec<T>) -> Self {
        let bytes = NonNull::from(bytes_of(&data));
        Storage { start: bytes.cast(), len: bytes.len(), owner: Owner::Memory(Box::new(data)) }
    }

    /// The `len` bytes that start `offset` into the file; `None` if it has fewer.
    #[cfg(feature = "npy")]
    pub(super) fn file(map: Mmap, offset: usize, len: usize) -> Option<Self> {
        let start = NonNull::from(map.get(offset..)?.get(..len)?).cast();
        Some(Storage { start, len, owner: Owner::File(map) })
    }

    /// The first `len` bytes of locked pages; all of them if there are fewer.
    pub(super) fn pinned(pages: Pages, len: usize) -> Self {
        Storage { start: pages.start(), len: len.min(pages.len()), owner: Owner::Pinned(pages) }
    }

    /// `len` bytes from `start`, which are another's.
    ///
    /// # Safety
    ///
    /// They must be initialised, in place and unchanged until `owner` is dropped.
    pub(super) unsafe fn foreign(start: NonNull<u8>, len: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Storage { start, len, owner: Owner::Foreign(owner) }
    }

    /// Whether the bytes are a `Vec`'s, and could be had as such.
    pub(super) fn is_vec(&self) -> bool {
        matches!(self.owner, Owner::Memory(_))
    }

    /// Whether the bytes are in locked pages.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.owner, Owner::Pinned(_))
    }

    /// Whether the bytes are a mapped file's.
    #[cfg(feature = "npy")]
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::File(_))
    }

    /// Without the feature no file is mapped.
    #[cfg(not(feature = "npy"))]
    pub(super) fn is_mapped(&self) -> bool {
        false
    }

    /// All bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the invariant at the top of this module; the borrow of self keeps the owner alive.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The `Vec` that this storage was made of, if it was made of one of this type.
    pub(super) fn into_vec<T: Element>(self) -> Result<Vec<T>, Self> {
        let Storage { start, len, owner } = self;
        match owner {
            Owner::Memory(data) => match data.downcast::<Vec<T>>() {
                Ok(data) => Ok(*data),
                Err(data) => Err(Storage { start, len, owner: Owner::Memory(data) }),
            },
            other => Err(Storage { start, len, owner: other }),
        }
    }
}
