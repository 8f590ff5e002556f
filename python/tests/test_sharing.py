"""Threads that use one loader, iterator, dataset or list at the same time."""

import threading
import time

import numpy as np
import pytest
import torch
from datasets import Samples
from helpers import in_threads

import slotline
from slotline.torch import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:.*num_workers", "ignore:.*fork")

KINDS = {
    "inline": lambda: DataLoader(Samples(600), 2),
    "threads": lambda: DataLoader(Samples(600), 2, num_workers=2, worker_method="thread"),
    "processes": lambda: DataLoader(Samples(600), 2, num_workers=2, worker_method="multiprocessing"),
    "tensors": lambda: DataLoader(torch.utils.data.TensorDataset(torch.arange(600)), 2, num_workers=1),
    "engine": lambda: DataLoader(slotline.Arrays(np.arange(600)), 2, num_workers=2),
    "arrays": lambda: slotline.Loader(slotline.Arrays(np.arange(600)), 2, num_workers=2),
    "map": lambda: slotline.Loader(slotline.Arrays(np.arange(600)).map(lambda sample: sample), 2, num_workers=2),
}


def numbers(batch):
    return (batch[0] if isinstance(batch, (list, tuple)) else batch).tolist()


def all_at_once(*functions):
    """Calls functions in as many threads, and raises the first of their exceptions."""
    failures = []

    def call(k):
        try:
            functions[k]()
        except BaseException as error:
            failures.append(error)

    in_threads(len(functions), call)
    if failures:
        raise failures[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_is_shared_while_its_state_is_read(kind):
    loader = KINDS[kind]()
    iterators, found, states = [iter(loader), iter(loader)], ([], []), []

    def take(k):
        for batch in iterators[k]:
            found[k].append(numbers(batch))

    def look():
        while len(found[0]) < 250 or len(found[1]) < 250:
            states.append(loader.state_dict())
            loader.stats(), loader.verdict()
            time.sleep(0.001)

    all_at_once(*[lambda k=k: take(k % 2) for k in range(6)], look)
    for one in found:
        assert sorted(one) == [[k, k + 1] for k in range(0, 600, 2)]
    for state in states[:: max(len(states) // 4, 1)]:
        again = KINDS[kind]()
        if kind in ("arrays", "map"):
            again = slotline.Loader(again.dataset, 2, num_workers=2, seed=loader.seed)
        again.load_state_dict(state)
        left = [numbers(batch) for batch in again]
        assert left == [[k, k + 1] for k in range(600 - 2 * len(left), 600, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_threads_begin_passes_and_leave_them(kind):
    loader = KINDS[kind]()

    def use():
        for k in range(3):
            batches = iter(loader)
            first = [numbers(next(batches)) for _ in range(5 * k + 1)]
            assert first == [[k, k + 1] for k in range(0, 2 * len(first), 2)]
            del batches

    all_at_once(*[use] * 4)
    assert [numbers(batch) for batch in loader] == [[k, k + 1] for k in range(0, 600, 2)]


@pytest.mark.parametrize("method", ["thread", "multiprocessing"])
def test_workers_are_ended_while_a_thread_waits_for_a_batch(method):
    for _ in range(5):
        batches = iter(DataLoader(Samples(600, lambda k: time.sleep(0.002) or k), 2, num_workers=2, worker_method=method))
        found, began = [], threading.Event()

        def take():
            with pytest.raises(RuntimeError, match="exited unexpectedly"):
                for batch in batches:
                    found.append(numbers(batch))
                    began.set()

        all_at_once(take, lambda: began.wait() and batches._shutdown_workers(), lambda: began.wait() and batches._shutdown_workers())
        assert found == [[k, k + 1] for k in range(0, 2 * len(found), 2)]


@pytest.mark.parametrize("kind", ["arrays", "map"])
def test_a_pass_is_closed_while_threads_wait_for_batches(kind):
    loader = KINDS[kind]()
    for _ in range(10):
        batches, found, began = iter(loader), [], threading.Event()

        def take():
            for batch in batches:
                found.append(numbers(batch))
                began.set()

        all_at_once(take, take, lambda: began.wait() and batches.close())
        assert len({tuple(pair) for pair in found}) == len(found)


def test_lists_are_frozen_while_threads_change_them():
    objects = [{"name": str(k), "part": [k, (k, str(k))]} for k in range(2000)]
    is_over = threading.Event()

    def change(first):
        k = first
        while not is_over.is_set():
            one = objects[k % 1000]
            one["part"] = [k] * (k % 9)
            one.pop(f"more {k - 7}", None)
            one[f"more {k}"] = k
            one["part"].append(k)
            objects.append(objects.pop())
            k += 7

    def freeze():
        try:
            for _ in range(5):
                frozen = slotline.freeze(objects)
                assert abs(len(frozen) - 2000) < 10
                for one in frozen:
                    assert int(one["name"]) < 2000 and len(set(map(str, one["part"]))) <= 2
        finally:
            is_over.set()

    all_at_once(freeze, lambda: change(0), lambda: change(3))


def test_functions_of_map_change_what_they_share():
    seen, counts, lock = [], {}, threading.Lock()

    def shared(sample):
        (k,) = sample
        seen.append(int(k))
        with lock:
            counts[int(k) % 5] = counts.get(int(k) % 5, 0) + 1
        return (k,)

    loader = slotline.Loader(slotline.Arrays(np.arange(600)).map(shared, [slotline.Field(None, "int64", ())]), 2, num_workers=3)
    passes = [iter(loader) for _ in range(3)]
    found = [[], [], []]
    all_at_once(*[lambda k=k: found[k].extend(map(numbers, passes[k])) for k in range(3)])
    assert found == [[[k, k + 1] for k in range(0, 600, 2)]] * 3
    assert sorted(seen) == sorted([*range(600)] * 3) and set(counts.values()) == {360}
