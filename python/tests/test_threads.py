"""Worker threads."""

import gc
import threading
import time

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from conftest import same
from datasets import Samples
from helpers import IS_FREE_THREADED, in_child, outcomes, script
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from slotline.torch import DataLoader
from slotline.torch._iterators.threads import ThreadIterator

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(autouse=True)
def leaves_no_thread():
    before = set(threading.enumerate())
    yield
    late = time.monotonic() + 10
    while set(threading.enumerate()) - before:
        assert time.monotonic() < late, threading.enumerate()
        time.sleep(0.01)


ROWS = Samples(50, lambda k: {"x": torch.full((3, 2), k), "y": np.arange(k, k + 2), "k": k, "name": str(k)})


class Parts(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, count = (0, 9) if info is None else (100 * info.id, 4 + 5 * info.id)
        yield from range(first, first + count)


def test_threads_are_the_default_without_the_interpreters_lock():
    ended = script("from slotline.torch import DataLoader; print(type(iter(DataLoader(range(1), num_workers=1))).__name__)")
    assert ended.stdout.strip() == ("ThreadIterator" if IS_FREE_THREADED else "ProcessIterator"), ended.stderr


def threads(dataset, *args, num_workers=2, **kwargs):
    return DataLoader(dataset, *args, num_workers=num_workers, worker_method="thread", **kwargs)


@pytest.mark.parametrize("options", [{}, {"batch_size": 7, "shuffle": True}, {"batch_size": None}, {"drop_last": True, "batch_size": 4}])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_are_those_of_processes(options, workers, persistent):
    def outcome(make, workers):
        torch.manual_seed(4)
        loader = make(ROWS, num_workers=workers, persistent_workers=persistent, **options)
        return [list(loader), list(loader), torch.rand(1)]

    same(outcome(threads, workers), outcome(tud.DataLoader, 1))


@pytest.mark.parametrize("workers", [1, 3])
def test_streams_are_those_of_processes(workers):
    same(list(threads(Parts(), 2, num_workers=workers)), list(tud.DataLoader(Parts(), 2, num_workers=workers)))


class Where(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, k):
        info = get_worker_info()
        assert threading.current_thread() is not threading.main_thread()
        return info.id, info.num_workers, info.seed, info.dataset is self


def test_each_thread_knows_which_worker_it_is():
    generator = torch.Generator().manual_seed(3)
    loader = threads(Where(), 2, num_workers=3, generator=generator)
    seed = torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(3)).item()
    for number, (ids, counts, seeds, is_own) in enumerate(loader):
        worker = number % 3
        assert ids.tolist() == [worker] * 2
        assert counts.tolist() == [3] * 2
        assert seeds.tolist() == [seed + worker] * 2
        assert is_own.all()
        assert get_worker_info() is None


def drawn(k):
    rng = get_worker_info().rng
    assert torch.thread_safe_generator() is rng.torch_generator
    return torch.rand(1, generator=rng.torch_generator).item(), rng.random_generator.random(), rng.numpy_generator.random()


@pytest.mark.skipif(not hasattr(torch, "thread_safe_generator"), reason="this torch has no generators for threads")
def test_each_thread_has_its_own_generators():
    def outcome():
        return list(threads(Samples(12, drawn), generator=torch.Generator().manual_seed(3)))

    first = outcome()
    same(first, outcome())
    assert len({batch[0].item() for batch in first}) == len(first)


class Same(Where):
    def __getitem__(self, k):
        return id(self)


@pytest.mark.parametrize("copies", [None, False, True])
def test_datasets_are_copied_if_that_is_asked_for(copies):
    dataset = Same()
    seen = {batch.item() for batch in threads(dataset, copy_dataset=copies)}
    assert (seen == {id(dataset)}) == (not copies)
    assert len(seen) == (2 if copies else 1)


def bad(kind):
    """Returns a dataset of numbers, of which one raises an error of this kind."""

    def make(k):
        if k == 3:
            raise kind("no such sample")
        return k

    return Samples(12, make)


def test_errors_are_raised_in_the_loop():
    found = list(outcomes(iter(threads(bad(KeyError))), KeyError))
    error = found.pop(3)
    assert "in DataLoader worker thread 1" in str(error) and "no such sample" in str(error)
    assert found == [0, 1, 2, *range(4, 12)]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_interrupt_of_a_dataset_is_raised_in_the_loop(on_error):
    batches = iter(threads(bad(KeyboardInterrupt), on_error=on_error))
    assert [next(batches).item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt, match="no such sample"):
        next(batches)
    assert [batch.item() for batch in batches] == list(range(4, 12))


