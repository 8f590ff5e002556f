//! The memory that batches are written into: page-aligned, allocated before use, and page-locked on
//! request.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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

    /// Returns whether the size is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether processes that are forked from this one read and write the same memory. This
    /// is required if workers are [processes](crate::loader::Builder::processes).
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns the file that this memory is a mapping of, if other processes can map it too. The
    /// mapping must begin at the start of the file, and the file must be at least as large as the
    /// memory and never change its size. This is required if workers are [started by a
    /// command](crate::loader::ProcessBuilder::spawn).
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The alignment of an arena, and of every slot in it that is at least this large: one page.
pub const ALIGN: usize = 4096;
/// The size and alignment of a huge page.
const HUGE: usize = 2 << 20;

/// Zeroed anonymous pages, huge ones if the system provides them. The system allocates a page when
/// it is first written, or earlier if [`populate`](Self::populate) is called, so that no batch
/// causes a page fault.
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
    /// The whole mapping. It starts earlier than `start` if that had to be aligned to a huge page.
    mapped: (NonNull<libc::c_void>, usize),
    locked: bool,
    /// The file behind [shared](Self::shared) pages.
    file: Option<OwnedFd>,
}

// SAFETY: `Pages` is a plain value that owns its memory.
unsafe impl Send for Pages {}
// SAFETY: `Pages` owns its memory, and shared access gives out addresses only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// The system's error, if it refuses the mapping.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, 0)
    }

    /// Maps `len` bytes, rounded up to whole pages, that this process shares with those forked from
    /// it and with those that map the same [file](Memory::file). The file is sealed, so that its
    /// size cannot change. Pages that are never used take no memory.
    ///
    /// # Errors
    ///
    /// The system's error, if it refuses the mapping.
    pub fn shared(len: usize) -> io::Result<Self> {
        let size = len.max(1).checked_next_multiple_of(ALIGN).filter(|&size| size <= isize::MAX as usize);
        Self::of_file(system::shared_file(size.ok_or(io::ErrorKind::OutOfMemory)?)?)
    }

    /// Maps the file of [shared](Self::shared) pages.
    pub(crate) fn of_file(file: OwnedFd) -> io::Result<Self> {
        let file = std::fs::File::from(file);
        let mut pages = Self::map(file.metadata()?.len() as usize, libc::PROT_NONE, libc::MAP_NORESERVE)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: this replaces pages that nobody uses by those of the file, whose size cannot change.
        let mapped =
            unsafe { libc::mmap(pages.start.as_ptr().cast(), pages.len, protection, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        pages.file = Some(file.into());
        pages.prefer_huge();
        Ok(pages)
    }

    fn map(len: usize, protection: libc::c_int, flags: libc::c_int) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::OutOfMemory, "more bytes than can be addressed");
        let len = len.max(1).checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        let spare = if len >= HUGE { HUGE } else { 0 };
        let size = len.checked_add(spare).filter(|&size| size <= isize::MAX as usize).ok_or_else(too_large)?;
        let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | flags;
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
        let pages = Self { start, len, mapped: (mapped, size), locked: false, file: None };
        pages.prefer_huge();
        Ok(pages)
    }

    /// Asks for huge pages. Without them the system uses small ones.
    fn prefer_huge(&self) {
        #[cfg(target_os = "linux")]
        if self.len >= HUGE {
            // SAFETY: this only gives advice about pages that this value owns.
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) };
        }
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

    /// Locks the pages into memory, so that the system does not swap them out.
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
        self.file.is_some()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let (start, len) = (self.mapped.0.as_ptr(), self.mapped.1);
        // SAFETY: nothing accesses the memory once its owner is dropped. Unmapping also unlocks. It
        // fails if it would split a mapping while the process has the maximum number of mappings;
        // in that case only the contents of the pages are released.
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

