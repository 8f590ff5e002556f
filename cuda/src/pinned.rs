//! Page-locked host memory, from which and to which a device copies by itself.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::thread;

use cudarc::driver::sys;
use slotline::arena::{ALIGN, Memory, Pages, available_memory};

use crate::device::Device;
use crate::driver;
use crate::error::{DriverError, Error};
use crate::leak;
use crate::numa;

/// The most that is registered at once: drivers have refused more.
const PIECE: usize = 64 << 30;
/// How many mappings are tried if the driver says that their addresses are registered already.
const TRIES: usize = 4;
const REGISTER: &str = "cuMemHostRegister";
/// The least that is worth a thread, which takes tens of microseconds to start: about 10 ms of work.
const SHARE: usize = 64 << 20;
/// The most threads: more don't get memory any faster.
const THREADS: usize = 8;

/// Where one registration of a memory ends and the next one begins: no copy may cross that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seams {
    start: usize,
    /// From one to the next.
    piece: usize,
}

impl Seams {
    /// The first address of the memory.
    pub(crate) fn start(self) -> usize {
        self.start
    }

    /// How many bytes there are from this address, in the memory, to the next seam: at least one.
    pub(crate) fn next(self, address: usize) -> usize {
        self.piece - address.wrapping_sub(self.start) % self.piece
    }
}

/// On what pages memory is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageSize {
    /// On huge pages, as far as the system has them.
    #[default]
    Huge,
    /// On small ones, to see what huge pages are good for.
    Small,
}

/// Page-locked host memory, for the batches of a loader or for anything else. Every device can copy from it and to it.
///
/// Dropping it gives it back, and waits for no copy: memory that is still being copied must not be dropped. If the driver
/// won't take it back it is leaked, as [`leaked`](crate::leaked) tells.
///
/// A forked process does not have this memory: reading or writing it there is an access to memory that is not mapped, or is
/// something else. Dropping it there does nothing. A loader in it is [`Forked`](slotline::Error::Forked) there, and reading one
/// of its batches panics.
pub struct Pinned {
    device: Device,
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
}

enum Origin {
    /// Ours, registered in pieces of so many bytes.
    Registered { pages: ManuallyDrop<Pages>, piece: usize },
    /// The driver's: so many bytes from there on.
    Allocated { base: NonNull<c_void>, size: usize },
}

// SAFETY: the value owns its memory, and the driver takes it back from any thread.
unsafe impl Send for Pinned {}
// SAFETY: as above; shared access gives out addresses only.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Maps memory and registers it with the driver: `bytes` rounded up to whole pages, zeroed, on huge pages if the system
    /// has them, and on the device's NUMA node if that is known and has room. Up to 8 threads fetch the pages from the
    /// system, one for every 64 MiB, and are gone when this returns.
    ///
    /// # Errors
    ///
    /// The system has not so much memory, or the driver won't lock it.
    pub fn registered(device: &Device, bytes: usize) -> Result<Self, Error> {
        Self::registered_on(device, bytes, PageSize::Huge)
    }

    /// Like [`registered`](Self::registered), on pages of that size.
    ///
    /// # Errors
    ///
    /// As [`registered`](Self::registered).
    pub fn registered_on(device: &Device, bytes: usize, pages: PageSize) -> Result<Self, Error> {
        Self::registered_in_pieces(device, bytes, pages, PIECE)
    }

    pub(crate) fn registered_in_pieces(
        device: &Device,
        bytes: usize,
        size: PageSize,
        piece: usize,
    ) -> Result<Self, Error> {
        let mut aside = Vec::new();
        loop {
            let pages = map(device, bytes, size).map_err(|source| Error::HostMemory { bytes, source })?;
            // Dropped only when nothing of it is registered: a panic on the way leaks it.
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
            // Somebody unmapped memory that was registered, and the system has given us its addresses. The registration is of
            // the pages that were there then: a copy would read those. As long as we keep the addresses, we get others.
            aside.push(pages);
        }
    }

    /// Memory that the driver allocates: `bytes` rounded up to whole pages, zeroed, not write-combined.
    ///
    /// # Errors
    ///
    /// The driver has not so much memory.
    pub fn allocated(device: &Device, bytes: usize) -> Result<Self, Error> {
        let absurd = || Error::HostMemory { bytes, source: std::io::ErrorKind::OutOfMemory.into() };
        let len = bytes.max(1).checked_next_multiple_of(ALIGN).ok_or_else(absurd)?;
        // The driver promises no alignment.
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
        // SAFETY: less than a page, which is how much more there is.
        let start = unsafe { base.cast::<u8>().add(skip) };
        // SAFETY: inside what was allocated, and nobody else's.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { device: device.clone(), start, len, origin: Origin::Allocated { base, size } })
    }

    /// Whether the memory was mapped and registered; if not, the driver allocated it.
    pub fn is_registered(&self) -> bool {
        matches!(self.origin, Origin::Registered { .. })
    }

    /// The device by which it was locked.
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
                // SAFETY: dropped here only, once, and not registered any more.
                unsafe { ManuallyDrop::drop(pages) };
                Ok(())
            }
            Origin::Allocated { base, .. } => {
                let _entered = self.device.enter()?;
                // SAFETY: our own, and nobody has it any more.
                self.device.call("cuMemFreeHost", || unsafe { driver::cuMemFreeHost(base.as_ptr()) })
            }
        }
    }
}

