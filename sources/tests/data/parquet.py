"""Writes Parquet files with pyarrow and Hugging Face Datasets, and what they read from them.

    pip install pyarrow datasets pillow
    python parquet.py
"""

import json
import shutil
import tempfile
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from arrow import flat, rows, table

FOLDER = Path(__file__).parent / "parquet"

WAYS = {
    "snappy": {"compression": "snappy"},
    "plain": {"compression": "none", "use_dictionary": False, "row_group_size": 4},
    # Pages of a few rows, found by the page index.
    "index": {"compression": "zstd", "write_page_index": True, "data_page_size": 16, "write_batch_size": 2},
    "index-dictionary": {"compression": "none", "write_page_index": True, "data_page_size": 1, "write_batch_size": 3, "row_group_size": 7},
    "gzip-v2": {"compression": "gzip", "data_page_version": "2.0", "write_page_index": True, "data_page_size": 16, "write_batch_size": 2},
    "lz4": {"compression": "lz4", "row_group_size": 6},
}


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    whole = table()
    expected = {"versions": {"pyarrow": pa.__version__, "datasets": datasets.__version__}, "table": rows(whole)}
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
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "deep": [[[1]]],
        "decimal": pa.array([1]).cast(pa.decimal128(20)), "strings": [["a"]], "structs": [[{"a": 1, "b": 2}]], "number": [7],
    })
    pq.write_table(others, FOLDER / "others.parquet")
    datasets.disable_progress_bars()
    saved = datasets.load_from_disk(FOLDER.parent / "arrow" / "saved")
    saved.to_parquet(FOLDER / "saved.parquet", batch_size=4)
    expected["saved"] = [flat(row) for row in datasets.Dataset.from_parquet(str(FOLDER / "saved.parquet"), cache_dir=tempfile.mkdtemp())]
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
