"""A loader returns torch's batches, in torch's order, with torch's random numbers and errors."""

import collections
import gc
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from conftest import same
from datasets import Samples
from helpers import in_child, in_threads, mapped, outcomes, script

from slotline.torch import DataLoader


class Mixed(tud.Dataset):
    def __init__(self, length=50):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return {"x": torch.full((3, 4), i), "y": i, "name": f"sample {i}", "a": np.full((2,), i, np.float32)}


class Noisy(Mixed):
    def __getitem__(self, i):
        return torch.rand(2), np.random.rand(), random.random(), i


class Stream(tud.IterableDataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        info = tud.get_worker_info()
        number = 0 if info is None else info.id
        return iter(range(100 * number, 100 * number + self.lengths[number]))


def failing(i):
    if i % 7 == 3:
        raise ValueError(f"bad sample {i}")
    return i


def square(samples):
    return torch.stack([sample["x"] for sample in samples]) ** 2, {"names": {sample["name"] for sample in samples}}


def both(make, passes=2):
    """Returns the batches of torch's loader and of ours, both from the same random state."""
    batches = []
    for kind in (tud.DataLoader, DataLoader):
        torch.manual_seed(3)
        np.random.seed(3)
        random.seed(3)
        loader = make(kind)
        batches.append([list(loader) for _ in range(passes)] + [torch.rand(2)])
    return batches


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Mixed(), Noisy(), Mixed(0)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 7},
        {"batch_size": 7, "drop_last": True},
        {"batch_size": None},
        {"batch_sampler": [[1, 2], [3], [4, 5, 6]]},
        {"batch_size": 4, "sampler": [1, 5, 1]},
        {"batch_size": 8, "collate_fn": str},
    ],
    ids=str,
)
def test_batches_are_torchs(workers, dataset, options):
    if len(dataset) == 0 and ("sampler" in options or "batch_sampler" in options):
        pytest.skip("there are no such indices")
    same(*both(lambda kind: kind(dataset, num_workers=workers, **options)))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("seeded", [False, True])
def test_shuffled_batches_are_torchs(workers, persistent, seeded):
    if persistent and workers == 0:
        pytest.skip("there are no workers")

    def make(kind):
        generator = torch.Generator().manual_seed(5) if seeded else None
        return kind(
            Noisy(), 4, shuffle=True, num_workers=workers, persistent_workers=persistent, generator=generator, prefetch_factor=3 if workers else None
        )

    same(*both(make, passes=3))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_can_be_started_in_each_way(method):
    same(*both(lambda kind: kind(Mixed(20), 6, num_workers=2, multiprocessing_context=method), passes=1))


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_functions_may_return_anything(workers):
    same(*both(lambda kind: kind(Mixed(), 8, num_workers=workers, collate_fn=square)))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 3, 10])
@pytest.mark.parametrize("lengths", [[5, 5], [0, 20], [9, 1], [0, 0]])
def test_streams_are_torchs(lengths, batch_size, drop_last):
    if batch_size is None and drop_last:
        pytest.skip("torch refuses it")
    for workers in (0, 2):
        torchs, ours = both(lambda kind: kind(Stream(lengths), batch_size, num_workers=workers, drop_last=drop_last))
        if workers:  # torch's end of a stream depends on timing
            order = lambda passes: [sorted(map(str, batches)) for batches in passes[:-1]]
            assert order(torchs) == order(ours)
        else:
            same(torchs, ours)


def permuted(samples):
    x = torch.arange(240.0).reshape(2, 3, 8, 5) + samples[0]["y"]
    large = x.repeat(20, 1, 1, 8)
    return [
        x.to(memory_format=torch.channels_last), large.to(memory_format=torch.channels_last), large.transpose(1, 2), x.permute(3, 1, 0, 2),
        torch.empty(3, 0, 2), x[0, 0].T.bfloat16(),
    ]  # fmt: skip


