"""Contact sheets: many pictures of a dataset in one image, to check what a training loop gets."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from slotline._datasets import Dataset, Path
from slotline._errors import DataError
from slotline._loader import Loader

# Pixels between pictures, and around all of them.
_GAP = 4


def sheet(dataset: Dataset, path: Path, pictures: int = 64, *, field: str | None = None, **options: Any) -> int:
    """Writes the pictures that a loop would get first into one PNG file, and returns their number.

    ``field`` is the name of the field with pictures, by default the first field with the shape (3,
    height, width) or (height, width, 3). ``uint8`` is shown as it is. Other numbers, such as
    normalised ones, are scaled so that the smallest number of the sheet is black and the largest
    white. ``options`` are options of :class:`Loader`, such as ``shuffle``, ``seed`` and
    ``num_workers``.

    Raises :class:`DataError` if there is no such field or no picture, and ``OSError`` if the file
    cannot be written.
    """
    if not isinstance(pictures, int) or pictures < 1:
        raise ValueError(f"pictures must be a positive number, not {pictures!r}")
    fields = [f for f in dataset.fields if (f.name == field if field is not None else len(f.shape) == 3 and 3 in f.shape[::2])]
    if not fields or len(fields[0].shape) != 3 or 3 not in fields[0].shape[::2]:
        what = "no field" if field is None else f"no field {field!r}"
        raise DataError(f"the dataset has {what} of pictures of one size; open files with image=, such as image='resize([64, 64])'")
    if fields[0].dtype == "bfloat16":
        raise DataError("NumPy has no bfloat16; open the files with image_dtype='uint8'")
    place = dataset.fields.index(fields[0])
    channels_first = fields[0].shape[2] != 3
    seen: list[np.ndarray] = []
    for batch in Loader(dataset, 1, **options):
        picture = np.array((list(batch.values()) if isinstance(batch, dict) else batch)[place])[0]
        seen.append(picture.transpose(1, 2, 0) if channels_first else picture)
        if len(seen) == pictures:
            break
    if not seen:
        raise DataError("a sheet needs at least one picture, and the dataset has no samples")
    shown = levels(np.stack(seen))
    count, height, width, _ = shown.shape
    columns = min(max(round((count * (height + _GAP) / (width + _GAP)) ** 0.5), 1), count)
    rows = -(-count // columns)
    pixels = np.full((rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, 3), 255, "u1")
    for i, picture in enumerate(shown):
        top, left = (n * (side + _GAP) + _GAP for n, side in zip(divmod(i, columns), (height, width), strict=True))
        pixels[top : top + height, left : left + width] = picture
    with open(path, "wb") as file:
        file.write(png(pixels))
    return len(seen)


def levels(pixels: np.ndarray) -> np.ndarray:
    """Returns ``uint8`` as it is, and other numbers scaled so that the smallest is 0 and the largest
    255."""
    if pixels.dtype == np.uint8:
        return pixels
    least, most = float(pixels.min()), float(pixels.max())
    return np.rint((pixels.astype("f8") - least) * (255 / ((most - least) or 1))).astype("u1")


def png(pixels: np.ndarray) -> bytes:
    """Encodes an array of shape (height, width, 3) as a PNG."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = pixels.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), "u1"), pixels.reshape(height, -1)], 1).tobytes()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
