"""Runs the book's migration pages and recipes over small data.

Each Python block is a separate program, which runs in the folder with the data, and calls ``step``
with each batch. On a page about another loader, all blocks that call ``step`` get the same samples;
on the page about PyTorch also in the same order. A block that begins with ```` ```python,MODULE
```` runs only if the module is installed.
"""

import functools
import importlib.util
import io
import json
import re
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from helpers import add_to_tar

PIL = pytest.importorskip("PIL.Image", reason="the pages are about pictures")
pa = pytest.importorskip("pyarrow", reason="the pages are about tables")
pq = pytest.importorskip("pyarrow.parquet")

BOOK = Path(__file__).parents[2] / "docs/src"
BLOCK = re.compile(r"^```python(?:,(\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COUNT, SHARD = 8, 2


def blocks(page):
    """Returns the blocks of a page: for each the module that it needs, its first line, and its code
    with the page's line numbers."""
    text = page.read_text()
    found = [(block[1], text.count("\n", 0, block.start(2)), block[2]) for block in BLOCK.finditer(text)]
    return [(module, first + 1, "\n" * first + code) for module, first, code in found if module != "ignore"]


PAGES = [*sorted(BOOK.glob("coming-from-*.md")), *BOOK.glob("recipes.md")]
BLOCKS = [pytest.param(page, *block, id=f"{page.stem}-{block[1]}") for page in PAGES for block in blocks(page)]


def photo(i):
    """Returns a JPEG with a distinct colour, smooth enough that decoders agree about its pixels."""
    height, width = 120 + 5 * i, 180 - 5 * i
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([255 * x // width, 255 * y // height, np.full_like(x, 30 * i)], -1).astype(np.uint8)
    file = io.BytesIO()
    PIL.fromarray(pixels).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


PHOTOS = [photo(i) for i in range(COUNT)]
FEATURES = np.arange(COUNT * 16, dtype=np.float32).reshape(COUNT, 16)


def shards():
    """Returns the numbers of the samples in each shard."""
    return [range(first, first + SHARD) for first in range(0, COUNT, SHARD)]


def framed(samples, head):
    """Returns a shard of MDS or LitData: the number of samples, their offsets, the format's header,
    and the samples."""
    ends = np.cumsum([4 + 4 * (len(samples) + 1) + len(head), *map(len, samples)])
    return struct.pack("<I", len(samples)) + ends.astype("<u4").tobytes() + head + b"".join(samples)


def mds(folder):
    folder.mkdir()
    names, encodings = ["image", "label"], ["jpeg", "int"]
    columns = {"column_names": names, "column_encodings": encodings, "column_sizes": [None, 8]}
    about = columns | {"compression": None, "format": "mds", "hashes": [], "size_limit": 1 << 20, "version": 2, "zip_data": None}
    entries = []
    for k, numbers in enumerate(shards()):
        samples = [struct.pack("<I", len(PHOTOS[i])) + PHOTOS[i] + struct.pack("<q", i) for i in numbers]
        shard = folder / f"shard.{k:05}.mds"
        shard.write_bytes(framed(samples, json.dumps(about, sort_keys=True).encode()))
        raw = {"basename": shard.name, "bytes": shard.stat().st_size, "hashes": {}}
        entries.append(about | {"raw_data": raw, "samples": SHARD})
    (folder / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))


def litdata(folder):
    folder.mkdir()
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {"type": "builtins.dict", "context": '["image", "label"]', "children_spec": [leaf, leaf]}
    chunks = []
    for k, numbers in enumerate(shards()):
        items = [struct.pack("<II", len(PHOTOS[i]), 8) + PHOTOS[i] + struct.pack("<q", i) for i in numbers]
        name = f"chunk-0-{k}.bin"
        (folder / name).write_bytes(framed(items, b""))
        chunks.append({"chunk_bytes": sum(map(len, items)), "chunk_size": SHARD, "dim": None, "filename": name})
    config = {"compression": None, "chunk_size": SHARD, "chunk_bytes": None, "data_format": ["jpeg", "int"], "item_loader": "PyTreeLoader"}
    config |= {"encryption": None, "data_spec": json.dumps([1, spec])}
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


def array_record(path):
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for row in FEATURES:
        writer.write(row.tobytes())
    writer.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A fixture: the folder in which the code of the pages runs."""
    folder = tmp_path_factory.mktemp("pages")
    for part in ("train", "val"):
        for i, photo in enumerate(PHOTOS):
            path = folder / f"photos/{part}/class-{i}/{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photo)
    (folder / "shards").mkdir()
    for k, numbers in enumerate(shards()):
        with tarfile.open(folder / f"shards/train-{k:03}.tar", "w") as tar:
            for i in numbers:
                add_to_tar(tar, f"{i:04}.jpg", PHOTOS[i])
                add_to_tar(tar, f"{i:04}.cls", b"%d" % i)
    mds(folder / "mds")
    litdata(folder / "chunks")
    np.save(folder / "features.npy", FEATURES)
    np.save(folder / "labels.npy", np.arange(COUNT))
    if importlib.util.find_spec("array_record"):
        array_record(folder / "train.array_record")
    (folder / "cifar-10-batches-bin").mkdir()
    for i in range(1, 6):
        rows = np.random.default_rng(i).integers(0, 10, (20, 3073), np.uint8)
        rows.tofile(folder / f"cifar-10-batches-bin/data_batch_{i}.bin")
    np.arange(2_000, dtype=np.uint16).tofile(folder / "train.bin")
    lines = [{"text": "x" * (i + 1), "ids": [7] * (i + 1), "label": i} for i in range(COUNT)]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    images = [{"bytes": photo, "path": None} for photo in PHOTOS]
    pq.write_table(pa.table({"image": images, "label": range(COUNT)}), folder / "images-0.parquet")
    ages = [None, *map(float, range(1, COUNT))]
    pq.write_table(pa.table({"age": ages, "height": [1.5] * COUNT, "label": range(COUNT)}), folder / "table.parquet")
    return folder


def run(code, page, data):
    """Runs a block, and returns the samples that it received."""
    samples = []

    def step(*fields):
        samples.extend(zip(*map(list, fields), strict=True))

    exec(compile(code, page, "exec"), {"__name__": "block", "step": step})
    return samples


@functools.cache
def own_samples(page, data):
    """Returns the samples of the first loop that uses slotline."""
    code = next(code for module, _, code in blocks(page) if module is None and "step(" in code)
    return run(code, page, data)


def assert_close(found, expected):
    """Asserts that samples are equal, apart from differences between JPEG decoders: up to three
    levels of normalised pixels."""
    assert len(found) == len(expected)
    for sample, other in zip(found, expected):
        for a, b in zip(sample, other, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=3.5 / 255 / 0.225)


@pytest.mark.parametrize("page, module, line, code", BLOCKS)
def test_blocks_run_and_loops_have_the_same_samples(page, module, line, code, data, monkeypatch, capsys):
    if module:
        pytest.importorskip(module)
    monkeypatch.chdir(data)
    found = run(code, page, data)
    assert found or "step(" not in code
    if page.stem == "coming-from-pytorch" and found:
        assert_close(found, own_samples(page, data))  # in the same order
    elif page.stem.startswith("coming-from-") and found:
        label = lambda sample: int(sample[-1])
        assert_close(sorted(found, key=label), sorted(own_samples(page, data), key=label))
    if page.stem == "coming-from-pytorch" and "print(" in code:
        assert f"```text\n{capsys.readouterr().out}```" in page.read_text()
