"""Datasets that hold tensors or arrays are read without being called, with no visible
difference."""

import gc
import itertools

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from conftest import same
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from slotline import freeze
from slotline.torch import DataLoader
from slotline.torch._iterators.native import NativeIterator

X = torch.arange(60).reshape(20, 3)
Y = torch.arange(20).to(torch.uint8)
A = np.random.default_rng(1).random((20, 2, 2)).astype("f4")


def grown():
    dataset = TensorDataset(X.clone(), Y)
    dataset.tensors[0][3] = -1
    return dataset


DATASETS = {
    "tensors": TensorDataset(X, Y),
    "one tensor": TensorDataset(Y),
    "strided tensors": TensorDataset(X.T.contiguous().T, X[:, 1:2], torch.ones(1).expand(20)),
    "rows with gaps": TensorDataset(torch.arange(120.0).reshape(20, 6)[:, ::3], torch.arange(40).reshape(20, 2)[:, 1:]),
    "with gradients": TensorDataset(torch.ones(20, 2, requires_grad=True)),
    "complex": TensorDataset(torch.ones(20, 2, dtype=torch.complex64)),
    "negated": TensorDataset(torch.ones(20, 2, dtype=torch.complex64).conj().imag),
    "no elements": TensorDataset(torch.ones(20, 0)),
    "no samples": TensorDataset(torch.ones(0, 3)),
    "changed": grown(),
    "stack": StackDataset(X, A, Y),
    "named stack": StackDataset(x=X, a=A, t=TensorDataset(X, Y)),
    "array of numbers": StackDataset(A[:, 0, 0]),
    **{f"array of {kind}": StackDataset(np.arange(20).astype(kind)) for kind in ("?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", ">i4", "U3")},
    "memory-mapped": None,
    "subset": Subset(TensorDataset(X, Y), [3, 1, 4, 1, 5, -1, 19]),
    "subset by a frozen list": Subset(TensorDataset(X, Y), freeze([3, 1, 4, 1, 5, -1, 19])),
    "subset by frozen floats": Subset(TensorDataset(X, Y), freeze([3.0, 1.0])),
    "subset of a range": Subset(TensorDataset(X, Y), range(5, 15)),
    "subset by an array": Subset(TensorDataset(X, Y), np.array([3, 1, 4])),
    "subset by a tensor": Subset(TensorDataset(X, Y), torch.tensor([3, 1, 4])),
    "subset that is wrong": Subset(TensorDataset(X, Y), [3, 20]),
    "concat": ConcatDataset([TensorDataset(X, Y), TensorDataset(X[:3] + 1, Y[:3])]),
    "concat of stacks": ConcatDataset([StackDataset(x=X), StackDataset(x=X[:3] + 1)]),
    "concat of two shapes": ConcatDataset([TensorDataset(X), TensorDataset(X[:, :2])]),
    "concat of two types": ConcatDataset([TensorDataset(X), TensorDataset(X.float())]),
    "concat of two kinds": ConcatDataset([TensorDataset(X), StackDataset(x=X)]),
    "concat of two names": ConcatDataset([StackDataset(x=X), StackDataset(y=X)]),
    "all of them": Subset(ConcatDataset([Subset(StackDataset(a=A, b=X), [3, 4]), StackDataset(a=A, b=X)]), [0, 21, 1, 5]),
}


FAILS_IN_WORKERS = ("negated", "gradients", "two shapes", "two types", "two kinds", "two names", "is wrong")


@pytest.fixture(autouse=True)
def collected():
    """A fixture: collects torch iterators in reference cycles. If a worker that is forked later
    collected one, it would end that iterator's workers."""
    yield
    gc.collect()


@pytest.fixture
def dataset(request, tmp_path):
    if request.param == "memory-mapped":
        mapped = np.memmap(tmp_path / "a", dtype="f4", mode="w+", shape=A.shape)
        mapped[:] = A
        return StackDataset(mapped, np.load(_saved(tmp_path), mmap_mode="r"))
    return DATASETS[request.param]


def _saved(path):
    np.save(path / "b.npy", A)
    return path / "b.npy"


