"""Features that torch's loader does not have: statistics, skipped samples, limits."""

import itertools
import os
import time

import pytest
import torch
from datasets import IDS, KINDS, Samples, resume
from torch.utils.data import IterableDataset, TensorDataset, get_worker_info

import slotline
from slotline.torch import DataLoader

def Rows(bad=(), seconds=0.0, length=20):
    """Returns a dataset of numbers that each take ``seconds``; those in ``bad`` are errors."""

    def make(k):
        time.sleep(seconds)
        if k in bad:
            raise ValueError(f"sample {k} is broken")
        return k

    return Samples(length, make)


class Stream(IterableDataset):
    """A stream in which each sample of `bad` is an error, after which it continues."""

    def __init__(self, bad):
        self.bad = bad

    def __iter__(self):
        info = get_worker_info()
        self.at = -1 if info is None or info.id == 0 else 9
        self.end = 20 if info is None else self.at + 11
        return self

    def __next__(self):
        self.at += 1
        if self.at >= self.end:
            raise StopIteration
        if self.at in self.bad:
            raise ValueError(f"sample {self.at} is broken")
        return self.at


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_bad_samples_are_left_out(kind):
    bad = [2, 5, 12, 13, 14, 15]
    loader = DataLoader(Rows(bad), 2, on_error="skip", **kind)
    batches = [batch.tolist() for batch in loader]
    assert batches == [[0, 1], [3], [4], [6, 7], [8, 9], [10, 11], [16, 17], [18, 19]]
    stats = loader.stats()
    assert stats["bad_samples"] == 6 and stats["errors"] == 0 and stats["batches"] == 8
    assert stats["bad_causes"] == [(k, f"ValueError: sample {k} is broken") for k in bad]
    assert list(DataLoader(Rows(bad), None, on_error="skip", **kind)) == sorted(set(range(20)) - set(bad))


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_the_next_sample_of_a_stream_takes_the_place_of_a_bad_one(kind):
    loader = DataLoader(Stream([1, 2, 11]), 3, on_error="skip", **kind)
    batches = [batch.tolist() for batch in loader]
    assert sorted(sum(batches, [])) == sorted(set(range(20)) - {1, 2, 11})
    assert all(len(batch) == 3 for batch in batches[:-2])
    assert loader.stats()["bad_samples"] == 3


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_stream_of_errors_ends(kind):
    with pytest.raises(slotline.SampleError, match="1000 of the last 1000 samples raised exceptions.*is broken"):
        list(DataLoader(Endless(), 3, on_error="skip", **kind))


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_most_samples_may_not_be_left_out(kind):
    loader = DataLoader(Rows(range(2, 10**9), length=10**9), 2, on_error="skip", **kind)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(slotline.SampleError, match="of the last 1000 samples raised exceptions"):
        next(batches)
    # This also fails if a good sample comes regularly, so that 1000 samples may end with a good one.
    for good in (10, 1000):
        bad = {k for k in range(20_000) if k % good != good - 1}
        with pytest.raises(slotline.SampleError, match="samples raised exceptions"):
            list(DataLoader(Rows(bad, length=10**9), 2, on_error="skip", sampler=range(20_000), **kind))
    # Exactly half of the samples may be bad.
    half = itertools.islice(DataLoader(Rows(range(1, 10**9, 2), length=10**9), 2, on_error="skip", **kind), 2000)
    assert sum(map(len, half)) == 2000


@pytest.mark.parametrize("kind", KINDS[1:], ids=IDS[1:])
def test_the_timeout_ends_a_row_of_batches_that_are_left_out(kind):
    loader = DataLoader(Rows(range(2, 10**9), 1e-3, 10**9), 2, on_error="skip", timeout=0.3, **kind)
    batches, begun = iter(loader), time.monotonic()
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.3 seconds"):
        next(batches)
    assert time.monotonic() - begun < 5


class Generating(IterableDataset):
    def __iter__(self):
        for k in range(9):
            if k == 4:
                raise ValueError(f"sample {k} is broken")
            yield k


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_generator_that_ends_with_its_error_raises_it(kind):
    batches = iter(DataLoader(Generating(), 2, on_error="skip", **kind))
    for _ in range(2 * max(kind["num_workers"], 1)):
        next(batches)
    with pytest.raises(ValueError, match="sample 4 is broken"):
        next(batches)


class Part(IterableDataset):
    """A stream that begins with a good sample in each worker, followed by 1000 bad ones."""

    def __iter__(self):
        self.at = -1
        return self

    def __next__(self):
        self.at += 1
        if self.at > 0 and self.at <= 1000:
            raise ValueError(f"sample {self.at} is broken")
        if self.at > 1002:
            raise StopIteration
        return self.at


class Ended(IterableDataset):
    def __iter__(self):
        yield 0
        raise ValueError("the generator is broken")


@pytest.mark.parametrize("kind", [dict(KINDS[0]), *(dict(kind, num_workers=1) for kind in KINDS[1:])], ids=IDS)
def test_good_samples_come_before_the_error_of_a_stream(kind):
    batches = iter(DataLoader(Part(), 4, on_error="skip", **kind))
    assert next(batches).tolist() == [0]
    with pytest.raises(slotline.SampleError, match="1000 of the last 1000 samples raised exceptions"):
        next(batches)
    with pytest.warns(RuntimeWarning, match="samples were left out"):
        assert [batch.tolist() for batch in batches] == [[1001, 1002]]
    batches = iter(DataLoader(Ended(), 4, on_error="skip", **kind))
    assert next(batches).tolist() == [0]
    with pytest.raises(ValueError, match="the generator is broken"):
        next(batches)
    assert list(batches) == []
    # With drop_last, the partial batch before the error is not returned.
    with pytest.raises(ValueError, match="the generator is broken"):
        next(iter(DataLoader(Ended(), 4, on_error="skip", drop_last=True, **kind)))


