//! The memory behind the slots: page-aligned, touched before use, and page-locked if asked for.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// Memory that batches are written into, whatever it comes from: a loader has [`Pages`] of its own, or what
/// [`Builder::memory`](crate::loader::Builder::memory) gives it.
///
/// # Safety
///
/// From [`start`](Self::start), [`len`](Self::len) bytes must be readable and writable, zero when a loader gets them,
/// aligned to [`ALIGN`], and nobody else's, until the value is dropped. Both must always give the same.
///
/// That holds in the process that the value was made in. In a process forked from it the memory need not be there, or can be
/// shared: a loader touches it no more, nor drops the value ([After a fork](crate::loader#after-a-fork)).
pub unsafe trait Memory: Any + Send + Sync + fmt::Debug {
    /// The first byte.
    fn start(&self) -> NonNull<u8>;

    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Alignment of an arena, and of the slots in it that are no smaller: a page.
pub const ALIGN: usize = 4096;
/// What huge pages need.
const HUGE: usize = 2 << 20;

/// Anonymous pages, zeroed: on huge ones if the system has them. They come when they are first written, or before that by
/// [`populate`](Self::populate), so that no batch meets a page fault.
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
    /// What was mapped, which starts earlier if the start had to be moved to a huge page.
    mapped: (NonNull<libc::c_void>, usize),
    locked: bool,
}

// SAFETY: the pages are a plain value that owns its memory.
unsafe impl Send for Pages {}
// SAFETY: as above; shared access gives out addresses only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// What the system says if it refuses.
    pub fn new(len: usize) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::OutOfMemory, "more bytes than can be addressed");
        let len = len.max(1).checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        let spare = if len >= HUGE { HUGE } else { 0 };
        let size = len.checked_add(spare).filter(|&size| size <= isize::MAX as usize).ok_or_else(too_large)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
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
            // SAFETY: advice about our own pages, and only that: without huge pages there are small ones.
            unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { start, len, mapped: (mapped, size), locked: false })
    }

    /// Gets the first bytes' pages from the system now, or all of them if it cannot do that later while others write into
    /// them; their contents stay as they are. `true` if that was all.
    pub fn touch(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.len);
        if self.populate(0..bytes) {
            return bytes == self.len;
        }
        for offset in (0..self.len).step_by(ALIGN) {
            // SAFETY: inside the pages, which this has to itself (`&mut`).
            unsafe {
                let byte = self.start.as_ptr().add(offset);
                byte.write_volatile(byte.read_volatile());
            }
        }
        true
    }

    /// Gets the pages of these bytes from the system, huge ones where it can; their contents stay as they are. `false` if
    /// it will not: then they come when they are first written.
    ///
    /// # Panics
    ///
    /// If there are not so many bytes.
    pub fn populate(&self, bytes: Range<usize>) -> bool {
        assert!(bytes.start <= bytes.end && bytes.end <= self.len);
        let first = bytes.start / ALIGN * ALIGN;
        // SAFETY: within the pages.
        let start = unsafe { self.start.as_ptr().add(first) };
        system::populate(start, bytes.end - first)
    }

    /// Locks the pages into memory.
    ///
    /// # Errors
    ///
    /// What the system says if it refuses, for one because of `RLIMIT_MEMLOCK`.
    pub(crate) fn lock(&mut self) -> io::Result<()> {
        // SAFETY: our own pages.
        if unsafe { libc::mlock(self.start.as_ptr().cast(), self.len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.locked = true;
        Ok(())
    }
}

// SAFETY: the pages are mapped readable and writable, zeroed by the system, aligned, private and owned.
unsafe impl Memory for Pages {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let (start, len) = (self.mapped.0.as_ptr(), self.mapped.1);
        // SAFETY: nobody has the memory any more once its owner is dropped. Unmapping unlocks, too. It fails where the process has
        // as many mappings as it may, and it would split one; then at least what is in the pages goes.
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

/// Zeroed memory from the heap, for batches of which there can be more than a process may have mappings.
#[derive(Debug)]
pub(crate) struct Heap {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a plain value that owns its memory.
unsafe impl Send for Heap {}
// SAFETY: as above; shared access gives out the address only.
unsafe impl Sync for Heap {}

impl Heap {
    /// Takes `len` bytes, and at least one.
    ///
    /// # Errors
    ///
    /// If there are not so many.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::OutOfMemory, format!("the heap has no {len} bytes"));
        let layout = Layout::from_size_align(len.max(1), ALIGN).map_err(|_| none())?;
        // SAFETY: there is a byte.
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
        // SAFETY: `new` got it with this layout, and nobody has it any more once its owner is dropped.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(target_os = "linux")]
mod system {
    /// Linux from 5.14 on.
    pub(super) fn populate(start: *mut u8, len: usize) -> bool {
        // SAFETY: advice that changes no contents, whatever the address.
        unsafe { libc::madvise(start.cast(), len, libc::MADV_POPULATE_WRITE) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn populate(_start: *mut u8, _len: usize) -> bool {
        false
    }
}

/// How many bytes this process may lock into memory, or `None` without limit.
pub(crate) fn lock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct it is given.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// How many bytes this process could get without swapping, as far as the system says: what is left of the machine's
/// memory or, if that is less, of the control group's.
pub fn available_memory() -> Option<u64> {
    [machine_memory(), group_memory()].into_iter().flatten().min()
}

/// Sizes from which it is worth asking the system: below, it takes longer than to fill the memory.
const LARGE: usize = 64 << 20;

/// Whether so many bytes can be had, as far as the system says. Without asking, it may well promise more than it has,
/// and end the process when the memory is used.
pub(crate) fn has_room(bytes: usize) -> bool {
    bytes < LARGE || available_memory().is_none_or(|available| bytes as u64 <= available)
}

fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Of the process's own group, in the second version of control groups. Groups above it may allow less.
fn group_memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let read = |name: &str| {
        let text = std::fs::read_to_string(std::path::Path::new("/sys/fs/cgroup").join(path).join(name)).ok()?;
        // "max" is no number, and no limit.
        text.trim().parse::<u64>().ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_zeroed_and_ours() {
        for len in [0, 1, ALIGN, ALIGN + 1, HUGE, 3 * HUGE + 5] {
            let mut pages = Pages::new(len).unwrap();
            assert!(pages.touch(usize::MAX));
            assert_eq!(pages.start().as_ptr().align_offset(if len >= HUGE { HUGE } else { ALIGN }), 0);
            assert!(pages.len() >= len && pages.len().is_multiple_of(ALIGN));
            // SAFETY: the pages are ours alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr(), pages.len()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(7);
            pages.populate(len / 2..len);
            assert!(bytes.iter().all(|&byte| byte == 7), "what is there already stays as it is");
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
