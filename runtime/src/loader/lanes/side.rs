//! The consumer's ends of all lanes: who is asked for what, and whose answer comes next.

use std::collections::VecDeque;
use std::sync::Arc;

use slotline_core::spsc::{self, NextError, Slot};
use slotline_core::wait::Wait;

use super::super::backend::{Got, Next, Nothing};
use super::super::job::Abandoned;
use super::super::resume::Tickets;
use super::super::slab::Slab;
use super::super::state::State;
use super::super::work::dispose;
use super::worker::{Mark, Outcome, Reply, Request, Ring};
use crate::BoxError;
use crate::wait::{Until, Waiter};

/// The consumer's end of one lane.
pub(super) struct Lane<P> {
    pub(super) requests: spsc::Producer<Arc<Ring<Request>>>,
    pub(super) replies: spsc::Consumer<Arc<Ring<Reply<P>>>>,
    /// Requests that are not answered yet.
    outstanding: usize,
    /// Whether the worker has more to give in this pass.
    alive: bool,
    /// Whether there is nobody to ask any more.
    gone: bool,
    /// How far it was, in what was delivered.
    pub(super) mark: Mark,
}

impl<P> Lane<P> {
    pub(super) fn new(
        requests: spsc::Producer<Arc<Ring<Request>>>,
        replies: spsc::Consumer<Arc<Ring<Reply<P>>>>,
    ) -> Self {
        Self { requests, replies, outstanding: 0, alive: false, gone: false, mark: Mark::new() }
    }

    fn ask(&mut self, request: Request) {
        // There are as many slots as requests can be outstanding; a ring that is closed has nobody to answer.
        if self.requests.try_push(request).is_ok() {
            self.outstanding += 1;
        } else {
            (self.alive, self.gone) = (false, true);
        }
    }
}

/// All lanes.
pub(super) struct Lanes<P> {
    pub(super) lanes: Vec<Lane<P>>,
    /// Where the consumer waits for a free cell.
    released: Arc<Waiter>,
    /// Said to all workers.
    pub(super) abandoned: Arc<Abandoned>,
    /// Where the consumer waits for any of them, if it takes batches as they are finished.
    pub(super) any: Option<Arc<Waiter>>,
    /// Requests that a lane may have outstanding.
    prefetch: usize,
    /// In order: the lanes that were asked, in turn.
    asked: VecDeque<usize>,
    /// The lane to ask next.
    turn: usize,
    /// The lane after that of the last batch.
    pub(super) after: usize,
    /// Where the search for a finished batch begins.
    look: usize,
    /// Batches asked for, which they are, and how many there are, if that is known.
    asks: usize,
    tickets: Tickets,
    tasks: Option<usize>,
    request: Request,
}

impl<P> Lanes<P> {
    /// Bytes of what there is for each batch that a lane may be asked for.
    pub(super) const PLACE: usize = size_of::<(Slot<Request>, Slot<Reply<P>>, usize)>();

