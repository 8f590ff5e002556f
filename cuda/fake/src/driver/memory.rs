//! Device memory: each device has a separate address space, in which no address is reused. Freed
//! memory is made inaccessible, so that late accesses are detected.

use std::collections::BTreeMap;

use super::code::{INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use super::stream::Work;
use super::{Driver, Handle};

/// The size of a device's address space, in bytes. A device can allocate no more than this until it
/// is reset.
const SPACE: usize = 1 << 38;
const PAGE: usize = 4096;
/// The byte that new memory is filled with, so that it is not mistaken for zeros. Large pieces are
/// filled only at their start, to save time.
const FILL: u8 = 0xa5;
const FILLED: usize = 64 << 20;

pub(super) struct DeviceMemory {
    limit: usize,
    used: usize,
    /// The start of the address space; 0 until the first allocation.
    space: usize,
    /// The number of bytes of the space that were allocated so far.
    given: usize,
    /// The allocated pieces by address.
    pieces: BTreeMap<usize, Piece>,
}

struct Piece {
    bytes: usize,
    freed: bool,
}

impl DeviceMemory {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: 0, space: 0, given: 0, pieces: BTreeMap::new() }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    fn allocate(&mut self, bytes: usize) -> Outcome<usize> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if bytes > self.limit - self.used {
            return Err(OUT_OF_MEMORY);
        }
        if self.space == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: the call creates a new mapping at an address that the system chooses.
            let space = unsafe { libc::mmap(std::ptr::null_mut(), SPACE, libc::PROT_NONE, flags, -1, 0) };
            if space == libc::MAP_FAILED {
                return Err(OUT_OF_MEMORY);
            }
            self.space = space as usize;
        }
        let start = self.space + self.given;
        let pages = bytes.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
        // One inaccessible page separates allocations.
        if pages > (SPACE - self.given).saturating_sub(PAGE)
            || !protect(start, pages, libc::PROT_READ | libc::PROT_WRITE)
        {
            return Err(OUT_OF_MEMORY);
        }
        self.given += pages + PAGE;
        self.used += bytes;
        // SAFETY: the pages belong to the driver and were not handed out yet.
        unsafe { std::ptr::write_bytes(start as *mut u8, FILL, bytes.min(FILLED)) };
        self.pieces.insert(start, Piece { bytes, freed: false });
        Ok(start)
    }

    /// # Errors
    ///
    /// Returns what is wrong with the address.
    fn free(&mut self, start: usize) -> Result<(), String> {
        let piece =
            self.pieces.get_mut(&start).ok_or_else(|| format!("frees {start:#x}, which was never allocated"))?;
        if piece.freed {
            return Err(format!("frees {start:#x} a second time"));
        }
        piece.freed = true;
        self.used -= piece.bytes;
        let pages = piece.bytes.next_multiple_of(PAGE);
        // SAFETY: the pages belong to the driver, their user has freed them, and their contents are
        // not needed.
        unsafe { libc::madvise(start as *mut libc::c_void, pages, libc::MADV_DONTNEED) };
        protect(start, pages, libc::PROT_NONE);
        Ok(())
    }

    fn holds(&self, address: usize) -> bool {
        self.space != 0 && (self.space..self.space + SPACE).contains(&address)
    }

    /// # Errors
    ///
    /// Returns what is wrong with the range.
    fn check(&self, start: usize, bytes: usize) -> Result<(), String> {
        let at = self.pieces.range(..=start).next_back().filter(|(at, piece)| start - *at < piece.bytes.max(1));
        let (at, piece) = at.ok_or_else(|| format!("device memory {start:#x} was never allocated"))?;
        let room = piece.bytes - (start - at);
        if piece.freed {
            Err(format!("device memory {start:#x} was freed"))
        } else if bytes > room {
            Err(format!("{bytes} bytes at {start:#x} run past the end of {} allocated bytes", piece.bytes))
        } else {
            Ok(())
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.space != 0 {
            // SAFETY: the driver mapped the whole space, and the work of its device is done or
            // discarded.
            unsafe { libc::munmap(self.space as *mut libc::c_void, SPACE) };
        }
    }
}

