"""Random numbers in workers: a resumed pass draws the same numbers as an uninterrupted one."""

import itertools
import json
import random

import numpy as np
import pytest
import torch
from datasets import Samples, resume
from torch.utils.data import IterableDataset, Sampler, get_worker_info

import slotline
from slotline.torch import DataLoader


class Augmented(Samples):
    """Samples that draw from the default generators; not every sample draws from all of them."""

    def __init__(self):
        super().__init__(40)

    def __getitem__(self, i):
        numbers = [float(i), 0.0, 0.0, 0.0]
        if i % 3:
            numbers[1] = random.gauss(0, 1)
        if i % 2:
            numbers[2] = np.random.randn()
        if i % 5:
            numbers[3] = torch.randn(1).item()
        return torch.tensor(numbers, dtype=torch.float64)


def of_thread(i):
    """Returns a sample that draws from the generators of its thread."""
    rng = get_worker_info().rng
    numbers = rng.random_generator.gauss(0, 1), rng.numpy_generator.normal(), torch.rand(1, generator=rng.torch_generator)
    return torch.tensor([float(i), *numbers], dtype=torch.float64)


def OfThreads():
    return Samples(40, of_thread)


class Stream(IterableDataset):
    def __iter__(self):
        offset = random.random()
        for k in range(20):
            yield torch.tensor([k, offset, random.random(), np.random.randn()], dtype=torch.float64)


class StatefulStream(Stream):
    def __init__(self):
        self.k, self.offset = 0, None

    def __iter__(self):
        if self.offset is None:
            self.offset = random.random()
        return self

    def __next__(self):
        if self.k == 20:
            self.k, self.offset = 0, None
            raise StopIteration
        self.k += 1
        return torch.tensor([self.k, self.offset, random.random(), np.random.randn()], dtype=torch.float64)

    def state_dict(self):
        return {"k": self.k, "offset": self.offset}

    def load_state_dict(self, state):
        self.k, self.offset = state["k"], state["offset"]


class OwnEpochs(IterableDataset):
    """A stream that counts its own passes, draws random numbers, and has an iterator without a
    state."""

    def __init__(self):
        self.epoch, self.k = 0, None

    def __iter__(self):
        if self.k is None:
            self.epoch, self.k = self.epoch + 1, 0
        while self.k < 9:
            self.k += 1
            yield torch.tensor([self.k, self.epoch, random.random()], dtype=torch.float64)
        self.k = None

    def state_dict(self):
        return {"epoch": self.epoch, "k": self.k}

    def load_state_dict(self, state):
        self.epoch, self.k = state["epoch"], state["k"]


class Counted(Augmented):
    """Samples that include how many samples their worker has made."""

    made = 0

    def __getitem__(self, i):
        self.made += 1
        return torch.cat([super().__getitem__(i), torch.tensor([self.made])])

    def state_dict(self):
        return {"made": self.made}

    def load_state_dict(self, state):
        self.made = state["made"]


def passes(loader, count):
    return [[batch.tolist() for batch in loader] for _ in range(count)]


def resumed(make, stops, count):
    """Returns the batches of ``count`` passes. Each stop is a number of batches in a pass, after
    which a new loader resumes."""
    torch.manual_seed(1)
    loader, found = make(), []
    for epoch in range(count):
        found.append([])
        batches = iter(loader)
        for at in sorted(steps for of, steps in stops if of == epoch):
            found[-1] += [next(batches).tolist() for _ in range(at - len(found[-1]))]
            state, numbers = json.loads(json.dumps(loader.state_dict())), torch.get_rng_state()
            random.seed(5)
            np.random.seed(5)
            loader = resume(make(), state)
            torch.set_rng_state(numbers)
            batches = iter(loader)
        found[-1] += [batch.tolist() for batch in batches]
    return found


def check(kind, many_stops, every=1, **options):
    """Compares loaders that stop and resume with one that does not."""
    if kind is OfThreads:
        if not hasattr(torch.utils.data._utils.worker, "_RNG"):
            pytest.skip("this torch has no generators for threads")
        options["worker_method"] = "thread"

    def make():
        return DataLoader(kind(), num_workers=2, snapshot_every_n_steps=every, **options)

    torch.manual_seed(1)
    whole = passes(make(), 3)
    for stops in many_stops:
        assert resumed(make, stops, 3) == whole, stops


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("kind", [Augmented, OfThreads, Stream, StatefulStream])
def test_workers_draw_the_same_after_a_resume(kind, every):
    stops = [[(0, 0), (1, 0)], [(1, 4)]] if every == 1 else [[(0, 3), (1, 3)]]
    check(kind, stops, every, batch_size=4, shuffle=kind in (Augmented, OfThreads) or None)


@pytest.mark.parametrize("kind", [Augmented, Counted, OfThreads, Stream, StatefulStream, OwnEpochs])
def test_what_persistent_workers_have_outlives_a_pass(kind):
    stops = [[(1, 1)], [(0, 4), (1, 1)], [(0, 3), (1, 1), (1, 2)], [(1, 0), (1, 1), (2, 1)]]
    check(kind, stops, batch_size=8, persistent_workers=True)


