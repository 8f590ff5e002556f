"""Loading in the thread of the loop."""

from __future__ import annotations

import torch.utils.data.graph_settings
from torch.utils.data import IterDataPipe, MapDataPipe, _utils
from torch.utils.data.dataloader import _DatasetKind

from slotline._slotline import Collator
from slotline.torch import _collate, _samplers
from slotline.torch._base import BaseIterator


def fetcher(iterator):
    """Returns the function that makes the batch of an index, as torch's without workers does."""
    collate_fn = iterator._collate_fn
    if iterator._auto_collation and _collate.is_default(collate_fn):
        collator = Collator(_collate.column)

        def collate_fn(samples):
            return collator(samples) if type(samples) is list else _collate.default_collate(samples)

    return _DatasetKind.create_fetcher(
        iterator._dataset_kind, iterator._dataset, iterator._auto_collation, collate_fn, iterator._drop_last
    ).fetch


class InlineIterator(BaseIterator):
    """Loads each batch when it is asked for."""

    def __init__(self, loader):
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("a loader without workers requires timeout == 0")
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            torch.utils.data.graph_settings.apply_sharding(self._dataset, self._world_size, self._rank)
        self._fetch = fetcher(self)
        self._sampler_iter = _samplers.faster(self._index_sampler, self._sampler_iter)

    def _next_data(self):
        data = self._fetch(next(self._sampler_iter))
        if self._pin_memory:
            data = _utils.pin_memory.pin_memory(data, self._pin_memory_device)
        return data
