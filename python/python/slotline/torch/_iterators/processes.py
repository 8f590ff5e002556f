"""Loading by worker processes.

Each worker has two channels: one for its tasks and one for its batches. As with torch, worker ``i``
modulo the number of workers makes batch ``i``, so the loop knows which worker has the next batch,
and waits for that worker only. A channel keeps the order of its messages, so nothing is sorted.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import threading
import time
import weakref
from collections import deque
from multiprocessing import util
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterDataPipe, MapDataPipe

from slotline import _slotline
from slotline._slotline import Closed, Collator, Port
from slotline.torch._internals import (
    ExceptionWrapper,
    _sharding_worker_init_fn,
    is_python_exiting,
    remove_worker_pids,
    set_worker_pids,
    stop_timeout,
)
from slotline.torch._iterators.base import BaseIterator, warn
from slotline.torch._lift.fetch import preload
from slotline.torch._state import entries
from slotline.torch._state.progress import worker_states
from slotline.torch._state.stats import Stats, run_delay
from slotline.torch._workers import page_locked, pickling  # noqa: F401
from slotline.torch._workers.messages import BAD, END, ERROR, EXHAUSTED, RESUME, RESUMED, SKIPPED, STATE, TASK, Channel
from slotline.torch._workers.worker import work

# The most tasks given to all workers at a time. A channel has room for that many batches, each
# preceded by three messages.
_MAX_TASKS = 250
# Seconds that the loop waits between checks that its workers are alive: at first, and at most.
_FIRST_PATIENCE = 0.01
_PATIENCE = 0.1
# Seconds to wait for each worker in turn if any of them may send the next batch.
_TURN = 0.0005


os.register_at_fork(
    before=_slotline.before_fork,
    after_in_parent=_slotline.after_fork_in_parent,
    after_in_child=_slotline.after_fork_in_child,
)


# Import now what a forked worker needs: after the fork, an import could wait forever for a lock
# that another thread held.
Collator()


class Spec(NamedTuple):
    """The options that all workers of an iterator share."""

    kind: int
    auto_collation: bool
    batch_size: int | None
    collate_fn: Any
    drop_last: bool
    base_seed: int
    init_fn: Any
    num_workers: int
    snapshot_every: int
    on_error: str
    lift: bool
    affinity: tuple


class ProcessIterator(BaseIterator):
    """An iterator over batches from worker processes."""

    _shutdown = True
    # The channels whose memory is page-locked, if any.
    _pinned = None
    # When the wait for the current batch times out, if it has begun and has a timeout.
    _deadline = None

    # A process may be forked while another thread makes the iterator.
    _worker_pids_set = False

    def __init__(self, loader):
        super().__init__(loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._round_robin = loader.round_robin
        self._max_tasks = min(self._prefetch_factor * self._num_workers, _MAX_TASKS)
        self._watchdog = loader.watchdog
        # The number of tasks sent when the last warning about a slow batch was issued.
        self._warned = None
        self._owner = os.getpid()
        init_fn = loader.worker_init_fn
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            init_fn = functools.partial(_sharding_worker_init_fn, init_fn, self._world_size, self._rank)
        self._worker_init_fn = init_fn
        self._workers = []
        self._channels = []
        self._ports = []
        self._shutdown = False
        try:
            self._start(loader)
        except BaseException:
            self._shutdown_workers()
            raise
        self._reset(loader, first_iter=True)

    def _spec(self, loader):
        return Spec(
            self._dataset_kind,
            self._auto_collation,
            loader.batch_size,
            self._collate_fn,
            self._drop_last,
            self._base_seed,
            self._worker_init_fn,
            self._num_workers,
            loader.snapshot_every_n_steps,
            loader.on_error,
            loader.lift,
            tuple(loader.affinity or ()),
        )

    def _start(self, loader):
        context = loader.multiprocessing_context or torch.multiprocessing
        if loader.lift and not self._is_iterable and context.get_start_method() == "fork":
            preload()
        states = self._worker_states(loader)
        spec = self._spec(loader)
        limit = None if loader.memory_limit is None else max(loader.memory_limit // self._num_workers, 1)
        channels = [(Channel(), Channel(limit=limit)) for _ in range(self._num_workers)]
        # With a memory limit, dropped memory must be reusable at once, so it is not page-locked.
        if limit is None and (self._pin_memory or loader._pins) and (driver := page_locked.find_driver()) is not None:
            self._pinned = page_locked.PinnedChannels(driver, [replies for _, replies in channels])
        for worker_id, (requests, replies) in enumerate(channels):
            # The dataset is in a list so that the worker can remove it.
            arguments = (
                spec, [self._dataset], requests, replies, worker_id, self._origin(), self._shared_seed, states[worker_id]
            )  # fmt: skip
            worker = context.Process(target=work, args=arguments)
            worker.daemon = True
            worker.start()
            self._workers.append(worker)
            self._channels.append((requests, replies))
            self._ports.append(Port(requests, replies, self._pool))
        set_worker_pids(id(self), tuple(worker.pid for worker in self._workers))
        self._worker_pids_set = True

    def _origin(self):
        """Returns the number of the workers' first pass and the task number of its first batch."""
        resumed = self._resumed
        done = 0 if resumed is None or resumed[entries.FINISHED] else resumed[entries.SAMPLER_ITER_YIELDED]
        return [self._pass_number, 1 - done]

    def _worker_states(self, loader):
        """Returns, for each worker, the state to begin with, or ``None``."""
        snapshots = self._resumed and worker_states(self._resumed, loader)
        if snapshots is None:
            return [None] * self._num_workers
        return [{**snapshot, entries.FINISHED: self._resumed[entries.FINISHED]} for snapshot in snapshots]

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._active = [True] * self._num_workers
        if first_iter:
            self._sent = 0
        else:
            first = self._sent + self._num_workers + 1
            for _, replies in self._channels:
                replies.want(self._sent + 1)
            for worker_id, port in enumerate(self._ports):
                self._sent += 1
                port.ask(RESUME, self._sent, [self._pass_number, first, self._shared_seed])
                # Batches of the previous pass may arrive first.
                self._deadline = None
                while self._receive(worker_id)[:2] != (RESUMED, self._sent):
                    self._states.pop(worker_id, None)
                    self._deadline = None
                if (state := self._states.pop(worker_id, None)) is not None:
                    self._pass.workers[worker_id].begin(state)
            # Discard the statistics about samples that were left out of those batches.
            self._pass.stats = Stats(self._num_workers)
        for worker, port in zip(self._pass.workers, self._ports):
            worker.port = port
        self._before = [
            (*replies.figures[:2], run_delay(worker)) for worker, (_, replies) in zip(self._workers, self._channels)
        ]
        self._pass.stats.look = weakref.WeakMethod(self._count)
        # The states of workers that arrived before their batches.
        self._states = {}
        # The workers of the unfinished tasks, oldest task first. Tasks of an exhausted worker are
        # never finished.
        self._tasks = deque()
        self._given = [0] * self._num_workers
        first = (self._pass.last_worker + 1) % self._num_workers
        self._turns = itertools.cycle([*range(first, self._num_workers), *range(first)])
        # The task number of the pass's first batch.
        self._base = self._sent + 1 - self._index_stream.done
        self._fill()

    def _fill(self):
        """Sends as many tasks as may be outstanding at a time."""
        # Until all are sent: an exception of a signal handler may come after a task was sent and before that is noted.
        self._needs_recovery = True
        for _ in range(self._max_tasks - len(self._tasks)):
            self._give_task()
        self._needs_recovery = False

    def belongs_to_parent(self):
        """Returns whether this process was forked after the workers were started, so that they
        belong to its parent."""
        return self._owner != os.getpid()

    def _disown(self):
        super()._disown()
        # Makes the next use check for the fork.
        self._needs_recovery = True
        if self._worker_pids_set:
            # Another iterator may reuse this id.
            remove_worker_pids(id(self))
            self._worker_pids_set = False
        self._pinned = None

    def _recover(self):
        """Recomputes which tasks are unfinished, after an exception that may have been raised at
        any point."""
        if self.belongs_to_parent():
            raise RuntimeError("this iterator of a DataLoader has its workers in another process: make one after the fork")
        due = []
        for worker_id, port in enumerate(self._ports):
            if self._active[worker_id]:
                due += [(task, worker_id) for task in port.due]
        self._tasks = deque(worker_id for _, worker_id in sorted(due))
        self._given = [self._tasks.count(worker_id) for worker_id in range(self._num_workers)]
        numbers = {task - self._base for task, _ in due}
        if self._index_stream.next_number in numbers:
            self._index_stream.give()
        if not self._is_iterable:
            # Batches that were received but not delivered because of the exception.
            for number in set(range(self._index_stream.done, self._index_stream.next_number)) - numbers - self._index_stream.ahead:
                self._index_stream.finish(number)
        self._fill()

    def _give_task(self):
        """Sends the next task to a worker."""
        try:
            index, number = self._index_stream.look()
        except StopIteration:
            return
        except Exception:
            self._needs_recovery = False
            raise
        worker_id = self._turn() if self._round_robin else self._idlest()
        if worker_id is None:
            return
        self._sent = self._base + number
        self._ports[worker_id].ask(TASK, self._sent, index)
        self._index_stream.give()
        self._given[worker_id] += 1
        self._tasks.append(worker_id)

    def _turn(self):
        """Returns the worker whose turn it is, or ``None`` if no worker can take a task."""
        for _ in range(self._num_workers):
            worker_id = next(self._turns)
            if self._active[worker_id] and (
                self._in_order or self._given[worker_id] < self._max_tasks // sum(self._active)
            ):
                return worker_id
        return None

    def _idlest(self):
        """Returns the worker with the fewest unfinished batches."""
        active = [worker_id for worker_id in range(self._num_workers) if self._active[worker_id]]
        return min(active, key=lambda worker_id: self._given[worker_id] - self._ports[worker_id].ready, default=None)

    def _next_data(self):
        if self._pinned is None:
            return self._next_batch()
        self._pinned.give_back()
        data = self._next_batch()
        if self._pinned is not None:
            self._pinned.cover(self._pass.last_worker)
        return data

    def _next_batch(self):
        if self._needs_recovery:
            self._recover()
        # Set until the next task is sent: a signal handler can raise an exception at any point,
        # which the program may catch.
        self._needs_recovery = True
        # The deadline continues over batches from which all samples were left out.
        self._deadline = None
        while self._tasks:
            if self._in_order:
                worker_id = self._tasks[0]
                if not self._active[worker_id]:
                    self._tasks.popleft()
                    continue
                kind, task, data = self._receive(worker_id)
                self._tasks.popleft()
            else:
                if not any(given and active for given, active in zip(self._given, self._active)):
                    break
                worker_id, (kind, task, data) = self._receive_any()
            self._given[worker_id] -= 1
            worker = self._pass.workers[worker_id]
            if kind == EXHAUSTED:
                worker.state = self._states.pop(worker_id, worker.state)
                worker.is_ended = True
                self._retire(worker_id)
                self._give_task()
                continue
            self._pass.stats.busy[worker_id] = self._channels[worker_id][1].figures[0] - self._before[worker_id][0]
            # In a stream, the tasks of an exhausted worker are never finished, so count instead of
            # using the task number.
            self._index_stream.finish(self._index_stream.done if self._is_iterable else task - self._base)
            worker.receive(self._states.pop(worker_id, None))
            self._pass.last_worker = worker_id
            self._give_task()
            if kind == SKIPPED:
                if self._timeout > 0 and time.monotonic() >= self._limit():
                    raise self._late()
                continue
            self._needs_recovery = False
            if kind == ERROR:
                if not isinstance(data, ExceptionWrapper):
                    raise RuntimeError(f"worker {worker_id} has failed, and its error cannot be read")
                data.reraise()
            return data
        self._tasks.clear()
        self._needs_recovery = False
        self._count()
        self._pass.stats.look = None
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _count(self, first=-math.inf, last=math.inf):
        """Updates the statistics of this pass with what the workers have done, and with their
        unfinished work between the times ``first`` and ``last``."""
        if self.belongs_to_parent():
            return
        stats, now = self._pass.stats, min(time.perf_counter(), last)
        # Other threads may call this at the same time.
        unfinished, writing = [], 0.0
        for worker_id, (_, replies) in enumerate(self._channels):
            figures, (busy_before, writing_before, delay_before) = replies.figures, self._before[worker_id]
            busy, copied, task, begun, slowest, longest = figures
            took = now - max(begun, first)
            # A dead worker does not go on with its task.
            if task >= self._base and task > 0 and took > 0 and self._workers[worker_id].is_alive():
                unfinished.append((took, worker_id, task - self._base))
                busy += took
            stats.busy[worker_id] = busy - busy_before
            writing += copied - writing_before
            if slowest >= self._base and longest > stats.slowest[0]:
                stats.slowest = longest, slowest - self._base
            # For a worker that has ended, the delay reads as less than before, so keep the last
            # value.
            starved = run_delay(self._workers[worker_id]) - delay_before
            stats.starved[worker_id] = max(stats.starved[worker_id], starved)
        stats.now, stats.writing = unfinished, writing

    def _retire(self, worker_id):
        """Sends a worker no more tasks in this pass."""
        self._active[worker_id] = False
        self._given[worker_id] = 0
        if not self._persistent_workers:
            self._ports[worker_id].send(END)

    def _receive(self, worker_id):
        """Waits for a message of one worker."""
        message = self._try(worker_id)
        if message is not None:
            return message
        deadline = self._limit()
        patience = _FIRST_PATIENCE
        waiting = time.monotonic()
        while True:
            message = self._try(worker_id, self._slice(patience, deadline))
            if message is not None:
                return message
            self._check(deadline)
            self._warn([worker_id], waiting)
            patience = min(2 * patience, _PATIENCE)

    def _receive_any(self):
        """Waits for a message of any worker with an unfinished task."""
        deadline = self._limit()
        waiting = checked = time.monotonic()
        wait = 0.0
        while True:
            for worker_id in range(self._num_workers):
                if self._active[worker_id] and self._given[worker_id]:
                    message = self._try(worker_id, wait)
                    if message is not None:
                        return worker_id, message
            wait = _TURN
            if time.monotonic() - checked > _PATIENCE:
                self._check(deadline)
                self._warn([k for k, given in enumerate(self._given) if given and self._active[k]], waiting)
                checked = time.monotonic()

    def _try(self, worker_id, timeout=0.0):
        """Returns a worker's next message, or ``None`` if there is none within ``timeout``
        seconds."""
        port = self._ports[worker_id]
        try:
            message = port.receive(timeout)
            while message is not None and message[0] in (STATE, BAD):
                if message[0] == STATE:
                    self._states[worker_id] = message[2]
                else:
                    self._pass.stats.leave_out(message[2])
                message = port.receive(timeout)
            return message
        except Closed:
            # The worker process is about to end.
            time.sleep(_FIRST_PATIENCE)
            return None

    def _limit(self):
        """Returns when the wait for the batch times out, or ``None`` without a timeout."""
        if self._deadline is None and self._timeout > 0:
            self._deadline = time.monotonic() + self._timeout
        return self._deadline

    def _late(self):
        return RuntimeError(f"DataLoader timed out after {self._timeout} seconds")

    def _slice(self, patience, deadline):
        if deadline is None:
            return patience
        return max(0.0, min(patience, deadline - time.monotonic()))

    def _check(self, deadline):
        """Raises an error if a worker has died, or if ``deadline`` has passed."""
        dead = [
            worker_id
            for worker_id, worker in enumerate(self._workers)
            if self._active[worker_id] and not worker.is_alive()
        ]
        if dead and self._is_exiting() and threading.current_thread().daemon:
            # The program is exiting and has ended the workers; this thread will be ended too.
            return
        if dead:
            for worker_id in dead:
                self._active[worker_id] = False
            raise RuntimeError(self._death([self._workers[worker_id] for worker_id in dead]))
        if deadline is not None and time.monotonic() >= deadline:
            raise self._late()

    @staticmethod
    def _is_exiting():
        """Returns whether the program is exiting and ends the workers."""
        return util.is_exiting()

    def _warn(self, waiting, since):
        """Issues one warning for each batch that takes longer than the watchdog's limit."""
        limit = self._watchdog
        if limit is not None and time.monotonic() - since > limit and self._warned != self._sent:
            self._warned = self._sent
            who = f"worker {waiting[0]} has" if len(waiting) == 1 else f"workers {', '.join(map(str, waiting))} have"
            warn(f"{who} been making a batch for more than {limit} s")

    def _death(self, workers):
        return f"DataLoader worker (pid(s) {', '.join(str(worker.pid) for worker in workers)}) exited unexpectedly"

    def _shutdown_workers(self):
        if self._shutdown or self.belongs_to_parent() or is_python_exiting():
            return
        self._shutdown = True
        self._keep_generators()
        try:
            pinned, self._pinned = self._pinned, None
            if pinned is not None:
                # Another thread may be using the page-locked channels.
                if self._lock.acquire(blocking=False):
                    try:
                        pinned.close()
                    finally:
                        self._lock.release()
                else:
                    page_locked.close_later(pinned)
            for channels in self._channels:
                for channel in channels:
                    channel.close()
            self._join("was killed")
        finally:
            if self._worker_pids_set:
                remove_worker_pids(id(self))
                self._worker_pids_set = False
            stuck = [worker for worker in self._workers if worker.is_alive()]
            for worker in stuck:
                worker.terminate()
            for worker in stuck:
                worker.join(timeout=stop_timeout())
            # Returns their memory to the system, except for tensors that the program still has.
            self._ports.clear()
            self._channels.clear()

    def _join(self, outcome):
        """Waits some seconds for all workers to end, and issues a warning for those that do not."""
        until = time.monotonic() + stop_timeout()
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(timeout=max(until - time.monotonic(), 0.0))
        for worker_id, (worker, (_, replies)) in enumerate(zip(self._workers, self._channels)):
            task = replies.figures[2]
            if task > 0 and worker.is_alive() and worker is not threading.current_thread():
                number = "of the pass before" if task < self._base else task - self._base
                warn(
                    f"worker {worker_id} was making batch {number} when the loader ended, did not stop "
                    f"within {stop_timeout():.0f} s, "
                    f"and {outcome}; a dataset that takes long can ask slotline.is_stopping()"
                )

    def _keep_generators(self):
        """Keeps what a state of the latest pass needs after the workers have ended."""
        if self._ports and self._pass is not None:
            for worker in self._pass.workers:
                worker.release_port()

    def __del__(self):
        self._shutdown_workers()
