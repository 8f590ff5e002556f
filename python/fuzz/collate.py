"""Fuzzes how samples are collated and sent, including samples whose own code runs meanwhile.

The bytes of an input are choices, from which the same samples are made several times. torch's
``default_collate`` and slotline's collation must return the same batch, or raise the same class of
error. slotline collates once in this process, and once into a channel, both of whose ends are in this
process. Then the batch itself is sent through a channel.

The samples may contain objects with code, which raises exceptions, resizes tensors and arrays, or
changes containers. After such a change, torch's batch differs, since torch copies one part before it
looks at the next, so any batch and any error is accepted. AddressSanitizer reports reads of invalid
memory.

``proof/python`` runs this with AddressSanitizer and coverage; ``python collate.py FILE`` repeats an
input without them.
"""

import collections
import functools
import gc
import os
import sys
import warnings

import numpy as np
import torch
from torch.utils.data import default_collate

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))

from conftest import same  # noqa: E402
from test_foreign_memory import Copied, Items, Key, Named, Pickled, Sequence  # noqa: E402

from slotline import Error  # noqa: E402
from slotline._slotline import Collator, Port  # noqa: E402
from slotline.torch._workers.messages import BATCH, Channel  # noqa: E402

DTYPES = [kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)]
ARRAYS = ["f4", "i8", "u1", "?", "f2", "u2", "u8", "c8", "c16", "g", ">i4", "S3", "U2", "M8[s]", "O", "i4,f8"]
SHAPES = [(), (3,), (2, 3), (0,), (2, 0, 3), (1, 5, 1), (2, 3, 4, 5), (700,), (0, 2**40)]
STRIDES = [(2, 1), (1, 3), (0, 1), (0, 0), (7, 2)]
SCALARS = [0, -1, 2**62, 2**70, True, 1.5, float("inf"), 1j, "a", "\ud800", b"b", None, slice(1), ...]
NUMBERS = [np.float32, np.int16, np.bool_, np.complex64, np.uint64, np.str_]
KEYS = ["a", "b", 1, 0.0, -0.0, None, True, (1, 2), b"a"]

Pair = collections.namedtuple("Pair", "first second")


class Own(dict):
    pass


class Row(list):
    pass


class Text(str):
    pass


class Sub(torch.Tensor):
    pass


class Fields(Named):
    """A named tuple that calls the code of the samples that were made last. A batch of them has this
    type, too."""

    now = None

    def run(self):
        Fields.now()


class Choices:
    """Choices, one for each byte of the input. After the last byte, the first option is chosen."""

    def __init__(self, data):
        self.data = iter(data)

    def number(self, below):
        return next(self.data, 0) % below

    def one_of(self, choices):
        return choices[self.number(len(choices))]


