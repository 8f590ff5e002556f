"""Datasets in files, compared with what plain Python reads from them."""

import contextlib
import copy
import gc
import gzip
import http.server
import io
import json
import os
import pickle
import shutil
import tarfile
import threading
import time
import warnings
from email.utils import formatdate
from pathlib import Path

import numpy as np
import pytest
from helpers import add_to_tar, in_child, outcomes, run, threads_named
from helpers import rows_of as rows

import slotline
from slotline import Arrays, Loader, StackDataset, Subset

# Files that other programs wrote, and the values that those programs read from them.
DATA = Path(__file__).parents[3] / "sources/tests/data"
RANDOM = np.random.default_rng(3)
N = 23
PICTURES = [RANDOM.bytes(length) for length in [0, 1, 40_000, *RANDOM.integers(1, 3000, N - 3).tolist()]]
LABELS = [i % 3 for i in range(N)]
CAPTIONS = ["", *(f"Bild {i}, größer ♥"[: i + 1] for i in range(1, N))]
POINTS = RANDOM.standard_normal((N, 2, 3), dtype="f4")


def folder(path):
    """Creates a folder of pictures with one folder for each class; the pictures are ordered by
    name."""
    for i, (picture, label) in enumerate(zip(PICTURES, LABELS)):
        (path / "photos" / "abc"[label]).mkdir(parents=True, exist_ok=True)
        (path / "photos" / "abc"[label] / f"{i:03}.jpg").write_bytes(picture)
    order = sorted(range(N), key=lambda i: LABELS[i])
    samples = [{"data": np.frombuffer(PICTURES[i], "u1"), "label": np.int64(LABELS[i])} for i in order]
    return path / "photos", samples


def tar(path):
    """Creates two shards of WebDataset."""
    (path / "tars").mkdir(exist_ok=True)
    for shard, indices in enumerate((range(10), range(10, N))):
        with tarfile.open(path / "tars" / f"shard-{shard:03}.tar", "w") as file:
            for i in indices:
                points = io.BytesIO()
                np.save(points, POINTS[i])
                parts = {"jpg": PICTURES[i], "cls": b"%d" % LABELS[i], "txt": CAPTIONS[i].encode(), "npy": points.getvalue()}
                for extension, contents in parts.items():
                    add_to_tar(file, f"sample-{i:03}.{extension}", contents)
    samples = [
        {"jpg": np.frombuffer(picture, "u1"), "cls": np.int64(label), "txt": caption, "npy": points}
        for picture, label, caption, points in zip(PICTURES, LABELS, CAPTIONS, POINTS)
    ]
    return path / "tars/shard-{000..001}.tar", samples


def manifest(path):
    """Creates a CSV file with the names of pictures."""
    (path / "listed").mkdir(exist_ok=True)
    lines = ["file_name,caption,label,weight,good"]
    for i, picture in enumerate(PICTURES):
        (path / "listed" / f"{i}.png").write_bytes(picture)
        lines.append(f'{i}.png,"{CAPTIONS[i]}",{LABELS[i]},{i}.5,{"true" if i % 2 else "false"}')
    (path / "listed/metadata.csv").write_text("\n".join(lines))
    samples = [
        {
            "data": np.frombuffer(PICTURES[i], "u1"),
            "caption": CAPTIONS[i],
            "label": np.int64(LABELS[i]),
            "weight": np.float64(i + 0.5),
            "good": np.bool_(i % 2),
        }
        for i in range(N)
    ]
    return path / "listed/metadata.csv", samples


def npz(path):
    """Creates an .npz file with several arrays."""
    waves = {"waves": (POINTS + 1j).astype("c8"), "phases": np.exp(1j * np.arange(N))}
    np.savez(path / "all.npz", points=POINTS, labels=np.array(LABELS), **waves)
    each = {"points": POINTS, "labels": np.array(LABELS), **waves}
    return path / "all.npz", [{name: rows[i] for name, rows in each.items()} for i in range(N)]


