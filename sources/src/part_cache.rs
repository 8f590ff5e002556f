//! [`PartCache`]: parts of files, such as row groups, that are unpacked or decoded as a whole when
//! they are first needed, and kept in memory up to a limit.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use slotline::fork::Process;

use crate::Error;

/// A cache of the decoded parts of a dataset, such as row groups or shards. When it is full, the
/// least recently used parts are dropped first. A part is made in steps, each of which makes an
/// `S`. All threads that need the part share its steps.
pub(crate) struct PartCache<T, S> {
    limit: u64,
    process: Process,
    own: Parts<T, S>,
    /// The parts that a forked process makes. Threads that held locks of `own` at the fork do not
    /// exist in the forked process, so those locks may never be released there.
    forked: OnceLock<Parts<T, S>>,
}

struct Parts<T, S> {
    parts: Vec<Part<T, S>>,
    held: Mutex<Held>,
    /// A logical time, which is advanced by two for each part that is made.
    clock: AtomicU64,
}

struct Part<T, S> {
    /// The decoded part, if it is in memory. All threads read it for each sample.
    made: RwLock<Option<Arc<T>>>,
    /// The logical time at which the part was last used.
    used: AtomicU64,
    /// The error that was found in the part's contents, kept so that it is not decoded again for
    /// each sample.
    wrong: OnceLock<Box<Error>>,
    /// The work of the threads that are making the part.
    in_progress: Mutex<Option<Arc<InProgress<T, S>>>>,
}

/// The work on a part that threads are making.
struct InProgress<T, S> {
    /// The index of the next step that no thread has taken.
    next: AtomicUsize,
    /// The number of bytes that the steps have allocated so far, as they count it.
    spent: AtomicU64,
    state: Mutex<State<T, S>>,
    ended: Condvar,
}

enum State<T, S> {
    /// The results of the steps, and the number of steps that have finished.
    Steps(Vec<Option<S>>, usize),
    Made(Arc<T>),
    /// A step failed. The waiting threads then try to make the part themselves, so that each gets
    /// the error.
    Failed,
}

/// The parts that are in memory, with their sizes in bytes.
#[derive(Default)]
struct Held {
    parts: Vec<(usize, u64)>,
    bytes: u64,
}

impl<T, S> PartCache<T, S> {
    /// Creates a cache for `parts` parts that keeps up to `limit` bytes, and always the part that
    /// was made last.
    pub(crate) fn new(parts: usize, limit: u64) -> Self {
        Self { limit, process: Process::this(), own: Parts::new(parts), forked: OnceLock::new() }
    }

    /// Returns the limit in bytes, which is also the maximum size of a part.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether a part is in memory.
    pub(crate) fn has(&self, part: usize) -> bool {
        let made = |part: &Part<T, S>| part.made.read().unwrap_or_else(PoisonError::into_inner).is_some();
        self.inherited(part).is_some() || made(&self.parts().parts[part])
    }

    /// Returns a part. If it is not in memory, `step` is called once for each of `steps` steps,
    /// with a counter of the bytes that all of them allocate. `join` then makes the part from their
    /// results, and returns it with its size in bytes.
    pub(crate) fn get(
        &self,
        part: usize,
        steps: usize,
        step: impl Fn(usize, &AtomicU64) -> Result<S, Error>,
        join: impl Fn(Vec<S>) -> (T, u64),
    ) -> Result<Arc<T>, Error> {
        match self.inherited(part) {
            Some(found) => Ok(found),
            None => self.parts().get(part, self.limit, steps, step, join),
        }
    }

    /// Returns the parts that belong to this process.
    fn parts(&self) -> &Parts<T, S> {
        match self.process.is_this() {
            true => &self.own,
            false => self.forked.get_or_init(|| Parts::new(self.own.parts.len())),
        }
    }

    /// Returns a part that a forked process inherited from its parent, unless the part's lock was
    /// held at the fork.
    fn inherited(&self, part: usize) -> Option<Arc<T>> {
        if self.process.is_this() {
            return None;
        }
        self.own.parts[part].made.try_read().ok()?.clone()
    }
}