class World:
    """Samples, and all objects in them that their code may change."""

    def __init__(self, data):
        self.choices = Choices(data)
        self.things = []
        self.has_code = self.is_changing = False
        rows = 1 + self.choices.number(4)
        make = self.part(0)
        other = self.part(0) if self.choices.number(8) == 7 else make
        self.samples = [(other if k == rows - 1 else make)(k) for k in range(rows)]

    def keep(self, thing):
        self.things.append(thing)
        return thing

    def part(self, depth):
        """Returns a function that makes one part of sample ``k``. The parts of all samples are alike."""
        one_of = self.choices.one_of
        containers = [self.sequence, self.mapping, self.shared] if depth < 4 else []
        return one_of([self.tensor, self.array, self.scalar, self.hook, *containers])(depth)

    def tensor(self, _):
        number, one_of = self.choices.number, self.choices.one_of
        dtype, shape, layout, strides = one_of(DTYPES), one_of(SHAPES), number(14), one_of(STRIDES)

        def make(k):
            small = [min(n, 9) for n in shape]
            tensor = (torch.arange(int(np.prod(small)) or 1) % 90 + k)[: int(np.prod(small))].reshape(small)
            try:
                tensor = tensor.to(dtype)
            except (RuntimeError, NotImplementedError):  # a dtype to which numbers cannot be converted
                tensor = torch.zeros(small, dtype=torch.uint8).to(torch.float32)
            match layout:
                case 1:
                    tensor = tensor.T if tensor.dim() == 2 else tensor.movedim(0, -1) if tensor.dim() else tensor
                case 2:
                    tensor = torch.stack([tensor, tensor], -1)[..., 1] if tensor.element_size() > 1 else tensor
                case 3:
                    tensor = tensor[..., None].expand(*small, 3)
                case 4:
                    tensor = torch.arange(40).as_strided((2, 3), strides, k)
                case 5:
                    tensor = torch.ones(3, dtype=torch.complex64).conj()
                case 6:
                    tensor = torch.ones(3, dtype=torch.complex64).conj().imag
                case 7:
                    tensor = torch.ones(3, requires_grad=k > 0)
                case 8:
                    tensor = torch.ones(3).as_subclass(Sub)
                case 9:
                    tensor = torch.eye(2).to_sparse()
                case 10:
                    tensor = torch.ones(2, device="meta")
                case 11:
                    tensor = torch.empty(0).set_(torch.empty(0).untyped_storage(), 0, (0, 3), (3, 1))
                case 12:
                    tensor = torch.zeros(1).expand(shape)[..., :0] if len(shape) > 1 else torch.zeros(2)
                case 13:
                    tensor = torch.arange(3 + k)
            return self.keep(tensor)

        return make

    def array(self, _):
        number, one_of = self.choices.number, self.choices.one_of
        dtype, shape, layout = one_of(ARRAYS), one_of(SHAPES[:-1]), number(9)

        def make(k):
            array = np.zeros(shape, dtype)
            if dtype not in ("M8[s]", "O", "i4,f8"):
                array = (np.arange(np.prod(shape)) + k).astype(dtype).reshape(shape)
            match layout:
                case 1:
                    array = np.asfortranarray(array)
                case 2:
                    # torch rejects reversed arrays, but in a dimension of one element NumPy's buffers do not show the reversal.
                    array = array[..., ::-1] if min(array.shape, default=0) > 1 else array
                case 3:
                    array = np.stack([array, array], -1)[..., 0]
                case 4:
                    array = np.broadcast_to(array, (2, *shape))
                case 5:
                    array = np.frombuffer(bytes(33), np.uint8)[1:].view(np.int64)
                case 6:
                    array = array.view(np.matrix) if array.ndim == 2 else array
                case 7:
                    array.setflags(write=False)
                case 8:
                    array = np.zeros(3 + k)
            return self.keep(array)

        return make

    def scalar(self, _):
        kind, value, number = self.choices.number(3), self.choices.one_of(SCALARS), self.choices.one_of(NUMBERS)
        return lambda k: value if kind == 0 else number(k) if kind == 1 else Text(k)

    def sequence(self, depth):
        one_of = self.choices.one_of
        parts = [self.part(depth + 1) for _ in range(self.choices.number(4))]
        kind = one_of([tuple, list, "pair", Row, collections.deque, frozenset, collections.UserList, range])

        def make(k):
            values = [part(k) for part in parts]
            if kind == "pair":
                return Pair(*(values + [1, 2])[:2])
            if kind is range:
                return range(len(values))
            if kind is frozenset:
                return frozenset([k])
            return self.keep(kind(values))

        return make

    def mapping(self, depth):
        one_of = self.choices.one_of
        items = [(one_of(KEYS), self.part(depth + 1)) for _ in range(self.choices.number(4))]
        default = functools.partial(collections.defaultdict, int)
        kind = one_of([dict, Own, collections.OrderedDict, collections.UserDict, default])
        return lambda k: self.keep(kind((key, part(k)) for key, part in items))

    def shared(self, depth):
        """A list with the same object in two places, or with itself as an element."""
        part, is_loop = self.part(depth + 1), self.choices.number(4) == 3

        def make(k):
            value = self.keep([part(k)])
            value.append(value if is_loop else value[0])
            return value

        return make

    def hook(self, depth):
        """An object whose code does one of ``ACTIONS`` when it is collated or pickled."""
        one_of = self.choices.one_of
        kind = one_of([Copied, Items, lambda run: {Key(run): 1}, Sequence, lambda _: Fields((1,)), Pickled])
        action, which, last = one_of(ACTIONS), self.choices.number(256), self.choices.number(3)
        runs = []
        self.has_code = True
        self.is_changing |= action in CHANGES

        def run():
            runs.append(None)
            # Changes begin at the first, second or third call, and stop after the seventh: an iteration over a list that
            # grows must end.
            if last <= len(runs) < 8 or action not in CHANGES:
                action(self.things[which % len(self.things)] if self.things else None)

        def make(_):
            Fields.now = run
            return kind(run)

        return make


def nothing(_):
    pass


