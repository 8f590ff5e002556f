"""What the iterators have in common."""

from __future__ import annotations

import warnings

from torch.autograd import profiler
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind


class BaseIterator(_BaseDataLoaderIter):
    """An iterator over a loader, which draws the same random numbers as torch's."""

    def __init__(self, loader):
        super().__init__(loader)
        self._is_iterable = self._dataset_kind == _DatasetKind.Iterable

    def __next__(self):
        # Recording costs as much as loading a small batch.
        if profiler._is_profiler_enabled:
            with profiler.record_function(self._profile_name):
                data = self._next_data()
        else:
            data = self._next_data()
        self._num_yielded += 1
        if self._is_iterable:
            self._check_length()
        return data

    def _check_length(self):
        expected = self._IterableDataset_len_called
        if expected is None or self._num_yielded <= expected:
            return
        message = (
            f"Length of IterableDataset {self._dataset} was reported to be {expected}"
            f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )
        warnings.warn(message, stacklevel=3)
