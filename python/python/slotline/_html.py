"""The first samples of a dataset as a table for notebooks."""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from slotline._datasets import Dataset, Field
from slotline._sheet import levels, png

# The samples in a table, the longest side of a picture in pixels, and the characters of a text.
_SAMPLES, _SIDE, _TEXT = 5, 128, 200


def table(dataset: Dataset) -> str:
    """Returns what a dataset is and its first samples, as HTML. Pictures are shown if they are
    decoded, or if Pillow can decode them. A sample that cannot be read has its error instead."""
    fields, paths, classes = dataset.fields, dataset._source.paths(_SAMPLES), dataset.classes
    types = [f"{escape(f.name or '')}<br><small>{f.dtype} {list(f.shape)}</small>" for f in fields]
    rows = [["", *(["file"] if paths else []), *types]]
    for i, sample in enumerate(_samples(dataset)):
        row = [str(i), *([escape(paths[i])] if paths else [])]
        if isinstance(sample, Exception):
            row.append(escape(f"{type(sample).__name__}: {sample}"))
        else:
            values = sample.values() if isinstance(sample, dict) else sample
            row.extend(_cell(field, value, classes) for field, value in zip(fields, values, strict=True))
        rows.append(row)
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return f"<code>{escape(repr(dataset))}</code><table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _samples(dataset: Dataset) -> Iterator[Any]:
    try:
        count = min(_SAMPLES, len(dataset))
    except TypeError:
        yield from itertools.islice(dataset, _SAMPLES)
        return
    for i in range(count):
        try:
            yield dataset[i]
        except Exception as error:
            yield error


def _cell(field: Field, value: Any, classes: list[str] | None) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        pixels = _pixels(value)
        if pixels is None:
            return escape(np.array2string(value, threshold=8, edgeitems=2, precision=4)[:_TEXT])
        small = pixels[tuple(slice(None, None, -(-max(pixels.shape) // _SIDE)) for _ in range(2))]
        return f'<img src="data:image/png;base64,{base64.b64encode(png(small)).decode()}">'
    text = str(value)
    if field.name == "label" and classes is not None:
        text += f" ({classes[int(value)]})"
    return escape(text if len(text) <= _TEXT else f"{text[:_TEXT]}\u2026")


def _pixels(value: np.ndarray) -> np.ndarray | None:
    """Returns the picture that a field is, as ``uint8`` of shape (height, width, 3)."""
    if value.ndim == 3 and value.size and 3 in value.shape[::2]:
        return levels(value if value.shape[2] == 3 else value.transpose(1, 2, 0))
    if value.ndim == 2 and value.size and (value.dtype == np.uint8 or (value.dtype.kind in "iu" and min(value.shape) >= 8)):
        # Masks have small numbers, which would all be black.
        return np.repeat(levels(value.astype("i8"))[..., None], 3, 2)
    if value.dtype != np.uint8:
        return None
    try:
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(value.tobytes())).convert("RGB"))
    except Exception:
        # There is no Pillow, or the bytes are no picture.
        return None
