"""Cases that are easily confused with others; torch's result is the expected one."""

import datetime
import itertools
import json
import random
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
import torch.utils.data
from conftest import same
from datasets import Counts, Samples, resume
from helpers import run
from torch.utils.data import StackDataset, Subset, TensorDataset

from slotline.torch import DataLoader

X = torch.arange(24.0).reshape(12, 2)
Y = torch.tensor([0, 1] * 6)


@pytest.mark.parametrize(
    "indices",
    [
        torch.nonzero(Y),
        torch.nonzero(Y)[:, 0],
        Y.bool(),
        Y.to(torch.uint8),
        Y.to(torch.int16),
        Y.numpy(),
        Y.numpy().astype(bool),
        Y.numpy().astype(np.uint8),
        np.argwhere(Y.numpy()),
        [True, False, True],
        [1, 3, 5],
        [-1, np.int32(4), torch.tensor(2)],
        [torch.tensor(True), torch.tensor(1)],
        [[1, 2], [3, 4]],
        [slice(2), slice(3, 5)],
        (2, 4, 6),
        range(3, 9, 2),
        [1.0, 2.0],
        [None, None],
        ["1", "2"],
        [10**30, 2],
        [50, 1],
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "data",
    [TensorDataset(X, Y), StackDataset(X, X.numpy()), StackDataset(x=X, y=TensorDataset(Y)), Subset(TensorDataset(X), list(range(12)))],
    ids=["tensors", "arrays", "names", "subset"],
)
def test_indices_mean_what_they_mean_to_the_dataset(data, indices):
    def batches(kind):
        try:
            return list(kind(Subset(data, indices), 2))
        except Exception as error:
            return type(error)

    expected = batches(torch.utils.data.DataLoader)
    found = batches(DataLoader)
    if isinstance(expected, type):
        assert found is expected
    else:
        same(found, expected)


@dataclass(frozen=True)
class Key:
    name: str
    step: int = field(compare=False)


KEYS = [
    lambda k: Key("x", k),
    lambda k: (1, True)[k % 2],
    lambda k: ((1,), (True,))[k % 2],
    lambda k: (0.0, -0.0)[k % 2],
    lambda k: datetime.datetime(2024, 1, 1, 12 + k % 2, tzinfo=datetime.timezone(datetime.timedelta(hours=k % 2))),
    lambda k: ("a", b"a")[k % 2],
    lambda k: frozenset([(1, True)[k % 2]]),
]


@pytest.mark.parametrize("number", range(len(KEYS)))
@pytest.mark.parametrize("workers", [0, 1])
def test_keys_that_are_equal_are_not_taken_for_each_other(number, workers):
    make = KEYS[number]
    loader = DataLoader(range(4), num_workers=workers, collate_fn=lambda batch: {make(batch[0]): batch[0]})
    assert [[repr(key) for key in batch] for batch in loader] == [[repr(make(k))] for k in range(4)]


REGISTERED = """
import torch
from torch.utils.data._utils.collate import default_collate_fn_map
def own(batch, *, collate_fn_map=None):
    return "own", list(batch)
for kind in (str, torch.Tensor, int, complex):
    default_collate_fn_map[kind] = own
if {is_late}:
    import slotline.torch
    del default_collate_fn_map[complex]
from slotline.torch import DataLoader
for data in (["a", "b"], [torch.zeros(2)] * 2, [1, 2], torch.utils.data.TensorDataset(torch.zeros(2))):
    for workers in (0, 1):
        [batch] = DataLoader(data, 2, num_workers=workers)
        batch = batch[0] if isinstance(batch[0], tuple) else batch
        assert batch[0] == "own", (data, workers, batch)
"""


@pytest.mark.parametrize("is_late", [False, True])
def test_collate_functions_count_whenever_they_were_registered(is_late):
    run(REGISTERED.format(is_late=is_late))


class Numbers(Samples):
    def __init__(self):
        super().__init__(8)

    def load_state_dict(self, state):
        raise AssertionError("nothing was saved")


class WithArguments(Numbers):
    def state_dict(self, num_samples, from_beginning):
        raise AssertionError("another library's loader calls this")


class NotImplementedYet(Numbers):
    def state_dict(self):
        raise NotImplementedError


class AnyAttribute(Numbers):
    load_state_dict = None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(8))

    def state_dict(self, num_samples_yielded, num_workers, batch_size):
        raise AssertionError("another library's loader calls this")

    def load_state_dict(self, state):
        raise AssertionError("nothing was saved")


@pytest.mark.parametrize("data", [WithArguments(), NotImplementedYet(), AnyAttribute(), Stream()])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_without_a_state_that_can_be_asked_for_has_none(data, workers):
    loader = DataLoader(data, 2, num_workers=workers)
    batches = iter(loader)
    got = [next(batches).tolist() for _ in range(2)]
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]
    assert got + rest == [[0, 1], [2, 3], [4, 5], [6, 7]]
    resumed = resume(DataLoader(data, 2, num_workers=workers), state)
    assert [batch.tolist() for batch in resumed] == rest


@pytest.mark.parametrize("workers", [0, 1])
def test_optional_arguments_of_a_state_are_left_out(workers):
    class Started(Numbers):
        start = 0

        def state_dict(self, prefix="", *rest, keep=False, **more):
            return {"start": 4}

        def load_state_dict(self, state):
            self.start = state["start"]

        def __getitem__(self, k):
            return 10 * self.start + k

    loader = DataLoader(Started(), 4, num_workers=workers)
    next(iter(loader))
    resumed = resume(DataLoader(Started(), 4, num_workers=workers), loader.state_dict())
    assert [batch.tolist() for batch in resumed] == [[44, 45, 46, 47]]


def uneven(k):
    if k % 12 < 2:
        time.sleep(0.02)
    return k


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method, sampler", [("multiprocessing", Counts), ("thread", Counts), ("thread", None)])
def test_every_sample_comes_once_however_often_a_pass_out_of_order_is_resumed(seed, method, sampler):
    if method == "multiprocessing" and seed > 3:
        pytest.skip("processes start slowly")
    rng = random.Random(seed)
    state, got = None, []
    while True:
        loader = DataLoader(
            Samples(40, uneven),
            2,
            sampler=sampler and sampler(40),
            num_workers=rng.randint(1, 3),
            worker_method=method,
            prefetch_factor=rng.randint(1, 3),
            in_order=False,
        )
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        batches = list(itertools.islice(loader, rng.randint(1, 5)))
        got += torch.cat(batches).tolist() if batches else []
        state = loader.state_dict()
        if len(batches) == 0 or len(got) >= 40:
            break
    assert sorted(got) == list(range(40))
