//! Page-locked host memory, which a device can copy from and to directly.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::thread;

use cudarc::driver::sys;
use slotline::arena::{ALIGN, Memory, Pages, available_memory};

use crate::device::Device;
use crate::driver;
use crate::error::{DriverError, Error};
use crate::leak;
use crate::numa;

/// The maximum number of bytes to register with the driver in one call. Drivers have refused larger
/// ones.
const PIECE: usize = 64 << 30;
/// The maximum number of mappings to try, if the driver reports that their addresses are registered
/// already.
const TRIES: usize = 4;
const REGISTER: &str = "cuMemHostRegister";
/// The minimum number of bytes per thread when pages are populated. Populating this many takes
/// about 10 ms; starting a thread takes tens of microseconds.
const SHARE: usize = 64 << 20;
/// The maximum number of threads that populate pages; more are not faster.
const THREADS: usize = 8;

/// The boundaries between the registrations of one block of memory. A copy must not cross them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seams {
    start: usize,
    /// The distance from one boundary to the next, in bytes.
    piece: usize,
}

impl Seams {
    /// Returns the first address of the memory.
    pub(crate) fn start(self) -> usize {
        self.start
    }

    /// Returns the number of bytes from this address, which must be in the memory, to the next
    /// boundary; at least one.
    pub(crate) fn next(self, address: usize) -> usize {
        self.piece - address.wrapping_sub(self.start) % self.piece
    }
}

/// The size of the pages of page-locked memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageSize {
    /// Huge pages, if the system has enough of them.
    #[default]
    Huge,
    /// Small pages. They serve to measure the effect of huge pages.
    Small,
}

/// The kind of pages to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Own(PageSize),
    /// Pages that are shared with forked processes.
    Shared,
}

/// Page-locked host memory, for the batches of a loader or any other use. Every device can copy
/// from it and to it.
///
/// Dropping it releases the memory without waiting for copies: memory that is still being copied
/// must not be dropped. If the driver does not take the memory back, it is leaked and counted by
/// [`leaked`](crate::leaked).
///
/// A forked process does not have this memory: reading or writing it there accesses an address that
/// is unmapped or belongs to something else. Dropping it there does nothing. A loader that uses it
/// fails with [`Forked`](slotline::Error::Forked) there, and reading one of the loader's batches
/// panics.
pub struct Pinned {
    device: Device,
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
}

enum Origin {
    /// Mapped by this crate, and registered with the driver in pieces of `piece` bytes.
    Registered { pages: ManuallyDrop<Pages>, piece: usize },
    /// Allocated by the driver: `size` bytes from `base` on.
    Allocated { base: NonNull<c_void>, size: usize },
}