def test_dimensions_keep_their_order_in_memory():
    torchs, ours = both(lambda kind: kind(Mixed(8), 2, num_workers=2, collate_fn=permuted))
    same(torchs, ours)
    assert ours[0][0][1].is_contiguous(memory_format=torch.channels_last)
    torchs, ours = both(lambda kind: kind([torch.arange(12).reshape(3, 4).T + k for k in range(6)], None, num_workers=1))
    same(torchs, ours)


class Record:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def recorded(samples):
    x = torch.stack([sample["x"] for sample in samples])
    return {
        "record": Record(x=x, large=x.repeat(100, 1, 1), again=x, inner=Record(y=[torch.tensor(3), x.mT]), n=1),
        "other": collections.UserDict(weight=torch.nn.Parameter(x.float()), none=torch.empty(0)),
        "x": x,
    }


SMALL = [getattr(torch, name) for name in ("uint1", "uint4", "uint7", "int4") if hasattr(torch, name)]


def stored(samples):
    x = torch.stack([sample["x"] for sample in samples])
    bits = torch.arange(12, dtype=torch.uint8).reshape(3, 4) + samples[0]["y"]
    return {
        "small": [bits.view(dtype) for dtype in SMALL],
        "strided": [bits.T.view(dtype) for dtype in SMALL] + [bits[1:, ::2].view(dtype) for dtype in SMALL],
        "large": [bits.repeat(20_000, 1).view(dtype) for dtype in SMALL],
        "typed": [x.storage(), torch.FloatStorage([1.0, 2.0]), torch.LongStorage()],
        "untyped": [x.untyped_storage(), torch.empty(0).untyped_storage(), torch.ones(50_000).untyped_storage()],
        "x": x,
    }


def contents(batch):
    """Returns the parts of a batch of `stored` that can be compared."""
    of_tensor = lambda each: (each.dtype, each.shape, each.stride(), each.view(torch.uint8).tolist())
    return {
        **{key: [of_tensor(each) for each in batch[key]] for key in ("small", "strided", "large")},
        "typed": [(type(each), each.dtype, each.tolist()) for each in batch["typed"]],
        "untyped": [(type(each), each.nbytes(), bytes(each)) for each in batch["untyped"]],
        "x": batch["x"].tolist(),
    }


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_storages_and_elements_of_less_than_a_byte_arrive(method):
    torchs, ours = (
        [contents(batch) for batch in kind(Mixed(8), 4, num_workers=2, collate_fn=stored, multiprocessing_context=method)]
        for kind in (tud.DataLoader, DataLoader)
    )
    assert ours == torchs == [contents(stored([Mixed()[i] for i in range(k, k + 4)])) for k in (0, 4)]


