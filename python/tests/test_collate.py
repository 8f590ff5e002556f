"""Batches and errors are the same as those of torch's ``default_collate``."""

import collections
import dataclasses

import numpy as np
import pytest
import torch
from conftest import same
from datasets import Samples
from helpers import IS_FREE_THREADED
from torch.utils.data import default_collate

import slotline.torch
from slotline._slotline import Collator

Point = collections.namedtuple("Point", "x y")


class Bag(dict):
    pass


class Row(list):
    pass


class Text(str):
    pass


class MyTensor(torch.Tensor):
    pass


@dataclasses.dataclass
class Plain:
    x: int


def frozen(array):
    array.setflags(write=False)
    return array


STRIDED = torch.arange(24).reshape(2, 3, 4)
SAMPLES = {
    "tensors": [torch.arange(3), torch.arange(3) + 7],
    "scalars": [torch.tensor(1.5), torch.tensor(2.5)],
    "no elements": [torch.empty(0, 3), torch.empty(0, 3)],
    "no samples but one": [torch.ones(2, 2)],
    "transposed": [STRIDED.transpose(0, 2), STRIDED.flip(2).transpose(0, 2)],
    "every second": [torch.arange(10)[::2], torch.arange(10)[1::2]],
    "expanded": [torch.ones(1).expand(4), torch.zeros(1).expand(4)],
    "dense and not": [torch.arange(6).reshape(2, 3), torch.arange(6).reshape(3, 2).T],
    "channels last": [torch.rand(1, 3, 4, 4).to(memory_format=torch.channels_last)[0]] * 2,
    **{
        f"tensors of {dtype}": [torch.tensor([0, 1]).to(dtype), torch.tensor([1, 1]).to(dtype)]
        for dtype in (
            torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
            torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
            torch.complex128, torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2,
        )
    },
    **{
        f"tensors of {name}": [torch.zeros(2, dtype=getattr(torch, name))] * 2
        for name in ("uint1", "uint4", "int4", "float4_e2m1fn_x2")
        if hasattr(torch, name)
    },
    "conjugated later": [torch.tensor([1 + 2j]), torch.tensor([3 + 4j]).conj()],
    "conjugated": [torch.tensor([1 + 2j]).conj(), torch.tensor([3 + 4j])],
    "negated": [torch.tensor([1 + 2j]).conj().imag, torch.tensor([3 + 4j]).conj().imag],
    "negated later": [torch.tensor([1 + 2j]).imag, torch.tensor([3 + 4j]).conj().imag],
    "with gradients": [torch.ones(2, requires_grad=True), torch.ones(2)],
    "with gradients later": [torch.ones(2), torch.ones(2, requires_grad=True)],
    "of a subclass": [torch.ones(2).as_subclass(MyTensor)] * 2,
    "one of a subclass": [torch.ones(2), torch.ones(2).as_subclass(MyTensor)],
    "parameters": [torch.nn.Parameter(torch.ones(2), requires_grad=False)] * 2,
    "sparse": [torch.eye(2).to_sparse()] * 2,
    "on no device": [torch.ones(2, device="meta")] * 2,
    "of two types": [torch.ones(2), torch.ones(2, dtype=torch.int32)],
    "of two shapes": [torch.ones(2), torch.ones(3)],
    "of two ranks": [torch.ones(2), torch.ones(2, 1)],
    "tensor and number": [torch.ones(()), 1.0],
    "number and tensor": [1.0, torch.ones(())],
    "arrays": [np.arange(3), np.arange(3) + 1],
    "arrays of bytes": [np.arange(3, dtype=np.uint8)] * 2,
    **{
        f"arrays of {dtype}": [np.array([0, 1]).astype(dtype), np.array([1, 1]).astype(dtype)]
        for dtype in (
            "bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8", "S3", "U3", "O",
            "longlong", "ulonglong", "longdouble", "datetime64[s]", "timedelta64[s]",
        )
    },
    "records": [np.zeros(2, dtype=[("a", "i4"), ("b", "f4")])] * 2,
    "strided arrays": [np.arange(12).reshape(3, 4).T, np.arange(24).reshape(6, 4)[::2].T],
    "reversed arrays": [np.arange(4)[::-1]] * 2,
    "arrays of no dimension": [np.array(3.0), np.array(4.0)],
    "arrays of no element": [np.empty((0, 2)), np.empty((0, 2))],
    "unaligned": [np.frombuffer(b"\0" * 17, dtype=np.uint8)[1:].view(np.int64)] * 2,
    "broadcast arrays": [np.broadcast_to(np.arange(3), (2, 3))] * 2,
    "frozen arrays": [frozen(np.arange(3))] * 2,
    "arrays of two shapes": [np.arange(3), np.arange(4)],
    "arrays of two types": [np.arange(3), np.arange(3.0)],
    "array and tensor": [np.arange(3), torch.arange(3)],
    "tensor and array": [torch.arange(3), np.arange(3)],
    **{f"scalars of {kind.__name__}": [kind(0), kind(1)] for kind in (np.int64, np.int8, np.float32, np.float64, np.complex64, np.complex128, np.bool_, np.str_)},
    "matrices": [np.matrix([[1, 2]])] * 2,
    "integers": [1, -(2**63)],
    "too large": [1, 2**63],
    "booleans": [True, False],
    "boolean and integer": [True, 2],
    "integer and boolean": [2, True],
    "floats": [1.5, float("nan")],
    "float and integer": [1.5, 2],
    "integer and float": [2, 1.5],
    "complex": [1j, 2j],
    "strings": ["a", "b"],
    "strings of a subclass": [Text("a"), "b"],
    "bytes": [b"a", b"b"],
    "string and number": ["a", 1],
    "number and string": [1, "a"],
    "nothing": [None, None],
    "plain objects": [Plain(1), Plain(2)],
    "tuples": [(1, "a", 2.0), (3, "b", 4.0)],
    "tuples of two lengths": [(1, 2), (1, 2, 3)],
    "empty tuples": [(), ()],
    "lists": [[1, "a"], [2, "b"]],
    "empty lists": [[], []],
    "lists of a subclass": [Row([1, 2]), Row([3, 4])],
    "list and tuple": [[1, 2], (3, 4)],
    "tuple and list": [(1, 2), [3, 4]],
    "named tuples": [Point(1, "a"), Point(torch.ones(1), "b")],
    "good named tuples": [Point(1, "a"), Point(2, "b")],
    "named tuple and tuple": [Point(1, 2), (3, 4)],
    "dicts": [{"a": 1, 2: [torch.ones(2), "x"]}, {2: [torch.zeros(2), "y"], "a": 3}],
    "empty dicts": [{}, {}],
    "dicts of a subclass": [Bag(a=1), Bag(a=2)],
    "dicts in order": [collections.OrderedDict(a=1, b="x")] * 2,
    "default dicts": [collections.defaultdict(int, a=1)] * 2,
    "dicts of which one lacks a key": [{"a": 1, "b": 2}, {"a": 1}],
    "dicts of which one has more keys": [{"a": 1}, {"a": 1, "b": 2}],
    "dict and list": [{"a": 1}, [1]],
    "nested": [{"a": [(torch.ones(2), {"b": Point(1, "z")})]}, {"a": [(torch.zeros(2), {"b": Point(2, "w")})]}],
    "nested mismatch": [{"a": [(1, 2)]}, {"a": [(1, 2, 3)]}],
    "ranges": [range(3), range(3)],
    "sets": [{1}, {2}],
    "none at all": [],
    "deep": [__import__("functools").reduce(lambda x, _: [x], range(60), 1)] * 2,
}


