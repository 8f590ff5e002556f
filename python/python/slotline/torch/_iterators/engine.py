"""Loading from slotline's own datasets, by the threads of ``slotline.Loader``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, Subset

from slotline import _datasets
from slotline._errors import LoaderTimeoutError
from slotline._slotline import Engine, Plan
from slotline.torch._internals import collate
from slotline.torch._iterators.base import BaseIterator
from slotline.torch._samples.collate import is_default_collate
from slotline.torch._state.indices import WholeStream, drawn_later
from slotline.torch._state.stats import Stats

# Subclasses of the program may have methods of their own.
_KINDS = (
    _datasets.Arrays,
    _datasets._Derived,
    _datasets.Subset,
    _datasets.ConcatDataset,
    _datasets.StackDataset,
    _datasets.Mixture,
    _datasets.Batches,
    _datasets.Packed,
)


def _unwrapped(dataset, indices=None):
    """Returns the dataset in torch's ``Subset``, and the places there of ``indices`` of the whole."""
    while type(dataset) is Subset:
        indices = None if indices is None else np.asarray(dataset.indices)[indices]
        dataset = dataset.dataset
    return dataset, indices


def dataset_of(loader) -> _datasets.Dataset | None:
    """Returns the dataset of slotline that a loader has, perhaps in torch's ``Subset``; otherwise ``None``."""
    dataset, _ = _unwrapped(loader.dataset)
    return dataset if isinstance(dataset, _datasets.Dataset) else None


def refusal(loader, dataset) -> str | None:
    """Returns why a loader reads a dataset of slotline sample by sample, in words; ``None`` if the engine reads it."""
    if type(dataset) not in _KINDS:
        return f"its class {type(dataset).__name__} is not slotline's own"
    try:
        len(dataset)
    except TypeError:
        return "it is a stream; slotline.Loader reads it"
    if not (is_default_collate(loader.collate_fn) if loader._auto_collation else loader.collate_fn is collate.default_convert):
        return "collate_fn is a function of the program"
    for option, default in (("worker_init_fn", None), ("watchdog", None), ("on_error", "raise")):
        if getattr(loader, option) != default:
            return f"{option} is set"
    for place, (name, dtype, shape) in enumerate(dataset.fields):
        field = f"its field {place if name is None else name!r}"
        if dtype != "str" and None in shape and loader._auto_collation:
            return f"{field} has varying length, which default_collate does not combine"
        if dtype != "str" and not isinstance(getattr(torch, dtype, None), torch.dtype):
            return f"{field} has the type {dtype}, which torch does not have"
    return drawn_later(loader._index_sampler)


def plan(loader, dataset) -> str:
    """Returns the loader's plan in words."""
    kind = "Dataset" if type(dataset) is _datasets._Derived else type(dataset).__name__
    reason = refusal(loader, dataset)
    if reason is not None:
        return f"slotline.{kind}: by Python, sample by sample, since {reason}"
    threads = f" and {loader.num_workers} more" if loader.num_workers > 0 else ""
    return f"slotline.{kind}: natively, by the loop's thread{threads}"


class _EngineStats(Stats):
    """The statistics of a pass that an engine loads."""

    def __init__(self, engine, num_workers):
        super().__init__(num_workers)
        self._engine = engine
        self._before = [0.0] * num_workers
        if num_workers > 0:
            self._before = self._worked()

    def _worked(self):
        """Returns for how long each of the engine's threads has worked, less the time before the pass."""
        workers = json.loads(self._engine.stats())["workers"]
        times = (sum(worker[part] for part in ("drawing", "reading", "decoding", "writing")) for worker in workers)
        return [time - before for time, before in zip(times, self._before, strict=True)]

    def as_dict(self):
        self.busy = self._worked()
        return super().as_dict()

    def verdict(self):
        return self._engine.verdict()


