"""Datasets of slotline in a ``DataLoader``, compared with torch's loader, which reads them sample by sample."""

import gc
import itertools
import json
import os
import pickle
import signal
import threading
import time
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import slotline
from arrays.test_pictures import photos, png  # noqa: F401
from conftest import same
from datasets import Samples
from helpers import in_child, outcomes
from slotline.torch import DataLoader, DeviceLoader

N = 37
RANDOM = np.random.default_rng(5)
TYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]


def arrays():
    parts = {kind: RANDOM.integers(0, 2, (N, 3, 2)).astype(kind) for kind in TYPES}
    return slotline.Arrays(**parts, label=np.arange(N), empty=np.zeros((N, 0), "f4"), row=torch.rand(N, 4))


def table(tmp_path):
    file = tmp_path / "table.jsonl"
    file.write_text("".join(json.dumps({"name": f"näme {i}" * (i % 3), "x": i, "y": i / 3}) + "\n" for i in range(N)))
    return slotline.open(file)


DATASETS = {
    "named": lambda _: arrays(),
    "tuples": lambda _: slotline.Arrays(RANDOM.random((N, 5)), torch.arange(N)),
    "a tuple of one": lambda _: slotline.Arrays(torch.arange(N)),
    "texts": table,
    "part": lambda _: slotline.digits()[-2:-80:-2],
    "chosen": lambda _: slotline.Subset(arrays(), RANDOM.integers(-N, N, N)).select("label", "f4").rename("a", "b"),
    "two": lambda _: arrays() + arrays(),
    "stack": lambda _: slotline.StackDataset(slotline.Arrays(a=np.arange(N)), slotline.Arrays(b=np.eye(N))),
    "mixture": lambda _: slotline.mix([slotline.Arrays(a=np.arange(20)), slotline.Arrays(a=np.arange(100, 130))], [1, 2]),
    "repeated": lambda _: slotline.Arrays(a=np.arange(7)).repeat(4).shard(1, 2),
    "torch's subset": lambda _: tud.Subset(tud.Subset(arrays(), range(N - 1, 1, -1)), torch.arange(20).tolist()),
    "torch's split": lambda _: tud.random_split(arrays(), [0.5, 0.5])[1],
}
PNG = png(np.full((8, 8, 3), 9, "u1"))
WAYS = [{}, {"num_workers": 2}, {"num_workers": 1, "prefetch_factor": 1, "persistent_workers": True}]


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


OPTIONS = {
    "in order": lambda d: {"batch_size": 4},
    "one": lambda d: {"shuffle": True},
    "shuffled": lambda d: {"batch_size": 5, "shuffle": True},
    "with a generator": lambda d: {"batch_size": 4, "shuffle": True, "generator": generator(), "drop_last": True},
    "larger than the dataset": lambda d: {"batch_size": 1000, "shuffle": True},
    "single samples": lambda d: {"batch_size": None},
    "single shuffled samples": lambda d: {"batch_size": None, "shuffle": True},
    "repeated draws": lambda d: {"batch_size": 4, "sampler": RandomSampler(d, True, 50)},
    "more than all": lambda d: {"batch_size": 4, "sampler": RandomSampler(d, False, 2 * len(d) + 1)},
    "a sampler's generator": lambda d: {"batch_size": 3, "sampler": RandomSampler(d, generator=generator())},
    "some": lambda d: {"batch_size": 3, "sampler": RandomSampler(d, num_samples=8, generator=generator())},
    "chosen": lambda d: {"batch_size": 3, "sampler": SubsetRandomSampler(range(2, 9), generator=generator())},
    "weighted": lambda d: {"batch_size": 3, "sampler": WeightedRandomSampler([1.0, 3.0, 2.0], 20)},
    "a rank": lambda d: {"batch_size": 3, "sampler": DistributedSampler(d, 3, 1, seed=4)},
    "a list": lambda d: {"batch_size": 4, "sampler": [3, -1, np.int16(5), torch.tensor(2), True], "drop_last": True},
    "an array": lambda d: {"batch_size": 4, "sampler": np.arange(6)},
    "single samples of a list": lambda d: {"batch_size": None, "sampler": [3, -1, 5]},
    "torch's batches": lambda d: {"batch_sampler": BatchSampler(RandomSampler(d), 4, True)},
    "lists of batches": lambda d: {"batch_sampler": [[1, 2], [5], (4, 3, 3, 0), np.arange(2)]},
}


