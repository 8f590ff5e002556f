//! Where the slots of a ring live.

/// Memory for slots: an array (inline, so that a ring fits in a `static`), a box, or a borrowed slice.
///
/// # Safety
///
/// [`slots`](Self::slots) must give the same slice, at the same place and of the same length, for as long as the
/// storage lives, and nothing else may reach the slots meanwhile.
pub unsafe trait Storage {
    /// One slot.
    type Slot;

    /// All slots.
    fn slots(&self) -> &[Self::Slot];
}

// SAFETY: an array is its own slots, and it does not move while it is borrowed; a ring hands out references to its
// slots only while the ring itself is borrowed.
unsafe impl<S, const N: usize> Storage for [S; N] {
    type Slot = S;

    #[inline]
    fn slots(&self) -> &[S] {
        self
    }
}

// SAFETY: as for arrays; the exclusive borrow keeps everyone else away.
unsafe impl<S> Storage for &mut [S] {
    type Slot = S;

    #[inline]
    fn slots(&self) -> &[S] {
        self
    }
}

#[cfg(feature = "alloc")]
// SAFETY: the box owns the slice, which stays where it is.
unsafe impl<S> Storage for alloc::boxed::Box<[S]> {
    type Slot = S;

    #[inline]
    fn slots(&self) -> &[S] {
        self
    }
}
