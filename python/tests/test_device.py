"""Batches on a device. The tests have no device, so operations on it are recorded instead."""

import collections
import contextlib
import copy
import pickle

import pytest
import torch
from conftest import same
from datasets import Samples, resume
from torch.utils.data import TensorDataset

from slotline.torch import DataLoader, DeviceLoader
from slotline.torch import _device

Pair = collections.namedtuple("Pair", "x y")
DATA = TensorDataset(torch.arange(20), torch.arange(20.0))


def bad(k):
    if k == 4:
        raise KeyError("no sample 4")
    return k


@pytest.mark.parametrize("prefetch", [1, 2, 50])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_loader(prefetch, workers):
    loader = DataLoader(DATA, 3, num_workers=workers)
    moved = DeviceLoader(loader, "cpu", prefetch=prefetch)
    assert len(moved) == 7
    for _ in range(2):
        same(list(moved), list(loader))


def test_a_tensor_is_moved_wherever_it_is():
    batch = {"a": [torch.ones(2), "text"], "b": (torch.ones(3), None), "c": Pair(torch.ones(1), 4)}
    [moved] = DeviceLoader([batch], "meta")
    assert moved["a"][0].device.type == moved["b"][0].device.type == moved["c"].x.device.type == "meta"
    assert moved["a"][1] == "text" and moved["b"][1] is None and moved["c"].y == 4
    assert type(moved["c"]) is Pair and type(moved["b"]) is tuple


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
def test_the_state_is_that_of_the_batches_that_the_loop_has(count):
    def make():
        return DeviceLoader(DataLoader(DATA, 3, shuffle=True), "cpu", prefetch=3)

    loader = make()
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    state = loader.state_dict()
    rest = list(batches)
    torch.manual_seed(0)
    resumed = resume(make(), state)
    if count == 0:
        # No pass had begun.
        assert len(list(resumed)) == 7
    else:
        same(list(resumed), rest)


def test_an_error_comes_after_the_batches_before_it():
    batches = iter(DeviceLoader(DataLoader(Samples(10, bad)), "cpu", prefetch=3))
    assert [next(batches).item() for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="no sample 4"):
        next(batches)
    # A further call raises StopIteration again, like any generator.
    with pytest.raises(StopIteration):
        next(batches)


def test_an_interrupt_comes_at_once():
    def interrupted():
        yield torch.ones(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(iter(DeviceLoader(interrupted(), "cpu")))


def test_what_cannot_be_is_an_error():
    for prefetch in (0, "2", 1.5, True):
        with pytest.raises(ValueError, match=f"prefetch is a number of batches from 1 on, and not {prefetch!r}"):
            DeviceLoader([], "cpu", prefetch=prefetch)
    for loader in (None, 3, object()):
        with pytest.raises(TypeError, match=f"another iterable of batches, but got {type(loader).__name__}"):
            DeviceLoader(loader, "cpu")
    with pytest.raises((RuntimeError, AssertionError)):
        DeviceLoader([], "cuda:99")


def test_what_a_trainer_reads_is_the_loaders():
    loader = DataLoader(DATA, 3, shuffle=True, drop_last=True)
    moved = DeviceLoader(loader, "cpu")
    for name in ("dataset", "batch_size", "sampler", "batch_sampler", "num_workers", "collate_fn", "drop_last", "generator"):
        assert getattr(moved, name) is getattr(loader, name)
    assert moved.verdict() == "no batch was delivered"
    assert len(list(moved)) == moved.stats()["batches"] == loader.stats()["batches"] == 6
    with pytest.raises(AttributeError, match="object has no attribute 'epochs'"):
        moved.epochs
    with pytest.raises(AttributeError, match="'list' object has no attribute 'stats'"):
        DeviceLoader([], "cpu").stats()
    for copied in (copy.copy(moved), copy.deepcopy(moved), pickle.loads(pickle.dumps(moved))):
        assert copied.batch_size == 3 and len(list(copied)) == 6


class Recorded:
    """A replacement for ``torch.cuda`` that records the operations on streams, in order."""

    def __init__(self, log):
        self.log = log
        self.now = "loop"

    def Stream(self, device):
        return Stream(self.log, "copies")

    def current_stream(self, device):
        return Stream(self.log, "loop")

    def current_device(self):
        return 0

    @contextlib.contextmanager
    def stream(self, stream):
        self.now = stream.name
        yield
        self.now = "loop"


class Stream:
    def __init__(self, log, name):
        self.log = log
        self.name = name

    def record_event(self):
        self.log.append(f"record on {self.name}")
        return len(self.log)

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event}")


