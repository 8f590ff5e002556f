"""Loading by threads of this process.

Threads help if samples are made without the interpreter's lock: by libraries that release it
(decoding, decompression, files, large arrays), or by an interpreter that has no such lock. They work
like the worker processes of :mod:`slotline.torch._iterators.processes`, but pass messages as objects.
"""

from __future__ import annotations

import atexit
import copy
import os
import queue
import random
import sys
import threading
import weakref
from collections import deque
from types import CodeType

import numpy as np
import torch

from slotline._slotline import Closed, Collator
from slotline.torch._internals import RNG, WorkerInfo, generate_state, get_worker_info
from slotline.torch._iterators.processes import ProcessIterator
from slotline.torch._samples.collate import worker_of_thread
from slotline.torch._state.generators import ThreadGenerators
from slotline.torch._workers.messages import GENERATORS
from slotline.torch._workers.worker import Worker, pin

# The final message of a channel.
_CLOSED = object()


def is_default() -> bool:
    """Returns whether workers are threads by default: only if several threads can run Python at the
    same time."""
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


class ThreadPort:
    """One end of a connection between two threads; the counterpart of ``Port`` for processes."""

    def __init__(self, inbox, outbox, pool):
        self._inbox = inbox
        self._outbox = outbox
        self._collator = Collator(pool)
        # The tasks whose replies have not been received, oldest first.
        self.due = deque()
        # The states of the worker's generators after the message received last, and those that
        # belong to the next message.
        self.generators = self._next_generators = None
        # Whether the loader needs no more batches.
        self.closed = False
        # The first task whose reply the loader needs.
        self.wanted = 0
        # What this end's thread has done, as in `Channel.figures`.
        self.figures = (0.0, 0.0, 0, 0.0, 0, 0.0)

    def send(self, kind, task=0, value=None):
        self._outbox.put((kind, task, value))
        return True

    def send_bytes(self, kind, value):
        return self.send(kind, 0, value)

    def ask(self, kind, task, value=None):
        self.due.append(task)
        return self.send(kind, task, value)

    def collate(self, kind, task, samples):
        return self.send(kind, task, self._collator(samples))

    def receive(self, timeout=0.0):
        try:
            message = self._inbox.get(timeout > 0, timeout or None)
        except queue.Empty:
            return None
        if message is _CLOSED:
            self._inbox.put(_CLOSED)
            raise Closed("the channel is closed")
        kind, task, value = message
        if kind == GENERATORS:
            self._next_generators = value
            return self.receive(timeout)
        if task > 0 and self._next_generators is not None:
            self.generators, self._next_generators = self._next_generators, None
        while self.due and self.due[0] <= task:
            self.due.popleft()
        return message

    @property
    def ready(self):
        return self._inbox.qsize()

    def trim(self):
        pass

    def want(self, first):
        self.wanted = first

    def begin(self, task, begun):
        busy, writing, _, _, *slowest = self.figures
        self.figures = (busy, writing, task, begun, *slowest)

    def end(self, took, writing):
        busy, before, task, _, *slowest = self.figures
        if took > slowest[1]:
            slowest = [task, took]
        self.figures = (busy + took, before + writing, 0, 0.0, *slowest)


class ThreadIterator(ProcessIterator):
    """An iterator over batches from threads."""

    def _start(self, loader):
        _tell_threads_apart()
        spec = self._spec(loader)
        # Each worker iterates over a copy of a stream, since iterators of one object could share
        # its position.
        is_copied = self._is_iterable if loader.copy_dataset is None else loader.copy_dataset
        states = self._worker_states(loader)
        for worker_id in range(self._num_workers):
            requests, replies = queue.SimpleQueue(), queue.SimpleQueue()
            end = ThreadPort(requests, replies, self._pool)
            dataset = _copy(self._dataset) if is_copied else self._dataset
            arguments = (spec, dataset, end, worker_id, self._origin(), self._shared_seed, states[worker_id])
            worker = threading.Thread(target=_work, args=arguments, name=f"sl_data_worker_{worker_id}", daemon=True)
            self._channels.append((requests, end))
            self._ports.append(ThreadPort(replies, requests, self._pool))
            worker.start()
            self._workers.append(worker)
        _running.add(weakref.ref(self, _running.discard))

    @staticmethod
    def _is_exiting():
        return _is_exiting

    def _death(self, workers):
        return f"DataLoader worker ({', '.join(worker.name for worker in workers)}) exited unexpectedly"

    def _shutdown_workers(self):
        if self._shutdown or self._owner != os.getpid():
            return
        self._shutdown = True
        self._keep_generators()
        for requests, end in self._channels:
            end.closed = True
            # Drop the tasks that have not begun.
            while not requests.empty():
                try:
                    requests.get_nowait()
                except queue.Empty:
                    break
            requests.put(_CLOSED)
        self._join("goes on until the end of the program")


