//! The word of a part: a ticket, an owner and a status.
//!
//! ```text
//! 63 … 16  ticket     15 … 4  owner     3 … 0  status
//! ```

/// The number of bits below the ticket in a word.
const POSITION_SHIFT: u32 = 16;
const OWNER_SHIFT: u32 = 4;
const STATUS: u64 = 0xf;

/// The mask of a ticket, after the shift; also the largest ticket.
pub(super) const POSITION: u64 = u64::MAX >> POSITION_SHIFT;

/// Status: not assigned, or withdrawn. The words of a new ring are 0, which is idle.
pub(super) const IDLE: u64 = 0;
/// Status: assigned and not claimed.
pub(super) const FREE: u64 = 1;
/// Status: claimed and not finished.
pub(super) const CLAIMED: u64 = 2;
/// Status: published.
pub(super) const DONE: u64 = 3;
/// Status: the claim was dropped without being published, or its worker has ended.
pub(super) const FAILED: u64 = 4;

/// The number of a worker, which the words of its claims hold. Workers that exist at the same time
/// have different numbers.
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
