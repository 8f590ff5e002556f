"""A damaged state causes an error that names the field, unless the batches are unaffected."""

import json

import pytest
import torch
from conftest import same
from datasets import Counts, resume, taken
from helpers import damage, damages
from test_state import COUNT, Noisy, Plain, StatefulStream, Stream, Walks, disturb
from torch.utils.data import RandomSampler
from torch.utils.data.datapipes.iter import IterableWrapper

import slotline
from slotline.torch import DataLoader

LOADERS = {
    "in order": lambda **kind: DataLoader(Plain(), 3, **kind),
    "shuffled": lambda **kind: DataLoader(Plain(), 3, shuffle=True, **kind),
    "with a generator": lambda **kind: DataLoader(Plain(), 3, shuffle=True, generator=torch.Generator().manual_seed(1), **kind),
    "sampler with a state": lambda **kind: DataLoader(Plain(), 3, sampler=Counts(COUNT), **kind),
    "sampler's iterator with a state": lambda **kind: DataLoader(Plain(), 3, sampler=Walks(), **kind),
    "list": lambda **kind: DataLoader(Plain(), 3, sampler=list(range(20)), **kind),
    "stream with a state": lambda **kind: DataLoader(StatefulStream(), 3, **kind),
    # These draw random numbers, which threads share.
    "dataset with a state": lambda **kind: DataLoader(Noisy(), 3, shuffle=True, **kind),
    "stream": lambda **kind: DataLoader(Stream(), 3, **kind),
    "datapipe": lambda **kind: DataLoader(IterableWrapper(range(30)).shuffle().sharding_filter(), 3, shuffle=True, **kind),
}
VALUES = ["x", "zz", "", -1, -1 << 70, 1 << 62, 1 << 70, 1.5, None, True, [], ["x"], {}, {"x": 1}]
# Entries that a dataset or a sampler has saved, and that only it can check.
OPAQUE = {"dataset_state", "dataset_iter_state", "_sampler_state", "_sampler_iter_state"}
# Entries for which any number is valid.
SEEDS = {"_base_seed", "_shared_seed"}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", LOADERS)
def test_damage_is_an_error_or_makes_no_difference(name, workers):
    kind = dict(num_workers=workers)
    if workers and name not in ("dataset with a state", "stream", "datapipe"):
        kind["worker_method"] = "thread"
    first = LOADERS[name](**kind)
    state, _ = taken(first, 4)

    def rest(state):
        disturb()
        return list(resume(LOADERS[name](**kind), state))

    # A state that was written as JSON after the end is not damaged, either.
    assert rest(json.loads(json.dumps(first.state_dict())))

    expected = rest(state)
    assert expected
    refused = set()
    for path, wrong, damaged in damages(state, VALUES, OPAQUE):
        if path[-1] in SEEDS and wrong == 1 << 62:
            continue
        try:
            found = rest(damaged)
        except slotline.StateError:
            refused.add(path)
        except Exception as error:
            raise AssertionError(f"{path} = {wrong!r} is {error!r}") from error
        else:
            try:
                same(found, expected)
            except AssertionError as error:
                raise AssertionError(f"{path} = {wrong!r} gives other batches") from error
    fields = {path for path, _, _ in damages(state, VALUES, OPAQUE)}
    assert {path for path in fields if path[-1] not in OPAQUE} <= refused


SHUFFLED = dict(shuffle=True, batch_size=3)
NESTED = "_snapshot._worker_snapshots.worker_1"


