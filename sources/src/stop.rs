//! Stopping a thread that is opening data.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::LocalKey;

thread_local! {
    static STOP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Calls `open` while the thread-local variable `key` has this value, and restores the previous
/// value afterwards.
pub(crate) fn with<V, T>(key: &'static LocalKey<RefCell<V>>, value: V, open: impl FnOnce() -> T) -> T {
    struct Before<V: 'static>(&'static LocalKey<RefCell<V>>, Option<V>);
    impl<V> Drop for Before<V> {
        fn drop(&mut self) {
            self.1.take().into_iter().for_each(|value| self.0.set(value));
        }
    }
    let _before = Before(key, Some(key.replace(value)));
    open()
}

/// Calls `open`, which can be stopped by setting `stop`. Operations that wait for a server check
/// `stop` every 50 ms, and fail once it is set. Operations that go through local files check it
/// after each file.
///
/// ```
/// use std::sync::{Arc, atomic::AtomicBool};
///
/// let stop = Arc::new(AtomicBool::new(false));
/// // Another thread may set `stop` to true.
/// let opened = slotline_sources::stoppable(&stop, || slotline_sources::open("no/such/folder"));
/// assert!(opened.is_err());
/// ```
pub fn stoppable<T>(stop: &Arc<AtomicBool>, open: impl FnOnce() -> T) -> T {
    within(Some(stop.clone()), open)
}

/// Like [`stoppable`], with a flag that may be absent. Passes the flag of one thread on to another
/// one.
pub(crate) fn within<T>(stop: Option<Arc<AtomicBool>>, open: impl FnOnce() -> T) -> T {
    with(&STOP, stop, open)
}

pub(crate) fn current() -> Option<Arc<AtomicBool>> {
    STOP.with_borrow(Clone::clone)
}

/// Whether the flag of this thread is set.
pub(crate) fn is_set() -> bool {
    STOP.with_borrow(|stop| stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)))
}
