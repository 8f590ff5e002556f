"""How workers stop when a loop is abandoned, and what a loop reports at its end."""

import pickle
import time

import pytest
import torch
from datasets import IDS, KINDS, Samples, resume
from helpers import outcomes, run, script
from torch.utils.data import Dataset, IterableDataset, Subset

import slotline
from slotline.torch import DataLoader


class Slow(Dataset):
    """A dataset that counts the samples it has made."""

    def __init__(self, seconds=0.2, length=1000):
        self.seconds = seconds
        self.length = length
        self.made = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        time.sleep(self.seconds)
        self.made += 1
        return i


class SlowStream(Slow, IterableDataset):
    def __iter__(self):
        return (self[i] for i in range(self.length))


@pytest.mark.parametrize("method", ["multiprocessing", "thread"])
@pytest.mark.parametrize("kind", [Slow, SlowStream, lambda: Subset(Slow(), range(500))])
@pytest.mark.parametrize("size", [1, 16])
def test_leaving_a_loop_waits_for_one_sample_only(kind, size, method):
    dataset = kind()
    made = getattr(dataset, "dataset", dataset).made
    batches = iter(DataLoader(dataset, batch_size=size, num_workers=2, prefetch_factor=8, worker_method=method))
    while made < 2:
        time.sleep(0.01)
    before, begun = made.item(), time.monotonic()
    batches._shutdown_workers()
    assert time.monotonic() - begun < 2
    assert made.item() - before <= 4


def test_workers_end_soon_after_the_death_of_the_program():
    program = """
        import os, signal, sys, time
        from torch.utils.data import Dataset
        from slotline.torch import DataLoader

        class Slow(Dataset):
            def __len__(self):
                return 1000

            def __getitem__(self, i):
                time.sleep(0.2)
                return i

        options = {"num_workers": 2, "worker_method": "multiprocessing"}
        slow = iter(DataLoader(Slow(), batch_size=50, **options))
        idle = iter(DataLoader(range(1000), batch_size=2, **options))
        next(idle)
        print(*(worker.pid for batches in (slow, idle) for worker in batches._workers), flush=True)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    pids, deadline = script(program).stdout.split(), time.monotonic() + 4
    assert len(pids) == 4
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_worker_that_is_forked_imports_nothing():
    program = """
        import multiprocessing.popen_fork, sys
        from slotline.torch import DataLoader

        def collate(samples):
            return {"samples": samples, "new": sorted(set(sys.modules) - before)}

        before = set(sys.modules)
        for batch in DataLoader(range(4), num_workers=1, collate_fn=collate, worker_method="multiprocessing"):
            assert batch["new"] == [], batch["new"]
    """
    run(program)


@pytest.mark.parametrize("kind", KINDS[1:], ids=IDS[1:])
@pytest.mark.parametrize("in_order", [True, False])
def test_the_watchdog_names_the_line_of_the_program(in_order, kind):
    loader = DataLoader(Slow(0.4, 2), in_order=in_order, watchdog=0.05, **kind)
    words = "worker 0 has" if in_order else "workers 0, 1 have"
    with pytest.warns(RuntimeWarning, match=f"{words} been making a batch for more than 0.05 s") as caught:
        list(loader)
    assert {warning.filename for warning in caught} == {__file__}


def faulty(i):
    if i in (2, 7):
        raise ValueError(f"sample {i} is broken")
    return i


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_were_left_out_are_told_at_the_end(workers):
    loader = DataLoader(Samples(10, faulty), batch_size=2, num_workers=workers, on_error="skip")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="2 samples were left out of this pass") as caught:
            assert [batch.tolist() for batch in loader] == [[0, 1], [3], [4, 5], [6], [8, 9]]
        assert [warning.filename for warning in caught] == [__file__]
        assert sorted(loader.stats()["bad_causes"]) == [(k, f"ValueError: sample {k} is broken") for k in (2, 7)]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_tells_how_many_batches_are_left(workers):
    def make():
        return DataLoader(list(range(10)), batch_size=3, num_workers=workers)

    loader = make()
    batches = iter(loader)
    assert (len(loader), len(batches), batches.remaining()) == (4, 4, 4)
    next(batches)
    assert (len(loader), len(batches), batches.remaining()) == (4, 3, 3)
    loader = resume(make(), loader.state_dict())
    batches = iter(loader)
    assert (len(loader), len(batches)) == (4, 3)
    assert len(list(batches)) == 3
    assert len(batches) == 0


class Sized(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(10))

    def __len__(self):
        return self.length


def test_a_stream_with_a_length_tells_how_many_batches_are_left():
    batches = iter(DataLoader(Sized(10), batch_size=3))
    next(batches)
    assert batches.remaining() == 3
    assert iter(DataLoader(Sized(10), batch_size=3, drop_last=True)).remaining() == 3
    assert iter(DataLoader(Sized(10), batch_size=None)).remaining() == 10
    with pytest.raises(TypeError):
        len(iter(DataLoader(SizelessStream())))


class SizelessStream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


class Shared(IterableDataset):
    """A stream whose epoch is in shared memory, as in Hugging Face's ``datasets``."""

    def __init__(self):
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.own = torch.zeros(1)

    def __iter__(self):
        self.own += 1
        return iter([self.epoch.item()] * 2)