def outcome(function, samples):
    try:
        return function(samples)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.filterwarnings("ignore")
def test_a_batch_is_that_of_torch(name):
    ours = outcome(Collator(), SAMPLES[name])
    torchs = outcome(default_collate, SAMPLES[name])
    if name == "with gradients" or name == "with gradients later":
        assert ours.requires_grad and torchs.requires_grad
    if name == "sparse" or name == "on no device":
        assert str(ours) == str(torchs)
        return
    same(ours, torchs)


def test_a_batch_is_a_copy():
    sample = torch.ones(3)
    batch = Collator()([sample])
    sample += 1
    assert batch.tolist() == [[1, 1, 1]]
    batch += 5
    assert sample.tolist() == [2, 2, 2]


def test_memory_is_not_used_again_while_a_tensor_refers_to_it():
    collator = Collator()
    kept = []
    for k in range(50):
        batch = collator([torch.full((40_000,), k)])
        kept.append(batch[0, 10:20] if k % 2 else batch)
        del batch
    for k, tensor in enumerate(kept):
        assert (tensor == k).all()


def test_batches_can_be_written_and_resized_as_torchs():
    batch = Collator()([torch.ones(3), torch.ones(3)])
    batch.add_(1).mul_(2)
    assert batch.sum() == 24
    assert batch.view(-1).shape == (6,)
    assert batch.clone().share_memory_().is_shared()
    assert batch.resize_(3, 5).shape == (3, 5)
    assert batch.flatten()[:6].tolist() == [4] * 6


