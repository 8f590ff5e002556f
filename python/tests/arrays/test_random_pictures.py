"""Random pictures are decoded to the same pixels as in Pillow. ``seeds`` generates the cases."""

import io
import random
import struct

import numpy as np
import pytest

import slotline
from seeds import cases
from slotline import Loader

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")
PngInfo = pytest.importorskip("PIL.PngImagePlugin").PngInfo

# The modes in which each format is tested. Pixels are exactly those of Pillow's ``exif_transpose``
# and ``convert("RGB")``.
FORMATS = {
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA"],
    "GIF": ["1", "L", "P", "RGB", "RGBA"],
    "BMP": ["1", "L", "P", "RGB", "RGBA"],
    "WEBP": ["RGB", "RGBA"],
}


def some_picture(rng, height, width):
    """Returns a description of a random picture, and the bytes of its file."""
    pixels = np.random.default_rng(rng.getrandbits(32))
    shape = (height, width, 4)
    smooth = np.add.outer(np.arange(height) * rng.randint(0, 9), np.arange(width) * rng.randint(0, 9))[..., None] + [0, 80, 160, 240]
    array = pixels.integers(0, 256, shape) if rng.random() < 0.5 else np.broadcast_to(smooth, shape)
    picture = Image.fromarray(array.astype("u1"), "RGBA")
    kind = rng.choice(list(FORMATS))
    mode = rng.choice(FORMATS[kind])
    if mode in ("1", "P"):
        picture = picture.convert("RGB").quantize(rng.choice([2, 7, 16, 256])) if mode == "P" else picture.convert("1")
    else:
        picture = picture.convert(mode)
    options = {}
    if kind == "PNG":
        options = {"optimize": rng.random() < 0.3, "compress_level": rng.randint(0, 9)}
        if mode in ("L", "P") and rng.random() < 0.4:
            options["transparency"] = rng.randint(0, 1)
    if kind == "GIF":
        options = {"interlace": rng.randint(0, 1)}
        if rng.random() < 0.3:
            options |= {"save_all": True, "append_images": [picture.rotate(180)]}
    if kind == "WEBP":
        options = {"lossless": True, "quality": 0, "method": 0, "exact": rng.random() < 0.5}
    orientation = rng.randint(1, 8 if height == width else 4)
    exif = Image.Exif()
    exif[0x112] = orientation
    xmp = f'<x tiff:Orientation="{orientation}"/>'
    if kind == "WEBP":
        options |= rng.choice([{}, {"exif": exif}, {"xmp": xmp.encode()}])
    if kind == "PNG":
        info = PngInfo()
        add = rng.choice([info.add_text, info.add_itxt])
        add("XML:com.adobe.xmp", xmp, zip=rng.random() < 0.5)
        options |= rng.choice([{}, {"exif": exif}, {"pnginfo": info}])
    file = io.BytesIO()
    picture.save(file, kind, **options)
    contents = bytearray(file.getvalue())
    if kind == "GIF" and rng.random() < 0.3:
        # A smaller canvas, so that the frame exceeds it.
        contents[6:10] = struct.pack("<HH", rng.randint(0, width), rng.randint(0, height))
    return f"{kind} {mode} {options} {orientation}", bytes(contents)


@pytest.mark.filterwarnings("ignore:.*'mode' parameter is deprecated")
def test_random_pictures_have_the_pixels_of_pillow(tmp_path):
    for seed in cases(60):
        rng = random.Random(seed)
        height = rng.randint(1, 40)
        width = rng.choice([height, rng.randint(1, 40)])
        names, wanted = [], []
        folder = tmp_path / f"{seed}"
        (folder / "a").mkdir(parents=True)
        for i in range(10):
            name, contents = some_picture(rng, height, width)
            (folder / "a" / f"{i}.png").write_bytes(contents)
            names.append(name)
            wanted.append(np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(contents))).convert("RGB")))
        dataset = slotline.folder(folder, image=f"exif, center_crop([{height}, {width}])", image_dtype="uint8", channels_last=True)
        for i, batch in enumerate(Loader(dataset, 1)):
            np.testing.assert_array_equal(batch["data"][0], wanted[i], f"seed {seed}, picture {i}: {names[i]}")
