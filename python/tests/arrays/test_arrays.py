"""Batches of `slotline.Loader`, compared with plain NumPy indexing in the loader's order."""

import copy
import itertools
import json
import operator
import pickle
import queue
import threading
import time
import warnings

import numpy as np
import pytest

from helpers import in_threads, outcomes

import slotline
from slotline import Arrays, Loader

# Before 2.1, NumPy imports DLPack arrays as read-only, and has no bools.
dlpack = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="needs NumPy 2.1")

N = 37
X = (np.arange(N * 6) % 251).astype("u1").reshape(N, 2, 3)
DATA = Arrays(x=X, i=np.arange(N))

# torch.randperm(10) after drawing a base seed, from a generator with seed 42, in the first two
# passes.
FIRST = [6, 5, 4, 0, 8, 9, 2, 1, 3, 7]
SECOND = [3, 6, 5, 8, 9, 4, 2, 0, 7, 1]


def indices(batches):
    return [batch["i"].tolist() for batch in batches]


def orders(count, **options):
    """Returns the indices of ``count`` passes of a loader without workers."""
    loader = Loader(DATA, 5, **options)
    return [indices(loader) for _ in range(count)]


def cut(order, size, drop_last=False):
    batches = [order[at : at + size] for at in range(0, len(order), size)]
    return [batch for batch in batches if len(batch) == size or not drop_last]


def test_the_order_is_the_engines():
    loader = Loader(Arrays(i=np.arange(10)), 4, shuffle=True, seed=42)
    assert [sum(indices(loader), []) for _ in range(2)] == [FIRST, SECOND]
    assert len(loader) == 3 and loader.epoch == 2 and loader.seed == 42


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 5, N, 100])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.filterwarnings("ignore:a pass has no batch")
def test_batches_equal_plain_indexing(shuffle, size, drop_last):
    whole = [sum(indices(Loader(DATA, N, shuffle, seed=5)), []), None]
    if not shuffle:
        assert whole[0] == list(range(N))
    assert sorted(whole[0]) == list(range(N))
    for workers, prefetch in ((0, None), (1, 1), (3, 4)):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "num_workers is")
            loader = Loader(
                DATA, size, shuffle, seed=5, drop_last=drop_last, num_workers=workers, prefetch_factor=prefetch
            )
        batches = list(loader)
        assert indices(batches) == cut(whole[0], size, drop_last)
        assert len(batches) == len(loader)
        for batch in batches:
            assert batch["x"].dtype == X.dtype and np.array_equal(batch["x"], X[batch["i"]])
            assert batch["x"].flags.writeable and batch["x"].flags.aligned and batch["x"].flags.c_contiguous


