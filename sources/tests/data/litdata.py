"""Writes chunks with LitData's writer into the folder `litdata` next to this file, with the results of reading them by LitData.

Needs litdata and torch.
"""

import json
import os
import shutil
import sys
import tempfile

sys.path.pop(0)  # Removes this folder, where `import litdata` would find this file.

import litdata
import numpy as np
import torch
from litdata import StreamingDataset
from litdata.streaming.item_loader import TokensLoader
from litdata.streaming.writer import BinaryWriter

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "litdata")
shutil.rmtree(HERE, ignore_errors=True)
os.makedirs(HERE)
random = np.random.default_rng(3)


def item(i):
    return {
        "b": i % 3 == 0, "i": -(1 << 50) * i, "f": i / 3, "s": ["", "grüße", "日本"][i % 3], "by": random.bytes(i % 5),
        "n1": random.standard_normal(i % 4).astype(np.float32), "n2": random.integers(-9, 9, (1 + i % 2, 2), np.int16),
        "nb": random.integers(0, 2, (2, i % 3)).astype(bool), "t1": torch.arange(i % 5), "t0": torch.tensor(i * 7),
        "t2": torch.from_numpy(random.standard_normal((2, 1 + i % 2))).half(),
        "nc": np.full((2, 1 + i % 2), 1.5 - 2j * i, np.complex64), "tc": torch.full((1 + i % 3,), i + 0.25j, dtype=torch.complex128),
    }


def encoded(value):
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return np.int64(value).tobytes()
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, str):
        return value.encode()
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value if isinstance(value, bytes) else value.tobytes()


def fields(item):
    found = {}
    for name, value in item.items():
        found[name] = encoded(value).hex()
        if name in ("n2", "nb", "nc", "t0", "t2"):
            found[f"{name}.shape"] = np.array(value.shape, np.int64).tobytes().hex()
    return found


def read(folder, **options):
    # The reader writes unpacked chunks next to the compressed ones, so it gets a copy of the folder.
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        dataset = StreamingDataset(copy, shuffle=False, **options)
        return [dataset[i] for i in range(len(dataset))]


expected = {"litdata": litdata.__version__}
for name, options, make in [
    ("raw", {}, item),
    ("zstd", {"compression": "zstd", "compression_level": "chunk"}, lambda i: {k: item(i)[k] for k in ("s", "n2", "i")}),
    ("batch", {"compression": "zstd"}, lambda i: {"i": i}),
    ("tuple", {}, lambda i: (i, [f"{i}", {"x": 1.5 * i}])),
    ("leaf", {}, lambda i: torch.arange(i)),
    ("pickle", {}, lambda i: {"a": i, "p": {1, i}}),
]:
    folder = os.path.join(HERE, name)
    writer = BinaryWriter(folder, chunk_size=4, **options)
    for i in range(10):
        writer[i] = make(i)
    writer.done()
    writer.merge()
    if name in ("raw", "zstd"):
        expected[name] = [fields(item) for item in read(folder)]
    if name == "tuple":
        expected[name] = [
            {"0": encoded(a).hex(), "1.0": encoded(b).hex(), "1.1.x": encoded(c["x"]).hex()} for a, [b, c] in read(folder)
        ]
    if name == "leaf":
        expected[name] = [{"data": encoded(tensor).hex()} for tensor in read(folder)]

for name, options in [("tokens", {}), ("tokens_zstd", {"compression": "zstd", "compression_level": "chunk"})]:
    folder = os.path.join(HERE, name)
    writer = BinaryWriter(folder, chunk_bytes=120, item_loader=TokensLoader(), **options)
    for i in range(12):
        tokens = random.integers(0, 50000, 5 + i)
        writer[i] = torch.from_numpy(tokens.astype(np.int32))
    writer.done()
    writer.merge()
    expected[name] = {
        str(size): [{"tokens": encoded(block).hex()} for block in read(folder, item_loader=TokensLoader(block_size=size))]
        for size in (4, 7)
    }

with open(os.path.join(HERE, "expected.json"), "w") as file:
    json.dump(expected, file, separators=(",", ":"))
