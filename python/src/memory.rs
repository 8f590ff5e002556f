//! Growing memory that several processes share.
//!
//! A [`Mapping`] is an anonymous file. Each part that is added to it is mapped as a separate
//! [`Region`] when a process needs it, so that a process never reserves more address space than the
//! file's length. No block crosses an offset at which the file once ended, so each block lies in
//! one region, also in a process that has mapped several additions as one region.
//!
//! A [`Heap`] allocates blocks in such memory. Only the process that writes the blocks has a heap;
//! the readers receive offsets, which they [check](Mapping::find).

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyMemoryError;

/// The alignment of all blocks, a cache line.
pub(crate) const ALIGN: usize = 64;
/// The least number of bytes by which a file grows.
const GROWTH: usize = 1 << 20;

/// Returns the size of a page in bytes.
fn page() -> usize {
    // SAFETY: queries a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A mapped part of a file.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    /// The range of offsets in the file.
    range: Range<usize>,
    blocks: Mutex<Blocks>,
}

/// The blocks of a region that this process has received and not returned.
#[derive(Debug, Default)]
struct Blocks {
    /// The end of each block by its start. Blocks do not overlap.
    ends: BTreeMap<usize, usize>,
    /// Whether all pages outside of these blocks were freed and unmapped.
    is_freed: bool,
}

// SAFETY: the memory belongs to the region, and is accessed only through raw pointers, whose uses
// are justified separately.
unsafe impl Send for Region {}
// SAFETY: see above.
unsafe impl Sync for Region {}

impl Region {
    fn map(file: &OwnedFd, range: Range<usize>) -> io::Result<Self> {
        // SAFETY: maps the file at an unused address. Pages are allocated on first use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                range.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                libc::off_t::try_from(range.start).map_err(io::Error::other)?,
            )
        };
        if start == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            let size = range.len().div_ceil(1 << 20);
            return Err(io::Error::other(format!(
                "{size} MiB of memory for batches cannot be mapped ({error}): if the address space is limited (ulimit -v), \
                 raise the limit; or use fewer workers, a smaller prefetch_factor, or smaller batches"
            )));
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, range, blocks: Mutex::default() })
    }

    /// Returns the region's address and length.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.start.addr().get(), self.range.len())
    }

    /// Returns the address of an offset of the file, which must be in the region.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(self.range.contains(&offset));
        // SAFETY: the offset is in the mapping.
        unsafe { self.start.add(offset - self.range.start) }
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a block that was received. Returns `false` if it overlaps another.
    pub(crate) fn keep(&self, block: Range<usize>) -> bool {
        let mut blocks = self.blocks();
        let before = blocks.ends.range(..=block.start).next_back().is_none_or(|(_, &end)| end <= block.start);
        let after = blocks.ends.range(block.start..).next().is_none_or(|(&start, _)| block.end <= start);
        let is_new = before && after && !block.is_empty() && !blocks.is_freed;
        if is_new {
            blocks.ends.insert(block.start, block.end);
        }
        is_new
    }

    /// Removes a block that was [kept](Self::keep).
    pub(crate) fn end(&self, block: &Range<usize>) {
        let mut blocks = self.blocks();
        blocks.ends.remove(&block.start);
        if blocks.is_freed {
            let page = page();
            let before = blocks.ends.range(..block.start).next_back().map_or(0, |(_, end)| end.next_multiple_of(page));
            let after = blocks.ends.range(block.start..).next().map_or(usize::MAX, |(start, _)| start / page * page);
            let (start, end) = (block.start / page * page, block.end.next_multiple_of(page));
            self.free(start.max(before)..end.min(after));
        }
    }

    /// Frees all memory outside of kept blocks, and from then on also blocks that are returned. The
    /// memory must not be used otherwise any more.
    pub(crate) fn free_all(&self) {
        let mut blocks = self.blocks();
        if blocks.is_freed {
            return;
        }
        blocks.is_freed = true;
        let page = page();
        let mut free = self.range.start;
        for (&start, &end) in &blocks.ends {
            self.free(free..start / page * page);
            free = end.next_multiple_of(page);
        }
        self.free(free..self.range.end);
    }

    /// Frees whole pages, and unmaps them.
    fn free(&self, pages: Range<usize>) {
        if !pages.is_empty() {
            self.punch(pages.clone());
            // SAFETY: nothing refers to these pages any more, and they are unmapped once.
            unsafe { libc::munmap(self.at(pages.start).as_ptr().cast(), pages.len()) };
        }
    }

    /// Frees the whole pages in a range. In all processes they then read as zeros.
    fn punch(&self, range: Range<usize>) {
        let page = page();
        let (start, end) = (range.start.next_multiple_of(page), range.end / page * page);
        if start < end {
            // SAFETY: these pages are in the mapping and contain nothing in use. On failure they
            // keep their memory.
            unsafe { libc::madvise(self.at(start).as_ptr().cast(), end - start, libc::MADV_REMOVE) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let blocks = self.blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !blocks.is_freed {
            // SAFETY: this region owns the mapping, and nothing refers to it any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.range.len()) };
        }
    }
}

/// An anonymous file, and the parts of it that this process has mapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    file: OwnedFd,
    head: Region,
    /// The regions after the head, in order and without gaps.
    regions: Mutex<Vec<Arc<Region>>>,
}

