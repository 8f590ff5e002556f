"""Programs whose code modifies the tensors of a batch while the batch is made from them."""

import collections
import gc
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import slotline  # noqa: E402
from slotline.torch import DataLoader  # noqa: E402


class Copied(dict):
    def __init__(self, run):
        super().__init__(a=1)
        self.run = run

    def __copy__(self):
        self.run()
        return dict(self)


class Items(collections.abc.Mapping):
    def __init__(self, run):
        self.run = run

    def __getitem__(self, key):
        self.run()
        return 1

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


class Key:
    def __init__(self, run):
        self.run = run

    def __hash__(self):
        return 1

    def __eq__(self, other):
        self.run()
        return True


class Sequence(collections.abc.Sequence):
    def __init__(self, run):
        self.run = run

    def __getitem__(self, index):
        if index:
            raise IndexError
        self.run()
        return 1

    def __len__(self):
        return 1


class Named(tuple):
    run = None

    @property
    def _fields(self):
        self.run()
        return ("a",)


def named(run):
    return type("Own", (Named,), {"run": staticmethod(run)})((1,))


class Pickled:
    def __init__(self, run):
        self.run = run

    def __reduce__(self):
        self.run()
        return int, (1,)


CALLBACKS = [Copied, Items, lambda run: {Key(run): 1}, Sequence, named]


def samples(tensor, make, resize):
    return [(tensor, make(resize)) for _ in range(2)]


@pytest.mark.parametrize("make", CALLBACKS)
@pytest.mark.parametrize("grows", [True, False])
def test_a_tensor_that_is_resized_while_a_batch_is_made_is_an_error(make, grows):
    tensor = torch.zeros(1024)
    runs = []

    def resize():
        runs.append(None)
        tensor.resize_(4_000_000 if grows else 2).fill_(7)

    with pytest.raises(RuntimeError, match="resized|equal size|same size"):
        next(iter(DataLoader(samples(tensor, make, resize), batch_size=2)))
    assert runs


@pytest.mark.parametrize("make", CALLBACKS)
def test_a_storage_that_is_shrunk_while_a_batch_is_made_is_an_error(make):
    tensor = torch.zeros(1_000_000)
    with pytest.raises(RuntimeError):
        next(iter(DataLoader(samples(tensor, make, lambda: tensor.untyped_storage().resize_(0)), batch_size=2)))


@pytest.mark.parametrize("make", CALLBACKS)
@pytest.mark.parametrize(
    "change",
    [
        lambda array: array.resize(4_000_000, refcheck=False),
        lambda array: array.resize(2, refcheck=False),
        lambda array: array.__setstate__(np.zeros(5).__reduce__()[2]),
    ],
    ids=["grown", "shrunk", "replaced"],
)
def test_an_array_that_is_resized_while_a_batch_is_made_is_an_error(make, change):
    array = np.zeros(1_000_000)
    with pytest.raises(RuntimeError, match="resized|equal size|same size"):
        next(iter(DataLoader(samples(array, make, lambda: change(array)), batch_size=2)))


@pytest.mark.parametrize("make", CALLBACKS)
def test_code_that_leaves_tensors_alone_is_no_error(make):
    tensor = torch.arange(5)
    first, _ = next(iter(DataLoader(samples(tensor, make, lambda: None), batch_size=2)))
    assert first.tolist() == [[0, 1, 2, 3, 4]] * 2


def with_object(samples):
    """Returns a tensor, and an object that resizes the tensor when it is pickled."""
    tensor = torch.stack(samples)
    return tensor, Pickled(lambda: tensor.resize_(4_000_000))


def test_a_tensor_that_is_resized_while_a_batch_is_sent_arrives_as_it_is_then():
    loader = DataLoader([torch.zeros(1024)] * 4, batch_size=2, num_workers=1, collate_fn=with_object)
    tensor, number = next(iter(loader))
    assert (tensor.numel(), number) == (4_000_000, 1)


def test_indices_of_a_subset_that_resize_its_tensor_read_no_freed_memory():
    tensor = torch.arange(1_000_000)

    class Indices(list):
        def __getitem__(self, index):
            tensor.resize_(8)
            return 3

    subset = torch.utils.data.Subset(torch.utils.data.TensorDataset(tensor), Indices([0, 1]))
    assert next(iter(DataLoader(subset, batch_size=2)))[0].tolist() == [3, 3]


def test_an_index_that_resizes_tensors_looked_at_before_reads_none_of_them():
    class Index(np.int64):
        def __index__(self):
            tensor.resize_(4_000_000).fill_(7)
            return int(self.item())

    for loader in (DataLoader, torch.utils.data.DataLoader):
        tensor = torch.arange(1000.0)
        rows = torch.utils.data.TensorDataset(tensor)
        both = torch.utils.data.ConcatDataset([rows, torch.utils.data.Subset(rows, [Index(3)])])
        assert next(iter(loader(both, sampler=[5, 1000], batch_size=2)))[0].tolist() == [7, 7]


@pytest.mark.parametrize(
    "tensor", [torch._efficientzerotensor(3), torch._to_functional_tensor(torch.ones(3))], ids=["zeros", "functional"]
)
def test_tensors_without_memory_are_collated_by_torch(tensor):
    batch = next(iter(DataLoader([tensor, tensor], batch_size=2)))
    assert batch.shape == (2, 3)


def test_a_dict_that_changes_meanwhile_is_an_error_as_in_torch():
    def sample():
        outer = {}
        outer["a"] = Copied(lambda: outer.setdefault("b", 1))
        return outer

    for loader in (DataLoader, torch.utils.data.DataLoader):
        with pytest.raises(RuntimeError, match="dictionary changed size during iteration"):
            next(iter(loader([sample(), sample()], batch_size=2)))


def test_methods_of_one_tensor_are_not_asked_about_its_memory():
    tensor = torch.ones(16)
    tensor.is_neg = lambda: tensor.resize_(4_000_000) is None
    assert next(iter(DataLoader([tensor, tensor], batch_size=2))).shape == (2, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_torch_refuses_to_resize_a_tensor_that_a_dataset_reads(dtype):
    tensor = torch.ones(64, 8).to(dtype)
    arrays = slotline.Arrays(tensor[3:])
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.untyped_storage().resize_(0)
    assert len(arrays) == 61


class Once:
    """An array that returns the same DLPack capsule on each call."""

    def __init__(self, array, **options):
        self.capsule = array.__dlpack__(**options)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
def test_a_tensor_in_a_capsule_is_taken_once_and_given_back(options):
    array = np.arange(6.0)
    before = sys.getrefcount(array)
    once = Once(array, **options)
    assert sys.getrefcount(array) == before + 1
    dataset = slotline.Arrays(once)
    with pytest.raises(slotline.DataError, match="does not return a tensor"):
        slotline.Arrays(once)
    with pytest.raises((RuntimeError, ValueError, BufferError)):
        torch.from_dlpack(once.capsule)
    del once
    gc.collect()
    assert sys.getrefcount(array) == before + 1
    assert next(iter(slotline.Loader(dataset, 6)))[0].tolist() == [0, 1, 2, 3, 4, 5]
    del dataset
    gc.collect()
    assert sys.getrefcount(array) == before