def test_passes_differ_and_can_be_chosen():
    first, second, third = orders(3, shuffle=True, seed=1)
    assert first != second != third != first
    assert orders(1, shuffle=True, seed=1) == [first] and orders(1, shuffle=True, seed=2) != [first]
    assert orders(1, shuffle=True) != orders(1, shuffle=True)
    loader = Loader(DATA, 5, shuffle=True, seed=1)
    for epoch, expected in ((2, third), (0, first), (0, first), (1, second)):
        loader.set_epoch(epoch)
        assert (loader.epoch, loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (epoch, epoch, 0)
        assert indices(loader) == expected
    assert indices(loader) == third
    # Set the number that is next anyway, in the middle of a pass.
    loader.set_epoch(0)
    next(iter(loader))
    loader.set_epoch(1)
    assert loader.state_dict()["epoch"] == 1
    assert indices(loader) == second


def test_epochs_that_are_refused():
    loader = Loader(DATA, 5, shuffle=True, seed=1)
    expected = indices(loader)
    for epoch, words in ((-1, "must not be negative"), (1 << 32, "must be less than"), ((1 << 32) - 1, "no number")):
        with pytest.raises(slotline.OptionError, match=words):
            loader.set_epoch(epoch)
    assert loader.epoch == 1
    loader.set_epoch(0)
    assert indices(loader) == expected


def test_far_epochs_take_no_time():
    loader = Loader(Arrays(np.arange(100_000)), 100_000, shuffle=True, seed=1)
    last = (1 << 32) - 2
    begun = time.monotonic()
    loader.set_epoch(last - 1)
    before, there = (next(iter(loader))[0].tolist() for _ in range(2))
    assert before != there and sorted(there) == list(range(100_000))
    loader.set_epoch(last)
    state = loader.state_dict()
    assert next(iter(loader))[0].tolist() == there
    other = Loader(Arrays(np.arange(100_000)), 100_000, shuffle=True, seed=1)
    other.load_state_dict(state)
    assert next(iter(other))[0].tolist() == there
    assert time.monotonic() - begun < 20, "drawing all numbers would take days"


def test_several_iterators_at_once():
    first, second, third, fourth = orders(4, shuffle=True, seed=1)
    for workers in (0, 2):
        loader = Loader(DATA, 5, shuffle=True, seed=1, num_workers=workers)
        pairs = list(zip(loader, loader, strict=True))
        assert [indices(part) for part in zip(*pairs, strict=True)] == [first, second]
        a = iter(loader)
        begun = [next(a)["i"].tolist()]
        assert indices(loader) == fourth
        assert begun + indices(a) == third
        assert list(a) == []


def test_an_iterator_is_left_half_way():
    expected = orders(4, shuffle=True, seed=1)
    for workers in (0, 2):
        loader = Loader(DATA, 5, shuffle=True, seed=1, num_workers=workers)
        for batch in loader:
            assert batch["i"].tolist() == expected[0][0]
            break
        assert indices(loader) == expected[1]
        batches = iter(loader)
        next(batches)
        batches.close()
        assert list(batches) == []
        assert indices(loader) == expected[3]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("output", ["numpy", pytest.param("dlpack", marks=dlpack)])
def test_kept_batches_do_not_change(workers, output):
    loader = Loader(DATA, 2, shuffle=True, seed=3, num_workers=workers, output=output)
    kept = [batch for _ in range(5) for batch in loader]
    if output == "dlpack":
        kept = [{name: np.from_dlpack(field) for name, field in batch.items()} for batch in kept]
    del loader
    again = Loader(DATA, 2, shuffle=True, seed=3)
    assert indices(kept) == [batch for _ in range(5) for batch in indices(again)]
    for batch in kept:
        assert np.array_equal(batch["x"], X[batch["i"]])
        batch["x"][:] = 0
    # Fields of different batches, and of one batch, do not share memory.
    starts = sorted((part.ctypes.data, part.nbytes) for batch in kept for part in batch.values())
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(starts))


def test_a_part_of_a_batch_keeps_its_memory():
    loader = Loader(DATA, 4)
    rows = [batch["x"][1, :, 1:] for batch in loader if len(batch["i"]) > 1]
    for at, row in enumerate(rows):
        assert np.array_equal(row, X[4 * at + 1, :, 1:])


def test_loops_that_keep_nothing_use_the_memory_again():
    loader = Loader(DATA, 4, num_workers=1, prefetch_factor=2)
    places = {batch["x"].ctypes.data for _ in range(50) for batch in loader}
    assert len(places) <= loader.stats()["depth"] and loader.stats()["extra_batches"] == 0


def test_single_samples():
    for output in ("numpy", "dlpack"):
        samples = list(Loader(DATA, None, output=output))
        assert len(samples) == N
        for i, sample in enumerate(samples):
            x, index = np.from_dlpack(sample["x"]), np.from_dlpack(sample["i"])
            assert np.array_equal(x, X[i]) and index.shape == () and index == i


def test_batches_as_they_are_finished():
    loader = Loader(DATA, 3, shuffle=True, seed=1, num_workers=2, in_order=False)
    whole = indices(Loader(DATA, 3, shuffle=True, seed=1))
    assert sorted(indices(loader)) == sorted(whole)