/// Zeroed memory from the heap, for small batches: with one mapping for each of them, a process
/// could reach its maximum number of mappings.
#[derive(Debug)]
pub(crate) struct Heap {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Heap` is a plain value that owns its memory.
unsafe impl Send for Heap {}
// SAFETY: `Heap` owns its memory, and shared access gives out the address only.
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
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// Allocates the pages; fails on Linux before 5.14.
    pub(super) fn populate(start: *mut u8, len: usize) -> bool {
        // SAFETY: the advice changes no contents at any address.
        unsafe { libc::madvise(start.cast(), len, libc::MADV_POPULATE_WRITE) == 0 }
    }

    /// Makes a file in memory, without a name, of `len` zeros.
    pub(super) fn shared_file(len: usize) -> io::Result<OwnedFd> {
        // SAFETY: the call fills in the struct that it is given.
        let limit = super::limit(|limit| unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit) });
        // Growing a file beyond this limit raises a signal that ends the process.
        if limit.is_some_and(|limit| len as u64 > limit) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        // Linux before 6.3 rejects `MFD_NOEXEC_SEAL`, and some systems require it.
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let make = |flags| {
            // SAFETY: makes a new descriptor.
            match unsafe { libc::memfd_create(c"slotline".as_ptr(), flags) } {
                -1 => Err(io::Error::last_os_error()),
                // SAFETY: the descriptor is new, and has no other owner.
                fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            }
        };
        let file = super::above_stdio(make(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| make(flags))?)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: these calls change a file that is not yet shared.
        let made = unsafe {
            libc::ftruncate(file.as_raw_fd(), len as libc::off_t) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
        };
        if made { Ok(file) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn populate(_start: *mut u8, _len: usize) -> bool {
        false
    }

    pub(super) fn shared_file(_len: usize) -> std::io::Result<std::os::fd::OwnedFd> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Moves a descriptor to a number above those of standard input, output and error. If one of these
/// is closed, the system gives its number to the next file that is opened, and what the program
/// prints would then be written into this file.
#[cfg(target_os = "linux")]
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    // SAFETY: makes a new descriptor.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, and has no other owner.
        new => Ok(unsafe { OwnedFd::from_raw_fd(new) }),
    }
}

/// Returns the number of bytes that this process may lock into memory; `None` if there is no limit.
pub(crate) fn lock_limit() -> Option<u64> {
    // SAFETY: the call fills in the struct that it is given.
    limit(|limit| unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, limit) })
}

/// Returns the limit that `ask` fetches; `None` if there is none, or it cannot be fetched.
fn limit(ask: impl FnOnce(&mut libc::rlimit) -> libc::c_int) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    (ask(&mut limit) == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns the number of bytes that this process can allocate without swapping, if the system reports it: the available
/// memory of the machine or of the control group, if that is less.
pub fn available_memory() -> Option<u64> {
    [machine_memory(), group_memory()].into_iter().flatten().min()
}

/// The size in bytes from which available memory is checked. For less, the check takes longer than
/// filling the memory.
const LARGE: usize = 64 << 20;

/// Returns whether this many bytes are available, or the system does not report it. Without this
/// check the system may promise more memory than it has, and kill the process when the memory is
/// used.
pub(crate) fn has_room(bytes: usize) -> bool {
    shortage(bytes).is_none()
}

/// Returns the number of available bytes if it is less than `bytes`; `None` if they are available,
/// or the system does not report it.
pub(crate) fn shortage(bytes: usize) -> Option<u64> {
    let available = if bytes < LARGE { None } else { available_memory() };
    available.filter(|&available| bytes as u64 > available)
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

/// Returns whether a forked process may lack this memory or share it with its parent. The memory
/// that a loader allocates by default is copied by a fork.
pub(crate) fn may_be_missing_after_fork(memory: &dyn Memory) -> bool {
    let memory: &dyn Any = memory;
    memory.downcast_ref::<Pages>().map_or(!memory.is::<Heap>(), Memory::is_shared)
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

    #[cfg(target_os = "linux")]
    #[test]
    fn the_file_of_shared_pages_is_seen_elsewhere_and_keeps_its_size() {
        for len in [1, ALIGN, HUGE + 1] {
            let one = Pages::shared(len).unwrap();
            let file = std::fs::File::from(one.file().unwrap().try_clone_to_owned().unwrap());
            for size in [0, 2 * one.len() as u64] {
                assert_eq!(file.set_len(size).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            }
            let other = Pages::of_file(file.into()).unwrap();
            assert_eq!((one.len(), other.len()), (len.next_multiple_of(ALIGN), one.len()));
            // SAFETY: only this test uses the pages.
            unsafe {
                one.start().add(len - 1).write(7);
                assert_eq!(other.start().add(len - 1).read(), 7);
            }
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Pages::new(usize::MAX).is_err());
        assert!(Pages::shared(usize::MAX).is_err());
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
