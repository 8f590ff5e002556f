"""Datasets of arrays and their combinations, read by the threads of a :class:`slotline.Loader`."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np

from slotline import _slotline
from slotline._errors import DataError

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Field(NamedTuple):
    """The name, element type and shape of one field of a sample."""

    name: str | None
    """The field's name; ``None`` if samples are tuples."""
    dtype: str
    """The NumPy name of the element type; ``"str"`` for text."""
    shape: tuple[int | None, ...]
    """The shape of the field in one sample; ``(None,)`` if its number of elements varies."""


class Dataset:
    """A dataset that a :class:`slotline.Loader` can load.

    Its samples have one or more fields. If the fields have names, a batch is a dict, and otherwise
    a tuple. Create a dataset with :class:`Arrays`, :func:`open`, :func:`folder`, :func:`tokens`,
    :func:`from_npy`, :func:`from_idx` or :func:`digits`, and combine datasets with :class:`Subset`,
    :class:`ConcatDataset` (or ``+``) and :class:`StackDataset`.

    ``dataset[i]`` is one sample. It equals the one that a :class:`Loader` with ``batch_size=None``
    and ``seed=0`` loads in its first pass, including random augmentations. ``dataset[i:j]`` is a
    dataset of those samples, and a ``for`` loop yields the samples in order. A stream supports only
    the loop. A :class:`Loader` is much faster. A dataset that has a length can also be passed to
    torch's ``DataLoader``.

    Datasets can be pickled: datasets of arrays with their contents, datasets of files with their
    paths only.
    """

    _source: _slotline.Source
    _names: tuple[str, ...] | None
    _make: Callable[[], Dataset]

    def __init__(self) -> None:
        raise TypeError("Dataset is a base class; make a dataset with Arrays, open, tokens, from_npy, from_idx or digits")

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        length = len(self)
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(length)))
        try:
            place = operator.index(index)
        except TypeError:
            raise TypeError(f"index {index!r} is of type {type(index).__name__}; it must be an integer or a slice") from None
        if not -length <= place < length:
            raise IndexError(f"index {place} is out of range; the dataset has {length} samples")
        return self._loader._engine.sample(place % length)

    def __iter__(self) -> Iterator[Any]:
        # A new loader, since a loader counts its passes and the first one is wanted.
        return iter(type(self._loader)(self, None, seed=0))

    @cached_property
    def _loader(self) -> Any:
        from slotline._loader import Loader

        return Loader(self, None, seed=0)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a sample."""
        fields = self._source.fields
        names = [None] * len(fields) if self._names is None else self._names
        return tuple(Field(name, dtype, shape) for name, (dtype, shape) in zip(names, fields, strict=True))

    @property
    def classes(self) -> list[str] | None:
        """The class names that the field ``label`` indexes, for a folder of classes with all its
        fields; otherwise ``None``."""
        return self._source.classes

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])

    def __repr__(self) -> str:
        fields = ", ".join(f"{'' if f.name is None else f.name + ': '}{f.dtype} {list(f.shape)}" for f in self.fields)
        kind = "Dataset" if isinstance(self, _Files) else type(self).__name__
        try:
            count = f"{len(self)} samples"
        except TypeError:
            count = "a stream of samples"
        return f"<slotline.{kind} of {count}: {fields}>"

    def __reduce__(self) -> tuple[Callable[[], Dataset], tuple[()]]:
        return self._make, ()


class Arrays(Dataset):
    """A dataset of arrays of equal length; sample ``i`` is row ``i`` of each array.

    ``Arrays(x=a, y=b)`` and ``Arrays({"x": a, "y": b})`` give batches that are dicts; ``Arrays(a,
    b)`` and ``Arrays((a, b))`` give tuples.

    Accepted are NumPy arrays with any strides, also memory maps; CPU tensors of torch or any other
    library with DLPack; and objects with the buffer protocol. The dataset reads them in place,
    without a copy, and keeps them alive. After that torch refuses to resize a tensor, as it does
    after ``numpy()``. A later write to an array appears in the batches that are loaded after it;
    loaders load batches ahead.
    """

    def __init__(self, *arrays: Any, **named: Any) -> None:
        only = arrays[0] if len(arrays) == 1 and not named else None
        if isinstance(only, Mapping):
            arrays, named = (), dict(only)
        elif isinstance(only, tuple):
            arrays = only
        self._names, values = _arguments("arrays", arrays, named)
        labels = self._names or range(len(values))
        self._source = _slotline.Source.arrays(values, [f"array {label!r}" for label in labels])
        self._make = partial(Arrays, *arrays, **named)


class _Files(Dataset):
    """A dataset whose samples are read from files."""

    def __init__(self, source: _slotline.Source, names: tuple[str, ...] | None, make: Callable[[], Dataset]) -> None:
        self._source, self._names, self._make = source, names, make


def from_npy(*paths: Path, mmap: bool = False, **named: Path) -> Dataset:
    """Makes a dataset of ``.npy`` files, as ``numpy.save`` writes them; sample ``i`` is row ``i``
    of each file.

    Files are passed by position or by keyword, like the arrays of :class:`Arrays`. They are read
    into memory, or memory-mapped with ``mmap=True``, so that rows are read from the disk on first
    use. A mapped file must not be written to or truncated while the dataset exists: the system may
    end the process with SIGBUS. To replace it, rename another file over it.
    """
    names, files = _arguments("files", paths, named)
    source = _slotline.Source.npy([os.fsdecode(file) for file in files], mmap)
    return _Files(source, names, partial(from_npy, *paths, mmap=mmap, **named))


def from_idx(*paths: Path, **named: Path) -> Dataset:
    """Makes a dataset of IDX files, the format of MNIST; sample ``i`` is row ``i`` of each file.

    The files are read into memory. They are passed by position or by keyword, like the arrays of
    :class:`Arrays`.
    """
    names, files = _arguments("files", paths, named)
    source = _slotline.Source.idx([os.fsdecode(file) for file in files])
    return _Files(source, names, partial(from_idx, *paths, **named))


def digits() -> Dataset:
    """Makes a dataset of 1797 handwritten digits, which are part of the package.

    A sample has an ``image`` (uint8, 8 × 8, values 0 to 16) and a ``label`` (int64, 0 to 9). From "Optical Recognition of
    Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0.
    """
    return _Files(_slotline.Source.digits(), ("image", "label"), digits)


class Subset(Dataset):
    """The samples of a dataset at the given indices, in the given order.

    ``indices`` are integers, where negative ones count from the end, or one bool for each sample.
    """

    def __init__(self, dataset: Dataset, indices: Iterable[int] | np.ndarray[Any, Any]) -> None:
        chosen = np.asarray(indices if isinstance(indices, np.ndarray | Sequence) else list(indices))
        if chosen.ndim != 1 or (chosen.size > 0 and chosen.dtype.kind not in "iub"):
            raise DataError(f"indices have shape {chosen.shape} and type {chosen.dtype}; pass one integer for each sample")
        length = len(_checked(dataset))
        if chosen.dtype.kind == "b":
            if len(chosen) != length:
                raise DataError(f"indices are {len(chosen)} bools, but the dataset has {length} samples")
            chosen = np.flatnonzero(chosen)
        if chosen.dtype.kind == "i":
            chosen = np.where(chosen < 0, chosen + length, chosen)
            if len(chosen) > 0 and chosen.min() < 0:
                raise DataError(f"index {chosen.min() - length} is out of range; the dataset has {length} samples")
        self._source = _slotline.Source.subset(dataset._source, chosen.tolist())
        self._names = dataset._names
        self._make = partial(Subset, dataset, chosen)


class ConcatDataset(Dataset):
    """Several datasets, one after another. Their fields must have the same names, types and
    shapes."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        parts = [_indexed(dataset) for dataset in datasets]
        if not parts:
            raise DataError("there are no datasets; pass at least one")
        self._names = parts[0]._names
        for place, part in enumerate(parts):
            if part._names != self._names:
                raise DataError(f"the fields of dataset {place} are {part._names}, but those of dataset 0 are {self._names}")
        self._source = _slotline.Source.concat([part._source for part in parts])
        self._make = partial(ConcatDataset, parts)


