//! The ranges of objects that were asked for in advance: those that wait for a request, are being
//! fetched, or have arrived.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// The maximum number of unneeded bytes between two ranges that are fetched by one request.
const GAP: u64 = 32 << 10;

/// The maximum number of bytes of a request.
pub(super) const LONGEST: u64 = 8 << 20;

/// A range of an object: the object's index, the range's first byte, and its length.
pub(super) type Key = (usize, u64, u64);

/// The ranges that were asked for, shared by all threads.
#[derive(Default)]
pub(super) struct Fetched {
    ranges: Mutex<Ranges>,
    arrived: Condvar,
}

/// The ranges of a pass. Some of them are never read, for example because their samples were read
/// before the ranges were asked for. So that these do not stay until the end of the pass, the
/// oldest ranges are dropped when there are too many bytes.
#[derive(Default)]
struct Ranges {
    /// The number of the pass. Ranges of earlier passes are dropped.
    pass: u64,
    by_key: HashMap<Key, Range>,
    /// The number of bytes of the ranges that have arrived or will arrive.
    bytes: u64,
    /// The maximum of `bytes`.
    limit: u64,
    /// All ranges with their numbers, the oldest one first. It may also contain ranges that were
    /// removed.
    order: VecDeque<(u64, Key)>,
    /// The number of the next range that is added.
    number: u64,
    /// The number of ranges that were read before they were asked for.
    read: usize,
    /// The ranges for which no request was made yet.
    waiting: Vec<Key>,
}

struct Range {
    number: u64,
    state: State,
}

enum State {
    /// No request was made for the range yet.
    Waiting,
    /// The range is being fetched.
    Coming,
    /// The range has arrived, or its request has failed.
    Here(Result<bytes::Bytes, Arc<Error>>),
    /// The range was read by another request before it was asked for, so it need not be fetched.
    Read,
}

/// The maximum number of ranges that are remembered because they were read before they were asked
/// for.
const MAX_READ: usize = 1 << 16;

impl Ranges {
    /// Removes a range. Returns its state.
    fn remove(&mut self, key: Key) -> Option<State> {
        let range = self.by_key.remove(&key)?;
        match range.state {
            State::Read => self.read -= 1,
            _ => self.bytes -= key.2,
        }
        Some(range.state)
    }

    /// Adds a range that will be read, and drops old ranges if the limit is exceeded. Returns
    /// whether any was dropped.
    fn add(&mut self, key: Key) -> bool {
        match self.by_key.get(&key) {
            // The range was read before it was asked for, and may be needed again later.
            Some(Range { state: State::Read, .. }) => _ = self.remove(key),
            Some(_) => {}
            None => {
                self.number += 1;
                self.by_key.insert(key, Range { number: self.number, state: State::Waiting });
                self.bytes += key.2;
                self.order.push_back((self.number, key));
                self.waiting.push(key);
            }
        }
        let is_there = |ranges: &HashMap<Key, Range>, (number, key): (u64, Key)| {
            ranges.get(&key).is_some_and(|range| range.number == number)
        };
        if self.order.len() > 2 * self.by_key.len() + MAX_READ {
            self.order.retain(|&range| is_there(&self.by_key, range));
        }
        let mut lets_go = false;
        while self.bytes > self.limit
            && let Some(&(number, key)) = self.order.front()
            && number != self.number
        {
            self.order.pop_front();
            lets_go |= is_there(&self.by_key, (number, key)) && self.remove(key).is_some();
        }
        lets_go
    }

    /// Records that a range is read that was not asked for yet.
    fn add_read(&mut self, key: Key) {
        if self.limit > 0 && self.read < MAX_READ {
            self.read += 1;
            self.by_key.insert(key, Range { number: 0, state: State::Read });
        }
    }
}

/// The ranges that one request fetches. If the request ends without a result, threads stop waiting
/// for them.
pub(super) struct Coming {
    fetched: Arc<Fetched>,
    keys: Vec<Key>,
    /// The position of the first byte of the request.
    start: u64,
    pass: u64,
}

impl Coming {
    pub(super) fn new(fetched: &Arc<Fetched>, keys: Vec<Key>, start: u64, pass: u64) -> Self {
        Self { fetched: fetched.clone(), keys, start, pass }
    }