def parquet(_):
    """Returns a file that pyarrow wrote, and the rows that it read."""
    types = {"i8": np.int8, "u16": np.uint16, "i64": np.int64, "f32": np.float32, "f64": np.float64, "flag": np.bool_}
    columns = ["text", *types, "data", "list"]
    rows = json.loads((DATA / "parquet/expected.json").read_text())["table"]
    samples = []
    for row in rows:
        sample = {name: dtype(row[name]) for name, dtype in types.items()}
        data, numbers = np.frombuffer(bytes.fromhex(row["data"]["hex"]), "u1"), np.array(row["list"], "i4")
        whole = {"text": row["text"], **sample, "data": data, "list": numbers}
        samples.append({name: whole[name] for name in columns})
    return DATA / "parquet/index.parquet", samples


MAKERS = [folder, tar, manifest, npz, parquet]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def made(request, tmp_path_factory):
    """A fixture: a dataset of each kind, and its samples."""
    path, samples = request.param(tmp_path_factory.mktemp(request.param.__name__))
    columns = list(samples[0]) if request.param is parquet else None
    return slotline.open(path, columns=columns), samples


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert list(a) == list(b)
        for name, value in b.items():
            if isinstance(value, str):
                assert a[name] == value and type(a[name]) is str
            else:
                assert a[name].dtype == value.dtype, name
                assert a[name].shape == value.shape and np.array_equal(a[name], value), name


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_those_that_were_written(made, workers):
    dataset, samples = made
    assert len(dataset) == len(samples)
    for size in (1, 5, len(samples), 100):
        assert_same(rows(Loader(dataset, size, num_workers=workers)), samples)
    # The order is that of a dataset of arrays with the same seed.
    order = np.concatenate([batch["i"] for batch in Loader(Arrays(i=np.arange(len(samples))), 4, True, seed=9)])
    for _ in range(2):
        assert_same(rows(Loader(dataset, 4, True, seed=9, num_workers=workers)), [samples[i] for i in order])


def test_single_samples(made):
    dataset, samples = made
    assert_same(list(Loader(dataset, None, num_workers=1)), samples)


def test_fields_describe_the_samples(made):
    dataset, samples = made
    assert [field.name for field in dataset.fields] == list(samples[0])
    for name, dtype, shape in dataset.fields:
        for sample in samples:
            value = sample[name]
            if isinstance(value, str):
                assert (dtype, shape) == ("str", ())
            else:
                assert dtype == value.dtype.name
                assert shape == value.shape or shape == (None,) and value.ndim == 1
    assert repr(dataset).startswith(f"<slotline.Dataset of {len(samples)} samples: ")


def test_resuming(made):
    dataset, samples = made
    for options in ({}, {"shuffle": True}, {"shuffle": True, "rank": 1, "world_size": 2}):
        whole = list(Loader(dataset, 3, seed=5, **options))
        for at in range(len(whole) + 1):
            source = Loader(dataset, 3, seed=5, num_workers=2, **options)
            batches = iter(source)
            for _ in range(at):
                next(batches)
            resumed = Loader(pickle.loads(pickle.dumps(dataset)), 3, num_workers=1, **{"seed": 5, **options})
            resumed.load_state_dict(json.loads(json.dumps(source.state_dict())))
            assert_same(rows(resumed), rows(whole[at:]))


def test_copies_read_the_same_files(made):
    dataset, samples = made
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert again.fields == dataset.fields and repr(again) == repr(dataset) and type(again) is type(dataset)
        assert_same(rows(Loader(again, 4)), samples)
    assert_same(rows(pickle.loads(pickle.dumps(Loader(dataset, 4)))), samples)


def test_combined_datasets(made):
    dataset, samples = made
    count = len(samples)
    order = np.random.default_rng(1).permutation(count)[: count - 2]
    chosen = Subset(dataset, order)
    assert_same(rows(Loader(chosen, 4, num_workers=2)), [samples[i] for i in order])
    joined = chosen + dataset + chosen
    assert_same(rows(Loader(joined, 4, num_workers=2)), [samples[i] for i in (*order, *range(count), *order)])
    stacked = StackDataset(chosen, Arrays(place=order))
    for batch in Loader(stacked, 4, True, num_workers=2):
        assert_same(rows([batch]), [{**samples[i], "place": np.int64(i)} for i in batch["place"]])


