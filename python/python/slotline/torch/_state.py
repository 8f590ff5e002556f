"""The state of a loader, from which another one goes on.

The meaning is that of torchdata's ``StatefulDataLoader``, and so are the names of the entries that both have. An entry is
plain (numbers, texts, lists, dicts), except for what a dataset or a sampler of the program gives as its own state.
"""

from __future__ import annotations

import base64
import contextlib
import copy

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _DatasetKind

# The entries, with an underscore where torchdata has one.
NUM_WORKERS = "_num_workers"
BATCH_SIZE = "_batch_size"
# The name of the sampler's class, and its number of indices if that is the same in all passes.
SAMPLER_NAME = "_sampler_name"
SAMPLER_LENGTH = "_sampler_length"
NUM_YIELDED = "_num_yielded"
# How many batches of indices are done with. Of these, some may have been errors.
SAMPLER_ITER_YIELDED = "_sampler_iter_yielded"
# With ``in_order=False``: the numbers of later ones that are done too.
AHEAD = "_ahead"
FINISHED = "_iterator_finished"
LEN_CALLED = "_IterableDataset_len_called"
BASE_SEED = "_base_seed"
SHARED_SEED = "_shared_seed"
# The loader's generator, and what the sampler draws from, before it has drawn anything in this pass.
GENERATOR = "_generator"
SAMPLER_GENERATOR = "_sampler_generator"
SAMPLER_STATE = "_sampler_state"
SAMPLER_ITER_STATE = "_sampler_iter_state"
LAST_WORKER = "_last_yielded_worker_id"
SNAPSHOT = "_snapshot"
WORKER_SNAPSHOTS = "_worker_snapshots"
DATASET_STATE = "dataset_state"
FETCHER_STATE = "fetcher_state"
DATASET_ITER_STATE = "dataset_iter_state"
FETCHER_ENDED = "fetcher_ended"
# How many batches a worker's stream has given since its state was taken.
SINCE = "_steps_since_snapshot"

_OF_FIXED_LENGTH = (SequentialSampler, RandomSampler, WeightedRandomSampler, SubsetRandomSampler, DistributedSampler)


