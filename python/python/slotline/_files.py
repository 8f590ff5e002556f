"""Datasets in files on disks, in buckets and on web servers."""

from __future__ import annotations

import builtins
import operator
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from slotline import _slotline
from slotline._datasets import Dataset, Path, _Derived
from slotline._errors import DataError
from slotline._loader import _check_integer

if TYPE_CHECKING:
    from slotline.image import Transform

Cache = tuple[Path, int]


def open(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    skip_incomplete: bool = False,
    missing_end: bool = False,
    missing_as_zero: bool = False,
    decimals_as_f64: bool = False,
    decode: Mapping[str, str] | None = None,
    file_column: str | Sequence[str] | None = None,
    without_files: bool = False,
    default_number: Mapping[str, float] | None = None,
    extensions: Sequence[str] | None = None,
    allow_empty: bool = False,
    block_size: int | None = None,
    dtype: Any = None,
    memory_limit: int | None = None,
    room: int | None = None,
    index_files: Literal["beside"] | Path | None = "beside",
    read_ahead: int = 256 << 20,
    cache: Cache | None = None,
    max_connections: int | None = None,
    request_timeout: float | None = None,
    follow_redirects: bool = False,
    image: str | Sequence[Transform] | None = None,
    image_field: str | None = None,
    image_dtype: str = "float32",
    channels_last: bool = False,
    mask_field: str | None = None,
    mask_folder: Path | None = None,
    mask_dtype: str = "uint8",
    mask_fill: int = 0,
    boxes_field: str | None = None,
    boxes_format: str | Enum = "xyxy",
    shuffle_buffer: int = 1000,
) -> Dataset:
    """Makes a dataset of files, and detects their format.

    ==========================================================  =======================================================
    a folder with a folder of pictures for each class           the bytes of each file as ``data``, and ``label`` (see
                                                                :func:`folder`)
    a ``.csv`` or ``.jsonl`` file, or a folder with             a field for each column, and ``data``, the bytes of the
    ``metadata.csv`` or ``metadata.jsonl``                      files in the column ``file_name``, if there is one
    ``.tar`` of WebDataset                                      a field for each kind of file
    ``.tar.gz``, ``.tar.bz2``, ``.tar.zst``                     the same, as a stream
    ``.parquet``, ``.arrow``, ``.feather``, what                a field for each column
    ``Dataset.save_to_disk`` of Hugging Face writes
    ``.tfrecord`` with ``tf.Example``                           a field for each feature, and each feature list of
                                                                ``tf.SequenceExample``
    a folder of MosaicML Streaming (MDS) or LitData             the fields of its samples
    ``.safetensors``, ``.npz``                                  rows of the arrays
    ``.bin`` of nanoGPT or llm.c                                ``tokens``, in blocks of 1,024 (see :func:`tokens`)
    ``.bin`` with ``.idx`` of Megatron                          ``tokens``, a sequence for each sample
    ==========================================================  =======================================================

    Several tars, or Parquet, Arrow or TFRecord files, make one dataset: a folder with them, or a pattern such as
    ``shard-{000..099}.tar`` or ``train/*.parquet``. A path may be a URL: ``s3://``, ``gs://``, ``az://``, ``http://`` or
    ``https://``.

    Arrow files on a local disk are memory-mapped. They must not be written to or truncated while
    they are in use; to replace one, write a new file and rename it over the old one.

    Compressed tars cannot be read by index. Their dataset is a stream without a length: each worker
    of each rank (``world_size``) reads some of the tars from front to back, so use at least workers
    × ranks tars. With ``shuffle=True`` the order of the tars is random, and each worker shuffles
    ``shuffle_buffer`` samples at a time. Ranks may have different numbers of batches. The state of
    a stream belongs to one rank, and can be loaded only with the same number of workers and ranks.

    ``dataset.fields`` lists the names, types and shapes of the fields. In a batch, a field of fixed
    shape is an array or tensor. A field of varying length, whose shape is ``(None,)``, is a list
    with one array for each sample; these arrays share the batch's memory. Text is a ``str``.

    Args:
        path: A file, a folder, a pattern or a URL.
        columns: The names of the fields to read, in this order; ``None`` reads all. Columns that
            are left out may have types that slotline cannot read. In a tar, ``"jpg;png"`` is one
            field, the first of these files that a sample has, and ``"__key__"`` is the sample's
            key.
        skip_incomplete: Whether to leave out samples of tars that lack a field. By default they are
            errors.
        missing_end: Whether to accept a tar without its end mark. Such a file may be truncated.
        missing_as_zero: Whether missing values of tables and of TFRecord are read as zeros, and as
            empty texts, bytes and lists. By default they are errors.
        decimals_as_f64: Whether to read decimals of Arrow and Parquet, as the closest ``float64``.
        decode: The types of fields of tars or TFRecord files, by field name. They replace the types
            that are inferred from file names or the first records. A type is ``"bytes"``,
            ``"text"``, an element type such as ``"int64"``, a tensor such as ``"float32 [2, 3]"``,
            or a list such as ``"int64 list"``. The short names of error messages, such as ``"i64"``
            and ``"f32 [2, 3]"``, are also accepted.
        file_column: The column of CSV or JSONL that contains file names, whose bytes are the field
            ``data``; or a list of such columns, such as ``["file_name", "mask"]``. The bytes of the
            files that further columns name are fields with the names of these columns.
        without_files: Whether to read ``file_name`` and ``image`` of CSV or JSONL as ordinary
            fields, not as names of files.
        default_number: The value that replaces a missing number in columns of tables, such as
            ``float("nan")``.
        extensions: See :func:`folder`.
        allow_empty: Whether a class may have no files.
        block_size: The number of tokens in a block. ``None``: 1,024. Required for LitData's tokens.
        dtype: The type of tokens in a file without a header. ``None``: ``uint16``.
        memory_limit: The most bytes of decoded batches, pages, shards or arrays to keep in memory.
            ``None``: 1 GiB.
        room: The factor by which to enlarge the memory that batches reserve for bytes, texts and
            lists, so that fewer batches need additional memory.
        index_files: Where to save the offsets of the samples in tars and TFRecord files, so that
            the files need not be scanned again. ``"beside"``: in a file next to each of them, or
            for URLs in ``~/.cache/slotline``. Otherwise the path of a folder, or ``None`` to save
            nothing.
        read_ahead: The number of bytes to fetch before they are needed, following the known order
            of the pass. 0: none.
        cache: A local folder in which to keep whole objects of buckets, and the most bytes to use
            there.
        max_connections: The most concurrent requests to a bucket or server. ``None``: 16 at first,
            then up to 128 while more are faster, and fewer if connections fail (see
            :meth:`Loader.warnings`).
        request_timeout: The most seconds that a request may take, including all retries. ``None``:
            180.
        follow_redirects: Whether to follow redirects to other hosts or schemes, as servers use that
            store files elsewhere. By default they are errors, since they may lead to a host that
            only this machine can reach.
        image: Transforms with the names, arguments and defaults of torchvision's
            ``transforms.v2``: a list of objects of :mod:`slotline.image`, such as
            ``[RandomResizedCrop(224), RandomHorizontalFlip(), Normalize.imagenet()]``, or their
            text, ``"random_resized_crop(224), hflip, normalize(imagenet)"``. The workers decode the
            pictures, and a batch of them is one tensor, ``[N, 3, 224, 224]``. JPEG, PNG, WebP, GIF
            and BMP are supported. ``None``: pictures stay encoded, as bytes.
        image_field: The name of the field with the pictures. ``None``: the field that has pictures
            in the first sample.
        image_dtype: The element type of decoded pictures: ``"float32"``, ``"float16"`` or
            ``"bfloat16"``, from 0 for black to 1 for white unless normalised, or ``"uint8"``, from
            0 to 255.
        channels_last: Whether a batch of pictures has the shape ``[N, height, width, 3]``.
        mask_field: The name of the field with segmentation masks: PNGs that are grey or have a
            palette. Each has the crop, the flips and the padding of its picture, and is resized
            with the nearest pixel. A batch of masks has the shape ``[N, height, width]``.
        mask_folder: For a folder of pictures, the folder with their masks, which have the same
            relative paths and the extension ``.png``. They are the field ``mask``. The pictures may
            be in folders of classes, or in no folders; then they have no labels.
        mask_dtype: The element type of masks: ``"uint8"``, or ``"int64"``, which torch's losses
            expect.
        mask_fill: The class of a mask's padding.
        boxes_field: The name of the field with bounding boxes, in pixels of the whole picture. They
            move as their picture does, and are clipped to it. The boxes of a sample have the shape
            ``(None, 4)`` and the type ``float32``: left, top, right and bottom. A sample keeps all
            of its boxes; :class:`slotline.image.SanitizeBoundingBoxes` says which are visible. The
            field has lists of numbers, four for each box; or the bytes of ``.npy`` files; or text
            with JSON. ``"json.objects.bbox"`` are the boxes in ``{"objects": {"bbox": ...}}`` and
            in ``{"objects": [{"bbox": ...}, ...]}`` of the field ``json``, and become an additional
            field of this name.
        boxes_format: What the four numbers of a box in the files are: ``"xyxy"``, ``"xywh"`` as in
            COCO, or ``"cxcywh"``; or torchvision's ``BoundingBoxFormat``.
        shuffle_buffer: The number of samples that each worker shuffles at a time, if compressed
            tars are loaded with ``shuffle=True``.

    Raises :class:`slotline.DataError` if the path cannot be read, its contents violate its format,
    or an option does not apply to the format.
    """
    given: dict[str, Any] = dict(locals()) | {"image": _text(image)}
    for name in ("block_size", "memory_limit", "room"):
        if given[name] is not None:
            _check_integer(name, given[name], 63)
    options = given | {name: bool(given[name]) for name in _FLAGS}
    options |= {
        "columns": None if columns is None else _list("columns", columns),
        "file_column": [] if file_column is None else [file_column] if isinstance(file_column, str) else list(file_column),
        "decode": dict(decode or {}),
        "default_number": dict(default_number or {}),
        "extensions": None if extensions is None else _list("extensions", extensions),
    }
    if index_files == "beside":
        saved = None
    else:
        saved = "" if index_files is None else os.fsdecode(index_files)
    _check_integer("shuffle_buffer", shuffle_buffer, 63)
    opening = options | {
        "decode": [(name, _kind(kind)) for name, kind in options["decode"].items()],
        "default_number": [(name, _number(value)) for name, value in options["default_number"].items()],
        "dtype": None if dtype is None else _type(dtype),
        "index_files": saved,
        "mask_folder": _folder(mask_folder),
    }
    source = _slotline.Source.open(os.fsdecode(path), opening, _reading(given, _image(given)), shuffle_buffer)
    return _of(source, partial(open, **options))