def test_samples_of_any_length_share_the_batchs_memory(tmp_path):
    dataset = slotline.open(folder(tmp_path)[0])
    assert dataset.classes == ["a", "b", "c"]
    assert repr(dataset) == "<slotline.Dataset of 23 samples: data: uint8 [None], label: int64 []>"
    kept = [batch for _ in range(3) for batch in Loader(dataset, 4, True, seed=1, num_workers=2)]
    expected = rows(Loader(dataset, 4, True, seed=1))
    for batch in kept:
        assert isinstance(batch["data"], list) and batch["label"].shape == (len(batch["data"]),)
        data = [part for part in batch["data"] if len(part)]
        for part in data:
            assert part.dtype == np.uint8 and part.flags.writeable and part.flags.c_contiguous
            assert io.BytesIO(part).getvalue() == part.tobytes() == bytes(part)
        # The arrays are contiguous in one piece of memory.
        assert all(a.ctypes.data + a.nbytes == b.ctypes.data for a, b in zip(data, data[1:]))
    assert_same(rows(kept)[:N], expected)
    kept[0]["data"][0][:] = 0
    assert_same(rows(kept[1:])[: N - 4], expected[4:])
    one = kept[1]["data"][1]
    copied = one.copy()
    del kept, batch, data, part
    gc.collect()
    rows(Loader(dataset, 4))
    assert np.array_equal(one, copied)


def test_other_libraries_take_samples_without_a_copy(tmp_path):
    path, samples = tar(tmp_path)
    for batch in Loader(slotline.open(path), N, output="dlpack"):
        assert all(isinstance(part, slotline.Tensor) for part in batch["jpg"])
        assert [part.shape for part in batch["jpg"]] == [(len(picture),) for picture in PICTURES]
        assert batch["txt"] == CAPTIONS
        found = {name: field if name == "txt" else [np.from_dlpack(part) for part in field] for name, field in batch.items() if name in ("jpg", "txt")}
        assert_same(rows([found]), [{name: sample[name] for name in found} for sample in samples])


def test_packed_samples(tmp_path):
    dataset = slotline.open(tar(tmp_path)[0])
    loader = Loader(dataset, 4, True, seed=2, num_workers=2, packed=True)
    lists = Loader(dataset, 4, True, seed=2)
    for _ in range(3):
        for batch, plain in zip(loader, lists, strict=True):
            values, offsets = batch["jpg"]
            assert values.dtype == np.uint8 and offsets.dtype == np.int64
            assert np.array_equal(values, np.concatenate(plain["jpg"]))
            assert offsets.tolist() == [0, *np.cumsum([len(part) for part in plain["jpg"]])]
            values, ends = batch["txt"]
            assert values.tobytes().decode() == "".join(plain["txt"])
            assert np.array_equal(batch["npy"], plain["npy"])
            # The offsets are copies: changing them has no effect on the loader.
            offsets[:], ends[:] = 1 << 40, -1
    values, offsets = next(iter(Loader(dataset, None, packed=True)))["txt"]
    assert (values.tolist(), offsets.tolist()) == ([], [0, 0])


def test_columns_are_chosen(tmp_path):
    path, samples = tar(tmp_path)
    chosen = slotline.open(path, columns=["txt", "cls"])
    assert [field.name for field in chosen.fields] == ["txt", "cls"]
    assert_same(rows(Loader(chosen, 5)), [{"txt": sample["txt"], "cls": sample["cls"]} for sample in samples])
    with pytest.raises(slotline.DataError, match='"?png"?'):
        slotline.open(path, columns=["png"])
    with pytest.raises(TypeError, match=r"columns is 'txt'; it must be a list of names, such as \['txt'\]"):
        slotline.open(path, columns="txt")


