//! Streams: queues of work that is done in small steps. A generator picks the stream of each step.

use std::collections::VecDeque;
use std::fmt;

use super::code::{INVALID_HANDLE, LAUNCH_TIMEOUT, NOT_READY, Outcome};
use super::event::Mark;
use super::kernel::Run;
use super::transfer::{Copy, Fill};
use super::{Driver, Handle, own_stream};
use crate::control::Skip;

pub(super) struct Stream {
    device: usize,
    name: String,
    kind: Kind,
    /// Whether the stream's handle was destroyed. Work that is already in the queue is still done.
    destroyed: bool,
    /// Whether a copy to the device was ever enqueued.
    carries_copies: bool,
    queue: VecDeque<Job>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Stream 0 of a context. It and the blocking streams wait for each other.
    Legacy,
    /// The default stream of one thread. It is a blocking stream.
    PerThread(u64),
    Blocking,
    NonBlocking,
}

/// A unit of work in a stream's queue.
pub(super) struct Job {
    /// The position in the order in which the jobs of all streams were enqueued, from 1.
    number: u64,
    stream: String,
    /// The number of turns of the job's stream that pass before the job starts.
    late: u32,
    started: bool,
    work: Work,
}

pub(super) enum Work {
    Copy(Copy),
    Fill(Fill),
    Record(Mark),
    Wait(Mark),
    Kernel(Run),
    /// Frees device memory, given by start and length.
    Free(usize, usize),
}

/// Bytes that a job reads or writes. Device memory and host memory have no addresses in common.
pub(super) struct Access {
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) writes: bool,
}

impl Access {
    fn overlaps(&self, start: usize, bytes: usize) -> bool {
        self.start < start.saturating_add(bytes) && start < self.start.saturating_add(self.bytes)
    }
}

impl Job {
    fn accesses(&self) -> Vec<Access> {
        match &self.work {
            Work::Copy(copy) => copy.accesses(),
            Work::Fill(fill) => vec![Access { start: fill.start, bytes: fill.bytes, writes: true }],
            Work::Kernel(run) => run.accesses(),
            Work::Free(start, bytes) => vec![Access { start: *start, bytes: *bytes, writes: true }],
            Work::Record(_) | Work::Wait(_) => Vec::new(),
        }
    }

    pub(super) fn uses(&self, start: usize, bytes: usize) -> bool {
        self.accesses().iter().any(|access| access.overlaps(start, bytes))
    }

    /// Returns whether the two jobs must not run concurrently.
    fn conflicts(&self, other: &Self) -> bool {
        let others = other.accesses();
        let clash = |a: &Access, b: &Access| (a.writes || b.writes) && a.overlaps(b.start, b.bytes);
        self.accesses().iter().any(|a| others.iter().any(|b| clash(a, b)))
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Copy(copy) => write!(f, "{copy}")?,
            Work::Fill(fill) => write!(f, "fill of {} bytes", fill.bytes)?,
            Work::Record(_) => write!(f, "record")?,
            Work::Wait(_) => write!(f, "wait")?,
            Work::Kernel(run) => write!(f, "kernel {}", run.name())?,
            Work::Free(start, _) => write!(f, "free of {start:#x}")?,
        }
        write!(f, " ({})", Place { number: self.number, stream: &self.stream })
    }
}

/// The names of a job and its stream, for messages.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    number: u64,
    stream: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}, {}", self.number, self.stream)
    }
}

impl Stream {
    pub(super) fn device(&self) -> usize {
        self.device
    }

    /// Returns whether the stream was created by the user and not destroyed.
    pub(super) fn is_users(&self) -> bool {
        matches!(self.kind, Kind::Blocking | Kind::NonBlocking) && !self.destroyed
    }

    pub(super) fn carries_copies(&self) -> bool {
        self.carries_copies
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.queue.iter()
    }
}

const NON_BLOCKING: u32 = 1;
impl Driver {
    pub(super) fn create_stream(&mut self, flags: u32) -> Outcome<Handle> {
        let device = self.current()?;
        let kind = if flags & NON_BLOCKING == 0 { Kind::Blocking } else { Kind::NonBlocking };
        Ok(self.add_stream(device, kind))
    }

