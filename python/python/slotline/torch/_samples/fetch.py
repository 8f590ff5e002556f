"""Reading the samples of a batch, optionally without those that raise errors."""

from __future__ import annotations

import time

from torch.utils.data import Subset

from slotline._errors import SampleError
from slotline.torch._internals import _DatasetKind
from slotline.torch._lift.fetch import DeferredFetcher, recognised

# The number of samples, counted from one that was left out, of which at most half may be left out.
_WINDOW = 1000
# The maximum number of characters kept of an exception's message.
_MAX_TEXT = 512
# Returned for a batch from which all samples were left out.
NOTHING = object()
# The seconds from which on the samples of a batch count as slow.
SLOW = 0.05


class Watched(list):
    """The indices of a batch, which call ``check`` between samples if these are slow."""

    def __init__(self, index, check):
        super().__init__(index)
        self._check = check

    def __iter__(self):
        checked = time.perf_counter()
        for index in super().__iter__():
            now = time.perf_counter()
            if now - checked > SLOW:
                self._check()
                checked = now
            yield index


def timed(collate_fn, count):
    """Returns ``collate_fn`` wrapped so that each call passes its duration in seconds to
    ``count``."""

    def collate(samples):
        begun = time.perf_counter()
        try:
            return collate_fn(samples)
        finally:
            count(time.perf_counter() - begun)

    collate.untimed = collate_fn
    return collate


def takes_one_by_one(dataset) -> bool:
    """Returns whether the dataset gets one index at a time, rather than the list of a batch's
    indices."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return not hasattr(dataset, "__getitems__")


def make_fetcher(kind, dataset, auto_collation, collate_fn, drop_last, on_error, lift, is_default):
    """Returns the object that reads a dataset: torch's fetcher, or one that leaves out samples that
    raise errors.

    ``lift`` says whether pictures may be processed natively, and ``is_default`` whether
    ``collate_fn`` is equivalent to torch's.
    """
    if lift and kind == _DatasetKind.Map:
        found = recognised(dataset)
        if found.dataset is not None:
            is_deferred = is_default and auto_collation and on_error == "raise" and found.is_plain
            found.set_deferred(is_deferred)
            if is_deferred:
                plain = _DatasetKind.create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last)
                return DeferredFetcher(plain, found, getattr(collate_fn, "untimed", collate_fn))
            dataset = found.dataset
    if on_error == "raise":
        return _DatasetKind.create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last)
    skipping = _SkippingStream if kind == _DatasetKind.Iterable else _SkippingMap
    return skipping(dataset, auto_collation, collate_fn, drop_last)


class _Skipping:
    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset = dataset
        self._auto_collation = auto_collation
        self._collate_fn = collate_fn
        self._drop_last = drop_last
        self._bad = []
        # The number of samples since one that was left out, and how many of them were left out.
        self._seen = self._left_out = 0

    def _leave_out(self, index, error):
        text = _text_of(error)
        self._bad.append((index, text))
        # Start a new window after the last one is full and at most half of it was left out.
        if self._left_out == 0 or (self._seen >= _WINDOW and self._left_out <= self._seen // 2):
            self._seen = self._left_out = 0
        if self._seen < _WINDOW:
            self._seen += 1
            self._left_out += 1
        if self._seen >= _WINDOW and self._left_out > self._seen // 2:
            bad, self._left_out = self._left_out, 0
            message = f"{bad} of the last {self._seen} samples raised exceptions, and on_error='skip' allows half; {text}"
            raise SampleError(message) from error

    def take_bad(self):
        """Returns the samples left out since the last call: for each its index (``None`` in a
        stream) and its error."""
        bad, self._bad = self._bad, []
        return bad


def _text_of(error):
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        # The exception's own ``__str__`` raised.
        text = type(error).__name__
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."


class _SkippingMap(_Skipping):
    def fetch(self, index):
        samples = []
        for k in index if self._auto_collation else [index]:
            try:
                samples.append(self.dataset[k])
                self._seen += 1
            except Exception as error:
                self._leave_out(k, error)
        if not samples:
            return NOTHING
        return self._collate_fn(samples if self._auto_collation else samples[0])


class _SkippingStream(_Skipping):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.dataset_iter = iter(self.dataset)
        self.ended = False
        # An error to raise instead of the next batch.
        self._error = None

    def _take_error(self):
        error, self._error = self._error, None
        return error

    def _next(self):
        while True:
            try:
                sample = next(self.dataset_iter)
            except StopIteration:
                raise
            except Exception as error:
                if getattr(self.dataset_iter, "gi_frame", self) is None:
                    # An error ends a generator, so skipping would lose the rest of the stream.
                    raise
                self._leave_out(None, error)
            else:
                self._seen += 1
                return sample

    def fetch(self, index):
        if self._error is not None:
            raise self._take_error()
        if self.ended:
            raise StopIteration
        if not self._auto_collation:
            return self._collate_fn(self._next())
        samples = []
        for _ in index:
            try:
                samples.append(self._next())
            except StopIteration:
                self.ended = True
                break
            except Exception as error:
                # With ``drop_last``, a partial batch would be dropped anyway.
                if not samples or self._drop_last:
                    raise
                self._error = error
                break
        if not samples or (self._drop_last and len(samples) < len(index)):
            raise StopIteration
        return self._collate_fn(samples)