    pub(super) fn new(
        lanes: Vec<Lane<P>>,
        released: Arc<Waiter>,
        any: Option<Arc<Waiter>>,
        prefetch: usize,
        abandoned: Arc<Abandoned>,
    ) -> Self {
        let asked = VecDeque::with_capacity(lanes.len() * prefetch);
        let (request, tickets) = (Request::default(), Tickets::default());
        Self {
            lanes,
            released,
            abandoned,
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

    /// Has all workers run their `worker_init`, and gives the failures, by worker; `None` if the deadline passed first, or one
    /// is gone.
    pub(super) fn init(&mut self, request: Request, deadline: &Until) -> Option<Vec<(usize, BoxError)>> {
        for lane in &mut self.lanes {
            lane.ask(request);
        }
        let mut failures = Vec::new();
        for (worker, lane) in self.lanes.iter_mut().enumerate() {
            lane.alive = true;
            match lane.replies.next_until(deadline) {
                Ok(mut reply) => {
                    lane.outstanding -= 1;
                    if let Outcome::Ready(Err(error)) = std::mem::take(&mut reply.outcome) {
                        lane.alive = false;
                        failures.push((worker, error));
                    }
                }
                // Late, or gone.
                Err(_) => return None,
            }
        }
        Some(failures)
    }

    /// Begins a pass with so many batches to come (or until all workers are at their end), with `request` as the form of
    /// each request. After [`init`](Self::init) only with the workers that it left. `from` says what was delivered before.
    pub(super) fn begin(&mut self, request: Request, tasks: Option<usize>, after_init: bool, from: Option<&State>) {
        if !after_init {
            self.lanes.iter_mut().for_each(|lane| lane.alive = true);
        }
        self.tickets.start(from);
        let streams = from.and_then(|state| state.streams.as_ref());
        for (id, lane) in self.lanes.iter_mut().enumerate() {
            lane.mark.start(streams.and_then(|streams| streams.workers.get(id)));
            lane.alive &= !lane.mark.ended;
        }
        self.turn = streams.map_or(self.tickets.done % self.lanes.len(), |streams| streams.turn);
        (self.after, self.look, self.asks) = (self.turn, self.turn, 0);
        (self.request, self.tasks) = (request, tasks);
        self.ask();
    }

    /// Asks for as much as may be outstanding: the lanes in turn, those at their end left out; in order each in its turn
    /// only, however much another one could take.
    fn ask(&mut self) {
        let count = self.lanes.len();
        while self.tasks != Some(self.asks) {
            let lanes = (0..count).map(|i| (self.turn + i) % count);
            let mut takers = lanes.filter(|&lane| self.lanes[lane].alive);
            let has_room = |&lane: &usize| self.lanes[lane].outstanding < self.prefetch;
            let taker = if self.any.is_none() { takers.next().filter(has_room) } else { takers.find(has_room) };
            let Some(lane) = taker else { return };
            self.turn = (lane + 1) % count;
            let task = self.tickets.task(self.asks);
            self.lanes[lane].ask(Request { task: Some(task), ..self.request });
            if self.lanes[lane].alive {
                self.asks += 1;
            }
            // One that is gone, too: that is found out when its turn comes, and not before.
            if self.any.is_none() {
                self.asked.push_back(lane);
            }
        }
    }

    /// The lane whose answer comes next, if it is there.
    fn ready(&mut self) -> Result<usize, Nothing> {
        if self.any.is_none() {
            return self.asked.front().copied().ok_or(Nothing::End);
        }
        let count = self.lanes.len();
        let ready = (0..count).map(|i| (self.look + i) % count).find(|&lane| {
            let lane = &self.lanes[lane];
            lane.outstanding > 0 && (lane.replies.ready() > 0 || lane.replies.is_ended())
        });
        match ready {
            Some(lane) => Ok(lane),
            None if self.lanes.iter().all(|lane| lane.outstanding == 0) => Err(Nothing::End),
            None => Err(Nothing::Empty),
        }
    }

    /// The next batch or failure, if it is there.
    pub(super) fn try_next(&mut self, slab: &mut Slab<P>) -> Next<P> {
        loop {
            let index = match self.ready() {
                Ok(lane) => lane,
                // Nobody is asked any more.
                Err(_) if self.abandoned.is_stopped() => return Err(Nothing::Closed),
                // What the others could take of its work, they have.
                Err(Nothing::End) if self.lanes.iter().any(|lane| lane.gone) => return Err(Nothing::Closed),
                Err(nothing) => return Err(nothing),
            };
            let lane = &mut self.lanes[index];
            let next = match lane.replies.peek() {
                Err(NextError::Empty) => return Err(Nothing::Empty),
                _ if self.abandoned.is_stopped() => return Err(Nothing::Closed),
                // Whatever it was asked for will not be answered.
                Err(_) => return Err(Nothing::Closed),
                Ok(Reply { cell, task, outcome: Outcome::Batch(rows), .. }) => {
                    let (task, rows) = (*task, *rows);
                    if let Some(failure) = cell.work().take_failure() {
                        if let Ok(mut reply) = lane.replies.try_next() {
                            std::mem::swap(&mut reply.mark, &mut lane.mark);
                        }
                        Some(Err(Nothing::Failed { failure: Box::new(failure), task }))
                    } else {
                        let Some(place) = slab.find() else { return Err(Nothing::Held) };
                        let mut reply = lane
                            .replies
                            .try_next()
                            .expect("a reply that was peeked at is there, also once it is closed");
                        let lease = slab.exchange_with(place, &mut reply.cell);
                        std::mem::swap(&mut reply.mark, &mut lane.mark);
                        drop(reply);
                        Some(Ok(Got { lease, task, rows }))
                    }
                }
                Ok(_) => {
                    (lane.alive, lane.mark.ended) = (false, true);
                    drop(lane.replies.try_next());
                    None
                }
            };
            lane.outstanding -= 1;
            self.asked.pop_front();
            self.look = (index + 1) % self.lanes.len();
            self.ask();
            if let Some(next) = next {
                self.after = self.look;
                return next;
            }
        }
    }

    /// The batch that was asked for after so many of the pass, those delivered before it went on among them.
    pub(super) fn task(&self, delivered: usize) -> usize {
        self.tickets.task(delivered.saturating_sub(self.tickets.done))
    }

    /// How many answers are there.
    pub(super) fn ready_count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.replies.ready()).sum()
    }