class EngineIterator(BaseIterator):
    """Delivers the batches of an engine. It has no workers that training frameworks could end."""

    _workers = ()
    index_stream_kind = WholeStream

    def __init__(self, loader):
        super().__init__(loader)
        dataset = dataset_of(loader)
        self._engine = _engine(loader, dataset)
        # The native iterator over the pass, once it has begun.
        self._batches = None
        self._is_tuple = dataset._names is None
        # The number of batches whose indices torch draws in advance with workers.
        self._lead = self._num_workers * (loader.prefetch_factor or 0)
        if self._num_workers == 0:
            self._begin_pass(loader, None)
        else:
            self._reset(loader, first_iter=True)

    def _begin_pass(self, loader, shared_seed):
        super()._begin_pass(loader, shared_seed)
        self._pass.stats = _EngineStats(self._engine, self._num_workers)

    def _reset(self, loader, first_iter=False):
        self._shutdown_workers()
        super()._reset(loader, first_iter)
        self._begin()

    def _shutdown_workers(self):
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()

    def _begin(self):
        stream = self._index_stream
        has_batches = self._auto_collation and type(self._index_sampler) is not BatchSampler
        # In torch's `Subset`, the indices are needed here.
        most = len(self._dataset) if isinstance(self._dataset, _datasets.Dataset) else 0
        indices, ends = stream.draw(has_batches, most, self._lead)
        if isinstance(indices, np.ndarray):
            indices = self._places(indices).tobytes()
        following = max(stream.ahead, default=stream.done - 1) + 1
        missing = [number for number in range(stream.done, following) if number not in stream.ahead]
        at = self._base_seed, self._pass_number, following, missing
        try:
            self._batches = self._engine.begin(indices, None if ends is None else ends.astype(np.uint32).tobytes(), at)
            stream.whole = None
        except LoaderTimeoutError as error:
            # The threads are still at samples of the previous pass.
            raise self._late() from error

    def _late(self):
        return RuntimeError(f"DataLoader timed out after {self._timeout} seconds")

    def _places(self, indices):
        """Returns the places in slotline's dataset for indices of the loader's dataset."""
        dataset, indices = _unwrapped(self._dataset, indices)
        length = len(dataset)
        if indices.size > 0 and (indices.min() < 0 or indices.max() >= length):
            wrong = np.flatnonzero((indices < -length) | (indices >= length))
            if wrong.size > 0:
                dataset[int(indices[wrong[0]])]  # This raises an `IndexError`.
            return np.where(indices < 0, indices + length, indices)
        return indices

    def _next_data(self):
        stream = self._index_stream
        if self._batches is None:
            self._begin()
        if stream.last is not None:
            stream.draw_last(stream.done + len(stream.ahead))
        if stream.returned:
            # A signal handler cannot run between these instructions, nor after the loop and before `taken` is set.
            stream.taken = stream.returned[-1]
            del stream.returned[-1]
        else:
            batch = None
            try:
                for batch in self._batches:
                    break
            except LoaderTimeoutError as error:
                raise self._late() from error
            except Exception:
                # An exception of a signal handler takes no batch's place: the latest one is done already.
                number = self._batches.latest
                if number is not None and number >= stream.done:
                    stream.finish(number)
                raise
            if batch is None:
                raise StopIteration
            stream.taken = batch, self._batches.latest
        batch, number = stream.taken
        if number == stream.done and not stream.ahead:
            stream.done = number + 1
        else:
            stream.finish(number)
        # torch makes lists of tuples.
        return list(batch) if self._is_tuple else batch


def _engine(loader, dataset) -> Engine:
    """Returns the engine of a loader, which all of its passes use."""
    sampler = loader._index_sampler
    is_plain = type(sampler) is BatchSampler
    options: dict[str, Any] = {
        # Where the program chooses batches, this is the most samples of one, which the engine adapts.
        "batch_size": sampler.batch_size if is_plain else 1 if loader._auto_collation else None,
        "drop_last": is_plain and sampler.drop_last,
        "num_workers": loader.num_workers,
        # The default is 2 for torch; an engine loads more ahead if batches are small.
        "prefetch_factor": None if loader.prefetch_factor == 2 else loader.prefetch_factor,
        "in_order": loader.in_order,
        "timeout": loader.timeout,
        "memory_limit": loader.memory_limit,
        "affinity": loader.affinity,
    }
    # The program may change attributes such as `num_workers` between passes.
    known, engine = loader._engine or (None, None)
    if engine is None or known != options:
        names = None if dataset._names is None else list(dataset._names)
        engine = Engine(
            dataset._source,
            "torch",
            names,
            Plan.given(loader._auto_collation and not is_plain),
            packed=False,
            include_index=False,
            shuffle=False,
            seed=0,
            adopts_seed=False,
            replacement=False,
            num_samples=None,
            rank=None,
            world_size=None,
            hold=2,
            on_held="grow",
            on_error="raise",
            **options,
        )
        loader._engine = options, engine
    return engine
