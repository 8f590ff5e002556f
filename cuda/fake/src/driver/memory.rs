//! Device memory: address space of its own for each device, of which no address is ever given out twice. What is freed
//! can no longer be touched, so that a late access is seen.

use std::collections::BTreeMap;

use super::code::{INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use super::stream::Work;
use super::{Driver, Handle};

/// Address space of a device, in bytes; a device may give out this much in all its life.
const SPACE: usize = 1 << 38;
const PAGE: usize = 4096;
/// New memory is filled with this, so that nobody takes it for zeros. Large pieces only at their start, to save time.
const FILL: u8 = 0xa5;
const FILLED: usize = 64 << 20;

pub(super) struct DeviceMemory {
    limit: usize,
    used: usize,
    /// 0 until the first allocation.
    space: usize,
    /// How much of the space was given out.
    given: usize,
    /// By address.
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
            // SAFETY: a new mapping at an address of the system's choice.
            let space = unsafe { libc::mmap(std::ptr::null_mut(), SPACE, libc::PROT_NONE, flags, -1, 0) };
            if space == libc::MAP_FAILED {
                return Err(OUT_OF_MEMORY);
            }
            self.space = space as usize;
        }
        let start = self.space + self.given;
        let pages = bytes.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
        // One page between, which stays shut.
        if pages > (SPACE - self.given).saturating_sub(PAGE)
            || !protect(start, pages, libc::PROT_READ | libc::PROT_WRITE)
        {
            return Err(OUT_OF_MEMORY);
        }
        self.given += pages + PAGE;
        self.used += bytes;
        // SAFETY: pages of our own that nobody has seen yet.
        unsafe { std::ptr::write_bytes(start as *mut u8, FILL, bytes.min(FILLED)) };
        self.pieces.insert(start, Piece { bytes, freed: false });
        Ok(start)
    }

    /// # Errors
    ///
    /// What is wrong with the address.
    fn free(&mut self, start: usize) -> Result<(), String> {
        let piece =
            self.pieces.get_mut(&start).ok_or_else(|| format!("frees {start:#x}, which was never allocated"))?;
        if piece.freed {
            return Err(format!("frees {start:#x} once more"));
        }
        piece.freed = true;
        self.used -= piece.bytes;
        let pages = piece.bytes.next_multiple_of(PAGE);
        // SAFETY: the pages are our own, and given back by their user; what they held is not needed.
        unsafe { libc::madvise(start as *mut libc::c_void, pages, libc::MADV_DONTNEED) };
        protect(start, pages, libc::PROT_NONE);
        Ok(())
    }

    fn holds(&self, address: usize) -> bool {
        self.space != 0 && (self.space..self.space + SPACE).contains(&address)
    }

    /// # Errors
    ///
    /// What is wrong with the range.
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
            // SAFETY: the whole space, mapped by us; its device's work is done or dropped.
            unsafe { libc::munmap(self.space as *mut libc::c_void, SPACE) };
        }
    }
}

/// Whether the system did it.
pub(super) fn protect(start: usize, bytes: usize, protection: libc::c_int) -> bool {
    // SAFETY: callers name pages of device memory that are theirs, or pages that their user has given to the driver.
    unsafe { libc::mprotect(start as *mut libc::c_void, bytes, protection) == 0 }
}

/// A copy of bytes that somebody else may be writing at this moment, which is what the driver is there to notice.
pub(super) fn read(from: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    // SAFETY: callers name device memory that they checked, or host memory that their user gave to the driver.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, copy.as_mut_ptr(), bytes) };
    copy
}

/// Writes bytes where they may be read at this moment.
pub(super) fn write(to: usize, bytes: &[u8]) {
    // SAFETY: as for `read`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
}

/// What bytes are told apart by.
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

    /// Waits for the work that uses it, as a driver does, but says so: nobody should rely on that.
    pub(super) fn free(&mut self, start: usize) -> Outcome {
        self.current()?;
        if start == 0 {
            return Ok(());
        }
        let bytes = self.allocated_at(start);
        if let Some(user) = self.user_of(start, bytes) {
            self.violation(format!("device memory {start:#x} is freed while in use: {user}"));
            self.run_until(|driver| driver.user_of(start, bytes).is_none())?;
        }
        self.free_now(start)
    }

    pub(super) fn free_now(&mut self, start: usize) -> Outcome {
        let memory = self.devices.iter_mut().map(|device| &mut device.memory).find(|memory| memory.holds(start));
        match memory.map_or_else(|| Err(format!("frees {start:#x}, which is no device memory")), |m| m.free(start)) {
            Ok(()) => Ok(()),
            Err(problem) => {
                self.violation(problem);
                Err(INVALID_VALUE)
            }
        }
    }

    /// The device that has these bytes, all of them in one allocation.
    ///
    /// # Errors
    ///
    /// What is wrong with the range.
    pub(super) fn check_range(&self, start: usize, bytes: usize) -> Result<usize, String> {
        let device = self.devices.iter().position(|device| device.memory.holds(start));
        let device = device.ok_or_else(|| format!("{start:#x} is no device memory"))?;
        self.devices[device].memory.check(start, bytes)?;
        Ok(device)
    }

    /// How long the allocation is that begins here; 0 if there is none.
    fn allocated_at(&self, start: usize) -> usize {
        let pieces = self.devices.iter().filter_map(|device| device.memory.pieces.get(&start));
        pieces.map(|piece| piece.bytes).next().unwrap_or(0)
    }

    /// Freed when the stream gets there.
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

    /// What is free on the current device, and what it has in all.
    pub(super) fn memory_info(&self) -> Outcome<(usize, usize)> {
        let memory = &self.devices[self.current()?].memory;
        Ok((memory.limit - memory.used, memory.limit))
    }
}
