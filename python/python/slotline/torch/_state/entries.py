"""The state of a loader, from which another one resumes.

The meaning is that of torchdata's ``StatefulDataLoader``, and so are the names of the entries that both have. An entry is
plain (numbers, texts, lists, dicts), except for what a dataset or a sampler of the program gives as its own state.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import weakref
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from slotline._errors import StateError
from slotline.torch._internals import _DatasetKind

# The entries, with an underscore where torchdata has one.
NUM_WORKERS = "_num_workers"
BATCH_SIZE = "_batch_size"
# The name of the sampler's class, and its number of indices if that is the same in all passes.
SAMPLER_NAME = "_sampler_name"
SAMPLER_LENGTH = "_sampler_length"
NUM_YIELDED = "_num_yielded"
# How many batches of indices are done. Some of them may have been errors.
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
# How many batches were done with since the sampler had that state.
SAMPLER_SINCE = "_sampler_steps_since_state"
# How many batches of indices were drawn, of which the last ones may not be done.
SAMPLER_DRAWN = "_sampler_drawn"
# The epoch of a DistributedSampler, which decides about its order.
SAMPLER_EPOCH = "_sampler_epoch"
LAST_WORKER = "_last_yielded_worker_id"
SNAPSHOT = "_snapshot"
WORKER_SNAPSHOTS = "_worker_snapshots"
DATASET_STATE = "dataset_state"
FETCHER_STATE = "fetcher_state"
DATASET_ITER_STATE = "dataset_iter_state"
FETCHER_ENDED = "fetcher_ended"
# How many batches a worker's stream has given since its state was taken; as many as in the pass, if that was before the pass.
SINCE = "_steps_since_snapshot"
# How many batches a worker has made in this pass.
STEPS = "_steps"
# The states of a worker's generators, in base64, if they were used.
GENERATORS = "_generators"
# How many passes the workers had before this one.
PASS_NUMBER = "_pass_number"

_OF_FIXED_LENGTH = (SequentialSampler, RandomSampler, WeightedRandomSampler, SubsetRandomSampler, DistributedSampler)


def is_stateful(value) -> bool:
    """Whether ``value`` has a state that it can be given again: methods of these names that take nothing and the state."""
    state_dict, load = getattr(value, "state_dict", None), getattr(value, "load_state_dict", None)
    # Those of other libraries' datasets may want more, which only their own loaders know.
    return callable(state_dict) and callable(load) and _takes_nothing(getattr(state_dict, "__func__", state_dict), state_dict)


_known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def _takes_nothing(function, method) -> bool:
    """Whether a method can be called without arguments. ``function`` is the same for all objects of a class."""
    try:
        return _known[function]
    except (KeyError, TypeError):
        pass
    try:
        inspect.signature(method).bind()
        answer = True
    except TypeError:
        answer = False
    except ValueError:
        # It does not say what it takes.
        answer = True
    with contextlib.suppress(TypeError):
        _known[function] = answer
    return answer


def state_of(value):
    """Returns the state of an object, or ``None`` if it has none, or says that it has none at present."""
    try:
        return value.state_dict() if is_stateful(value) else None
    except NotImplementedError:
        return None


def fetcher_state(fetcher, is_stream):
    """Returns the state of the dataset of a fetcher, and for a stream that of its iterator."""
    if not is_stream:
        return {FETCHER_STATE: None, DATASET_STATE: state_of(fetcher.dataset)}
    stream = {DATASET_ITER_STATE: state_of(fetcher.dataset_iter), FETCHER_ENDED: fetcher.ended}
    # A dataset that is its own iterator has one state.
    is_own = fetcher.dataset_iter is fetcher.dataset
    return {FETCHER_STATE: stream, DATASET_STATE: None if is_own else state_of(fetcher.dataset)}


def is_snapshot(state) -> bool:
    """Whether ``state``, which ``fetcher_state`` gave for a stream, has anything to resume from."""
    return state[DATASET_STATE] is not None or state[FETCHER_STATE][DATASET_ITER_STATE] is not None


def has_state(fetcher, is_stream) -> bool:
    return is_stateful(fetcher.dataset) or (is_stream and is_stateful(fetcher.dataset_iter))


def load_dataset(dataset, state):
    """Gives a dataset the state that it had. ``state`` is what ``fetcher_state`` gave, perhaps with other entries."""
    if state.get(DATASET_STATE) is not None and is_stateful(dataset):
        dataset.load_state_dict(state[DATASET_STATE])
    if state.get(FINISHED):
        # The next pass has an iterator of its own, but loading a state may have changed more than an iterator.
        _load_iterator(lambda: iter(dataset), state)


def is_before_pass(state) -> bool:
    """Whether the state of a worker's stream was taken before the pass began."""
    return state[SINCE] == state[STEPS] and not state[FETCHER_STATE][FETCHER_ENDED]


def load_stream(fetcher, state):
    """Makes the fetcher of a stream resume from ``state``, within a pass."""
    _load_iterator(lambda: fetcher.dataset_iter, state)
    if state.get(FETCHER_STATE) is not None:
        fetcher.ended = state[FETCHER_STATE][FETCHER_ENDED]


def _load_iterator(iterator, state):
    stream = state.get(FETCHER_STATE)
    if stream is not None and stream[DATASET_ITER_STATE] is not None:
        iterator = iterator()
        if is_stateful(iterator):
            iterator.load_state_dict(stream[DATASET_ITER_STATE])


def skip(fetcher, index, count, begin):
    """Reads the first ``count`` batches of a stream again, and leaves them out. ``begin`` is called before each."""
    if fetcher.ended:
        return
    # Samples that were left out there are not those of this pass.
    forget = getattr(fetcher, "take_bad", list)
    for number in range(count):
        begin()
        try:
            fetcher.fetch(index)
        except StopIteration:
            raise StateError(
                f"the state was taken {count} batches after the beginning of a stream or its own state, but the stream ended "
                f"after {number}: resume with the same dataset"
            ) from None
        except Exception:
            # It was the error of a batch that is done with.
            pass
        forget()


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


class Random:
    """The state of a generator, or nothing if there is none. It is encoded as text only when that is needed."""

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
def undisturbed(generator=None):
    """Leaves torch's default generator as it was, and ``generator``, if there is one."""
    generators = [torch.default_generator] if generator is None else [torch.default_generator, generator]
    before = [each.get_state() for each in generators]
    try:
        yield
    finally:
        for each, state in zip(generators, before):
            each.set_state(state)