def both(dataset, options, **ways):
    """Returns torch's loader, without workers unless they persist, and slotline's, each with its own samplers and generators.

    With persistent workers, only the first pass draws a base seed.
    """
    torchs = ways if ways.get("persistent_workers") else {}
    loaders = []
    for loader, added in ((tud.DataLoader, torchs), (DataLoader, ways)):
        torch.manual_seed(1)
        loaders.append(loader(dataset, **options(dataset), **added))
    return loaders


def passes(loader, count, take=None, seed=2):
    """Returns the batches of some passes, each up to its batch ``take``, and what the default generator draws afterwards."""
    torch.manual_seed(seed)
    found = []
    for _ in range(count):
        found.append(list(itertools.islice(iter(loader), take)))
        found.append(torch.rand(2))
    return found


def check(dataset, options, count):
    """Compares passes of each way to load with torch's."""
    for ways in WAYS:
        torchs, ours = both(dataset, options, **ways)
        assert "natively" in ours.plan() and len(torchs) == len(ours)
        if ways is not WAYS[1]:
            expected = passes(torchs, count)  # the same for the first two ways
        same(expected, passes(ours, count))


@pytest.mark.parametrize("name", DATASETS)
def test_batches_are_torchs(name, tmp_path):
    dataset = DATASETS[name](tmp_path)
    for options in ("in order", "shuffled", "single samples"):
        check(dataset, OPTIONS[options], 2)


@pytest.mark.parametrize("name", OPTIONS)
def test_orders_are_torchs(name):
    for dataset in (slotline.Arrays(x=np.arange(N), y=np.eye(N)), slotline.Arrays(np.arange(12))):
        check(dataset, OPTIONS[name], 3)


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_a_generator_that_is_shared_draws_at_the_same_time(size):
    """A pass that the loop leaves early has drawn as much as torch's."""
    dataset = slotline.Arrays(np.arange(12))

    def shared(d):
        own = generator()
        return {"batch_size": size, "sampler": RandomSampler(d, generator=own), "generator": own}

    for options in (shared, lambda d: {"batch_size": size, "shuffle": True, "generator": generator()}):
        for workers in ({}, {"num_workers": 1, "prefetch_factor": 2}):
            for take in range(14):
                torchs = tud.DataLoader(dataset, **options(dataset))
                ours = DataLoader(dataset, **options(dataset))
                if workers:
                    # With workers, torch draws ahead.
                    torchs, ours = (kind(dataset, **options(dataset), **workers) for kind in (tud.DataLoader, DataLoader))
                    if size != 4 or take > 4:
                        continue
                same(passes(torchs, 2, take), passes(ours, 2, take))
                assert torch.equal(torchs.generator.get_state(), ours.generator.get_state())