impl<T, S> Parts<T, S> {
    fn new(parts: usize) -> Self {
        let part = |_| Part {
            made: RwLock::new(None),
            used: AtomicU64::new(0),
            wrong: OnceLock::new(),
            in_progress: Mutex::new(None),
        };
        Self { parts: (0..parts).map(part).collect(), held: Mutex::default(), clock: AtomicU64::new(0) }
    }

    fn get(
        &self,
        part: usize,
        limit: u64,
        steps: usize,
        step: impl Fn(usize, &AtomicU64) -> Result<S, Error>,
        join: impl Fn(Vec<S>) -> (T, u64),
    ) -> Result<Arc<T>, Error> {
        loop {
            if let Some(found) = self.find(part) {
                return Ok(found);
            }
            if let Some(error) = self.parts[part].wrong.get().and_then(|error| error.again()) {
                return Err(error);
            }
            let in_progress = {
                let mut in_progress = lock(&self.parts[part].in_progress);
                if let Some(found) = self.find(part) {
                    return Ok(found);
                }
                in_progress.get_or_insert_with(|| Arc::new(InProgress::new(steps))).clone()
            };
            while let number = in_progress.next.fetch_add(1, Ordering::Relaxed)
                && number < steps
            {
                let failing = Failing { in_progress: &in_progress, part: &self.parts[part] };
                let made = step(number, &in_progress.spent).inspect_err(|error| {
                    error.again().map(|error| self.parts[part].wrong.set(Box::new(error)));
                })?;
                let all = in_progress.add(number, made);
                if let Some(all) = all {
                    let (made, bytes) = join(all);
                    let made = Arc::new(made);
                    self.insert(part, made.clone(), bytes, limit);
                    in_progress.end(&self.parts[part], State::Made(made.clone()));
                    std::mem::forget(failing);
                    return Ok(made);
                }
                std::mem::forget(failing);
            }
            if let Some(made) = in_progress.wait() {
                return Ok(made);
            }
        }
    }

