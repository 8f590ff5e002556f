"""A loader resumes from the state of another one."""

import json
import pickle
import random
import threading
import time

import numpy as np
import pytest
import torch
from conftest import same
from datasets import Counts, Samples, resume, taken
from helpers import outcomes
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.datapipes.iter import IterableWrapper

from slotline.torch import DataLoader

COUNT = 47


class Plain(Samples):
    def __init__(self, make=int):
        super().__init__(COUNT, make)


class Noisy(Plain):
    """Samples that depend on random numbers; the generator's state is the dataset's state."""

    def __getitem__(self, k):
        return k + torch.rand(1).item()

    def state_dict(self):
        return {"random": torch.get_rng_state().tolist()}

    def load_state_dict(self, state):
        torch.set_rng_state(torch.tensor(state["random"], dtype=torch.uint8))


def odd(k):
    """Returns ``k``, or raises an error for some ``k``."""
    if k % 10 == 3:
        raise ValueError(k)
    return k


class Stream(IterableDataset):
    """A stream of which each worker reads its part, and draws random numbers. Part `k` is longer
    than part `k - 1`."""

    def _part(self):
        info = get_worker_info()
        return (0, 23) if info is None else (100 * info.id, 7 + 9 * info.id)

    def __iter__(self):
        first, count = self._part()
        for k in range(first, first + count):
            yield k + random.random()


class StatefulStream(Stream):
    """A stream whose state is its position, and how often it was read to its end."""

    def __init__(self):
        self.at = self.resumed = self.ends = self.read = 0

    def __iter__(self):
        first, count = self._part()
        self.at, self.resumed = self.resumed, 0
        while self.at < count:
            self.at += 1
            self.read += 1
            yield first + self.at - 1 + self.ends / 10
        self.at = 0
        self.ends += 1

    def state_dict(self):
        return {"at": self.at, "ends": self.ends}

    def load_state_dict(self, state):
        self.resumed, self.ends = state["at"], state["ends"]


class Walk:
    """A sampler's iterator with a state."""

    def __init__(self, random):
        self.random = random
        self.count = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.count == COUNT:
            raise StopIteration
        self.count += 1
        return self.random.randrange(COUNT)

    def state_dict(self):
        version, numbers, gauss = self.random.getstate()
        return {"count": self.count, "random": [version, list(numbers), gauss]}

    def load_state_dict(self, state):
        version, numbers, gauss = state["random"]
        self.count = state["count"]
        self.random.setstate((version, tuple(numbers), gauss))


class Walks(Sampler):
    """A sampler whose iterator has a state."""

    def __init__(self):
        self.random = random.Random(9)

    def __len__(self):
        return COUNT

    def __iter__(self):
        return Walk(self.random)


class Batches(Sampler):
    """A batch sampler of the program."""

    def __len__(self):
        return 3

    def __iter__(self):
        order = torch.randperm(COUNT).tolist()
        yield from (order[:5], order[5:20], order[20:21], order[21:])


def disturb():
    """Changes the states of all generators, as they would differ in another process."""
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)


MAPS = {
    "in order": dict(dataset=Plain()),
    "tensors": dict(dataset=TensorDataset(torch.arange(COUNT)), shuffle=True),
    "shuffled": dict(dataset=Plain(), shuffle=True),
    "without batches": dict(dataset=Plain(), shuffle=True, batch_size=None),
    "rest left out": dict(dataset=Plain(), shuffle=True, drop_last=True),
    "drawn again": dict(dataset=Plain(), sampler=lambda: RandomSampler(range(COUNT), replacement=True, num_samples=100)),
    "subset": dict(dataset=Plain(), sampler=lambda: SubsetRandomSampler(range(30))),
    "weighted": dict(dataset=Plain(), sampler=lambda: WeightedRandomSampler([1.0] * COUNT, 40)),
    "own generator": dict(
        dataset=Plain(), sampler=lambda: RandomSampler(range(COUNT), generator=torch.Generator().manual_seed(4))
    ),
    "distributed": dict(dataset=Plain(), sampler=lambda: DistributedSampler(range(COUNT), 3, 1, seed=5)),
    "sampler's iterator": dict(dataset=Plain(), sampler=Walks),
    "sampler": dict(dataset=Plain(), sampler=lambda: Counts(COUNT)),
    "batch sampler": dict(dataset=Plain(), batch_sampler=Batches),
    "batches of a sampler": dict(dataset=Plain(), batch_sampler=lambda: BatchSampler(Counts(COUNT), 6, True)),
    "list": dict(dataset=Plain(), sampler=lambda: list(range(COUNT))),
}


