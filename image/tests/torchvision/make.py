"""Writes what torchvision makes of a picture with given crops and flips: the pictures that tests/torchvision.rs compares with.

Use: make.py, with torchvision 0.29 and Pillow 13 installed. Transforms are those of uint8 tensors, with antialiasing.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F

folder = Path(__file__).parent
y, x = np.mgrid[0:90, 0:120]
noise = np.random.default_rng(3).integers(-12, 13, (3, 90, 120))
shapes = [np.sin(x / 9 + c) * 60 + np.cos(y / 7 - x / 23 + 2 * c) * 45 + 128 for c in range(3)]
picture = torch.from_numpy((np.stack(shapes) + noise).clip(0, 255).astype(np.uint8))


def save(name, tensor):
    Image.fromarray(tensor.permute(1, 2, 0).contiguous().numpy()).save(folder / f"{name}.png", optimize=True)


crop = F.resized_crop(picture, 13, 22, 51, 70, [48, 40], antialias=True)
save("picture", picture)
save("resized_crop", crop)
save("resized_crop_flipped", F.horizontal_flip(crop))
save("enlarged_crop", F.resized_crop(picture, 60, 5, 20, 24, [48, 40], antialias=True))
save("resize_center_crop", F.center_crop(F.resize(picture, [56], antialias=True), [48, 40]))
save("vertical_flip", F.vertical_flip(picture))
for mode in ("constant", "edge", "reflect", "symmetric"):
    save(f"padded_{mode}", F.crop(F.pad(picture, [6], padding_mode=mode), 2, 80, 48, 40))
