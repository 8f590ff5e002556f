"""Page-locked memory of worker processes, with a fake driver that only records its calls."""

import ctypes
import sys

import pytest
import torch
from datasets import Samples
from helpers import in_child, in_threads

from slotline.torch import DataLoader
from slotline.torch._workers import page_locked

NOT_READY = 600
CAPTURING = 900


class Driver:
    """A fake CUDA driver with one device. Events complete when `reach` is called."""

    def __init__(self):
        self.registered = {}
        self.retained = 0
        self.events = 0
        self.recorded = {}
        self.refuses = 0
        self.broken = 0
        self.was_synchronized = False

    @classmethod
    def installed(cls, monkeypatch):
        """Returns a driver that the loaders of a test use."""
        driver = cls()
        monkeypatch.setattr(page_locked, "find_driver", lambda: driver)
        for name, value in (("current_device", 0), ("device_count", 1), ("is_current_stream_capturing", False)):
            monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
        return driver

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
        if self.refuses == CAPTURING:
            return CAPTURING
        self.was_synchronized = True
        self.reach()
        return self.broken

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
        return self.broken or (0 if self.recorded[event.value] else NOT_READY)

    def cuCtxRecordEvent(self, context, event):
        if self.refuses:
            return self.refuses
        self.recorded[event.value] = False
        return 0


@pytest.fixture
def driver(monkeypatch):
    return Driver.installed(monkeypatch)