@pytest.mark.filterwarnings("ignore:.*samples were left out")
@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_resumed_stream_counts_what_it_leaves_out_itself(kind):
    def make():
        return DataLoader(Stream([1, 2, 7, 8, 11, 12, 18]), 2, on_error="skip", **kind)

    loader = make()
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    before = loader.stats()["bad_samples"]
    expected = [batch.tolist() for batch in batches]
    assert before >= 2 and loader.stats()["bad_samples"] == 7
    loader = resume(make(), state)
    assert [batch.tolist() for batch in loader] == expected
    stats = loader.stats()
    assert 0 < stats["bad_samples"] <= 5
    assert {"sample 1 is", "sample 2 is"}.isdisjoint(text[12:23] for _, text in stats["bad_causes"])


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_an_error_of_collation_is_raised(kind):
    def refuse(samples):
        raise ValueError("no batch")

    with pytest.raises(ValueError, match="no batch"):
        next(iter(DataLoader(Rows(), 2, on_error="skip", collate_fn=refuse, **kind)))


class Endless(IterableDataset):
    def __iter__(self):
        return self

    def __next__(self):
        raise ValueError("every sample is broken")


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_state_counts_batches_that_were_left_out(kind):
    loader = DataLoader(Rows([2, 3, 9]), 2, on_error="skip", **kind)
    batches = iter(loader)
    first = [next(batches).tolist() for _ in range(3)]
    assert first == [[0, 1], [4, 5], [6, 7]]
    resume(loader, loader.state_dict())
    assert [batch.tolist() for batch in loader] == [[8], [10, 11], [12, 13], [14, 15], [16, 17], [18, 19]]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_errors_and_times_are_counted(kind):
    loader = DataLoader(Rows([4], 0.02), 2, **kind)
    assert loader.stats()["batches"] == 0 and loader.verdict() == "no batch was delivered"
    batches = iter(loader)
    for k in range(10):
        if k == 2:
            with pytest.raises(ValueError, match="sample 4 is broken"):
                next(batches)
        else:
            next(batches)
    stats = loader.stats()
    assert stats["batches"] == 9 and stats["errors"] == 1
    workers = kind["num_workers"]
    assert stats["elapsed"] >= stats["waited"] >= 0.9 * 20 * 0.02 / max(workers, 1)
    assert len(stats["busy"]) == workers
    assert workers == 0 or 0.35 <= sum(stats["busy"]) <= 2 * stats["elapsed"] + 0.1


@pytest.mark.parametrize("kind", KINDS[1:], ids=IDS[1:])
def test_workers_run_on_their_cores(kind):
    numbers = Samples(20, lambda k: list(os.sched_getaffinity(0)))
    cores = sorted(os.sched_getaffinity(0))
    seen = [[int(core) for core in batch] for batch in DataLoader(numbers, affinity=cores[-2:], **kind)]
    assert seen[:2] == [[core] for core in (cores[-2:] * 2)[:2]]
    assert sorted(os.sched_getaffinity(0)) == cores


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(on_error="ignore"), "on_error is 'raise' or 'skip', and not 'ignore'"),
        (dict(memory_limit=0), "memory_limit is a number of bytes, and not 0"),
        (dict(memory_limit="1G"), "memory_limit is a number of bytes, and not '1G'"),
        (dict(memory_limit=1.5), "memory_limit is a number of bytes, and not 1.5"),
        (dict(memory_limit=True), "memory_limit is a number of bytes, and not True"),
        (dict(watchdog=True), "watchdog is a number of seconds, and not True"),
        (dict(snapshot_every_n_steps=True), "snapshot_every_n_steps is a number from 0 on, and not True"),
        (dict(affinity=[True]), "affinity is a list of cores, such as .*, and not .True."),
        (dict(watchdog=-1), "watchdog is a number of seconds, and not -1"),
        (dict(watchdog="60"), "watchdog is a number of seconds, and not '60'"),
        (dict(watchdog=float("nan")), "watchdog is a number of seconds, and not nan"),
        (dict(affinity=3), "affinity is a list of cores, such as .*, and not 3"),
        (dict(affinity="spread"), "affinity is a list of cores, such as .*, and not 'spread'"),
        (dict(affinity=[]), "affinity is a list of cores, such as .*, and not "),
        (dict(affinity=[100000]), "affinity has core 100000, on which this process cannot run"),
    ],
)
def test_values_that_make_no_sense_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        DataLoader(Rows(), **options)


def test_a_dataset_in_memory_has_figures_too():
    loader = DataLoader(TensorDataset(torch.arange(10)), 3, num_workers=2)
    list(loader)
    assert loader.stats()["batches"] == 4


def alternating(k):
    """Returns a sample with its worker's number. Every other batch of two samples is slow."""
    time.sleep(0.04 if k % 4 == 0 else 0.0)
    return k, get_worker_info().id


@pytest.mark.parametrize("kind", KINDS[1:], ids=IDS[1:])
def test_slow_batches_are_shared_if_workers_need_not_take_turns(kind):
    def slow_batches(**options):
        numbers, makers = zip(*DataLoader(Samples(32, alternating), 2, **kind, **options))
        assert torch.cat(numbers).tolist() == list(range(32))
        return [maker[0].item() for maker in makers[::2]]

    assert set(slow_batches()) == {0}
    assert min(slow_batches(round_robin=False).count(worker) for worker in (0, 1)) >= 2


def test_streams_keep_the_turns_of_their_workers():
    with pytest.raises(ValueError, match="round_robin=False is for datasets that are read by index"):
        DataLoader(Stream([]), 2, num_workers=2, round_robin=False)