    pub(super) fn destroy_stream(&mut self, stream: Handle) -> Outcome {
        self.check_context_for(self.streams.get(&stream).map(Stream::device))?;
        let known = self.streams.get_mut(&stream).filter(|stream| stream.is_users()).ok_or(INVALID_HANDLE)?;
        known.destroyed = true;
        if known.queue.is_empty() {
            self.streams.remove(&stream);
        }
        Ok(())
    }

    /// Returns the stream that a caller's handle refers to. Default streams are created when they
    /// are first used.
    pub(super) fn find_stream(&mut self, stream: Handle) -> Outcome<Handle> {
        let device = self.current()?;
        let kind = match stream {
            0 | 1 => Kind::Legacy,
            2 => Kind::PerThread(own_stream()),
            _ => return self.created_stream(stream),
        };
        let known = self.streams.iter().find(|(_, stream)| stream.device == device && stream.kind == kind);
        Ok(known.map(|(&handle, _)| handle).unwrap_or_else(|| self.add_stream(device, kind)))
    }

    /// Like [`find_stream`](Self::find_stream), for a call that
    /// [may need no context](Self::check_context_for) if the stream was created by the user.
    pub(super) fn find_by_handle(&mut self, stream: Handle) -> Outcome<Handle> {
        if stream <= 2 {
            return self.find_stream(stream);
        }
        self.check_context_for(self.streams.get(&stream).map(Stream::device))?;
        self.created_stream(stream)
    }

    fn created_stream(&self, stream: Handle) -> Outcome<Handle> {
        self.streams.get(&stream).filter(|known| known.is_users()).map(|_| stream).ok_or(INVALID_HANDLE)
    }

    fn add_stream(&mut self, device: usize, kind: Kind) -> Handle {
        let handle = self.handle();
        self.streams_made += 1;
        let name = match kind {
            Kind::Legacy => format!("legacy stream of device {device}"),
            Kind::PerThread(_) => format!("per-thread default stream {}", self.streams_made),
            Kind::Blocking | Kind::NonBlocking => format!("stream {}", self.streams_made),
        };
        let queue = VecDeque::new();
        self.streams.insert(handle, Stream { device, name, kind, destroyed: false, carries_copies: false, queue });
        handle
    }

    pub(super) fn query_stream(&mut self, stream: Handle) -> Outcome {
        let stream = self.find_by_handle(stream)?;
        let idle = self.streams[&stream].queue.is_empty() || self.skips(Skip::HostWait);
        if idle { Ok(()) } else { Err(NOT_READY) }
    }

    pub(super) fn synchronize_stream(&mut self, stream: Handle) -> Outcome {
        let stream = self.find_by_handle(stream)?;
        if self.skips(Skip::HostWait) {
            return Ok(());
        }
        self.finish_stream(stream)
    }

    pub(super) fn finish_stream(&mut self, stream: Handle) -> Outcome {
        self.run_until(|driver| driver.streams.get(&stream).is_none_or(|stream| stream.queue.is_empty()))?;
        // The context is checked after the wait, so that errors of the finished work are returned.
        self.check_context_for(self.streams.get(&stream).map(Stream::device))
    }

    pub(super) fn finish_device(&mut self, device: usize) -> Outcome {
        let idle = |stream: &Stream| stream.device != device || stream.queue.is_empty();
        self.run_until(|driver| driver.streams.values().all(idle))
    }