def folder(
    path: Path,
    *,
    extensions: Sequence[str] | None = None,
    allow_empty: bool = False,
    read_ahead: int = 256 << 20,
    cache: Cache | None = None,
    max_connections: int | None = None,
    request_timeout: float | None = None,
    follow_redirects: bool = False,
    image: str | Sequence[Transform] | None = None,
    image_field: str | None = None,
    image_dtype: str = "float32",
    channels_last: bool = False,
    mask_folder: Path | None = None,
    mask_dtype: str = "uint8",
    mask_fill: int = 0,
) -> Dataset:
    """Makes a dataset of a folder with one folder of files for each class, like torchvision's
    ``DatasetFolder``.

    A sample has the fields ``data``, the bytes of a file, and ``label``, the index of its class in
    ``dataset.classes``.

    Args:
        path: The folder, or its URL in a bucket.
        extensions: The endings of the file names to read, such as ``[".flac", ".wav"]``. ``None``:
            those of pictures.
        allow_empty: Whether a class may have no files.
        read_ahead: See :func:`open`.
        cache: See :func:`open`.
        max_connections: See :func:`open`.
        request_timeout: See :func:`open`.
        follow_redirects: See :func:`open`.
        image: See :func:`open`.
        image_field: ``None`` or ``"data"``, the only field that can hold pictures.
        image_dtype: See :func:`open`.
        channels_last: See :func:`open`.
        mask_folder: See :func:`open`.
        mask_dtype: See :func:`open`.
        mask_fill: See :func:`open`.
    """
    given: dict[str, Any] = dict(locals()) | {"image": _text(image)}
    chosen = None if extensions is None else _list("extensions", extensions)
    source = _slotline.Source.folder(os.fsdecode(path), chosen, allow_empty, _folder(mask_folder), _reading(given, _image(given)))
    return _of(source, partial(folder, **given | {"extensions": chosen}))


