"""Writes Arrow files with pyarrow, pandas, polars and Hugging Face Datasets, and the results of reading them.

    pip install pyarrow pandas polars datasets pillow
    python arrow.py
"""

import decimal
import json
import shutil
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather

FOLDER = Path(__file__).parent / "arrow"
ROWS = 10


def plain(value):
    """Converts a value to a form that JSON can represent."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, np.float16):
        return {"hex": value.tobytes().hex()}
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value


def flat(row, prefix=""):
    """Returns the fields of a row. The members of structs have dotted names."""
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


def kinds():
    """Returns a table of the kinds of columns that not every writer supports."""
    i = range(ROWS)
    words = ["", "twelve bytes", "more than twelve bytes", "ü" * 50]
    word = [words[3 * k % 4] for k in i]
    codes = pa.DictionaryArray.from_arrays(pa.array([k % 3 for k in i], pa.uint16()), pa.array([2**40, -1, 7]))
    return pa.table(
        {
            "text": pa.array(word, pa.string_view()),
            "data": pa.array([text.encode() for text in word], pa.binary_view()),
            "category": pa.array(word).dictionary_encode(),
            "codes": codes,
            "boxes": pa.DictionaryArray.from_arrays(pa.array([k // 4 for k in i], pa.int64()), pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))),
            "lists": pa.DictionaryArray.from_arrays(pa.array([k // 4 for k in i], pa.int8()), pa.array([[1.5], [], [2, 3]])),
            "flags": pa.DictionaryArray.from_arrays(pa.array([k // 5 for k in i], pa.int8()), pa.array([True, False])),
            "views": pa.DictionaryArray.from_arrays(pa.array([k % 4 for k in i], pa.int8()), pa.array(words, pa.string_view())),
            "list": pa.ListViewArray.from_arrays(pa.array([5, 0, 3, 3, 1, 2, 0, 4, 0, 0], pa.int32()), pa.array([2, 3, 0, 1, 1, 0, 7, 3, 0, 1], pa.int32()), pa.array(range(7), pa.int16())),
            "large": pa.array([[k + 0.5] * (k % 3) for k in i], pa.large_list_view(pa.float64())),
            "half": pa.array(np.array([k / 8 for k in i], np.float16)),
            "price": pa.array([decimal.Decimal(k * k - 30) / 100 for k in i], pa.decimal128(10, 2)),
            "small": pa.array([decimal.Decimal(k - 5) / 10 for k in i], pa.decimal32(5, 1)),
            "exact": pa.array([decimal.Decimal(10**37 + k) * (-1) ** k for k in i], pa.decimal128(38, 0)),
            "pair": pa.array([{"x": word[k], "y": k} for k in i], pa.struct([("x", pa.dictionary(pa.int32(), pa.string())), ("y", pa.int8())])),
            "after": pa.array([-k for k in i], pa.int32()),
        }
    )


def half(of):
    """Returns rows with half floats converted as NumPy converts them."""
    index = of.column_names.index("half")
    values = of["half"].to_numpy()
    found = [flat(row) for row in of.drop(["half"]).to_pylist()]
    return [dict([*list(row.items())[:index], ("half", plain(value)), *list(row.items())[index:]]) for row, value in zip(found, values)]


def of_polars():
    i = range(ROWS)
    return pl.DataFrame(
        {
            "text": ["ü" * k for k in i],
            "data": [bytes(range(2 * k)) for k in i],
            "number": pl.Series([k - 5 for k in i], dtype=pl.Int16),
            "flag": [k % 3 == 0 for k in i],
            "category": pl.Series([f"category {k % 3}" for k in i], dtype=pl.Categorical),
            "enum": pl.Series(["low" if k % 4 else "high" for k in i], dtype=pl.Enum(["low", "high"])),
            "list": pl.Series([list(range(k % 4)) for k in i], dtype=pl.List(pl.Int32)),
            "fixed": pl.Series([[k, -k] for k in i], dtype=pl.Array(pl.Float32, 2)),
            "pair": [{"x": k, "name": f"a name of more than twelve bytes {k}"} for k in i],
            "price": pl.Series([decimal.Decimal(k) / 4 for k in i], dtype=pl.Decimal(10, 2)),
        }
    )


def deltas():
    """Writes streams in which dictionaries are extended, and streams in which they are replaced."""
    for name, delta, words in [("delta", True, ["a", "ab", "abc", "abcd"]), ("replaced", False, ["ab", "ca", "ab", "dbc"])]:
        batches = [
            pa.record_batch({"text": pa.DictionaryArray.from_arrays(pa.array([k % len(word) for k in range(len(word) + 1)], pa.int8()), list(word))})
            for word in words
        ]
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=delta)
        with pa.ipc.new_stream(FOLDER / f"{name}.arrow", batches[0].schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        if delta:
            with pa.ipc.new_file(FOLDER / "delta.feather", batches[0].schema, options=options) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            read = [pa.ipc.open_file(FOLDER / "delta.feather"), pa.ipc.open_stream(FOLDER / "delta.arrow")]
            assert read[0].read_all().to_pylist() == read[1].read_all().to_pylist()


def rows(of):
    of = of.set_column(of.column_names.index("when"), "when", of["when"].cast(pa.int64()))
    of = of.set_column(of.column_names.index("day"), "day", of["day"].cast(pa.int32()))
    return [flat(row) for row in of.to_pylist()]


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    whole = table()
    # A slice whose bitmaps start within a byte; an empty batch between two others.
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
                        "list": pa.array([[1], None, [2, None]], pa.list_(pa.int64())), "sound": [0, 1, 2],
                        # The second value is missing: here it has no index, and in the next column the index
                        # of a missing value.
                        "index": pa.array(["a", None, "a"]).dictionary_encode(),
                        "value": pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["a", None]))})
    feather.write_feather(missing, FOLDER / "missing.feather", compression="uncompressed")
    others = pa.table({"map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "deep": [[[1]]],
                       "category": pa.array(["a"]).dictionary_encode(), "none": pa.nulls(1), "decimal": pa.array([1]).cast(pa.decimal128(20)),
                       "strings": [["a"]], "number": [7]})
    others = others.append_column("views", pa.array([["a text of more than twelve bytes"]], pa.list_(pa.string_view())))
    others = others.append_column("wide", pa.array([1]).cast(pa.decimal256(50)))
    others = others.append_column("pairs", pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([{"x": 1}])))
    others = others.append_column("dense", pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array(["a"])]))
    others = others.append_column("sparse", pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([5])]))
    others = others.append_column("runs", pa.RunEndEncodedArray.from_arrays([1], [3]))
    others = others.append_column("after", pa.array(["after"]))
    with pa.ipc.new_file(FOLDER / "others.feather", others.schema) as writer:
        writer.write_table(others)

    more = kinds()
    for name, compression in [("kinds", None), ("kinds-zstd", "zstd")]:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(FOLDER / f"{name}.arrow", more.schema, options=options) as writer:
            # A slice of views keeps all buffers of the original, and does not start at their beginning.
            writer.write_table(more.slice(0, 7))
            writer.write_table(more.slice(7))
    deltas()
    frame = pd.DataFrame({"text": [f"text {k}" for k in range(ROWS)], "category": pd.Categorical([f"c{k % 3}" for k in range(ROWS)]),
                          "when": pd.date_range("2026-01-01", periods=ROWS), "number": range(ROWS)})
    frame.to_feather(FOLDER / "pandas.feather")
    frame["when"] = frame["when"].dt.as_unit("us").astype("int64")
    polars = of_polars()
    for name, compression in [("polars", "uncompressed"), ("polars-zstd", "zstd"), ("polars-lz4", "lz4")]:
        polars.write_ipc(FOLDER / f"{name}.feather", compression=compression)
    polars.write_ipc_stream(FOLDER / "polars.arrow")

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
    # Selects rows in another order, and saves them with Hugging Face's `save_to_disk`, which keeps that order.
    saved.select([3, 1, 2]).save_to_disk(FOLDER / "selected")
    expected = {
        "versions": {of.__name__: of.__version__ for of in [pa, pd, pl, datasets]},
        "table": rows(whole),
        "saved": [flat(row) for row in datasets.load_from_disk(FOLDER / "saved")],
        "selected": [flat(row) for row in datasets.load_from_disk(FOLDER / "selected")],
        "kinds": half(pa.ipc.open_stream(FOLDER / "kinds.arrow").read_all()),
        "delta": [flat(row) for row in pa.ipc.open_stream(FOLDER / "delta.arrow").read_all().to_pylist()],
        "replaced": [flat(row) for row in pa.ipc.open_stream(FOLDER / "replaced.arrow").read_all().to_pylist()],
        "pandas": frame.to_dict("records"),
        "polars": [flat(row) for row in polars.to_dicts()],
    }
    # All readers must get the same rows from each file.
    assert half(pa.ipc.open_stream(FOLDER / "kinds-zstd.arrow").read_all()) == expected["kinds"]
    assert pl.read_ipc(FOLDER / "polars-lz4.feather").to_dicts() == polars.to_dicts()
    for name in ["lz4", "zstd", "uncompressed"]:
        assert rows(feather.read_table(FOLDER / f"{name}.feather")) == expected["table"]
    assert rows(pa.ipc.open_stream(FOLDER / "stream.arrow").read_all()) == expected["table"]
    assert rows(pa.ipc.open_file(FOLDER / "file.arrow").read_all()) == expected["table"]
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
