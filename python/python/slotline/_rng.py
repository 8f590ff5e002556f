"""Functions that a dataset's code can call while a loader runs it: random generators for the batch,
and a check for cancellation."""

from __future__ import annotations

import random
import sys
import threading
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class _Current(threading.local):
    """State of this thread: the batch or sample that it makes for a loader, and the generators created last.

    ``key`` is ``None`` outside of a loader. Otherwise it has the non-negative integers that
    identify the pass, and the number of the batch in the pass, or ``None`` before the first batch;
    or the integers of a single sample, and ``None``.
    """

    key: tuple[tuple[int, ...], int | None] | None = None
    last: tuple[object, Generators | None] = None, None
    # The number of samples that torch's loader has read in this thread.
    reads = 0
    # In a worker: returns whether its loader still needs the batch that is being made.
    is_wanted: Callable[[], bool] | None = None


current = _Current()


class Generators:
    """Random generators derived from one seed, each created on first use."""

    def __init__(self, key: tuple[int, ...] | None) -> None:
        """``key`` is a tuple of non-negative integers. ``None``: a random seed."""
        self._seeds = np.random.SeedSequence(key)

    def _seed(self, number: int) -> int:
        words = np.random.SeedSequence(self._seeds.entropy, spawn_key=(number,)).generate_state(2, np.uint64)
        return int(words[0]) | int(words[1]) << 64

    @cached_property
    def numpy(self) -> np.random.Generator:
        """A generator of NumPy."""
        return np.random.default_rng(self._seeds)

    @cached_property
    def random(self) -> random.Random:
        """A generator of the standard library."""
        return random.Random(self._seed(0))

    @cached_property
    def samples(self) -> int:
        """The seed of samples that are read by their index."""
        return self._seed(2) >> 64

    @cached_property
    def torch(self) -> torch.Generator:
        """A generator of PyTorch, on the CPU."""
        import torch

        return torch.Generator().manual_seed(self._seed(1) >> 64)


def rng() -> Generators:
    """Returns random generators for the batch or the sample that is being made.

    Call it in a dataset, a transform or a collate function that ``slotline.torch.DataLoader`` runs.
    The generators are the same for the whole batch. The numbers depend on the loader's seed, the
    pass and the number of the batch in it, but not on the workers: they are the same with
    processes, with threads and without workers, for any number of workers, and after a resume. For
    an iterable dataset they depend on the worker and the number of the batch among that worker's
    batches.

    In a function of :meth:`slotline.Dataset.map` or :meth:`~slotline.Dataset.filter`, the
    generators belong to the call. The numbers depend on the loader's seed, the pass and the
    sample's position in it, for any number of workers and ranks; for a stream, on the position
    among the worker's samples. In a ``collate_fn`` or ``transform`` of a :class:`slotline.Loader`
    they depend on the seed, the pass, the rank and the number of the batch.

    Outside of a loader, the generators have a new random seed on each call.

    Example::

        def __getitem__(self, index):
            noise = slotline.rng().numpy.normal(size=3)
    """
    key = current.key
    if key is None:
        return Generators(None)
    known, generators = current.last
    if generators is None or known is not key:
        of_pass, number = key
        generators = Generators(of_pass if number is None else (*of_pass, number))
        current.last = key, generators
    return generators


def sample_seed() -> int | None:
    """Returns the seed of the random augmentations of a sample that is read by its index: new in
    each batch of a ``slotline.torch.DataLoader`` and for each sample in a worker of torch's; ``None`` outside of
    loaders."""
    if current.key is not None:
        return rng().samples
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    if info is None:
        return None
    current.reads += 1
    return Generators((info.seed, current.reads)).samples


def is_stopping() -> bool:
    """Returns whether the batch that this worker makes is no longer needed.

    That is so after its iterator was dropped, when persistent workers begin the next pass, and when
    the program ends.

    Call it in a dataset that ``slotline.torch.DataLoader`` runs, between the steps of something
    slow such as waiting for a server, and then raise any exception; it is discarded. If a worker
    does not return in time, a warning is issued; a process is then killed, while a thread delays
    the end of the program. Always ``False`` outside of workers, and in threads that the dataset
    itself started.

    Example::

        def __getitem__(self, index):
            while not self.socket.poll(0.1):
                if slotline.is_stopping():
                    raise InterruptedError
            return self.socket.recv()
    """
    return current.is_wanted is not None and not current.is_wanted()
