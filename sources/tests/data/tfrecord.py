"""Writes TFRecord files, and the results of reading them by the package tfrecord.

    pip install tfrecord==1.14.6 && python tfrecord.py
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

# Removes this folder from the path: the script has the same name as the package.
sys.path.pop(0)

import numpy as np
from tfrecord.reader import sequence_loader, tfrecord_loader
from tfrecord.tools.tfrecord2idx import create_index
from tfrecord.writer import TFRecordWriter

FOLDER = Path(__file__).with_suffix("")


def value(found):
    if isinstance(found, bytes):
        return [len(found), hashlib.sha256(found).hexdigest()[:16]]
    return found.tolist()


def sequences():
    """Writes `tf.SequenceExample`s: videos with features of each frame and of the whole video. Some have no frames."""
    folder = FOLDER.with_name("sequences")
    folder.mkdir(exist_ok=True)
    path = folder / "video.tfrecord"
    writer = TFRecordWriter(str(path))
    for i in [3, 0, 1, 4]:
        writer.write(
            {"id": (f"video {i}".encode(), "byte"), "labels": (list(range(i)), "int"), "rate": (i / 7, "float")},
            {
                "word": ([[7 - j * 10**j] for j in range(i)], "int"),
                "rgb": ([bytes([i, j]) * 3 for j in range(i)], "byte"),
                "point": ([[j / 3, -0.0, j * 1e30] for j in range(i)], "float"),
            },
        )
    writer.close()

    def flat(name, steps):
        return value(b"".join(steps)) if name == "rgb" else [number for step in steps for number in value(step)]

    rows = []
    for context, lists in sequence_loader(str(path), None):
        row = {name: value(found) for name, found in context.items()} | {name: flat(name, steps) for name, steps in lists.items()}
        rows.append(dict(sorted(row.items())))
    (folder / "expected.json").write_text(json.dumps(rows) + "\n")


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
sequences()
