"""Writes manifests, and the results of reading them by Hugging Face's datasets.

    pip install datasets==5.2.0 Pillow && python manifest.py
"""

import hashlib
import json
import tempfile
from importlib.metadata import version
from pathlib import Path

import datasets

FOLDER = Path(__file__).with_suffix("")

ROWS = [
    ("a.png", 3, 0.5, True, "one"),
    ("sub/b.PNG", -1, 2.0, False, 'quote " and, comma'),
    ("sub/ü.png", 9007199254740993, 1e-3, True, "two\nlines"),
    ("a.png", 0, -7.25, False, "ünï"),
]
NAMES = ["file_name", "count", "weight", "good", "note"]


def read(name):
    """Reads the rows with datasets, which looks for `metadata.*` in a folder."""
    with tempfile.TemporaryDirectory() as cache:
        files = {"train": [str(FOLDER / name / "**")]}
        loaded = datasets.load_dataset("imagefolder", data_files=files, split="train", cache_dir=cache, drop_labels=True)
        loaded = loaded.cast_column("image", datasets.Image(decode=False))
        rows = []
        for row in loaded:
            image = row.pop("image")
            data = image["bytes"] or Path(image["path"]).read_bytes()
            rows.append({"data": [len(data), hashlib.sha256(data).hexdigest()[:16]], **row})
        return rows


def main():
    import csv

    for name in ["csv", "jsonl"]:
        folder = FOLDER / name
        (folder / "sub").mkdir(parents=True, exist_ok=True)
        for i, path in enumerate(["a.png", "sub/b.PNG", "sub/ü.png"]):
            (folder / path).write_bytes(bytes([i]) * (5 * i))
    with open(FOLDER / "csv/metadata.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(NAMES)
        writer.writerows(ROWS)
    with open(FOLDER / "jsonl/metadata.jsonl", "w", encoding="utf-8") as file:
        for row in ROWS:
            file.write(json.dumps(dict(zip(NAMES, row)), ensure_ascii=False) + "\n")
    expected = {"versions": {"datasets": version("datasets")}, "csv": read("csv"), "jsonl": read("jsonl")}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


main()
