//! Ranges of objects that were asked for ahead: those that wait for a request, are on their way, or are here.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// How many bytes that nobody asked for may lie between ranges that are fetched by one request.
const GAP: u64 = 32 << 10;

/// The maximum number of bytes of such a request, and of those for a whole object.
pub(super) const LONGEST: u64 = 8 << 20;

/// A range of an object: its number, its first byte, and its length.
pub(super) type Key = (usize, u64, u64);

/// Ranges that were asked for.
#[derive(Default)]
pub(super) struct Fetched {
    ranges: Mutex<Ranges>,
    arrived: Condvar,
}

/// The ranges of a pass. What was asked for and is never read, such as what was read before it was asked for, must not
/// stay until the end of the pass: when there are too many bytes, the oldest ranges are dropped.
#[derive(Default)]
struct Ranges {
    /// The number of the pass: what was asked for in an earlier one is not kept.
    pass: u64,
    by_key: HashMap<Key, Range>,
    /// The number of bytes of those that are here or will come, and its maximum.
    bytes: u64,
    limit: u64,
    /// All ranges with their numbers, the oldest one first; also some that are gone.
    order: VecDeque<(u64, Key)>,
    /// The number of the next range.
    number: u64,
    /// How many were read before they were asked for.
    read: usize,
    /// Those for which no request was made yet.
    waiting: Vec<Key>,
}

struct Range {
    number: u64,
    state: State,
}

enum State {
    /// No request was made yet.
    Waiting,
    /// It is on its way.
    Coming,
    /// It is here.
    Here(Result<bytes::Bytes, Arc<Error>>),
    /// It was read without it, and need not be fetched.
    Read,
}

/// How many ranges that were read before they were asked for are known at a time.
const MAX_READ: usize = 1 << 16;

impl Ranges {
    /// Takes a range out. Returns its state.
    fn remove(&mut self, key: Key) -> Option<State> {
        let range = self.by_key.remove(&key)?;
        match range.state {
            State::Read => self.read -= 1,
            _ => self.bytes -= key.2,
        }
        Some(range.state)
    }

    /// Adds a range that will be read, and drops what exceeds the limit. Returns whether something was dropped.
    fn add(&mut self, key: Key) -> bool {
        match self.by_key.get(&key) {
            // It may be needed again, later.
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

    /// Notes that a range is read that nobody has asked for yet.
    fn add_read(&mut self, key: Key) {
        if self.limit > 0 && self.read < MAX_READ {
            self.read += 1;
            self.by_key.insert(key, Range { number: 0, state: State::Read });
        }
    }
}

/// Ranges that are being fetched by one request. If that ends without a result, nobody waits for them any longer.
pub(super) struct Coming {
    fetched: Arc<Fetched>,
    keys: Vec<Key>,
    /// The first byte of the request.
    start: u64,
    pass: u64,
}

impl Coming {
    pub(super) fn new(fetched: &Arc<Fetched>, keys: Vec<Key>, start: u64, pass: u64) -> Self {
        Self { fetched: fetched.clone(), keys, start, pass }
    }

    /// Sets the result, unless a new pass has begun; without it, the ranges count as not asked for.
    pub(super) fn settle(&self, bytes: Option<Result<bytes::Bytes, Arc<Error>>>) {
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
        self.settle(None);
    }
}

impl Fetched {
    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a pass, in which at most `limit` bytes are kept: what was asked for before is dropped.
    pub(super) fn begin(&self, limit: u64) {
        let mut ranges = self.lock();
        *ranges = Ranges { pass: ranges.pass + 1, limit, ..Ranges::default() };
        drop(ranges);
        // Whoever waits for one of them fetches it.
        self.arrived.notify_all();
    }

    /// Notes a range that will be read.
    pub(super) fn add(&self, key: Key) {
        if self.lock().add(key) {
            self.arrived.notify_all();
        }
    }

    /// Returns the pass, and the ranges to fetch that were noted since the last call: the one to request, and those in it.
    /// Ranges that lie together are fetched by one request.
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
        // Sorted, so that neighbours are found; then in the order of the first need.
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

    /// The number of bytes of ranges that are here or will come.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Lets go a range that was asked for and is not needed.
    pub(super) fn forget(&self, key: Key) {
        self.lock().remove(key);
    }

    /// Takes a range that was asked for, and waits until it is there. `send` makes the requests that nobody has made yet.
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
