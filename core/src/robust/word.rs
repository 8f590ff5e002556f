//! The words of parts: a ticket, an owner and a status.
//!
//! ```text
//! 63 … 16  ticket     15 … 4  owner     3 … 0  status
//! ```

/// How far a ticket is shifted in a word.
const POSITION_SHIFT: u32 = 16;
const OWNER_SHIFT: u32 = 4;
const STATUS: u64 = 0xf;

/// The bits of a ticket.
pub(super) const POSITION: u64 = u64::MAX >> POSITION_SHIFT;

/// Not assigned, or withdrawn. A new ring's words are 0: idle.
pub(super) const IDLE: u64 = 0;
/// Assigned, and not claimed.
pub(super) const FREE: u64 = 1;
/// Claimed, and not finished.
pub(super) const CLAIMED: u64 = 2;
/// Published.
pub(super) const DONE: u64 = 3;
/// Given up.
pub(super) const FAILED: u64 = 4;

/// The number of a worker, which the words of its claims hold. Two that are alive never have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u16);

impl Owner {
    /// Creates an owner from its number.
    ///
    /// # Panics
    ///
    /// If the number is more than 4,095.
    pub const fn new(number: u16) -> Self {
        assert!(number < 1 << (POSITION_SHIFT - OWNER_SHIFT), "an owner's number is at most 4095");
        Self(number)
    }
}

/// Returns the word for a part without an owner.
#[inline]
pub(super) const fn unowned(position: u64, status: u64) -> u64 {
    position << POSITION_SHIFT | status
}

/// Returns the word for a part with an owner.
#[inline]
pub(super) const fn owned(position: u64, owner: Owner, status: u64) -> u64 {
    unowned(position, status) | (owner.0 as u64) << OWNER_SHIFT
}

/// Returns the ticket of a word.
#[inline]
pub(super) const fn position_of(word: u64) -> u64 {
    word >> POSITION_SHIFT
}

/// Returns the number of a word's owner.
#[inline]
pub(super) const fn owner_of(word: u64) -> u16 {
    (word >> OWNER_SHIFT) as u16 & 0xfff
}

/// Returns the status of a word, which may be none of those above if a corrupted worker wrote it.
#[inline]
pub(super) const fn status_of(word: u64) -> u64 {
    word & STATUS
}