def is_stateful(value) -> bool:
    """Whether ``value`` has a state that it can be given again."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def state_of(value):
    return value.state_dict() if is_stateful(value) else None


def fetcher_state(fetcher, is_stream):
    """Returns the state of the dataset of a fetcher, and for a stream that of its iterator."""
    if not is_stream:
        return {FETCHER_STATE: None, DATASET_STATE: state_of(fetcher.dataset)}
    stream = {DATASET_ITER_STATE: state_of(fetcher.dataset_iter), FETCHER_ENDED: fetcher.ended}
    # A dataset that is its own iterator has one state.
    is_own = fetcher.dataset_iter is fetcher.dataset
    return {FETCHER_STATE: stream, DATASET_STATE: None if is_own else state_of(fetcher.dataset)}


def has_state(fetcher, is_stream) -> bool:
    return is_stateful(fetcher.dataset) or (is_stream and is_stateful(fetcher.dataset_iter))


def load_dataset(dataset, state):
    """Gives a dataset the state that it had. ``state`` is what ``fetcher_state`` gave, perhaps with other entries."""
    if state.get(DATASET_STATE) is not None and is_stateful(dataset):
        dataset.load_state_dict(state[DATASET_STATE])
    if state.get(FINISHED):
        # The next pass has an iterator of its own, but loading a state may have changed more than an iterator.
        _load_iterator(lambda: iter(dataset), state)


def load_stream(fetcher, state):
    """Has the fetcher of a stream go on where ``state`` was taken, within a pass."""
    _load_iterator(lambda: fetcher.dataset_iter, state)
    if state.get(FETCHER_STATE) is not None:
        fetcher.ended = state[FETCHER_STATE][FETCHER_ENDED]


def _load_iterator(iterator, state):
    stream = state.get(FETCHER_STATE)
    if stream is not None and stream[DATASET_ITER_STATE] is not None:
        iterator = iterator()
        if is_stateful(iterator):
            iterator.load_state_dict(stream[DATASET_ITER_STATE])


def skip(fetcher, index, count):
    """Reads so many batches of a stream for nothing."""
    for _ in range(count):
        try:
            fetcher.fetch(index)
        except StopIteration:
            fetcher.ended = True
        except Exception:
            # It was the error of a batch that is done with.
            pass


def order_of(loader):
    """Returns the entries that say what decides about the indices of a batch."""
    sampler = loader._index_sampler
    is_batches = type(sampler) is BatchSampler
    inner = sampler.sampler if is_batches else sampler
    # The length of other samplers may depend on the number of the pass, or on a state that they have.
    length = len(inner) if type(inner) in _OF_FIXED_LENGTH else None
    return {
        BATCH_SIZE: sampler.batch_size if is_batches else loader.batch_size,
        SAMPLER_NAME: None if loader._dataset_kind == _DatasetKind.Iterable else type(inner).__name__,
        SAMPLER_LENGTH: length,
    }


def _check_order(state, order):
    """Raises a ``ValueError`` if a loader with ``order`` would leave out other samples than those that are done."""
    size, sampler, length = (state.get(key, order[key]) for key in order)
    if size != order[BATCH_SIZE]:
        raise ValueError(
            f"the state was taken with batch_size={size}, but the loader has batch_size={order[BATCH_SIZE]}: "
            "finish the pass with the same batches"
        )
    if sampler != order[SAMPLER_NAME]:
        was, now = (name or "an IterableDataset" for name in (sampler, order[SAMPLER_NAME]))
        raise ValueError(
            f"the state was taken with {was}, but the loader has {now}: finish the pass with the same sampler and kind of "
            "dataset"
        )
    if length != order[SAMPLER_LENGTH]:
        raise ValueError(
            f"the state was taken with a {sampler} of {length} indices, but the loader's has {order[SAMPLER_LENGTH]}: "
            "finish the pass with the same dataset and sampler"
        )


def checked(state, loader):
    """Returns a copy of a state, or ``None`` if it is empty, if the loader can go on with it.

    Raises a ``TypeError`` or a ``ValueError`` if it cannot.
    """
    if not isinstance(state, dict):
        raise TypeError(f"the state of a loader is a dict, and not {type(state).__name__}")
    if not state:
        return None
    missing = [key for key in (NUM_WORKERS, NUM_YIELDED, SAMPLER_ITER_YIELDED, FINISHED, BASE_SEED) if key not in state]
    if missing:
        raise ValueError(f"this is not a state of slotline's DataLoader: it has no {missing[0]!r}")
    if not state[FINISHED]:
        _check_order(state, order_of(loader))
    count = state[NUM_WORKERS]
    if count != loader.num_workers and not state[FINISHED]:
        snapshots = state[SNAPSHOT][WORKER_SNAPSHOTS].values() if count > 0 else [state]
        if loader._dataset_kind == _DatasetKind.Iterable or any(part.get(DATASET_STATE) for part in snapshots):
            raise ValueError(
                f"the state was taken with num_workers={count}, and its dataset has a state in each of them, so a loader "
                f"with num_workers={loader.num_workers} cannot go on: finish the pass with as many workers"
            )
    return copy.deepcopy(state)


class Random:
    """The state of a generator, or nothing if there is none. It becomes a text only if somebody asks for that."""

    def __init__(self, generator=None, text=None):
        self._text = text
        self.state = None
        if text is not None:
            self.state = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        elif generator is not None:
            self.state = generator.get_state()

    def text(self):
        if self._text is None and self.state is not None:
            self._text = base64.b64encode(self.state.numpy().tobytes()).decode()
        return self._text


@contextlib.contextmanager
def undisturbed():
    """Leaves torch's default generator as it was."""
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)
