//! Poisoning of the memory of dropped batches under AddressSanitizer.
//!
//! In a process that runs with AddressSanitizer, the memory of a batch is poisoned when the batch
//! is dropped, and becomes usable again when the consumer takes it for another batch. An access in
//! between, through a pointer or a view that outlives its batch, is reported as "use-after-poison".
//! The sanitizer's functions are looked up by name at run time, so a library that was built without
//! the sanitizer also works in a program that was built with it.

use std::ffi::c_void;

use crate::loader::collate::batch_buffer::BatchBuffer;

/// The type of `void __asan_poison_memory_region(void const volatile *addr, size_t size)` and of
/// its opposite.
type Mark = unsafe extern "C" fn(*const c_void, usize);

/// The functions of AddressSanitizer.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct AddressSanitizer {
    poison: Mark,
    unpoison: Mark,
}

impl AddressSanitizer {
    /// Looks for the sanitizer in this process.
    #[must_use]
    pub fn find() -> Option<Self> {
        let find = |name: &std::ffi::CStr| {
            // SAFETY: the name ends with a NUL.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            // SAFETY: these names belong to the sanitizer, whose functions have this type.
            (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Mark>(found) })
        };
        let poison = find(c"__asan_poison_memory_region")?;
        Some(Self { poison, unpoison: find(c"__asan_unpoison_memory_region")? })
    }
}

/// The memory of one batch, which is poisoned while no batch uses it. Dropping this makes it
/// accessible.
pub(crate) struct Poison {
    start: usize,
    len: usize,
    by: AddressSanitizer,
}

impl Poison {
    /// Returns `None` for memory that processes share, which is not poisoned: each process has
    /// marks of its own for it.
    pub(crate) fn of(region: &BatchBuffer, by: AddressSanitizer) -> Option<Self> {
        let (start, len) = (region.start().as_ptr().addr(), region.layout().size);
        (!region.arena().is_shared()).then_some(Self { start, len, by })
    }

    /// Poisons the memory. Nothing may access it from here on.
    #[cold]
    pub(crate) fn lock(&self) {
        // SAFETY: the memory belongs to the buffer, and nothing else accesses it; only the
        // sanitizer's own marks are written.
        unsafe { (self.by.poison)(std::ptr::without_provenance(self.start), self.len) }
    }

    /// Makes the memory accessible again.
    #[cold]
    pub(crate) fn unlock(&self) {
        // SAFETY: as in `lock`.
        unsafe { (self.by.unpoison)(std::ptr::without_provenance(self.start), self.len) }
    }
}

impl Drop for Poison {
    fn drop(&mut self) {
        self.unlock();
    }
}
