"""An exception at any moment loses at most two batches; an unreadable message loses only its own
batch."""

import os
import random
import signal
import threading
import time

import pytest
import torch
from datasets import Samples
from helpers import outcomes

from slotline.torch import DataLoader


class Interrupt(BaseException):
    pass


class Interrupts:
    """Raises :class:`Interrupt` in the main thread at a random moment, once each time that it is
    armed."""

    def __init__(self):
        self._is_armed = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._before = signal.signal(signal.SIGUSR1, self._interrupt)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_armed = False
        self._is_over.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._before)

    def _run(self):
        while not self._is_over.wait(random.random() * 0.002):
            os.kill(os.getpid(), signal.SIGUSR1)

    def _interrupt(self, *_):
        if self._is_armed:
            self._is_armed = False
            raise Interrupt

    def during(self, call):
        """Calls a function, and returns whether it was interrupted."""
        try:
            self._is_armed = True
            call()
            self._is_armed = False
        except Interrupt:
            return True
        return False


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_loop_goes_on_after_exceptions_at_any_moment(in_order, persistent):
    count = 1500
    loader = DataLoader(Samples(count), num_workers=2, in_order=in_order, persistent_workers=persistent)
    batches = iter(loader)
    found, raised = [], 0
    with Interrupts() as interrupts:
        while interrupts.during(lambda: found.extend(batches)):
            raised += 1
    found = [int(batch) for batch in found]
    assert raised > 0
    assert len(set(found)) == len(found) >= count - 2 * raised
    if in_order:
        assert found == sorted(found)
    if persistent:
        found = [int(batch) for batch in loader]
        assert sorted(found) == list(range(count))


@pytest.mark.parametrize("size", [None, 1, 3])
def test_an_interrupted_batch_is_not_done_without_workers(size):
    raised = []

    def interrupted(i):
        if i == 7 and not raised:
            raised.append(i)
            raise KeyboardInterrupt
        return i

    loader = DataLoader(Samples(20, interrupted), size, shuffle=True)
    batches, found = iter(loader), []
    with pytest.raises(KeyboardInterrupt):
        while True:
            found.append(next(batches))
    state = loader.state_dict()
    rest = list(batches)
    assert sorted(_numbers(found + rest)) == list(range(20))
    loader.load_state_dict(state)
    assert _numbers(loader) == _numbers(rest)


def _numbers(batches):
    return [number for batch in batches for number in torch.as_tensor(batch).reshape(-1).tolist()]


def test_a_pass_begins_anew_after_exceptions_at_any_moment():
    loader = DataLoader(Samples(40), num_workers=2, persistent_workers=True)
    list(loader)
    raised = 0
    deadline = time.monotonic() + 1.5
    with Interrupts() as interrupts:
        while time.monotonic() < deadline:
            raised += interrupts.during(lambda: list(loader))
    assert raised > 0
    assert [int(batch) for batch in loader] == list(range(40))


def unreadable(error):
    raise error("this cannot be read")


class Unreadable:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        return unreadable, (self.error,)


@pytest.mark.parametrize("error", [ValueError, EOFError])
def test_what_cannot_be_unpickled_is_an_error_of_its_batch(error):
    def collate(samples):
        return Unreadable(error) if samples[0] % 2 else torch.tensor(samples)

    batches = iter(DataLoader(Samples(5), num_workers=2, collate_fn=collate))
    for k in range(5):
        if k % 2:
            with pytest.raises(error, match="this cannot be read"):
                next(batches)
        else:
            assert next(batches).tolist() == [k]
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.parametrize("persistent", [True, False])
def test_after_the_death_of_a_worker_come_the_batches_of_the_others(persistent):
    for _ in range(5):
        batches = iter(DataLoader(Samples(40), num_workers=2, persistent_workers=persistent, collate_fn=_die_at_9))
        every = list(outcomes(batches, RuntimeError))
        raised = [error for error in every if isinstance(error, RuntimeError)]
        found = [batch for batch in every if not isinstance(batch, RuntimeError)]
        assert 1 <= len(raised) <= 3 and all("DataLoader worker" in str(error) for error in raised)
        assert found == sorted(found) and set(found) >= set(range(10, 40, 2))


def _die_at_9(samples):
    if samples == [9]:
        os.kill(os.getpid(), signal.SIGKILL)
    return samples[0]
