"""Makes the missing files of the sections about files, 6 GB in all, with the packages that usually write such files.

Use: make_files.py --data DIR

A sample of folders, tars, bucket and the binaries of tables begins with two little-endian u32: its index, and an offset
into `block.u8`. The bytes of `block.u8` from that offset on follow, so that a reader can check every byte.

    block.u8                          4 MiB of random bytes
    folder/00 to folder/19            20,000 files of 50 to 150 KB (folders)
    tars/shard-000000.tar to 000019   the same samples, 1,000 in each; tars/index.json has shard, offset and length of each (tars, bucket, tar-index)
    litdata                           the first 4,000 of them in chunks of 64 MB (bucket)
    tokens.bin, tokens.idx            200 million tokens in documents of 500 to 1,500 (token-files)
    numbers.arrow, numbers.parquet    200,000 rows of 100 columns of int32: row r has 100 r + c in column c (tables)
    whole.parquet                     1,000,000 rows of 20 columns of int32: row r has 20 r + c in column c (tables)
    binaries.arrow, binaries.parquet  10,000 rows of 20,000 bytes (tables)

Files that need a package that is not installed are left out.
"""

import argparse
import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np

BLOCK = 4 << 20
SAMPLES, SHARD, CLASSES = 20_000, 1_000, 20
OBJECTS = 4_000  # the samples that bucket reads
TOKENS, STEP, MODULUS = 200_000_000, 7_919, 50_257  # as in token-crops
ROWS, COLUMNS, BINARIES, BINARY = 200_000, 100, 10_000, 20_000
WHOLE, WHOLE_COLUMNS = 1_000_000, 20


class Samples:
    """The contents of all samples, which are generated from one seed."""

    def __init__(self, folder):
        path = folder / "block.u8"
        if not path.exists():
            np.random.default_rng(1).integers(0, 256, BLOCK, np.uint8).tofile(path)
        self.block = path.read_bytes()
        random = np.random.default_rng(2)
        self.lens = random.integers(50_000, 150_001, SAMPLES).tolist()
        self.places = random.integers(0, BLOCK - 150_000, SAMPLES).tolist()

    def get(self, index, size=None):
        place = self.places[index]
        head = np.array([index, place], "<u4").tobytes()
        return head + self.block[place : place + (size or self.lens[index]) - len(head)]


def folder(samples, to):
    for index in range(SAMPLES):
        file = to / f"{index % CLASSES:02}" / f"{index:05}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(samples.get(index))


def tars(samples, to):
    to.mkdir()
    places = []
    for shard in range(SAMPLES // SHARD):
        path = to / f"shard-{shard:06}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for index in range(shard * SHARD, (shard + 1) * SHARD):
                info = tarfile.TarInfo(f"{index:05}.bin")
                info.size = samples.lens[index]
                tar.addfile(info, io.BytesIO(samples.get(index)))
        with tarfile.open(path) as tar:
            places += [[shard, member.offset_data, member.size] for member in tar]
    (to / "index.json").write_text(json.dumps(places))


def litdata(samples, to):
    from litdata.streaming.writer import BinaryWriter

    to.mkdir()
    writer = BinaryWriter(str(to), chunk_bytes="64MB")
    for index in range(OBJECTS):
        writer.add_item(index, samples.get(index))
    writer.done()
    writer.merge()


def tokens(_samples, to):
    tokens = (np.arange(TOKENS, dtype=np.int64) * STEP % MODULUS).astype(np.uint16)
    lens = np.random.default_rng(3).integers(500, 1_501, 2 * TOKENS // 500, np.int32)
    ends = np.cumsum(lens, dtype=np.int64)
    count = int(np.searchsorted(ends, TOKENS)) + 1
    lens[count - 1] -= ends[count - 1] - TOKENS
    starts = np.append(0, ends[: count - 1]) * tokens.itemsize
    with open(to.with_suffix(".idx"), "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + np.array([1], "<u8").tobytes() + b"\x08")
        file.write(np.array([count, count + 1], "<u8").tobytes())
        file.write(lens[:count].tobytes() + starts.tobytes() + np.arange(count + 1, dtype=np.int64).tobytes())
    tokens.tofile(to)


def numbers(_samples, to, rows=ROWS, columns=COLUMNS):
    import pyarrow

    first = np.arange(rows, dtype=np.int32) * columns
    write(pyarrow.table({f"c{column:02}": first + column for column in range(columns)}), to)


def whole(samples, to):
    numbers(samples, to, WHOLE, WHOLE_COLUMNS)


def binaries(samples, to):
    import pyarrow

    column = pyarrow.array([samples.get(index, BINARY) for index in range(BINARIES)], pyarrow.binary())
    write(pyarrow.table({"data": column}), to)


def write(table, to):
    import pyarrow.parquet

    if to.name.endswith(".parquet"):
        pyarrow.parquet.write_table(table, to)
    else:
        with pyarrow.ipc.new_stream(str(to), table.schema) as stream:
            stream.write_table(table, max_chunksize=1_000)


PARTS = {
    "folder": folder,
    "tars": tars,
    "litdata": litdata,
    "tokens.bin": tokens,
    "numbers.arrow": numbers,
    "numbers.parquet": numbers,
    "binaries.arrow": binaries,
    "binaries.parquet": binaries,
    "whole.parquet": whole,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=Path)
    data = parser.parse_args().data
    data.mkdir(parents=True, exist_ok=True)
    samples = Samples(data)
    for name, make in PARTS.items():
        path, new = data / name, data / f"new-{name}"
        if path.exists():
            continue
        if new.is_dir():
            shutil.rmtree(new)
        try:
            make(samples, new)
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        if name == "tokens.bin":
            new.with_suffix(".idx").rename(path.with_suffix(".idx"))
        new.rename(path)


if __name__ == "__main__":
    main()