def tokens(
    paths: Path | Sequence[Path],
    block_size: int,
    *,
    stride: int | None = None,
    dtype: Any = None,
    labels: bool = False,
    widen: bool = False,
    read_ahead: int = 256 << 20,
    cache: Cache | None = None,
    max_connections: int | None = None,
    request_timeout: float | None = None,
    follow_redirects: bool = False,
) -> Dataset:
    """Makes a dataset of token files of nanoGPT (without a header) or llm.c; a sample is a block of
    tokens.

    Sample ``i`` of a file has the field ``tokens``: the ``block_size + 1`` tokens from token ``i *
    stride`` on. Each token is the label of the one before it. No sample crosses the boundary of two
    files.

    nanoGPT draws blocks at random positions: ``Loader(tokens("train.bin", 1024, stride=1), 12, True, replacement=True,
    num_samples=12 * 1000)`` draws 1,000 such batches.

    Args:
        paths: A file, a pattern or a URL, or several.
        block_size: The number of tokens in a sample that have a label.
        stride: The distance in tokens between the starts of two samples. ``None``: ``block_size``.
        dtype: The type of the tokens. ``None``: the type in llm.c's header, or ``uint16`` if the
            file has no header.
        labels: Whether a sample has two fields of ``block_size`` tokens: ``tokens``, and
            ``labels``, which is shifted by one token.
        widen: Whether to convert tokens to ``int64``.
        read_ahead: See :func:`open`.
        cache: See :func:`open`.
        max_connections: See :func:`open`.
        request_timeout: See :func:`open`.
        follow_redirects: See :func:`open`.
    """
    given: dict[str, Any] = dict(locals())
    for name in ("block_size", "stride"):
        if given[name] is not None:
            _check_integer(name, given[name], 63)
    for name in ("labels", "widen"):
        if not isinstance(given[name], bool):
            raise TypeError(f"{name} is {given[name]!r}; it must be True or False")
    several = [paths] if isinstance(paths, str | bytes | os.PathLike) else list(paths)
    stored = None if dtype is None else _type(dtype)
    blocks = {"size": block_size, "stride": stride, "dtype": stored, "labels": labels, "widen": widen}
    source = _slotline.Source.tokens([os.fsdecode(path) for path in several], blocks, _reading(given, None))
    options = given | {"paths": several, "dtype": None if dtype is None else np.dtype(dtype).str}
    return _of(source, partial(tokens, **options))