    fn find(&self, part: usize) -> Option<Arc<T>> {
        let part = &self.parts[part];
        let found = part.made.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        // A time that is later than that of the last part that was made.
        let now = self.clock.load(Ordering::Relaxed) + 1;
        // Most parts were used a moment ago. Not storing the same time again saves writing to
        // memory that other threads read.
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

impl<T, S> InProgress<T, S> {
    fn new(steps: usize) -> Self {
        let state = State::Steps((0..steps).map(|_| None).collect(), 0);
        Self { next: AtomicUsize::new(0), spent: AtomicU64::new(0), state: Mutex::new(state), ended: Condvar::new() }
    }

    /// Adds the result of a step. Returns the results of all steps if this was the last one.
    fn add(&self, number: usize, made: S) -> Option<Vec<S>> {
        let mut state = lock(&self.state);
        // If another step has failed, the result is not needed.
        let State::Steps(steps, count) = &mut *state else { return None };
        steps[number] = Some(made);
        *count += 1;
        (*count == steps.len()).then(|| steps.drain(..).flatten().collect())
    }

    /// Records that a part was made, or that making it failed, and wakes the threads that wait for
    /// it.
    fn end(&self, part: &Part<T, S>, state: State<T, S>) {
        let mut in_progress = lock(&part.in_progress);
        if in_progress.as_ref().is_some_and(|in_progress| std::ptr::eq(&**in_progress, self)) {
            *in_progress = None;
        }
        drop(in_progress);
        *lock(&self.state) = state;
        self.ended.notify_all();
    }

    /// Waits for the steps of other threads. Returns the part, or `None` if a step failed.
    fn wait(&self) -> Option<Arc<T>> {
        let mut state = lock(&self.state);
        while let State::Steps(..) = &*state {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let State::Made(made) = &*state { Some(made.clone()) } else { None }
    }
}

/// A guard that records a failure if a step returns early or panics.
struct Failing<'a, T, S> {
    in_progress: &'a InProgress<T, S>,
    part: &'a Part<T, S>,
}

impl<T, S> Drop for Failing<'_, T, S> {
    fn drop(&mut self) {
        self.in_progress.end(self.part, State::Failed);
    }
}

/// Locks a mutex even if another thread panicked while it held the lock; the data is valid in that
/// case, too.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T, S> fmt::Debug for PartCache<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.own.parts.len();
        f.debug_struct("PartCache").field("parts", &parts).field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let kept = PartCache::new(4, 25);
        let get = |part: usize| {
            let made = AtomicUsize::new(0);
            let step = |_, _: &AtomicU64| Ok(made.fetch_add(1, Ordering::Relaxed));
            let bytes = kept.get(part, 1, step, |_| (vec![part as u8; 10], 10));
            assert_eq!(*bytes.unwrap(), [part as u8; 10]);
            made.into_inner() == 1
        };
        assert_eq!([0, 1, 0, 2, 0, 1, 3, 0].map(get), [true, true, false, true, false, true, true, true]);
    }

    #[test]
    fn a_forked_process_waits_for_no_thread_that_it_lacks() {
        let kept = PartCache::new(2, 25);
        let get = |part| kept.get(part, 1, |_, _| Ok(()), |_| (vec![1_u8; 10], 10)).unwrap();
        get(0);
        let (in_progress, held) = (lock(&kept.own.parts[1].in_progress), lock(&kept.own.held));
        // SAFETY: the child only makes parts, which needs nothing but memory, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the call only sets a time limit, after which the child is killed.
            unsafe { libc::alarm(20) };
            let made = kept.has(0) && !kept.has(1) && [0, 1].map(|part| get(part).len()) == [10; 2];
            // SAFETY: the child ends at once, without the parent's destructors.
            unsafe { libc::_exit(if made && kept.has(1) { 0 } else { 1 }) };
        }
        drop((in_progress, held));
        let mut status = -1;
        // SAFETY: the call waits for the child, and `status` has room for the result.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn threads_that_wait_for_a_part_make_its_steps() {
        let kept = PartCache::new(1, 25);
        let (barrier, asked) = (std::sync::Barrier::new(4), AtomicUsize::new(0));
        let step = |number: usize, spent: &AtomicU64| {
            asked.fetch_add(1, Ordering::Relaxed);
            // Each thread holds a part.
            barrier.wait();
            spent.fetch_add(5, Ordering::Relaxed);
            Ok(number)
        };
        let get = || kept.get(0, 4, step, |steps| (steps, 20)).unwrap().to_vec();
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(get)).collect();
            assert!(all.into_iter().all(|one| one.join().unwrap() == [0, 1, 2, 3]));
        });
        assert_eq!(asked.into_inner(), 4);
    }

    #[test]
    fn a_step_that_fails_or_panics_fails_for_everyone_who_asks() {
        let kept = PartCache::<(), ()>::new(1, 25);
        let step = |number: usize, _: &AtomicU64| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            match number {
                3 => Err(Error::usage("the fourth step", "none")),
                2 if std::thread::current().name() == Some("panics") => panic!("on purpose"),
                _ => Ok(()),
            }
        };
        let get = || kept.get(0, 5, step, |_| ((), 20));
        std::thread::scope(|scope| {
            let spawn =
                |name: &str| std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, get).unwrap();
            let all = ["panics", "a", "b", "c"].map(spawn);
            for one in all {
                assert!(one.join().is_err() || !kept.has(0));
            }
        });
        let error = get().unwrap_err().to_string();
        assert!(error.contains("the fourth step"), "{error}");
        kept.get(0, 5, |_, _| Ok(()), |_| ((), 20)).unwrap();
        assert!(kept.has(0));
    }

    #[test]
    fn wrong_contents_are_looked_at_once() {
        let (kept, asked) = (PartCache::<(), ()>::new(1, 25), AtomicUsize::new(0));
        let step = |_, _: &AtomicU64| {
            asked.fetch_add(1, Ordering::Relaxed);
            Err(Error::format("a file", 7, "damage", "none"))
        };
        let texts = [(); 3].map(|()| kept.get(0, 1, step, |_| ((), 1)).unwrap_err().to_string());
        assert_eq!((asked.into_inner(), &texts[2]), (1, &texts[0]));
    }
}
