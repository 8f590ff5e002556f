"""Exceptions that come at any moment, and messages that cannot be read, cost a batch each and nothing else."""

import os
import random
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import Dataset

from slotline.torch import DataLoader


class Numbers(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return i


class Interrupt(BaseException):
    pass


@pytest.fixture
def interrupts():
    """Raises :class:`Interrupt` in the main thread again and again, until the function that it gives is called."""
    is_over = threading.Event()
    threads = []

    def interrupt(*_):
        raise Interrupt

    def begin():
        def run():
            while not is_over.wait(random.random() * 0.002):
                os.kill(os.getpid(), signal.SIGUSR1)

        threads.append(threading.Thread(target=run))
        threads[0].start()

    def end():
        while threads:
            try:
                is_over.set()
                threads[0].join()
                threads.clear()
            except Interrupt:
                pass

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield begin, end
    end()
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_loop_goes_on_after_exceptions_at_any_moment(interrupts, in_order, persistent):
    begin, end = interrupts
    count = 3000
    loader = DataLoader(Numbers(count), num_workers=2, in_order=in_order, persistent_workers=persistent)
    batches = iter(loader)
    found, raised, is_over = [], 0, False
    begin()
    while not is_over:
        try:
            while True:
                found.append(next(batches))
        except Interrupt:
            raised += 1
        except StopIteration:
            is_over = True
    end()
    found = [int(batch) for batch in found]
    assert raised > 0
    assert len(set(found)) == len(found) >= count - 2 * raised
    if in_order:
        assert found == sorted(found)
    if persistent:
        found = [int(batch) for batch in loader]
        assert sorted(found) == list(range(count))


def test_a_pass_begins_anew_after_exceptions_at_any_moment(interrupts):
    begin, end = interrupts
    loader = DataLoader(Numbers(40), num_workers=2, persistent_workers=True)
    list(loader)
    begin()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        try:
            for _ in loader:
                pass
        except Interrupt:
            pass
    end()
    assert [int(batch) for batch in loader] == list(range(40))


def unreadable():
    raise ValueError("this cannot be read")


class Unreadable:
    def __reduce__(self):
        return unreadable, ()


def test_what_cannot_be_unpickled_is_an_error_of_its_batch():
    def collate(samples):
        return Unreadable() if samples[0] % 2 else torch.tensor(samples)

    batches = iter(DataLoader(Numbers(5), num_workers=2, collate_fn=collate))
    for k in range(5):
        if k % 2:
            with pytest.raises(ValueError, match="this cannot be read"):
                next(batches)
        else:
            assert next(batches).tolist() == [k]
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.parametrize("persistent", [True, False])
def test_after_the_death_of_a_worker_come_the_batches_of_the_others(persistent):
    for _ in range(5):
        batches = iter(DataLoader(Numbers(40), num_workers=2, persistent_workers=persistent, collate_fn=_die_at_9))
        found, raised = [], 0
        while True:
            try:
                found.append(next(batches))
            except RuntimeError as error:
                assert "DataLoader worker" in str(error)
                raised += 1
            except StopIteration:
                break
        assert 1 <= raised <= 3
        assert found == sorted(found) and set(found) >= set(range(10, 40, 2))


def _die_at_9(samples):
    if samples == [9]:
        os.kill(os.getpid(), signal.SIGKILL)
    return samples[0]