def test_options_apply_before_others_are_rejected(tmp_path):
    np.savez(tmp_path / "mnist.npz", x_train=np.arange(6), x_test=np.arange(3))
    with pytest.raises(slotline.DataError, match="with `columns`"):
        slotline.open(tmp_path / "mnist.npz")
    assert len(slotline.open(os.fsencode(tmp_path / "mnist.npz"), columns=["x_train"])) == 6

    with tarfile.open(tmp_path / "photos.tar", "w") as file:
        for name, contents in [("0.jpg", b"j"), ("0.pkl", b"p"), ("1.png", b"q"), ("2.txt", b"t")]:
            add_to_tar(file, name, contents)
    with pytest.raises(slotline.DataError, match="`columns`.*`decode`"):
        slotline.open(tmp_path / "photos.tar", skip_incomplete=True)
    photos = slotline.open(tmp_path / "photos.tar", columns=["__key__", "png;jpg"], skip_incomplete=True)
    assert [sample["__key__"] for sample in rows(Loader(photos))] == ["0", "1"]
    assert [bytes(sample["png;jpg"]) for sample in rows(Loader(copy.deepcopy(photos)))] == [b"j", b"q"]
    pickles = slotline.open(tmp_path / "photos.tar", columns=["pkl"], decode={"pkl": "bytes"}, skip_incomplete=True)
    assert [bytes(sample["pkl"]) for sample in rows(Loader(pickles))] == [b"p"]

    (tmp_path / "rows.jsonl").write_text('{"a": 1, "b": 2}\n{"a": 3}\n')
    with pytest.raises(slotline.DataError, match="`missing_as_zero`, or `default_number`"):
        slotline.open(tmp_path / "rows.jsonl")
    for options, number in [({"missing_as_zero": True}, 0), ({"default_number": {"b": 7}}, 7)]:
        table = slotline.open(tmp_path / "rows.jsonl", **options)
        assert [int(sample["b"]) for sample in rows(Loader(table))] == [2, number]


def test_default_numbers_are_exact(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1, "b": 2, "x": 0.5}\n{"a": 3}\n')
    for big in (2**53 + 1, np.int64(-(2**63)), 7.0, np.float32(7), True):
        table = slotline.open(tmp_path / "rows.jsonl", default_number={"b": big, "x": 0.1})
        sample = list(rows(Loader(pickle.loads(pickle.dumps(table)))))[1]
        assert (int(sample["b"]), float(sample["x"])) == (int(big), 0.1)
    with pytest.raises(slotline.DataError, match="9223372036854775808 is no number"):
        slotline.open(tmp_path / "rows.jsonl", default_number={"b": 2**63})


def test_columns_that_name_files_can_be_fields(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"image": "none/1.png", "n": NaN}\n')
    for options in ({"without_files": True}, {"columns": ["image", "n"]}):
        table = slotline.open(tmp_path / "rows.jsonl", **options)
        [sample] = rows(Loader(pickle.loads(pickle.dumps(table))))
        assert sample["image"] == "none/1.png" and np.isnan(sample["n"])


def test_kinds_are_taken_as_messages_write_them(tmp_path):
    path, samples = tar(tmp_path)
    for kind in ("i64", "int64"):
        chosen = slotline.open(path, columns=["cls"], decode={"cls": kind})
        assert_same(rows(Loader(chosen, 5)), [{"cls": sample["cls"]} for sample in samples])
    for kind, problem in (("f32 [2, 3]", r"`decode` of cls as f32 \[2, 3\]"), ("numbers", "numbers is no kind of a field")):
        with pytest.raises(slotline.DataError, match=problem):
            slotline.open(path, decode={"cls": kind})


def test_options_of_other_formats_are_errors(tmp_path):
    path, _ = tar(tmp_path)
    with pytest.raises(slotline.DataError, match="`without_files` is an option of CSV and JSONL, and not of tars; leave it out"):
        slotline.open(path, without_files=True)


def test_indexes_are_saved_where_they_should_be(tmp_path):
    path, samples = tar(tmp_path)
    (tmp_path / "indexes").mkdir()

    def saved(place, **options):
        dataset = slotline.open(path, **options)
        assert_same(rows(Loader(pickle.loads(pickle.dumps(dataset)), 8)), samples)
        return len(list((tmp_path / place).glob("*.slotline-idx")))

    assert saved("tars", index_files=None) == 0
    assert saved("tars", index_files=tmp_path / "indexes") == 0 and saved("indexes", index_files=tmp_path / "indexes") == 2
    assert saved("tars") == 2


def test_batches_with_more_than_their_room_are_whole(tmp_path):
    dataset = slotline.open(folder(tmp_path)[0])
    longest = max(range(N), key=lambda i: len(PICTURES[sorted(range(N), key=lambda i: LABELS[i])[i]]))
    repeated = Subset(dataset, [longest] * 12 + [0] * 12)
    loader = Loader(repeated, 6, num_workers=2)
    for _ in range(3):
        for at, batch in enumerate(loader):
            assert [len(part) for part in batch["data"]] == [40_000 if at < 2 else len(PICTURES[0])] * 6
            assert all(part.tobytes() == PICTURES[2] for part in batch["data"]) or at >= 2
    assert loader.stats()["spilled_batches"] > 0


