//! The limit of concurrent requests: it rises while that makes reading faster, and falls when
//! connections fail.
//!
//! A server may have a short queue for new connections (Python's `http.server` has five places). It
//! drops connections that arrive when the queue is full, and the client's system tries again after
//! 1 s, 3 s and 7 s. So the number of connections grows one by one: each answer allows one more, up
//! to a limit. The limit is doubled from time to time. If reading becomes faster, the doubled limit
//! stays. Otherwise the old limit applies again, and doubling is tried again later.
//!
//! The rate is measured over a window of as many requests as the limit allows, which begins once
//! that many are allowed. The rate is the number of bytes of these requests, divided by the sum of
//! their durations, times the limit. (Answers come in bursts, so bytes per elapsed time would be
//! less precise.) The limit is halved when a connection is reset or refused or takes too long, or
//! the server asks for fewer requests.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::RequestOptions;

/// The number of requests that are made before the first one is answered.
const FIRST: usize = 4;

/// The limit of concurrent requests at the beginning.
const BEGIN: usize = 16;

/// The factor by which the rate must grow for a doubled limit to be kept.
const WORTHWHILE: f64 = 1.2;

/// The pause after the first doubling of the limit that did not increase the rate, in windows. In a
/// pause the limit is not doubled. The pause itself doubles with each further such doubling, up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: u32 = 8;
/// The longest pause, in windows.
const LONGEST_PAUSE: u32 = 1 << 10;
/// The pause after a failure, in windows.
const PAUSE_AFTER_FAILURE: u32 = 64;

/// The time within which failures count as one, and halve the limit only once.
const SAME_CAUSE: Duration = Duration::from_secs(1);

pub(super) struct Limit {
    permits: Semaphore,
    state: Mutex<State>,
    pub(super) options: RequestOptions,
}

struct State {
    limit: usize,
    /// The number of permits that exist, in use or available.
    permits_made: usize,
    /// When the current window began.
    begun: Instant,
    /// The number of requests of this window that were answered.
    requests: usize,
    /// The number of requests of this window that were answered while all permits were in use.
    full: usize,
    /// The number of bytes of the requests in `requests`.
    bytes: u64,
    /// The sum of the durations of the requests in `requests`.
    time: Duration,
    /// The limit before it was doubled, and its rate in bytes/s; `None` while no doubled limit is
    /// being tried.
    before: Option<(usize, f64)>,
    /// How many more windows must pass before the limit may be doubled.
    pause: u32,
    /// The length of the pause, in windows, after the next doubling that does not make reading
    /// faster.
    next_pause: u32,
    /// The number of failed requests.
    failed: u64,
    /// When a request failed last.
    failed_last: Option<Instant>,
    /// The smallest limit that failures have led to.
    lowest: usize,
}

/// Permission for one request. It is returned when this is dropped.
pub(super) struct Permit {
    limit: Arc<Limit>,
    begun: Instant,
}

impl Limit {
    pub(super) fn new(options: RequestOptions) -> Self {
        let most = options.most.clamp(1, Semaphore::MAX_PERMITS);
        let options = RequestOptions { most, ..options };
        let permits_made = FIRST.min(most);
        let state = State {
            limit: BEGIN.min(most),
            permits_made,
            begun: Instant::now(),
            requests: 0,
            full: 0,
            bytes: 0,
            time: Duration::ZERO,
            before: None,
            pause: 0,
            next_pause: FIRST_PAUSE,
            failed: 0,
            failed_last: None,
            lowest: most,
        };
        Self { permits: Semaphore::new(permits_made), state: Mutex::new(state), options }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request may be made.
    pub(super) async fn permit(self: &Arc<Self>) -> Permit {
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        Permit { limit: self.clone(), begun: Instant::now() }
    }

    /// Records that a connection was reset or refused or took too long, or that the server asked
    /// for fewer requests.
    pub(super) fn failed(&self) {
        let mut state = self.state();
        state.failed += 1;
        let now = Instant::now();
        if state.failed_last.replace(now).is_some_and(|last| now.duration_since(last) < SAME_CAUSE) {
            return;
        }
        state.limit = (state.limit / 2).max(FIRST.min(self.options.most));
        state.lowest = state.limit.min(state.lowest);
        (state.before, state.pause) = (None, PAUSE_AFTER_FAILURE);
        state.begin_window(now);
    }

    /// Returns a message if connections failed.
    pub(super) fn warning(&self, server: &str) -> Option<String> {
        let State { failed, limit, lowest, .. } = *self.state();
        (failed > 0).then(|| {
            format!(
                "{failed} requests to {server} failed at first (connections were reset, refused or not answered in \
                 time, or the server asked for fewer requests) and were repeated; so there were at times {lowest} \
                 requests at a time, and now there are up to {limit}; the maximum is {}",
                self.options.most
            )
        })
    }
}

impl State {
    fn begin_window(&mut self, now: Instant) {
        (self.begun, self.requests, self.full, self.bytes, self.time) = (now, 0, 0, 0, Duration::ZERO);
    }

