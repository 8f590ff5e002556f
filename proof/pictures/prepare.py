"""Cuts the pictures that come with scikit-image and scikit-learn into a folder of classes: each picture is a class.

Use: prepare.py FOLDER

A picture is divided into 4 × 3 cells. The crops for training are from nine of them, and those that are held out from the other
three, one in each row of cells, so that no pixel is in both. FOLDER/train and FOLDER/held-out have a folder for each class.
"""

import random
import sys
from pathlib import Path

import skimage
import sklearn.datasets
from PIL import Image

SKIMAGE = [
    *("astronaut.png", "brick.png", "camera.png", "chelsea.png", "coffee.png", "coins.png", "grass.png", "gravel.png"),
    *("hubble_deep_field.jpg", "ihc.png", "moon.png", "motorcycle_left.png", "page.png", "rocket.jpg"),
]
SKLEARN = ["china.jpg", "flower.jpg"]
COLUMNS, ROWS, CROPS = 4, 3, 12


def main():
    folder = Path(sys.argv[1])
    paths = [Path(skimage.__file__).parent / "data" / name for name in SKIMAGE]
    paths += [Path(sklearn.datasets.__file__).parent / "images" / name for name in SKLEARN]
    draw = random.Random(42)
    for path in paths:
        picture = Image.open(path).convert("RGB")
        width, height = picture.width // COLUMNS, picture.height // ROWS
        for cell in range(COLUMNS * ROWS):
            row, column = divmod(cell, COLUMNS)
            part = "held-out" if column == (3 * row + len(path.stem)) % COLUMNS else "train"
            to = folder / part / path.stem
            to.mkdir(parents=True, exist_ok=True)
            for crop in range(CROPS):
                side = round(min(width, height) * draw.uniform(0.7, 1))
                x = column * width + draw.randint(0, width - side)
                y = row * height + draw.randint(0, height - side)
                square = picture.crop((x, y, x + side, y + side)).resize((96, 96), Image.Resampling.BICUBIC)
                # Both formats, as real folders have.
                if crop % 4 == 0:
                    square.save(to / f"{cell:02}-{crop:02}.png")
                else:
                    square.save(to / f"{cell:02}-{crop:02}.jpg", quality=90)


if __name__ == "__main__":
    main()