def test_files_and_arrays_are_joined(tmp_path):
    points = slotline.open(npz(tmp_path)[0], columns=["points", "labels"])
    joined = points + Arrays(points=POINTS + 1, labels=np.arange(N))
    expected = [{"points": POINTS[i], "labels": np.int64(LABELS[i])} for i in range(N)]
    assert_same(rows(Loader(joined, 7)), [*expected, *({"points": POINTS[i] + 1, "labels": np.int64(i)} for i in range(N))])
    pictures = slotline.open(folder(tmp_path)[0], columns=["data"])
    with pytest.raises(slotline.DataError, match=r"field 0 of dataset 1 is uint8 \[3\], but that of dataset 0 is uint8 \[None\]"):
        pictures + Arrays(data=np.zeros((2, 3), "u1"))
    texts = slotline.open(manifest(tmp_path)[0], columns=["caption"])
    with pytest.raises(slotline.DataError, match=r"is str \[\], but that of dataset 0 is uint8 \[None\]"):
        StackDataset(data=pictures) + StackDataset(data=texts)
    # Each dataset reserves different memory for its samples.
    short = tmp_path / "short" / "a"
    short.mkdir(parents=True)
    for i in range(3):
        (short / f"{i}.jpg").write_bytes(b"ab" * i)
    both = slotline.open(tmp_path / "short", columns=["data"]) + pictures
    assert [len(sample["data"]) for sample in rows(Loader(both, 5))][:5] == [0, 2, 4, 0, len(PICTURES[3])]


def test_folders_with_other_files(tmp_path):
    for name, count in (("x", 2), ("y", 0)):
        (tmp_path / name).mkdir()
        for i in range(count):
            (tmp_path / name / f"{i}.flac").write_bytes(b"sound")
    with pytest.raises(slotline.DataError, match="no files for the classes x, y that end in .jpg"):
        slotline.folder(tmp_path)
    with pytest.raises(slotline.DataError, match="no files for the classes y"):
        slotline.folder(tmp_path, extensions=[".flac"])
    sounds = slotline.folder(tmp_path, extensions=[".flac"], allow_empty=True)
    assert (len(sounds), sounds.classes) == (2, ["x", "y"]) and Arrays(x=np.ones(2)).classes is None
    assert sounds[::-1].repeat(2).classes == (sounds + sounds.take(1)).rename(label="y").classes == ["x", "y"]
    assert sounds.select("label").classes is None and sounds.map(lambda sample: sample).classes is None
    again = pickle.loads(pickle.dumps(sounds))
    assert again.classes == sounds.classes and [part.tobytes() for part in next(iter(Loader(again, 2)))["data"]] == [b"sound"] * 2


def test_tokens(tmp_path):
    numbers = RANDOM.integers(0, 50_000, 1000, "u2")
    for at, part in enumerate((numbers[:600], numbers[600:])):
        part.tofile(tmp_path / f"{at}.bin")
        header = np.zeros(256, "i4")
        header[:3] = 20240520, 1, len(part)
        (tmp_path / f"{at}.llmc").write_bytes(header.tobytes() + part.tobytes())
    numbers.astype("i4").tofile(tmp_path / "wide.bin")
    blocks = [numbers[start : start + 65] for start in range(0, 600 - 64, 64)] + [numbers[start : start + 65] for start in range(600, 1000 - 64, 64)]
    for paths in (tmp_path / "{0..1}.bin", [tmp_path / "0.bin", tmp_path / "1.bin"], tmp_path / "?.llmc"):
        dataset = slotline.tokens(paths, 64)
        assert dataset.fields == (("tokens", "uint16", (65,)),)
        for again in (dataset, pickle.loads(pickle.dumps(dataset))):
            assert_same(rows(Loader(again, 4, num_workers=2)), [{"tokens": block} for block in blocks])
    dataset = slotline.tokens(tmp_path / "0.bin", 64, labels=True, widen=True, stride=1)
    expected = [{"tokens": numbers[i : i + 64].astype("i8"), "labels": numbers[i + 1 : i + 65].astype("i8")} for i in range(600 - 64)]
    assert_same(rows(Loader(dataset, 50)), expected)
    dataset = slotline.tokens(tmp_path / "wide.bin", 499, dtype=np.int32)
    assert_same(rows(Loader(pickle.loads(pickle.dumps(dataset)), 2)), [{"tokens": numbers[:500].astype("i4")}, {"tokens": numbers[499:999].astype("i4")}])
    for options, words in (
        ({"dtype": "f4"}, "tokens of type float32; pass a type of integers"),
        ({"dtype": ">u2"}, "tokens of type >u2"),
        ({"block_size": 600}, "no file has the 601 tokens of a sample"),
        ({"block_size": 0}, "blocks of 0 tokens"),
        ({"block_size": -1}, "block_size is -1; it must not be negative"),
        ({"dtype": "u8", "paths": tmp_path / "wide.bin", "block_size": 600}, "no file has"),
    ):
        with pytest.raises((slotline.DataError, slotline.OptionError), match=words):
            slotline.tokens(**{"paths": tmp_path / "0.bin", "block_size": 8, **options})


