//! The memory behind the batches: page-aligned, touched before use, and page-locked on request.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// Memory that batches are written into. By default a loader allocates [`Pages`];
/// [`Builder::memory`](crate::loader::Builder::memory) supplies other memory.
///
/// # Safety
///
/// Until the value is dropped, [`len`](Self::len) bytes from [`start`](Self::start) must be readable and writable, and
/// used by no one else. They must be zero when a loader receives them, and aligned to [`ALIGN`]. Both methods must
/// always return the same value.
///
/// This applies to the process that made the value. In a process forked from it the memory may be missing or shared: a
/// loader neither accesses the memory there nor drops the value ([After a fork](crate::loader#after-a-fork)).
pub unsafe trait Memory: Any + Send + Sync + fmt::Debug {
    /// Returns a pointer to the first byte.
    fn start(&self) -> NonNull<u8>;

    /// Returns the size in bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether processes that are forked from this one read and write the same memory. Workers that are
    /// [processes](crate::loader::Builder::processes) need that.
    fn is_shared(&self) -> bool {
        false
    }
}

/// The alignment of an arena, and of every slot in it that is at least this large: one page.
pub const ALIGN: usize = 4096;
/// The size and alignment of a huge page.
const HUGE: usize = 2 << 20;

/// Zeroed anonymous pages, huge ones if the system provides them. The system allocates a page when it is first written,
/// or earlier, in [`populate`](Self::populate), so that no batch causes a page fault.
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
    /// The whole mapping. It starts earlier than `start` if that had to be aligned to a huge page.
    mapped: (NonNull<libc::c_void>, usize),
    locked: bool,
    shared: bool,
}

// SAFETY: `Pages` is a plain value that owns its memory.
unsafe impl Send for Pages {}
// SAFETY: as above; shared access gives out addresses only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// The system's error, if it refuses the mapping.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::map(len, false)
    }

    /// Works like [`new`](Self::new), with pages that processes share which are forked from this one. Pages that are
    /// never used take no memory.
    ///
    /// # Errors
    ///
    /// The system's error, if it refuses the mapping.
    pub fn shared(len: usize) -> io::Result<Self> {
        Self::map(len, true)
    }

    fn map(len: usize, shared: bool) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::OutOfMemory, "more bytes than can be addressed");
        let len = len.max(1).checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        let spare = if len >= HUGE { HUGE } else { 0 };
        let size = len.checked_add(spare).filter(|&size| size <= isize::MAX as usize).ok_or_else(too_large)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags =
            libc::MAP_ANONYMOUS | if shared { libc::MAP_SHARED | libc::MAP_NORESERVE } else { libc::MAP_PRIVATE };
        // SAFETY: a new mapping at an address that the system chooses touches no existing memory.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = NonNull::new(mapped).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        let first = mapped.cast::<u8>();
        let skip = if spare > 0 { first.as_ptr().align_offset(HUGE) } else { 0 };
        // SAFETY: the skip is less than the spare bytes.
        let start = unsafe { first.add(skip) };
        #[cfg(target_os = "linux")]
        if len >= HUGE {
            // SAFETY: this only gives advice about pages that this value owns; without huge pages the system uses small
            // ones.
            unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { start, len, mapped: (mapped, size), locked: false, shared })
    }

    /// Allocates the pages of the first `bytes` bytes now, or all pages if the system cannot populate pages while other
    /// threads write into them. The contents do not change. Returns whether all pages are allocated.
    pub fn touch(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.len);
        if self.populate(0..bytes) {
            return bytes == self.len;
        }
        for offset in (0..self.len).step_by(ALIGN) {
            // SAFETY: the offset is inside the pages, and `&mut self` makes this the only access.
            unsafe {
                let byte = self.start.as_ptr().add(offset);
                byte.write_volatile(byte.read_volatile());
            }
        }
        true
    }

    /// Allocates the pages of these bytes, huge ones where possible. The contents do not change. Returns `false` if the
    /// system refuses; the pages are then allocated when they are first written.
    ///
    /// # Panics
    ///
    /// If the range is not within the pages.
    pub fn populate(&self, bytes: Range<usize>) -> bool {
        assert!(bytes.start <= bytes.end && bytes.end <= self.len);
        let first = bytes.start / ALIGN * ALIGN;
        // SAFETY: the range is within the pages (asserted above).
        let start = unsafe { self.start.as_ptr().add(first) };
        system::populate(start, bytes.end - first)
    }

    /// Locks the pages into memory.
    ///
    /// # Errors
    ///
    /// The system's error, if it refuses, for example because of `RLIMIT_MEMLOCK`.
    pub(crate) fn lock(&mut self) -> io::Result<()> {
        self.lock_first(self.len)
    }

    /// Works like [`lock`](Self::lock), for the pages of the first `bytes` bytes.
    pub(crate) fn lock_first(&mut self, bytes: usize) -> io::Result<()> {
        // SAFETY: this value owns the pages.
        if unsafe { libc::mlock(self.start.as_ptr().cast(), bytes.min(self.len)) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.locked = true;
        Ok(())
    }
}

