"""What runs in the process of a worker."""

from __future__ import annotations

import os
import random

import torch
import torch.utils.data._utils.worker as _torch_worker
from torch._utils import ExceptionWrapper
from torch.utils.data import IterDataPipe
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _DatasetKind
from torch.utils.data.graph_settings import apply_random_seed

from slotline._slotline import Port
from slotline.torch import _collate
from slotline.torch._messages import BATCH, END, ERROR, EXHAUSTED, RESUME, RESUMED, TASK

# How often a worker that has nothing to do looks whether its loader is still there, in seconds.
_PATIENCE = 5.0


class _Samples:
    """Samples that are to become a batch when they are sent."""

    __slots__ = ("samples",)

    def __init__(self, samples):
        self.samples = samples


def work(spec, dataset_holder, requests, replies, worker_id, shared_seed):
    """Makes batches until the loader asks for no more."""
    dataset = dataset_holder.pop()
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

        shared_rng = torch.Generator()
        dataset = _seeded(dataset, shared_rng, shared_seed)
        _torch_worker._worker_info = _torch_worker.WorkerInfo(
            id=worker_id, num_workers=spec.num_workers, seed=seed, dataset=dataset
        )
        where = f"in DataLoader worker process {worker_id}"
        failure = None
        try:
            if spec.init_fn is not None:
                spec.init_fn(worker_id)
            fetch = _fetcher(spec, dataset)
        except Exception:
            failure = ExceptionWrapper(where=where)

        port = Port(replies, requests, _collate.column)
        is_exhausted = False
        while True:
            try:
                message = port.receive(_PATIENCE)
            except EOFError:
                return
            if message is None:
                if os.getppid() != parent:
                    return
                continue
            kind, task, index = message
            if kind == RESUME:
                is_exhausted = False
                dataset = _seeded(dataset, shared_rng, index)
                port.send(RESUMED, task)
                failure = None
                try:
                    fetch = _fetcher(spec, dataset)
                except Exception:
                    failure = ExceptionWrapper(where=where)
            elif kind == END:
                return
            elif kind == TASK and not is_exhausted:
                if failure is not None:
                    _report(port, task, failure)
                    continue
                try:
                    batch = fetch(index)
                    if type(batch) is _Samples:
                        port.collate(BATCH, task, batch.samples)
                    else:
                        port.send(BATCH, task, batch)
                except Exception as error:
                    if isinstance(error, StopIteration) and spec.kind == _DatasetKind.Iterable:
                        is_exhausted = True
                        port.send(EXHAUSTED, task)
                    else:
                        _report(port, task, ExceptionWrapper(where=where))
                # The samples must not wait in memory for the next task.
                batch = index = message = None
    except KeyboardInterrupt:
        # The loader's process has been interrupted too.
        pass
    finally:
        _torch_worker._worker_info = None


def _report(port, task, wrapper):
    """Sends an exception. If its type cannot be pickled, another one tells about it."""
    try:
        port.send(ERROR, task, wrapper)
    except Exception:
        plain = ExceptionWrapper((RuntimeError, RuntimeError(), None), where=wrapper.where)
        plain.exc_msg = wrapper.exc_msg
        port.send(ERROR, task, plain)


def _seeded(dataset, rng, seed):
    if isinstance(dataset, IterDataPipe):
        rng.manual_seed(seed)
        dataset = apply_random_seed(dataset, rng)
    return dataset


def _fetcher(spec, dataset):
    collate_fn = spec.collate_fn
    if spec.auto_collation and _collate.is_default(collate_fn):
        collate_fn = _samples
    return _DatasetKind.create_fetcher(spec.kind, dataset, spec.auto_collation, collate_fn, spec.drop_last).fetch


def _samples(samples):
    """In the place of ``default_collate``: the port makes the batch when it sends it."""
    if type(samples) is list:
        return _Samples(samples)
    return _collate.column(samples)
