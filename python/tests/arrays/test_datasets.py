"""Datasets of arrays, compared with plain NumPy indexing."""

import array
import gc
import mmap
import pickle
import struct
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import slotline
from slotline import Arrays, ConcatDataset, Loader, StackDataset, Subset

N = 13


def rows(dataset, **options):
    """Returns the samples of a dataset in order, as one array for each field."""
    batches = list(Loader(dataset, 4, **options))

    def join(parts):
        return np.concatenate(parts, dtype=parts[0].dtype)  # keeps the byte order

    if isinstance(batches[0], dict):
        return {name: join([batch[name] for batch in batches]) for name in batches[0]}
    return tuple(join(field) for field in zip(*batches, strict=True))


def check(dataset, *expected):
    for workers in (0, 2):
        found = rows(dataset, num_workers=workers)
        found = tuple(found.values()) if isinstance(found, dict) else found
        assert len(found) == len(expected) and len(dataset) == len(expected[0])
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert a.tobytes() == np.ascontiguousarray(b).tobytes()


def sample(*shape, dtype="f8"):
    count = int(np.prod(shape))
    return (np.arange(count) * 37 % 251).astype(dtype).reshape(shape)


@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", ">i4", ">f8", "S5", "U3", "V7"],
)
def test_every_type_of_elements(dtype):
    data = sample(N, 3, dtype="u1")
    data = data.astype("S3").astype(dtype) if dtype[0] in "SUV" else data.astype(dtype)
    check(Arrays(data), data)


def test_dates_and_records():
    dates = np.datetime64("2026-01-01", "ns") + sample(N, dtype="i8")
    records = np.zeros(N, dtype=[("a", "u1"), ("b", "f8", (2,))])
    records["b"] = sample(N, 2)
    # The fields of records are not aligned to their size.
    check(Arrays(dates, records, records["b"]), dates, records, records["b"])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::-1],
        lambda x: x[:, ::2],
        lambda x: x[:, :, 1:3],
        lambda x: x[:, ::-1, ::-2],
        lambda x: x.transpose(0, 2, 1),
        lambda x: x.transpose(2, 1, 0)[:, :, :5],
        lambda x: np.asfortranarray(x),
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: np.broadcast_to(x[:, :1], x.shape),
        lambda x: x[:, None, :, None],
        lambda x: x[:, 0, 0],
        lambda x: x[:, :0],
        lambda x: x.reshape(N, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1, 2, 1),
    ],
)
def test_views_with_any_strides(view):
    data = view(sample(N, 4, 8, dtype="i4"))
    check(Arrays(data), data)


def test_memory_maps_and_buffers(tmp_path):
    data = sample(N, 5, dtype="f4")
    np.save(tmp_path / "a.npy", data)
    check(Arrays(np.load(tmp_path / "a.npy", mmap_mode="r")), data)
    numbers = array.array("h", range(N))
    memory = mmap.mmap(-1, N)
    memory[:] = bytes(range(N))
    ours = (bytes(range(N)), bytearray(range(N)), memoryview(data), numbers, memory)
    check(Arrays(*ours), *(np.asarray(memoryview(part)) for part in ours))


class Exporter:
    """An array that is exported only by DLPack."""

    def __init__(self, data, versioned, device=(1, 0)):
        self.data, self.versioned, self.device = data, versioned, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("from before version 1.0")
        return self.data.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack(versioned):
    bools = ["?"] if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else []
    for dtype in (*bools, "i2", "u8", "f2", "f8", "c8"):
        data = sample(N, 3, 2, dtype="u1").astype(dtype).transpose(0, 2, 1)
        check(Arrays(x=Exporter(data, versioned)), data)
    with pytest.raises(slotline.DataError, match="another device .*2:0.*copy it to the CPU"):
        Arrays(x=Exporter(data, versioned, (2, 0)))


@pytest.mark.parametrize("make", [lambda data: data, lambda data: Exporter(data, True), lambda data: memoryview(data)])
def test_arrays_are_read_in_place_and_kept(make):
    data = sample(N, 3)
    alive = weakref.ref(data)
    dataset = Arrays(x=make(data), y=make(data))
    data[5] = 7
    assert (rows(dataset)["x"][5] == 7).all()
    del data
    gc.collect()
    assert alive() is not None
    loader = Loader(dataset, 2, num_workers=2)
    batches = iter(loader)
    next(batches)
    del dataset, loader
    gc.collect()
    assert (next(batches)["x"] == alive()[2:4]).all()
    del batches
    gc.collect()
    assert alive() is None


def test_arrays_are_counted_once_for_each_dataset():
    data = sample(N)
    before = sys.getrefcount(data)
    for _ in range(10):
        rows(Arrays(data), num_workers=1)
    assert sys.getrefcount(data) == before


