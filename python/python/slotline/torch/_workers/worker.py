"""The main loop of a worker: it receives requests and sends replies."""

from __future__ import annotations

import base64
import contextlib
import gc
import os
import random
import time

import numpy as np
import torch
from torch.utils.data import IterDataPipe

from slotline import _rng
from slotline._slotline import Closed, NotLifted, Port
from slotline.torch._internals import (
    WORKER_INFO,
    ExceptionWrapper,
    WorkerInfo,
    _DatasetKind,
    apply_random_seed,
    generate_state,
    set_thread_name,
    set_worker_signal_handlers,
)
from slotline.torch._lift.fetch import DeferredFetcher
from slotline.torch._samples.collate import collate_as_torch, is_default_collate
from slotline.torch._samples.fetch import NOTHING, SLOW, Watched, make_fetcher, takes_one_by_one, timed
from slotline.torch._state import entries
from slotline.torch._state.generators import ProcessGenerators
from slotline.torch._workers.messages import BAD, BATCH, END, ERROR, EXHAUSTED, GENERATORS, RESUME, RESUMED, SKIPPED, STATE, TASK

# Seconds between an idle worker's checks that its loader still exists.
_PATIENCE = 1.0


class _Abandoned(BaseException):
    """Raised when the batch being made is no longer needed."""


class _Samples:
    """Samples to be collated when they are sent."""

    __slots__ = ("samples",)

    def __init__(self, samples):
        self.samples = samples


def work(spec, dataset_holder, requests, replies, worker_id, origin, shared_seed, state):
    """Runs a worker process, which resumes from ``state`` if there is one."""
    # Otherwise the first full collection writes to every inherited object, and so copies the pages of all of them.
    gc.freeze()
    dataset = dataset_holder.pop()
    pin(spec, worker_id)
    parent = os.getppid()
    try:
        set_worker_signal_handlers()
        set_thread_name("sl_data_worker")
        torch.set_num_threads(1)
        seed = spec.base_seed + worker_id
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(generate_state(spec.base_seed, worker_id))

        def inform(dataset):
            info = WorkerInfo(id=worker_id, num_workers=spec.num_workers, seed=seed, dataset=dataset)
            setattr(*WORKER_INFO, info)
            return ProcessGenerators()

        port = Port(replies, requests)

        def is_wanted():
            return os.getppid() == parent

        where = f"in DataLoader worker process {worker_id}"
        Worker(spec, dataset, worker_id, origin, shared_seed, state, inform, where, port, is_wanted).serve()
    except KeyboardInterrupt:
        # Ctrl-C has interrupted the loader's process too.
        pass
    finally:
        setattr(*WORKER_INFO, None)


def pin(spec, worker_id):
    """Pins this thread to its CPU core if ``affinity`` was given."""
    if spec.affinity:
        os.sched_setaffinity(0, {spec.affinity[worker_id % len(spec.affinity)]})