@pytest.mark.parametrize(
    "path, value, words",
    [
        ("_num_yielded", "x", "'_num_yielded' is 'x', but it must be an integer from 0 to 2..63 - 1"),
        ("_num_yielded", -1, "'_num_yielded' is -1, but it must be an integer"),
        ("_num_yielded", 1 << 40, "'_num_yielded' is 1099511627776, but only 4 batches are done"),
        ("_num_yielded", True, "'_num_yielded' is True, but it must be an integer"),
        ("_num_yielded", ..., "the state has no '_num_yielded'; it is damaged, or not a state of this class"),
        ("_sampler_iter_yielded", 17, "'_sampler_drawn' is 8, but 17 batches are done"),
        ("_sampler_drawn", 3, "'_sampler_drawn' is 3, but 4 batches are done"),
        ("_sampler_steps_since_state", 9, "'_sampler_steps_since_state' is 9, but only 4 batches are done"),
        ("_sampler_generator", "zz", "'_sampler_generator' is 'zz', but it must be the state of a generator in base64 or None"),
        ("_sampler_generator", "AAAA", "'_sampler_generator' is 'AAAA', but it must be the state of a generator"),
        ("_sampler_generator", None, "'_sampler_generator' is None, but the loader's sampler draws from another generator"),
        ("_generator", 3, "'_generator' is 3, but it must be the state of a generator in base64 or None"),
        ("_iterator_finished", 1, "'_iterator_finished' is 1, but it must be True or False"),
        ("_base_seed", None, "'_base_seed' is None, but it must be an integer"),
        ("_ahead", "x", "'_ahead' is 'x', but it must be a list of integers"),
        ("_ahead", [3], "'_ahead' is .3., but all batches up to number 4 are done"),
        ("_ahead", [99], "'_ahead' is .99., but a pass has 16 batches"),
        ("_num_workers", 3, "'_num_workers' is 3, but '_snapshot._worker_snapshots' has 2 workers"),
        ("_last_yielded_worker_id", 2, "'_last_yielded_worker_id' is 2, but it must be an integer from -1 to 1"),
        ("_snapshot", [], r"'_snapshot' is \[\], but it must be a dict"),
        (NESTED, ..., "'_num_workers' is 2, but '_snapshot._worker_snapshots' has 1 workers"),
        (f"{NESTED}.dataset_state", ..., f"the state has no '{NESTED}.dataset_state'"),
        (f"{NESTED}._steps_since_snapshot", 99, f"'{NESTED}._steps_since_snapshot' is 99, but only 4 batches are done"),
    ],
)
def test_the_error_names_the_field(path, value, words):
    loader = DataLoader(Plain(), num_workers=2, **SHUFFLED)
    state, _ = taken(loader, 4)
    damage(state, path, value)
    expected = list(DataLoader(Plain(), 3))
    other = DataLoader(Plain(), **SHUFFLED)
    with pytest.raises(slotline.StateError, match=words):
        other.load_state_dict(state)
    # The loader is unchanged.
    assert sorted(torch.cat(list(other)).tolist()) == torch.cat(expected).tolist()


def test_batches_that_are_done_ahead_are_counted():
    state, _ = taken(DataLoader(Plain(), 3), 4)
    state |= {"_sampler_iter_yielded": 2, "_ahead": [4, 6]}

    def rest(state):
        return list(resume(DataLoader(Plain(), 3), state))

    every = list(DataLoader(Plain(), 3))
    same(rest(state), [every[k] for k in (2, 3, 5, *range(7, 16))])
    for wrong in (..., [], [4], [2], [1, 4], [4, "6"], [4, 1 << 62], 4, None, {"4": 6}):
        damaged = {key: value for key, value in state.items() if key != "_ahead"}
        if wrong is not ...:
            damaged["_ahead"] = wrong
        with pytest.raises(slotline.StateError):
            rest(damaged)


@pytest.mark.parametrize("kind", [dict(), dict(num_workers=2), dict(num_workers=2, worker_method="thread")], ids=str)
def test_a_stream_that_is_too_short_is_an_error(kind):
    state, _ = taken(DataLoader(Stream(), 1, **kind), 14)

    class Short(Stream):
        def _part(self):
            return 0, 3

    loader = resume(DataLoader(Short(), 1, **kind), state)
    with pytest.raises(slotline.StateError, match="the stream ended after 3: resume with the same dataset"):
        list(loader)


def test_a_sampler_that_is_too_short_is_an_error():
    state, _ = taken(DataLoader(Plain(), 3, sampler=list(range(20))), 4)
    loader = resume(DataLoader(Plain(), 3, sampler=list(range(5))), state)
    with pytest.raises(slotline.StateError, match="'_sampler_iter_yielded' is 4, but the sampler has only 2 batches"):
        list(loader)


def test_a_state_needs_a_generator_where_the_loader_has_one():
    with_one = DataLoader(Plain(), generator=torch.Generator(), **SHUFFLED)
    without = DataLoader(Plain(), **SHUFFLED)
    with pytest.raises(slotline.StateError, match="taken without generator=, but this loader has one.* a loader that has none$"):
        with_one.load_state_dict(taken(without, 4)[0])
    with pytest.raises(slotline.StateError, match="taken with generator=.* but this loader has none: .* a loader that has one$"):
        without.load_state_dict(taken(with_one, 4)[0])
    other = DataLoader(Plain(), 3, sampler=RandomSampler(Plain(), generator=torch.Generator()), generator=torch.Generator())
    with pytest.raises(slotline.StateError, match="this loader has a sampler that draws from another one: "):
        other.load_state_dict(taken(with_one, 4)[0])
