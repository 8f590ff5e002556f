"""The progress of a pass over a dataset, and the state of it."""

from __future__ import annotations

import base64
import copy
import inspect
from types import SimpleNamespace

import torch
from torch.utils.data import IterDataPipe

from slotline.torch._internals import _DatasetKind
from slotline.torch._state import entries
from slotline.torch._state.indices import IndexStream, source_of
from slotline.torch._state.stats import Stats


def before_first(loader):
    """Returns the state of a loader's first pass as if it began now, or ``None`` if the pass must
    begin first.

    It draws no random numbers and starts no workers, so that changes before the pass still take
    effect: the program or a training framework may synchronise generators or replace a batch
    sampler's sampler.
    """
    is_iterable = loader._dataset_kind == _DatasetKind.Iterable
    if isinstance(loader.dataset, IterDataPipe) or (is_iterable and loader.num_workers == 0):
        # A datapipe has its own seed, and a stream in the loop's thread has an iterator whose state
        # is needed.
        return None
    if source_of(loader._index_sampler) is not None and not inspect.isgeneratorfunction(type(loader._index_sampler).__iter__):
        # The sampler may draw random numbers when its iterator is created.
        return None
    with entries.undisturbed(loader.generator):
        iterator = SimpleNamespace(
            index_stream_kind=IndexStream,
            _index_sampler=loader._index_sampler,
            _num_workers=loader.num_workers,
            _is_iterable=is_iterable,
            _IterableDataset_len_called=loader._IterableDataset_len_called,
            _base_seed=torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item(),
            _pass_number=0,
        )
        first = PassProgress(iterator, loader, None, None, None)
        if loader.num_workers == 0 and entries.is_stateful(loader.dataset):
            first.fetcher = SimpleNamespace(dataset=loader.dataset)
        return first.state_dict()


class PassProgress:
    """The progress of a pass. It can outlive the iterator of the pass, so it has no reference to the
    iterator."""

    def __init__(self, iterator, loader, shared_seed, resumed, before):
        """``resumed`` is the state to resume from. ``before`` is the previous pass of the same
        workers. Each may be ``None``."""
        self.index_stream = iterator.index_stream_kind(iterator._index_sampler, loader.generator, resumed, iterator._num_workers > 0)
        self.stats = Stats(iterator._num_workers)
        self.yielded = 0
        self.is_finished = False
        self.last_worker = -1
        self.workers = [WorkerSnapshot(iterator._is_iterable) for _ in range(iterator._num_workers)]
        # The fetcher whose dataset's state is saved, if the loop itself reads a dataset with a
        # state.
        self.fetcher = None
        self._is_stream = iterator._is_iterable
        self._sampler = iterator._index_sampler
        self._number = iterator._pass_number
        self._len_called = iterator._IterableDataset_len_called
        self._order = entries.order_of(loader)
        self._seeds = {entries.BASE_SEED: iterator._base_seed, entries.SHARED_SEED: shared_seed}
        self._loaders = loader.generator
        self._generator = entries.Random(loader.generator)
        if before is not None:
            for worker, same in zip(self.workers, before.workers):
                worker.follow(same.state_dict())
        if resumed is not None:
            snapshots = worker_states(resumed, loader)
            if not resumed[entries.FINISHED]:
                self.yielded = resumed[entries.NUM_YIELDED]
                self._len_called = resumed[entries.LEN_CALLED]
                if snapshots is not None:
                    self.last_worker = resumed.get(entries.LAST_WORKER, -1)
            for worker, snapshot in zip(self.workers, snapshots or ()):
                (worker.follow if resumed[entries.FINISHED] else worker.load)(snapshot)

    @property
    def passed(self):
        """The number of batches that are done, including those that raised errors."""
        return self.yielded if self._is_stream else self.index_stream.done + len(self.index_stream.ahead)

    def length(self, dataset):
        """Returns the number of batches of the whole pass."""
        if not self._is_stream:
            return len(self._sampler)
        try:
            length = len(dataset)
        except NotImplementedError as error:
            raise TypeError(f"the dataset has no length: {error!r}") from None
        size = self._order[entries.BATCH_SIZE]
        if size is None:
            return length
        return length // size if self._sampler.drop_last else -(-length // size)

    def finish(self):
        self.is_finished = True
        self.index_stream.finish_all()
        self._generator = entries.Random(self._loaders)

    def state_dict(self):
        state = {
            entries.NUM_WORKERS: len(self.workers),
            **self._order,
            entries.NUM_YIELDED: self.yielded,
            entries.FINISHED: self.is_finished,
            entries.LEN_CALLED: self._len_called,
            **self._seeds,
            entries.PASS_NUMBER: self._number,
            entries.GENERATOR: self._generator.text(),
            **self.index_stream.state_dict(self.is_finished),
        }
        if self.workers:
            state[entries.LAST_WORKER] = self.last_worker
            snapshots = {f"worker_{k}": worker.state_dict() for k, worker in enumerate(self.workers)}
            state[entries.SNAPSHOT] = {entries.WORKER_SNAPSHOTS: snapshots}
        elif self.fetcher is not None:
            state.update(copy.deepcopy(entries.fetcher_state(self.fetcher, self._is_stream)))
        else:
            state.update({entries.FETCHER_STATE: None, entries.DATASET_STATE: None})
        return state


