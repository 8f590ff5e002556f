//! Parts of files that are unpacked or decoded as a whole when first needed, and kept in memory up to a limit.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use slotline::fork::Process;

use crate::Error;

/// The parts of a dataset that are in memory. Those that were not used for longest are dropped first.
pub(crate) struct Kept<T> {
    limit: u64,
    process: Process,
    own: Parts<T>,
    /// Those that a forked process makes. It lacks the threads that may have held locks of `own` at the fork.
    forked: OnceLock<Parts<T>>,
}

struct Parts<T> {
    parts: Vec<Part<T>>,
    held: Mutex<Held>,
    /// The time: it goes on by two with each part that is made.
    clock: AtomicU64,
}

struct Part<T> {
    /// Read by all threads, for each sample.
    made: RwLock<Option<Arc<T>>>,
    /// When it was last used.
    used: AtomicU64,
    /// Held while it is made, so that several threads do not make the same one.
    making: Mutex<()>,
}

/// The parts that are in memory, with their bytes.
#[derive(Default)]
struct Held {
    parts: Vec<(usize, u64)>,
    bytes: u64,
}

impl<T> Kept<T> {
    /// Keeps up to `limit` bytes of `parts` parts, and at least the last one.
    pub(crate) fn new(parts: usize, limit: u64) -> Self {
        Self { limit, process: Process::this(), own: Parts::new(parts), forked: OnceLock::new() }
    }

    /// Returns the limit, which is also the size that a part may have.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether a part is in memory.
    pub(crate) fn has(&self, part: usize) -> bool {
        let made = |part: &Part<T>| part.made.read().unwrap_or_else(PoisonError::into_inner).is_some();
        self.inherited(part).is_some() || made(&self.parts().parts[part])
    }

    /// Returns a part. If it is not in memory, `make` makes it, and says how many bytes it takes.
    pub(crate) fn get(&self, part: usize, make: impl FnOnce() -> Result<(T, u64), Error>) -> Result<Arc<T>, Error> {
        match self.inherited(part) {
            Some(found) => Ok(found),
            None => self.parts().get(part, self.limit, make),
        }
    }

    /// Returns the parts of this process.
    fn parts(&self) -> &Parts<T> {
        match self.process.is_this() {
            true => &self.own,
            false => self.forked.get_or_init(|| Parts::new(self.own.parts.len())),
        }
    }

    /// Returns a part that a forked process has from the one before, unless its lock was held at the fork.
    fn inherited(&self, part: usize) -> Option<Arc<T>> {
        if self.process.is_this() {
            return None;
        }
        self.own.parts[part].made.try_read().ok()?.clone()
    }
}

impl<T> Parts<T> {
    fn new(parts: usize) -> Self {
        let part = |_| Part { made: RwLock::new(None), used: AtomicU64::new(0), making: Mutex::default() };
        Self { parts: (0..parts).map(part).collect(), held: Mutex::default(), clock: AtomicU64::new(0) }
    }

    fn get(&self, part: usize, limit: u64, make: impl FnOnce() -> Result<(T, u64), Error>) -> Result<Arc<T>, Error> {
        if let Some(found) = self.find(part) {
            return Ok(found);
        }
        let _alone = lock(&self.parts[part].making);
        if let Some(found) = self.find(part) {
            return Ok(found);
        }
        let (made, bytes) = make()?;
        let made = Arc::new(made);
        self.insert(part, made.clone(), bytes, limit);
        Ok(made)
    }

    fn find(&self, part: usize) -> Option<Arc<T>> {
        let part = &self.parts[part];
        let found = part.made.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        // After whatever was made last.
        let now = self.clock.load(Ordering::Relaxed) + 1;
        // Most samples find what was used a moment ago, and write nothing that other threads read.
        if part.used.load(Ordering::Relaxed) != now {
            part.used.store(now, Ordering::Relaxed);
        }
        Some(found)
    }

    fn insert(&self, part: usize, made: Arc<T>, bytes: u64, limit: u64) {
        let mut held = lock(&self.held);
        held.bytes += bytes;
        while held.bytes > limit {
            let used = |&(part, _): &(usize, u64)| self.parts[part].used.load(Ordering::Relaxed);
            let oldest = held.parts.iter().enumerate().min_by_key(|(_, part)| used(part)).map(|(place, _)| place);
            let Some((dropped, bytes)) = oldest.map(|place| held.parts.swap_remove(place)) else { break };
            *self.parts[dropped].made.write().unwrap_or_else(PoisonError::into_inner) = None;
            held.bytes -= bytes;
        }
        held.parts.push((part, bytes));
        let now = self.clock.fetch_add(2, Ordering::Relaxed) + 2;
        self.parts[part].used.store(now, Ordering::Relaxed);
        *self.parts[part].made.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
    }
}

/// Locks; what another thread left when it panicked is valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.own.parts.len();
        f.debug_struct("Kept").field("parts", &parts).field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let kept = Kept::new(4, 25);
        let get = |part: usize| {
            let mut made = false;
            let bytes = kept.get(part, || {
                made = true;
                Ok((vec![part as u8; 10], 10))
            });
            assert_eq!(*bytes.unwrap(), [part as u8; 10]);
            made
        };
        assert_eq!([0, 1, 0, 2, 0, 1, 3, 0].map(get), [true, true, false, true, false, true, true, true]);
    }

    #[test]
    fn a_forked_process_waits_for_no_thread_that_it_lacks() {
        let kept = Kept::new(2, 25);
        let make = || Ok((vec![1_u8; 10], 10));
        kept.get(0, make).unwrap();
        let (making, held) = (lock(&kept.own.parts[1].making), lock(&kept.own.held));
        // SAFETY: the child makes parts, which takes memory only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a time limit, after which the child is killed.
            unsafe { libc::alarm(20) };
            let made = kept.has(0) && !kept.has(1) && [0, 1].map(|part| kept.get(part, make).unwrap().len()) == [10; 2];
            // SAFETY: the child ends at once, without the parent's destructors.
            unsafe { libc::_exit(if made && kept.has(1) { 0 } else { 1 }) };
        }
        drop((making, held));
        let mut status = -1;
        // SAFETY: it waits for the child, and there is room for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
