"""Writes Arrow files with pyarrow and Hugging Face Datasets, and what they read from them.

    pip install pyarrow datasets pillow
    python arrow.py
"""

import json
import shutil
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.feather as feather

FOLDER = Path(__file__).parent / "arrow"
ROWS = 10


def plain(value):
    """Returns a value as JSON can hold it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def flat(row, prefix=""):
    """Returns the fields of a row, with those of structs by dotted names."""
    fields = {}
    for name, value in row.items():
        if isinstance(value, dict):
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = plain(value)
    return fields


def table():
    i = range(ROWS)
    return pa.table(
        {
            "i8": pa.array([-k for k in i], pa.int8()),
            "u16": pa.array([1000 * k for k in i], pa.uint16()),
            "i64": pa.array([k - 2**62 for k in i], pa.int64()),
            "f32": pa.array([k / 4 for k in i], pa.float32()),
            "f64": pa.array([1e300 * k for k in i], pa.float64()),
            "flag": pa.array([k % 3 == 0 for k in i], pa.bool_()),
            "text": pa.array(["ü" * k for k in i], pa.string()),
            "long": pa.array([f"row {k}" for k in i], pa.large_string()),
            "data": pa.array([bytes(range(k)) for k in i], pa.binary()),
            "wide": pa.array([bytes([k]) * (5 * k % 7) for k in i], pa.large_binary()),
            "four": pa.array([bytes([k, 1, 2, 3]) for k in i], pa.binary(4)),
            "list": pa.array([list(range(k % 4)) for k in i], pa.list_(pa.int32())),
            "large": pa.array([[k + 0.5] * (k % 3) for k in i], pa.large_list(pa.float64())),
            "fixed": pa.array([[k, k + 1, k + 2] for k in i], pa.list_(pa.int16(), 3)),
            "when": pa.array(list(i), pa.timestamp("us")),
            "day": pa.array(list(i), pa.date32()),
            "pair": pa.array([{"x": k, "name": f"n{k}"} for k in i], pa.struct([("x", pa.int64()), ("name", pa.string())])),
        }
    )


def rows(of):
    of = of.set_column(of.column_names.index("when"), "when", of["when"].cast(pa.int64()))
    of = of.set_column(of.column_names.index("day"), "day", of["day"].cast(pa.int32()))
    return [flat(row) for row in of.to_pylist()]


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    whole = table()
    # A slice starts in the middle of bytes of bits; an empty batch is between two others.
    batches = [*whole.slice(0, 3).to_batches(), *whole.slice(0, 0).to_batches(), *whole.slice(3).to_batches()]
    batches.insert(1, pa.RecordBatch.from_pylist([], schema=whole.schema))
    with pa.ipc.new_stream(FOLDER / "stream.arrow", whole.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with pa.ipc.new_file(FOLDER / "file.arrow", whole.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    for name in ["lz4", "zstd", "uncompressed"]:
        feather.write_feather(whole, FOLDER / f"{name}.feather", compression=name, chunksize=4)

    missing = pa.table({"number": pa.array([1, None, 3]), "text": pa.array(["a", "b", None]), "flag": [None, True, False],
                        "list": pa.array([[1], None, [2, None]], pa.list_(pa.int64())), "sound": [0, 1, 2]})
    feather.write_feather(missing, FOLDER / "missing.feather", compression="uncompressed")
    others = pa.table({"map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "deep": [[[1]]],
                       "category": pa.array(["a"]).dictionary_encode(), "none": pa.nulls(1), "decimal": pa.array([1]).cast(pa.decimal128(20)),
                       "strings": [["a"]], "number": [7]})
    feather.write_feather(others, FOLDER / "others.feather", compression="uncompressed")

    features = datasets.Features({
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["no", "yes"]),
        "ids": datasets.Sequence(datasets.Value("int32")),
        "box": datasets.Sequence(datasets.Value("float32"), length=4),
        "image": datasets.Image(decode=False),
        "answer": {"start": datasets.Value("int64"), "text": datasets.Value("string")},
    })
    saved = datasets.Dataset.from_dict({
        "text": [f"text {k}" for k in range(ROWS)],
        "label": [k % 2 for k in range(ROWS)],
        "ids": [list(range(k)) for k in range(ROWS)],
        "box": [[k, 0, 1, 0.5] for k in range(ROWS)],
        "image": [{"bytes": bytes([0xFF, 0xD8, 0xFF, k]), "path": f"{k}.jpg"} for k in range(ROWS)],
        "answer": [{"start": k, "text": "a" * k} for k in range(ROWS)],
    }, features=features)
    datasets.disable_progress_bars()
    saved.save_to_disk(FOLDER / "saved", num_shards=2)
    # Saved after a selection, in another order, which the data then have.
    saved.select([3, 1, 2]).save_to_disk(FOLDER / "selected")
    expected = {
        "versions": {"pyarrow": pa.__version__, "datasets": datasets.__version__},
        "table": rows(whole),
        "saved": [flat(row) for row in datasets.load_from_disk(FOLDER / "saved")],
        "selected": [flat(row) for row in datasets.load_from_disk(FOLDER / "selected")],
    }
    # What the readers read from each file is the same.
    for name in ["lz4", "zstd", "uncompressed"]:
        assert rows(feather.read_table(FOLDER / f"{name}.feather")) == expected["table"]
    assert rows(pa.ipc.open_stream(FOLDER / "stream.arrow").read_all()) == expected["table"]
    assert rows(pa.ipc.open_file(FOLDER / "file.arrow").read_all()) == expected["table"]
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