def test_a_pass_that_was_left_early_goes_on_in_the_next_one():
    def make():
        return DataLoader(Counted(), 8, num_workers=2, persistent_workers=True, prefetch_factor=1)

    torch.manual_seed(1)
    loader = make()
    for _ in zip(range(2), loader):
        pass
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]
    loader = resume(make(), state)
    assert [batch.tolist() for batch in loader] == rest


def test_generators_that_are_not_used_are_not_in_the_state():
    loader = DataLoader(list(range(8)), num_workers=2)
    next(iter(loader))
    workers = loader.state_dict()["_snapshot"]["_worker_snapshots"].values()
    assert [worker["_generators"] for worker in workers] == [None, None]


def test_damaged_generators_are_an_error():
    loader = DataLoader(Augmented(), num_workers=1)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    for text in ("", "AAAA", "p", state["_snapshot"]["_worker_snapshots"]["worker_0"]["_generators"][4:], 5):
        broken = json.loads(json.dumps(state))
        broken["_snapshot"]["_worker_snapshots"]["worker_0"]["_generators"] = text
        with pytest.raises(slotline.StateError, match="_generators"):
            loader.load_state_dict(broken)


def positioned(i):
    """Returns a sample that draws from ``slotline.rng``."""
    rng = slotline.rng()
    return i, rng.random.random(), rng.numpy.random(), torch.rand(1, generator=rng.torch).item()


def drawn(**options):
    torch.manual_seed(3)
    loader = DataLoader(Samples(30, positioned), batch_size=4, shuffle=True, **options)
    return [[[part.tolist() for part in batch] for batch in loader] for _ in range(2)]


@pytest.mark.parametrize("workers, method", [(1, "multiprocessing"), (3, "multiprocessing"), (1, "thread"), (3, "thread")])
def test_rng_draws_the_same_with_any_workers(workers, method):
    assert drawn(num_workers=workers, worker_method=method) == drawn()
    batches = drawn()
    assert batches[0] != batches[1]
    numbers = [number for batch in batches[0] for number in batch[1]]
    assert len(set(numbers)) == 30


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("count", [0, 2])
def test_rng_draws_the_same_after_a_resume(workers, count):
    def make(workers):
        return DataLoader(Samples(30, positioned), batch_size=4, num_workers=workers, collate_fn=list)

    torch.manual_seed(3)
    whole = list(make(workers))
    torch.manual_seed(3)
    loader = make(workers)
    batches = iter(loader)
    begun = [next(batches) for _ in range(3)]
    state = loader.state_dict()
    loader = resume(make(count), state)
    assert begun + list(loader) == whole


class RandomStream(IterableDataset):
    def __iter__(self):
        offset = slotline.rng().random.random()
        for _ in range(12):
            yield offset, slotline.rng().random.random()


def test_rng_in_a_stream_depends_on_the_worker_and_its_batches():
    def make(method=None):
        torch.manual_seed(3)
        return DataLoader(RandomStream(), batch_size=3, num_workers=2, worker_method=method, collate_fn=list)

    whole = list(make())
    assert len({sample for batch in whole for sample in batch}) == 24
    assert list(make("thread")) == whole
    loader = make()
    batches = iter(loader)
    begun = [next(batches) for _ in range(3)]
    state = loader.state_dict()
    loader = resume(make(), state)
    assert begun + list(loader) == whole


def test_rng_outside_of_a_loader_has_a_new_seed():
    assert slotline.rng().random.random() != slotline.rng().random.random()
    list(DataLoader(Samples(30, positioned), batch_size=4))
    assert slotline.rng() is not slotline.rng()
    loader = DataLoader(RandomStream(), batch_size=3)
    next(iter(loader))
    state = loader.state_dict()
    loader = resume(DataLoader(RandomStream(), batch_size=3), state)
    iter(loader)
    assert slotline.rng() is not slotline.rng()


class Lazy(Sampler):
    """A sampler that draws indices from the default generator one by one."""

    def __len__(self):
        return 12

    def __iter__(self):
        for k in range(12):
            yield torch.randint(40, (1 + k % 3,)).tolist()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_sampler_that_draws_batch_by_batch_goes_on(workers):
    def make():
        return DataLoader(torch.arange(40), batch_sampler=Lazy(), num_workers=workers)

    torch.manual_seed(1)
    whole = passes(make(), 3)
    for stops in [[(1, 0), (1, 5)], [(1, 1), (1, 11)]]:
        assert resumed(make, stops, 3) == whole


def test_a_sampler_that_draws_batch_by_batch_goes_on_twice():
    torch.manual_seed(1)
    loader = DataLoader(torch.arange(40), batch_sampler=Lazy(), num_workers=2)
    whole = [batch.tolist() for batch in loader]
    torch.manual_seed(1)
    found = []
    for steps in (3, 1, 20):
        batches = iter(loader)
        found += [batch.tolist() for batch in itertools.islice(batches, steps)]
        state, numbers = loader.state_dict(), torch.get_rng_state()
        loader = resume(DataLoader(torch.arange(40), batch_sampler=Lazy(), num_workers=0), state)
        torch.set_rng_state(numbers)
    assert found == whole
