//! Decides which worker gets which request, and whose reply comes next. A link is the pair of rings
//! between the consumer and one worker; this module has the consumer's ends of all links.

use std::collections::VecDeque;
use std::sync::Arc;

use slotline_core::spsc::{self, NextError, Slot};
use slotline_core::wait::Wait;

use crate::BoxError;
use crate::dataset::StopToken;
use crate::loader::backend::per_worker::worker::{Reply, Ring};
use crate::loader::backend::protocol::{Next, NotReady, Outcome, Ready, Request, StreamPosition};
use crate::loader::checkpoint::state::State;
use crate::loader::checkpoint::tickets::Tickets;
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::error::guard::dispose;
use crate::wait::{Until, Waiter};

/// The consumer's end of one link.
pub(crate) struct WorkerLink<P> {
    pub(crate) requests: spsc::Producer<Arc<Ring<Request>>>,
    pub(crate) replies: spsc::Consumer<Arc<Ring<Reply<P>>>>,
    /// The number of requests without a reply.
    outstanding: usize,
    /// Whether the worker has more batches to make in this pass.
    alive: bool,
    /// Whether the worker has ended and can get no more requests.
    ended: bool,
    /// The worker's position after the last delivered batch.
    pub(crate) position: StreamPosition,
}

impl<P> WorkerLink<P> {
    pub(crate) fn new(
        requests: spsc::Producer<Arc<Ring<Request>>>,
        replies: spsc::Consumer<Arc<Ring<Reply<P>>>>,
    ) -> Self {
        Self { requests, replies, outstanding: 0, alive: false, ended: false, position: StreamPosition::new() }
    }

    fn ask(&mut self, request: Request) {
        // A ring has as many slots as there can be outstanding requests. So a push fails only if
        // the ring is closed because its worker has ended.
        if self.requests.try_push(request).is_ok() {
            self.outstanding += 1;
        } else {
            (self.alive, self.ended) = (false, true);
        }
    }
}

/// The links to all workers.
pub(crate) struct RequestQueues<P> {
    pub(crate) links: Vec<WorkerLink<P>>,
    /// The waiter on which the consumer waits for a free cell.
    released: Arc<Waiter>,
    /// The flag that all workers check.
    pub(crate) cancel: StopToken,
    /// The waiter for a reply from any worker; `None` if batches are taken in order.
    pub(crate) any: Option<Arc<Waiter>>,
    /// The maximum number of outstanding requests of each link.
    prefetch: usize,
    /// The links of the outstanding requests, in the order of the requests. Unused if batches are
    /// taken as they finish.
    asked: VecDeque<usize>,
    /// The link that gets the next request.
    turn: usize,
    /// The link after the one that the last batch came from.
    pub(crate) after: usize,
    /// The link at which the search for a finished batch begins.
    look: usize,
    /// The number of batches requested in this pass; which batches they are; and the number of
    /// batches to request in all, if it is known.
    asks: usize,
    tickets: Tickets,
    tasks: Option<usize>,
    request: Request,
}

impl<P> RequestQueues<P> {
    /// The bytes for each request that a link may have outstanding.
    pub(crate) const PLACE: usize = size_of::<(Slot<Request>, Slot<Reply<P>>, usize)>();

    pub(crate) fn new(
        links: Vec<WorkerLink<P>>,
        released: Arc<Waiter>,
        any: Option<Arc<Waiter>>,
        prefetch: usize,
        cancel: StopToken,
    ) -> Self {
        let asked = VecDeque::with_capacity(links.len() * prefetch);
        let (request, tickets) = (Request::default(), Tickets::default());
        Self {
            links,
            released,
            cancel,
            any,
            prefetch,
            asked,
            turn: 0,
            after: 0,
            look: 0,
            asks: 0,
            tickets,
            tasks: None,
            request,
        }
    }

    /// Makes all workers run their `worker_init`, and returns the failures, by worker. Returns
    /// `None` if the deadline passed first, or if a worker has ended.
    pub(crate) fn init(&mut self, request: Request, deadline: &Until) -> Option<Vec<(usize, BoxError)>> {
        for link in &mut self.links {
            link.ask(request);
        }
        let mut failures = Vec::new();
        for (worker, link) in self.links.iter_mut().enumerate() {
            link.alive = true;
            match link.replies.next_until(deadline) {
                Ok(mut reply) => {
                    link.outstanding -= 1;
                    if let Outcome::Ready(Err(error)) = std::mem::take(&mut reply.outcome) {
                        link.alive = false;
                        failures.push((worker, error));
                    }
                }
                // The deadline has passed, or the worker has ended.
                Err(_) => return None,
            }
        }
        Some(failures)
    }