def test_names():
    x, y = sample(N, 2), sample(N, dtype="i8")
    for dataset in (Arrays(x=x, y=y), Arrays({"x": x, "y": y})):
        assert next(iter(Loader(dataset))).keys() == {"x", "y"}
        assert dataset.fields == (("x", "float64", (2,)), ("y", "int64", ()))
    for dataset in (Arrays(x, y), Arrays((x, y))):
        assert isinstance(next(iter(Loader(dataset))), tuple)
        assert [field.name for field in dataset.fields] == [None, None]
    assert repr(Arrays(x=x)) == "<slotline.Arrays of 13 samples: x: float64 [2]>"


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: Arrays(), slotline.DataError, "no arrays"),
        (lambda: Arrays([1, 2]), TypeError, "array 0 is of type list; pass an array of NumPy"),
        (lambda: Arrays(x="text"), TypeError, "array 'x' is of type str"),
        (lambda: Arrays(np.ones(2), x=np.ones(2)), TypeError, "all arrays by position"),
        (lambda: Arrays({1: np.ones(2)}), TypeError, "must be strings"),
        (lambda: Arrays(x=np.float64(1)), slotline.DataError, "array 'x' has no dimensions"),
        (lambda: Arrays(np.array([None])), slotline.DataError, "array 0 holds Python objects"),
        (lambda: Arrays(x=np.ones(2), y=np.ones(3)), slotline.DataError, "array 'y' has 3 rows, but array 'x' has 2"),
        (lambda: slotline.Dataset(), TypeError, "base class"),
        (lambda: Subset(Arrays(np.ones(2)), [0, 2]), slotline.DataError, r"indices\[1\] is 2, but .* 2 samples"),
        (lambda: Subset(Arrays(np.ones(2)), [0, -3]), slotline.DataError, "index -3 is out of range"),
        (lambda: Subset(Arrays(np.ones(2)), [0.5]), slotline.DataError, "type float64"),
        (lambda: Subset(Arrays(np.ones(2)), np.array([True])), slotline.DataError, "1 bools, but .* 2 samples"),
        (lambda: Subset(np.ones(2), [0]), TypeError, "of type ndarray; make one with slotline.Arrays"),
        (lambda: ConcatDataset([]), slotline.DataError, "no datasets"),
        (
            lambda: Arrays(np.ones(2)) + Arrays(np.ones((2, 1))),
            slotline.DataError,
            r"field 0 of dataset 1 is float64 \[1\], but that of dataset 0 is float64 \[\]",
        ),
        (lambda: Arrays(np.ones(2)) + Arrays(np.ones(2, "f4")), slotline.DataError, "is float32"),
        (lambda: Arrays(np.ones(2)) + Arrays(x=np.ones(2)), slotline.DataError, r"dataset 1 are \('x',\)"),
        (lambda: Arrays(np.ones(2)) + Arrays(np.ones(2), np.ones(2)), slotline.DataError, "has 2 fields"),
        (lambda: StackDataset(), slotline.DataError, "no datasets"),
        (lambda: StackDataset(Arrays(np.ones(2)), Arrays(np.ones(3))), slotline.DataError, "dataset 1 has 3 samples"),
        (lambda: StackDataset(Arrays(x=np.ones(2)), Arrays(x=np.ones(2))), slotline.DataError, "two fields have the name 'x'"),
        (lambda: StackDataset(Arrays(x=np.ones(2)), Arrays(np.ones(2))), slotline.DataError, "only some"),
        (lambda: StackDataset(x=Arrays(np.ones(2), np.ones(2))), slotline.DataError, "'x' has 2 fields"),
        # An object like torch's Subset.
        (lambda: Loader(SimpleNamespace(dataset=Arrays(np.ones(2)), indices=[0])), TypeError, "pass slotline.Subset"),
    ],
)
def test_errors_name_what_is_wrong(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_npy_files(tmp_path):
    x, y = sample(N, 3, dtype="f4"), sample(N, dtype="i8")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    for mapped in (False, True):
        check(slotline.from_npy(tmp_path / "x.npy", tmp_path / "y.npy", mmap=mapped), x, y)
        named = slotline.from_npy(x=tmp_path / "x.npy", y=str(tmp_path / "y.npy"), mmap=mapped)
        check(named, x, y)
        check(pickle.loads(pickle.dumps(named)), x, y)
    with pytest.raises(slotline.DataError, match="none.npy.*No such file"):
        slotline.from_npy(tmp_path / "none.npy")
    (tmp_path / "bad.npy").write_bytes(b"PK\3\4 an archive")
    with pytest.raises(slotline.DataError, match="bad.npy"):
        slotline.from_npy(tmp_path / "bad.npy")


def test_idx_files(tmp_path):
    data = sample(N, 4, dtype="i2")
    (tmp_path / "a").write_bytes(struct.pack(">BBBBII", 0, 0, 0x0B, 2, N, 4) + data.astype(">i2").tobytes())
    check(slotline.from_idx(tmp_path / "a"), data)
    check(slotline.from_idx(x=tmp_path / "a"), data)
    with pytest.raises(slotline.DataError, match="none"):
        slotline.from_idx(tmp_path / "none")


def test_digits():
    assert repr(slotline.digits()) == "<slotline.Dataset of 1797 samples: image: uint8 [8, 8], label: int64 []>"
    digits = rows(slotline.digits())
    assert digits["image"].shape == (1797, 8, 8) and digits["image"].max() == 16
    assert digits["label"].tolist()[:4] == [0, 1, 2, 3] and np.bincount(digits["label"]).sum() == 1797


def test_combined_datasets():
    x, y = sample(N, 3, 2), sample(N, dtype="i4")
    both, other = Arrays(x=x, y=y), Arrays(x=x[:4] + 1, y=y[:4] + 1)
    for indices in ([3, 1, 4, 1, -1], range(2, 9), np.array([5, -13], "i2"), np.array([3, 3], "u8"), iter([7]), y % 2 == 0, []):
        indices = list(indices) if not isinstance(indices, np.ndarray) else indices
        chosen = np.asarray(indices, None if len(indices) else "i8")
        if len(indices):
            check(Subset(both, indices), x[chosen], y[chosen])
        else:
            assert len(Subset(both, indices)) == 0
    joined = both + other + both
    xs, ys = np.concatenate([x, x[:4] + 1, x]), np.concatenate([y, y[:4] + 1, y])
    check(joined, xs, ys)
    order = np.random.default_rng(1).permutation(len(joined))
    nested = Subset(joined, order)
    check(nested, xs[order], ys[order])
    stacked = StackDataset(nested, Arrays(z=ys[::-1]))
    check(stacked, xs[order], ys[order], ys[::-1])
    assert [field.name for field in stacked.fields] == ["x", "y", "z"]
    check(StackDataset(a=Arrays(xs), b=Arrays(n=ys)), xs, ys)
    check(Subset(StackDataset(Arrays(xs), Arrays(ys)) + StackDataset(Arrays(xs), Arrays(ys)), [-1, 0]), xs[[-1, 0]], ys[[-1, 0]])


@pytest.mark.parametrize(
    "dataset",
    [
        Arrays(x=sample(N, 2)),
        Arrays(sample(N, 2), sample(N)),
        Subset(Arrays(x=sample(N, 2)), [3, 1]),
        Arrays(x=sample(N, 2)) + Arrays(x=sample(N, 2)),
        StackDataset(Arrays(sample(N)), slotline.Subset(Arrays(sample(N)), range(N))),
        slotline.digits(),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_datasets_can_be_pickled(dataset):
    copy = pickle.loads(pickle.dumps(dataset))
    assert type(copy) is type(dataset) and copy.fields == dataset.fields
    a, b = rows(dataset), rows(copy)
    if isinstance(a, dict):
        a, b = list(a.values()), list(b.values())
    assert all((x == y).all() for x, y in zip(a, b, strict=True))


def test_empty_datasets():
    for data in (np.ones((0, 3)), np.ones((0,))):
        loader = Loader(Arrays(data), 4)
        assert (len(loader), list(loader)) == (0, [])
        with pytest.raises(slotline.OptionError, match="dataset is empty"):
            Loader(Arrays(data), 4, shuffle=True)


def same(a, b):
    """Asserts that two samples are equal: dicts or tuples of arrays and texts."""
    assert type(a) is type(b) and len(a) == len(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = a.values(), b.values()
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y)
        assert x == y if isinstance(x, str) else (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


def texts(folder):
    (folder / "t.csv").write_text("name,value\n" + "".join(f"{'é' * i},{i}.5\n" for i in range(N)))
    return slotline.open(folder / "t.csv")


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Arrays(x=sample(N, 2), y=sample(N)),
        lambda _: Arrays(sample(N, 2), sample(N, 3)),
        lambda _: Arrays(sample(N, 2)),
        lambda _: Subset(slotline.digits(), range(N)),
        lambda _: StackDataset(Arrays(sample(N)), Arrays(sample(4)) + Arrays(sample(N - 4))),
        texts,
    ],
)
def test_a_sample_is_that_of_a_loader(make, tmp_path):
    dataset = make(tmp_path)
    wanted = list(Loader(dataset, None, seed=0))
    for _ in range(2):
        assert len(list(dataset)) == len(dataset) == N
        for i, (want, got) in enumerate(zip(wanted, dataset, strict=True)):
            for found in (got, dataset[i], dataset[np.int32(i)], dataset[i - N], pickle.loads(pickle.dumps(dataset))[i]):
                same(found, want)
    for part in (slice(2, 9), slice(None, None, -3), slice(-2, 99), slice(5, 5)):
        assert isinstance(dataset[part], slotline.Dataset) and len(dataset[part]) == len(wanted[part])
        for found, want in zip(dataset[part], wanted[part], strict=True):
            same(found, want)
    for index in (N, -N - 1, np.int64(N), 1 << 70):
        with pytest.raises(IndexError, match="is out of range; the dataset has 13 samples"):
            dataset[index]
    for index in (1.0, "x", None, [1]):
        with pytest.raises(TypeError, match="must be an integer or a slice"):
            dataset[index]


def test_samples_can_be_written_and_kept():
    dataset = Arrays(x=sample(N, 2))
    first, again = dataset[0], dataset[0]
    first["x"][:] = -1
    assert (again["x"] == sample(N, 2)[0]).all() and (dataset[0]["x"] == again["x"]).all()
