//! Bytes together with the owner that keeps them alive.
//!
//! An [`AnyArray`](super::AnyArray) reads rows through one pointer, so reading a row does not check
//! which kind of memory holds it. Every `unsafe` block below relies on this invariant:
//!
//! > `start` points to `len` initialized bytes that `owner` keeps in place until it is dropped, and that no code
//! > writes to.
//!
//! It holds because the owner is never handed out, moved out or changed, except by `into_vec`, which consumes the
//! storage. Moving the storage moves only the `Vec`, `Mmap` or `Pages` itself, not the memory it points to.

use std::any::Any;
use std::ptr::NonNull;

use memmap2::Mmap;

use crate::arena::{Memory, Pages};
use crate::dtype::{Element, bytes_of};

/// Bytes in ordinary memory, in locked memory, or in a mapped file.
pub(super) struct Storage {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    /// A `Vec<T>` of some element type.
    Memory(Box<dyn Any + Send + Sync>),
    /// The owner of memory from other code, kept only to be dropped.
    Foreign(#[expect(dead_code)] Box<dyn Any + Send + Sync>),
    /// A mapped file, kept only to be dropped.
    File(#[expect(dead_code)] Mmap),
    /// Locked pages, kept only to be dropped.
    Pinned(#[expect(dead_code)] Pages),
}

// SAFETY: the bytes are only read, and their owner is `Send`.
unsafe impl Send for Storage {}
// SAFETY: shared access only reads the bytes.
unsafe impl Sync for Storage {}

impl Storage {
    /// Takes the bytes of `data`, aligned to `T`.
    pub(super) fn memory<T: Element>(data: Vec<T>) -> Self {
        let bytes = NonNull::from(bytes_of(&data));
        Storage { start: bytes.cast(), len: bytes.len(), owner: Owner::Memory(Box::new(data)) }
    }

    /// Takes the `len` bytes from `offset` in the file; `None` if the file is too short.
    pub(super) fn file(map: Mmap, offset: usize, len: usize) -> Option<Self> {
        let start = NonNull::from(map.get(offset..)?.get(..len)?).cast();
        Some(Storage { start, len, owner: Owner::File(map) })
    }

    /// Takes the first `len` bytes of locked pages, or all of them if there are fewer.
    pub(super) fn pinned(pages: Pages, len: usize) -> Self {
        Storage { start: pages.start(), len: len.min(pages.len()), owner: Owner::Pinned(pages) }
    }

    /// Takes `len` bytes from `start`, in memory that other code owns.
    ///
    /// # Safety
    ///
    /// The bytes must be initialised, and stay in place and unchanged until `owner` is dropped.
    pub(super) unsafe fn foreign(start: NonNull<u8>, len: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Storage { start, len, owner: Owner::Foreign(owner) }
    }

    /// Returns whether the bytes are in a `Vec`, which [`into_vec`](Self::into_vec) can return.
    pub(super) fn is_vec(&self) -> bool {
        matches!(self.owner, Owner::Memory(_))
    }

    /// Returns whether the bytes are in locked pages.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.owner, Owner::Pinned(_))
    }

    /// Returns whether the bytes are in a mapped file.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::File(_))
    }

    /// Returns all bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: by the invariant in this module's docs, and because the borrow of `self` keeps
        // the owner alive.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns the `Vec` that this storage was made from, if it has elements of type `T`.
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
