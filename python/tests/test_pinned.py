"""Page-locked memory of worker processes, over a driver that only records what is asked of it."""

import ctypes
import os

import pytest
import torch
from torch.utils.data import Dataset

from slotline.torch import DataLoader, _pinned

NOT_READY = 600
CAPTURING = 900


class Driver:
    """CUDA's driver, with one device. Events are reached when `reach` is called."""

    def __init__(self):
        self.registered = {}
        self.retained = 0
        self.events = 0
        self.recorded = {}
        self.refuses = False
        self.was_synchronized = False

    def reach(self):
        self.recorded = dict.fromkeys(self.recorded, True)

    def cuDevicePrimaryCtxRetain(self, context, device):
        context._obj.value = 0xC0
        self.retained += 1
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device):
        self.retained -= 1
        return 0

    def cuDevicePrimaryCtxGetState(self, device, flags, active):
        active._obj.value = 1
        return 0

    def cuCtxPushCurrent_v2(self, context):
        return 0

    def cuCtxPopCurrent_v2(self, context):
        return 0

    def cuCtxSynchronize(self):
        self.was_synchronized = True
        self.reach()
        return 0

    def cuMemHostRegister_v2(self, start, size, flags):
        assert start.value % 4096 == size.value % 4096 == 0 and size.value > 0
        assert not any(a < start.value + size.value and start.value < a + n for a, n in self.registered.items())
        self.registered[start.value] = size.value
        return 0

    def cuMemHostUnregister(self, start):
        assert self.was_synchronized
        del self.registered[start.value]
        return 0

    def cuEventCreate(self, event, flags):
        self.events += 1
        event._obj.value = 0xE000 + self.events
        return 0

    def cuEventDestroy_v2(self, event):
        self.events -= 1
        return 0

    def cuEventQuery(self, event):
        return 0 if self.recorded[event.value] else NOT_READY

    def cuCtxRecordEvent(self, context, event):
        if self.refuses:
            return CAPTURING
        self.recorded[event.value] = False
        return 0


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(_pinned, "find_driver", lambda: driver)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return driver


class Rows(Dataset):
    """Samples of several sizes: those of a batch are alike."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        return torch.full((100_000 + 50_000 * (k // 4 % 3),), k, dtype=torch.int32), k


def make(count, **options):
    loader = DataLoader(Rows(count), 4, num_workers=2, **options)
    loader._pins = True
    return loader


def value_at(address):
    return ctypes.c_int32.from_address(address).value


@pytest.mark.parametrize("refuses", [False, True])
def test_memory_is_used_again_only_when_the_device_is_done(driver, refuses):
    """Also while no event can be recorded, during a capture in another thread."""
    driver.refuses = refuses
    batches = iter(make(400))
    dropped = {}
    for number in range(50):
        x, _ = next(batches)
        # Rows of a batch that a late copy would read.
        for row in range(4):
            dropped[x[row].data_ptr()] = 4 * number + row
        del x
    assert len(dropped) == 200, "each batch has memory of its own"
    for address, value in dropped.items():
        assert value_at(address) == value
    driver.refuses = False
    for _ in range(3):
        driver.reach()
        next(batches)
    used_again = 0
    for _ in batches:
        driver.reach()
    for address, value in dropped.items():
        used_again += value_at(address) != value
    assert used_again > 20


def test_each_tensor_is_in_one_registration(driver):
    kept = []
    for epoch in range(2):
        for number, (x, y) in enumerate(make(240)):
            driver.reach()
            for tensor in (x, y):
                start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
                assert any(a <= start and end <= a + n for a, n in driver.registered.items())
            if number % 3 == epoch:
                kept.append((x, 4 * number))
    for x, first in kept:
        assert x[:, 0].tolist() == list(range(first, first + 4))


def test_nothing_is_left_registered(driver):
    loader = make(40, persistent_workers=True)
    for _ in range(2):
        kept = [x for x, _ in loader]
    assert driver.registered and driver.retained == 1
    del loader
    assert not driver.registered and driver.retained == driver.events == 0
    assert kept[3][0, 0] == 12, "a tensor outlives its loader"


def test_a_forked_process_does_not_call_the_driver(driver):
    batches = iter(make(40))
    next(batches)
    child = os.fork()
    if child == 0:
        before = dict(driver.registered)
        batches._pinned.close()
        del batches
        os._exit(0 if driver.registered == before and not driver.was_synchronized else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_limit_or_a_driver_that_is_missing_leaves_the_memory_as_it_is(driver, monkeypatch):
    assert len(list(make(40, memory_limit=64 << 20))) == 10
    monkeypatch.setattr(_pinned, "find_driver", lambda: None)
    assert len(list(make(40))) == 10
    assert not driver.registered


def test_there_is_no_driver_here():
    if not torch.cuda.is_available():
        assert _pinned.find_driver() is None
