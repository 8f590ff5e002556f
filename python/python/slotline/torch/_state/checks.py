"""Checks of a state before a loader resumes from it.

They check that each field is valid, that the fields are consistent with each other, and that the
state fits the loader.
"""

from __future__ import annotations

import base64
import copy

import torch
from torch.utils.data import IterDataPipe

from slotline._checks import ANYTHING, COUNT, COUNTS, DICT, FLAG, TEXT, Kind, check_fields, integer, nullable, wrong
from slotline._errors import StateError
from slotline.torch._internals import _DatasetKind
from slotline.torch._state import entries
from slotline.torch._state.generators import is_packed
from slotline.torch._state.indices import IndexStream


def _is_random(text) -> bool:
    try:
        state = bytearray(base64.b64decode(text, validate=True))
        torch.Generator().set_state(torch.frombuffer(state, dtype=torch.uint8))
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _is_generators(text) -> bool:
    try:
        return is_packed(base64.b64decode(text, validate=True))
    except (TypeError, ValueError):
        return False


_RANDOM = Kind(_is_random, "the state of a generator in base64")
_GENERATORS = Kind(_is_generators, "the states of a worker's generators in base64")
_LOADER = {
    entries.NUM_WORKERS: COUNT,
    entries.BATCH_SIZE: nullable(integer(1, (1 << 63) - 1)),
    entries.SAMPLER_NAME: nullable(TEXT),
    entries.SAMPLER_LENGTH: nullable(COUNT),
    entries.NUM_YIELDED: COUNT,
    entries.FINISHED: FLAG,
    entries.LEN_CALLED: nullable(COUNT),
    entries.BASE_SEED: COUNT,
    entries.SHARED_SEED: nullable(COUNT),
    entries.GENERATOR: nullable(_RANDOM),
    entries.SAMPLER_GENERATOR: nullable(_RANDOM),
    entries.SAMPLER_ITER_YIELDED: COUNT,
    entries.SAMPLER_DRAWN: COUNT,
    entries.SAMPLER_SINCE: COUNT,
    entries.PASS_NUMBER: COUNT,
}
_OPTIONAL = {
    entries.AHEAD: COUNTS,
    entries.SAMPLER_EPOCH: COUNT,
}
# The fields of a reader of the dataset: the loop, or a worker.
_FETCHER = {entries.FETCHER_STATE: nullable(DICT), entries.DATASET_STATE: ANYTHING}
_WORKER = {**_FETCHER, entries.SINCE: COUNT, entries.STEPS: COUNT, entries.GENERATORS: nullable(_GENERATORS)}
_STREAM = {entries.DATASET_ITER_STATE: ANYTHING, entries.FETCHER_ENDED: FLAG}


def checked(state, loader):
    """Returns a copy of a state if the loader can resume from it; ``None`` if the state is empty.

    Raises a ``TypeError`` or a :class:`StateError` if the loader cannot resume from it.
    """
    if not isinstance(state, dict):
        raise TypeError(f"the state of a loader is a dict, and not {type(state).__name__}")
    if not state:
        return None
    check_fields(state, _LOADER)
    check_fields(state, {name: kind for name, kind in _OPTIONAL.items() if name in state})
    _check_workers(state)
    _check_counts(state)
    if not state[entries.FINISHED]:
        _check_order(state, entries.order_of(loader))
        _check_length(state, loader)
        _check_streams(state, loader)
        _check_num_workers(state, loader)
    _check_randomness(state, loader)
    return copy.deepcopy(state)


def _parts(state):
    """Returns the fields of each reader of the dataset, by their path in the state."""
    if state[entries.NUM_WORKERS] == 0:
        return {"": state}
    workers = state[entries.SNAPSHOT][entries.WORKER_SNAPSHOTS]
    return {f"{entries.SNAPSHOT}.{entries.WORKER_SNAPSHOTS}.{name}.": part for name, part in workers.items()}


def _check_workers(state):
    count = state[entries.NUM_WORKERS]
    if count > 0:
        check_fields(state, {entries.SNAPSHOT: DICT, entries.LAST_WORKER: integer(-1, count - 1)})
        check_fields(state[entries.SNAPSHOT], {entries.WORKER_SNAPSHOTS: DICT}, f"{entries.SNAPSHOT}.")
        workers, path = state[entries.SNAPSHOT][entries.WORKER_SNAPSHOTS], f"{entries.SNAPSHOT}.{entries.WORKER_SNAPSHOTS}"
        if len(workers) != count:
            raise wrong(entries.NUM_WORKERS, count, f"{path!r} has {len(workers)} workers")
        check_fields(workers, {f"worker_{k}": DICT for k in range(count)}, f"{path}.")
    for path, part in _parts(state).items():
        check_fields(part, _WORKER if count > 0 else _FETCHER, path)
        if part[entries.FETCHER_STATE] is not None:
            check_fields(part[entries.FETCHER_STATE], _STREAM, f"{path}{entries.FETCHER_STATE}.")


