//! Values that a process shares with the processes that it forks later.

use std::fmt::Debug;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::sync::Arc;

/// A list of notes, to which threads of this process and of those forked after it was made can
/// append.
#[derive(Clone, Debug)]
pub(crate) struct Notes(Arc<File>);

impl Default for Notes {
    fn default() -> Self {
        Self(Arc::new(tempfile::tempfile().unwrap()))
    }
}

impl Notes {
    /// Appends a note.
    pub(crate) fn push(&self, note: impl Debug) {
        // Forked processes share the position in the file, so each note is written after the last
        // one.
        (&*self.0).write_all(format!("{note:?}\n").as_bytes()).unwrap();
    }

    /// Returns all notes. No thread may append one during the call.
    pub(crate) fn all(&self) -> Vec<String> {
        let (mut file, mut text) = (&*self.0, String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Removes all notes.
    pub(crate) fn clear(&self) {
        (&*self.0).rewind().unwrap();
        self.0.set_len(0).unwrap();
    }
}

/// Returns a value that this process shares with those that it forks later. It is never freed.
#[cfg(unix)]
pub(crate) fn shared<T: Default + Sync>() -> &'static T {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: this maps new memory.
    let memory = unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let value = memory.cast::<T>();
    // SAFETY: the memory is aligned to a page, is large enough, and is never unmapped.
    unsafe {
        value.write(T::default());
        &*value
    }
}

#[cfg(not(unix))]
pub(crate) fn shared<T: Default + Sync>() -> &'static T {
    Box::leak(Box::default())
}