@pytest.mark.parametrize("name", OPTIONS)
def test_a_pass_resumes(name):
    dataset = slotline.Arrays(x=np.arange(N), y=np.eye(N))

    def make(**options):
        torch.manual_seed(1)
        return DataLoader(dataset, **{**OPTIONS[name](dataset), **options})

    loader = make(num_workers=2)
    whole = [list(loader) for _ in range(3)]
    for taken in {0, min(2, len(whole[0])), len(whole[0]) - 1, len(whole[0])}:
        loader = make(num_workers=2)
        first = list(loader)
        same(first, whole[0])
        batches = iter(loader)
        same([next(batches) for _ in range(taken)], whole[1][:taken])
        state = json.loads(json.dumps(loader.state_dict()))
        default = torch.get_rng_state()
        for workers in (0, 2):
            # With another `collate_fn`, the same state is resumed sample by sample.
            for options in ({}, {"collate_fn": lambda samples: tud.default_collate(samples)}):
                if options and loader.batch_size is None and "batch" not in name:
                    continue
                resumed = make(num_workers=workers, worker_method="thread", **options)
                resumed.load_state_dict(state)
                torch.set_rng_state(default)
                same(list(resumed), whole[1][taken:])
                assert len(list(resumed)) == len(whole[2])
        resumed = make()
        resumed.load_state_dict(state)
        if taken < len(whole[0]):
            assert resumed.state_dict() == state


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_from_samples_is_resumed_natively(workers):
    """And the states of both ways to load are the same."""
    dataset = slotline.Arrays(np.arange(N))

    def make(**options):
        return DataLoader(dataset, 4, shuffle=True, generator=generator(), num_workers=workers, **options)

    torch.manual_seed(1)
    slow = make(collate_fn=lambda samples: tud.default_collate(samples), worker_method="thread")
    fast = make()
    a, b = iter(slow), iter(fast)
    for _ in range(4):
        same(next(a), next(b))
    state = slow.state_dict()
    if workers == 0:
        assert fast.state_dict() == state
    resumed = make()
    resumed.load_state_dict(state)
    same(list(resumed), list(a))


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentations_are_new_in_each_pass_and_resume(photos, workers):  # noqa: F811
    dataset = slotline.folder(photos, image="random_resized_crop(16), hflip")

    def make(count=workers, **options):
        torch.manual_seed(4)
        return DataLoader(dataset, 3, shuffle=True, num_workers=count, **options)

    loader = make()
    whole = [list(loader) for _ in range(3)]
    assert not torch.equal(whole[0][0]["data"], whole[1][0]["data"])
    for persistent in (False, True):
        again = make(2, persistent_workers=persistent)
        same(list(again), whole[0])
        assert not torch.equal(next(iter(again))["data"], whole[0][0]["data"])
    batches = iter(loader := make())
    same(next(batches), whole[0][0])
    resumed = make(2 - workers)
    resumed.load_state_dict(loader.state_dict())
    same(list(resumed), whole[0][1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentations_of_samples_are_new_in_each_pass_too(photos, workers):  # noqa: F811
    pictures = slotline.folder(photos, image="random_resized_crop(16), hflip")
    mixture = slotline.mix([pictures, pictures.take(2)], [1, 1], stop=6)
    for dataset, options in (
        (pictures, {"collate_fn": tud.default_collate}),
        (mixture, {"on_error": "skip"}),
        (Samples(len(pictures), lambda i: pictures[i]), {}),
        (tud.ConcatDataset([pictures, pictures]), {"batch_size": 2}),
    ):

        def make(count=workers, seed=4, data=dataset, more=options):
            torch.manual_seed(seed)
            return DataLoader(data, **{"batch_size": 3, "num_workers": count, **more})

        loader = make()
        passes = [[batch["data"] for batch in loader] for _ in range(2)]
        assert not torch.equal(passes[0][0], passes[1][0])
        same([batch["data"] for batch in make(2 - workers)], passes[0])
        assert not torch.equal(next(iter(make(seed=5)))["data"], passes[0][0])
        if dataset is mixture:
            assert torch.cat([batch["label"] for batch in loader]).tolist() == [sample["label"] for sample in mixture]
    if workers > 0:
        torchs = tud.DataLoader(pictures, 3, num_workers=workers, persistent_workers=True)
        passes = [next(iter(torchs))["data"] for _ in range(2)]
        assert not torch.equal(*passes)
    assert (pictures[1]["data"] == pictures[1]["data"]).all()


def test_pictures_without_random_numbers_are_torchs(photos):  # noqa: F811
    dataset = slotline.folder(photos, image="resize(20), center_crop(16), normalize(imagenet)")
    same(list(tud.DataLoader(dataset, 4)), list(DataLoader(dataset, 4, num_workers=2)))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"collate_fn": list}, "collate_fn is a function of the program"),
        ({"worker_init_fn": print}, "worker_init_fn is set"),
        ({"watchdog": 100.0}, "watchdog is set"),
        ({"on_error": "skip"}, "on_error is set"),
        ({"sampler": iter([1, 2])}, "its sampler is a list_iterator"),
        ({"batch_sampler": (pair for pair in [[1], [2, 3]])}, "its sampler is a generator"),
        ({"sampler": RandomSampler(range(N), True, generator=generator())}, "several times in a pass"),
        ({"sampler": type("Mine", (SequentialSampler,), {})(range(N))}, "its sampler is a Mine"),
    ],
)
def test_what_the_program_does_itself_is_called(options, words):
    dataset = slotline.Arrays(np.arange(N))
    loader = DataLoader(dataset, **options)
    assert loader.plan().startswith("slotline.Arrays: by Python, sample by sample, since ") and words in loader.plan()
    torch.manual_seed(0)
    found = list(loader)
    plain = {name: value for name, value in options.items() if name not in ("watchdog", "on_error")}
    if "collate_fn" in options or "worker_init_fn" in options or "watchdog" in options:
        torch.manual_seed(0)
        same(found, list(tud.DataLoader(dataset, **plain)))