def test_draws_with_replacement_and_other_lengths():
    first, second = ([sum(one, []) for one in orders(2, shuffle=True, seed=1, replacement=True)])
    assert first != second and len(first) == N and len(set(first)) < N
    longer = orders(3, shuffle=True, seed=1, num_samples=2 * N + 3)
    for order in longer:
        order = sum(order, [])
        assert len(order) == 2 * N + 3 and sorted(order[:N]) == sorted(order[N : 2 * N]) == list(range(N))
    # The same for an engine that starts at a later pass without running the earlier ones.
    for options, expected in (
        ({"replacement": True, "num_samples": 100}, None),
        ({"num_samples": 2 * N + 3}, longer),
        ({"num_samples": 9}, None),
    ):
        expected = expected or orders(3, shuffle=True, seed=1, **options)
        loader = Loader(DATA, 5, shuffle=True, seed=1, **options)
        for epoch in (2, 1):
            loader.set_epoch(epoch)
            assert indices(loader) == expected[epoch]


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_divide_the_dataset(shuffle):
    for size, drop_last in itertools.product((2, 3), (False, True)):
        loaders = [Loader(DATA, 5, shuffle, rank=rank, world_size=size, drop_last=drop_last) for rank in range(size)]
        for _ in range(2):
            shares = [sum(indices(loader), []) for loader in loaders]
            assert len({len(share) for share in shares}) == 1
            assert len(set(sum(shares, []))) == sum(map(len, shares)) if drop_last else set(sum(shares, [])) == set(range(N))
    alone = Loader(DATA, 5, shuffle, rank=1, world_size=2, seed=3)
    one, two = indices(alone), indices(alone)
    assert (one == two) == (not shuffle)
    alone.set_epoch(1)
    assert indices(alone) == two


def test_memory():
    wide = Arrays(np.zeros((64, 1 << 16), "u1"))
    loader = Loader(wide, 8, num_workers=1, memory_limit=4 << 20)
    assert loader.memory_ceiling <= 4 << 20
    kept = []
    with pytest.raises(slotline.OutOfMemoryError, match="memory_limit is 4194304"):
        for batch in loader:
            kept.append(batch)
    assert len(kept) >= 4
    with pytest.raises(slotline.OutOfMemoryError, match="batch_size = .* would fit"):
        Loader(wide, 64, memory_limit=1 << 20)
    loader = Loader(wide, 8, hold=1, on_held="raise")
    batches, kept = iter(loader), []
    with pytest.raises(slotline.OutOfMemoryError, match="hold = 1"):
        while True:
            kept.append(next(batches))
    held = len(kept)
    kept.pop(0)
    kept.append(next(batches))
    assert len(kept) == held


def test_a_loop_waits_for_a_batch_to_be_dropped():
    loader = Loader(DATA, 4, hold=1, on_held="wait", num_workers=1)
    kept, found = queue.SimpleQueue(), []

    def drop():
        while (batch := kept.get()) is not None:
            found.append(batch["i"].tolist())

    thread = threading.Thread(target=drop)
    thread.start()
    for batch in loader:
        kept.put(batch)
    kept.put(None)
    thread.join()
    assert sum(found, []) == list(range(N))


def test_timeouts():
    # Rows that take no memory (a stride of 0), but are slow to copy, since they are copied byte by
    # byte.
    rows = np.broadcast_to(np.zeros((1, 1), "u1"), (6, 4 << 20))
    loader = Loader(Arrays(x=rows, i=np.arange(6)), 2, num_workers=1, timeout=1e-4)
    late = 0
    for _ in range(20):
        found = list(outcomes(iter(loader), slotline.LoaderTimeoutError))
        errors = [error for error in found if isinstance(error, TimeoutError)]
        assert all("timed out after 0.0001 seconds" in str(error) for error in errors)
        late += len(errors)
        assert indices(batch for batch in found if batch not in errors) == [[0, 1], [2, 3], [4, 5]]
        # On a busy machine, the loop's own thread may be late, so try again.
        if late:
            return
    raise AssertionError("no batch was late")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616"),
        ({"output": "jax"}, 'output is "jax"; it must be "numpy"'),
        ({"on_error": "ignore"}, 'on_error is "ignore"'),
        ({"on_held": "drop"}, 'on_held is "drop"'),
        ({"affinity": "none"}, 'affinity is "none"'),
        ({"affinity": [4096], "num_workers": 1}, "names core 4096"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": 1}, "timeout and num_workers = 0 exclude each other"),
        ({"prefetch_factor": 2}, "prefetch_factor and num_workers = 0"),
        ({"replacement": True}, "replacement needs shuffle=True"),
        ({"num_samples": 3}, "num_samples needs shuffle=True"),
        ({"num_samples": 0, "shuffle": True}, "num_samples is 0"),
        ({"rank": 0}, "rank and world_size belong together"),
        ({"rank": 2, "world_size": 2}, "rank 2 is not one of 2; ranks count from 0"),
        ({"rank": 0, "world_size": 2, "shuffle": True, "replacement": True}, "exclude each other"),
        ({"batch_size": None, "drop_last": True}, "batch_size = None and drop_last"),
        ({"hold": 0}, "hold is 0"),
    ],
)
def test_options_that_are_refused(options, words):
    with pytest.raises(slotline.OptionError, match=words) as caught:
        Loader(DATA, **options)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, slotline.Error)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": "a"}, "batch_size is 'a'; it must be an integer"),
        ({"num_workers": 1.5}, "num_workers is 1.5; it must be an integer"),
        ({"seed": "a"}, "seed is 'a'; it must be an integer"),
        ({"seed": True}, "seed is True; it must be an integer"),
        ({"batch_size": True}, "batch_size is True; it must be an integer"),
        ({"affinity": [True]}, "a core of affinity is True; it must be an integer"),
        ({"shuffle": "yes"}, "shuffle is 'yes'; it must be True or False"),
        ({"drop_last": None}, "drop_last is None; it must be True or False"),
    ],
)
def test_options_of_another_type_are_named(options, words):
    with pytest.raises(TypeError, match=words):
        Loader(DATA, **options)


