"""Several processes: finding the rank, loops with equally many steps, and merged states."""

import datetime
import itertools
import os
import sys
import types

import numpy as np
import pytest
import torch
import torch.distributed as dist

import slotline
from slotline.torch import DataLoader, equal_steps

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "PMI_", "MPI_", "OMPI_", "MV2_", "SLURM_")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)


@pytest.fixture
def alone(tmp_path):
    """A fixture: a process group that contains only this process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def set_torchrun(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name.upper(), str(value))


def test_a_process_alone_has_rank_0():
    ranks = slotline.find_ranks()
    assert ranks == slotline.Ranks(0, 1)
    assert str(ranks) == "rank 0 of 1"


def test_ranks_are_found_in_the_environment(monkeypatch):
    set_torchrun(monkeypatch, rank=5, world_size=8, local_rank=1, local_world_size=4)
    ranks = slotline.find_ranks()
    assert ranks == slotline.Ranks(5, 8, 1, 4, "torchrun")
    assert str(ranks) == "rank 5 of 8 (torchrun)"


def test_variables_that_are_missing_are_refused(monkeypatch):
    set_torchrun(monkeypatch, rank=5)
    with pytest.raises(slotline.OptionError, match="RANK but not WORLD_SIZE"):
        slotline.find_ranks()


def test_a_context_of_ray_goes_before_the_environment(monkeypatch):
    set_torchrun(monkeypatch, rank=5, world_size=8)
    numbers = {"get_world_rank": 1, "get_world_size": 3, "get_local_rank": 0, "get_local_world_size": 2}
    context = types.SimpleNamespace(**{name: lambda number=number: number for name, number in numbers.items()})
    monkeypatch.setitem(sys.modules, "ray.train", types.SimpleNamespace(get_context=lambda: context))
    assert slotline.find_ranks() == slotline.Ranks(1, 3, 0, 2, "Ray Train")


def test_ray_counts_in_its_training_function_only(monkeypatch):
    def get_context():
        raise RuntimeError("`get_context` cannot be used outside of a Ray Train training function.")

    monkeypatch.setitem(sys.modules, "ray.train", types.SimpleNamespace(get_context=get_context))
    assert slotline.find_ranks() == slotline.Ranks(0, 1)


def test_an_initialised_process_group_goes_before_all_else(monkeypatch, alone):
    set_torchrun(monkeypatch, rank=5, world_size=8)
    assert slotline.find_ranks() == slotline.Ranks(0, 1, source="torch.distributed")


def test_a_group_needs_an_initialised_process_group():
    with pytest.raises(slotline.OptionError, match="init_process_group"):
        slotline.find_ranks(group=object())


def test_the_policy_of_equal_steps_is_checked_at_once():
    with pytest.raises(slotline.OptionError, match='"drop", "pad" or "repeat"'):
        equal_steps([], "wait")


def test_nothing_cannot_be_repeated(alone):
    assert list(equal_steps([], "repeat")) == []  # no rank has a batch


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rank, length):
        self.samples = [100 * rank + number for number in range(length)]

    def __iter__(self):
        return iter(self.samples)


LENGTHS = [5, 9, 2]  # with a batch size of 2: 3, 5 and 1 batches


def take_steps(rank, folder):
    """Is one of three processes, whose streams have these lengths."""
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3, timeout=timeout)
    evens = dist.new_group([0, 2])
    if rank % 2 == 0:
        assert slotline.find_ranks(evens) == slotline.Ranks(rank // 2, 2, source="torch.distributed")
    else:
        with pytest.raises(slotline.OptionError, match=f"rank {rank} is not in the group"):
            slotline.find_ranks(evens)
    loader = DataLoader(Stream(rank, LENGTHS[rank]), batch_size=2)
    mine = [batch.tolist() for batch in loader]
    expected = {
        "drop": mine[:1],
        "pad": mine + [None] * (5 - len(mine)),
        "repeat": list(itertools.islice(itertools.cycle(mine), 5)),
    }
    for shorter, batches in expected.items():
        seen = []
        for batch in equal_steps(loader, shorter):
            # What a step would do: a collective operation, which waits for all ranks.
            total = torch.zeros(1) if batch is None else torch.ones(1)
            dist.all_reduce(total)
            assert total == sum(shorter != "pad" or len(seen) < (length + 1) // 2 for length in LENGTHS)
            seen.append(None if batch is None else batch.tolist())
        assert seen == batches, (shorter, seen)
    dist.barrier()


def test_equal_steps_take_part_in_each_collective_operation(tmp_path):
    fork = torch.multiprocessing.get_context("fork")
    ranks = [fork.Process(target=take_steps, args=(rank, tmp_path)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * 3


def loaders(world_size, **options):
    data = slotline.Arrays(x=np.arange(1000))
    return [slotline.Loader(data, 10, shuffle=True, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def test_states_of_eight_ranks_are_resumed_by_six():
    seen, states = [], []
    for loader in loaders(8):
        batches = iter(loader)
        seen += [next(batches)["x"] for _ in range(3)]
        states.append(loader.state_dict())
    merged = slotline.merge_states(states)
    rest = []
    for loader in loaders(6):
        loader.load_state_dict(merged)
        rest += [batch["x"] for batch in loader]
    seen, rest = set(np.concatenate(seen).tolist()), set(np.concatenate(rest).tolist())
    assert len(seen) == 240
    # Shares are rounded up to the same length with samples from the beginning.
    assert rest >= set(range(1000)) - seen and len(rest & seen) <= 6


def test_states_that_do_not_belong_together_are_refused():
    one, two = loaders(2)
    first, second = one.state_dict(), two.state_dict()
    with pytest.raises(slotline.StateError, match="no states"):
        slotline.merge_states([])
    batches = iter(two)
    next(batches)
    with pytest.raises(slotline.StateError, match="save the states of all ranks after the same step"):
        slotline.merge_states([first, two.state_dict()])
    assert slotline.merge_states([first, second])["dataset"] == first["dataset"]
    another = {**second, "dataset": {**second["dataset"], "image": "hflip"}}
    with pytest.raises(slotline.StateError, match=r"state 1 was .* another image pipeline \('hflip', and not 'none'\) than"):
        slotline.merge_states([first, another])
    # The entry that older versions wrote.
    old = [{**state, "fields": "abc"} for state in (first, second)]
    for state in old:
        del state["dataset"]
    assert slotline.merge_states(old)["fields"] == "abc"
    with pytest.raises(slotline.StateError, match="state 1 was taken with a dataset of other fields"):
        slotline.merge_states([old[0], {**old[1], "fields": "another"}])
    with pytest.raises(slotline.StateError, match="state 1 was taken with a dataset of other fields"):
        slotline.merge_states([old[0], second])
    with pytest.raises(slotline.StateError, match="'epoch'"):
        slotline.merge_states([first, {**second, "epoch": "one"}])
    with pytest.raises(slotline.StateError, match="batch_size"):
        slotline.merge_states([first, {**second, "batch_size": 11}])