def test_tensors_of_one_storage_share_it():
    def collate(samples):
        bits = torch.zeros(6, dtype=torch.uint8)
        return bits.view(torch.uint4), bits[2:].view(torch.uint4), bits.untyped_storage()

    for whole, part, storage in DataLoader(range(4), num_workers=2, collate_fn=collate):
        storage[3] = 7
        assert whole.view(torch.uint8).tolist() == [0, 0, 0, 7, 0, 0] and part.view(torch.uint8).tolist() == [0, 7, 0, 0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_in_objects_arrive(method):
    kept = list(DataLoader(Mixed(40), 4, num_workers=2, collate_fn=recorded, multiprocessing_context=method))
    gc.collect()
    for k, batch in enumerate(kept):
        expected = recorded([Mixed()[i] for i in range(4 * k, 4 * k + 4)])
        same(batch["x"], expected["x"])
        same(batch["record"].x, expected["x"])
        same(batch["record"].large, expected["record"].large)
        same(batch["record"].inner.y, expected["record"].inner.y)
        assert batch["record"].again is batch["record"].x
        assert type(batch["other"]["weight"]) is torch.nn.Parameter
        same(batch["other"]["none"], torch.empty(0))


def test_samplers_may_give_tensors_in_objects():
    class ByRecord(Mixed):
        def __getitem__(self, record):
            return record.x + 1

    sampler = [Record(x=torch.arange(k)) for k in range(9)]
    for k, batch in enumerate(DataLoader(ByRecord(), None, sampler=sampler, num_workers=2)):
        same(batch, torch.arange(k) + 1)


def test_errors_come_in_the_place_of_their_batches():
    for workers in (0, 2):
        torchs, ours = (
            [
                str(found).splitlines()[:: len(str(found).splitlines()) - 1 or 1] if isinstance(found, ValueError) else found.tolist()
                for found in outcomes(iter(kind(Samples(50, failing), 5, num_workers=workers)), ValueError)
            ]
            for kind in (tud.DataLoader, DataLoader)
        )
        assert torchs == ours


class Odd(Exception):
    """An exception that can be neither created from its text nor pickled."""

    def __init__(self, a, b):
        super().__init__(a, b, lambda: 0)


def test_odd_exceptions_arrive():
    def failing_oddly(i):
        raise Odd(i, "x")

    with pytest.raises(RuntimeError, match="Odd"):
        next(iter(DataLoader(Samples(50, failing_oddly), num_workers=1)))


def test_what_cannot_be_pickled_is_an_error():
    loader = DataLoader(Mixed(4), 2, num_workers=1, collate_fn=lambda samples: (lambda: 0))
    batches = iter(loader)
    for _ in range(2):
        with pytest.raises(Exception, match="pickle"):
            next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def _exit():
    os._exit(3)


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", [_exit, _kill])
def test_a_worker_that_dies_is_an_error(how, leaves_nothing):
    loader = DataLoader(Samples(20, lambda i: how() if i == 11 else i), 2, num_workers=2)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(loader)
    assert time.monotonic() - begun < 30
    del loader


def test_a_timeout_is_an_error():
    slow = Samples(8, lambda i: time.sleep(60 if i == 3 else 0) or i)
    with pytest.raises(RuntimeError, match="timed out after 0.5 seconds"):
        list(DataLoader(slow, num_workers=2, timeout=0.5))


def test_an_init_function_that_fails_is_the_error_of_each_batch():
    def init(worker_id):
        raise KeyError(f"worker {worker_id}")

    batches = iter(DataLoader(Mixed(8), num_workers=2, worker_init_fn=init))
    for worker in [0, 1] * 4:
        with pytest.raises(KeyError, match=f"worker {worker}"):
            next(batches)


def test_without_order_no_batch_waits_for_a_slow_one():
    slow = Samples(10, lambda i: time.sleep(2 if i == 0 else 0) or i)
    order = [int(batch) for batch in DataLoader(slow, num_workers=2, prefetch_factor=2, in_order=False)]
    assert sorted(order) == list(range(10))
    assert order[0] != 0 and order.index(0) > 4
    assert [int(batch) for batch in DataLoader(slow, num_workers=2)] == list(range(10))


def test_kept_tensors_stay_as_they_are():
    large = Samples(200, lambda i: (torch.full((10_000,), i), i))
    kept = list(DataLoader(large, 4, num_workers=2))
    gc.collect()
    for k, (x, y) in enumerate(kept):
        assert y.tolist() == list(range(4 * k, 4 * k + 4))
        assert (x == y[:, None]).all()


def test_who_keeps_labels_does_not_keep_pictures():
    kept, large = [], Samples(400, lambda i: (torch.ones(100_000), i))  # 400 kB each
    for x, y in DataLoader(large, 4, num_workers=2):
        kept.append(y)
        del x
    batches = iter(DataLoader(large, 4, num_workers=2))
    for _ in range(90):
        x, y = next(batches)
        kept.append(y)
    # 90 batches of 1.6 MB were loaded, of which at most the prefetched ones are still in memory.
    assert mapped()[1] < 20e6
    assert len(kept) == 190


def test_memory_goes_with_the_last_tensor(leaves_nothing):
    batches = iter(DataLoader(Mixed(20), 4, num_workers=2))
    first = next(batches)
    del batches
    gc.collect()
    assert first["y"].tolist() == [0, 1, 2, 3]
    assert mapped()[1] > 0
    del first
    gc.collect()
    assert mapped()[1] == 0


def test_samples_may_change_their_shape():
    growing = Samples(50, lambda i: torch.full((i // 4 + 1, 2), i))
    same(*both(lambda kind: kind(growing, 4, num_workers=2)))


def test_batches_may_be_huge():
    total, huge = 0, Samples(12, lambda i: torch.full((10_000_000,), i, dtype=torch.uint8))
    for batch in DataLoader(huge, 4, num_workers=2):
        total += int(batch[:, ::1_000_000].sum())
    assert total == 10 * sum(range(12))


def test_two_iterators_at_once():
    loader = DataLoader(Mixed(12), 2, num_workers=2)
    for a, b in zip(loader, loader):
        same(a, b)
    for a in DataLoader(Mixed(4), 2, num_workers=1):
        assert len(list(DataLoader(Mixed(4), 2, num_workers=1))) == 2


def test_leaving_a_loop(leaves_nothing):
    loader = DataLoader(Mixed(), 2, num_workers=2)
    for _ in range(5):
        for batch in itertools.islice(loader, 3):
            pass
    persistent = DataLoader(Mixed(), 2, num_workers=2, persistent_workers=True)
    for _ in range(5):
        for k, batch in enumerate(persistent):
            assert batch["y"].tolist() == [2 * k, 2 * k + 1]
            if k == 3:
                break
    del loader, persistent, batch


def test_many_loaders(leaves_nothing):
    for k in range(30):
        for batch in DataLoader(Mixed(4), 2, num_workers=2):
            pass
    del batch


def test_a_loader_can_be_pickled_and_copied():
    loader = pickle.loads(pickle.dumps(DataLoader(Mixed(), 4, num_workers=1)))
    assert isinstance(loader, DataLoader) and len(list(loader)) == 13


def test_a_fork_leaves_the_loader_alone():
    batches = iter(DataLoader(Mixed(40), 2, num_workers=2))
    first = next(batches)

    def drop():
        nonlocal batches, first
        del batches, first
        gc.collect()

    assert in_child(drop)
    assert first["y"].tolist() == [0, 1]
    assert [batch["y"][0].item() for batch in batches] == list(range(2, 40, 2))


def test_a_forked_process_does_not_use_the_workers_of_its_parent():
    batches = iter(DataLoader(Mixed(40), 2, num_workers=2))
    persistent = DataLoader(Mixed(6), 2, num_workers=2, persistent_workers=True)
    workers = [worker.pid for worker in iter(persistent)._workers]

    def check():
        with pytest.raises(RuntimeError, match="workers in another process"):
            next(batches)
        assert [worker.pid for worker in iter(persistent)._workers] != workers
        assert len(list(persistent)) == 3

    assert in_child(check)
    assert [batch["y"][0].item() for batch in batches] == list(range(0, 40, 2))
    assert len(list(persistent)) == 3
    assert [worker.pid for worker in persistent._iterator._workers] == workers


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2, "worker_method": "multiprocessing"}, {"num_workers": 2, "worker_method": "thread"}]
)
@pytest.mark.parametrize("is_native", [False, True])
def test_threads_may_share_an_iterator(options, is_native):
    data = tud.StackDataset(y=torch.arange(2000)) if is_native else Mixed(2000)
    loader = DataLoader(data, 1, shuffle=True, **options)
    batches, found = iter(loader), []
    in_threads(3, lambda _: found.extend(batch["y"].item() for batch in batches))
    assert sorted(found) == list(range(2000))
    assert loader.stats()["batches"] == 2000 and len(batches) == 0
    assert loader.state_dict()["_num_yielded"] == 2000


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2, "worker_method": "multiprocessing"}, {"num_workers": 2, "worker_method": "thread"}]
)
def test_threads_may_share_a_dataset_and_a_sampler(options):
    sets = [Mixed(100), tud.StackDataset(y=torch.arange(100))]
    samplers = [tud.RandomSampler(data, generator=torch.Generator().manual_seed(1)) for data in sets]
    failures = []

    def passes(_):
        try:
            for data, sampler in zip(sets * 3, samplers * 3):
                loader = DataLoader(data, 7, sampler=sampler, **options)
                found = [y for batch in loader for y in batch["y"].tolist()]
                assert sorted(found) == list(range(100)) and loader.state_dict()["_iterator_finished"]
        except BaseException as error:
            failures.append(error)

    in_threads(4, passes)
    assert not failures