def samples_of(numbers, labels):
    return Samples(len(labels), lambda k: [numbers[k], k])


# Row widths for small batches, and for batches large enough that their memory is reused.
WIDTHS = [3, 50_000]
LOADERS = [torch.utils.data.DataLoader, slotline.torch.DataLoader]


def rows(loader, width, kind=torch.utils.data.TensorDataset, **options):
    numbers = torch.arange(12.0)[:, None].expand(12, width).contiguous()
    return loader(kind(numbers, torch.arange(12)), batch_size=4, **options)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [torch.utils.data.TensorDataset, samples_of])
@pytest.mark.parametrize("loader", LOADERS)
def test_batches_of_no_worker_can_be_resized(loader, kind, width):
    for _ in range(2):
        kept = []
        for k, (batch, labels) in enumerate(rows(loader, width, kind)):
            wanted = torch.arange(4.0 * k, 4.0 * k + 4)
            assert (batch == wanted[:, None]).all() and (labels == wanted).all()
            assert batch.untyped_storage().nbytes() == batch.nbytes
            assert batch._base is None and batch.storage_offset() == 0
            if k == 0:
                batch.resize_(8, width).fill_(-1)
            elif k == 1:
                torch.stack([torch.full((width + 1,), -2.0)] * 4, out=batch)
            else:
                torch.cat([batch, batch], out=labels.resize_(0).to(torch.float32))
            kept.append(batch)
        assert (kept[0] == -1).all() and (kept[1] == -2).all() and kept[0].shape == (8, width)


@pytest.mark.parametrize("loader", LOADERS)
def test_batches_of_processes_cannot_be_resized(loader):
    batch, _ = next(iter(rows(loader, 3, samples_of, num_workers=1)))
    with pytest.raises(RuntimeError, match="storage that is not resizable"):
        batch.resize_(100)


KEEPS = {
    "tensor": lambda batch: batch,
    "view": lambda batch: batch[1:, 5:9],
    "detached": lambda batch: batch.detach(),
    "storage": lambda batch: batch.untyped_storage(),
    "array": lambda batch: batch.numpy()[:2],
    "buffer": lambda batch: memoryview(batch.numpy()),
    "capsule": lambda batch: np.from_dlpack(batch),
    "graph": lambda batch: (batch * torch.ones((), requires_grad=True)).grad_fn,
    "shared": lambda batch: batch.share_memory_(),
}


@pytest.mark.parametrize("what", KEEPS)
def test_whatever_refers_to_a_batch_keeps_its_memory(what):
    def numbers(kept):
        if what == "graph":
            return kept._saved_other if kept._saved_self is None else kept._saved_self
        return torch.frombuffer(kept, dtype=torch.float32) if what == "buffer" else kept

    loader = rows(slotline.torch.DataLoader, 50_000)
    kept, first = [], []
    for _ in range(4):
        for batch, _ in loader:
            first.append(batch[1, 5].item())
            kept.append(KEEPS[what](batch))
    for value, found in zip(first, kept, strict=True):
        if what == "storage":
            found = torch.empty(0).set_(found)
        assert torch.as_tensor(numbers(found)).flatten()[0 if what == "view" else 50_005].item() == value