    /// Counts a request that was answered. At the end of a window, adjusts the limit.
    fn count(&mut self, bytes: u64, begun: Instant, is_full: bool, most: usize, now: Instant) {
        if self.permits_made < self.limit {
            self.permits_made += 1;
            return self.begin_window(now);
        }
        if begun < self.begun {
            return;
        }
        self.requests += 1;
        self.full += usize::from(is_full);
        self.bytes += bytes.max(1);
        self.time += now.duration_since(begun);
        if self.requests < self.limit {
            return;
        }
        // If the current limit is not reached, a higher one does not help.
        let is_full = self.full > self.requests / 2;
        let rate = self.bytes as f64 / self.time.as_secs_f64().max(1e-9) * self.limit as f64;
        match self.before.take() {
            Some((limit, slower)) if is_full && rate < WORTHWHILE * slower => {
                (self.limit, self.pause) = (limit, self.next_pause);
                self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
            }
            _ if self.pause > 0 => self.pause -= 1,
            _ if is_full && self.limit < most => {
                self.before = Some((self.limit, rate));
                self.limit = (2 * self.limit).min(most);
            }
            _ => {}
        }
        self.begin_window(now);
    }
}

impl Permit {
    /// Counts the request as answered with this many bytes. Allows one more concurrent request, up
    /// to the limit.
    pub(super) fn answered(&self, bytes: u64) {
        let mut state = self.limit.state();
        let (is_full, before) = (self.limit.permits.available_permits() == 0, state.permits_made);
        state.count(bytes, self.begun, is_full, self.limit.options.most, Instant::now());
        self.limit.permits.add_permits(state.permits_made - before);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limit.state();
        match state.permits_made > state.limit {
            true => state.permits_made -= 1,
            false => self.limit.permits.add_permits(1),
        }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { limit, failed, .. } = *self.state();
        f.debug_struct("Limit").field("limit", &limit).field("failed", &failed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(most: usize) -> Limit {
        Limit::new(RequestOptions::new().max_connections(most))
    }

    /// Simulates windows of requests with this rate in bytes/s, all of which reach the limit
    /// (`is_full`) or none. Returns the limit afterwards.
    fn windows(limit: &Limit, count: usize, rate: u64, is_full: bool) -> usize {
        for _ in 0..count {
            let mut state = limit.state();
            state.permits_made = state.limit;
            let (requests, begun) = (state.limit, state.begun);
            // A request that began before the window is not counted.
            state.count(1 << 40, begun - Duration::from_secs(1), is_full, limit.options.most, begun);
            for _ in 0..requests {
                state.count(rate / requests as u64, begun, is_full, limit.options.most, begun + Duration::from_secs(1));
            }
        }
        limit.state().limit
    }

    #[test]
    fn the_limit_grows_while_reading_gets_faster() {
        let limit = limit_of(100);
        assert_eq!([1_000, 2_000, 2_300].map(|rate| windows(&limit, 1, rate, true)), [32, 64, 32]);
        assert_eq!(windows(&limit, FIRST_PAUSE as usize, 2_000, true), 32);
        assert_eq!([2_000, 4_000, 8_000, 8_000].map(|rate| windows(&limit, 1, rate, true)), [64, 100, 100, 100]);
        // If fewer requests are made than are allowed, their rate says nothing about the limit.
        let limit = limit_of(100);
        assert_eq!(windows(&limit, 2, 9_000, false), 16);
    }

    #[test]
    fn the_limit_is_halved_once_for_one_cause_and_stays() {
        let limit = limit_of(128);
        assert_eq!(windows(&limit, 1, 1_000, true), 32);
        assert_eq!(limit.warning("http://host"), None);
        (0..20).for_each(|_| limit.failed());
        assert_eq!(windows(&limit, PAUSE_AFTER_FAILURE as usize, 9_000, true), 16);
        assert_eq!(windows(&limit, 1, 9_000, true), 32);
        let warning = limit.warning("http://host").unwrap();
        assert!(warning.starts_with("20 requests to http://host failed") && warning.contains("up to 32"), "{warning}");
        for _ in 0..9 {
            limit.state().failed_last = None;
            limit.failed();
        }
        assert_eq!(limit.state().limit, FIRST);
        assert_eq!(limit_of(1).state().permits_made, 1);
    }

    #[test]
    fn each_answer_allows_one_more_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let limit = Arc::new(limit_of(128));
        let mut permits: Vec<_> = (0..FIRST).map(|_| runtime.block_on(limit.permit())).collect();
        assert_eq!(limit.permits.available_permits(), 0);
        for _ in 0..3 {
            permits.pop().unwrap().answered(1);
        }
        assert_eq!(limit.permits.available_permits(), 6);
        // Permits that exceed the limit after a failure are not used again.
        limit.state().limit = 2;
        drop(permits);
        permits = (0..6).map(|_| runtime.block_on(limit.permit())).collect();
        drop(permits);
        assert_eq!((limit.permits.available_permits(), limit.state().permits_made), (2, 2));
    }
}