class _Copying(threading.local):
    is_on = False


_copying = _Copying()


def _copy(dataset):
    """Returns a copy of a dataset for a thread.

    As with processes, tensors in shared memory are shared by all workers: programs use them to tell
    workers something, such as the number of the epoch.
    """
    _copying.is_on = True
    try:
        return copy.deepcopy(dataset)
    finally:
        _copying.is_on = False


def _copy_tensor(tensor, memo):
    return tensor if _copying.is_on and tensor.is_shared() else tensor.__deepcopy__(memo)


# This table takes precedence over a type's own ``__deepcopy__``.
copy._deepcopy_dispatch[torch.Tensor] = _copy_tensor  # type: ignore[attr-defined]


class ThreadWorker(Worker):
    # Here only the dataset can raise it: Python raises a signal's in the main thread.
    errors = (Exception, KeyboardInterrupt)


def _work(spec, dataset, port, worker_id, origin, shared_seed, state):
    seed = spec.base_seed + worker_id

    def inform(dataset):
        info = worker_of_thread.info = _info(worker_id, spec.num_workers, seed, dataset)
        rng = getattr(info, "rng", None)
        return None if rng is None else ThreadGenerators(rng)

    pin(spec, worker_id)
    where = f"in DataLoader worker thread {worker_id}"
    try:
        ThreadWorker(spec, dataset, worker_id, origin, shared_seed, state, inform, where, port, lambda: True).serve()
    finally:
        worker_of_thread.info = None


def _info(worker_id, num_workers, seed, dataset):
    """Returns the ``WorkerInfo`` of a thread with generators of its own, since all threads share
    the default ones."""
    entries = dict(id=worker_id, num_workers=num_workers, seed=seed, dataset=dataset)
    if RNG is not None:
        numpy = np.random.default_rng(generate_state(seed - worker_id, worker_id))
        torchs = torch.Generator().manual_seed(seed)
        entries["rng"] = RNG(random.Random(seed), torchs, numpy)
        entries["worker_method"] = "thread"
    return WorkerInfo(**entries)


def _tell_threads_apart():
    """Makes torch's ``get_worker_info`` return the information of the calling thread.

    torch's function returns a global variable. Programs may have imported it under any name, so its
    code is replaced in place.
    """
    function = get_worker_info
    # Only once, and the code before is kept, since another thread may be calling it.
    if function.__code__ is not _get_worker_info.__code__:
        function.__globals__["_slotline_worker_of_thread"] = worker_of_thread
        _replaced.append(function.__code__)
        function.__code__ = _get_worker_info.__code__


_replaced: list[CodeType] = []


def _get_worker_info():
    return getattr(_slotline_worker_of_thread, "info", _worker_info)  # noqa: F821


# Copying a plain set is atomic, while other threads may create and drop iterators.
_running: set[weakref.ref[ThreadIterator]] = set()
# Whether the program is exiting, so that no loop has workers any more.
_is_exiting = False


def _stop_all():
    global _is_exiting
    _is_exiting = True
    for reference in _running.copy():
        if (iterator := reference()) is not None:
            iterator._shutdown_workers()


# Runs when all threads that are no daemons have ended, as loops in them may, and while the interpreter still runs threads. Later
# it would end them at any point.
atexit.register(_stop_all)
