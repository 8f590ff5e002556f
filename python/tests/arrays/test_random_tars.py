"""Random tars, compared with what Python's tarfile and json read."""

import io
import json
import random
import tarfile

import numpy as np
from helpers import rows_of

import slotline
from slotline import Loader

# For each extension, the Python value of a file's contents.
FIELDS = {
    "txt": lambda data: data.decode(),
    "json": lambda data: data.decode(),
    "cls": lambda data: np.int64(int(data)),
    "seg.png": lambda data: np.frombuffer(data, "u1"),
}


def contents(draw, field):
    match field:
        case "txt":
            return "".join(draw.choice(["a", "ü", "♥", "\n", "\0"]) for _ in range(draw.randrange(700))).encode()
        case "json":
            return json.dumps({"z": draw.random(), "a": [draw.randrange(1 << 90), None]}, indent=draw.choice([None, 1])).encode()
        case "cls":
            return b"%d" % draw.randrange(-(1 << 63), 1 << 63)
        case _:
            return draw.randbytes(draw.choice([0, 1, 511, 512, 513, 1024, draw.randrange(5000)]))


def key(draw, number, longest):
    parts = ["".join(draw.choice("abü -") for _ in range(draw.randrange(1, longest))) for _ in range(draw.randrange(1, 4))]
    return "/".join([*parts, f"x{number}"])


def write(draw, path, keys):
    """Writes a tar, with additional members that belong to no sample."""
    form = draw.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
    with tarfile.open(path, "w", format=form) as tar:
        for number in keys:
            name = key(draw, number, 12 if form == tarfile.USTAR_FORMAT else 90)
            for other in draw.sample([".hidden.txt", "__meta__/a.txt", "README", f"{name}.link.txt", f"folder.{number}"], draw.randrange(3)):
                info = tarfile.TarInfo(other)
                if "link" in other:
                    info.type, info.linkname = tarfile.SYMTYPE, "nothing"
                elif "folder" in other:
                    info.type = tarfile.DIRTYPE
                tar.addfile(info)
            for field in draw.sample([*FIELDS], len(FIELDS)):
                info = tarfile.TarInfo(f"{name}.{draw.choice([field, field.upper()])}")
                data = contents(draw, field)
                info.size, info.mtime = len(data), draw.choice([0, 1.5, 1 << 32])
                info.uname = draw.choice(["", "someone", "jemand ü"])
                tar.addfile(info, io.BytesIO(data))


def read(path):
    """Returns the samples. Files with the same key form a sample; the key is the path up to the
    first dot of its last part."""
    samples = {}
    with tarfile.open(path) as tar:
        for member in tar:
            folder, _, last = member.name.rpartition("/")
            base, _, field = last.partition(".")
            if member.isreg() and base and field and not member.name.startswith("__meta__"):
                data = tar.extractfile(member).read()
                samples.setdefault(f"{folder}/{base}", {})[field.lower()] = FIELDS[field.lower()](data)
    return list(samples.values())


def test_random_tars_are_read_as_by_tarfile(tmp_path):
    for seed in range(60):
        draw = random.Random(seed)
        shards = [tmp_path / f"{seed}-{shard}.tar" for shard in range(draw.randrange(1, 4))]
        for path in shards:
            write(draw, path, range(draw.randrange(1, 7)))
        expected = [sample for path in shards for sample in read(path)]
        dataset = slotline.open(tmp_path / f"{seed}-*.tar", index_files=None)
        found = rows_of(Loader(dataset, 4))
        assert len(found) == len(expected), seed
        for row, sample in zip(found, expected):
            assert row.keys() == sample.keys(), seed
            for name, value in sample.items():
                assert np.array_equal(row[name], value) and getattr(row[name], "dtype", str) == getattr(value, "dtype", str), (seed, name)