    pub(super) fn enqueue(&mut self, stream: Handle, work: Work) {
        let late = match work {
            Work::Copy(_) | Work::Fill(_) | Work::Kernel(_) => self.random.up_to(self.options.latency),
            Work::Record(_) | Work::Wait(_) | Work::Free(..) => 0,
        };
        self.jobs_made += 1;
        let number = self.jobs_made;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.carries_copies |= matches!(&work, Work::Copy(copy) if copy.is_to_device());
            stream.queue.push_back(Job { number, stream: stream.name.clone(), late, started: false, work });
        }
    }

    /// Returns the number of jobs that are not done.
    pub(super) fn pending(&self) -> usize {
        self.streams.values().map(|stream| stream.queue.len()).sum()
    }

    /// Describes the first unfinished job that reads or writes these bytes.
    pub(super) fn user_of(&self, start: usize, bytes: usize) -> Option<String> {
        let mut jobs = self.streams.values().flat_map(Stream::jobs);
        jobs.find(|job| job.uses(start, bytes)).map(ToString::to_string)
    }

    /// Makes steps until `done` returns `true`.
    ///
    /// # Errors
    ///
    /// Returns a timeout if no step can be made because the streams are held.
    pub(super) fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Outcome {
        while !done(self) {
            if self.advance(1) == 0 {
                return Err(LAUNCH_TIMEOUT);
            }
        }
        Ok(())
    }

    /// Makes `steps` steps, or fewer if no stream can make one. Returns the number of steps made.
    pub(super) fn advance(&mut self, steps: u64) -> u64 {
        for made in 0..steps {
            let ready = self.streams.values().filter(|stream| self.can_step(stream)).count();
            if ready == 0 || self.held {
                return made;
            }
            let chosen = self.choose(ready as u32) as usize;
            let mut streams = self.streams.iter().filter(|(_, stream)| self.can_step(stream));
            if let Some((&stream, _)) = streams.nth(chosen) {
                self.step(stream);
            }
        }
        steps
    }

    /// Picks one of `ready` streams. For some time one stream makes most steps, and then another
    /// one does: an even distribution would hide problems of uneven progress.
    fn choose(&mut self, ready: u32) -> u32 {
        if self.random.up_to(63) == 0 {
            self.ahead = self.random.up_to(u32::MAX);
        }
        if self.random.up_to(7) == 0 { self.random.up_to(ready - 1) } else { self.ahead % ready }
    }

    fn can_step(&self, stream: &Stream) -> bool {
        let Some(job) = stream.queue.front() else { return false };
        let earlier = |other: &Stream| other.queue.front().is_some_and(|front| front.number < job.number);
        let mut others = self.streams.values().filter(|other| other.device == stream.device);
        match (&job.work, stream.kind) {
            (Work::Wait(mark), _) if !mark.is_reached() => false,
            (_, Kind::NonBlocking) => true,
            (_, Kind::Legacy) => !others.any(|other| other.kind != Kind::NonBlocking && earlier(other)),
            (_, Kind::Blocking | Kind::PerThread(_)) => !others.any(|o| o.kind == Kind::Legacy && earlier(o)),
        }
    }

    fn step(&mut self, handle: Handle) {
        let Some(mut job) = self.streams.get_mut(&handle).and_then(|stream| stream.queue.pop_front()) else { return };
        self.now += 1;
        self.note(|| format!("    {job}"));
        let done = if job.late > 0 {
            job.late -= 1;
            false
        } else {
            self.perform(&mut job)
        };
        let Some(stream) = self.streams.get_mut(&handle) else { return };
        if !done {
            stream.queue.push_front(job);
        } else if stream.destroyed && stream.queue.is_empty() {
            self.streams.remove(&handle);
        }
    }

    /// Performs one step of a job. Returns whether it was the last step.
    fn perform(&mut self, job: &mut Job) -> bool {
        let first = !std::mem::replace(&mut job.started, true);
        if first {
            self.find_races(job);
        }
        let place = Place { number: job.number, stream: &job.stream };
        match &mut job.work {
            Work::Copy(copy) => self.copy_piece(copy, place),
            Work::Fill(fill) => fill.write(),
            Work::Record(mark) => {
                mark.reach(self.now);
                true
            }
            Work::Wait(_) => true,
            Work::Kernel(run) => self.run_kernel(run, place, first),
            Work::Free(start, _) => {
                // If freeing fails, a violation was recorded; no caller waits for the result.
                let _ = self.free_now(*start);
                true
            }
        }
    }

    /// Records a violation for each unfinished earlier job that conflicts with this one. Two jobs
    /// that access the same bytes, at least one of them writing, must be ordered. The earlier one
    /// cannot wait for the later one, so if the later one starts first or in between, they are not
    /// ordered.
    fn find_races(&mut self, job: &Job) {
        let others = self.streams.values().flat_map(Stream::jobs).filter(|other| other.number < job.number);
        let races: Vec<_> = others.filter(|other| other.conflicts(job)).map(ToString::to_string).collect();
        for other in races {
            self.violation(format!("{job} begins before {other} is done, on the same bytes"));
        }
    }
}
