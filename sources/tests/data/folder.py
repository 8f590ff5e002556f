"""Creates a folder with unusual names, and writes the samples that torchvision finds in it.

    pip install torchvision==0.29.2 && python folder.py

Symbolic links and empty folders can't be stored everywhere, so the test creates the folder again from `expected.json`.
"""

import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from torchvision.datasets import DatasetFolder
from torchvision.datasets.folder import IMG_EXTENSIONS

FILES = [
    "a/b/1.jpg", "a/b/c/2.png", "a/b-c/3.jpg", "a/b.c/4.jpg", "a/0.JPG", "a/z.jpeg.txt", "a/ b.jpg",
    "a-b/1.PnG", "a-b/10.jpg", "a-b/2.jpg", "a-b/.jpg", "a-b/.hidden.jpg", "a-b/.dir/x.jpg",
    "A/É.tiff", "A/E.tif", "A/é.webp", "A/e.ppm", "A/\U0001f600.bmp", "A/\uffee.pgm",
    "é/x.jpg", "e/x.JPEG", "10/x.jpg", "9/x.jpg", ".h/x.jpg", "none/x.txt", "top.jpg", "elsewhere.d/x.png",
]
FOLDERS = ["empty"]
# The path of each link, and its target relative to the folder of the link.
LINKS = [("a/linked.jpg", "b/1.jpg"), ("linked", "a/b"), ("e/folder", "../a/b-c"), ("e/dangling.jpg", "nowhere")]


def main():
    with tempfile.TemporaryDirectory() as root:
        root = Path(root)
        for file in FILES:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(file)
        for folder in FOLDERS:
            (root / folder).mkdir()
        for name, target in LINKS:
            os.symlink(target, root / name)
        folder = DatasetFolder(str(root), str, IMG_EXTENSIONS, allow_empty=True)
        expected = {
            "versions": {"torchvision": version("torchvision")},
            "files": FILES,
            "folders": FOLDERS,
            "links": LINKS,
            "classes": folder.classes,
            "samples": [[os.path.relpath(path, root), label] for path, label in folder.samples],
        }
    path = Path(__file__).with_suffix("") / "expected.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


main()