def test_an_epoch_that_is_no_integer_is_refused():
    for wrong in ("a", True, np.True_):
        with pytest.raises(TypeError, match=f"epoch is {wrong!r}; it must be an integer"):
            Loader(DATA).set_epoch(wrong)


def test_tensors_need_torch(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match='output="torch" needs PyTorch'):
        Loader(DATA, output="torch")


def test_what_is_no_dataset_is_refused():
    with pytest.raises(TypeError, match="slotline.Arrays.*slotline.torch.DataLoader"):
        Loader([1, 2, 3])
    with pytest.raises(slotline.DataError, match="type datetime64.*output=\"dlpack\" does not have"):
        Loader(Arrays(np.zeros(3, "M8[s]")), output="dlpack")


def test_affinity_and_the_other_options_change_no_batch():
    expected = orders(1, shuffle=True, seed=1)
    for options in ({"affinity": "spread"}, {"affinity": [0]}, {"on_error": "skip"}, {"on_error": "replace"}, {"hold": 5}):
        assert [indices(Loader(DATA, 5, shuffle=True, seed=1, num_workers=1, **options))] == expected


KINDS = [{}, {"shuffle": True}, {"shuffle": True, "replacement": True}, {"shuffle": True, "rank": 1, "world_size": 2}]


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("seed", [None, 9])
def test_resuming(options, seed):
    source = Loader(DATA, 5, seed=seed, num_workers=1, **options)
    passes = [indices(source) for _ in range(3)]
    source = Loader(DATA, 5, seed=source.seed, num_workers=1, **options)
    states = [(0, 0, source.state_dict())]
    for epoch in range(2):
        for at, _ in enumerate(source, 1):
            states.append((epoch, at, source.state_dict()))
        states.append((epoch + 1, 0, source.state_dict()))
    reused = Loader(DATA, 5, seed=seed and 9, num_workers=2, **options)
    for epoch, at, state in states:
        state = json.loads(json.dumps(state))
        rest = [passes[epoch][at:], *passes[epoch + 1 :]]
        for loader in (Loader(DATA, 5, seed=seed, **options), reused):
            loader.load_state_dict(state)
            assert loader.state_dict() == state and loader.epoch == epoch and loader.seed == source.seed
            assert [indices(loader) for _ in rest] == rest


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_knows_how_many_batches_are_left(workers):
    loader = Loader(DATA, 5, shuffle=True, seed=1, num_workers=workers)
    batches, whole = iter(loader), len(loader)
    for got in range(whole):
        assert len(batches) == batches.remaining() == whole - got
        next(batches)
        if got == 2:
            state = loader.state_dict()
    assert len(batches) == batches.remaining() == 0 and list(batches) == []
    # After a resume, ``remaining`` is the rest of the pass, while ``len`` of the loader is a whole
    # pass.
    loader.load_state_dict(state)
    batches = iter(loader)
    assert batches.remaining() == operator.length_hint(batches) == whole - 3 and len(loader) == whole
    next(batches)
    other = iter(loader)
    assert (batches.remaining(), other.remaining()) == (whole - 4, whole)
    batches.close()
    assert (batches.remaining(), other.remaining()) == (0, whole)


