"""The entries of a loader's state.

Their meaning is that of torchdata's ``StatefulDataLoader``, and so are the names that both have.
Entries are plain data (numbers, strings, lists, dicts), except for the states that a dataset or
sampler of the program returns.
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
from slotline.torch._internals import _DatasetKind, generator_state, set_generator_state

# The keys, which begin with an underscore where torchdata's do.
NUM_WORKERS = "_num_workers"
BATCH_SIZE = "_batch_size"
# The name of the sampler's class, and its number of indices if that is the same in each pass.
SAMPLER_NAME = "_sampler_name"
SAMPLER_LENGTH = "_sampler_length"
NUM_YIELDED = "_num_yielded"
# The number of batches of indices that are done, including those that raised errors.
SAMPLER_ITER_YIELDED = "_sampler_iter_yielded"
# With ``in_order=False``: the numbers of later batches that are done too.
AHEAD = "_ahead"
FINISHED = "_iterator_finished"
LEN_CALLED = "_IterableDataset_len_called"
BASE_SEED = "_base_seed"
SHARED_SEED = "_shared_seed"
# The states of the loader's generator and of the sampler's, from before the sampler's first draw in
# this pass.
GENERATOR = "_generator"
SAMPLER_GENERATOR = "_sampler_generator"
SAMPLER_STATE = "_sampler_state"
SAMPLER_ITER_STATE = "_sampler_iter_state"
# The number of batches done since the sampler was in that state.
SAMPLER_SINCE = "_sampler_steps_since_state"
# The number of batches of indices drawn; the last ones may not be done.
SAMPLER_DRAWN = "_sampler_drawn"
# The epoch of a DistributedSampler, which determines its order.
SAMPLER_EPOCH = "_sampler_epoch"
LAST_WORKER = "_last_yielded_worker_id"
SNAPSHOT = "_snapshot"
WORKER_SNAPSHOTS = "_worker_snapshots"
DATASET_STATE = "dataset_state"
FETCHER_STATE = "fetcher_state"
DATASET_ITER_STATE = "dataset_iter_state"
FETCHER_ENDED = "fetcher_ended"
# The number of batches since the state of a worker's stream was saved; if that was before the pass,
# the batches of the pass.
SINCE = "_steps_since_snapshot"
# The number of batches that a worker has made in this pass.
STEPS = "_steps"
# The states of a worker's generators in base64, if they were used.
GENERATORS = "_generators"
# The number of passes that the workers had before this one.
PASS_NUMBER = "_pass_number"

_OF_FIXED_LENGTH = (SequentialSampler, RandomSampler, WeightedRandomSampler, SubsetRandomSampler, DistributedSampler)


def is_stateful(value) -> bool:
    """Returns whether ``value`` can save and load a state: ``state_dict()`` without arguments, and
    ``load_state_dict``."""
    state_dict, load = getattr(value, "state_dict", None), getattr(value, "load_state_dict", None)
    # Datasets of other libraries may require arguments that only their own loaders can provide.
    return callable(state_dict) and callable(load) and _takes_nothing(getattr(state_dict, "__func__", state_dict), state_dict)


_known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def _takes_nothing(function, method) -> bool:
    """Returns whether a method can be called without arguments. The answer is cached under
    ``function``, the function of the class, so that all instances share it."""
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
        # A builtin without a signature.
        answer = True
    with contextlib.suppress(TypeError):
        _known[function] = answer
    return answer


def state_of(value):
    """Returns the state of an object, or ``None`` if it has none or raises
    ``NotImplementedError``."""
    try:
        return value.state_dict() if is_stateful(value) else None
    except NotImplementedError:
        return None


def fetcher_state(fetcher, is_stream):
    """Returns the state of a fetcher's dataset, and for a stream also of its iterator."""
    if not is_stream:
        return {FETCHER_STATE: None, DATASET_STATE: state_of(fetcher.dataset)}
    stream = {DATASET_ITER_STATE: state_of(fetcher.dataset_iter), FETCHER_ENDED: fetcher.ended}
    # A dataset that is its own iterator has only one state.
    is_own = fetcher.dataset_iter is fetcher.dataset
    return {FETCHER_STATE: stream, DATASET_STATE: None if is_own else state_of(fetcher.dataset)}


def is_snapshot(state) -> bool:
    """Returns whether ``state``, a stream's ``fetcher_state``, contains anything to resume from."""
    return state[DATASET_STATE] is not None or state[FETCHER_STATE][DATASET_ITER_STATE] is not None


def has_state(fetcher, is_stream) -> bool:
    return is_stateful(fetcher.dataset) or (is_stream and is_stateful(fetcher.dataset_iter))


def load_dataset(dataset, state):
    """Restores the state of a dataset. ``state`` contains the entries of ``fetcher_state``."""
    if state.get(DATASET_STATE) is not None and is_stateful(dataset):
        dataset.load_state_dict(state[DATASET_STATE])
    if state.get(FINISHED):
        # The next pass has a new iterator, but loading an iterator's state may change more than
        # that iterator.
        _load_iterator(lambda: iter(dataset), state)


def is_before_pass(state) -> bool:
    """Returns whether the state of a worker's stream was saved before the pass began."""
    return state[SINCE] == state[STEPS] and not state[FETCHER_STATE][FETCHER_ENDED]


def load_stream(fetcher, state):
    """Makes the fetcher of a stream resume from ``state`` in the middle of a pass."""
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
    """Reads the first ``count`` batches of a stream again and discards them. ``begin`` is called
    before each."""
    if fetcher.ended:
        return
    # Bad samples of the discarded batches do not count for this pass.
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
            # The error was already raised before the state was saved.
            pass
        forget()


def order_of(loader):
    """Returns the entries about what determines the indices of a batch."""
    sampler = loader._index_sampler
    is_batches = type(sampler) is BatchSampler
    inner = sampler.sampler if is_batches else sampler
    # Other samplers' lengths may depend on the epoch or on their state.
    length = len(inner) if type(inner) in _OF_FIXED_LENGTH else None
    return {
        BATCH_SIZE: sampler.batch_size if is_batches else loader.batch_size,
        SAMPLER_NAME: None if loader._dataset_kind == _DatasetKind.Iterable else type(inner).__name__,
        SAMPLER_LENGTH: length,
    }


class Random:
    """The state of a generator, or of none. It is encoded as text only on demand."""

    def __init__(self, generator=None, text=None):
        self._text = text
        self.state = None
        if text is not None:
            self.state = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        elif generator is not None:
            self.state = generator_state(generator)

    def text(self):
        if self._text is None and self.state is not None:
            self._text = base64.b64encode(self.state.numpy().tobytes()).decode()
        return self._text


@contextlib.contextmanager
def undisturbed(generator=None):
    """A context manager that restores torch's default generator, and ``generator`` if given, at its
    end."""
    generators = [torch.default_generator] if generator is None else [torch.default_generator, generator]
    before = [generator_state(each) for each in generators]
    try:
        yield
    finally:
        for each, state in zip(generators, before):
            set_generator_state(each, state)