def _check_counts(state):
    """Checks counts against the number of batches of indices that are done."""
    first = state[entries.SAMPLER_ITER_YIELDED]
    ahead = state.get(entries.AHEAD, [])
    if any(number <= first for number in ahead):
        raise wrong(entries.AHEAD, ahead, f"all batches up to number {first} are done")
    done = first + len(ahead)
    counts = [(name, state[name]) for name in (entries.NUM_YIELDED, entries.SAMPLER_SINCE)]
    if state[entries.NUM_WORKERS] > 0:
        counts += [(path + entries.SINCE, part[entries.SINCE]) for path, part in _parts(state).items()]
    for name, count in counts:
        if count > done:
            raise wrong(name, count, f"only {done} batches are done")
    if state[entries.SAMPLER_DRAWN] < first:
        raise wrong(entries.SAMPLER_DRAWN, state[entries.SAMPLER_DRAWN], f"{first} batches are done")


def _check_order(state, order):
    """Checks that the state and the loader agree about what determines the indices, so that exactly
    the finished samples are skipped."""
    size, sampler, length = (state[key] for key in order)
    if size != order[entries.BATCH_SIZE]:
        raise StateError(
            f"the state was taken with batch_size={size}, but the loader has batch_size={order[entries.BATCH_SIZE]}: "
            "finish the pass with the same batches"
        )
    if sampler != order[entries.SAMPLER_NAME]:
        was, now = (name or "an IterableDataset" for name in (sampler, order[entries.SAMPLER_NAME]))
        raise StateError(
            f"the state was taken with {was}, but the loader has {now}: finish the pass with the same sampler and kind of "
            "dataset"
        )
    if length != order[entries.SAMPLER_LENGTH]:
        raise StateError(
            f"the state was taken with a {sampler} of {length} indices, but the loader's has {order[entries.SAMPLER_LENGTH]}: "
            "finish the pass with the same dataset and sampler"
        )


def _check_length(state, loader):
    """Checks counts against the number of batches in a pass. For the program's own samplers, that
    is done while they are iterated."""
    if state[entries.SAMPLER_LENGTH] is None:
        return
    total = len(loader._index_sampler)
    if state[entries.SAMPLER_ITER_YIELDED] > total:
        raise wrong(entries.SAMPLER_ITER_YIELDED, state[entries.SAMPLER_ITER_YIELDED], f"a pass has {total} batches")
    ahead = state.get(entries.AHEAD, [])
    if ahead and max(ahead) >= total:
        raise wrong(entries.AHEAD, ahead, f"a pass has {total} batches")


def _check_streams(state, loader):
    is_stream = loader._dataset_kind == _DatasetKind.Iterable
    # Without workers, only a dataset or iterator with a state has the entry.
    has_entry = is_stream and (state[entries.NUM_WORKERS] > 0 or entries.is_stateful(loader.dataset))
    for path, part in _parts(state).items():
        if has_entry and part[entries.FETCHER_STATE] is None:
            raise wrong(path + entries.FETCHER_STATE, None, "the dataset is a stream")
    if isinstance(loader.dataset, IterDataPipe) and state[entries.SHARED_SEED] is None:
        raise wrong(entries.SHARED_SEED, None, "the dataset is a datapipe, which is seeded with it")


def _check_num_workers(state, loader):
    count = state[entries.NUM_WORKERS]
    if count == loader.num_workers:
        return
    has_state = any(part[entries.DATASET_STATE] for part in _parts(state).values())
    if loader._dataset_kind == _DatasetKind.Iterable or has_state:
        raise StateError(
            f"the state was taken with num_workers={count}, and its dataset has a state in each of them, so a loader "
            f"with num_workers={loader.num_workers} cannot resume: finish the pass with as many workers"
        )


def _check_randomness(state, loader):
    """Checks that the state contains the sampler's random state, if the sampler has drawn
    anything."""
    indices = IndexStream(loader._index_sampler, loader.generator, None, is_ahead=False)
    is_finished = state[entries.FINISHED]
    if not is_finished and state[entries.SAMPLER_ITER_YIELDED] == 0 and entries.AHEAD not in state:
        return
    if indices.is_stateful and entries.SAMPLER_STATE not in state:
        raise StateError(f"the state has no {entries.SAMPLER_STATE!r}, but the loader's sampler has a state")
    if indices.is_loaders and state[entries.GENERATOR] is None:
        raise StateError(
            "the state was taken without generator=, but this loader has one, from which its sampler draws: finish the pass "
            "with a loader that has none"
        )
    if indices.is_random and not is_finished and state[entries.SAMPLER_GENERATOR] is None:
        if state[entries.GENERATOR] is None:
            raise wrong(entries.SAMPLER_GENERATOR, None, "the loader's sampler draws from another generator than the loader's")
        own = "has none" if loader.generator is None else "has a sampler that draws from another one"
        raise StateError(
            f"the state was taken with generator=, from which its sampler draws, but this loader {own}: finish the pass with "
            "a loader that has one"
        )