@pytest.mark.parametrize(
    "name, count, fields",
    [
        ("arrow/saved", 10, {"text": "str", "label": "int64"}),
        ("arrow/zstd.feather", 10, {"i8": "int8", "u16": "uint16"}),
        ("parquet/*ed.parquet", None, {"text": "str"}),
        ("mds/raw", None, {}),
        ("litdata/zstd", None, {}),
        ("manifest/jsonl", None, {}),
        ("tokens/corpus0.bin", None, {"tokens": "uint16"}),
        ("tokens/int32_modes.idx", None, {"tokens": "int32", "mode": "int8"}),
        ("arrays/all.safetensors", None, {}),
        ("arrays/packed.npz", None, {}),
        ("tfrecord/{0..1}.tfrecord", None, {}),
    ],
)
def test_files_of_other_programs(name, count, fields):
    options = {"index_files": None} if "tfrecord" in name else {}
    dataset = slotline.open(DATA / name, **options)
    found = {field.name: field.dtype for field in dataset.fields}
    assert fields.items() <= found.items() and count in (None, len(dataset)) and len(dataset) > 0
    output = "numpy" if "bfloat16" not in found.values() else "dlpack"
    batches = [list(Loader(dataset, 3, True, seed=1, num_workers=workers, output=output)) for workers in (0, 2)]
    if output == "numpy":
        assert_same(rows(batches[0]), rows(batches[1]))
        assert len(rows(batches[0])) == len(dataset)