def test_threads_do_not_lock_each_other_out_while_they_read_the_state_of_a_generator():
    ended = script(
        """
        import faulthandler, gc, threading, time, torch
        from slotline.torch import DataLoader

        class Cycle:
            def __init__(self):
                self.own, self.tensor = self, torch.zeros(1)

        def passes():
            while time.monotonic() < end:
                for _ in DataLoader(range(40), 7, sampler=sampler):
                    Cycle()

        faulthandler.dump_traceback_later(60, exit=True)
        gc.set_threshold(1)  # Garbage is collected wherever an object is made.
        sampler = torch.utils.data.RandomSampler(range(40), generator=torch.Generator().manual_seed(1))
        end = time.monotonic() + 3
        threads = [threading.Thread(target=passes, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_programs_end_with_loaders_in_use():
    ended = script(
        """
        import torch
        from slotline.torch import DataLoader
        batches = iter(DataLoader(range(1000), 2, num_workers=2))
        kept = [next(batches) for _ in range(3)]
        persistent = DataLoader(range(1000), 2, num_workers=2, persistent_workers=True)
        held = next(iter(persistent))
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_programs_end_with_loaders_in_use_by_threads():
    ended = script(
        """
        import threading, time
        from slotline.torch import DataLoader
        class Slow:
            def __len__(self): return 10000
            def __getitem__(self, i):
                time.sleep(0.01)
                return i
        def run():
            global batches
            batches = iter(DataLoader(Slow(), 2, num_workers=2))
            for batch in batches:
                seen.set()
        seen = threading.Event()
        threading.Thread(target=run, daemon=True).start()
        seen.wait()
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_interrupt_ends_a_wait():
    ended = script(
        """
        import os, signal, threading, time
        from slotline.torch import DataLoader
        class Slow:
            def __len__(self): return 4
            def __getitem__(self, i):
                time.sleep(60)
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        try:
            next(iter(DataLoader(Slow(), num_workers=1)))
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 5)
        os._exit(0)
        """
    )
    assert ended.stdout == "interrupted True\n", ended


def test_workers_end_with_a_program_that_is_killed():
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import os, sys
                from slotline.torch import DataLoader
                batches = iter(DataLoader(range(1000), 2, num_workers=2, worker_method="multiprocessing"))
                next(batches)
                print(*(worker.pid for worker in batches._workers), flush=True)
                sys.stdin.read()
                """
            ),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pids = [int(pid) for pid in child.stdout.readline().split()]
    child.kill()
    child.communicate()
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": [1]},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"num_workers": 1, "multiprocessing_context": "thread"},
    ],
    ids=str,
)
def test_options_are_refused_as_by_torch(options):
    errors = []
    for kind in (tud.DataLoader, DataLoader):
        with pytest.raises(Exception) as error:
            kind(Mixed(), **options)
        errors.append((error.type, str(error.value)))
    assert errors[0] == errors[1]


def test_attributes_are_torchs():
    loader = DataLoader(Mixed(), 4)
    assert isinstance(loader, tud.DataLoader)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 3
    assert len(loader) == 13
    loader.dataset.length = 20
    assert len(loader) == 5


def test_datapipes_are_sharded_as_by_torch():
    from torch.utils.data.datapipes.iter import IterableWrapper

    def make(kind):
        return kind(IterableWrapper(range(20)).shuffle().sharding_filter(), 3, shuffle=True, num_workers=2)

    torchs, ours = both(make)
    assert [sorted(map(str, batches)) for batches in torchs[:-1]] == [sorted(map(str, batches)) for batches in ours[:-1]]


def test_a_thread_may_run_a_loader():
    outcome = []
    in_threads(1, lambda _: outcome.extend(DataLoader(Mixed(20), 4, num_workers=2)))
    assert len(outcome) == 5
