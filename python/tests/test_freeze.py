"""Frozen lists give back what was frozen, and worker processes do not copy it."""

import collections
import copy
import enum
import gc
import multiprocessing
import os
import pathlib
import pickle
import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from conftest import same
from helpers import in_child, in_threads

import slotline
from slotline import FrozenList, freeze
from slotline._frozen import _copy
from slotline.torch import DataLoader

MIB = 1 << 20
STRUCTURED = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", [("d", "S3")])])

VALUES = [
    None, True, False, 0, 1, -1, 127, 128, -(1 << 63), (1 << 63) - 1, 1 << 63, -(1 << 63) - 1, 1 << 4000, -(3**200),
    0.0, -0.0, 1.5, 5e-324, float("inf"), float("nan"), struct.unpack("<d", b"\1\2\3\4\5\6\xf7\xff")[0], 2 - 3j, complex("nan-0j"),
    "", "a", "nul\0", "ü€😀", "\ud800", "\ud83d\ude00", "x" * 70000, b"", b"\0\xff", b"y" * 300,
    [], (), {}, [[]], ((),), [()], ([], {}), {"a": {"b": {"c": [1, (2.5, None)]}}},
    {"b": 1, "a": 2}, {"a": 1, "b": 2}, {1: "int"}, {True: "bool"}, {1.0: "float"}, {None: 0, (1, "k"): 1, b"k": 2, pathlib.PurePosixPath("k"): 3},
    pathlib.Path("/a/ü/c.jpg"), pathlib.Path(), pathlib.Path("odd\udcff"), pathlib.PurePosixPath("a/../b"), pathlib.PureWindowsPath("c:/d"),
    *(np.dtype(kind).type(3) for kind in "?bBhHiIlLqQefdgFDG"), np.float32("nan"),
    np.str_("text\0"), np.bytes_(b"bytes\0"), np.datetime64("2020-01-01"), np.datetime64("NaT"), np.timedelta64(3, "ms"), np.void(b"abc"),
    np.zeros(3, STRUCTURED), np.ones((), STRUCTURED)[()], np.arange(24).reshape(2, 3, 4), np.arange(6.0).reshape(2, 3).T, np.arange(9)[::-2],
    np.array(5), np.zeros((0, 3), "f4"), np.zeros((2, 0)), np.arange(3, dtype=">u2"), np.array(["a", "bcd"]), np.array([b"a", b""]),
    np.array(["2020-01-01T01", "NaT"], "M8[h]"), np.zeros(2, "q"), np.zeros(2, "l"), np.float16([np.nan, 1]), np.array([True, False]), np.zeros(2, "V5"),
]  # fmt: skip