def fail(_):
    raise ValueError


def stop(_):
    raise StopIteration


def interrupt(_):
    raise KeyboardInterrupt


def grow(thing):
    if isinstance(thing, torch.Tensor):
        thing.resize_(100_000).zero_()
    elif isinstance(thing, np.ndarray):
        thing.resize(100_000, refcheck=False)
    elif isinstance(thing, list):
        thing.append(torch.ones(2))
    elif thing is not None:
        thing["new"] = torch.ones(2)


def shrink(thing):
    if isinstance(thing, torch.Tensor):
        # Does not shrink the storage, since torch itself would read the freed memory.
        thing.resize_(0)
    elif isinstance(thing, np.ndarray):
        thing.resize(0, refcheck=False)
    elif thing is not None:
        thing.clear()
    gc.collect()


def replace(thing):
    if isinstance(thing, torch.Tensor):
        thing.data = torch.ones(2, 2, dtype=thing.dtype)
    elif isinstance(thing, np.ndarray):
        thing.__setstate__(np.zeros(5).__reduce__()[2])
    elif isinstance(thing, list):
        thing[:] = [1, (2,)]
    elif thing is not None:
        thing.update(dict.fromkeys(list(thing), 1))


CHANGES = [grow, shrink, replace]
ACTIONS = [nothing, fail, stop, interrupt, *CHANGES]


def outcome(function, *values):
    """Returns a result, or the class of an exception, which must be neither one of slotline's nor a
    panic."""
    try:
        return function(*values)
    except BaseException as error:
        assert not isinstance(error, Error) and type(error).__name__ != "PanicException", error
        return type(error)


def touch(value, depth=0):
    """Reads all elements of a batch."""
    if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided:
        value.clone()
    elif depth > 40:
        return  # a container that contains itself
    elif isinstance(value, dict):
        [touch(part, depth + 1) for part in value.values()]
    elif isinstance(value, (list, tuple)):
        [touch(part, depth + 1) for part in value]


def through_a_channel(method, value):
    to, back = Channel(), Channel()
    port, other = Port(to, back), Port(back, to)
    if method == "collate":
        port.collate(BATCH, 1, value)
    else:
        port.send(BATCH, 1, value)
    return other.receive(5.0)[2]


def once(data):
    world = World(data)
    batch = outcome(Collator(), world.samples)
    touch(batch)
    if not world.is_changing:
        wanted = outcome(default_collate, World(data).samples)
        compare(batch, wanted)
        if not world.has_code and is_plain(wanted):
            compare(outcome(through_a_channel, "collate", World(data).samples), wanted)
            compare(outcome(through_a_channel, "send", batch), wanted)
            return
    touch(outcome(through_a_channel, "collate", World(data).samples))
    # While objects are pickled, their code may resize tensors that were gathered before.
    touch(outcome(through_a_channel, "send", [*World(data).samples, batch]))


def is_plain(batch):
    """Returns whether a batch stays the same when it is pickled and unpickled."""
    if isinstance(batch, torch.Tensor):
        return type(batch) is torch.Tensor and not batch.requires_grad and batch.device.type == "cpu"
    if isinstance(batch, (list, tuple, collections.abc.Mapping)):
        return all(map(is_plain, batch.values() if isinstance(batch, collections.abc.Mapping) else batch))
    return True


def compare(ours, torchs, depth=0):
    if depth > 40:
        return
    assert type(ours) is type(torchs), (ours, torchs)
    if isinstance(torchs, torch.Tensor):
        if torchs.is_meta or torchs.layout is not torch.strided:
            assert str(ours) == str(torchs)
        else:
            same(ours, torchs)
    elif isinstance(torchs, (dict, collections.UserDict)):
        assert len(ours) == len(torchs)
        for (a, x), (b, y) in zip(ours.items(), torchs.items()):
            compare(a, b)
            compare(x, y, depth + 1)
    elif isinstance(torchs, (list, tuple, collections.UserList, collections.deque)):
        assert len(ours) == len(torchs)
        for x, y in zip(ours, torchs):
            compare(x, y, depth + 1)
    elif isinstance(torchs, (str, bytes, int, float, complex, type)):
        assert repr(ours) == repr(torchs)


def main():
    warnings.simplefilter("ignore")
    if len(sys.argv) == 2 and os.path.isfile(sys.argv[1]):
        with open(sys.argv[1], "rb") as file:
            once(file.read())
        return
    import atheris

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
