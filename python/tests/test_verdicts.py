"""Loops with a planted bottleneck that takes many times as long as everything else: the verdict
names it."""

import multiprocessing
import os
import threading
import time

import pytest
import torch
from datasets import IDS, KINDS, Samples

from slotline.torch import DataLoader
from slotline.torch._state.stats import _SMALL, Stats


def Planted(seconds=0.0, slow=None):
    """Returns a dataset of numbers; sample ``slow``, or every sample, takes ``seconds``."""

    def make(k):
        if slow is None or k == slow:
            time.sleep(seconds)
        return k

    return Samples(24, make)


def slow_collate(samples):
    time.sleep(0.1)
    return torch.tensor(samples)


def verdict(dataset, batch_size=2, **options):
    loader = DataLoader(dataset, batch_size, **options)
    for _ in loader:
        pass
    return loader.verdict()


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_batch_that_hangs_is_named_while_it_does(kind):
    for slow, batch in ((0, 0), (17, 8)):
        ended = multiprocessing.Event()
        loader = DataLoader(Samples(24, lambda k: k if k != slow or ended.wait(30) else None), 2, **kind)

        def loop():
            for _ in loader:
                if ended.is_set():
                    break

        thread = threading.Thread(target=loop)
        thread.start()
        until = time.monotonic() + 20
        while "has not ended" not in (seen := loader.verdict()) and time.monotonic() < until:
            time.sleep(0.05)
        stats = loader.stats()
        ended.set()
        thread.join()
        worker = "the loop's own thread" if kind["num_workers"] == 0 else f"worker {batch % 2}"
        assert seen.startswith(f"held up by a batch that has not ended: {worker} has been making batch {batch} for")
        assert stats["elapsed"] > 0 and stats["waited"] > stats["elapsed"] / 4
        assert not stats["busy"] or stats["busy"][batch % 2] > stats["elapsed"] / 4


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_one_slow_batch_is_named(kind):
    assert verdict(Planted(0.5, 17), **kind).startswith("held up by one batch: batch 8 alone took")


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_reading_and_collating_are_told_apart(kind):
    reading, collating = verdict(Planted(0.05), **kind), verdict(Planted(), collate_fn=slow_collate, **kind)
    bound = "bound by loading: the loop's own thread" if kind["num_workers"] == 0 else "bound by the workers"
    assert reading.startswith(bound) and "collating" not in reading
    assert collating.startswith(bound) and "more than half of it collating and copying" in collating


def test_workers_are_named_that_hold_the_loop_back():
    uneven = Samples(20, lambda k: time.sleep(0.03 if k // 2 % 2 else 0.0) or k)
    assert verdict(uneven, num_workers=2).startswith("held up by worker 1")
    seen = verdict(Planted(0.02), num_workers=1)
    assert seen.startswith("bound by the workers: they were busy") and "num_workers" in seen


def test_big_copies_are_collating():
    row = torch.ones(1 << 21)
    seen = verdict(Samples(160, lambda k: row), 4, num_workers=0)
    assert seen.startswith("bound by loading") and "collating and copying" in seen


def test_a_slow_loop_is_the_limit():
    for kind in KINDS:
        loader = DataLoader(Planted(), 2, persistent_workers=kind["num_workers"] > 0, **kind)
        list(loader)  # In this pass, the loop waits until the workers have started.
        for _ in loader:
            time.sleep(0.1)
        assert loader.verdict().startswith("bound by the loop"), kind


def test_small_batches_are_the_limit():
    seen = verdict(range(20_000), 1, num_workers=0)
    assert seen.startswith("bound by loading") and "a greater batch_size would help" in seen and "num_workers" not in seen
    for _ in range(5):
        loader = DataLoader(range(20_000), 1, num_workers=2, worker_method="thread")
        for _ in loader:
            pass
        seen, stats = loader.verdict(), loader.stats()
        if seen.startswith("bound by handing over small batches: there is one every"):
            return
    # Other programs may use the cores meanwhile; then workers wait for a core, or batches take
    # long.
    assert seen.startswith("starved of cores") or stats["elapsed"] / stats["batches"] > _SMALL / 2, (seen, stats)


@pytest.mark.parametrize("each, said", [(50e-6, "handing over small batches: there is one every 50 µs"), (1e-3, "no single part")])
def test_batches_are_small_if_there_is_one_often(each, said):
    stats = Stats(2)
    stats.batches, stats.waited, stats.busy = 1000, 800 * each, [300 * each, 400 * each]
    stats._begun, stats._last = 0.0, 1000 * each
    assert said in stats.verdict() and "waited 80%" in stats.verdict()


def test_workers_without_a_core_of_their_own_are_starved():
    cores = sorted(os.sched_getaffinity(0))
    spinning = []
    for _ in range(6):
        if not (child := os.fork()):
            os.sched_setaffinity(0, cores[:1])
            end = time.monotonic() + 60
            while time.monotonic() < end:
                pass
            os._exit(0)
        spinning.append(child)
    try:
        computed = Samples(24, lambda k: sum(range(500_000)) % 7)
        seen = verdict(computed, 2, num_workers=2, affinity=cores[:1], worker_method="multiprocessing")
    finally:
        for child in spinning:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert seen.startswith("starved of cores"), seen


@pytest.mark.parametrize("kind", KINDS[1:], ids=IDS[1:])
def test_workers_are_not_busier_than_the_pass_is_long(kind):
    loader = DataLoader(Planted(1.0, 17), 2, **kind)
    batches = iter(loader)
    next(batches)
    time.sleep(0.6)
    # During a step, one worker makes the slow batch, while the pass so far was short.
    for _ in range(2):
        stats = loader.stats()
        assert max(stats["busy"]) <= stats["elapsed"] < 0.6
        time.sleep(0.1)
    assert "has not ended" not in loader.verdict()


def test_a_worker_that_was_killed_is_not_busy():
    loader = DataLoader(Planted(60.0, 4), 2, num_workers=2, worker_method="multiprocessing")
    batches = iter(loader)
    time.sleep(0.3)
    next(batches), next(batches)
    victim = batches._workers[0]
    os.kill(victim.pid, 9)
    with pytest.raises(RuntimeError, match="exited unexpectedly|is killed by signal"):
        victim.join()
        next(batches)
    busy = loader.stats()["busy"][0]
    time.sleep(0.2)
    assert loader.stats()["busy"][0] == busy and "has not ended" not in loader.verdict()
