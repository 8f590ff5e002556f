"""Workers: what they are asked for, and how they answer."""

from __future__ import annotations

import os
import random
import time

import torch
import torch.utils.data._utils.worker as _torch_worker
from torch._utils import ExceptionWrapper
from torch.utils.data import IterDataPipe
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _DatasetKind
from torch.utils.data.graph_settings import apply_random_seed

from slotline._slotline import Port
from slotline.torch import _collate, _state
from slotline.torch._fetch import NOTHING, make_fetcher
from slotline.torch._messages import BAD, BATCH, END, ERROR, EXHAUSTED, RESUME, RESUMED, SKIPPED, STATE, TASK

# How often a worker that has nothing to do checks whether its loader is still there, in seconds.
_PATIENCE = 5.0


class _Samples:
    """Samples that are to become a batch when they are sent."""

    __slots__ = ("samples",)

    def __init__(self, samples):
        self.samples = samples


def work(spec, dataset_holder, requests, replies, worker_id, shared_seed, state):
    """Runs a worker process, which resumes from ``state`` if there is one."""
    dataset = dataset_holder.pop()
    pin(spec, worker_id)
    parent = os.getppid()
    try:
        signal_handling._set_worker_signal_handlers()
        torch.multiprocessing._set_thread_name("sl_data_worker")
        torch.set_num_threads(1)
        seed = spec.base_seed + worker_id
        random.seed(seed)
        torch.manual_seed(seed)
        if _torch_worker.HAS_NUMPY:
            import numpy as np

            np.random.seed(_torch_worker._generate_state(spec.base_seed, worker_id))

        def inform(dataset):
            _torch_worker._worker_info = _torch_worker.WorkerInfo(
                id=worker_id, num_workers=spec.num_workers, seed=seed, dataset=dataset
            )

        port = Port(replies, requests)

        def is_wanted():
            # It has nothing to do.
            port.trim()
            return os.getppid() == parent

        where = f"in DataLoader worker process {worker_id}"
        Worker(spec, dataset, worker_id, shared_seed, state, inform, where).serve(port, is_wanted)
    except KeyboardInterrupt:
        # The loader's process has been interrupted too.
        pass
    finally:
        _torch_worker._worker_info = None


def pin(spec, worker_id):
    """Pins this thread to its core, if cores were given."""
    if spec.affinity:
        os.sched_setaffinity(0, {spec.affinity[worker_id % len(spec.affinity)]})


class Worker:
    """Makes the batches that a loader asks for."""

    # The exceptions that are raised in the loop. An interrupt of a process has interrupted the loop too, and ends the worker.
    errors: tuple[type[BaseException], ...] = (Exception,)

    def __init__(self, spec, dataset, worker_id, shared_seed, state, inform, where):
        self._spec = spec
        self._is_stream = spec.kind == _DatasetKind.Iterable
        self._where = where
        self._rng = torch.Generator()
        self._dataset = _seeded(dataset, self._rng, shared_seed)
        inform(self._dataset)
        # The error with which all tasks are answered.
        self._failure = None
        self._is_exhausted = False
        self._steps = 0
        try:
            if spec.init_fn is not None:
                spec.init_fn(worker_id)
            self._fetcher = _fetcher(spec, self._dataset, state)
        except self.errors:
            self._failure = ExceptionWrapper(where=where)

    def serve(self, port, is_wanted):
        """Answers requests until there will be no more. ``is_wanted`` says whether the loader is still there."""
        while True:
            try:
                message = port.receive(_PATIENCE)
            except EOFError:
                return
            if message is None:
                if not is_wanted():
                    return
                continue
            kind, task, value = message
            if kind == TASK:
                begun = time.perf_counter()
                self._make(port, task, value)
                port.add_busy(time.perf_counter() - begun)
            elif kind == RESUME:
                port.send(RESUMED, task)
                self._begin(value)
            elif kind == END:
                return
            # What it refers to must be freed before the next task comes.
            message = value = None

    def _begin(self, shared_seed):
        """Begins another pass."""
        self._is_exhausted = False
        self._steps = 0
        self._failure = None
        self._dataset = _seeded(self._dataset, self._rng, shared_seed)
        try:
            self._fetcher = _fetcher(self._spec, self._dataset, None)
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
                self._steps += 1
                batch = self._fetcher.fetch(index)
            finally:
                self._send_state(port)
                if self._spec.on_error != "raise" and (bad := self._fetcher.take_bad()):
                    port.send(BAD, 0, bad)
            if batch is NOTHING:
                port.send(SKIPPED, task)
            elif type(batch) is _Samples:
                port.collate(BATCH, task, batch.samples)
            else:
                port.send(BATCH, task, batch)
        except self.errors as error:
            if isinstance(error, StopIteration) and self._is_stream:
                self._is_exhausted = True
                # The next pass begins with what the dataset has now.
                self._steps = 0
                self._send_state(port)
                port.send(EXHAUSTED, task)
            else:
                _report(port, task, ExceptionWrapper(where=self._where))

    def _send_state(self, port):
        """Sends the state of the dataset after a step, if it has one and it is time."""
        every = self._spec.snapshot_every
        # A dataset that is read by index cannot be told to read a batch once more, so its state must be the latest one.
        is_due = every and (not self._is_stream or self._steps % every == 0)
        if is_due and _state.has_state(self._fetcher, self._is_stream):
            port.send(STATE, 0, _state.fetcher_state(self._fetcher, self._is_stream))


def _report(port, task, wrapper):
    """Sends an exception. If its type cannot be pickled, sends a ``RuntimeError`` with its text."""
    try:
        port.send(ERROR, task, wrapper)
    except Exception:
        plain = ExceptionWrapper((RuntimeError, RuntimeError(), None), where=wrapper.where)
        plain.exc_msg = wrapper.exc_msg
        try:
            port.send(ERROR, task, plain)
        except Exception:
            # There is no memory for it.
            port.send(ERROR, task)


def _seeded(dataset, rng, seed):
    if isinstance(dataset, IterDataPipe):
        rng.manual_seed(seed)
        dataset = apply_random_seed(dataset, rng)
    return dataset


def _fetcher(spec, dataset, state):
    collate_fn = spec.collate_fn
    if spec.auto_collation and _collate.is_default(collate_fn):
        collate_fn = _samples

    if state is not None:
        _state.load_dataset(dataset, state)
    fetcher = make_fetcher(spec.kind, dataset, spec.auto_collation, collate_fn, spec.drop_last, spec.on_error)
    if state is not None and spec.kind == _DatasetKind.Iterable and not state[_state.FINISHED]:
        _state.load_stream(fetcher, state)
        _state.skip(fetcher, [None] * spec.batch_size if spec.auto_collation else None, state[_state.SINCE])
    return fetcher


def _samples(samples):
    """In the place of ``default_collate``: the port makes the batch when it sends it."""
    if type(samples) is list:
        return _Samples(samples)
    return _collate.column(samples)