def make(options, workers=0, **more):
    options = {key: value() if "sampler" in key else value for key, value in options.items()}
    if "batch_size" not in options and "batch_sampler" not in options:
        options["batch_size"] = 3
    return DataLoader(num_workers=workers, **options, **more)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", MAPS.values(), ids=MAPS)
def test_a_pass_goes_on_with_any_number_of_workers(options, workers, count):
    state, rest = taken(make(options, workers), count)
    assert len(rest) > 0
    for others in (dict(workers=0), dict(workers=1), dict(workers=2, worker_method="thread")):
        disturb()
        same(list(resume(make(options, **others), state)), rest)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_passes_after_it_are_those_of_the_generator(workers, persistent):
    if persistent and not workers:
        pytest.skip("there are no workers")
    options = dict(dataset=Plain(), shuffle=True)

    def loader():
        generator = torch.Generator().manual_seed(8)
        return make(options, workers, generator=generator, persistent_workers=persistent)

    first = loader()
    for count in (0, 4, 16):
        state, rest = taken(first, count)
        after = list(first)
        disturb()
        second = resume(loader(), state)
        same([list(second), list(second)], [rest, after])
    state = json.loads(json.dumps(first.state_dict()))
    after = list(first)
    same(list(resume(loader(), state)), after)


@pytest.mark.parametrize("options", [MAPS["sampler"], MAPS["batches of a sampler"]])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_has_a_state_goes_on_after_the_end(options, workers):
    first = make(options, workers)
    list(first)
    state, after = first.state_dict(), list(first)
    same(list(resume(make(options, workers), state)), after)


def test_the_default_generator_is_left_alone():
    state, rest = taken(make(MAPS["shuffled"]), 3)
    disturb()
    before = torch.get_rng_state()
    loader = resume(make(MAPS["shuffled"]), state)
    list(loader)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_pass_that_has_not_begun_goes_on_as_it_would():
    """Samples and sampler draw from the same generator."""
    loader = make(dict(dataset=Noisy(), shuffle=True))
    state, rest = taken(loader, 0)
    loader.load_state_dict(state)
    same(list(loader), rest)


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_has_a_state_is_given_it(workers, count):
    options = dict(dataset=Noisy(), shuffle=True, generator=torch.Generator().manual_seed(1))
    state, rest = taken(make(options, workers), count)
    disturb()
    same(list(resume(make(options, workers), state)), rest)


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_are_counted(workers):
    loader = make(dict(dataset=Plain(odd), batch_size=1), workers)

    def lines(batches):
        return [str(each).splitlines()[-1][-4:] for each in batches]

    batches = outcomes(iter(loader), ValueError)
    for _ in range(14):
        next(batches)
    state = loader.state_dict()
    rest = lines(batches)
    assert len(rest) == COUNT - 14
    loader = resume(make(dict(dataset=Plain(odd), batch_size=1), 2 - workers), state)
    assert [each.strip("[])")[-2:] for each in lines(outcomes(iter(loader), ValueError))] == [each.strip("[])")[-2:] for each in rest]


@pytest.mark.parametrize("every", [0, 1, 3])
@pytest.mark.parametrize("kind", [Stream, StatefulStream])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [None, 1, 4])
def test_streams_go_on(kind, workers, size, every):
    if kind is Stream and every != 1:
        pytest.skip("there is no state to send")

    def loader():
        return DataLoader(
            kind(), size, num_workers=workers, generator=torch.Generator().manual_seed(2), snapshot_every_n_steps=every
        )

    random.seed(1)
    whole = loader()
    batches = iter(whole)
    states, found = [json.dumps(whole.state_dict())], []
    for batch in batches:
        found.append(batch)
        states.append(json.dumps(whole.state_dict()))
    total = len(found)
    for count in sorted({0, 1, 2, 5, total - 1, total} - set(range(total + 1, 6))):
        random.seed(1)
        same(list(resume(loader(), json.loads(states[count]))), found[count:])


@pytest.mark.parametrize("in_order", [True, False])
def test_the_end_of_a_worker_leaves_nothing_in_the_state(in_order):
    loader = DataLoader(StatefulStream(), num_workers=3, in_order=in_order)
    total = 0
    for batch in loader:
        total += 1
        state = loader.state_dict()
    assert state["_num_yielded"] == state["_sampler_iter_yielded"] == total
    assert "_ahead" not in state


