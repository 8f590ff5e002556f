"""The loader."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, Literal, TypeVar

import torch.utils.data
from torch.utils.data import Dataset, Sampler

from slotline._checks import is_integer
from slotline._slotline import Pool
from slotline.torch._internals import _BaseDataLoaderIter, _DatasetKind
from slotline.torch._iterators import threads
from slotline.torch._iterators.base import BaseIterator, warn
from slotline.torch._iterators.inline import InlineIterator
from slotline.torch._iterators.native import NativeIterator, is_native
from slotline.torch._iterators.processes import ProcessIterator
from slotline.torch._lift.fetch import recognised
from slotline.torch._state.checks import checked
from slotline.torch._state.progress import PassProgress, before_first
from slotline.torch._state.stats import Stats

_T_co = TypeVar("_T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[_T_co]):
    """A ``torch.utils.data.DataLoader`` that loads faster, and can resume in the middle of a pass.

    It takes the same arguments, checks them in the same way, and gives the same batches in the same order. Workers write
    their batches into memory that they share with the loop, which finds its tensors there. A tensor can be kept for as
    long as you want. Its memory is used again when no tensor refers to it any more.

    It has these additional arguments, all of which are keywords:

    worker_method (str):
        ``"multiprocessing"`` for worker processes, ``"thread"`` for threads of this process. Threads start at
        once, share the dataset's memory and need not pickle anything, but only one of them runs Python at a time, unless the
        interpreter has no global lock. Then they are the default, and otherwise processes are. Threads share the default
        generators of random numbers, so they are not seeded: draw from :func:`slotline.rng`. ``get_worker_info().rng`` has
        generators for each thread, with torch 2.10 or later. With ``num_workers=0`` there is neither.
    copy_dataset (bool):
        Whether each thread has a copy of the dataset (by ``copy.deepcopy``, but tensors in shared memory are the same in all
        workers), or all of them have the same. By default, streams are copied. It is an error with processes, which always
        have their copies.
    round_robin (bool):
        Whether worker ``i % num_workers`` makes batch ``i``, as with torch. With ``False``, the worker that has the fewest
        batches left to make is given the next one, so that slow batches are shared; they still come in order. What workers
        draw at random then depends on timing, and a dataset that is a stream is an error. Default: ``True``.
    on_error (str):
        ``"skip"`` leaves samples out that raise an exception, so their batch is smaller; a batch of which none is left does
        not come; and in a stream the next sample takes the place. A generator ends with its error, which is raised, and so is
        an error of ``collate_fn``. If more than half of 1,000 samples in a row are left out, that is a
        :class:`slotline.SampleError`; each worker counts its own. The good samples of a stream come before its error, in a
        smaller batch, unless ``drop_last`` is set; in other datasets, the error is that of its batch. At the end of a pass there is a ``RuntimeWarning`` with
        their number, and :meth:`stats` lists them. Default: ``"raise"``.
    memory_limit (int):
        The most bytes that the batches in use of all worker processes may take together; each worker has an equal part. A
        batch beyond that is an ``OSError``.
    watchdog (float):
        After the loop has waited so many seconds for one batch, there is a ``RuntimeWarning`` that names the worker, or with
        ``in_order=False`` those that are making one.
    affinity (sequence of int):
        The cores for workers, one for each in turn.
    lift (bool):
        Whether the pictures of torchvision's datasets are made natively, with the bits and the random numbers that torchvision
        has for PIL images. :meth:`plan` says which transforms are. Default: ``True``.
    snapshot_every_n_steps (int):
        A worker that reads a stream (an ``IterableDataset``) which has a state sends that state with each n-th of its
        batches. A loader that resumes in between makes the worker read the batches since then again. With 0, no states
        are sent, so the worker reads the stream from its beginning. Default: 1.
    """

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler | Iterable | None = None,
        batch_sampler: Sampler[list] | Iterable[list] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        snapshot_every_n_steps: int = 1,
        worker_method: Literal["multiprocessing", "thread"] | None = None,
        copy_dataset: bool | None = None,
        round_robin: bool = True,
        on_error: Literal["raise", "skip"] = "raise",
        memory_limit: int | None = None,
        watchdog: float | None = None,
        affinity: Sequence[int] | None = None,
        lift: bool = True,
    ) -> None:
        if not is_integer(snapshot_every_n_steps) or snapshot_every_n_steps < 0:
            raise ValueError(f"snapshot_every_n_steps is a number from 0 on, and not {snapshot_every_n_steps!r}")
        if worker_method not in (None, "multiprocessing", "thread"):
            raise ValueError(f"worker_method is 'multiprocessing' or 'thread', and not {worker_method!r}")
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is 'raise' or 'skip', and not {on_error!r}")
        if memory_limit is not None and not (is_integer(memory_limit) and memory_limit > 0):
            raise ValueError(f"memory_limit is a number of bytes, and not {memory_limit!r}")
        if watchdog is not None and (isinstance(watchdog, bool) or not (isinstance(watchdog, Real) and watchdog > 0)):
            raise ValueError(f"watchdog is a number of seconds, and not {watchdog!r}")
        if not isinstance(lift, bool):
            raise ValueError(f"lift is a bool, and not {lift!r}")
        if copy_dataset is not None and not isinstance(copy_dataset, bool):
            raise ValueError(f"copy_dataset option should be a bool, but got {copy_dataset=}")
        if affinity is not None:
            affinity = _cores(affinity)
        # torch's constructor warns of too many workers.
        self.worker_method = worker_method
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if worker_method == "thread" and self.multiprocessing_context is not None:
            raise ValueError("multiprocessing_context is for worker_method='multiprocessing'")
        if copy_dataset is not None and not self._has_threads():
            raise ValueError(
                f"copy_dataset option could only be specified with worker_method='thread', but got {copy_dataset=} and "
                f"{worker_method=}: each worker process has a copy already"
            )
        self.copy_dataset = copy_dataset
        if not round_robin and self._dataset_kind == _DatasetKind.Iterable:
            raise ValueError("round_robin=False is for datasets that are read by index, since each worker reads its own stream")
        self.round_robin = round_robin
        self.on_error = on_error
        self.lift = lift
        self.memory_limit = memory_limit
        self.watchdog = watchdog
        self.affinity = affinity
        self.snapshot_every_n_steps = snapshot_every_n_steps
        # Whether the memory of worker processes is page-locked, though the loop does not ask for it: a `DeviceLoader` does.
        self._pins = False
        # The memory of batches, for all passes.
        self._pool = Pool()
        # How far the latest pass is; an iterator that `state_dict` has made; and the state to resume from.
        self._pass: PassProgress | None = None
        self._early: Any = None
        self._resumed: dict[str, Any] | None = None

    # `Any`, so that a subclass may declare torch's type.
    def __iter__(self) -> BaseIterator | Any:
        for iterator in (self._iterator, self._early):
            if isinstance(iterator, ProcessIterator) and iterator.belongs_to_parent():
                self._iterator = self._early = None
        early, self._early = self._early, None
        return super().__iter__() if early is None else early

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if is_native(self):
            return NativeIterator(self)
        if self.num_workers == 0:
            return InlineIterator(self)
        self.check_worker_number_rationality()
        return threads.ThreadIterator(self) if self._has_threads() else ProcessIterator(self)

    def check_worker_number_rationality(self) -> None:
        if not self._has_threads():
            return super().check_worker_number_rationality()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if cores is not None and self.num_workers > cores:
            warn(
                f"This DataLoader will create {self.num_workers} worker threads, but this process may use {cores} cores: set "
                f"num_workers to {cores} or less, unless the threads mostly wait, such as for files",
                UserWarning,
            )

    def _has_threads(self):
        """Whether workers are threads."""
        if self.worker_method is None:
            return self.multiprocessing_context is None and threads.is_default()
        return self.worker_method == "thread"

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the latest pass, for :meth:`load_state_dict`.

        It is a dict of numbers, texts, lists and dicts, which JSON can hold, except that what ``state_dict`` methods of
        your dataset and your sampler return is in it as it is. If there was no pass yet, it is the state of the first one, which
        has the random numbers that it would draw now.

        A dataset that has the methods ``state_dict`` and ``load_state_dict`` is asked for its state after each batch, in
        each worker, and so are a stream's iterator and a sampler or its iterator. A sampler that has no state is asked for
        its indices again, and the first ones are left out, and so are the first batches of a stream. What torch's samplers
        draw is the same as before, whatever the state of the default generator is by then. So is what samples draw from the
        default generators in worker processes, with the same number of workers; without workers, these generators are the
        program's to save.
        """
        if self._resumed is not None:
            return copy.deepcopy(self._resumed)
        if self._pass is None:
            state = before_first(self)
            if state is not None:
                return state
            self._early = super().__iter__()
        assert self._pass is not None
        return self._pass.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes the next loop resume where a state was taken, with the same dataset, sampler and batch size.

        After a state from the end of a pass, the next loop begins the pass after it; after an empty dict, a new one.
        The number of workers may be another one, unless the dataset is a stream or has a state.

        Raises :class:`slotline.StateError`, a ``ValueError``, if the state is damaged or not one of this class, needs
        another number of workers, or was taken in the middle of a pass with another batch size, another class of sampler,
        or one of torch's samplers with another number of indices. The loader is then unchanged.
        """
        resumed = checked(state_dict, self)
        self._iterator = self._early = self._pass = None
        self._resumed = resumed

    def stats(self) -> dict[str, Any]:
        """Returns what happened in the latest pass so far.

        ``batches``, ``errors`` and ``bad_samples`` are numbers; ``bad_causes`` lists the samples that were left out, the last
        1,000 at most, each as an index (in a stream, ``None``) and an error. After a resume, they count from there. Times are in seconds: ``elapsed`` from the first
        batch that was asked for to the last one that came, ``waited`` of it for the loader, and ``busy`` for each worker.
        While the loop waits for a batch, from another thread, they include the time until now.
        """
        return (Stats(0) if self._pass is None else self._pass.stats).as_dict()

    def plan(self) -> str:
        """Returns what is done natively and what Python does, in lines of text, and why."""
        if self._dataset_kind == _DatasetKind.Iterable:
            return "by Python, since the dataset is a stream"
        if not self.lift:
            return "by Python, since lift=False"
        return "\n".join(recognised(self.dataset).lines)

    def verdict(self) -> str:
        """Returns a sentence on what limited the latest pass, such as the loop, the workers, or one batch.

        If the loop hangs, ask from another thread: the sentence names the worker, and for how long it has been making a batch.
        """
        return (Stats(0) if self._pass is None else self._pass.stats).verdict()

    def __getstate__(self):
        # A copy of the loader in another process has no iterators.
        return {**self.__dict__, "_iterator": None, "_pass": None, "_early": None}


def _cores(affinity):
    cores = list(affinity) if isinstance(affinity, Iterable) and not isinstance(affinity, str) else []
    if not cores or not all(map(is_integer, cores)):
        raise ValueError(f"affinity is a list of cores, such as [0, 1], and not {affinity!r}")
    allowed = os.sched_getaffinity(0)
    if missing := [core for core in cores if core not in allowed]:
        raise ValueError(f"affinity has core {missing[0]!r}, on which this process cannot run: it has {sorted(allowed)}")
    return cores
