"""Results of a collate function in a worker arrive as with torch: the same values, layouts,
objects, and shared memory."""

import collections
import copyreg
import functools
import multiprocessing
import random
import typing
from multiprocessing import reduction

import numpy as np
import pytest
import torch
from conftest import bits, same

import slotline.torch

LOADERS = {"torch": torch.utils.data.DataLoader, "slotline": slotline.torch.DataLoader}

Point = collections.namedtuple("Point", "x y")


class Typed(typing.NamedTuple):
    x: object
    y: int = 3


class Pair(collections.namedtuple("Pair", "a b")):
    def __new__(cls, both):
        return super().__new__(cls, *both)

    def __getnewargs__(self):
        return (tuple(self),)


class Tagged(collections.namedtuple("Tagged", "a")):
    pass


class Fields(tuple):
    _fields = ("a",)


class Holder:
    def __init__(self, **values):
        self.__dict__.update(values)


class Registered:
    def __init__(self, how="made"):
        self.how = how


class Copied(Registered):
    pass


reduction.register(Registered, lambda value: (Registered, ("registered",)))
copyreg.pickle(Copied, lambda value: (Copied, ("copied",)))


def batches(loader, make, cases, **options):
    """Loads one batch for each case, which ``make`` creates in a worker."""
    return LOADERS[loader](cases, batch_size=1, num_workers=1, collate_fn=lambda cases: make(cases[0]), **options)


def look(batch):
    """Describes a batch: its values, which of them are the same object, and which tensors share
    memory."""
    seen, kept, tensors = {}, [], []

    def describe(value):
        if id(value) in seen and not isinstance(value, (str, int, float, bytes, type(None))):
            return "again", seen[id(value)]
        seen[id(value)] = len(seen)
        kept.append(value)
        kind = type(value).__name__
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            grad = value.requires_grad
            if value.layout is not torch.strided or value.is_nested:
                return kind, str(value.dtype), grad, str(value)
            # Read only one element of a dimension with stride 0, which might not fit into memory.
            small = value[:1] if value.dim() and value.stride(0) == 0 else value
            numbers = bits(small.detach().clone(memory_format=torch.contiguous_format)).tolist()
            return kind, str(value.dtype), tuple(value.shape), value.stride(), grad, numbers
        if isinstance(value, torch.UntypedStorage):
            tensors.append(torch.empty(0, dtype=torch.uint8).set_(value))
            return kind, value.tolist()
        if isinstance(value, dict):
            return kind, [(describe(key), describe(value)) for key, value in value.items()]
        if isinstance(value, (list, tuple)):
            return kind, [describe(part) for part in value], sorted(getattr(value, "__dict__", {}).items())
        if isinstance(value, (Holder, Registered)):
            return kind, [(name, describe(part)) for name, part in vars(value).items()]
        return kind, repr(value)

    described = describe(batch)
    ranges = [extent(tensor) for tensor in tensors if tensor.layout is torch.strided and not tensor.is_nested]
    shared = [
        (i, j, b[0] - a[0])
        for i, a in enumerate(ranges)
        for j, b in enumerate(ranges[:i])
        if max(a[0], b[0]) < min(a[1], b[1])
    ]
    return described, shared


def extent(tensor):
    if tensor.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def shared_views():
    base = torch.arange(12.0)
    return {"a": base[:6], "b": base[6:], "c": base.view(3, 4).T, "all": base, "again": base}


def shared_lists(depth=40):
    return functools.reduce(lambda inner, _: [inner, inner], range(depth), [])


def cycle():
    outer = {"tensor": torch.ones(2)}
    outer["self"] = [outer]
    return outer


def tagged():
    value = Tagged(1)
    value.extra = 5
    return value


def with_gradient():
    base = torch.ones(4, requires_grad=True)
    return [base, base.detach()[1:3]]


def key_and_value():
    key = (1, 2, 3)
    return {key: key}