impl Mapping {
    /// Creates a file with a head of `head` bytes.
    pub(crate) fn new(head: usize) -> io::Result<Self> {
        let file = file(c"slotline")?;
        // SAFETY: sets a flag of the file. It must not shrink, since a process that then read beyond its end would be killed.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        lengthen(&file, head.next_multiple_of(page()))?;
        Self::map(file, head)
    }

    /// Maps the head of a file that another process has created, if the file is long enough.
    pub(crate) fn attach(file: OwnedFd, head: usize) -> io::Result<Option<Self>> {
        if length(&file)? < head { Ok(None) } else { Self::map(file, head).map(Some) }
    }

    fn map(file: OwnedFd, head: usize) -> io::Result<Self> {
        let head = Region::map(&file, 0..head.next_multiple_of(page()))?;
        Ok(Self { file, head, regions: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn head(&self) -> NonNull<u8> {
        self.head.start
    }

    /// Returns the regions that this process has mapped, without the head.
    pub(crate) fn regions(&self) -> MutexGuard<'_, Vec<Arc<Region>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the end of the mapped part.
    fn end(&self, regions: &[Arc<Region>]) -> usize {
        regions.last().map_or(self.head.range.end, |last| last.range.end)
    }

    /// Extends the file by a region.
    fn grow(&self, added: Range<usize>) -> io::Result<()> {
        let mut regions = self.regions();
        admit(added.len())?;
        // Map it before the file grows, since the file cannot shrink after a failure.
        let region = Region::map(&self.file, added)?;
        lengthen(&self.file, region.range.end)?;
        regions.push(Arc::new(region));
        Ok(())
    }

    /// Returns the region that contains a block, if the block is in the file.
    pub(crate) fn find(&self, block: &Range<usize>) -> io::Result<Option<Arc<Region>>> {
        let mut regions = self.regions();
        let mapped = self.end(&regions);
        if block.end > mapped {
            let length = length(&self.file)?;
            if block.end > length {
                return Ok(None);
            }
            regions.push(Arc::new(Region::map(&self.file, mapped..length)?));
        }
        let index = regions.partition_point(|region| region.range.end <= block.start);
        let region =
            regions.get(index).filter(|region| region.range.start <= block.start && block.end <= region.range.end);
        Ok(region.cloned())
    }
}

/// Creates an empty file without a name in the file system. `name` is what tools show.
pub(crate) fn file(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: creates a file; the name is a string that ends with a zero.
    let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Returns an error if the machine has less than `len` bytes of memory. A file gets its memory only
/// when it is written, and the system kills a process that then needs too much.
fn admit(len: usize) -> io::Result<()> {
    // SAFETY: the struct contains only numbers, for which zeros are valid.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: writes into the local variable.
    if unsafe { libc::sysinfo(&raw mut info) } < 0 {
        return Ok(());
    }
    let all = u128::from(info.totalram) + u128::from(info.totalswap);
    if len as u128 <= all * u128::from(info.mem_unit) {
        return Ok(());
    }
    let text = format!("a batch takes {len} bytes, and the machine has less memory: make batches or samples smaller");
    Err(io::Error::other(PyMemoryError::new_err(text)))
}

fn lengthen(file: &OwnedFd, length: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(length).map_err(io::Error::other)?;
    // SAFETY: changes the size of the file.
    if unsafe { libc::ftruncate(file.as_raw_fd(), length) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the length of a file, rounded to whole pages.
fn length(file: &OwnedFd) -> io::Result<usize> {
    // SAFETY: a stat contains only numbers, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writes into the local variable.
    if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let page = page();
    Ok(usize::try_from(stat.st_size).unwrap_or(0) / page * page)
}

/// An allocator of blocks in a [`Mapping`].
#[derive(Debug)]
pub(crate) struct Heap {
    /// Free ranges by offset. Adjacent ranges are merged, except at an earlier end of the file.
    free: BTreeMap<usize, usize>,
    /// The end of the file.
    end: usize,
    /// The earlier ends of the file.
    seams: Vec<usize>,
    /// The length of the file up to which free ranges keep their memory.
    most: usize,
    page: usize,
}

impl Heap {
    /// Creates an allocator for everything after the first `start` bytes. Free ranges keep their
    /// memory until the file has `limit` more bytes.
    pub(crate) fn new(start: usize, limit: usize) -> Self {
        let page = page();
        let end = start.next_multiple_of(page);
        Self { free: BTreeMap::new(), end, seams: Vec::new(), most: end.saturating_add(limit), page }
    }

    /// Allocates a block of at least `len` bytes, and extends the file if necessary.
    pub(crate) fn take(&mut self, len: usize, mapping: &Mapping) -> io::Result<Range<usize>> {
        // Large blocks begin at a page boundary.
        let align = if len >= GROWTH { self.page } else { ALIGN };
        let len = len.max(1).checked_next_multiple_of(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let fits = |(&start, &size): (&usize, &usize)| {
            let skipped = start.next_multiple_of(align) - start;
            (size >= skipped + len).then_some((start, size, skipped))
        };
        let (start, size, skipped) = match self.free.iter().find_map(fits) {
            Some(range) => range,
            None => {
                let start = self.end;
                // Free ranges cannot be merged across a seam. Growing by a quarter keeps seams few,
                // so that ever larger blocks find room.
                let growth = len.max(GROWTH).max(start / 4);
                self.grow(growth, mapping).or_else(|_| self.grow(len, mapping))?;
                (start, self.end - start, 0)
            }
        };
        self.free.remove(&start);
        if skipped > 0 {
            self.free.insert(start, skipped);
        }
        if size > skipped + len {
            self.free.insert(start + skipped + len, size - skipped - len);
        }
        Ok(start + skipped..start + skipped + len)
    }

    fn grow(&mut self, len: usize, mapping: &Mapping) -> io::Result<()> {
        let end = self.end.checked_add(len).and_then(|end| end.checked_next_multiple_of(self.page));
        let end = end.ok_or(io::ErrorKind::OutOfMemory)?;
        mapping.grow(self.end..end)?;
        self.seams.push(self.end);
        self.free.insert(self.end, end - self.end);
        self.end = end;
        self.bound(mapping);
        Ok(())
    }

    /// Frees a block.
    pub(crate) fn give(&mut self, block: Range<usize>) {
        let (mut offset, mut len) = (block.start, block.len());
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

    /// Frees the memory of all free ranges if the file is longer than the limit.
    pub(crate) fn bound(&self, mapping: &Mapping) {
        if self.end > self.most {
            self.trim(mapping);
        }
    }

    /// Frees the memory of all free ranges. It is allocated again when they are used.
    pub(crate) fn trim(&self, mapping: &Mapping) {
        for (&offset, &len) in &self.free {
            if let Ok(Some(region)) = mapping.find(&(offset..offset + len)) {
                region.punch(offset..offset + len);
            }
        }
    }
}