def test_errors_name_the_file_and_the_place(tmp_path):
    path, _ = tar(tmp_path)
    with pytest.raises(slotline.DataError, match="none.parquet.*check the path"):
        slotline.open(tmp_path / "none.parquet")
    with open(tmp_path / "tars/shard-001.tar", "r+b") as file:
        file.write(b"nonsense" * 64)
    with pytest.raises(slotline.DataError, match=r"shard-001.tar, byte 0: .*; "):
        slotline.open(path, index_files=None)
    (tmp_path / "notes.xyz").write_text("text")
    with pytest.raises(slotline.DataError, match="notes.xyz: not a format"):
        slotline.open(tmp_path / "notes.xyz")
    with pytest.raises(slotline.OptionError, match="read_ahead is -1"):
        slotline.open(path, read_ahead=-1)
    for wrong in ("folder", ("folder",), 3):
        with pytest.raises(TypeError, match="a folder and a number of bytes"):
            slotline.open(path, cache=wrong)
    with pytest.raises(TypeError):
        slotline.open(path, cache=("folder", "1 GB"))


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_cannot_be_read(tmp_path, workers):
    path, samples = folder(tmp_path)
    dataset = slotline.open(path)
    missing = path / "b" / "004.jpg"
    missing.unlink()
    found = list(outcomes(iter(Loader(dataset, 4, num_workers=workers)), slotline.SampleError))
    [error] = (error for error in found if isinstance(error, slotline.SampleError))
    assert str(missing) in str(error) and "check the path" in str(error)
    assert len(rows(batch for batch in found if batch is not error)) == N - 4
    skipped = rows(Loader(dataset, 4, num_workers=workers, on_error="skip"))
    at = next(at for at, sample in enumerate(samples) if sample["data"].tobytes() == PICTURES[4])
    assert_same(skipped, samples[:at] + samples[at + 1 :])


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tar"])
def test_a_damaged_sample_does_not_prevent_opening(tmp_path, kind):
    def npy(i):
        points = io.BytesIO()
        np.save(points, np.array(i))
        return points.getvalue()[: 20 if i in (0, 4) else None]

    path = tmp_path / f"data.{kind}"
    if kind == "tar":
        with tarfile.open(path, "w") as file:
            for i in range(9):
                add_to_tar(file, f"{i}.npy", npy(i))
        name, words = "npy", "data.tar, byte 4608: the field npy of the sample 4"
    else:
        lines = [f'{{"i": {i}, "t": "{i}"}}' if kind == "jsonl" else f"{i},x{i}" for i in range(9)]
        lines = [line[: -3 if kind == "jsonl" else 1] if i in (0, 4) else line for i, line in enumerate(lines)]
        path.write_text("\n".join([*(["i,t"] if kind == "csv" else []), *lines]))
        name, words = "i", f"data.{kind}, byte .*line:? {5 if kind == 'jsonl' else 6}"
    data = slotline.open(path)
    assert len(data) == 9 and data.fields[0][:2] == (name, "int64")
    with pytest.raises(slotline.SampleError, match=words):
        data[4]
    with pytest.warns(RuntimeWarning, match="2 samples of this pass were left out"):
        assert [int(i) for batch in Loader(data, 4, on_error="skip") for i in batch[name]] == [1, 2, 3, 5, 6, 7, 8]


