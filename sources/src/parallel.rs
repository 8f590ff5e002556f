//! Runs work on many files in parallel.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;
use crate::files::Files;

/// The number of objects on servers that are processed at the same time.
const REMOTE: usize = 32;

/// Calls `work` for each item and returns the results, or the first error. The number of threads is
/// that of the cores, or larger if `files` are on servers, since such work mostly waits.
pub(crate) fn par_map<T: Sync, R: Send>(
    files: &Files,
    items: &[T],
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = if files.is_remote() { REMOTE } else { cores };
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let take = || {
        while let Some((i, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?))) {
            let result = match crate::stop::is_set() {
                false => work(item),
                true => Err(Error::usage("the program has stopped opening the files", "open them again")),
            };
            if result.is_err() {
                // After an error, no thread begins another item.
                next.store(items.len(), Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((i, result));
        }
    };
    let stop = crate::stop::current();
    std::thread::scope(|scope| {
        (1..threads.min(items.len())).for_each(|_| _ = scope.spawn(|| crate::stop::within(stop.clone(), take)));
        take();
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_unstable_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}