def test_a_stream_that_has_a_state_is_not_read_again():
    state, rest = taken(DataLoader(StatefulStream()), 20)
    dataset = StatefulStream()
    loader = resume(DataLoader(dataset), state)
    assert len(list(loader)) == 3
    assert dataset.read == 3


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("workers", [0, 2])
def test_streams_go_on_after_their_end(workers, every):
    def loader():
        return DataLoader(
            StatefulStream(), num_workers=workers, persistent_workers=workers > 0, snapshot_every_n_steps=every
        )

    first = loader()
    list(first)
    state, after = first.state_dict(), list(first)
    assert after[0].item() == pytest.approx(0.1)
    same(list(resume(loader(), state)), after)


@pytest.mark.parametrize("workers", [0, 2])
def test_datapipes_go_on(workers):
    def loader():
        pipe = IterableWrapper(range(30)).shuffle().sharding_filter()
        return DataLoader(pipe, 2, shuffle=True, num_workers=workers)

    state, rest = taken(loader(), 5)
    disturb()
    same(list(resume(loader(), state)), rest)


def test_without_order_no_batch_is_lost_and_none_comes_twice():
    def loader(workers=3):
        return DataLoader(Plain(lambda k: time.sleep(0.2 if k == 0 else 0.001) or k), num_workers=workers, in_order=False)

    first = loader()
    batches = iter(first)
    seen = [next(batches).item() for _ in range(9)]
    assert 0 not in seen
    state = json.loads(json.dumps(first.state_dict()))
    for workers in (0, 1, 3):
        second = resume(loader(workers), state)
        assert sorted(seen + [batch.item() for batch in second]) == list(range(COUNT))