// SAFETY: mapped, or allocated by the driver, readable and writable, zeroed, aligned, and ours until dropped.
unsafe impl Memory for Pinned {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
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
        // In a forked process something else may be at its addresses.
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

/// New pages, near the device and touched.
fn map(device: &Device, bytes: usize, size: PageSize) -> std::io::Result<Pages> {
    // The system may well promise more than it has, and end the process when it is touched.
    if available_memory().is_some_and(|available| bytes as u64 > available) {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    let mut pages = Pages::new(bytes)?;
    #[cfg(target_os = "linux")]
    if size == PageSize::Small {
        // SAFETY: advice about our own pages, and only that.
        unsafe { libc::madvise(pages.start().as_ptr().cast(), pages.len(), libc::MADV_NOHUGEPAGE) };
    }
    // A child that is forked would get a copy of all of it, or (before Linux 5.9) the device go on reading pages that are no
    // longer this process's.
    #[cfg(target_os = "linux")]
    // SAFETY: our own pages, which a child has no use for: it cannot use the driver.
    unsafe {
        libc::madvise(pages.start().as_ptr().cast(), pages.len(), libc::MADV_DONTFORK)
    };
    if let Some(node) = device.numa_node() {
        // Refused where a container may not say so, for one. Pages far away are slower, and as good.
        numa::prefer(pages.start(), pages.len(), node);
    }
    if !populate(&pages) {
        pages.touch(usize::MAX);
    }
    Ok(pages)
}

/// Gets all pages from the system, by several threads. `false` if it won't give them before they are written.
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
            // Without a thread this one does it.
            all & other.map_or_else(|_| part(number), |other| other.join().unwrap_or(false))
        })
    })
}

/// Registers the pages piece by piece. If the driver refuses, says how many pieces it has taken before.
fn register(device: &Device, pages: &Pages, piece: usize) -> Result<(), (DriverError, usize)> {
    let _entered = device.enter().map_err(|error| (error, 0))?;
    for (number, offset) in (0..pages.len()).step_by(piece).enumerate() {
        let len = piece.min(pages.len() - offset);
        let start: *mut c_void = pages.start().as_ptr().wrapping_add(offset).cast();
        let call = || {
            // SAFETY: our own pages, which stay mapped until they are unregistered.
            unsafe { driver::cuMemHostRegister_v2(start, len, sys::CU_MEMHOSTREGISTER_PORTABLE) }
        };
        device.call(REGISTER, call).map_err(|error| (error, number))?;
    }
    Ok(())
}

/// Unregisters these pieces; tries all of them, and gives the first error.
fn unregister(device: &Device, pages: &Pages, pieces: Range<usize>, piece: usize) -> Result<(), DriverError> {
    if pieces.is_empty() {
        return Ok(());
    }
    let _entered = device.enter()?;
    let mut outcome = Ok(());
    for number in pieces {
        let start: *mut c_void = pages.start().as_ptr().wrapping_add(number * piece).cast();
        // SAFETY: the pages are ours, and mapped.
        let one = device.call("cuMemHostUnregister", || unsafe { driver::cuMemHostUnregister(start) });
        outcome = outcome.and(one);
    }
    outcome
}
