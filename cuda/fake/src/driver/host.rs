//! Page-locked host memory: registered or allocated, and optionally write-protected while copies
//! read it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Driver;
use super::code::{
    HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome,
};
use super::memory::{protect, write};

const PAGE: usize = 4096;
/// The flag for memory that is page-locked for all contexts, not only for the context in which it
/// was created.
const PORTABLE: u32 = 1;
const FILL: u8 = 0xa5;

#[derive(Default)]
pub(super) struct HostMemory {
    /// Pieces by address. They never overlap.
    pieces: BTreeMap<usize, Piece>,
    /// For each write-protected page, the number of copies in progress that read it.
    shut: BTreeMap<usize, u32>,
}

struct Piece {
    bytes: usize,
    device: usize,
    portable: bool,
    /// Whether the driver allocated the piece and must unmap it.
    allocated: bool,
}

impl Piece {
    fn unmap(&self, start: usize) {
        if self.allocated {
            // SAFETY: `allocate_host` mapped this range, and its user has freed it.
            unsafe { libc::munmap(start as *mut libc::c_void, self.bytes.next_multiple_of(PAGE)) };
        }
    }
}

/// The kind of host memory of a copy.
pub(super) enum Host {
    Pageable,
    PageLocked,
}

impl HostMemory {
    pub(super) fn registered(&self) -> usize {
        self.pieces.values().filter(|piece| !piece.allocated).map(|piece| piece.bytes).sum()
    }

    pub(super) fn allocated(&self) -> usize {
        self.pieces.values().filter(|piece| piece.allocated).map(|piece| piece.bytes).sum()
    }

    /// Removes everything that belongs to this device's context, which is being destroyed.
    pub(super) fn forget(&mut self, device: usize) {
        self.pieces.retain(|&start, piece| {
            let stays = piece.device != device;
            if !stays {
                piece.unmap(start);
            }
            stays
        });
    }

    /// Returns the pieces that share a page with these bytes.
    fn sharing(&self, start: usize, bytes: usize) -> impl Iterator<Item = (usize, &Piece)> {
        let asked = pages_around(start, bytes);
        let pieces = self.pieces.range(..asked.end).rev();
        // Pieces don't overlap, so the search ends at the first piece that ends too early.
        pieces
            .take_while(move |(at, piece)| pages_around(**at, piece.bytes).end > asked.start)
            .map(|(&start, piece)| (start, piece))
    }

    /// Returns the kind of the memory of these bytes, for a copy by this device.
    ///
    /// # Errors
    ///
    /// Fails if only some of the bytes are page-locked, or if they belong to two registrations. A
    /// real driver refuses to copy such memory.
    pub(super) fn kind(&self, start: usize, bytes: usize, device: usize) -> Result<Host, String> {
        let touches = |at: usize, piece: &Piece| at < start + bytes && start < at + piece.bytes;
        let mut found = self.sharing(start, bytes).filter(|&(at, piece)| touches(at, piece));
        match found.next() {
            None => Ok(Host::Pageable),
            Some((_, piece)) if !piece.portable && piece.device != device => Ok(Host::Pageable),
            Some((at, piece)) if at <= start && start + bytes <= at + piece.bytes => Ok(Host::PageLocked),
            Some(_) => Err(format!("host memory {start:#x}, {bytes} bytes, is page-locked in part, or in two pieces")),
        }
    }

    /// Write-protects the whole pages in this range until [`open`](Self::open) is called for it.
    pub(super) fn shut(&mut self, start: usize, bytes: usize) {
        let pages = pages_within(start, bytes);
        protect(pages.start, pages.len(), libc::PROT_READ);
        for page in pages.step_by(PAGE) {
            *self.shut.entry(page).or_default() += 1;
        }
    }

    /// Ends the protection of this range for one copy, which is done.
    pub(super) fn open(&mut self, start: usize, bytes: usize) {
        for page in pages_within(start, bytes).step_by(PAGE) {
            match self.shut.get_mut(&page) {
                Some(copies) if *copies > 1 => *copies -= 1,
                Some(_) => {
                    self.shut.remove(&page);
                    protect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
                }
                None => {}
            }
        }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        for &page in self.shut.keys() {
            protect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        }
        for (&start, piece) in &self.pieces {
            piece.unmap(start);
        }
    }
}

/// Returns whether `start + bytes` is a valid address range. The code below relies on it.
pub(super) fn is_addressable(start: usize, bytes: usize) -> bool {
    start.checked_add(bytes).is_some_and(|end| end <= isize::MAX as usize)
}

fn pages_around(start: usize, bytes: usize) -> Range<usize> {
    start / PAGE * PAGE..(start + bytes).next_multiple_of(PAGE)
}

fn pages_within(start: usize, bytes: usize) -> Range<usize> {
    let first = start.next_multiple_of(PAGE);
    first..first.max((start + bytes) / PAGE * PAGE)
}

impl Driver {
    pub(super) fn register(&mut self, start: usize, bytes: usize, flags: u32) -> Outcome {
        let device = self.current()?;
        if start == 0 || bytes == 0 || start.checked_add(bytes).is_none() {
            return Err(INVALID_VALUE);
        }
        if !is_addressable(start, bytes) {
            return Err(NOT_SUPPORTED);
        }
        if self.host.sharing(start, bytes).next().is_some() {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        let portable = flags & PORTABLE != 0;
        self.host.pieces.insert(start, Piece { bytes, device, portable, allocated: false });
        Ok(())
    }

    pub(super) fn unregister(&mut self, start: usize) -> Outcome {
        self.current()?;
        let before = self.host.pieces.range(..start).next_back();
        let is_inside = before.is_some_and(|(at, piece)| !piece.allocated && start - at < piece.bytes);
        self.give_back(start, false, if is_inside { INVALID_VALUE } else { HOST_MEMORY_NOT_REGISTERED })
    }

    /// Returns the start of new memory. For 0 bytes it returns 0, which is not an error.
    pub(super) fn allocate_host(&mut self, bytes: usize, flags: u32) -> Outcome<usize> {
        let device = self.current()?;
        if bytes == 0 {
            return Ok(0);
        }
        let pages = bytes.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
        let flags_of_map = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the call creates a new mapping at an address that the system chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), pages, protection, flags_of_map, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        let start = start as usize;
        write(start, &vec![FILL; bytes.min(PAGE)]);
        let portable = flags & PORTABLE != 0;
        self.host.pieces.insert(start, Piece { bytes, device, portable, allocated: true });
        Ok(start)
    }

    pub(super) fn free_host(&mut self, start: usize) -> Outcome {
        if start == 0 {
            return self.current().map(drop);
        }
        self.check_context_for(self.host.pieces.get(&start).map(|piece| piece.device))?;
        self.give_back(start, true, INVALID_VALUE)
    }

    /// Waits for the copies that use the memory, as a real driver does. Such a copy is recorded as
    /// a violation, since programs should not rely on the wait.
    fn give_back(&mut self, start: usize, allocated: bool, otherwise: u32) -> Outcome {
        let piece = self.host.pieces.get(&start).filter(|piece| piece.allocated == allocated).ok_or(otherwise)?;
        let bytes = piece.bytes;
        if let Some(user) = self.user_of(start, bytes) {
            self.violation(format!("host memory {start:#x} is released while in use: {user}"));
            self.run_until(|driver| driver.user_of(start, bytes).is_none())?;
        }
        if let Some(piece) = self.host.pieces.remove(&start) {
            piece.unmap(start);
        }
        Ok(())
    }
}
