//! Memory that processes share, which grows.
//!
//! A [`Mapping`] is a file without a name, mapped for as much as it may ever hold. Beyond its present size there is
//! nothing, so that it can grow without moving: one process makes the file longer, and all others have the new pages at
//! the same place.
//!
//! A [`Heap`] divides such memory into blocks. Only the process that writes the blocks has a heap; those that read them
//! know offsets, which they [check](Mapping::bytes).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alignment of all blocks, a cache line.
pub(crate) const ALIGN: usize = 64;
/// A file grows by at least as much.
const GROWTH: usize = 1 << 20;
/// Large blocks begin at a page.
const PAGE: usize = 4096;

/// A file without a name, mapped for as much as it may ever hold.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    reserved: usize,
    /// How large the file may become.
    limit: usize,
    file: OwnedFd,
    /// The size of the file when it was last looked at. It never shrinks.
    size: AtomicUsize,
}

// SAFETY: the memory belongs to the mapping, and is accessed through raw pointers whose users say why they may.
unsafe impl Send for Mapping {}
// SAFETY: see above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a file of `size` bytes, which grows to `limit` at most.
    pub(crate) fn new(size: usize, limit: Option<usize>) -> io::Result<Self> {
        // SAFETY: creates a file; the name is a string that ends with a zero.
        let file = unsafe { libc::memfd_create(c"slotline".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: sets a flag of the file. It must not shrink, since whoever then read beyond its end would be killed.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut mapping = Self::map(file)?;
        mapping.limit = limit.unwrap_or(mapping.reserved).min(mapping.reserved);
        mapping.grow(size)?;
        Ok(mapping)
    }

    /// Maps a file that another process has created.
    pub(crate) fn attach(file: OwnedFd) -> io::Result<Self> {
        let mapping = Self::map(file)?;
        mapping.look()?;
        Ok(mapping)
    }

    fn map(file: OwnedFd) -> io::Result<Self> {
        let mut reserved = most();
        loop {
            // SAFETY: maps the file at a new place. No memory is taken until it is used.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    reserved,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_NORESERVE,
                    file.as_raw_fd(),
                    0,
                )
            };
            if start != libc::MAP_FAILED {
                let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
                return Ok(Self { start, reserved, file, limit: reserved, size: AtomicUsize::new(0) });
            }
            // A limit on the address space (`ulimit -v`) allows less.
            if reserved <= 64 * GROWTH {
                return Err(io::Error::last_os_error());
            }
            reserved /= 4;
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the size of the file as it is now.
    pub(crate) fn size_now(&self) -> io::Result<usize> {
        self.look()
    }

    /// Returns the size of the file.
    pub(crate) fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Makes the file longer.
    fn grow(&self, size: usize) -> io::Result<()> {
        if size > self.limit {
            return Err(io::Error::other(format!(
                "the batches of a worker that are in use take more than {} MiB together; keep fewer of them, or raise memory_limit",
                self.limit >> 20
            )));
        }
        // SAFETY: changes the size of the file, which is mapped as far.
        if unsafe { libc::ftruncate(self.file.as_raw_fd(), size as libc::off_t) } < 0 {
            return Err(io::Error::last_os_error());
        }
        self.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// Looks how long the file is by now.
    fn look(&self) -> io::Result<usize> {
        // SAFETY: a stat is a struct of numbers, for which zeros are valid.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: writes into the local variable.
        if unsafe { libc::fstat(self.file.as_raw_fd(), &raw mut stat) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let size = usize::try_from(stat.st_size).unwrap_or(0).min(self.reserved);
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }

    /// Returns the start of a range of bytes, if the file has them.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.size() && end > self.look().ok()? {
            return None;
        }
        // SAFETY: the range is within the mapping.
        Some(unsafe { self.start.add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.reserved) };
    }
}

/// The most that one worker's batches can take: twice the machine's memory.
fn most() -> usize {
    // SAFETY: asks for numbers.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let memory = usize::try_from(pages).unwrap_or(0).saturating_mul(usize::try_from(page).unwrap_or(0));
    memory.saturating_mul(2).clamp(1 << 30, 1 << 43).next_multiple_of(PAGE)
}

/// Divides memory into blocks.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Free ranges by offset. No two of them touch.
    free: BTreeMap<usize, usize>,
    /// Where the file ends.
    end: usize,
    /// Whether no block may cross a place where the file ended once: the receiver page-locks what was added each time, and
    /// no device copies a block that lies in two such parts.
    keeps_seams: bool,
    seams: Vec<usize>,
}

impl Heap {
    /// Manages what follows the first `start` bytes of a file.
    pub(crate) fn new(start: usize) -> Self {
        Self { free: BTreeMap::new(), end: start.next_multiple_of(PAGE), keeps_seams: false, seams: Vec::new() }
    }

    /// Makes no block cross a place where the file ended before it was made longer. For a heap without blocks.
    pub(crate) fn keep_seams(&mut self) {
        self.keeps_seams = true;
    }

    /// Takes a block, and returns its offset and its length, which is at least `len`. Makes the file longer if need be.
    pub(crate) fn take(&mut self, len: usize, mapping: &Mapping) -> io::Result<(usize, usize)> {
        let align = if len >= GROWTH { PAGE } else { ALIGN };
        let len = len.max(1).checked_next_multiple_of(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let fits = |(&start, &size): (&usize, &usize)| {
            let skipped = start.next_multiple_of(align) - start;
            (size >= skipped + len).then_some((start, size, skipped))
        };
        if let Some((start, size, skipped)) = self.free.iter().find_map(fits) {
            self.free.remove(&start);
            if skipped > 0 {
                self.free.insert(start, skipped);
            }
            if size > skipped + len {
                self.free.insert(start + skipped + len, size - skipped - len);
            }
            return Ok((start + skipped, len));
        }
        // The file's end is a multiple of a page, and what is free before it becomes part of the block.
        let last = self.free.last_key_value().filter(|(start, size)| *start + *size == self.end && !self.keeps_seams);
        let start = last.map_or(self.end, |(start, _)| *start);
        let begin = start.next_multiple_of(align);
        // What is free cannot grow across a seam. So that blocks which become larger and larger find room, there are few seams.
        let growth = if self.keeps_seams { (self.end / 4).max(GROWTH) } else { GROWTH };
        let end = begin.checked_add(len.max(growth)).ok_or(io::ErrorKind::OutOfMemory)?.next_multiple_of(PAGE);
        // Less than the usual growth, if that is all there may be.
        let end = if end > mapping.limit { begin + len } else { end };
        mapping.grow(end)?;
        self.free.remove(&start);
        if self.keeps_seams {
            self.seams.push(self.end);
        }
        self.end = end;
        if begin > start {
            self.free.insert(start, begin - start);
        }
        if end > begin + len {
            self.free.insert(begin + len, end - begin - len);
        }
        Ok((begin, len))
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, (mut offset, mut len): (usize, usize)) {
        let is_seam = |offset: usize| self.seams.binary_search(&offset).is_ok();
        let (starts, ends) = (is_seam(offset), is_seam(offset + len));
        if let Some((&before, &size)) = self.free.range(..offset).next_back()
            && before + size == offset
            && !starts
        {
            self.free.remove(&before);
            (offset, len) = (before, size + len);
        }
        if !ends && let Some(size) = self.free.remove(&(offset + len)) {
            len += size;
        }
        self.free.insert(offset, len);
    }
}