    /// Whether the answer that is to be taken next is there.
    pub(super) fn is_ready(&self) -> bool {
        match self.asked.front() {
            Some(&lane) if self.any.is_none() => self.lanes[lane].replies.ready() > 0,
            _ => self.ready_count() > 0,
        }
    }

    /// Waits while [`try_next`](Self::try_next) would say `Empty`; `false` if the deadline passed first.
    pub(super) fn wait(&mut self, deadline: &Until) -> bool {
        match &self.any {
            Some(any) => any.wait_until(deadline, || {
                let mut asked = self.lanes.iter().filter(|lane| lane.outstanding > 0);
                asked.any(|lane| lane.replies.ready() > 0 || lane.replies.is_ended())
            }),
            None => match self.asked.front() {
                Some(&lane) => !matches!(self.lanes[lane].replies.peek_until(deadline), Err(NextError::Empty)),
                None => true,
            },
        }
    }

    /// Takes all answers that are still to come, and throws them away by `discard`; `false` if the deadline passed first.
    pub(super) fn drain(&mut self, deadline: &Until, discard: impl Fn(&P)) -> bool {
        for lane in &mut self.lanes {
            while lane.outstanding > 0 {
                match lane.replies.next_until(deadline) {
                    Ok(mut reply) => {
                        // First: what is thrown away is the user's, and may panic.
                        lane.outstanding -= 1;
                        let outcome = std::mem::take(&mut reply.outcome);
                        let work = reply.cell.work();
                        dispose(outcome);
                        drop(work.take_trouble()); // Does not panic, whatever is in it.
                        discard(&work.payload);
                    }
                    Err(NextError::Empty) => return false,
                    Err(_) => lane.outstanding = 0,
                }
            }
        }
        self.asked.clear();
        true
    }

    /// What stops the loader. It keeps none of its memory.
    pub(super) fn stop(&self) -> impl Fn() + Send + Sync + use<P>
    where
        P: Send + Sync + 'static,
    {
        let weak = |lane: &Lane<P>| (Arc::downgrade(lane.requests.ring()), Arc::downgrade(lane.replies.ring()));
        let rings: Vec<_> = self.lanes.iter().map(weak).collect();
        let (abandoned, released) = (self.abandoned.clone(), self.released.clone());
        move || {
            // First: who finds a ring closed must know why.
            abandoned.stop();
            for (requests, replies) in &rings {
                requests.upgrade().inspect(|ring| ring.close());
                replies.upgrade().inspect(|ring| ring.close());
            }
            released.notify(|| true);
        }
    }

    /// Sends the workers home.
    pub(super) fn close(&self) {
        for lane in &self.lanes {
            lane.requests.close();
            lane.replies.close();
        }
    }
}
