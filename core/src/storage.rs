//! Where the slots of a ring are stored.

/// Memory for slots: an array (inline, so that a ring fits in a `static`), a box, or a borrowed
/// slice.
///
/// # Safety
///
/// [`slots`](Self::slots) must return the same slice, at the same address and with the same length,
/// for as long as the storage lives, and nothing else may access the slots during that time.
pub unsafe trait Storage {
    /// The type of a slot.
    type Slot;

    /// Returns all slots.
    fn slots(&self) -> &[Self::Slot];
}

// SAFETY: an array holds its slots inline, so they do not move while the array is borrowed; a ring
// hands out references to its slots only while the ring itself is borrowed.
unsafe impl<S, const N: usize> Storage for [S; N] {
    type Slot = S;

    #[inline]
    fn slots(&self) -> &[S] {
        self
    }
}

// SAFETY: as for arrays; the exclusive borrow keeps all other code away from the slots.
unsafe impl<S> Storage for &mut [S] {
    type Slot = S;

    #[inline]
    fn slots(&self) -> &[S] {
        self
    }
}

#[cfg(feature = "alloc")]
// SAFETY: the box owns the slice, whose memory on the heap does not move.
unsafe impl<S> Storage for alloc::boxed::Box<[S]> {
    type Slot = S;

    #[inline]
    fn slots(&self) -> &[S] {
        self
    }
}