// SAFETY: the value owns its memory, and the driver allows it to be freed from any thread.
unsafe impl Send for Pinned {}
// SAFETY: as for `Send`, and shared access only provides addresses.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Maps memory and registers it with the driver. The size is `bytes` rounded up to whole pages.
    /// The memory is zeroed, on huge pages if the system has them, and on the device's NUMA node if
    /// that is known and has room. Up to 8 threads populate the pages, one for every 64 MiB, and
    /// have exited when this returns.
    ///
    /// # Errors
    ///
    /// Fails if the system does not have enough memory, or if the driver cannot lock it.
    pub fn registered(device: &Device, bytes: usize) -> Result<Self, Error> {
        Self::registered_on(device, bytes, PageSize::Huge)
    }

    /// Like [`registered`](Self::registered), with pages of the given size.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`registered`](Self::registered).
    pub fn registered_on(device: &Device, bytes: usize, pages: PageSize) -> Result<Self, Error> {
        Self::registered_in_pieces(device, bytes, Kind::Own(pages), PIECE)
    }

    /// Like [`registered`](Self::registered), but the memory is shared with processes that are
    /// forked from this one. The forked processes can read and write the memory, but do not own it:
    /// dropping this value there does nothing.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`registered`](Self::registered).
    pub fn shared(device: &Device, bytes: usize) -> Result<Self, Error> {
        Self::registered_in_pieces(device, bytes, Kind::Shared, PIECE)
    }

    pub(crate) fn registered_in_pieces(device: &Device, bytes: usize, kind: Kind, piece: usize) -> Result<Self, Error> {
        let mut aside = Vec::new();
        loop {
            let pages = map(device, bytes, kind).map_err(|source| Error::HostMemory { bytes, source })?;
            // The pages are dropped only when no part of them is registered; a panic in between
            // leaks them.
            let pages = ManuallyDrop::new(pages);
            let error = match register(device, &pages, piece) {
                Ok(()) => {
                    let (start, len) = (pages.start(), pages.len());
                    return Ok(Self {
                        device: device.clone(),
                        start,
                        len,
                        origin: Origin::Registered { pages, piece },
                    });
                }
                Err((error, done)) => {
                    if let Err(error) = unregister(device, &pages, 0..done, piece) {
                        lose(pages.len(), &error);
                        return Err(error.into());
                    }
                    error
                }
            };
            let pages = ManuallyDrop::into_inner(pages);
            if (error.call, error.code) != (REGISTER, driver::ALREADY_REGISTERED) || aside.len() + 1 == TRIES {
                return Err(error.into());
            }
            // Other code has unmapped memory without unregistering it, and the system has reused
            // its addresses for this mapping. The registration still refers to the old pages, which
            // a copy would read. So this mapping is kept until the end, which makes the system
            // choose other addresses for the next one.
            aside.push(pages);
        }
    }

    /// Allocates memory through the driver. The size is `bytes` rounded up to whole pages. The
    /// memory is zeroed and not write-combined.
    ///
    /// # Errors
    ///
    /// Fails if the driver cannot allocate that much memory.
    pub fn allocated(device: &Device, bytes: usize) -> Result<Self, Error> {
        let absurd = || Error::HostMemory { bytes, source: std::io::ErrorKind::OutOfMemory.into() };
        let len = bytes.max(1).checked_next_multiple_of(ALIGN).ok_or_else(absurd)?;
        // The driver does not guarantee an alignment.
        let size = len.checked_add(ALIGN).filter(|&size| isize::try_from(size).is_ok()).ok_or_else(absurd)?;
        let mut base = std::ptr::null_mut();
        let _entered = device.enter()?;
        device.call("cuMemHostAlloc", || {
            // SAFETY: the driver writes the address.
            unsafe { driver::cuMemHostAlloc(&mut base, size, sys::CU_MEMHOSTALLOC_PORTABLE) }
        })?;
        let Some(base) = NonNull::new(base) else {
            return Err(device.error("cuMemHostAlloc", driver::UNKNOWN).into());
        };
        let skip = base.addr().get().next_multiple_of(ALIGN) - base.addr().get();
        // SAFETY: `skip` is less than a page, and the allocation is a page longer than `len`.
        let start = unsafe { base.cast::<u8>().add(skip) };
        // SAFETY: the range is inside the allocation, which nothing else uses yet.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { device: device.clone(), start, len, origin: Origin::Allocated { base, size } })
    }

    /// Returns whether the memory was mapped and registered; otherwise the driver allocated it.
    pub fn is_registered(&self) -> bool {
        matches!(self.origin, Origin::Registered { .. })
    }

    /// Returns the device that locked the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn seams(&self) -> Seams {
        let piece = if let Origin::Registered { piece, .. } = self.origin { piece } else { usize::MAX };
        Seams { start: self.start.addr().get(), piece }
    }

    fn give_back(&mut self) -> Result<(), DriverError> {
        match &mut self.origin {
            Origin::Registered { pages, piece } => {
                unregister(&self.device, pages, 0..self.len.div_ceil(*piece), *piece)?;
                // SAFETY: the pages are dropped only here, once, and are not registered any more.
                unsafe { ManuallyDrop::drop(pages) };
                Ok(())
            }
            Origin::Allocated { base, .. } => {
                let _entered = self.device.enter()?;
                // SAFETY: this value owns the memory, and nothing uses it any more.
                self.device.call("cuMemFreeHost", || unsafe { driver::cuMemFreeHost(base.as_ptr()) })
            }
        }
    }
}

// SAFETY: the memory was mapped here or allocated by the driver, is readable, writable, zeroed and
// aligned, and is owned by this value until it is dropped.
unsafe impl Memory for Pinned {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }

    fn is_shared(&self) -> bool {
        self.file().is_some()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.origin {
            Origin::Registered { pages, .. } => pages.file(),
            Origin::Allocated { .. } => None,
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pinned = f.debug_struct("Pinned");
        pinned.field("device", &self.device).field("len", &self.len).field("registered", &self.is_registered());
        pinned.finish_non_exhaustive()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // In a forked process these addresses may belong to something else.
        if self.device.is_lost() {
            return;
        }
        if let Err(error) = self.give_back() {
            let bytes = if let Origin::Allocated { size, .. } = self.origin { size } else { self.len };
            lose(bytes, &error);
        }
    }
}