@pytest.mark.parametrize(("on_error", "words"), [("skip", "left out"), ("replace", "replaced by others")])
def test_a_pass_warns_of_samples_that_it_lacks(tmp_path, on_error, words):
    path, _ = folder(tmp_path)
    # With this seed, the sample that replaces a bad one is a different one.
    loader = Loader(slotline.open(path), 4, seed=1, on_error=on_error)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)
    (path / "b" / "004.jpg").unlink()
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=f"^1 samples of this pass were {words}, .*004.jpg.*; stats") as caught:
            list(loader)
        assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    stats = loader.stats()
    assert (stats["bad_samples"], len(stats["bad_indices"])) == (2, 1) and "004.jpg" in stats["bad_causes"][-1]["message"]
    batches = iter(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            list(batches)
        assert list(batches) == []


def test_a_state_of_other_fields_is_refused(tmp_path):
    state = Loader(slotline.open(manifest(tmp_path)[0], columns=["caption"]), 4).state_dict()
    for columns in (["label"], ["data"]):
        with pytest.raises(slotline.StateError, match="of other fields"):
            Loader(slotline.open(manifest(tmp_path)[0], columns=columns), 4).load_state_dict(state)


def test_a_state_fits_the_same_files_elsewhere(tmp_path):
    (tmp_path / "one").mkdir()
    path, samples = tar(tmp_path / "one")
    batches = iter(loader := Loader(slotline.open(path), 4))
    next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    assert len(json.dumps(state)) < 700
    shutil.move(tmp_path / "one", tmp_path / "two")
    moved = Loader(slotline.open(str(path).replace("/one/", "/two/")), 4, num_workers=2)
    moved.load_state_dict(state)
    assert_same(rows(moved), samples[4:])


def test_a_state_of_another_stride_is_refused(tmp_path):
    np.arange(100, dtype="u2").tofile(tmp_path / "t.bin")
    state = Loader(slotline.tokens(tmp_path / "t.bin", 9, stride=10)).state_dict()
    for options in ({"stride": 11}, {"stride": 10, "labels": True}):
        with pytest.raises(slotline.StateError, match="another format" if options["stride"] == 11 else "other fields"):
            Loader(slotline.tokens(tmp_path / "t.bin", 9, **options)).load_state_dict(state)


@pytest.mark.parametrize(
    "combine",
    [
        lambda files: files,
        lambda files: Subset(files, range(5)),
        lambda files: files + files,
        lambda files: StackDataset(files, Arrays(i=np.arange(N))),
    ],
)
def test_files_are_read_ahead_also_through_other_datasets(tmp_path, combine):
    path, _ = folder(tmp_path)
    for options, expected in (({"read_ahead": 0}, False), ({}, True)):
        before = threads_named("slotline-ahead")  # Threads of dropped datasets end soon.
        batches = iter(Loader(combine(slotline.open(path, **options)), 4))
        next(batches)
        # A thread sets its own name, which may take a moment.
        for _ in range(200 if expected else 5):
            if found := threads_named("slotline-ahead") - before:
                break
            time.sleep(0.02)
        assert bool(found) == expected


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks(tmp_path):
    path, samples = folder(tmp_path)
    loader = Loader(slotline.open(path), 4, num_workers=2)
    batches = iter(loader)
    begun = [next(batches)]
    assert in_child(lambda: assert_same(rows(Loader(loader.dataset, 3, num_workers=1)), samples))
    assert_same(rows(begun + list(batches)), samples)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_while_threads_read_ahead(tmp_path):
    (tmp_path / "many.bin").write_bytes(bytes(1 << 21))
    many = slotline.tokens(tmp_path / "many.bin", 1, stride=1, dtype="u1")
    for _ in range(60):
        batches = iter(Loader(many, 4))
        next(batches)
        # The read-ahead threads run and take locks while the process is forked.
        assert in_child(lambda: next(iter(Loader(many, 4))))


def test_the_interpreter_ends_while_files_are_read(tmp_path):
    path, _ = folder(tmp_path)
    run(f"""
        import slotline
        loader = slotline.Loader(slotline.open({str(path)!r}), 2, True, num_workers=2)
        batches = iter(loader)
        kept = [next(batches), next(batches)]
    """)


class Server(http.server.SimpleHTTPRequestHandler):
    """A web server that supports range requests."""

    asked = 0

    def do_HEAD(self):
        self.reply(False)

    def do_GET(self):
        self.reply(True)

    def reply(self, with_contents):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        contents, status = path.read_bytes(), 200
        total = len(contents)
        if wanted := self.headers.get("Range"):
            start, end = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            contents, status = contents[start : end + 1], 206
        type(self).asked += with_contents
        self.send_response(status)
        self.send_header("Content-Length", str(len(contents)))
        self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{start + len(contents) - 1}/{total}")
        self.end_headers()
        if with_contents:
            self.wfile.write(contents)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(handler, folder):
    """Runs a web server for the files in a folder."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: handler(*args, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_files_of_a_web_server(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    _, samples = tar(tmp_path)
    with served(Server, tmp_path) as server:
        url = f"http://127.0.0.1:{server.server_port}/tars/shard-{{000..001}}.tar"
        dataset = slotline.open(url)
        assert_same(rows(Loader(dataset, 4, num_workers=2)), samples)
        assert_same(rows(Loader(pickle.loads(pickle.dumps(dataset)), 4)), samples)
        cached = slotline.open(url, cache=(tmp_path / "cache", 1 << 30))
        loader = Loader(cached, 4, num_workers=2)
        assert_same(rows(loader), samples)
        before = Server.asked
        assert_same(rows(loader), samples)
        assert Server.asked == before and any((tmp_path / "cache").iterdir())
        signed = slotline.open(url.replace("{000..001}", "001") + "?Signature=a%2Fb", max_connections=2)
        assert_same(rows(Loader(signed, 4, num_workers=2)), samples[10:])
        assert Loader(signed, 4).warnings() == []
        with pytest.raises(slotline.DataError, match=r"name the files, as in `{000..003}`"):
            slotline.open(url.replace("{000..001}", "*"))
        with pytest.raises(slotline.DataError, match="`max_connections` is 0"):
            slotline.open(url, max_connections=0)
        for shard in ("000", "001"):
            contents = (tmp_path / "tars" / f"shard-{shard}.tar").read_bytes()
            (tmp_path / "tars" / f"shard-{shard}.tar.gz").write_bytes(gzip.compress(contents))
        assert_same(rows(Loader(slotline.open(f"{url}.gz"), 4)), samples)
        with pytest.raises(slotline.DataError, match=f"http://127.0.0.1:{server.server_port}/none.tar"):
            slotline.open(f"http://127.0.0.1:{server.server_port}/none.tar")
