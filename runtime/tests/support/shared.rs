//! Values that a process shares with those that it forks.

/// Returns a value that this process shares with those that it forks later. It is never freed.
#[cfg(unix)]
pub(crate) fn shared<T: Default + Sync>() -> &'static T {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: asks for new memory.
    let memory = unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let value = memory.cast::<T>();
    // SAFETY: the memory is aligned to a page, is large enough, and stays.
    unsafe {
        value.write(T::default());
        &*value
    }
}

#[cfg(not(unix))]
pub(crate) fn shared<T: Default + Sync>() -> &'static T {
    Box::leak(Box::default())
}
