"""Writes TFRecord files and what the package tfrecord reads from them.

    pip install tfrecord==1.14.6 && python tfrecord.py
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

# This script has the name of the package.
sys.path.pop(0)

import numpy as np
from tfrecord.reader import tfrecord_loader
from tfrecord.tools.tfrecord2idx import create_index
from tfrecord.writer import TFRecordWriter

FOLDER = Path(__file__).with_suffix("")


def value(found):
    if isinstance(found, bytes):
        return [len(found), hashlib.sha256(found).hexdigest()[:16]]
    return found.tolist()


def main():
    FOLDER.mkdir(exist_ok=True)
    expected = {"versions": {"tfrecord": version("tfrecord"), "numpy": np.__version__}}
    for file in range(2):
        path = FOLDER / f"{file}.tfrecord"
        writer = TFRecordWriter(str(path))
        for i in range(5 * file, 5 * file + 5):
            writer.write({
                "image": (bytes(range(i)) * 20, "byte"),
                "label": (i - 3 if i else -(2**63), "int"),
                "weight": (i / 7, "float"),
                "box": ([0.5, i, -1e30, float("inf")], "float"),
                "tokens": ([j * 10**j for j in range(i + 1)], "int"),
                "größe": ([2**40 + i, -i], "int"),
            })
        writer.close()
        create_index(str(path), str(path.with_suffix(".tfindex")))
        records = tfrecord_loader(str(path), None)
        expected[path.name] = [{name: value(found) for name, found in sorted(record.items())} for record in records]
    text = json.dumps(expected, ensure_ascii=False).replace("Infinity", "null")
    (FOLDER / "expected.json").write_text(text + "\n")


main()
