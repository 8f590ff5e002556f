"""Transforms a picture, its mask and its boxes with torchvision, with given crops and flips, and writes the results.
tests/pipelines/torchvision.rs and tests/pipelines/masks_and_boxes.rs compare with these files.

Use: make.py, with torchvision 0.29 and Pillow 13 installed. Transforms are those of uint8 tensors, with antialiasing.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors
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

# The results of each operation on the upper left corner, one below the other. tests/pipelines/torchvision.rs has the same list.
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

# Masks and boxes. The colours of the palette differ from the class numbers; the resulting masks are grey.
classes = torch.from_numpy(((y // 7 * 5 + x // 9 * 3 + (x * y) // 400) % 21).astype(np.uint8))
mask = Image.fromarray(classes.numpy())
indexed = Image.fromarray(classes.numpy(), "P")
indexed.putpalette([(c * 37 + i * 91) % 256 for i in range(21) for c in range(3)])
indexed.save(folder / "mask.png", optimize=True)
Image.fromarray(classes.numpy().astype(np.uint16) * 300).save(folder / "mask16.png", optimize=True)
Image.fromarray((classes.numpy() % 2 > 0)).save(folder / "mask1.png", optimize=True)
mask = tv_tensors.Mask(classes)
boxes = [[10, 20, 80, 70], [0, 0, 120, 90], [30.5, 14.25, 31, 60.75], [90, 60, 119, 89], [0, 0, 3, 3]]
boxes = tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", canvas_size=(90, 120))


def both(f):
    return f(mask), f(boxes)


def padded(mode):
    f = lambda of: F.crop(F.pad(of, [6], padding_mode=mode), 2, 80, 48, 40)
    return f(mask), f(boxes) if mode == "constant" else None


cases = {
    "resized_crop": both(lambda of: F.resized_crop(of, 13, 22, 51, 70, [48, 40])),
    "resized_crop_flipped": both(lambda of: F.horizontal_flip(F.resized_crop(of, 13, 22, 51, 70, [48, 40]))),
    "enlarged_crop": both(lambda of: F.resized_crop(of, 60, 5, 20, 24, [48, 40])),
    "resize_center_crop": both(lambda of: F.center_crop(F.resize(of, [56]), [48, 40])),
    "center_crop": both(lambda of: F.center_crop(of, [100, 100])),
    "vertical_flip": both(F.vertical_flip),
    "flipped_resized": both(lambda of: F.resize(F.horizontal_flip(of), [37, 53])),
    "resized_twice": both(lambda of: F.resize(F.resize(of, [37, 53]), [64, 64])),
    **{f"padded_{mode}": padded(mode) for mode in ("constant", "edge", "reflect", "symmetric")},
}
with open(folder / "boxes.txt", "w") as lines:
    for name, (of_mask, of_boxes) in cases.items():
        Image.fromarray(of_mask.numpy()).save(folder / f"mask_{name}.png", optimize=True)
        if of_boxes is None:
            continue
        of_boxes = F.clamp_bounding_boxes(of_boxes)
        kept = F.sanitize_bounding_boxes(of_boxes)[1]
        for of_box, keep in zip(of_boxes.tolist(), kept.tolist()):
            print(name, *of_box, int(keep), file=lines)

# MixUp and CutMix of four small pictures, for given parameters.
from torchvision.transforms import v2

pictures = torch.from_numpy(np.random.default_rng(7).normal(size=(4, 3, 10, 12)).astype(np.float32))
labels = torch.tensor([2, 0, 0, 4])
x1, y1, x2, y2 = box = (3, 0, 9, 7)
mixes = [
    (v2.MixUp(num_classes=5), dict(lam=0.3)),
    (v2.CutMix(num_classes=5), dict(box=box, lam_adjusted=1.0 - (x2 - x1) * (y2 - y1) / 120)),
]
with open(folder / "mixed.f32", "wb") as file:
    file.write(pictures.numpy().tobytes())
    for mix, params in mixes:
        for of in (pictures, labels):
            file.write(mix.transform(of, dict(labels=labels, batch_size=4, **params)).numpy().tobytes())
