//! Parts of files that are unpacked or decoded as a whole when first needed, and kept in memory up to a limit.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// The parts of a dataset that are in memory. Those that were not used for longest are dropped first.
pub(crate) struct Kept<T> {
    limit: u64,
    /// Held while a part is made, so that several threads do not make the same one.
    making: Vec<Mutex<()>>,
    parts: Mutex<Parts<T>>,
}

struct Parts<T> {
    by_number: HashMap<usize, Part<T>>,
    bytes: u64,
    clock: u64,
}

struct Part<T> {
    made: Arc<T>,
    bytes: u64,
    /// When it was last used.
    used: u64,
}

impl<T> Kept<T> {
    /// Keeps up to `limit` bytes of `parts` parts, and at least the last one.
    pub(crate) fn new(parts: usize, limit: u64) -> Self {
        let making = (0..parts).map(|_| Mutex::default()).collect();
        Self { limit, making, parts: Mutex::new(Parts { by_number: HashMap::new(), bytes: 0, clock: 0 }) }
    }

    /// Returns the limit, which is also the size that a part may have.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether a part is in memory.
    pub(crate) fn has(&self, part: usize) -> bool {
        lock(&self.parts).by_number.contains_key(&part)
    }

    /// Returns a part. If it is not in memory, `make` makes it, and says how many bytes it takes.
    pub(crate) fn get(&self, part: usize, make: impl FnOnce() -> Result<(T, u64), Error>) -> Result<Arc<T>, Error> {
        if let Some(found) = lock(&self.parts).find(part) {
            return Ok(found);
        }
        let _alone = lock(&self.making[part]);
        if let Some(found) = lock(&self.parts).find(part) {
            return Ok(found);
        }
        let (made, bytes) = make()?;
        let made = Arc::new(made);
        lock(&self.parts).insert(part, made.clone(), bytes, self.limit);
        Ok(made)
    }
}

impl<T> Parts<T> {
    fn find(&mut self, part: usize) -> Option<Arc<T>> {
        self.clock += 1;
        let found = self.by_number.get_mut(&part)?;
        found.used = self.clock;
        Some(found.made.clone())
    }

    fn insert(&mut self, part: usize, made: Arc<T>, bytes: u64, limit: u64) {
        self.bytes += bytes;
        while self.bytes > limit {
            let oldest = self.by_number.iter().min_by_key(|(_, part)| part.used).map(|(&number, _)| number);
            let Some(dropped) = oldest.and_then(|oldest| self.by_number.remove(&oldest)) else { break };
            self.bytes -= dropped.bytes;
        }
        self.by_number.insert(part, Part { made, bytes, used: self.clock });
    }
}

/// Locks; what another thread left when it panicked is valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.making.len();
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
}