    /// Begins a pass with `tasks` batches to come (or until all workers have reached the end of
    /// their parts), with `request` as the template of each request. After [`init`](Self::init),
    /// only the workers that succeeded there are used. `from` says what was already delivered.
    pub(crate) fn begin(&mut self, request: Request, tasks: Option<usize>, after_init: bool, from: Option<&State>) {
        if !after_init {
            self.links.iter_mut().for_each(|link| link.alive = true);
        }
        self.tickets.start(from);
        let streams = from.and_then(|state| state.streams.as_ref());
        for (id, link) in self.links.iter_mut().enumerate() {
            link.position.start(streams.and_then(|streams| streams.workers.get(id)));
            link.alive &= !link.position.ended;
        }
        self.turn = streams.map_or(self.tickets.done % self.links.len(), |streams| streams.turn);
        (self.after, self.look, self.asks) = (self.turn, self.turn, 0);
        (self.request, self.tasks) = (request, tasks);
        self.ask();
    }

    /// Sends as many requests as may be outstanding, to the links in turn, except to workers that
    /// have reached the end of their parts. With `in_order`, each link gets a request only in its
    /// turn, even if another link has room.
    fn ask(&mut self) {
        let count = self.links.len();
        while self.tasks != Some(self.asks) {
            let links = (0..count).map(|i| (self.turn + i) % count);
            let mut takers = links.filter(|&link| self.links[link].alive);
            let has_room = |&link: &usize| self.links[link].outstanding < self.prefetch;
            let taker = if self.any.is_none() { takers.next().filter(has_room) } else { takers.find(has_room) };
            let Some(link) = taker else { return };
            self.turn = (link + 1) % count;
            let task = self.tickets.task(self.asks);
            self.links[link].ask(Request { task: Some(task), ..self.request });
            if self.links[link].alive {
                self.asks += 1;
            }
            // Do this even if the worker has ended: that must be noticed when its turn comes, and
            // not before.
            if self.any.is_none() {
                self.asked.push_back(link);
            }
        }
    }

    /// Returns the link whose reply comes next. With `in_order(false)`, the reply must be ready.
    fn ready(&mut self) -> Result<usize, NotReady> {
        if self.any.is_none() {
            return self.asked.front().copied().ok_or(NotReady::End);
        }
        let count = self.links.len();
        let ready = (0..count).map(|i| (self.look + i) % count).find(|&link| {
            let link = &self.links[link];
            link.outstanding > 0 && (link.replies.ready() > 0 || link.replies.is_ended())
        });
        match ready {
            Some(link) => Ok(link),
            None if self.links.iter().all(|link| link.outstanding == 0) => Err(NotReady::End),
            None => Err(NotReady::Empty),
        }
    }

    /// Returns the next batch or failure, if it is ready.
    pub(crate) fn try_next(&mut self, cell_pool: &mut CellPool<P>) -> Next<P> {
        loop {
            let index = match self.ready() {
                Ok(link) => link,
                // No worker gets another request.
                Err(_) if self.cancel.is_stopped() => return Err(NotReady::Closed),
                // A worker has ended, and all replies of the other workers were taken.
                Err(NotReady::End) if self.links.iter().any(|link| link.ended) => return Err(NotReady::Closed),
                Err(nothing) => return Err(nothing),
            };
            let link = &mut self.links[index];
            let next = match link.replies.peek() {
                Err(NextError::Empty) => return Err(NotReady::Empty),
                _ if self.cancel.is_stopped() => return Err(NotReady::Closed),
                // The worker has ended, and will not reply.
                Err(_) => return Err(NotReady::Closed),
                Ok(Reply { cell, task, outcome: Outcome::Batch(rows), .. }) => {
                    let (task, rows) = (*task, *rows);
                    if let Some(failure) = cell.state().take_failure() {
                        if let Ok(mut reply) = link.replies.try_next() {
                            std::mem::swap(&mut reply.position, &mut link.position);
                        }
                        Some(Err(NotReady::Failed { failure: Box::new(failure), task }))
                    } else {
                        let Some(spare) = cell_pool.find() else { return Err(NotReady::Held) };
                        let mut reply = link
                            .replies
                            .try_next()
                            .expect("a reply that was peeked at stays available, even after the ring is closed");
                        let lease = cell_pool.exchange_with(spare, &mut reply.cell);
                        std::mem::swap(&mut reply.position, &mut link.position);
                        drop(reply);
                        Some(Ok(Ready { lease, task, rows }))
                    }
                }
                Ok(_) => {
                    (link.alive, link.position.ended) = (false, true);
                    drop(link.replies.try_next());
                    None
                }
            };
            link.outstanding -= 1;
            self.asked.pop_front();
            self.look = (index + 1) % self.links.len();
            self.ask();
            if let Some(next) = next {
                self.after = self.look;
                return next;
            }
        }
    }