class Value:
    """A replacement for a tensor that records operations on it."""

    def __init__(self, log, module, number):
        self.log, self.module, self.number = log, module, number

    def to(self, device, non_blocking):
        assert non_blocking
        if isinstance(self.number, BaseException):
            raise self.number
        self.log.append(f"copy {self.number} on {self.module.now}")
        return self


def recorded(monkeypatch, log, values):
    module = Recorded(log)
    loader = DeviceLoader([Value(log, module, value) for value in values], "cpu", prefetch=1)
    monkeypatch.setattr(_device.torch, "get_device_module", lambda device: module)
    loader.device = torch.device("cuda")
    return loader


def test_copies_run_on_their_own_stream_and_ahead(monkeypatch):
    log = []
    for batch in recorded(monkeypatch, log, range(3)):
        log.append(f"use {batch.number}")
    assert log == [
        "copies waits for loop",
        "copy 0 on copies",
        "record on copies",
        "copies waits for loop",
        "copy 1 on copies",
        "record on copies",
        "loop waits for 3",
        "use 0",
        "copies waits for loop",
        "copy 2 on copies",
        "record on copies",
        "loop waits for 6",
        "use 1",
        "loop waits for 11",
        "use 2",
    ]


def test_the_loop_s_stream_waits_for_copies_that_the_loop_does_not_get(monkeypatch):
    """The memory of these copies is reused on that stream."""
    log = []
    batches = iter(recorded(monkeypatch, log, range(5)))
    next(batches)
    batches.close()
    assert log[-2:] == ["loop waits for 3", "loop waits for 6"]

    log.clear()
    batches = iter(recorded(monkeypatch, log, [0, KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert log[-2:] == ["loop waits for copies", "loop waits for 3"]


def test_a_tensor_s_memory_is_taken_on_the_loop_s_stream(monkeypatch):
    log = []
    recorded(monkeypatch, log, [])
    module = _device.torch.get_device_module(None)
    empty_like, to = torch.empty_like, torch.Tensor.to
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: log.append(f"take on {module.now}") or empty_like(*a, **k))
    monkeypatch.setattr(torch.Tensor, "to", lambda *a, **k: log.append(f"copy on {module.now}") or to(*a, **k))
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: log.append(f"{stream.name} uses it, too"))
    copies = _device._Copies(torch.device("cuda"))
    assert copies._target == torch.device("cuda:0")
    copies._target = torch.device("meta")
    there = torch.empty(5, device="meta")
    for batch in [(torch.arange(3), torch.ones(2, requires_grad=True)), (torch.arange(4), there)]:
        copied = copies.end(copies.begin(batch))
        assert [part.device.type for part in copied] == ["meta", "meta"]
    assert copied[1] is there
    assert log.count("take on loop") == 2 and log.count("copy on copies") == log.count("copy on loop") == 1
    # The loop may use another stream by then, as it does here, where each call returns a new
    # object.
    assert log.count("loop uses it, too") == 4


def test_an_error_of_the_state_does_not_lose_a_copy(monkeypatch):
    log = []
    loader = recorded(monkeypatch, log, range(2))

    class Stateful(list):
        states = 0

        def state_dict(self):
            self.states += 1
            if self.states == 3:
                raise KeyboardInterrupt
            return {}

    loader.loader = Stateful(loader.loader)
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    assert log[-2:] == ["loop waits for 3", "loop waits for 6"]


def test_dicts_of_any_kind_are_moved():
    batch = collections.defaultdict(list, x=torch.ones(2))
    [moved] = DeviceLoader([batch], "meta")
    assert type(moved) is collections.defaultdict and moved["x"].device.type == "meta" and moved["y"] == []
    assert batch["x"].device.type == "cpu"
