"""Loading from datasets that hold tensors or arrays in memory."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from slotline._slotline import Gatherer
from slotline.torch._internals import ExceptionWrapper
from slotline.torch._iterators.base import BaseIterator
from slotline.torch._iterators.inline import fetcher
from slotline.torch._samples.collate import is_default_collate

_KINDS = (TensorDataset, StackDataset, ConcatDataset, Subset)


def is_native(loader) -> bool:
    """Returns whether batches can be made without calling the dataset, with the same results."""
    return (
        loader._auto_collation
        and is_default_collate(loader.collate_fn)
        and loader.worker_init_fn is None
        and loader.on_error == "raise"
        and _holds_rows(loader.dataset)
    )


def _holds_rows(dataset, depth=0) -> bool:
    kind = type(dataset)
    if kind is torch.Tensor or kind in (np.ndarray, np.memmap):
        return depth > 0
    if kind not in _KINDS or "__getitems__" in vars(dataset) or depth > 30:
        return False
    if kind is TensorDataset:
        return True
    if kind is Subset:
        # Tensors and arrays interpret a list of indices as a single index.
        return type(dataset.dataset) in _KINDS and _holds_rows(dataset.dataset, depth + 1)
    parts = dataset.datasets.values() if isinstance(dataset.datasets, dict) else dataset.datasets
    return all(_holds_rows(part, depth + 1) for part in parts)


class NativeIterator(BaseIterator):
    """Makes each batch when it is requested, by copying rows.

    Copying takes less time than receiving the batch from another process, so there are no workers.
    The program sees no difference, since none of its code would run in them.
    """

    # Training frameworks read this to terminate workers.
    _workers = ()

    def _shutdown_workers(self):
        pass

    def __init__(self, loader):
        super().__init__(loader)
        self._gather = Gatherer(_KINDS, self._pool)
        self._fetch = fetcher(self).fetch
        # The number of batches of indices that torch draws in advance with workers.
        self._lead = self._num_workers * (loader.prefetch_factor or 0)
        self._drawn = deque()
        if self._num_workers == 0:
            self._begin_pass(loader, None)
        else:
            self._reset(loader, first_iter=True)

    def _reset(self, loader, first_iter=False):
        super()._reset(loader, first_iter)
        self._drawn.clear()
        for _ in range(self._lead):
            self._draw()

    def _draw(self):
        try:
            self._drawn.append(self._index_stream.look()[0])
        except StopIteration:
            return
        self._index_stream.give()

    def _call(self, index):
        """Returns the batch; calls the dataset only if it cannot be avoided."""
        data = self._gather(self._dataset, index)
        return self._fetch(index) if data is None else data

    def _make(self, index):
        """Returns the batch, or its error as a worker would send it."""
        try:
            return self._call(index)
        except Exception:
            return ExceptionWrapper(where=f"in DataLoader worker process {self._num_yielded % self._num_workers}")

    def _next_data(self):
        if self._num_workers > 0:
            return self._next_drawn()
        return self._call(self._index_stream.take()[0])

    def _next_drawn(self):
        """Returns the next batch from the indices that were drawn in advance, as for workers."""
        if not self._drawn:
            raise StopIteration
        data = self._make(self._drawn[0])
        self._drawn.popleft()
        self._index_stream.finish(self._index_stream.done)
        self._draw()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data