def _of(source: _slotline.Source, make: Any) -> Dataset:
    names = source.names
    return _Derived(source, None if names is None else tuple(names), make)


def _reading(given: dict[str, Any], image: dict[str, Any] | None) -> dict[str, Any]:
    """Checks the options about reading that all formats share, and returns them for the engine."""
    most, timeout, cache = given["max_connections"], given["request_timeout"], given["cache"]
    _check_integer("read_ahead", given["read_ahead"], 64)
    if most is not None:
        _check_integer("max_connections", most, 63)
    if timeout is not None and not 0 < timeout < 1e9:
        raise ValueError(f"request_timeout is {timeout!r}; it must be a number of seconds above 0, or None for 180")
    if cache is not None:
        if not (isinstance(cache, tuple) and len(cache) == 2):
            raise TypeError(f"cache is {cache!r}; it must be a folder and a number of bytes, such as (\"/disk/cache\", 100 << 30)")
        _check_integer("the limit of cache", cache[1], 64)
        cache = (os.fsdecode(cache[0]), cache[1])
    requests = (most, timeout, bool(given["follow_redirects"]))
    return {"read_ahead": given["read_ahead"], "cache": cache, "requests": requests, "image": image}


_FLAGS = ("skip_incomplete", "missing_end", "missing_as_zero", "decimals_as_f64", "without_files", "allow_empty")
_IMAGE_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8": "u8"}
_MASK_TYPES = {"uint8": ("u8", 0, 255), "int64": ("i64", -(1 << 63), (1 << 63) - 1)}
_IMAGE = {
    "image_field": None,
    "image_dtype": "float32",
    "channels_last": False,
    "mask_field": None,
    "mask_dtype": "uint8",
    "mask_fill": 0,
    "boxes_field": None,
    "boxes_format": "xyxy",
}