def in_objects():
    tensor, plain = torch.arange(8), [1, 2]
    return [tensor, plain, Holder(tensor=tensor, half=tensor[4:], plain=plain), {"again": plain}]


def of_two_sizes():
    base = torch.arange(64, dtype=torch.uint8)
    return [base[3:9], base[4:20].view(torch.float32), base[16:32].view(torch.complex64), base[8:24].view(torch.int16)]


def storages():
    base = torch.arange(6)
    return [Holder(storage=base.untyped_storage(), view=base[2:]), base]


def unaligned():
    base = torch.frombuffer(bytearray(range(41)), dtype=torch.uint8)[1:].numpy()
    return [torch.from_numpy(base.view("f4")[2:]), torch.from_numpy(base.view("f4")[:5])]


def large():
    base = torch.arange(100_000)
    return [base, base[::7], base[10:20].expand(3, 10)]


BATCHES = {
    "expanded": lambda: torch.zeros(1).expand(1 << 20),
    "expanded beyond all memory": lambda: torch.ones(1).expand(1 << 40),
    "expanded mask": lambda: torch.arange(4).view(4, 1).expand(4, 6),
    "every third": lambda: torch.arange(10)[::3],
    "a part of one": lambda: torch.arange(1000)[5:10],
    "transposed": lambda: torch.arange(6).view(2, 3).T,
    "channels last": lambda: torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "one row": lambda: torch.arange(10).view(2, 5)[:1, ::2],
    "dimensions of one": lambda: torch.arange(10).as_strided((1, 3, 1), (7, 2, 5)),
    "overlapping windows": lambda: torch.arange(10).unfold(0, 4, 1),
    "no elements": lambda: [torch.empty(0, 3), torch.empty(3, 0).T, torch.empty(4, 0, 2)[::2], torch.tensor([])],
    "no elements and other strides": lambda: torch.arange(9).as_strided((3, 0, 2), (7, 5, 3)),
    "no dimensions": lambda: torch.arange(3)[1],
    "views": shared_views,
    "views of elements of several sizes": of_two_sizes,
    "unaligned views": unaligned,
    "large views": large,
    "rows": lambda: list(torch.arange(40).view(8, 5).unbind()),
    "one tensor twice": lambda: (lambda tensor: [tensor, {"b": tensor}])(torch.ones(3)),
    "parts of a complex tensor": lambda: (lambda z: [z, z.real, z.imag])(torch.randn(3, dtype=torch.complex64)),
    "conjugated": lambda: torch.tensor([1 + 2j]).conj().resolve_conj(),
    "with a gradient": with_gradient,
    "a parameter": lambda: [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False)],
    "sparse": lambda: [torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()],
    "nested tensors": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "storages": storages,
    "one list twice": lambda: (lambda part: [part, part, (part,)])([1]),
    "one tuple twice": lambda: (lambda part: [part, part])((1, torch.ones(2))),
    "one dict twice": lambda: (lambda part: {"a": part, "b": part})({"x": torch.ones(2)}),
    "equal lists": lambda: [[1], [1], (), (), {}, {}],
    "lists of lists of one list": shared_lists,
    "a cycle": cycle,
    "deep": lambda: functools.reduce(lambda inner, _: [inner], range(100), torch.ones(1)),
    "a key that is also a value": key_and_value,
    "keys of all types": lambda: {None: 1, True: 2, 2.5: 3, b"x": 4, "y": 5, (1, 2): 6},
    "named tuples": lambda: [Point(torch.ones(2), 1), Typed([1]), Typed(torch.ones(1), 4)],
    "a named tuple with other arguments": lambda: Pair((torch.ones(2), 2)),
    "a named tuple with an attribute": tagged,
    "a tuple with fields": lambda: Fields((1,)),
    "what torch returns": lambda: torch.ones(2, 2).max(0),
    "in objects": in_objects,
    "registered reductions": lambda: [Registered(), Copied(), torch.ones(1)],
    "arrays": lambda: {"array": np.arange(3), "scalar": np.float32(2), "tensor": torch.ones(2)},
    "plain values": lambda: [None, True, 3, 2.5, "text", b"bytes", 1j, torch.float32, torch.Size([2])],
}