def outcome(make):
    batches = []
    torch.manual_seed(3)
    try:
        loader = make()
        for _ in range(2):
            for batch in loader:
                batches.append(batch)
    except Exception as error:
        batches.append((type(error), str(error).splitlines()[-1]))
    return [*batches, torch.rand(1)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dataset", DATASETS, indirect=True)
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_torchs(dataset, workers, request):
    if len(dataset) == 0 and workers:
        pytest.skip("the random sampler refuses it")
    for options in ({"batch_size": 3}, {"batch_size": 4, "shuffle": True, "drop_last": True}):
        if len(dataset) == 0:
            options.pop("shuffle", None)
        made = []

        def make(kind):
            made.append(kind(dataset, num_workers=workers, persistent_workers=workers > 0, **options))
            return made[-1]

        ours = outcome(lambda: make(DataLoader))
        assert isinstance(made[-1]._get_iterator(), NativeIterator)
        if workers and any(name in request.node.name for name in FAILS_IN_WORKERS):
            # In torch's workers these cases fail for other reasons, and then hang.
            torchs = outcome(lambda: tud.DataLoader(dataset, **options))
            assert [type(batch) for batch in ours] == [type(batch) for batch in torchs]
            continue
        torchs = outcome(lambda: make(tud.DataLoader))
        same(torchs, ours)
        if getattr(dataset, "tensors", [X])[0].requires_grad:
            assert all(part.requires_grad for part in ours[0])


@pytest.mark.parametrize("length", [1, 5, 32, 33, 70])
@pytest.mark.parametrize("size", [1, 5, 32, 100])
@pytest.mark.parametrize("seeded", [False, True])
def test_orders_are_torchs(length, size, seeded):
    data = TensorDataset(torch.arange(length))
    for drop_last, (replacement, count) in itertools.product(
        [False, True], [(False, None), (True, None), (False, 3 * length + 1), (True, 65)]
    ):
        outcomes = []
        for kind in (tud.DataLoader, DataLoader):
            torch.manual_seed(4)
            generator = torch.Generator().manual_seed(5) if seeded else None
            sampler = tud.RandomSampler(data, replacement, count, generator)
            loader = kind(data, size, sampler=sampler, drop_last=drop_last, generator=generator)
            batches = iter(loader)
            outcome = []
            for batch in batches:
                outcome.append(batch[0].tolist())
                outcome.append(torch.rand(1).item())
                if generator is not None:
                    outcome.append(generator.get_state().sum().item())
            outcome.append(torch.rand(1).item())
            outcomes.append(outcome)
        assert outcomes[0] == outcomes[1]


class Eager(tud.Sampler):
    """A sampler that draws its order when an iterator is created."""

    made = 0

    def __iter__(self):
        self.made += 1
        return iter(torch.randperm(20).tolist())

    def __len__(self):
        return 20


@pytest.mark.parametrize("workers", [0, 1])
def test_samplers_of_programs_are_asked_as_often_as_by_torch(workers):
    outcomes = []
    for kind in (tud.DataLoader, DataLoader):
        torch.manual_seed(4)
        sampler = Eager()
        loader = kind(TensorDataset(X), 4, sampler=sampler, num_workers=workers)
        outcomes.append([[batch[0].tolist() for batch in loader] for _ in range(2)] + [sampler.made])
    assert outcomes[0] == outcomes[1]


def test_what_others_would_notice_is_not_native():
    class Mine(TensorDataset):
        pass

    for loader in (
        DataLoader(Mine(X)),
        DataLoader(TensorDataset(X), collate_fn=list),
        DataLoader(TensorDataset(X), batch_size=None),
        DataLoader(TensorDataset(X), num_workers=1, worker_init_fn=print),
        DataLoader(Subset(X, [1])),
        DataLoader(X),
    ):
        assert not isinstance(loader._get_iterator(), NativeIterator)


def test_data_may_change_between_batches():
    dataset = TensorDataset(torch.zeros(4, 2))
    batches = iter(DataLoader(dataset, 2))
    next(batches)
    dataset.tensors = (torch.ones(4, 3),)
    assert torch.equal(next(batches)[0], torch.ones(2, 3))


def test_programs_that_end_workers_find_none():
    batches = iter(DataLoader(TensorDataset(X), 4, num_workers=2))
    next(batches)
    for worker in batches._workers:
        worker.terminate()
    batches._shutdown_workers()
    assert len(list(batches)) == 4


@pytest.mark.parametrize("dataset", [TensorDataset(X), range(3)])
def test_a_timeout_needs_workers(dataset):
    for kind in (tud.DataLoader, DataLoader):
        with pytest.raises(AssertionError, match="requires timeout == 0"):
            iter(kind(dataset, timeout=5))