def test_the_state_of_a_loop_that_was_left_is_kept():
    loader = make(MAPS["shuffled"], 2)
    for count, batch in enumerate(loader, 1):
        if count == 4:
            break
    state = loader.state_dict()
    assert state["_num_yielded"] == 4
    loader.load_state_dict(state)
    assert len(list(loader)) == len(loader) - 4
    # The pass after that is a whole one.
    assert len(list(loader)) == len(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_before_any_pass_is_that_of_the_first_one(workers):
    loader = make(MAPS["shuffled"], workers)
    state = loader.state_dict()
    first = list(loader)
    disturb()
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    same(list(loader), first)
    loader.load_state_dict({})
    assert loader.state_dict()["_num_yielded"] == 0


@pytest.mark.parametrize("dataset", [Plain(), TensorDataset(torch.arange(COUNT))])
def test_passes_after_one_that_had_not_begun_are_the_same(dataset):
    torch.manual_seed(3)
    loader = DataLoader(dataset, 3, shuffle=True)
    state, numbers = loader.state_dict(), torch.get_rng_state()
    expected = [list(loader), list(loader)]
    loader = resume(DataLoader(dataset, 3, shuffle=True), state)
    torch.set_rng_state(numbers)
    same([list(loader), list(loader)], expected)


@pytest.mark.parametrize("dataset", [Plain(), TensorDataset(torch.arange(COUNT))])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_before_any_pass_begins_none(dataset, workers):
    def loader(kind):
        return kind(dataset, 3, True, num_workers=workers, generator=torch.Generator().manual_seed(1))

    asked, expected = loader(DataLoader), loader(torch.utils.data.DataLoader)
    default = torch.get_rng_state()
    asked.state_dict()
    assert torch.equal(torch.get_rng_state(), default)
    # Accelerate requests a state when it wraps a loader. After that it sets the same generator
    # state in all processes, and may replace the sampler.
    for each in (asked, expected):
        each.generator.manual_seed(2)
        each.batch_sampler.sampler = RandomSampler(dataset, generator=each.generator)
    same([list(asked), list(asked)], [list(expected), list(expected)])


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_has_the_epoch_of_a_distributed_sampler(workers, size):
    def loader(epoch):
        sampler = DistributedSampler(Plain(), 2, 1, seed=5)
        sampler.set_epoch(epoch)
        return DataLoader(Plain(), size, sampler=sampler, num_workers=workers)

    first = loader(4)
    batches = iter(first)
    next(batches)
    # Set the epoch of the following pass early, as a program may do.
    first.sampler.set_epoch(5)
    state = json.loads(json.dumps(first.state_dict()))
    rest = list(batches)
    # The order is drawn with the epoch of the state, not with the one set on the new loader:
    # Lightning sets the epoch only after it has begun the pass.
    second = resume(loader(0), state)
    assert second.state_dict() == state
    same(list(second), rest)
    # After the end of a pass, the program sets the epoch.
    first.sampler.set_epoch(5)
    state, after = json.loads(json.dumps(first.state_dict())), list(first)
    same(list(resume(loader(5), state)), after)
    assert str(after[1:]) != str(rest)


class Asking:
    """An object that requests the loader's state when it is unpickled."""

    loader = None
    states = []

    def __init__(self, values):
        self.values = values

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.states.append(json.loads(json.dumps(self.loader.state_dict())))


def test_a_state_while_a_batch_is_received_is_that_before_it(monkeypatch):
    def loader():
        return DataLoader(Plain(lambda k: k + torch.rand(1).item()), 5, num_workers=2, collate_fn=Asking, generator=torch.Generator().manual_seed(3))

    monkeypatch.setattr(Asking, "states", [])
    monkeypatch.setattr(Asking, "loader", loader())
    expected = [batch.values for batch in Asking.loader]
    assert len(Asking.states) == len(expected) == 10
    for count, state in list(enumerate(Asking.states))[::3]:
        disturb()
        resumed = resume(loader(), state)
        assert [batch.values for batch in resumed] == expected[count:]


def test_another_thread_takes_a_state_while_the_loop_waits():
    loader = DataLoader(Plain(lambda k: time.sleep(0.3 if k == 4 else 0) or k), num_workers=1)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    states = []
    timer = threading.Timer(0.1, lambda: states.append(loader.state_dict()))
    timer.start()
    rest = list(batches)
    timer.join()
    loader.load_state_dict(states[0])
    same(list(loader), rest)


def test_a_state_does_not_change_afterwards():
    loader = make(MAPS["sampler"])
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    before = json.dumps(state)
    list(batches)
    assert json.dumps(state) == before


def test_a_loader_that_goes_on_can_be_pickled():
    state, rest = taken(make(MAPS["shuffled"]), 3)
    loader = resume(make(MAPS["shuffled"]), state)
    same(list(pickle.loads(pickle.dumps(loader))), rest)


def test_states_that_do_not_fit_are_errors():
    loader = make(MAPS["shuffled"])
    for value in (3, None, []):
        with pytest.raises(TypeError, match=f"is a dict, and not {type(value).__name__}"):
            loader.load_state_dict(value)
    with pytest.raises(ValueError, match="has no '_num_workers'; it is damaged, or not a state of this class"):
        loader.load_state_dict({"epoch": 3})
    with pytest.raises(ValueError, match="snapshot_every_n_steps is a number"):
        make(MAPS["shuffled"], snapshot_every_n_steps=-1)
    for options in (dict(dataset=Stream()), dict(dataset=Noisy())):
        state, _ = taken(make(options, 2), 4)
        with pytest.raises(ValueError, match="taken with num_workers=2.*num_workers=1 cannot resume"):
            make(options, 1).load_state_dict(state)


@pytest.mark.parametrize("workers", (0, 2))
def test_a_state_of_another_order_is_an_error(workers):
    base = dict(dataset=Plain(), batch_size=3, shuffle=True)
    state, _ = taken(make(base, workers), 4)
    for options, words in (
        (dict(batch_size=5), "taken with batch_size=3, but the loader has batch_size=5"),
        (dict(batch_size=None), "taken with batch_size=3, but the loader has batch_size=None"),
        (
            dict(batch_size=1, shuffle=None, batch_sampler=lambda: BatchSampler(RandomSampler(range(COUNT)), 4, False)),
            "taken with batch_size=3, but the loader has batch_size=4",
        ),
        (dict(shuffle=False), "taken with RandomSampler, but the loader has SequentialSampler"),
        (dict(dataset=Stream(), shuffle=None), "taken with RandomSampler, but the loader has an IterableDataset"),
        (dict(dataset=range(9)), "taken with a RandomSampler of 47 indices, but the loader's has 9"),
    ):
        loader = make({**base, **options}, workers)
        with pytest.raises(ValueError, match=words):
            loader.load_state_dict(json.loads(json.dumps(state)))


def test_the_order_can_change_between_passes():
    loader = make(dict(dataset=Plain(), batch_size=3, shuffle=True))
    list(loader)
    other = make(dict(dataset=range(9), batch_size=5))
    other.load_state_dict(loader.state_dict())
    same(list(other), [torch.arange(5), torch.arange(5, 9)])


def test_a_batch_sampler_that_makes_the_same_batches_goes_on():
    state, rest = taken(make(dict(dataset=Plain(), batch_size=3, shuffle=True)), 4)
    same(list(resume(make(dict(dataset=Plain(), batch_sampler=lambda: BatchSampler(RandomSampler(range(COUNT)), 3, False))), state)), rest)


def test_a_stream_with_another_batch_size_is_an_error():
    state, _ = taken(make(dict(dataset=Stream(), batch_size=3), 2), 4)
    with pytest.raises(ValueError, match="taken with batch_size=3, but the loader has batch_size=4"):
        make(dict(dataset=Stream(), batch_size=4), 2).load_state_dict(state)
