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

# One below the other: what each operation makes of the upper left corner. tests/torchvision.rs has the same list.
corner = picture[:, :48, :64].contiguous()
nearest, bilinear = F.InterpolationMode.NEAREST, F.InterpolationMode.BILINEAR


def affine(interpolation, **parameters):
    identity = dict(angle=0.0, translate=[0, 0], scale=1.0, shear=[0.0, 0.0], interpolation=interpolation)
    return F.affine(corner, **{**identity, **parameters})


def shear(x, y, interpolation, fill=None):
    degrees = [np.degrees(np.arctan(x)), np.degrees(np.arctan(y))]
    return affine(interpolation, shear=degrees, center=[0, 0], fill=fill)


operations = [
    F.adjust_brightness(corner, 0.6),
    F.adjust_brightness(corner, 1.7),
    F.adjust_contrast(corner, 0.3),
    F.adjust_contrast(corner, 1.9),
    F.adjust_saturation(corner, 0.0),
    F.adjust_saturation(corner, 1.8),
    F.adjust_hue(corner, -0.4),
    F.adjust_hue(corner, 0.07),
    F.adjust_sharpness(corner, 0.1),
    F.adjust_sharpness(corner, 1.9),
    F.rgb_to_grayscale(corner, 3),
    F.posterize(corner, 3),
    F.solarize(corner, 100.5),
    F.invert(corner),
    F.autocontrast(F.adjust_contrast(corner, 0.5)),
    F.equalize(corner),
    F.gaussian_blur(corner, [9, 5], [1.2, 0.7]),
    F.gaussian_blur(corner, [23, 23], [2.0, 2.0]),
    shear(0.27, 0.0, nearest),
    shear(0.0, -0.37, bilinear, [10.0, 20.0, 30.0]),
    affine(nearest, translate=[-13, 0]),
    affine(bilinear, translate=[0, 7], fill=[200.0, 100.0, 0.0]),
    F.rotate(corner, 25.0, interpolation=nearest),
    F.rotate(corner, -100.0, interpolation=bilinear, fill=[1.0, 2.0, 3.0]),
    F.erase(corner, 5, 7, 20, 30, torch.tensor([9, 99, 200])[:, None, None]),
    F.equalize(F.adjust_hue(F.solarize(F.autocontrast(F.adjust_brightness(corner, 0.8)), 128), 0.3)),
]
save("operations", torch.cat(operations, 1))