class Worker:
    """Makes the batches that a loader requests."""

    # Whether the dataset has a state to send with its batches.
    _has_state = False
    # The exceptions that are sent to the loop. An interrupt of a process interrupts the loop too,
    # and ends the worker.
    errors: tuple[type[BaseException], ...] = (Exception,)

    def __init__(self, spec, dataset, worker_id, origin, shared_seed, state, inform, where, port, is_wanted):
        """``origin`` is the number of the pass, and the task number of its first batch.
        ``is_wanted`` returns whether the loader's process still exists.
        """
        self._spec = spec
        self._worker_id = worker_id
        self._origin = origin
        self._port = port
        self._is_wanted = is_wanted
        # The task of the current request.
        self._request = 0
        _rng.current.is_wanted = self._is_batch_awaited
        self._is_stream = spec.kind == _DatasetKind.Iterable
        self._where = where
        self._rng = torch.Generator()
        self._dataset = _seeded(dataset, self._rng, shared_seed)
        self._generators = inform(self._dataset)
        # The error to reply to all tasks with, if preparing the dataset has failed.
        self._failure = None
        self._is_exhausted = False
        self._steps = 0
        # Seconds that the last batch took, and the part in which it was collated and copied.
        self._took = SLOW
        self._writing = 0.0
        try:
            self._begin_pass()
            if spec.init_fn is not None:
                spec.init_fn(worker_id)
            self._prepare(state)
        except self.errors:
            self._failure = ExceptionWrapper(where=where)

    def _prepare(self, state):
        """Creates the fetcher, which resumes from ``state`` unless that is ``None``."""
        is_within = state is not None and self._is_stream and not state[entries.FINISHED]
        # Whether the state is of the stream's iterator, so that random draws made in creating the
        # iterator are undone.
        is_late = is_within and not entries.is_before_pass(state)
        if state is not None:
            entries.load_dataset(self._dataset, {**state, entries.FINISHED: not is_late})
            if not is_late:
                self._restore(state)
        self._fetcher = _fetcher(self._spec, self._dataset, self._count_collating)
        self._has_state = entries.has_state(self._fetcher, self._is_stream)
        self._takes_one_by_one = self._is_stream or takes_one_by_one(self._dataset)
        if is_within:
            if is_late:
                entries.load_stream(self._fetcher, state)
                self._restore(state)
            since = state[entries.SINCE]
            self._steps = state[entries.STEPS] - since
            index = [None] * self._spec.batch_size if self._spec.auto_collation else None
            entries.skip(self._fetcher, index, since, self._begin_stream_step)

    def _count_collating(self, seconds):
        self._writing += seconds

    def _restore(self, state):
        text = state[entries.GENERATORS]
        if text is not None and self._generators is not None:
            self._generators.restore(base64.b64decode(text))

    def _begin_pass(self):
        """Sets the key of ``slotline.rng`` for the pass."""
        self._of_pass = self._spec.base_seed, self._origin[0], self._worker_id + 1 if self._is_stream else 0
        _rng.current.key = self._of_pass, None

    def _begin_stream_step(self):
        _rng.current.key = self._of_pass, self._steps
        self._steps += 1

    def serve(self):
        """Replies to requests until no more can come."""
        port = self._port
        with contextlib.suppress(Closed, _Abandoned):
            while True:
                message = port.receive(_PATIENCE)
                if message is None or port.closed or self._took >= SLOW:
                    self._check()
                if message is None:
                    # Idle: return unused memory to the system.
                    port.trim()
                    continue
                kind, task, value = message
                self._request = task
                if kind == TASK:
                    begun = time.perf_counter()
                    port.begin(task, begun)
                    self._writing = 0.0
                    try:
                        self._make(port, task, value)
                    finally:
                        self._took = time.perf_counter() - begun
                        port.end(self._took, self._writing)
                elif kind == RESUME:
                    self._send_end(port)
                    port.send(RESUMED, task)
                    self._begin(value)
                elif kind == END:
                    return
                # Objects that the message refers to must be freed before the next task.
                message = value = None

    def _check(self):
        """Ends the worker if its loader needs nothing more."""
        if not self._is_awaited():
            raise _Abandoned

    def _is_awaited(self):
        return not self._port.closed and self._is_wanted()

    def _is_batch_awaited(self):
        # Batches requested in an earlier pass are still made, so that random draws match those of
        # torch's workers.
        return (self._request == 0 or self._request >= self._port.wanted) and self._is_awaited()

    def _begin(self, value):
        """Begins another pass."""
        *self._origin, shared_seed = value
        self._is_exhausted = False
        self._steps = 0
        self._failure = None
        self._dataset = _seeded(self._dataset, self._rng, shared_seed)
        try:
            self._begin_pass()
            self._prepare(None)
        except self.errors:
            self._failure = ExceptionWrapper(where=self._where)

    def _make(self, port, task, index):
        if self._is_exhausted:
            return
        if self._failure is not None:
            _report(port, task, self._failure)
            return
        try:
            try:
                _rng.current.key = self._of_pass, self._steps if self._is_stream else task - self._origin[1]
                self._steps += 1
                if self._took >= SLOW and self._takes_one_by_one and type(index) is list:
                    index = Watched(index, self._check)
                batch = self._fetcher.fetch(index)
            finally:
                self._send_state(port)
                if self._spec.on_error != "raise" and (bad := self._fetcher.take_bad()):
                    port.send(BAD, 0, bad)
            if batch is NOTHING:
                port.send(SKIPPED, task)
                return
            begun = time.perf_counter()
            if type(batch) is _Samples:
                try:
                    port.collate(BATCH, task, batch.samples)
                except NotLifted:
                    try:
                        batch = self._fetcher.fetch_plainly()
                    finally:
                        self._send_state(port)
                    port.collate(BATCH, task, batch.samples)
            else:
                port.send(BATCH, task, batch)
            if type(self._fetcher) is not DeferredFetcher:
                self._writing += time.perf_counter() - begun
        except self.errors as error:
            if isinstance(error, StopIteration) and self._is_stream:
                self._is_exhausted = True
                self._send_end(port)
                port.send(EXHAUSTED, task)
            else:
                _report(port, task, ExceptionWrapper(where=self._where))

    def _send_end(self, port):
        """Sends the state that the next pass begins with."""
        self._steps = 0
        # If an error prevents saving the state, it is raised again with a batch of the next pass.
        with contextlib.suppress(*self.errors):
            self._send_state(port)
        self._send_generators()

    def _send_state(self, port):
        """Sends the state of the dataset after a step, if the dataset has one and it is due, and
        the states of the generators."""
        every = self._spec.snapshot_every
        # A dataset read by index cannot repeat a batch, so its state must be the latest.
        if self._is_stream and (not every or self._steps % every != 0):
            return
        if every and self._has_state:
            state = entries.fetcher_state(self._fetcher, self._is_stream)
            if self._is_stream and not entries.is_snapshot(state):
                return
            port.send(STATE, 0, state)
        elif self._is_stream:
            return
        self._send_generators()

    def _send_generators(self):
        """Sends the states of the generators if they have changed."""
        if self._generators is not None and (packed := self._generators.changed()) is not None:
            self._port.send_bytes(GENERATORS, packed)


def _report(port, task, wrapper):
    """Sends an exception, or a ``RuntimeError`` with its text if it cannot be pickled."""
    try:
        port.send(ERROR, task, wrapper)
    except Exception:
        plain = ExceptionWrapper((RuntimeError, RuntimeError(), None), where=wrapper.where)
        plain.exc_msg = wrapper.exc_msg
        try:
            port.send(ERROR, task, plain)
        except Exception:
            # There is not enough memory to send the text.
            port.send(ERROR, task)


def _seeded(dataset, rng, seed):
    if isinstance(dataset, IterDataPipe):
        rng.manual_seed(seed)
        dataset = apply_random_seed(dataset, rng)
    return dataset


def _fetcher(spec, dataset, count):
    collate_fn = spec.collate_fn
    if not spec.auto_collation:
        pass
    elif is_default_collate(collate_fn):
        collate_fn = _samples
    else:
        collate_fn = timed(collate_fn, count)
    return make_fetcher(
        spec.kind,
        dataset,
        spec.auto_collation,
        collate_fn,
        spec.drop_last,
        spec.on_error,
        spec.lift,
        is_default_collate(spec.collate_fn),
    )


def _samples(samples):
    """Replaces ``default_collate``: the port collates the samples when it sends them."""
    if type(samples) is list:
        return _Samples(samples)
    return collate_as_torch(samples)