    /// Sets the result of the request, unless a new pass has begun. Without a result, the ranges
    /// count as not asked for.
    pub(super) fn set_result(&self, bytes: Option<Result<bytes::Bytes, Arc<Error>>>) {
        let mut ranges = self.fetched.lock();
        if ranges.pass != self.pass {
            return;
        }
        for key in &self.keys {
            let Some(range) = ranges.by_key.get_mut(key).filter(|range| matches!(range.state, State::Coming)) else {
                continue;
            };
            let part = (key.1 - self.start) as usize..(key.1 - self.start + key.2) as usize;
            match &bytes {
                Some(bytes) => range.state = State::Here(bytes.as_ref().map(|all| all.slice(part)).map_err(Arc::clone)),
                None => _ = ranges.remove(*key),
            }
        }
        drop(ranges);
        self.fetched.arrived.notify_all();
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.set_result(None);
    }
}

impl Fetched {
    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a pass in which at most `limit` bytes are kept. Ranges that were asked for earlier
    /// are dropped.
    pub(super) fn begin(&self, limit: u64) {
        let mut ranges = self.lock();
        *ranges = Ranges { pass: ranges.pass + 1, limit, ..Ranges::default() };
        drop(ranges);
        // Threads that wait for a dropped range fetch it themselves.
        self.arrived.notify_all();
    }

    /// Records a range that will be read.
    pub(super) fn add(&self, key: Key) {
        if self.lock().add(key) {
            self.arrived.notify_all();
        }
    }

    /// Returns the number of the pass, and the requests to make for the ranges that were recorded
    /// since the last call. Each is the range to request, with the recorded ranges that it
    /// contains. Neighbouring ranges are joined to one request.
    pub(super) fn to_send(&self) -> (u64, impl Iterator<Item = (Key, Vec<Key>)> + use<>) {
        let (pass, waiting) = {
            let mut ranges = self.lock();
            let mut waiting = std::mem::take(&mut ranges.waiting);
            waiting.retain(|key| match ranges.by_key.get_mut(key) {
                Some(range) if matches!(range.state, State::Waiting) => {
                    range.state = State::Coming;
                    true
                }
                _ => false,
            });
            (ranges.pass, waiting)
        };
        // The ranges are sorted by position in order to find neighbours. The requests are then made
        // in the order in which their ranges are needed.
        let mut order: Vec<usize> = (0..waiting.len()).collect();
        order.sort_unstable_by_key(|&i| waiting[i]);
        let mut groups: Vec<(usize, Key, Vec<Key>)> = Vec::new();
        for i in order {
            let (object, start, len) = waiting[i];
            match groups.last_mut() {
                Some((first, whole, keys)) if may_join(*whole, (object, start, len)) => {
                    *first = i.min(*first);
                    whole.2 = whole.2.max(start + len - whole.1);
                    keys.push(waiting[i]);
                }
                _ => groups.push((i, waiting[i], vec![waiting[i]])),
            }
        }
        groups.sort_unstable_by_key(|(first, ..)| *first);
        (pass, groups.into_iter().map(|(_, whole, keys)| (whole, keys)))
    }

    /// Returns the number of bytes of the ranges that have arrived or will arrive.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Removes a range that was asked for and is not needed.
    pub(super) fn forget(&self, key: Key) {
        self.lock().remove(key);
    }

    /// Removes a range that was asked for, waits until it has arrived, and returns it. `send` makes
    /// the requests that were not made yet.
    pub(super) fn take(&self, key: Key, send: impl Fn()) -> Option<Result<bytes::Bytes, Arc<Error>>> {
        let mut ranges = self.lock();
        loop {
            match ranges.by_key.get(&key).map(|range| &range.state) {
                None => {
                    ranges.add_read(key);
                    return None;
                }
                Some(State::Read) => return None,
                Some(State::Here(_)) => {
                    let Some(State::Here(bytes)) = ranges.remove(key) else { return None };
                    return Some(bytes);
                }
                Some(State::Waiting) => {
                    drop(ranges);
                    send();
                    ranges = self.lock();
                }
                Some(State::Coming) => {
                    ranges = self.arrived.wait(ranges).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Whether a range may be fetched by the request for another one, which starts before it.
fn may_join((object, start, len): Key, next: Key) -> bool {
    let end = start + len;
    next.0 == object && next.1 <= end + GAP && (next.1 + next.2).max(end) - start <= LONGEST
}