// SAFETY: the pages are mapped readable and writable, zeroed by the system, aligned and owned.
unsafe impl Memory for Pages {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }

    fn is_shared(&self) -> bool {
        self.shared
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let (start, len) = (self.mapped.0.as_ptr(), self.mapped.1);
        // SAFETY: nothing accesses the memory once its owner is dropped. Unmapping also unlocks. It fails if it would
        // split a mapping while the process has as many mappings as it may have; in that case the contents of the pages
        // are released instead.
        unsafe {
            if libc::munmap(start, len) != 0 {
                libc::munlock(start, len);
                libc::madvise(start, len, libc::MADV_DONTNEED);
            }
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("len", &self.len).field("locked", &self.locked).finish_non_exhaustive()
    }
}

/// Zeroed memory from the heap, for batches that may outnumber the mappings that a process can have.
#[derive(Debug)]
pub(crate) struct Heap {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Heap` is a plain value that owns its memory.
unsafe impl Send for Heap {}
// SAFETY: as above; shared access gives out the address only.
unsafe impl Sync for Heap {}

impl Heap {
    /// Allocates `len` bytes, at least one.
    ///
    /// # Errors
    ///
    /// If the allocation fails.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::OutOfMemory, format!("cannot allocate {len} bytes"));
        let layout = Layout::from_size_align(len.max(1), ALIGN).map_err(|_| none())?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(none)?;
        Ok(Self { start, layout })
    }
}

// SAFETY: the memory is new, zeroed, aligned and owned.
unsafe impl Memory for Heap {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and nothing accesses it once its owner is dropped.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(target_os = "linux")]
mod system {
    /// Needs Linux 5.14 or later.
    pub(super) fn populate(start: *mut u8, len: usize) -> bool {
        // SAFETY: the advice changes no contents at any address.
        unsafe { libc::madvise(start.cast(), len, libc::MADV_POPULATE_WRITE) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn populate(_start: *mut u8, _len: usize) -> bool {
        false
    }
}

/// Returns the number of bytes that this process may lock into memory; `None` if there is no limit.
pub(crate) fn lock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills in the struct that it is given.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns the number of bytes that this process can allocate without swapping, if the system reports it: the available
/// memory of the machine or of the control group, if that is less.
pub fn available_memory() -> Option<u64> {
    [machine_memory(), group_memory()].into_iter().flatten().min()
}

/// The size from which it is worth asking the system: for less, asking takes longer than filling the memory.
const LARGE: usize = 64 << 20;

/// Whether this many bytes are available, as far as the system reports. Without this check the system may promise more
/// memory than it has, and kill the process when the memory is used.
pub(crate) fn has_room(bytes: usize) -> bool {
    bytes < LARGE || available_memory().is_none_or(|available| bytes as u64 <= available)
}

fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the memory left in the process's control group (version 2). Parent groups may allow less.
fn group_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let read = |name: &str| {
        let text = std::fs::read_to_string(std::path::Path::new("/sys/fs/cgroup").join(path).join(name)).ok()?;
        // "max" is not a number, and means no limit.
        text.trim().parse::<u64>().ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_zeroed() {
        for len in [0, 1, ALIGN, ALIGN + 1, HUGE, 3 * HUGE + 5] {
            let mut pages = Pages::new(len).unwrap();
            assert!(pages.touch(usize::MAX));
            assert_eq!(pages.start().as_ptr().align_offset(if len >= HUGE { HUGE } else { ALIGN }), 0);
            assert!(pages.len() >= len && pages.len().is_multiple_of(ALIGN));
            // SAFETY: only this test uses the pages.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr(), pages.len()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
            pages.populate(len / 2..len);
            assert!(bytes.iter().all(|&byte| byte == 7), "existing contents do not change");
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Pages::new(usize::MAX).is_err());
        assert!(Pages::new(isize::MAX as usize).is_err());
    }

    #[test]
    fn a_refused_lock_is_an_error() {
        let mut pages = Pages::new(ALIGN).unwrap();
        if lock_limit().is_none_or(|limit| limit >= ALIGN as u64) {
            pages.lock().unwrap();
        }
        assert!(available_memory().is_none_or(|bytes| bytes > 0));
    }
}