/// Changes the protection of pages. Returns whether the system call succeeded.
pub(super) fn protect(start: usize, bytes: usize, protection: libc::c_int) -> bool {
    // SAFETY: callers pass pages of device memory that belong to the driver, or pages that their
    // user has handed to the driver.
    unsafe { libc::mprotect(start as *mut libc::c_void, bytes, protection) == 0 }
}

/// Returns a copy of bytes that other code may be writing at the same time. Detecting such writes
/// is the purpose of this driver.
pub(super) fn read(from: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    // SAFETY: callers pass device memory that they checked, or host memory that its user handed to
    // the driver.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, copy.as_mut_ptr(), bytes) };
    copy
}

/// Writes bytes that other code may be reading at the same time.
pub(super) fn write(to: usize, bytes: &[u8]) {
    // SAFETY: as for `read`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
}

/// Returns a hash of the bytes.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    };
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, &byte| mix(hash, u64::from(byte)))
}

impl Driver {
    pub(super) fn allocate(&mut self, bytes: usize) -> Outcome<usize> {
        let device = self.current()?;
        self.devices[device].memory.allocate(bytes)
    }

    /// Waits for the work that uses the memory, as a real driver does. Such work is recorded as a
    /// violation, since programs should not rely on the wait.
    pub(super) fn free(&mut self, start: usize) -> Outcome {
        if start == 0 {
            return self.current().map(drop);
        }
        self.check_context_for(self.devices.iter().position(|device| device.memory.holds(start)))?;
        let bytes = self.allocated_at(start);
        if let Some(user) = self.user_of(start, bytes) {
            self.violation(format!("device memory {start:#x} is freed while in use: {user}"));
            self.run_until(|driver| driver.user_of(start, bytes).is_none())?;
        }
        self.free_now(start)
    }

    pub(super) fn free_now(&mut self, start: usize) -> Outcome {
        let memory = self.devices.iter_mut().map(|device| &mut device.memory).find(|memory| memory.holds(start));
        match memory.map_or_else(|| Err(format!("frees {start:#x}, which is not device memory")), |m| m.free(start)) {
            Ok(()) => Ok(()),
            Err(problem) => {
                self.violation(problem);
                Err(INVALID_VALUE)
            }
        }
    }

    /// Returns the device on which these bytes are allocated. All of them must be in one
    /// allocation.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the range.
    pub(super) fn check_range(&self, start: usize, bytes: usize) -> Result<usize, String> {
        let device = self.devices.iter().position(|device| device.memory.holds(start));
        let device = device.ok_or_else(|| format!("{start:#x} is not device memory"))?;
        self.devices[device].memory.check(start, bytes)?;
        Ok(device)
    }

    /// Returns the length of the allocation that starts here; 0 if there is none.
    fn allocated_at(&self, start: usize) -> usize {
        let pieces = self.devices.iter().filter_map(|device| device.memory.pieces.get(&start));
        pieces.map(|piece| piece.bytes).next().unwrap_or(0)
    }

    /// Frees the memory when the stream has done its earlier work.
    pub(super) fn free_on(&mut self, start: usize, stream: Handle) -> Outcome {
        let stream = self.find_stream(stream)?;
        match self.check_range(start, 1) {
            _ if start == 0 => {}
            Ok(_) => self.enqueue(stream, Work::Free(start, self.allocated_at(start))),
            Err(problem) => {
                self.violation(format!("a free on a stream: {problem}"));
                return Err(INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Returns the free and the total memory of the current device.
    pub(super) fn memory_info(&self) -> Outcome<(usize, usize)> {
        let memory = &self.devices[self.current()?].memory;
        Ok((memory.limit - memory.used, memory.limit))
    }
}