@pytest.mark.filterwarnings("ignore")
def test_own_batches_arrive_as_torchs():
    found = {}
    for loader in LOADERS:
        torch.manual_seed(3)
        found[loader] = [look(batch) for batch in batches(loader, lambda name: BATCHES[name](), list(BATCHES))]
    for name, ours, torchs in zip(BATCHES, found["slotline"], found["torch"], strict=True):
        assert ours == torchs, name


class Maker:
    """Creates random batches whose parts refer to each other."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tensors = []
        self.containers = []

    def tensor(self):
        choose = self.random
        if self.tensors and choose.random() < 0.6:
            base = choose.choice(self.tensors)
            match choose.randrange(7):
                case 0:
                    return base
                case 1 if base.dim() > 0 and len(base) > 1:
                    start = choose.randrange(len(base))
                    return base[start : choose.randint(start, len(base))]
                case 2 if base.dim() > 0:
                    return base[:: choose.randint(1, 3)]
                case 3:
                    return base.unsqueeze(0).expand(choose.randint(1, 4), *base.shape)
                case 4 if base.dim() > 1:
                    return base.transpose(0, -1)
                case 5 if base.dim() > 0 and len(base) > 0:
                    return base[choose.randrange(len(base))]
                case 6 if base.dim() > 0 and base.stride(-1) == 1 and base.is_contiguous():
                    return base.view(choose.choice([torch.uint8, base.dtype]))
        shape = [choose.choice([0, 1, 2, 3, 5, 7]) for _ in range(choose.randrange(4))]
        if choose.random() < 0.1:
            shape = [5000 + choose.randrange(9)]
        dtype = choose.choice([torch.uint8, torch.bool, torch.int16, torch.float32, torch.bfloat16, torch.int64, torch.complex128])
        numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
        return (numbers % 2 == 0) if dtype is torch.bool else numbers.to(dtype)

    def make(self, depth=0):
        choose = self.random
        kind = choose.randrange(0 if depth else 6, 10 if depth < 4 else 6)
        if kind < 4:
            self.tensors.append(self.tensor())
            return self.tensors[-1]
        if kind == 4 and self.containers and choose.random() < 0.3:
            return choose.choice(self.containers)
        if kind < 6:
            return choose.choice([None, 3, 2.5, "text", True, b"x"])
        parts = [self.make(depth + 1) for _ in range(choose.randrange(6))]
        match kind:
            case 6:
                made = parts
            case 7:
                made = tuple(parts)
            case 8:
                made = {f"k{k}": part for k, part in enumerate(parts)}
            case 9:
                named = choose.choice([Point, Typed, lambda x, y: Holder(x=x, y=y), lambda x, y: Pair((x, y))])
                made = named((parts + [None])[0], parts)
        self.containers.append(made)
        return made


def test_random_own_batches_arrive_as_torchs():
    seeds = list(range(200))
    found = {
        loader: [look(batch) for batch in batches(loader, lambda seed: Maker(seed).make(), seeds)] for loader in LOADERS
    }
    for seed, ours, torchs in zip(seeds, found["slotline"], found["torch"], strict=True):
        assert ours == torchs, seed
    assert sum(bool(shared) for _, shared in found["torch"]) > 40


def test_a_batch_takes_no_more_memory_than_its_views_span():
    def make(case):
        base = torch.arange(1_000_000)
        return base[5:10] if case == 0 else [base[:10], base[5:1000:5]] if case == 1 else base[:1].expand(1 << 30)

    part, views, expanded = batches("slotline", make, range(3))
    assert part.untyped_storage().nbytes() == 5 * 8
    assert [view.untyped_storage().nbytes() for view in views] == [996 * 8] * 2
    assert expanded.untyped_storage().nbytes() == 8


@pytest.mark.parametrize("loader", LOADERS)
def test_what_is_written_to_one_view_is_in_the_others(loader):
    def make(_):
        base = torch.zeros(6)
        return base, base.view(2, 3), Holder(part=base[4:])

    (batch,) = batches(loader, make, [0])
    flat, square, holder = batch
    flat.copy_(torch.arange(6))
    holder.part.add_(10)
    assert square.tolist() == [[0, 1, 2], [3, 14, 15]]


def test_memory_is_kept_as_long_as_one_of_its_views():
    def make(k):
        base = torch.full((20_000,), k)
        return [base, base[100:]]

    kept = [batch[1] for batch in batches("slotline", make, range(40))]
    for k, view in enumerate(kept):
        assert (view == k).all()


@pytest.mark.parametrize("loader", LOADERS)
def test_a_connection_can_be_sent(loader):
    def make(_):
        here, there = multiprocessing.Pipe()
        there.send("word")
        return {"connection": here, "tensor": torch.ones(2)}

    batch = next(iter(batches(loader, make, [0])))
    assert batch["connection"].recv() == "word"


def test_a_negated_tensor_has_its_values():
    (batch,) = batches("slotline", lambda _: [torch.tensor([1 + 2j]).conj().imag, torch.tensor([1 + 2j]).conj()], [0])
    assert [part.tolist() for part in batch] == [[-2], [1 - 2j]]


UNUSUAL = ["bits8", "bits2x4", "bcomplex32", "uint4", "float4_e2m1fn_x2"]


@pytest.mark.parametrize("dtype", [name for name in UNUSUAL if hasattr(torch, name)])
def test_a_tensor_of_an_unusual_type_has_its_bits(dtype):
    def make(_):
        return torch.arange(8, dtype=torch.uint8).view(getattr(torch, dtype))

    (batch,) = batches("slotline", make, [0])
    same(batch, make(0))


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_unusual_tensors_that_torch_pickles_otherwise_have_their_values():
    def make(_):
        return torch.tensor([1 + 2j]).to(torch.complex32).conj(), torch.ones(2).to(torch.float8_e5m2).requires_grad_()

    (batch,) = batches("slotline", make, [0])
    assert [part.tolist() for part in batch] == [[1 - 2j], [1, 1]]
    assert batch[1].requires_grad


class Unreadable:
    """A key that cannot be unpickled if it has this number."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return isinstance(other, Unreadable) and self.number == other.number

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self.number == 1:
            raise ValueError("cannot be read")