fn lose(bytes: usize, error: &DriverError) {
    leak::note_host(bytes);
    tracing::warn!(%error, bytes, "page-locked memory is leaked");
}

/// Maps new pages near the device and populates them.
fn map(device: &Device, bytes: usize, kind: Kind) -> std::io::Result<Pages> {
    // The system may promise more memory than it has, and kill the process when the memory is
    // touched.
    if available_memory().is_some_and(|available| bytes as u64 > available) {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    let mut pages = if kind == Kind::Shared { Pages::shared(bytes)? } else { Pages::new(bytes)? };
    #[cfg(target_os = "linux")]
    if kind == Kind::Own(PageSize::Small) {
        // SAFETY: the call only gives advice about pages that this function owns.
        unsafe { libc::madvise(pages.start().as_ptr().cast(), pages.len(), libc::MADV_NOHUGEPAGE) };
    }
    // Without `MADV_DONTFORK`, a forked child would get a copy of all of the memory, or (before
    // Linux 5.9) the device would continue to read pages that no longer belong to this process.
    #[cfg(target_os = "linux")]
    if kind != Kind::Shared {
        // SAFETY: this function owns the pages, and a child does not need them: it cannot use the
        // driver.
        unsafe { libc::madvise(pages.start().as_ptr().cast(), pages.len(), libc::MADV_DONTFORK) };
    }
    if let Some(node) = device.numa_node() {
        // The call can fail, for example in a container without the permission. Memory of another
        // node is slower, but works.
        numa::prefer(pages.start(), pages.len(), node);
    }
    if !populate(&pages) {
        pages.touch(usize::MAX);
    }
    Ok(pages)
}

/// Populates all pages, using several threads. Returns `false` if the system does not provide pages
/// before they are written.
fn populate(pages: &Pages) -> bool {
    let len = pages.len();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = (len / SHARE).clamp(1, cores.min(THREADS));
    let share = len.div_ceil(threads).next_multiple_of(ALIGN);
    let part = |number: usize| pages.populate((share * number).min(len)..(share * (number + 1)).min(len));
    thread::scope(|scope| {
        let start = |number| (number, thread::Builder::new().spawn_scoped(scope, move || part(number)));
        let others: Vec<_> = (1..threads).map(start).collect();
        let own = part(0);
        others.into_iter().fold(own, |all, (number, other)| {
            // If the other thread could not be started, this one populates its part.
            all & other.map_or_else(|_| part(number), |other| other.join().unwrap_or(false))
        })
    })
}

/// Registers the pages piece by piece. If the driver refuses a piece, returns the error and the
/// number of pieces that were registered before it.
fn register(device: &Device, pages: &Pages, piece: usize) -> Result<(), (DriverError, usize)> {
    let _entered = device.enter().map_err(|error| (error, 0))?;
    for (number, offset) in (0..pages.len()).step_by(piece).enumerate() {
        let len = piece.min(pages.len() - offset);
        let start: *mut c_void = pages.start().as_ptr().wrapping_add(offset).cast();
        let call = || {
            // SAFETY: the caller owns the pages, which stay mapped until they are unregistered.
            unsafe { driver::cuMemHostRegister_v2(start, len, sys::CU_MEMHOSTREGISTER_PORTABLE) }
        };
        device.call(REGISTER, call).map_err(|error| (error, number))?;
    }
    Ok(())
}

/// Unregisters these pieces. It tries all of them, and returns the first error.
fn unregister(device: &Device, pages: &Pages, pieces: Range<usize>, piece: usize) -> Result<(), DriverError> {
    if pieces.is_empty() {
        return Ok(());
    }
    let _entered = device.enter()?;
    let mut outcome = Ok(());
    for number in pieces {
        let start: *mut c_void = pages.start().as_ptr().wrapping_add(number * piece).cast();
        // SAFETY: the caller owns the pages, which are still mapped.
        let one = device.call("cuMemHostUnregister", || unsafe { driver::cuMemHostUnregister(start) });
        outcome = outcome.and(one);
    }
    outcome
}