def worker_states(resumed, loader):
    """Returns the states that the workers resume from, or ``None``."""
    if resumed[entries.NUM_WORKERS] != loader.num_workers or loader.num_workers == 0:
        return None
    if resumed[entries.FINISHED] and not loader.persistent_workers:
        # The pass's workers have ended, and so have their states.
        return None
    snapshots = resumed[entries.SNAPSHOT][entries.WORKER_SNAPSHOTS]
    return [snapshots[f"worker_{k}"] for k in range(loader.num_workers)]


class WorkerSnapshot:
    """The part of a state about one worker."""

    def __init__(self, is_stream):
        # The worker's last `fetcher_state`, from this pass or the one before, and the number of
        # batches received since.
        stream = {entries.DATASET_ITER_STATE: None, entries.FETCHER_ENDED: False} if is_stream else None
        self.state = {entries.FETCHER_STATE: stream, entries.DATASET_STATE: None}
        self.since = 0
        self.steps = 0
        self.is_ended = False
        # The port that receives the states of the worker's generators, and their states in the
        # state that was loaded.
        self.port = None
        self._generators = None

    def load(self, snapshot):
        self.state = {key: snapshot[key] for key in self.state}
        self.since = snapshot[entries.SINCE]
        self.steps = snapshot[entries.STEPS]
        self._generators = snapshot[entries.GENERATORS]

    def follow(self, snapshot):
        """Begins the pass that follows one that ended with this state."""
        self.begin({key: snapshot[key] for key in self.state})
        self._generators = snapshot[entries.GENERATORS]

    def begin(self, state):
        """Begins the pass with a state from the end of the previous pass."""
        stream = state[entries.FETCHER_STATE]
        self.state = {**state, entries.FETCHER_STATE: stream and {**stream, entries.FETCHER_ENDED: False}}

    def release_port(self):
        """Saves the generators' states that the port has received, and releases the port and its
        memory."""
        self._generators, self.port = self._generators_now(), None

    def _generators_now(self):
        # Another thread may release it meanwhile.
        port = self.port
        packed = None if port is None else port.generators
        return self._generators if packed is None else base64.b64encode(packed).decode()

    def receive(self, state):
        """Records that a batch was received, with the worker's state after it unless ``state`` is
        ``None``."""
        self.steps += 1
        if state is None:
            self.since += 1
        else:
            self.state, self.since = state, 0

    def state_dict(self):
        # Usually there is nothing to copy, and the state may be requested after each batch.
        state = {key: None if value is None else copy.deepcopy(value) for key, value in self.state.items()}
        state[entries.SINCE] = self.since
        state[entries.STEPS] = self.steps
        state[entries.GENERATORS] = self._generators_now()
        if self.is_ended:
            state[entries.FETCHER_STATE][entries.FETCHER_ENDED] = True
        return state
