"""Writes MDS datasets with MDSWriter into the folder `mds` next to this file, with the results of mosaicml-streaming.

Needs mosaicml-streaming 0.13 and Pillow.
"""

import json
import os
import shutil
import tempfile
from decimal import Decimal

import numpy as np
import streaming
from PIL import Image
from streaming import MDSWriter
from streaming.base.compression import decompress
from streaming.base.format import reader_from_json

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mds")
shutil.rmtree(HERE, ignore_errors=True)
os.makedirs(HERE)
random = np.random.default_rng(8)

scalars = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
columns = {
    "bytes": "bytes", "str": "str", "int": "int", "json": "json", "jpeg": "jpeg", "png": "png",
    "str_int": "str_int", "str_float": "str_float", "str_decimal": "str_decimal",
    "fixed": "ndarray:float32:2,3", "vector": "ndarray:uint16:4", "typed": "ndarray:int32", "any": "ndarray",
    **{f"s_{name}": name for name in scalars},
}


def sample(i):
    picture = Image.fromarray(random.integers(0, 256, (1 + i % 2, 2, 3), np.uint8))
    return {
        "bytes": random.bytes(int(i * 3 % 7)), "str": ["", "grüße", "日本", "a\nb"][i % 4], "int": -(1 << 62) + i,
        "json": {"i": [i, None, "é"]}, "jpeg": picture, "png": picture,
        "str_int": (-1) ** i * (1 << (6 * i)), "str_float": [0.1, -1e300, float("inf"), 5e-324][i % 4],
        "str_decimal": Decimal("1.10") * i,
        "fixed": random.standard_normal((2, 3), np.float32), "vector": random.integers(0, 65536, 4, np.uint16),
        "typed": random.integers(-9, 9, (1 + i % 3, 2), np.int32),
        "any": random.standard_normal([(3,), (2, 1, 2), (260,)][i % 3 if i < 3 else i % 2], np.float32),
        **{f"s_{name}": np.array(random.integers(0, 100)).astype(name)[()] for name in scalars},
    }


def encoded(value):
    """Returns the bytes of a decoded value and, for an array of variable shape, its shape."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, Decimal)):
        return str(value).encode()
    if isinstance(value, int):
        return np.int64(value).tobytes()
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, Image.Image):
        value.fp.seek(0)
        return value.fp.read()
    if isinstance(value, dict):
        return json.dumps(value).encode()
    return value.tobytes()


def read(folder):
    """Reads with the library's reader, which needs shards that are not compressed."""
    with open(os.path.join(folder, "index.json")) as file:
        index = json.load(file)
    samples = []
    with tempfile.TemporaryDirectory() as unpacked:
        for shard in index["shards"]:
            raw, packed = shard["raw_data"], shard["zip_data"]
            with open(os.path.join(folder, (packed or raw)["basename"]), "rb") as file:
                data = file.read()
            with open(os.path.join(unpacked, raw["basename"]), "wb") as file:
                file.write(decompress(shard["compression"], data) if packed else data)
            reader = reader_from_json(unpacked, None, shard)
            for i in range(len(reader)):
                found = {}
                for name, value in reader[i].items():
                    found[name] = encoded(value).hex()
                    if name in ("typed", "any"):
                        found[f"{name}.shape"] = np.array(value.shape, np.int64).tobytes().hex()
                samples.append(found)
    return samples


expected = {"mosaicml-streaming": streaming.__version__}
for name, compression, count, some in [
    ("raw", None, 10, columns),
    ("zstd", "zstd:7", 8, {name: columns[name] for name in ("any", "bytes", "int", "str")}),
    ("gz", "gz", 8, {name: columns[name] for name in ("fixed", "str")}),
    ("pkl", None, 2, {"a": "int", "b": "pkl"}),
]:
    folder = os.path.join(HERE, name)
    hashes = ["sha1", "xxh64"] if name != "gz" else ["sha256", "xxh128", "xxh3_64"]
    size_limit = 5000 if name == "raw" else 1000
    with MDSWriter(out=folder, columns=some, compression=compression, hashes=hashes, size_limit=size_limit) as out:
        for i in range(count):
            all_ = {**sample(i), "a": i, "b": i}
            out.write({column: all_[column] for column in some})
    expected[name] = [] if name == "pkl" else read(folder)

with open(os.path.join(HERE, "expected.json"), "w") as file:
    json.dump(expected, file, separators=(",", ":"))
