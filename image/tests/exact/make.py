"""Transforms PIL images with torchvision, and writes a digest of each result to `cases.txt`: a line for each picture and pipeline.

Use: make.py, with torchvision 0.29 and Pillow 13 installed. `photograph.jpg` is written only if it is missing.
"""

import itertools
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode, autoaugment, v2
from torchvision.transforms import functional as F

folder = Path(__file__).parent
tests = folder.parent
draw = random.Random(4)
lines = []


def pixels(seed, height, width):
    i = np.arange(height * width * 3, dtype=np.uint32)
    return ((i * i * np.uint32(seed) + i * np.uint32(31)) >> np.uint32(7)).astype(np.uint8).reshape(height, width, 3)


def opened(name, exif):
    if name[0].isdigit():
        return Image.fromarray(pixels(*map(int, name.split(":"))))
    image = Image.open(tests / name)
    return (ImageOps.exif_transpose(image) if exif else image).convert("RGB")


def digest(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{state:016x}"


def case(name, text, make, drawn=None):
    """Returns the result of a pipeline with given choices: top, left, height and width of crops, or operations of a policy."""
    result = make(opened(name, "exif" in text))
    if isinstance(result, Image.Image):
        kind, data = "u8", np.asarray(result).transpose(2, 0, 1).tobytes()
    else:
        kind, data = "f32", result.numpy().tobytes()
    drawn = "-" if drawn is None else " ".join(map(str, drawn))
    lines.append("|".join([name, text, drawn, kind, digest(data)]))


if not (folder / "photograph.jpg").exists():
    y, x = np.mgrid[0:375, 0:500]
    noise = np.random.default_rng(1).normal(size=(375, 500, 3)) * 6
    shapes = [128 + 60 * np.sin(x / (9 + 7 * i) + y / (31 - i)) + 40 * ((x // 40 + y // (30 + i)) % 2) for i in range(3)]
    shapes = (np.dstack(shapes) + noise).clip(0, 255).astype(np.uint8)
    Image.fromarray(shapes).save(folder / "photograph.jpg", quality=60)

FILTERS = {mode.value: mode for mode in InterpolationMode}
PHOTOGRAPH = "exact/photograph.jpg"

# Sizes.
sizes = ["1:1:1", "2:3:2", "3:37:53", "5:90:120", "7:150:200", "9:5:700", "11:400:3"]
targets = [(1, 1), (7, 5), (64, 64), (224, 224), (50, 400), (37, 53)]
for name, size, (word, mode) in itertools.product(sizes, targets, FILTERS.items()):
    word = word.replace("-", "_")
    case(name, f"resize({list(size)}, {word})", lambda it: F.resize(it, list(size), mode))
for name, side in itertools.product(sizes[2:5], (6, 31, 56)):
    make = lambda it: F.center_crop(F.resize(it, side), [40, 48])
    case(name, f"resize({side}), center_crop([40, 48])", make)
    make = lambda it: F.center_crop(F.resize(it, side, max_size=side + 4), [20, 31])
    case(name, f"resize({side}, max_size={side + 4}), center_crop([20, 31])", make)

# Tensors of bytes, on a CPU with AVX2.
for name, size, word in itertools.product(sizes[2:5], targets[1:], ("bilinear", "bicubic", "lanczos")):
    make = lambda it: F.to_pil_image(v2.functional.resize(F.pil_to_tensor(it), list(size), FILTERS[word]))
    case(name, f"tensor {word} {size[0]} {size[1]}", make)

# Crops.
for i in range(90):
    name, (height, width) = [(PHOTOGRAPH, (375, 500)), ("7:150:200", (150, 200)), ("5:90:120", (90, 120))][i % 3]
    h, w = draw.randint(1, height), draw.randint(1, width)
    crop = draw.randint(0, height - h), draw.randint(0, width - w), h, w
    word = ["bilinear", "bicubic", "nearest", "lanczos", "box", "hamming"][i // 3 % 6]
    side = draw.choice([17, 64, 96])
    make = lambda it: F.resized_crop(it, *crop, [side, side], FILTERS[word])
    case(name, f"random_resized_crop({side}, interpolation={word})", make, crop)
    case(name, f"random_resized_crop({side}), hflip(1), vflip(1)", lambda it: F.vflip(F.hflip(F.resized_crop(it, *crop, [side, side]))), crop)
mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
for crop in [(30, 41, 222, 290), (0, 0, 375, 500), (100, 200, 150, 130), (370, 490, 5, 10)]:
    small = lambda it: F.hflip(F.resized_crop(it, *crop, [224, 224]))
    case(PHOTOGRAPH, "random_resized_crop(224), hflip(1)", lambda it: F.to_tensor(small(it)), crop)
    make = lambda it: F.normalize(F.to_tensor(small(it)), mean, std)
    case(PHOTOGRAPH, "random_resized_crop(224), hflip(1), normalize(imagenet)", make, crop)
for mode, name in itertools.product(["constant", "edge", "reflect", "symmetric"], [PHOTOGRAPH, "5:90:120"]):
    fill = ", fill=[7, 200, 90]" if mode == "constant" else ""
    pad = lambda it: F.pad(it, [3, 5, 7, 9], (7, 200, 90) if fill else 0, mode)
    crop = (1, 2, 88, 100)
    text = f"random_crop([88, 100], padding=[3, 5, 7, 9]{fill}, padding_mode={mode})"
    case(name, text, lambda it: F.crop(pad(it), *crop), crop)
    case(name, f"{text}, hflip(1), resize([30, 41])", lambda it: F.resize(F.hflip(F.crop(pad(it), *crop)), [30, 41]), crop)
for name in ["5:90:120", PHOTOGRAPH]:
    case(name, "hflip(1), vflip(1), resize([31, 47], lanczos), resize([50, 50])", lambda it: F.resize(F.resize(F.vflip(F.hflip(it)), [31, 47], InterpolationMode.LANCZOS), [50, 50]))
    case(name, "center_crop([101, 131]), resize(57), center_crop(57)", lambda it: F.center_crop(F.resize(F.center_crop(it, [101, 131]), 57), 57))

# Colours.
operations = {
    "color_jitter(brightness=[{0}, {0}])": (F.adjust_brightness, (0.0, 0.3, 0.9999, 1.7)),
    "color_jitter(contrast=[{0}, {0}])": (F.adjust_contrast, (0.0, 0.61, 1.4)),
    "color_jitter(saturation=[{0}, {0}])": (F.adjust_saturation, (0.0, 0.42, 2.3)),
    "color_jitter(hue=[{0}, {0}])": (F.adjust_hue, (-0.5, -0.21, 0.004, 0.1, 0.5)),
    "random_adjust_sharpness({0}, 1)": (F.adjust_sharpness, (0.0, 0.5, 1.9)),
    "random_posterize({0}, 1)": (F.posterize, (1, 3, 8)),
    "random_solarize({0}, 1)": (F.solarize, (0, 100.5, 255)),
    "random_grayscale(1)": (lambda it, _: F.to_grayscale(it, 3), (0,)),
    "random_invert(1)": (lambda it, _: F.invert(it), (0,)),
    "random_autocontrast(1)": (lambda it, _: F.autocontrast(it), (0,)),
    "random_equalize(1)": (lambda it, _: F.equalize(it), (0,)),
}
for name in ["13:150:170", PHOTOGRAPH, "torchvision/picture.png"]:
    for text, (operation, values) in operations.items():
        for value in values:
            text_of = text.format(value)
            case(name, f"center_crop([90, 120]), {text_of}", lambda it: operation(F.center_crop(it, [90, 120]), value))
    make = lambda it: F.adjust_hue(F.adjust_saturation(F.autocontrast(F.adjust_contrast(F.resize(it, [60, 80]), 0.5)), 1.3), 0.2)
    text = "color_jitter(contrast=[0.5, 0.5]), random_autocontrast(1), color_jitter(saturation=[1.3, 1.3]), color_jitter(hue=[0.2, 0.2])"
    case(name, f"resize([60, 80]), {text}", make)
    case(name, f"resize([60, 80]), {text}, hflip(1), resize([33, 20])", lambda it: F.resize(F.hflip(make(it)), [33, 20]))

# Operations of policies: name, magnitude, interpolation and colour.
def policy(name, size, *operations):
    def make(image):
        for operation, magnitude, mode, *fill in operations:
            image = autoaugment._apply_op(image, operation, magnitude, FILTERS[mode], fill)
        return image

    case(name, f"center_crop({list(size)}), rand_augment", make, itertools.chain(*operations))


MOVES = {
    "ShearX": (0.0, 0.09, -0.3, 0.99, -2.5, 1000.0),
    "ShearY": (0.0, -0.11, 0.3, -0.99, 4.0, -3000.0),
    "TranslateX": (0, 1, -2, 31, -150, 40_000),
    "TranslateY": (0, -1, 2, 17, 226, -(2**31)),
    "Rotate": (0.0, 9.0, -30.0, 45.0, 90.0, -90.0, 135.0, 180.0, 271.3, 360.0, -720.5, 1e-15, 179.9999999999999),
}
COLOURS = {
    "Identity": (0,),
    "Brightness": (-0.9, 0.27, 0.99),
    "Color": (-0.99, -0.3, 0.9),
    "Contrast": (-0.9, 0.11, 0.99),
    "Sharpness": (-0.99, -0.27, 0.0, 0.9),
    "Posterize": (1, 4, 8),
    "Solarize": (0.0, 76.5, 178.5, 255.0),
    "AutoContrast": (0,),
    "Equalize": (0,),
    "Invert": (0,),
}
pictures = {"1:1:1": (1, 1), "2:2:3": (2, 3), "3:3:2": (3, 2), "5:7:1": (7, 1), "3:37:53": (37, 53), "9:64:64": (64, 64)}
for (name, size), (kind, magnitudes) in itertools.product(pictures.items(), (MOVES | COLOURS).items()):
    for magnitude, mode in itertools.product(magnitudes, ["nearest", "bilinear"] if kind in MOVES else ["nearest"]):
        policy(name, size, (kind, magnitude, mode, *((0, 0, 0) if magnitude == magnitudes[1 % len(magnitudes)] else (9, 200, 77))))
for kind, magnitudes in (MOVES | COLOURS).items():
    for magnitude, mode in zip(magnitudes, itertools.cycle(["nearest", "bilinear"])):
        policy(PHOTOGRAPH, (375, 500), (kind, magnitude, mode, 124, 116, 104))
# Pillow computes coordinates above 32,768 in floating point. Its fixed-point numbers, which it uses below, would round these up.
for kind in ["ShearX", "ShearY"]:
    policy(PHOTOGRAPH, (375, 500), (kind, 89 - 1e-7, "nearest", 1, 2, 3))
for i in range(60):
    kinds = draw.choices(list(MOVES | COLOURS), k=2)
    policy("3:37:53", (37, 53), *((kind, draw.choice((MOVES | COLOURS)[kind]), "nearest", 0, 0, 0) for kind in kinds))

# Files of all kinds.
files = sorted(tests.glob("pillow/*.*")) + sorted(tests.glob("pillow/*/*.jpg")) + sorted(tests.glob("pictures/*.*"))
for path in files:
    name = str(path.relative_to(tests))
    if not name.endswith((".py", ".expected.png")):
        case(name, "exif, resize([19, 23])", lambda it: F.resize(it, [19, 23]))
        case(name, "exif, center_crop([9, 11])", lambda it: F.center_crop(it, [9, 11]))
case("torchvision/mask16.png", "resize([19, 23])", lambda it: F.resize(it, [19, 23]))
(folder / "cases.txt").write_text("\n".join(lines) + "\n")