def test_a_batch_that_is_skipped_or_an_error_is_not_left(tmp_path):
    (tmp_path / "data.jsonl").write_text("".join(f'{{"file_name": "{i}"}}\n' for i in range(6)))
    for i in (0, 3, 4, 5):
        (tmp_path / str(i)).write_bytes(b"x")
    data = slotline.open(tmp_path / "data.jsonl")
    batches = iter(Loader(data, 2, on_error="skip"))
    assert [batches.remaining() for _ in batches] == [2, 1, 0]
    # Single samples, of which two are skipped.
    batches = iter(Loader(data, None, on_error="skip"))
    assert [batches.remaining() for _ in batches] == [5, 2, 1, 0]
    batches = iter(Loader(data, 2))
    next_or_error = []
    while batches.remaining():
        try:
            next(batches)
        except slotline.SampleError:
            next_or_error.append(batches.remaining())
    assert next_or_error == [2, 1]


def test_the_state_of_a_pass_that_was_left():
    loader = Loader(DATA, 5, shuffle=True, seed=1)
    expected = indices(Loader(DATA, 5, shuffle=True, seed=1))
    for at, _ in enumerate(loader, 1):
        if at == 3:
            break
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 3)
    loader.load_state_dict(state)
    assert indices(loader) == expected[3:]
    # Loading a state does not affect an iterator that is alive.
    batches = iter(loader)
    next(batches)
    loader.load_state_dict(state)
    assert len(list(batches)) == len(loader) - 1
    assert indices(loader) == expected[3:]
    loader.load_state_dict(state)
    loader.set_epoch(0)
    assert indices(loader) == expected[3:]
    loader.load_state_dict(state)
    loader.set_epoch(1)
    loader.set_epoch(0)
    assert indices(loader) == expected


@pytest.mark.parametrize(
    "change, words",
    [
        ({"dataset_len": 38}, "dataset_len"),
        ({"batch_size": 6}, "batch_size"),
        ({"version": 99}, "version"),
        ({"batches": -1}, "'batches' is -1, but it must be an integer"),
        ({"start": None}, "'start' is None, but it must be a dict"),
    ],
)
def test_states_that_do_not_fit(change, words):
    loader = Loader(DATA, 5, shuffle=True, seed=1)
    state = loader.state_dict()
    with pytest.raises(slotline.StateError, match=words):
        loader.load_state_dict({**state, **change})
    with pytest.raises(slotline.StateError, match="seed"):
        Loader(DATA, 5, shuffle=True, seed=2).load_state_dict(state)
    with pytest.raises(slotline.StateError, match="shuffle=True, but this loader has shuffle=False"):
        Loader(DATA, 5, seed=1).load_state_dict(state)
    assert indices(loader) == orders(1, shuffle=True, seed=1)[0]


def test_statistics():
    loader = Loader(DATA, 5, num_workers=1)
    for _ in range(3):
        for _ in loader:
            pass
    stats = loader.stats()
    assert (stats["passes"], stats["batches"], stats["samples"]) == (3, 24, 3 * N)
    assert stats["bytes"] == 3 * N * (6 + 8) and len(stats["workers"]) == 1
    assert isinstance(loader.verdict(), str) and loader.verdict()
    kept = [batch for _ in range(4) for batch in loader]
    assert len(kept) == 32 and loader.stats()["extra_batches"] > 0
    assert any("hold" in warning for warning in loader.warnings())


def test_warnings():
    with pytest.warns(UserWarning, match="a pass has no batch: batch_size is 100"):
        loader = Loader(DATA, 100, drop_last=True)
    assert list(loader) == []


def test_loaders_can_be_copied():
    loader = Loader(DATA, 5, shuffle=True, seed=1, num_workers=1)
    expected = indices(loader)
    for other in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader), copy.copy(loader)):
        assert other.options == loader.options and indices(other) == expected
    assert (loader.batch_size, len(loader.dataset), loader.options["shuffle"]) == (5, N, True)


