"""The ``DataLoader``, its arguments and its state."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, Literal, TypeVar

import torch.utils.data
from torch.utils.data import Dataset, Sampler

from slotline._checks import is_integer
from slotline._datasets import Batches, changes_by_epoch
from slotline._slotline import Pool
from slotline.torch._internals import _BaseDataLoaderIter, _DatasetKind
from slotline.torch._iterators import engine, threads
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
    """A ``torch.utils.data.DataLoader`` that loads faster and can resume in the middle of a pass.

    It takes the same arguments, checks them in the same way, and returns the same batches in the
    same order. Workers write their batches into memory that they share with the loop, where its
    tensors are. A tensor can be kept for as long as needed; its memory is reused once no tensor
    refers to it.

    It has these additional keyword arguments:

    worker_method (str):
        ``"multiprocessing"`` for worker processes, or ``"thread"`` for threads of this process.
        Threads start at once, share the dataset's memory and need no pickling, but only one of them
        runs Python at a time, unless the interpreter has no global lock. Default: threads on such
        an interpreter, otherwise processes. Threads share the default random generators, which are
        therefore not seeded for each worker: draw from :func:`slotline.rng`, or from
        ``get_worker_info().rng``, which torch 2.10 does not have. With ``num_workers=0`` the
        argument has no effect.
    copy_dataset (bool):
        Whether each thread has a copy of the dataset (by ``copy.deepcopy``, except that tensors in
        shared memory stay shared), or all threads share one. By default, only streams are copied.
        It is an error with processes, which always have copies.
    round_robin (bool):
        Whether worker ``i % num_workers`` makes batch ``i``, as with torch. With ``False``, the
        next batch goes to the worker with the fewest unfinished batches, so that slow batches delay
        the others less; batches still come in order. Random draws in the workers then depend on
        timing, and a stream as the dataset is an error. Default: ``True``.
    on_error (str):
        ``"skip"`` leaves out samples that raise an exception, so that their batch is smaller; an
        empty batch is not returned. In a stream, the next sample takes the place of the failed one.
        An error in a generator ends it and is raised, and so is an error of ``collate_fn``. If more
        than half of 1,000 samples in a row are left out, as each worker counts for itself, a
        :class:`slotline.SampleError` is raised. In a stream it comes after the good samples before
        it, which form a smaller batch unless ``drop_last`` is set; in other datasets it replaces
        its batch. At the end of a pass, a ``RuntimeWarning`` says how many samples were left out,
        and :meth:`stats` lists them. Default: ``"raise"``.
    memory_limit (int):
        The most bytes that the batches in use of all worker processes may take together; each
        worker has an equal share. A batch beyond it raises an ``OSError``.
    watchdog (float):
        The number of seconds that the loop waits for one batch before a ``RuntimeWarning`` names
        the worker that makes it, or with ``in_order=False`` all workers that are making one.
    affinity (sequence of int):
        The CPU cores for the workers, assigned in turn.
    lift (bool):
        Whether to decode and transform the pictures of torchvision's datasets natively, with the
        same results and random numbers as torchvision has for PIL images. :meth:`plan` lists the
        transforms that are supported. Default: ``True``.
    snapshot_every_n_steps (int):
        For an ``IterableDataset`` with a state: each worker sends the state with every n-th of its
        batches. After a resume between two states, the worker reads the batches since the earlier
        one again. With 0, no states are sent, and the worker reads the stream from the start.
        Default: 1.
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
        if isinstance(dataset, Batches):
            raise ValueError("only slotline.Loader makes the batches of batch_by_tokens and bucket; this loader takes their .dataset")
        if changes_by_epoch(dataset):
            raise ValueError("only slotline.Loader follows the schedule of a mixture; pass a mixture with weights to this loader")
        if not isinstance(lift, bool):
            raise ValueError(f"lift is a bool, and not {lift!r}")
        if copy_dataset is not None and not isinstance(copy_dataset, bool):
            raise ValueError(f"copy_dataset option should be a bool, but got {copy_dataset=}")
        if affinity is not None:
            affinity = _cores(affinity)
        # Set first: torch's constructor warns of too many workers, which depends on the method.
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
        # Whether to page-lock the memory of worker processes for a `DeviceLoader`, although
        # `pin_memory` is not set.
        self._pins = False
        # The memory pool for the batches of all passes.
        self._pool = Pool()
        # The engine that loads a dataset of slotline, with its options, once a pass has begun.
        self._engine: tuple[dict[str, Any], Any] | None = None
        # The progress of the latest pass; an iterator created by `state_dict`; the state to resume
        # from.
        self._pass: PassProgress | None = None
        self._early: Any = None
        self._resumed: dict[str, Any] | None = None

    # Returns `Any` so that a subclass may declare torch's type.
    def __iter__(self) -> BaseIterator | Any:
        for iterator in (self._iterator, self._early):
            if isinstance(iterator, ProcessIterator) and iterator.belongs_to_parent():
                self._iterator = self._early = None
        early, self._early = self._early, None
        return super().__iter__() if early is None else early

    def _get_iterator(self) -> _BaseDataLoaderIter:
        dataset = engine.dataset_of(self)
        if dataset is not None and engine.refusal(self, dataset) is None:
            return engine.EngineIterator(self)
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
        """Returns whether workers are threads."""
        if self.worker_method is None:
            return self.multiprocessing_context is None and threads.is_default()
        return self.worker_method == "thread"

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the latest pass, for :meth:`load_state_dict`.

        It is a dict of numbers, strings, lists and dicts that JSON can represent, apart from the
        results of ``state_dict`` methods of your dataset and sampler, which it contains unchanged.
        Before the first pass, it is the state of that pass, with the random numbers that the pass
        would draw at this time.

        If a dataset has the methods ``state_dict`` and ``load_state_dict``, each worker saves its
        state after each batch. The same holds for a stream's iterator, and in this process for a
        sampler or its iterator. After a resume, a sampler without a state is iterated again up to
        the position, and so is a stream. torch's samplers draw the same numbers again, whatever the
        state of the default generator. So do samples that use the default generators in worker
        processes, with the same number of workers. Without workers, saving the default generators
        is up to the program.
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
        """Makes the next loop resume where a state was saved, with the same dataset, sampler and
        batch size.

        After a state from the end of a pass, the next loop is the following pass; after an empty
        dict, a new pass. The number of workers may differ, unless the dataset is a stream or has a
        state.

        Raises :class:`slotline.StateError`, a ``ValueError``, if the state is damaged or not from
        this class, if it needs another number of workers, or if it was saved in the middle of a
        pass with another batch size, another class of sampler, or a torch sampler with another
        number of indices. The loader is then unchanged.
        """
        resumed = checked(state_dict, self)
        self._iterator = self._early = self._pass = None
        self._resumed = resumed

    def stats(self) -> dict[str, Any]:
        """Returns statistics of the latest pass so far.

        ``batches``, ``errors`` and ``bad_samples`` are counts. ``bad_causes`` lists the samples
        that were left out, at most the last 1,000, each as its index (``None`` in a stream) and its
        error. After a resume, counting begins anew. Times are in seconds: ``elapsed`` from the
        first request for a batch to the last delivery, ``waited`` the part of it that the loop
        waited for the loader, and ``busy`` for each worker. If another thread calls this while the
        loop waits for a batch, the times include that wait so far.
        """
        return (Stats(0) if self._pass is None else self._pass.stats).as_dict()

    def plan(self) -> str:
        """Returns lines of text that say which steps run natively, which run in Python, and why."""
        dataset = engine.dataset_of(self)
        if dataset is not None:
            return engine.plan(self, dataset)
        if self._dataset_kind == _DatasetKind.Iterable:
            return "by Python, since the dataset is a stream"
        if not self.lift:
            return "by Python, since lift=False"
        return "\n".join(recognised(self.dataset).lines)

    def verdict(self) -> str:
        """Returns one sentence about what limited the speed of the latest pass, such as the loop,
        the workers, or one batch.

        If the loop hangs, call it from another thread: it names the worker, and says how long the
        worker has been making its batch.
        """
        return (Stats(0) if self._pass is None else self._pass.stats).verdict()

    def __getstate__(self):
        # An unpickled or copied loader has no iterators.
        return {**self.__dict__, "_iterator": None, "_pass": None, "_early": None, "_engine": None}


def _cores(affinity):
    cores = list(affinity) if isinstance(affinity, Iterable) and not isinstance(affinity, str) else []
    if not cores or not all(map(is_integer, cores)):
        raise ValueError(f"affinity is a list of cores, such as [0, 1], and not {affinity!r}")
    allowed = os.sched_getaffinity(0)
    if missing := [core for core in cores if core not in allowed]:
        raise ValueError(f"affinity has core {missing[0]!r}, on which this process cannot run: it has {sorted(allowed)}")
    return cores