@pytest.mark.parametrize("kinds", [[0, 0, 1, 1, 0, 2, 2], [1, 1, 1, 0, 2], [2, 1, 2, 1, 1, 2]], ids=str)
def test_each_batch_with_a_key_that_cannot_be_read_is_an_error(kinds):
    keys = [Unreadable(0), Unreadable(1), "plain"]
    loader = batches("slotline", lambda case: {keys[case[1]]: torch.tensor(case[0])}, list(enumerate(kinds)))
    iterator, found = iter(loader), []
    for _ in kinds:
        try:
            ((key, value),) = next(iterator).items()
            found.append((value.item(), keys.index(key)))
        except ValueError as error:
            assert "cannot be read" in str(error)
            found.append((len(found), 1))
    assert found == list(enumerate(kinds))
    assert next(iterator, None) is None


class Counted:
    def __init__(self):
        self.count = 0


class Counts(torch.utils.data.Dataset):
    """Samples with one key, which changes."""

    key = Counted()

    def __len__(self):
        return 4

    def __getitem__(self, k):
        self.key.count = k
        return {self.key: k, (self.key, 1): k}


def test_a_key_that_changes_is_that_of_its_batch():
    for loader in (slotline.torch.DataLoader(Counts(), num_workers=1), slotline.torch.DataLoader(Counts(), 2, num_workers=1)):
        for batch in loader:
            key, (again, _) = batch
            assert key is again
            assert key.count == batch[key].tolist()[-1]