def sample(k):
    """Returns a sample of one of several sizes; the samples of a batch have equal sizes."""
    return torch.full((100_000 + 50_000 * (k // 4 % 3),), k, dtype=torch.int32), k


def make(count, **options):
    loader = DataLoader(Samples(count, sample), 4, num_workers=2, **options)
    loader._pins = True
    return loader


def value_at(address):
    return ctypes.c_int32.from_address(address).value


@pytest.mark.parametrize("refuses", [0, CAPTURING])
def test_memory_is_used_again_only_when_the_device_is_done(driver, refuses):
    """That includes the time in which another thread captures a graph, so that no event can be
    recorded."""
    driver.refuses = refuses
    batches = iter(make(400))
    dropped = {}
    for number in range(50):
        x, _ = next(batches)
        # Record the addresses of the batch's rows, which a late copy would read.
        for row in range(4):
            dropped[x[row].data_ptr()] = 4 * number + row
        del x
    assert len(dropped) == 200, "each batch has memory of its own"
    for address, value in dropped.items():
        assert value_at(address) == value
    driver.refuses = 0
    for _ in range(3):
        driver.reach()
        next(batches)
    used_again = set()
    for _ in batches:
        driver.reach()
        used_again.update(address for address, value in dropped.items() if value_at(address) != value)
    assert len(used_again) > 20


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
    kept = [next(batches) for _ in range(3)]
    del kept[0]
    pinned = batches._pinned

    def check():
        nonlocal kept
        before = dict(driver.registered), dict(driver.recorded)
        with pytest.raises(RuntimeError, match="has its workers in another process"):
            next(batches)
        del kept
        pinned.close()
        assert (driver.registered, driver.recorded) == before and not driver.was_synchronized
        assert not any(channel.dropped() for channel in pinned._channels)

    assert in_child(check)
    assert kept[0][0][0, 0] == 4
    # The block of the large tensor, and the block with the numbers and the description of the
    # batch.
    assert sum(channel.dropped() for channel in pinned._channels) == 2


def test_a_limit_or_a_driver_that_is_missing_leaves_the_memory_as_it_is(driver, monkeypatch):
    assert len(list(make(40, memory_limit=64 << 20))) == 10
    monkeypatch.setattr(page_locked, "find_driver", lambda: None)
    assert len(list(make(40))) == 10
    assert not driver.registered


def test_there_is_no_driver_here():
    if not torch.cuda.is_available():
        assert page_locked.find_driver() is None


@pytest.mark.parametrize("refuses, broken", [(801, 0), (0, 719), (719, 719)])
def test_memory_does_not_grow_if_the_driver_cannot_say_when_it_is_done(driver, refuses, broken):
    """The memory is then waited for. After a persistent error, a device does no more work, so
    nothing needs to be waited for."""
    driver.refuses, driver.broken = refuses, broken
    for _ in make(800):
        pass
    assert sum(driver.registered.values()) == 0
    batches = iter(make(800))
    for _ in range(190):
        next(batches)
    assert sum(driver.registered.values()) < 64 << 20
    del batches


def test_samples_that_are_left_out_are_not_held_back(driver):
    def bad(k):
        if k % 64 != 0:
            raise ValueError("bad")
        return sample(k)

    # At most half of 1,000 samples in a row may be bad.
    loader = DataLoader(Samples(960, bad), 1, num_workers=1, on_error="skip", persistent_workers=True)
    loader._pins = True
    for _ in range(4):
        assert len(list(loader)) == 15
    assert sum(channel.dropped() for channel in loader._iterator._pinned._channels) <= 2 * 60


def test_sizes_that_rise_take_no_more_than_twice_the_memory(driver):
    rising = Samples(400, lambda k: torch.zeros(100_000 + 4000 * (k // 4), dtype=torch.uint8))
    loader = DataLoader(rising, 4, num_workers=1)
    loader._pins = True
    for _ in loader:
        driver.reach()
        most = sum(driver.registered.values())
    assert most < 32 << 20, "a batch has 2 MB at most"


def test_a_capture_puts_everything_off(driver, monkeypatch):
    monkeypatch.setattr(page_locked, "_unclosed", [])
    batches = iter(make(80))
    next(batches)
    registered = dict(driver.registered)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    kept = [next(batches) for _ in range(10)]
    assert driver.registered == registered
    del batches
    assert driver.registered == registered and not driver.was_synchronized
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    driver.refuses = CAPTURING
    others = iter(make(80))
    next(others)
    assert set(registered) <= set(driver.registered), "another thread captures"
    driver.refuses = 0
    next(others)
    assert not set(registered) & set(driver.registered)
    del others
    assert not driver.registered and driver.retained == driver.events == 0
    assert kept[0][0][0, 0] == 4


def test_threads_may_share_an_iterator(driver):
    batches, errors, seen = iter(make(2000)), [], []

    def take(_):
        try:
            for x, _ in batches:
                seen.append(int(x[0, 0]))
                driver.reach()
        except Exception as error:
            errors.append(error)

    in_threads(4, take)
    assert not errors and sorted(seen) == list(range(0, 2000, 4))


def test_an_exception_at_any_moment_gives_nothing_back_twice_or_never(driver):
    """The exception is raised as by a signal handler, at each line of the module in turn."""

    class Interrupt(Exception):
        pass

    for line in range(40):
        channels = [Recorded() for _ in range(2)]
        pinned = page_locked.PinnedChannels(driver, channels)
        left = line

        def trace(frame, event, argument):
            nonlocal left
            if frame.f_code.co_filename != page_locked.__file__:
                return None
            if event == "line":
                left -= 1
                if left == -1:
                    raise Interrupt
            return trace

        for turn in range(6):
            for channel in channels:
                channel.count += 1
            sys.settrace(trace)
            try:
                pinned.give_back()
            except Interrupt:
                pass
            finally:
                sys.settrace(None)
            # Only blocks that were dropped before a completed event were given back.
            assert all(channel.given <= turn for channel in channels)
            driver.reach()
        for _ in range(3):
            pinned.give_back()
            driver.reach()
        assert [channel.given for channel in channels] == [6, 6]
        pinned.close()


class Recorded:
    """A replacement for a channel that records calls."""

    def __init__(self):
        self.count = self.given = 0

    def hold_back(self):
        pass

    def dropped(self):
        return self.count

    def give_back(self, count):
        assert count <= self.count
        self.given = max(self.given, count)
