//! The thread that fetches and evicts objects while a pass is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use slotline::dataset::Upcoming;

use super::plan::{Place, Plan, Step};
use crate::Format;
use crate::ahead::ReadCounters;
use crate::remote::Remote;

/// The maximum number of uses of files in a plan.
const HORIZON: usize = 1 << 18;

/// The number of uses that are added to a plan before the pass begins. The remaining uses are added
/// while the pass is read.
const AT_ONCE: usize = 1 << 12;

/// The number of objects that are fetched at the same time.
const AT_A_TIME: usize = 4;

/// The time after which the listing of the folder is renewed, since other processes may change the
/// folder.
const LOOK: Duration = Duration::from_secs(1);

/// The time for which the thread sleeps between two checks of what was read.
const PAUSE: Duration = Duration::from_millis(5);

/// The thread that decides what is in a cache. It ends soon after this is dropped.
#[derive(Debug)]
pub(crate) struct Planner(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pass: Mutex<Option<Pass>>,
    closed: AtomicBool,
}

/// A pass for which objects are fetched.
#[derive(Debug)]
struct Pass {
    upcoming: Upcoming,
    /// The next position of the pass to add to the plan.
    position: usize,
    /// The number of samples before `position`.
    samples: u64,
    plan: Plan,
    /// The number of free bytes in the folder; negative if the limit is exceeded.
    room: i64,
    /// When `room` was determined.
    looked: Instant,
}

impl Planner {
    /// Starts a thread for the objects of a format, if they are in a cache.
    pub(crate) fn start<F: Format + ?Sized>(format: Arc<F>, read: Arc<ReadCounters>) -> io::Result<Self> {
        let shared = Arc::new(Shared { pass: Mutex::default(), closed: AtomicBool::new(false) });
        let planner = Self(shared.clone());
        let life = move || {
            while !shared.closed.load(Ordering::Relaxed) {
                let begun = Instant::now();
                if let Some(remote) = format.files().remote() {
                    shared.go_on(&*format, remote, &read, HORIZON);
                }
                // With many objects, a round of this loop takes long. Sleeping for 20 times as long
                // keeps the thread's use of a core low.
                thread::sleep(PAUSE.max(20 * begun.elapsed()));
            }
        };
        thread::Builder::new().name("slotline-cache".to_owned()).spawn(life)?;
        Ok(planner)
    }

    /// Begins a pass in place of the previous one.
    pub(crate) fn begin<F: Format + ?Sized>(&self, upcoming: Upcoming, format: &F, read: &ReadCounters) {
        let Some(remote) = format.files().remote() else { return };
        let Some(cached) = remote.cached() else { return };
        cached.begin();
        let (position, plan) = (upcoming.positions().start, Plan::new(remote.len()));
        let pass = Pass { upcoming, position, samples: 0, plan, room: cached.scan(), looked: Instant::now() };
        *self.0.pass.lock().unwrap_or_else(PoisonError::into_inner) = Some(pass);
        self.0.go_on(format, remote, read, AT_ONCE);
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// Updates the plan, and starts the fetches that it asks for.
    fn go_on<F: Format + ?Sized>(&self, format: &F, remote: &Remote, read: &ReadCounters, horizon: usize) {
        let mut pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(current), Some(cached)) = (&mut *pass, remote.cached()) else { return };
        current.plan.read(read.samples());
        let end = current.upcoming.positions().end;
        if current.position == end && current.plan.len() == 0 {
            *pass = None;
            return;
        }
        let pass = current;
        while pass.plan.len() < horizon && pass.position < end {
            if let Some(index) = pass.upcoming.index(pass.position) {
                format.spans(index, &mut |span| {
                    let bytes = span.len.or(remote.object_len(span.file)).unwrap_or(0);
                    pass.plan.add(pass.samples, span.file, bytes);
                });
                pass.samples += 1;
            }
            pass.position += 1;
        }
        loop {
            let places = cached.places().clone();
            if places.iter().filter(|&&place| place == Place::Coming).count() >= AT_A_TIME {
                return;
            }
            if pass.looked.elapsed() > LOOK {
                (pass.room, pass.looked) = (cached.scan(), Instant::now());
            }
            match pass.plan.next(pass.room, |file| places[file], |file| cached.len(file)) {
                Some(Step::LetGo(file)) => {
                    cached.evict(file);
                    pass.room = pass.room.saturating_add_unsigned(cached.len(file));
                }
                Some(Step::Fetch(file)) => {
                    pass.room = pass.room.saturating_sub_unsigned(cached.len(file));
                    cached.set(file, Place::Coming);
                    remote.fetch_whole(file, cached);
                }
                None => return,
            }
        }
    }
}