def _text(image: str | Sequence[Transform] | None) -> str | None:
    if image is None or isinstance(image, str):
        return image
    from slotline.image import pipeline

    return pipeline(image)


def _image(given: dict[str, Any]) -> dict[str, Any] | None:
    """Checks the options about decoding pictures, and returns them for the engine."""
    options = _IMAGE | {name: given[name] for name in _IMAGE if name in given}
    if given["image"] is None:
        for name, value in options.items():
            if value != _IMAGE[name]:
                raise TypeError(f"{name} is about decoded pictures; pass image, too")
        return None
    if given.get("mask_folder") is not None and options["mask_field"] is None:
        options["mask_field"] = "mask"
    for name in ("image_field", "mask_field", "boxes_field"):
        if not isinstance(options[name], str | None):
            raise TypeError(f"{name} is {options[name]!r}; it must be the name of a field")
    if options["image_dtype"] not in _IMAGE_TYPES:
        raise DataError(f"image_dtype is {options['image_dtype']!r}; it must be one of {', '.join(_IMAGE_TYPES)}")
    return {
        "transforms": given["image"],
        "field": options["image_field"],
        "dtype": _IMAGE_TYPES[options["image_dtype"]],
        "channels_last": bool(options["channels_last"]),
        "mask": _mask(options),
        "boxes": _boxes(options),
    }


def _folder(path: Path | None) -> str | None:
    return None if path is None else os.fsdecode(path)


def _mask(options: dict[str, Any]) -> tuple[str, str, int] | None:
    field, dtype, fill = (options[name] for name in ("mask_field", "mask_dtype", "mask_fill"))
    if field is None:
        if (dtype, fill) != ("uint8", 0):
            raise TypeError("mask_dtype and mask_fill are about masks; pass mask_field or mask_folder, too")
        return None
    if dtype not in _MASK_TYPES:
        raise DataError(f"mask_dtype is {dtype!r}; it must be one of {', '.join(_MASK_TYPES)}")
    name, least, most = _MASK_TYPES[dtype]
    if not least <= operator.index(fill) <= most:
        raise DataError(f"mask_fill is {fill}, which {dtype} cannot hold; pass mask_dtype=\"int64\", too")
    return field, name, operator.index(fill)


def _boxes(options: dict[str, Any]) -> tuple[str, str] | None:
    field, of = options["boxes_field"], options["boxes_format"]
    if field is None:
        if of != "xyxy":
            raise TypeError("boxes_format is about boxes; pass boxes_field, too")
        return None
    return field, str(of.value).lower() if isinstance(of, Enum) else of


def _type(dtype: Any) -> str:
    """Returns the engine's name of a token type."""
    found = np.dtype(dtype)
    if found.kind not in "iu" or not found.isnative:
        raise DataError(f"tokens of type {found}; pass a type of integers, such as \"uint16\"")
    return f"{found.kind}{8 * found.itemsize}"


def _number(value: float) -> str:
    """Returns a number as text for the engine: an integer with all its digits."""
    return repr(float(value)) if isinstance(value, float | np.floating) else str(operator.index(value))


def _kind(kind: str) -> str:
    """Returns the engine's name of a field type that ``decode`` gives."""
    name, _, rest = kind.partition(" ")
    if name in ("bytes", "text"):
        return kind
    try:
        found = np.dtype(name)
    except TypeError:
        # Not a NumPy type: perhaps a name of the engine, as error messages have it.
        return kind
    return f"{found.name if found.kind == 'b' else f'{found.kind}{8 * found.itemsize}'} {rest}".rstrip()


def _list(name: str, values: Sequence[str]) -> builtins.list[str]:
    if isinstance(values, str):
        raise TypeError(f"{name} is {values!r}; it must be a list of names, such as [{values!r}]")
    return list(values)