    /// Returns the number of the batch that is requested after `delivered` batches of the pass,
    /// which include those delivered before it was resumed.
    pub(crate) fn task(&self, delivered: usize) -> usize {
        self.tickets.task(delivered.saturating_sub(self.tickets.done))
    }

    /// The number of replies that are ready.
    pub(crate) fn ready_count(&self) -> usize {
        self.links.iter().map(|link| link.replies.ready()).sum()
    }

    /// Whether the reply to take next is ready, or no reply is to come.
    pub(crate) fn is_ready(&self) -> bool {
        let is_ready = |link: &WorkerLink<P>| link.replies.ready() > 0 || link.replies.is_ended();
        match self.asked.front() {
            _ if self.cancel.is_stopped() => true,
            Some(&link) if self.any.is_none() => is_ready(&self.links[link]),
            _ => {
                let mut asked = self.links.iter().filter(|link| link.outstanding > 0).peekable();
                asked.peek().is_none() || asked.any(is_ready)
            }
        }
    }

    /// Waits while [`try_next`](Self::try_next) would return `Empty`. Returns `false` if the
    /// deadline passed first.
    pub(crate) fn wait(&mut self, deadline: &Until) -> bool {
        match &self.any {
            Some(any) => any.wait_until(deadline, || {
                let mut asked = self.links.iter().filter(|link| link.outstanding > 0);
                asked.any(|link| link.replies.ready() > 0 || link.replies.is_ended())
            }),
            None => match self.asked.front() {
                Some(&link) => !matches!(self.links[link].replies.peek_until(deadline), Err(NextError::Empty)),
                None => true,
            },
        }
    }

    /// Takes all outstanding replies, and discards their batches with `discard`. Returns `false` if
    /// the deadline passed first.
    pub(crate) fn drain(&mut self, deadline: &Until, discard: impl Fn(&P)) -> bool {
        for link in &mut self.links {
            while link.outstanding > 0 {
                match link.replies.next_until(deadline) {
                    Ok(mut reply) => {
                        // Update the count first: dropping the user's values below may panic.
                        link.outstanding -= 1;
                        let outcome = std::mem::take(&mut reply.outcome);
                        let work = reply.cell.state();
                        dispose(outcome);
                        drop(work.take_errors()); // Never panics.
                        discard(&work.payload);
                    }
                    Err(NextError::Empty) => return false,
                    Err(_) => link.outstanding = 0,
                }
            }
        }
        self.asked.clear();
        true
    }

    /// Returns a function that stops the loader. It does not keep the loader's memory alive.
    pub(crate) fn stop(&self) -> impl Fn() + Send + Sync + use<P>
    where
        P: Send + Sync + 'static,
    {
        let weak = |link: &WorkerLink<P>| (Arc::downgrade(link.requests.ring()), Arc::downgrade(link.replies.ring()));
        let rings: Vec<_> = self.links.iter().map(weak).collect();
        let (cancel, released) = (self.cancel.clone(), self.released.clone());
        move || {
            // Set the flag first: a thread that finds a ring closed reads it to learn why.
            cancel.stop();
            for (requests, replies) in &rings {
                requests.upgrade().inspect(|ring| ring.close());
                replies.upgrade().inspect(|ring| ring.close());
            }
            released.notify(|| true);
        }
    }

    /// Makes the workers end.
    pub(crate) fn close(&self) {
        for link in &self.links {
            link.requests.close();
            link.replies.close();
        }
    }
}