@pytest.mark.skipif(IS_FREE_THREADED, reason="this interpreter cannot tell whether another thread refers to memory")
def test_large_memory_that_nobody_refers_to_is_used_again():
    loader = rows(slotline.torch.DataLoader, 50_000)
    addresses = {batch.data_ptr() for _ in range(5) for batch, _ in loader}
    assert len(addresses) == 2


def test_memory_in_another_process_is_not_used_again():
    loader = rows(slotline.torch.DataLoader, 50_000)
    batches = iter(loader)
    batch, _ = next(batches)
    batch.share_memory_()
    # How a process that receives the batch would see it.
    rebuild, arguments = torch.multiprocessing.reductions.reduce_storage(batch.untyped_storage())
    descriptor = arguments[1].detach()
    other = torch.UntypedStorage._new_shared_fd_cpu(descriptor, arguments[2])
    del batch, arguments, rebuild
    for _ in batches:
        pass
    assert (torch.empty(0).set_(other).view(4, -1) == torch.arange(4.0)[:, None]).all()


def x(size):
    return torch.zeros(size)


# Samples that do not fit together, and the note on the error.
MISFITS = {
    "tensors": ([x(3), x(3), x(4)], "In the samples, sample 2 of the batch does not fit sample 0."),
    "a field": (
        [{"id": 1, "image": x(3)}, {"id": 2, "image": x(4)}],
        "In field 'image', sample 1 of the batch does not fit sample 0.",
    ),
    "a nested field": (
        [({"x": x(3)}, "a"), ({"x": x(3)}, "b"), ({"x": x(5)}, "c")],
        "In field [0]['x'], sample 2 of the batch does not fit sample 0.",
    ),
    "arrays": (
        [(1, np.zeros(3)), (2, np.zeros(2))],
        "In field [1], sample 1 of the batch does not fit sample 0.",
    ),
    "types": ([{"a": x(1)}, {"a": 2.5}], "In field 'a', sample 1 of the batch does not fit sample 0."),
    "number and text": ([{"a": 1}, {"a": "b"}], "In field 'a', sample 1 of the batch does not fit sample 0."),
    "a missing key": (
        [{"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}],
        "In field 'a', sample 1 of the batch has no 'c', which sample 0 has.",
    ),
    "lengths": ([{"a": [1, 2]}, {"a": [1, 2, 3]}], "In field 'a', sample 1 of the batch has 3 parts, and sample 0 has 2."),
    "list and number": ([{"a": [1, 2]}, {"a": 3}], "In field 'a', sample 1 of the batch has no parts, and sample 0 has 2."),
    "named tuples": ([Point(x(1), x(2)), Point(x(1), x(3))], "In field 'y', sample 1 of the batch does not fit sample 0."),
    "objects": ([{"a": None}, {"a": None}], "In field 'a', sample 0 of the batch cannot be collated."),
    "objects of a class": ([[1, Plain(1)]] * 2, "In field [1], sample 0 of the batch cannot be collated."),
    "arrays of objects": ([(np.array(["a"]),)] * 2, "In field [0], sample 0 of the batch cannot be collated."),
    "in another mapping": (
        [Bag(a=Row([1, x(2)])), Bag(a=Row([1, x(3)]))],
        "In field ['a'][1], sample 1 of the batch does not fit sample 0.",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_an_error_names_the_field_and_the_sample(name):
    samples, note = MISFITS[name]
    with pytest.raises(Exception) as torchs:
        default_collate(samples)
    with pytest.raises(torchs.type) as ours:
        next(iter(slotline.torch.DataLoader(samples, batch_size=len(samples))))
    assert str(ours.value) == str(torchs.value)
    assert ours.value.__notes__ == [note]


@pytest.mark.parametrize("method", ["multiprocessing", "thread"])
@pytest.mark.parametrize("name", ["a nested field", "a missing key", "in another mapping"])
def test_an_error_of_a_worker_names_the_field_too(name, method):
    samples, note = MISFITS[name]
    options = dict(batch_size=len(samples), num_workers=1)
    with pytest.raises(Exception) as torchs:
        next(iter(torch.utils.data.DataLoader(samples, **options)))
    with pytest.raises(torchs.type) as ours:
        next(iter(slotline.torch.DataLoader(samples, worker_method=method, **options)))
    last = str(torchs.value).rstrip().splitlines()[-1]
    assert str(ours.value).rstrip().splitlines()[-2:] == [last, note]


def test_the_rows_of_a_list_of_tuples_name_the_field_too():
    class Tuples(list):
        def __getitems__(self, indices):
            return tuple(self[k] for k in indices)

    samples, note = MISFITS["a field"]
    with pytest.raises(RuntimeError) as ours:
        next(iter(slotline.torch.DataLoader(Tuples(samples), batch_size=2)))
    assert ours.value.__notes__ == [note]


@pytest.mark.parametrize("count", [1, 2, 63])
def test_random_containers_of_random_samples(count):
    random = np.random.default_rng(count)

    def sample(depth, shape):
        kind = shape.integers(8 if depth < 3 else 5)
        match kind:
            case 0:
                return torch.from_numpy(random.integers(0, 9, size=tuple(shape.integers(0, 4, size=2))))
            case 1:
                return random.random(tuple(shape.integers(0, 4, size=shape.integers(0, 3)))).astype("f4")
            case 2:
                return int(random.integers(100))
            case 3:
                return float(random.random())
            case 4:
                return str(random.integers(100))
            case 5:
                return tuple(sample(depth + 1, shape) for _ in range(shape.integers(0, 4)))
            case 6:
                return [sample(depth + 1, shape) for _ in range(shape.integers(0, 4))]
            case 7:
                return {f"k{k}": sample(depth + 1, shape) for k in range(shape.integers(0, 4))}

    collator = Collator()
    for seed in range(200):
        samples = [sample(0, np.random.default_rng(seed)) for _ in range(count)]
        same(outcome(collator, samples), outcome(default_collate, samples))


# Shapes and strides of views: dense, crops, channels last, both, and overlapping elements.
LAYOUTS = [
    ((3, 5, 7), (35, 7, 1)),
    ((3, 5, 7), (100, 10, 1)),
    ((3, 60, 50), (1, 150, 3)),
    ((3, 40, 30), (1, 300, 3)),
    ((40, 3, 20), (1, 400, 90)),
    ((700, 33), (1, 700)),
    ((33, 700), (1, 33)),
    ((4, 6), (0, 1)),
    ((4, 6), (1, 0)),
    ((1, 6, 1), (77, 2, 5)),
    ((2, 3, 4, 5), (60, 1, 15, 3)),
    ((3, 0, 4), (4, 4, 1)),
    ((), ()),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.int64, torch.complex128], ids=str)
def test_every_layout_is_copied_element_by_element(layout, dtype):
    numbers = torch.arange(60_000).mul(2_654_435_761).bitwise_right_shift(13).to(dtype)
    samples = [numbers.as_strided(*layout, storage_offset=offset) for offset in (0, 11)]
    same(outcome(Collator(), samples), outcome(default_collate, samples))


@pytest.mark.parametrize("dtype", ["S3", "S12", "<f4", ">f4"])
def test_arrays_with_negative_strides(dtype):
    numbers = np.arange(600).astype(dtype).reshape(20, 30)[::-1, ::-2]
    same(outcome(Collator(), [numbers, numbers]), outcome(default_collate, [numbers, numbers]))


def test_samples_that_are_batches_keep_their_memory_format():
    samples = [torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(3)]
    same(outcome(Collator(), samples), outcome(default_collate, samples))
    dataset = torch.utils.data.TensorDataset(torch.rand(6, 2, 3, 4, 5).permute(0, 1, 4, 2, 3))
    # With workers, torch does not keep this layout.
    for loader in (torch.utils.data.DataLoader, slotline.torch.DataLoader):
        assert [batch.stride() for (batch,) in loader(dataset, batch_size=2)] == [(120, 60, 1, 20, 5)] * 3