def test_what_torch_cannot_collate_is_left_to_it(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(4):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(bytes(range(3 + i % 2)))
    ragged = slotline.open(tmp_path)
    loader = DataLoader(ragged, 2)
    assert "varying length, which default_collate does not combine" in loader.plan()
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        next(iter(loader))
    # Samples of equal length can be combined.
    found = next(iter(DataLoader(ragged, 2, sampler=[0, 2])))
    assert [value.tolist() for value in found.values() if value.dtype == torch.uint8] == [[[0, 1, 2], [0, 1, 2]]]
    assert "natively" in DataLoader(ragged, batch_size=None).plan()
    same(list(tud.DataLoader(ragged, None)), list(DataLoader(ragged, None, num_workers=1)))
    dates = slotline.Arrays(np.zeros(3, "M8[s]"))
    assert "which torch does not have" in DataLoader(dates).plan()
    with pytest.raises(TypeError):
        next(iter(DataLoader(dates)))

    class Doubled(slotline.Arrays):
        def __getitem__(self, index):
            return 2 * super().__getitem__(index)[0]

    assert "its class Doubled is not slotline's own" in DataLoader(Doubled(np.arange(4))).plan()
    assert [batch.tolist() for batch in DataLoader(Doubled(np.arange(4)), 2)] == [[0, 2], [4, 6]]


def test_what_only_the_loader_can_do_is_refused(tmp_path):
    lines = table(tmp_path)
    with pytest.raises(ValueError, match="only slotline.Loader makes the batches"):
        DataLoader(lines.batch_by_tokens(100, field="name"))
    with pytest.raises(ValueError, match="only slotline.Loader follows the schedule"):
        DataLoader(slotline.mix([lines, lines], schedule=[[1, 2], [2, 1]], stop=9))


def test_plans_say_what_is_native():
    assert DataLoader(arrays(), 2).plan() == "slotline.Arrays: natively, by the loop's thread"
    assert DataLoader(slotline.digits(), num_workers=2).plan() == "slotline.Dataset: natively, by the loop's thread and 2 more"


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_indices_and_samples_raise(workers, tmp_path):
    with pytest.raises(IndexError, match="index 37 is out of range; the dataset has 37 samples"):
        list(DataLoader(arrays(), 4, sampler=[1, 2, 37], num_workers=workers))
    longer = range(N + 1)
    for sampler in (SequentialSampler(longer), RandomSampler(longer), RandomSampler(longer, generator=generator())):
        with pytest.raises(IndexError, match="index 37 is out of range"):
            list(DataLoader(arrays(), 4, sampler=sampler, num_workers=workers))
    with pytest.raises(TypeError):
        list(DataLoader(arrays(), 4, sampler=[1.5], num_workers=workers))
    for i in range(6):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{i}.png").write_bytes(b"no picture" if i == 2 else PNG)
    dataset = slotline.folder(tmp_path, image="resize(4), center_crop(4)")
    loader = DataLoader(dataset, 2, num_workers=workers)
    found = list(outcomes(iter(loader)))
    assert [type(each) for each in found] == [dict, slotline.SampleError, dict]
    assert loader.stats()["errors"] == 1 and loader.stats()["batches"] == 2
    batches = outcomes(iter(loader))
    next(batches), next(batches)
    state = loader.state_dict()
    resumed = DataLoader(dataset, 2)
    resumed.load_state_dict(state)
    same(list(resumed), found[2:])


def test_out_of_order_batches_all_come_and_resume():
    dataset = slotline.Arrays(np.arange(200))
    loader = DataLoader(dataset, 4, num_workers=2, in_order=False)
    for _ in range(20):
        batches = iter(loader)
        first = [next(batches) for _ in range(9)]
        resumed = DataLoader(dataset, 4, num_workers=2, in_order=False)
        resumed.load_state_dict(loader.state_dict())
        found = [*first, *resumed]
        assert sorted(torch.cat([batch[0] for batch in found]).tolist()) == list(range(200))


def test_small_fields_do_not_keep_their_batches():
    dataset = slotline.Arrays(x=np.zeros((64, 100_000), "u1"), label=np.arange(64))
    for kind in (lambda: DataLoader(dataset, 4, num_workers=1), lambda: slotline.Loader(dataset, 4, output="torch")):
        loader, kept = kind(), []
        for batch in loader:
            kept.append(batch["label"])
            del batch
        assert torch.cat(kept).tolist() == list(range(64))
        engine = (loader._engine if isinstance(loader, slotline.Loader) else loader._engine[1])
        assert json.loads(engine.stats())["extra_batches"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_loses_no_batch(workers):
    dataset = slotline.Arrays(np.arange(1000))

    class Interrupt(BaseException):
        pass

    def handler(*_):
        raise Interrupt

    expected = list(tud.DataLoader(dataset, 2, shuffle=True, generator=generator()))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for delay in np.linspace(1e-4, 4e-3, 40):
            loader = DataLoader(dataset, 2, shuffle=True, num_workers=workers, generator=generator())
            found, batches, is_armed, state = [], None, False, 0
            while True:
                try:
                    if not is_armed:
                        is_armed = True
                        signal.setitimer(signal.ITIMER_REAL, delay)
                    batches = iter(loader) if batches is None else batches
                    while True:
                        state = loader.state_dict()["_sampler_iter_yielded"]
                        batch = next(batches, None)
                        if batch is None:
                            break
                        found.append(batch)
                    break
                except Interrupt:
                    if batches is None:
                        # The interrupt came before the pass began, which may have drawn numbers.
                        loader = DataLoader(dataset, 2, shuffle=True, num_workers=workers, generator=generator())
                    elif loader.state_dict()["_sampler_iter_yielded"] == state + 1 and len(found) == state:
                        # It came between the delivery and this list.
                        found.append(None)
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                assert a is None or torch.equal(a[0], b[0])
            assert found.count(None) <= 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_threads_share_an_iterator():
    loader = DataLoader(slotline.Arrays(np.arange(1000)), 3, shuffle=True, num_workers=2)
    batches, found = iter(loader), []

    def read():
        found.extend(batch[0] for batch in batches)

    threads = [threading.Thread(target=read) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(torch.cat(found).tolist()) == list(range(1000))


def test_several_passes_run_at_once_and_end_early():
    loader = DataLoader(slotline.Arrays(np.arange(100)), 3, num_workers=1)
    for a, b in zip(iter(loader), iter(loader), strict=True):
        same(a, b)
    batches = iter(loader)
    next(batches)
    assert len(batches) == 33
    batches._shutdown_workers()
    reference = weakref.ref(batches)
    del batches
    gc.collect()
    assert reference() is None
    loader.num_workers = 2
    assert len(list(loader)) == 34
    again = pickle.loads(pickle.dumps(loader))
    same(list(again), list(loader))
    assert in_child(lambda: len(list(loader)) == 34)


def test_options_reach_the_engine(photos):  # noqa: F811
    dataset = slotline.folder(photos, image="resize(400), center_crop(400)")
    with pytest.raises(slotline.OutOfMemoryError, match="memory_limit"):
        next(iter(DataLoader(dataset, 4, memory_limit=1000)))
    with pytest.raises(AssertionError):
        next(iter(DataLoader(dataset, 4, timeout=3)))
    loader = DataLoader(dataset, 10, num_workers=1, timeout=1e-4)
    batches = iter(loader)
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.0001 seconds"):
        next(batches)
    found = next(batch for batch in outcomes(batches) if not isinstance(batch, RuntimeError))
    assert found["data"].shape == (10, 3, 400, 400)
    loader = DataLoader(dataset, 4, num_workers=1, affinity=[min(os.sched_getaffinity(0))])
    assert len(list(loader)) == 3


def test_statistics_are_those_of_the_engine(photos):  # noqa: F811
    loader = DataLoader(slotline.folder(photos, image="resize(200), center_crop(200)"), 2, num_workers=2)
    assert loader.verdict() == "no batch was delivered"
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats["batches"] == 5 and stats["errors"] == 0 and len(stats["busy"]) == 2
    assert stats["elapsed"] >= stats["waited"] > 0 and all(0 <= busy <= stats["elapsed"] for busy in stats["busy"])
    assert isinstance(loader.verdict(), str) and loader.verdict() != "no batch was delivered"


def test_batches_go_to_a_device():
    dataset = slotline.Arrays(np.arange(20), np.eye(20))
    same(list(DeviceLoader(DataLoader(dataset, 3, num_workers=1), "cpu")), list(tud.DataLoader(dataset, 3)))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("kind", [tud.DataLoader, DataLoader])
def test_workers_of_torch_read_a_dataset(method, kind, photos):  # noqa: F811
    """Also after the loop's process has loaded it with threads."""
    dataset = slotline.folder(photos, image="resize(8), center_crop(8)") if kind is tud.DataLoader else slotline.digits()[:9]
    wanted = list(slotline.Loader(dataset, 2, num_workers=2, output="torch"))
    options = {} if kind is tud.DataLoader else {"collate_fn": _collate, "worker_method": "multiprocessing"}
    with warnings.catch_warnings():
        # Python warns of threads in the process that forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        same(list(kind(dataset, 2, num_workers=2, multiprocessing_context=method, **options)), wanted)


def _collate(samples):
    return tud.default_collate(samples)


def test_it_is_about_as_fast_as_the_loader():
    """A dataset that is read sample by sample takes many times as long."""
    dataset = slotline.Arrays(x=np.zeros((20_000, 256), "f4"), y=np.arange(20_000))

    def seconds(loader):
        best = 1e9
        for _ in range(5):
            begun = time.perf_counter()
            for _ in loader:
                pass
            best = min(best, time.perf_counter() - begun)
        return best

    ours = seconds(DataLoader(dataset, 64, shuffle=True, num_workers=1))
    assert ours < 3 * seconds(slotline.Loader(dataset, 64, shuffle=True, num_workers=1, output="torch")) + 0.05
