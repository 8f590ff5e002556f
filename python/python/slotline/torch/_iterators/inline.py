"""Loading in the thread that runs the loop."""

from __future__ import annotations

from torch.utils.data import IterDataPipe, MapDataPipe

from slotline import _rng
from slotline._slotline import Collator
from slotline.torch._internals import apply_sharding
from slotline.torch._iterators.base import BaseIterator
from slotline.torch._samples.collate import collate_as_torch, is_default_collate
from slotline.torch._samples.fetch import NOTHING, make_fetcher, timed
from slotline.torch._state import entries


def fetcher(iterator):
    """Returns an object that fetches the batch of an index, as torch's fetchers do without
    workers."""
    collate_fn = iterator._collate_fn
    if iterator._auto_collation:
        if is_default_collate(collate_fn):
            collator, given = Collator(iterator._pool), collate_fn

            def collate_fn(samples):
                # The program may register a function between two batches.
                return collator(samples) if type(samples) is list and is_default_collate(given) else collate_as_torch(samples)

        collate_fn = timed(collate_fn, iterator.count_collating)

    return make_fetcher(
        iterator._dataset_kind,
        iterator._dataset,
        iterator._auto_collation,
        collate_fn,
        iterator._drop_last,
        iterator._on_error,
        iterator._lift,
        is_default_collate(iterator._collate_fn),
    )


class InlineIterator(BaseIterator):
    """Loads each batch when it is requested."""

    def __init__(self, loader):
        resumed = loader._resumed
        if resumed is not None:
            entries.load_dataset(loader.dataset, resumed)
        super().__init__(loader)
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            apply_sharding(self._dataset, self._world_size, self._rank)
        self._begin_pass(loader, self._shared_seed)
        # The key of `slotline.rng`: the same as in a single worker.
        self._of_pass = self._base_seed, self._pass_number, int(self._is_iterable)
        source = fetcher(self)
        if self._is_iterable and resumed is not None and not resumed[entries.FINISHED]:
            entries.load_stream(source, resumed)
            if resumed[entries.FETCHER_STATE] is None or not entries.has_state(source, True):
                self._again, before = 0, _rng.current.key
                index = [None] * loader.batch_size if self._auto_collation else None
                try:
                    # The program restores torch's default generator itself, so skipping these
                    # batches must not change it.
                    with entries.undisturbed():
                        entries.skip(source, index, self._index_stream.done, self._begin_again)
                finally:
                    _rng.current.key = before
                    self._pass.stats.writing = 0.0
        if entries.has_state(source, self._is_iterable):
            self._pass.fetcher = source
        self._source = source
        self._fetch = source.fetch if self._on_error == "raise" else self._fetch_good

    def _begin_again(self):
        _rng.current.key = self._of_pass, self._again
        self._again += 1

    def _fetch_good(self, index):
        """Returns the batch without the samples that raise errors."""
        try:
            return self._source.fetch(index)
        finally:
            self._pass.stats.leave_out(self._source.take_bad())

    def _next_data(self):
        stream, current = self._index_stream, _rng.current
        before = current.key
        batch = NOTHING
        try:
            while batch is NOTHING:
                index, number = stream.take()
                current.key = self._of_pass, number
                batch = self._fetch(index)
        finally:
            current.key = before
        return batch