class StackDataset(Dataset):
    """Datasets of equal length combined sample by sample: a sample has the fields of all of them.

    ``StackDataset(a, b)`` keeps the names of the datasets' fields. With ``StackDataset(x=a, y=b)``
    each dataset must have exactly one field, which is renamed to the keyword.
    """

    def __init__(self, *datasets: Dataset, **named: Dataset) -> None:
        names, parts = _arguments("datasets", datasets, named)
        fields: list[str | None] = []
        for place, part in enumerate(_indexed(part) for part in parts):
            if names is not None and len(part.fields) != 1:
                raise DataError(f"dataset {names[place]!r} has {len(part.fields)} fields; pass it by position to keep them")
            fields.extend([names[place]] if names is not None else part._names or [None] * len(part.fields))
        self._names = _names(fields)
        self._source = _slotline.Source.stack([part._source for part in parts])
        self._make = partial(StackDataset, *datasets, **named)


def _names(fields: list[str | None]) -> tuple[str, ...] | None:
    """Returns the names of all fields, or ``None`` if no field has one."""
    names = tuple(name for name in fields if name is not None)
    if names and len(names) != len(fields):
        raise DataError("only some of the datasets have names for their fields; pass the datasets by keyword")
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"two fields have the name {name!r}; give one another name in slotline.Arrays, or leave it out with columns in "
                "slotline.open"
            )
    return names or None


def _arguments(what: str, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[str, ...] | None, tuple[Any, ...]]:
    """Returns the names (``None`` for positional arguments) and the values of a function's
    arguments."""
    if values and named:
        raise TypeError(f"pass all {what} by position, for batches that are tuples, or all by keyword, for dicts")
    if named:
        for name in named:
            if not isinstance(name, str):
                raise TypeError(f"the names of {what} must be strings, but one is {name!r}")
        return tuple(named), tuple(named.values())
    return None, values


def _indexed(dataset: Any) -> Dataset:
    checked = _checked(dataset)
    len(checked)  # Raises a TypeError for a stream, which has no length.
    return checked


def _checked(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        if isinstance(getattr(dataset, "dataset", None), Dataset) and hasattr(dataset, "indices"):
            raise TypeError("a dataset is torch's Subset of one of slotline; pass slotline.Subset(subset.dataset, subset.indices)")
        raise TypeError(
            f"a dataset is of type {type(dataset).__name__}; make one with slotline.Arrays, such as "
            "slotline.Arrays(x=array), or with slotline.open, or use slotline.torch.DataLoader for datasets of PyTorch"
        )
    return dataset