def test_an_interrupt_of_an_init_function_is_raised_in_the_loop():
    def interrupt(worker_id):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(iter(threads(ROWS, worker_init_fn=interrupt)))
    # torch's `reraise` keeps the exception in a variable, and the exception refers to that frame:
    # collect the cycle.
    gc.collect()


@pytest.mark.filterwarnings("ignore:Exception in thread")
def test_a_thread_that_ends_is_an_error():
    with pytest.raises(RuntimeError, match="sl_data_worker_1.*exited unexpectedly"):
        list(threads(bad(SystemExit)))


SLOW = Samples(12, lambda k: time.sleep(0.3) or k)


def test_timeouts_are_errors():
    with pytest.raises(RuntimeError, match="timed out after 0.05 seconds"):
        list(threads(SLOW, timeout=0.05))


def test_threads_sleep_at_the_same_time():
    begun = time.monotonic()
    list(threads(SLOW, num_workers=4))
    assert time.monotonic() - begun < 0.75 * 12 * 0.3


def test_a_loop_that_is_left_ends_the_threads():
    for _ in threads(SLOW, num_workers=3):
        break


def test_many_loaders_leave_nothing():
    for _ in range(200):
        batches = iter(threads(ROWS, 5))
        next(batches)


def test_loaders_in_workers():
    def nested(k):
        before = get_worker_info().id
        inner = [batch.item() for batch in threads(Same(), 1)]
        assert get_worker_info().id == before
        return len(inner)

    assert [batch.item() for batch in threads(Samples(12, nested))] == [12] * 12


def test_options_that_exclude_each_other_are_errors():
    with pytest.raises(ValueError, match="worker_method is 'multiprocessing' or 'thread', and not 'fork'"):
        DataLoader(ROWS, worker_method="fork")
    with pytest.raises(ValueError, match="multiprocessing_context is for"):
        threads(ROWS, multiprocessing_context="spawn")
    for value in (3, "yes", 0):
        with pytest.raises(ValueError, match=f"copy_dataset option should be a bool, but got copy_dataset={value!r}"):
            threads(ROWS, copy_dataset=value)
    for value in (True, False):
        for options in (dict(), dict(worker_method="multiprocessing"), dict(multiprocessing_context="fork")):
            with pytest.raises(ValueError, match="copy_dataset option could only be specified with worker_method='thread'"):
                DataLoader(ROWS, num_workers=2, copy_dataset=value, **options)
    assert isinstance(iter(threads(ROWS)), ThreadIterator)


EXITS = {
    "at the end of the program": "pass",
    "by an exception": "raise ValueError('left')",
    "in a thread": "threading.Thread(target=lambda: [time.sleep(0.01) for _ in it]).start()",
    "with a loop in the exit handlers": "import atexit; atexit.register(lambda: list(it))",
    "at once": "os._exit(0)",
}


def test_more_threads_than_cores_are_called_threads():
    with pytest.warns(UserWarning, match="will create 5000 worker threads, but this process may use") as caught:
        DataLoader(ROWS, num_workers=5000, worker_method="thread")
    assert [(warning.filename, "process" in str(warning.message).replace("this process", "")) for warning in caught] == [
        (__file__, False)
    ]
    with pytest.warns(UserWarning, match="will create 5000 worker processes"):
        DataLoader(ROWS, num_workers=5000, worker_method="multiprocessing")


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_ends_with_loops_that_are_not_done(how):
    program = f"""
import os, threading, time, torch
from slotline.torch import DataLoader

class Dataset:
    def __len__(self):
        return 10 ** 6
    def __getitem__(self, k):
        time.sleep(0.001)
        return torch.ones(100) * k, str(k)

it = iter(DataLoader(Dataset(), 4, num_workers=2, worker_method="thread"))
next(it)
import torch.utils.data
{EXITS[how]}
"""
    if how in ("in a thread", "with a loop in the exit handlers"):
        program = program.replace("10 ** 6", "200")
    ended = script(program)
    assert ended.returncode == (1 if how == "by an exception" else 0), ended.stderr
    assert "Fatal" not in ended.stderr and "panicked" not in ended.stderr
    if how in ("in a thread", "with a loop in the exit handlers"):
        assert ended.stderr == ""


def test_a_child_of_a_fork_notices_that_its_threads_are_not_there():
    batches = iter(threads(ROWS, 5))
    next(batches)

    def check():
        with pytest.raises(RuntimeError):
            list(batches)

    assert in_child(check)
    assert len(list(batches)) == 9
