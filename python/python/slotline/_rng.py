"""What the code of a dataset can ask its loader: for random numbers that do not depend on the workers, and whether to stop."""

from __future__ import annotations

import random
import threading
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class _Current(threading.local):
    """What this thread makes at present for a loader, and the generators that were asked for last.

    A key has integers from 0 on: those of a pass, and the number of the batch in it, or ``None`` before the first one.
    """

    key: tuple[tuple[int, ...], int | None] | None = None
    last: tuple[object, Generators | None] = None, None
    # In a worker, says whether its loader still wants what it makes.
    is_wanted: Callable[[], bool] | None = None


current = _Current()


class Generators:
    """Generators of random numbers with one seed, each made when it is first asked for."""

    def __init__(self, key: tuple[int, ...] | None) -> None:
        """``key`` has integers from 0 on. ``None``: the seed is a new one."""
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
    def torch(self) -> torch.Generator:
        """A generator of PyTorch, on the CPU."""
        import torch

        return torch.Generator().manual_seed(self._seed(1) >> 64)


def rng() -> Generators:
    """Returns generators for the batch that is made at present, the same for the whole batch.

    To be called by a dataset, a transform or a collate function that ``slotline.torch.DataLoader`` calls. What they draw depends
    on the loader's seed, the pass and the number of the batch in it, and not on the workers: it is the same with processes,
    with threads and without workers, with any number of them, and after a resume. Of a stream, it depends on the worker and the
    number of the batch among those of this worker.

    Elsewhere, the generators have a new random seed each time.

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


def is_stopping() -> bool:
    """Whether nobody waits for the batch that this worker makes, since its iterator was left, the next pass of persistent workers
    begins, or the program ends.

    To be called between the steps of something that takes long, such as waiting for a server, by a dataset that
    ``slotline.torch.DataLoader`` calls; then raise any exception, which nobody sees. There is a
    warning of a worker that does not return in time. It is killed if it is a process, and holds up the end of the program if it is
    a thread. ``False`` outside of workers, and in
    threads that the dataset has started.

    Example::

        def __getitem__(self, index):
            while not self.socket.poll(0.1):
                if slotline.is_stopping():
                    raise InterruptedError
            return self.socket.recv()
    """
    return current.is_wanted is not None and not current.is_wanted()
