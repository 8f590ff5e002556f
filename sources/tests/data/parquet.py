"""Writes Parquet files with pyarrow, pandas, polars and Hugging Face Datasets, and the results of reading them.

    pip install pyarrow pandas polars datasets pillow
    python parquet.py
"""

import decimal
import json
import shutil
import tempfile
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from arrow import ROWS, flat, half, of_polars, rows, table

FOLDER = Path(__file__).parent / "parquet"

WAYS = {
    "snappy": {"compression": "snappy"},
    "plain": {"compression": "none", "use_dictionary": False, "row_group_size": 4},
    # Small pages of a few rows, which the page index lists.
    "index": {"compression": "zstd", "write_page_index": True, "data_page_size": 16, "write_batch_size": 2},
    "index-dictionary": {"compression": "none", "write_page_index": True, "data_page_size": 1, "write_batch_size": 3, "row_group_size": 7},
    "gzip-v2": {"compression": "gzip", "data_page_version": "2.0", "write_page_index": True, "data_page_size": 16, "write_batch_size": 2},
    "lz4": {"compression": "lz4", "row_group_size": 6},
    "encodings": {"compression": "none", "use_dictionary": False, "column_encoding": {
        "i64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "long": "DELTA_LENGTH_BYTE_ARRAY", "f32": "BYTE_STREAM_SPLIT",
        "data": "DELTA_BYTE_ARRAY", "flag": "RLE"}},
}


def kinds():
    """Returns a table of the kinds of columns that not every writer supports."""
    i = range(ROWS)
    times = [0, 1, -1, 10**18 + 7, -(10**18), 2**63 - 1, -(2**63) + 1, 86_400_000_000_000, -86_400_000_000_001, 5]
    return pa.table({
        "half": pa.array(np.array([k / 8 for k in i], np.float16)),
        "when": pa.array(times, pa.timestamp("ns")),
        "category": pa.array([f"category {k % 3}" for k in i]).dictionary_encode(),
        "small": pa.array([decimal.Decimal(k - 5) / 10 for k in i], pa.decimal128(5, 1)),
        "price": pa.array([decimal.Decimal(k * k - 30) / 100 for k in i], pa.decimal128(12, 2)),
        "exact": pa.array([decimal.Decimal(10**37 + k) * (-1) ** k for k in i], pa.decimal128(38, 0)),
        "prices": pa.array([[decimal.Decimal(k) / 4] * (k % 3) for k in i], pa.list_(pa.decimal128(12, 2))),
        "views": pa.array([f"a text of more than twelve bytes {k}" for k in i], pa.string_view()),
    })


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    whole = table()
    expected = {"versions": {of.__name__: of.__version__ for of in [pa, pd, pl, datasets]}, "table": rows(whole)}
    for name, options in WAYS.items():
        pq.write_table(whole, FOLDER / f"{name}.parquet", **options)
        assert rows(pq.read_table(FOLDER / f"{name}.parquet")) == expected["table"]
    missing = pa.table({
        "number": pa.array([1, None, 3]), "text": pa.array(["a", "b", None]), "flag": [None, True, False],
        "list": pa.array([[1], None, [2, None]], pa.list_(pa.int64())), "sound": [0, 1, 2],
        "pair": pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int8())])),
    })
    pq.write_table(missing, FOLDER / "missing.parquet")
    others = pa.table({
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "deep": [[[1]]], "none": pa.nulls(1),
        "wide": pa.array([1]).cast(pa.decimal256(50)),
        "decimal": pa.array([1]).cast(pa.decimal128(20)), "strings": [["a"]], "structs": [[{"a": 1, "b": 2}]], "number": [7],
    })
    pq.write_table(others, FOLDER / "others.parquet")
    more = kinds()
    for name, integers in [("kinds", False), ("kinds-integers", True)]:
        pq.write_table(more, FOLDER / f"{name}.parquet", use_deprecated_int96_timestamps=True, store_decimal_as_integer=integers)
    more = more.set_column(1, "when", more["when"].cast(pa.int64()))
    expected["kinds"] = half(more)
    # A timestamp that 64 bits of nanoseconds can't hold.
    late = pa.table({"when": pa.array([0, 253_402_300_799], pa.timestamp("s"))})
    pq.write_table(late, FOLDER / "late.parquet", use_deprecated_int96_timestamps=True)
    frame = pd.DataFrame({"text": [f"text {k}" for k in range(ROWS)], "category": pd.Categorical([f"c{k % 3}" for k in range(ROWS)]), "number": range(ROWS)})
    frame.to_parquet(FOLDER / "pandas.parquet")
    expected["pandas"] = frame.to_dict("records")
    polars = of_polars()
    polars.write_parquet(FOLDER / "polars.parquet", row_group_size=4)
    assert pl.read_parquet(FOLDER / "polars.parquet").to_dicts() == polars.to_dicts()
    expected["polars"] = [flat(row) for row in polars.to_dicts()]
    datasets.disable_progress_bars()
    saved = datasets.load_from_disk(FOLDER.parent / "arrow" / "saved")
    saved.to_parquet(FOLDER / "saved.parquet", batch_size=4)
    expected["saved"] = [flat(row) for row in datasets.Dataset.from_parquet(str(FOLDER / "saved.parquet"), cache_dir=tempfile.mkdtemp())]
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