def test_threads_have_the_shared_tensors_of_the_dataset():
    dataset = Shared()
    loader = DataLoader(dataset, batch_size=2, num_workers=1, worker_method="thread", persistent_workers=True)
    found = []
    for epoch in range(3):
        dataset.epoch.fill_(epoch)
        found += [batch.tolist() for batch in loader]
    assert found == [[0, 0], [1, 1], [2, 2]]
    assert dataset.own.item() == 0


class Heavy(torch.utils.data.Sampler):
    """A sampler with a large state."""

    def __init__(self):
        self.order = list(range(60_000))
        self.position = 0
        self.asked = 0

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        while self.position < len(self.order):
            self.position += 1
            yield self.order[self.position - 1]
        self.position = 0

    def state_dict(self):
        self.asked += 1
        return {"order": [[k] for k in self.order], "position": self.position}

    def load_state_dict(self, state):
        self.order = [k for [k] in state["order"]]
        self.position = state["position"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_large_state_of_a_sampler_is_copied_seldom(workers):
    def make(sampler):
        return DataLoader(torch.arange(60_000), batch_size=100, sampler=sampler, num_workers=workers)

    sampler = Heavy()
    loader = make(sampler)
    batches = iter(loader)
    for _ in range(100):
        next(batches)
    assert sampler.asked <= 5
    state = loader.state_dict()
    expected = [next(batches).tolist() for _ in range(3)]
    del batches
    batches = iter(resume(make(Heavy()), state))
    assert [next(batches).tolist() for _ in range(3)] == expected


def test_an_exception_while_indices_are_drawn_ends_no_pass_silently():
    class Interrupt(BaseException):
        pass

    class Indices(torch.utils.data.Sampler):
        def __len__(self):
            return 20

        def __iter__(self):
            for k in range(20):
                if k == 7:
                    # As a signal handler would.
                    raise Interrupt
                yield k

    for workers in (0, 2):
        batches = iter(DataLoader(list(range(20)), sampler=Indices(), num_workers=workers))
        every = list(outcomes(batches, (Interrupt, RuntimeError)))
        raised = [error for error in every if isinstance(error, BaseException)]
        assert [type(error) for error in raised] == [Interrupt, RuntimeError]
        assert "the sampler was drawing indices" in str(raised[1])
        assert len(every) >= 7


@pytest.mark.parametrize("replacement", [False, True])
def test_indices_of_torchs_samplers_survive_an_exception(replacement):
    from slotline.torch._state.indices import _Slices

    sampler = torch.utils.data.RandomSampler(range(50), replacement=replacement, num_samples=120)

    def batches(fails):
        torch.manual_seed(4)
        slices, found = _Slices(sampler, 7, False), []
        draw = slices._draw

        def failing(length):
            indices = draw(length)
            if fails and fails.pop():
                raise KeyboardInterrupt
            return indices

        slices._draw = failing
        while True:
            try:
                found.append(next(slices))
            except KeyboardInterrupt:
                continue
            except StopIteration:
                return found

    expected = batches([])
    torch.manual_seed(4)
    indices = list(sampler)
    assert [index for batch in expected for index in batch] == indices
    assert batches([True, False, True]) == expected


class Waiting(Slow):
    """A dataset that waits endlessly from the third sample on, until its batch is no longer
    needed."""

    def __getitem__(self, i):
        if i < 2:
            assert not slotline.is_stopping()
            return i
        self.wait()

    def wait(self):
        self.made += 1
        while not slotline.is_stopping():
            time.sleep(0.01)
        raise InterruptedError


class WaitingStream(Waiting, IterableDataset):
    """A stream that waits before its first sample."""

    def __iter__(self):
        self.wait()


@pytest.mark.parametrize("kind", [Waiting, WaitingStream])
@pytest.mark.parametrize("method", ["multiprocessing", "thread"])
def test_a_dataset_that_looks_holds_up_nobody(kind, method):
    dataset = kind()
    batches = iter(DataLoader(dataset, 1, num_workers=2, worker_method=method))
    if kind is Waiting:
        assert [next(batches).item(), next(batches).item()] == [0, 1]
    while dataset.made < 2:
        time.sleep(0.01)
    workers = batches._workers
    begun = time.monotonic()
    del batches
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()
    # A process that does not end by itself would be killed after five seconds.
    assert time.monotonic() - begun < 3
    assert all(getattr(worker, "exitcode", 0) == 0 for worker in workers)
    assert not slotline.is_stopping()


class Stalled(Dataset):
    """A dataset in which a sample of the first pass stalls until the worker is told to stop."""

    def __init__(self):
        # Whether a sample has begun to stall, and whether a sample was told to stop.
        self.began, self.told = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i > 1 and not self.told:
            self.began.fill_(1)
            while not slotline.is_stopping():
                time.sleep(0.01)
            self.told.fill_(1)
            raise InterruptedError
        return slotline.is_stopping(), i


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("method", ["multiprocessing", "thread"])
def test_the_next_pass_stops_what_the_last_one_stalls_in(method, workers):
    dataset = Stalled()
    loader = DataLoader(dataset, num_workers=workers, worker_method=method, persistent_workers=True, on_error="skip")
    for _ in loader:
        break
    while not dataset.began:
        time.sleep(0.01)
    assert [(stopping.item(), i.item()) for stopping, i in loader] == [(False, i) for i in range(12)]
    # Samples that were left out of the previous pass do not count for this one.
    assert dataset.told and loader.stats()["bad_samples"] == 0


@pytest.mark.parametrize("method", ["multiprocessing", "thread"])
def test_workers_that_do_not_stop_are_named_and_share_the_time(method, monkeypatch):
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 1.0)
    dataset = Slow(4.0)
    batches = iter(DataLoader(dataset, 1, num_workers=4, worker_method=method))
    while min(replies.figures[2] for _, replies in batches._channels) == 0:
        time.sleep(0.01)
    begun = time.monotonic()
    with pytest.warns(RuntimeWarning, match="did not stop within 1 s") as caught:
        batches._shutdown_workers()
    assert time.monotonic() - begun < 3
    assert [str(w.message).partition(" when")[0] for w in caught] == [f"worker {k} was making batch {k}" for k in range(4)]
    assert all(("was killed" in str(w.message)) == (method == "multiprocessing") for w in caught)
    for worker in batches._workers:
        worker.join()


class Asking:
    """An object that calls the loader while it is pickled."""

    def __reduce__(self):
        return bool, (slotline.is_stopping(),)


@pytest.mark.parametrize("method", ["multiprocessing", "thread"])
def test_a_sample_can_ask_while_its_batch_is_sent(method):
    loader = DataLoader([0, 1], 2, num_workers=1, worker_method=method, collate_fn=lambda samples: [Asking()])
    assert [pickle.loads(pickle.dumps(batch)) for batch in loader] == [[False]]