def test_threads_share_an_iterator():
    data = Arrays(i=np.arange(5000))
    for workers in (0, 2):
        batches, found = iter(Loader(data, 3, shuffle=True, num_workers=workers)), []
        in_threads(4, lambda _: found.extend(indices(batches)))
        assert sorted(sum(found, [])) == list(range(5000))


def test_threads_share_a_loader():
    whole = {epoch: one for epoch, one in enumerate(orders(60, shuffle=True, seed=1))}
    loader = Loader(DATA, 5, shuffle=True, seed=1, num_workers=1)
    found, failures = [], []

    def passes(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(10):
                batches, most = iter(loader), rng.integers(1, 12)
                found.append(indices(itertools.islice(batches, most)))
                state = loader.state_dict()
                assert 0 <= state["batches"] <= len(loader)
                assert loader.stats()["passes"] >= 0 and loader.verdict()
        except Exception as error:
            failures.append(error)

    in_threads(4, passes)
    assert not failures and loader.epoch == 40
    # Each iterator ran a separate pass.
    for batches in found:
        (epoch,) = [epoch for epoch, one in whole.items() if one[: len(batches)] == batches]
        assert epoch < 40
        del whole[epoch]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mapped", [False, True])
def test_threads_go_from_pass_to_pass(workers, mapped, tmp_path):
    np.save(tmp_path / "i.npy", np.arange(60))
    # Batches of mapped files may be loaded by another thread.
    data = slotline.from_npy(i=tmp_path / "i.npy", mmap=True) if mapped else Arrays(i=np.arange(60))
    loader = Loader(data, 3, shuffle=True, num_workers=workers)
    passes, found, turn = [iter(loader)], [], threading.Lock()

    def work(_):
        while True:
            number = len(passes) - 1
            batch = next(passes[number], None)
            if batch is not None:
                found.append((number, *batch["i"].tolist()))
                continue
            with turn:
                # The first thread to see the end begins the next pass, while others may still wait
                # for a batch of this one.
                if number == 60:
                    return
                if number == len(passes) - 1:
                    passes.append(iter(loader))

    in_threads(4, work)
    for number in range(61):
        assert sorted(i for of, *batch in found if of == number for i in batch) == list(range(60))


def test_a_state_is_loaded_while_passes_begin():
    whole = list(itertools.chain.from_iterable(orders(1, shuffle=True, seed=1)))
    loader = Loader(DATA, 5, shuffle=True, seed=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    for _ in range(50):
        barrier = threading.Barrier(2)

        def work(number):
            barrier.wait()
            if number == 0:
                loader.load_state_dict(state)
            else:
                iter(loader)

        in_threads(2, work)
        # Either that pass was resumed, or the next one began.
        if loader.epoch == 0:
            assert indices(loader) == whole[1:]


@dlpack
def test_dlpack():
    batch = next(iter(Loader(DATA, 4, output="dlpack")))["x"]
    assert (batch.shape, batch.dtype, batch.__dlpack_device__()) == ((4, 2, 3), "uint8", (1, 0))
    assert repr(batch) == "slotline.Tensor(shape=[4, 2, 3], dtype=uint8)"
    view, same = np.from_dlpack(batch), np.from_dlpack(batch)
    assert view.flags.writeable and np.shares_memory(view, same)
    assert "dltensor_versioned" in repr(batch.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(batch.__dlpack__()) and '"dltensor"' in repr(batch.__dlpack__(max_version=(0, 8)))
    view[:] = 9
    assert (same == 9).all()
    own = Arrays(x=batch)
    assert np.array_equal(next(iter(Loader(own, 4)))["x"], same)
    for options, words in (({"stream": 1}, "stream must be None"), ({"dl_device": (2, 0)}, "on the CPU")):
        with pytest.raises(BufferError, match=words):
            batch.__dlpack__(**options)

    class Copy:
        def __dlpack__(self, **options):
            return batch.__dlpack__(**{**options, "copy": True})

        def __dlpack_device__(self):
            return (1, 0)

    copied = np.from_dlpack(Copy())
    assert np.array_equal(copied, same) and not np.shares_memory(copied, same)
