"""The base class of the iterators."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import IterDataPipe

from slotline.torch._internals import (
    _BaseDataLoaderIter,
    _DatasetKind,
    apply_random_seed,
    is_profiling,
    pin_memory,
    profiler,
    generator_state,
    set_generator_state,
)
from slotline.torch._state import entries
from slotline.torch._state.indices import IndexStream, source_of
from slotline.torch._state.progress import PassProgress


# All iterators of this process.
_iterators: weakref.WeakSet[BaseIterator] = weakref.WeakSet()


def _after_fork():
    """Detaches a forked child's iterators from the threads and workers of the parent."""
    for iterator in _iterators:
        iterator._disown()


os.register_at_fork(after_in_child=_after_fork)


class BaseIterator(_BaseDataLoaderIter):
    """The base of all iterators over a loader. It draws the same random numbers as torch's."""

    # How the indices of a pass are drawn.
    index_stream_kind: type[IndexStream] = IndexStream
    # The latest pass, and the number of passes before it.
    _pass: Any = None
    _pass_number = 0
    # The state of the sampler's generator before the sampler's iterator is created.
    _before = None

    def __init__(self, loader):
        # Reentrant, since several threads may share the iterator, and its own callbacks may use it.
        self._lock = threading.RLock()
        _iterators.add(self)
        # The state to resume from, and whether it contains this pass's seeds, so that none are
        # drawn.
        self._resumed = resumed = loader._resumed
        self._is_seeded = resumed is not None and (
            not resumed[entries.FINISHED] or (loader.persistent_workers and loader.num_workers > 0)
        )
        self._pool = loader._pool
        if self._is_seeded:
            with entries.undisturbed():
                super().__init__(loader)
            self._draw_seed_again(loader)
            self._seed(loader)
        else:
            if resumed is not None:
                self._set_generator(loader)
            self._before = entries.Random(source_of(loader._index_sampler))
            super().__init__(loader)
        if self._num_workers == 0 and self._timeout != 0:
            raise AssertionError("a loader without workers requires timeout == 0")
        self._on_error = loader.on_error
        self._lift = loader.lift
        self._is_iterable = self._dataset_kind == _DatasetKind.Iterable

    def _disown(self):
        # A thread of the parent process may have held the lock during the fork.
        self._lock = threading.RLock()

    @property
    def _sampler_iter(self):
        return self._indices

    @_sampler_iter.setter
    def _sampler_iter(self, iterator):
        # torch assigns this right after creating the iterator.
        self._indices = iterator
        before, self._before = self._before, None
        source = source_of(self._index_sampler)
        is_drawn = before is not None and source is not None and not torch.equal(before.state, generator_state(source))
        self._before_indices = before if is_drawn else None

    def _draw_seed_again(self, loader):
        """Draws the pass's seed from the default generator again if the generator is in the state
        from before that draw, as after the program has restored it."""
        if loader.generator is not None or self._resumed[entries.FINISHED]:
            return
        before = generator_state(torch.default_generator)
        if torch.empty((), dtype=torch.int64).random_().item() != self._resumed[entries.BASE_SEED]:
            set_generator_state(torch.default_generator, before)

    def _seed(self, loader):
        self._base_seed = self._resumed[entries.BASE_SEED]
        self._pass_number = self._resumed[entries.PASS_NUMBER] + self._resumed[entries.FINISHED]
        if isinstance(self._dataset, IterDataPipe) and not self._resumed[entries.FINISHED]:
            self._shared_seed = self._resumed[entries.SHARED_SEED]
            rng = torch.Generator()
            rng.manual_seed(self._shared_seed)
            self._dataset = apply_random_seed(self._dataset, rng)
        self._set_generator(loader)

    def _set_generator(self, loader):
        text = self._resumed[entries.GENERATOR]
        if loader.generator is not None and text is not None:
            set_generator_state(loader.generator, entries.Random(text=text).state)

    def _begin_pass(self, loader, shared_seed):
        """Begins a pass, or resumes one."""
        resumed, self._resumed, loader._resumed = self._resumed, None, None
        self._pass = loader._pass = PassProgress(self, loader, shared_seed, resumed, self._pass)
        self._index_stream = self._pass.index_stream
        self._num_yielded = self._pass.yielded
        # If `_is_seeded`, the sampler's iterator was created without changing the generators. It is
        # discarded, and a new one is created whose draws change them.
        self._index_stream.begin(None if self._is_seeded else self._indices, self._before_indices)
        self._is_seeded = False

    def _reset(self, loader, first_iter=False):
        shared_seed = self._shared_seed
        self._pass_number += not first_iter
        if first_iter and self._is_seeded:
            with entries.undisturbed():
                super()._reset(loader, first_iter)
            self._seed(loader)
        else:
            self._before = entries.Random(source_of(self._index_sampler))
            super()._reset(loader, first_iter)
        # In the first pass torch draws the shared seed twice and uses the first.
        self._begin_pass(loader, shared_seed if first_iter else self._shared_seed)

    def __len__(self) -> int:
        """The number of batches that are left in the pass."""
        return self.remaining()

    def count_collating(self, seconds):
        """Adds the time that the loop's own thread took to collate."""
        self._pass.stats.writing += seconds

    def remaining(self) -> int:
        """Returns the number of batches left in the pass. After a resume in the middle of a pass,
        it begins below ``len(loader)``.

        Raises a ``TypeError`` if the sampler or the dataset has no length.
        """
        return max(self._pass.length(self._dataset) - self._pass.passed, 0)

    def __next__(self) -> Any:
        with self._lock:
            return self._next()

    def _next(self):
        stats = self._pass.stats
        self._index_stream.taken = None
        begun = time.perf_counter()
        stats.begin(begun)
        try:
            # Recording takes as long as loading a small batch, so do it only for a profiler.
            if is_profiling():
                with profiler.record_function(self._profile_name):
                    data = self._next_data()
            else:
                data = self._next_data()
            if self._pin_memory:
                data = pin_memory(data, self._pin_memory_device)
        except StopIteration:
            if stats.bad_samples and not self._pass.is_finished:
                warn(
                    f"{stats.bad_samples} samples were left out of this pass, since they raised exceptions; the last one was "
                    f"{stats.bad_causes[-1][1]}; stats() lists them"
                )
            self._pass.finish()
            raise
        except Exception:
            stats.errors += 1
            raise
        except BaseException:
            # After an interrupt, the same batch is requested again.
            self._index_stream.put_back()
            raise
        finally:
            stats.count(begun)
        stats.batches += 1
        self._num_yielded += 1
        self._pass.yielded = self._num_yielded
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
        warn(message, UserWarning)


# The directories of this package and of torch's loader, whose frames a warning skips.
_OWN = (f"{os.path.dirname(os.path.dirname(__file__))}{os.sep}", f"{os.path.dirname(torch.utils.data.__file__)}{os.sep}")


def warn(message, category=RuntimeWarning):
    """Issues a warning at the line of the program that requested a batch."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