def exact(a, b):
    """Asserts that two objects are the same in every type, and every bit."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, (np.ndarray, np.generic)):
        assert (a.dtype, a.dtype.char, a.shape, a.tobytes()) == (b.dtype, b.dtype.char, b.shape, b.tobytes())
    elif type(a) is float:
        assert struct.pack("d", a) == struct.pack("d", b)
    elif type(a) is complex:
        exact([a.real, a.imag], [b.real, b.imag])
    elif type(a) is dict:
        exact(list(a.items()), list(b.items()))
    elif type(a) in (list, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            exact(x, y)
    else:
        assert a == b


def Objects(seed):
    """Returns a function that makes random objects."""
    draw = random.Random(seed)
    keys = [k for k in VALUES if isinstance(k, (str, int, bytes, type(None), pathlib.PurePath))]

    def value(depth):
        kind = draw.randrange(8 if depth < 5 else 4)
        few = range(draw.choice((0, 1, 2, 2, 3, 5, 9)))
        if kind == 0:
            return draw.choice(VALUES)
        if kind == 1:
            return draw.randrange(-(1 << draw.randrange(1, 100)), 1 << draw.randrange(1, 100))
        if kind == 2:
            return struct.unpack("<d", draw.randbytes(8))[0]
        if kind == 3:
            # Surrogates are among them.
            return "".join(chr(draw.randrange(1 << draw.choice((7, 8, 11, 16, 20)))) for _ in few)
        if kind == 4:
            return np.frombuffer(draw.randbytes(12), draw.choice(("u1", "<i2", ">i4", "f4", "S3"))).copy()
        if kind == 5:
            return [value(depth + 1) for _ in few]
        if kind == 6:
            return tuple(value(depth + 1) for _ in few)
        return {draw.choice(keys): value(depth + 1) for _ in few}

    return lambda: value(0)


def records(count):
    draw = random.Random(3)
    for k in range(count):
        box = [draw.random() * 640 for _ in range(4)]
        yield {"path": f"/data/train/{k:08d}.jpg", "caption": f"picture {k} " + "of a dog " * 5, "label": draw.randrange(1000), "bbox": box}


def test_values_come_back_exactly():
    frozen = freeze(VALUES)
    assert len(frozen) == len(VALUES)
    for k, value in enumerate(VALUES):
        exact(frozen[k], value)
        exact(freeze([[value]])[0], [value])
    exact(list(frozen), VALUES)


@pytest.mark.parametrize("seed", range(20))
def test_random_objects_come_back_exactly(seed):
    make = Objects(seed)
    objects = [make() for _ in range(300)]
    frozen = freeze(object for object in objects)
    exact(list(frozen), objects)
    exact(list(pickle.loads(pickle.dumps(frozen))), objects)
    for _ in range(20):
        k = random.Random(seed).randrange(-300, 300)
        exact(frozen[k], objects[k])


def test_objects_are_made_anew():
    frozen = freeze([{"a": [1], "x": np.zeros(3)}] * 2)
    frozen[0]["a"].append(2)
    frozen[0]["x"][:] = 7  # arrays can be written to, and own their memory
    frozen[0]["x"].resize(1000)
    exact(list(frozen), [{"a": [1], "x": np.zeros(3)}] * 2)


def test_dicts_with_more_kinds_of_keys_than_the_table_has():
    objects = [{f"key {k}": k, "same": k} for k in range(9000)] + [{"x" * 9000: 1}] * 2
    frozen = freeze(objects * 2)
    exact(list(frozen), objects * 2)
    common = freeze({"a long name of a field": k, "another long name": k} for k in range(100_000))
    assert common.nbytes < 100_000 * 16


def test_it_is_a_sequence():
    objects = [str(k) for k in range(20)]
    frozen = freeze(objects)
    assert isinstance(frozen, Sequence) and isinstance(frozen, FrozenList)
    for index in [0, 19, -1, -20, True, np.int64(3), torch.tensor(4)]:
        assert frozen[index] == objects[index]
    for part in [slice(None), slice(3, 9), slice(-3, None), slice(None, None, -1), slice(15, 2, -4), slice(5, 5), slice(90, 99)]:
        assert list(frozen[part]) == objects[part] and len(frozen[part]) == len(objects[part])
        assert type(frozen[part]) is FrozenList and frozen[part][::-2] == objects[part][::-2]
        assert list(pickle.loads(pickle.dumps(frozen[part]))) == objects[part]
    assert "7" in frozen and "x" not in frozen and frozen.index("7") == 7 and frozen.count("7") == 1
    assert list(reversed(frozen)) == objects[::-1] and random.Random(1).choice(frozen) == random.Random(1).choice(objects)
    assert frozen == objects and objects == frozen and frozen == freeze(iter(objects)) and frozen != objects[1:] and frozen != tuple(objects)
    assert frozen[:2] != ["0", "2"] and freeze([]) == [] and not freeze([]) and freeze(frozen) is frozen
    assert repr(frozen[1:]) == "<slotline.FrozenList of 19 objects>"
    with pytest.raises(IndexError, match="index 20 is out of range; the list has 20 objects"):
        frozen[20]
    with pytest.raises(IndexError):
        frozen[:3][-4]
    with pytest.raises(TypeError, match=r"index \[1\] is of type list; it must be an integer or a slice"):
        frozen[[1]]
    with pytest.raises(TypeError, match="unhashable"):
        hash(frozen)
    with pytest.raises(TypeError):
        frozen[0] = "x"


def test_copies_share_the_memory_and_slices_are_pickled_alone():
    frozen = freeze(records(1000))
    assert copy.copy(frozen) is frozen and copy.deepcopy(frozen) is frozen
    assert len(pickle.dumps(frozen[:3])) < 2000 < frozen.nbytes
    assert frozen[:3].nbytes == frozen.nbytes
    both = pickle.loads(pickle.dumps((frozen, frozen)))
    assert both[0] is both[1]


class Loud(str):
    pass


class Point(collections.namedtuple("Point", "x y")):
    def __iter__(self):
        raise AssertionError("code of the program runs")


class Colour(enum.IntEnum):
    RED = 1


def inside_itself():
    value = []
    value.append({"x": value})
    return value


REFUSED = {
    "a set": ([1, {2}], r"objects\[1\] is a builtins.set, which freeze does not take"),
    "a tensor": ([{"a": [0, torch.zeros(1)]}], r"objects\[0\]\['a'\]\[1\] is a torch.Tensor, which freeze does not take"),
    "a string's subclass": ([(Loud("x"),)], r"objects\[0\]\[0\] is a test_freeze.Loud, a subclass of str: convert it"),
    "a named tuple": ([Point(1, 2)], r"objects\[0\] is a test_freeze.Point, a subclass of tuple"),
    "an enumeration": ([Colour.RED], r"objects\[0\] is a test_freeze.Colour, a subclass of int"),
    "an ordered dict": ([collections.OrderedDict()], r"objects\[0\] is a collections.OrderedDict, a subclass of dict"),
    "a key": ([{"a": {frozenset(): 1}}], r"objects\[0\]\['a'\], in a key, is a builtins.frozenset"),
    "a part of a key": ([{(1, Loud("x")): 1}], r"objects\[0\], in a key, is a test_freeze.Loud"),
    "an array of objects": ([np.array([1, None])], r"objects\[0\] has the type object of NumPy, which freeze does not take"),
    "an array with objects": ([np.zeros(1, [("a", "O")])], r"objects\[0\] has the type .*'O'.* of NumPy"),
    "an array's subclass": ([np.ma.zeros(3)], r"objects\[0\] is a numpy.ma.MaskedArray, a subclass of ndarray"),
    "a record": ([np.rec.array([(1,)], dtype=[("a", "i4")])[0]], r"objects\[0\] .*record.* freeze does not take"),
    "a function": ([print], r"objects\[0\] is a builtins.builtin_function_or_method"),
    "a list in itself": (inside_itself(), r"objects\[0\]\['x'\]\[0\].* is in more than 100 containers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name, leaves_nothing):
    objects, message = REFUSED[name]
    with pytest.raises(TypeError, match=message):
        freeze(objects)


def test_only_what_has_objects_is_frozen():
    for wrong in ["text", b"bytes", {"a": 1}, 5, None]:
        with pytest.raises(TypeError, match=f"freeze takes a list or .* and not {type(wrong).__name__}"):
            freeze(wrong)

    def failing():
        yield 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        freeze(failing())
    nested = []
    for _ in range(99):
        nested = [nested]
    exact(freeze([nested])[0], nested)


def test_damaged_contents_are_errors():
    draw = random.Random(5)
    objects = [value for value in VALUES if not isinstance(value, str) or len(value) < 100] + [{"k": 1}, {"k": 2}]
    contents = freeze(objects)._columns.contents()
    failed = 0
    for _ in range(2000):
        damaged = bytearray(contents)
        for _ in range(draw.choice((1, 1, 3))):
            damaged[draw.randrange(len(damaged)) if draw.random() < 0.8 else -draw.randrange(1, 25)] ^= 1 << draw.randrange(8)
        if draw.random() < 0.2:
            del damaged[draw.randrange(len(damaged)) :]
        try:
            columns = _copy(bytes(damaged))
        except Exception:
            failed += 1
            continue
        for k in range(min(len(columns), 200)):
            try:
                columns.get(k)
            except Exception:
                failed += 1
    assert failed > 500
    with pytest.raises(slotline.DataError, match="no frozen objects, or they are damaged"):
        _copy(b"something else")
    with pytest.raises(slotline.DataError):
        freeze([1])._columns.get(1)


def test_descriptors_are_closed(leaves_nothing):
    frozen = freeze(range(10))
    part = pickle.loads(pickle.dumps(frozen))[3:]
    del frozen
    assert list(part) == list(range(3, 10))
    del part


def test_nobody_can_change_the_memory():
    columns = freeze(["text"])._columns
    for change in (lambda fd: os.pwrite(fd, b"x", 0), lambda fd: os.ftruncate(fd, 1), lambda fd: os.ftruncate(fd, 1 << 20)):
        with pytest.raises(PermissionError):
            change(columns.fileno())
    assert columns.get(0) == "text"


def copies():
    """How many bytes this process has written since it was forked. The file of a frozen list also counts as dirty, if only this process has read it."""
    with open("/proc/self/smaps_rollup") as smaps:
        sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in list(smaps)[1:]}
    return sizes["Private_Dirty:"] - sizes["Pss_Shmem:"]


def test_a_forked_process_copies_nothing():
    objects = list(records(100_000))
    frozen = freeze(objects)

    def copied(samples):
        before = copies()
        for sample in samples:
            assert sample["label"] < 1000
        return copies() - before

    # The collector writes to all objects.
    gc.disable()
    try:
        assert in_child(lambda: copied(frozen) < MIB)
        # So this is what a list costs.
        assert in_child(lambda: copied(objects) > frozen.nbytes)
    finally:
        gc.enable()


def test_threads_read_at_the_same_time():
    objects = list(records(2000))
    frozen, wrong = freeze(objects), []

    def read(k):
        order = random.Random(k).sample(range(2000), 2000)
        wrong.extend(i for i in order if frozen[i] != objects[i])

    in_threads(4, read)
    assert not wrong


class Records(tud.Dataset):
    def __init__(self, samples):
        self.samples = samples
        self.imgs = samples
        self.classes = ["a", "b"]
        self.length = len(samples)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.samples[index]


@pytest.mark.parametrize("loader", [tud.DataLoader, DataLoader])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "multiprocessing_context": "fork"}], ids=["none", "fork"])
def test_a_frozen_dataset_loads_as_before(loader, workers, leaves_nothing):
    dataset = Records(list(records(1200)))

    def batches():
        return list(loader(dataset, 100, shuffle=True, generator=torch.Generator().manual_seed(1), **workers))

    expected = batches()
    assert freeze(dataset) is dataset and type(dataset.samples) is FrozenList and dataset.samples is dataset.imgs
    assert dataset.classes == ["a", "b"]
    same(batches(), expected)
    assert freeze(dataset) is dataset
    same(list(loader(dataset.samples, 100, **workers)), list(loader(list(dataset.samples), 100, **workers)))


class Place(tud.Dataset):
    """Where the samples are in memory, and in which process."""

    def __init__(self, samples):
        self.samples = samples
        self.part = samples[5:]

    def __len__(self):
        return 8

    def __getitem__(self, index):
        assert self.part._columns is self.samples._columns
        return os.fstat(self.samples._columns.fileno()).st_ino, os.getpid(), self.part[index]["label"]


@pytest.mark.parametrize(
    "loader, method, workers",
    [(tud.DataLoader, "forkserver", 2), (DataLoader, "fork", 2), (DataLoader, "spawn", 1), (DataLoader, "forkserver", 2)],
)
def test_started_processes_share_the_memory(loader, method, workers):
    frozen = freeze(records(1000))
    inode = os.fstat(frozen._columns.fileno()).st_ino
    for inodes, pids, labels in loader(Place(frozen), 2, num_workers=workers, multiprocessing_context=method):
        assert (inodes == inode).all() and (pids != os.getpid()).all()
    assert labels.tolist() == [frozen[11]["label"], frozen[12]["label"]]


def test_a_queue_copies():
    queue = multiprocessing.SimpleQueue()
    queue.put(freeze([1, 2, 3]))
    assert queue.get() == [1, 2, 3]


def test_all_datasets_inside_are_frozen():
    first, second = Records(list(records(1200))), Records([(k, str(k)) for k in range(1000)])
    both = tud.ConcatDataset([first, tud.Subset(second, list(range(999, -1, -1)))])
    whole = tud.StackDataset(a=both, b=tud.Subset(both, range(2200)))
    expected = [whole[k] for k in (0, 1199, 1200, 2199)]
    freeze(whole)
    assert type(first.samples) is type(second.samples) is type(both.datasets[1].indices) is FrozenList
    exact([whole[k] for k in (0, 1199, 1200, 2199)], expected)


def test_a_dataset_without_torch():
    class Plain:
        def __init__(self):
            self.samples = tuple(range(1000))

        def __getitem__(self, index):
            return self.samples[index]

    assert type(freeze(Plain()).samples) is FrozenList


def test_what_is_not_frozen_is_said():
    dataset = Records([1] * 10)
    dataset.index = {"a": 1}
    with pytest.warns(UserWarning, match="no list or tuple of 1,000 or more objects among its attributes: ") as warned:
        assert freeze(dataset) is dataset and type(dataset.samples) is list
    assert "dataset.samples (list of 10)" in str(warned[0].message) and "dataset.index (dict of 1)" in str(warned[0].message)
    assert warned[0].filename == __file__
    dataset.samples, dataset.labels = [torch.zeros(1)] * 2000, [1] * 2000
    with pytest.warns(UserWarning, match=r"dataset.samples cannot be frozen: objects\[0\] is a torch.Tensor"):
        freeze(dataset)
    assert type(dataset.samples) is list and type(dataset.labels) is FrozenList
    with pytest.warns(UserWarning, match="it has no attributes"):
        freeze(tud.Dataset())
