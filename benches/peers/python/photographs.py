"""Writes the photographs that come with scikit-image and scikit-learn as PNGs, for `report --photographs`.

Use: photographs.py FOLDER
"""

import sys
from pathlib import Path

import skimage
import sklearn.datasets
from PIL import Image

SKIMAGE = ["astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg"]
SKLEARN = ["china.jpg", "flower.jpg"]


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    paths = [Path(skimage.__file__).parent / "data" / name for name in SKIMAGE]
    paths += [Path(sklearn.datasets.__file__).parent / "images" / name for name in SKLEARN]
    for path in paths:
        Image.open(path).convert("RGB").save(folder / f"{path.stem}.png")


if __name__ == "__main__":
    main()
