"""Lists of objects that worker processes share without copies."""

from __future__ import annotations

import operator
import os
import pathlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar, overload

import numpy as np

from slotline import _slotline

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# How long a list of a dataset is at least, so that freezing it pays.
_LONG = 1000


class _Columns(_slotline.Columns):
    """A file of objects, which processes share where they are started, and copy otherwise."""

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing import reduction

        if _is_starting():
            return _attach, (reduction.DupFd(self.fileno()),)
        return _copy, (self.contents(),)


def _is_starting() -> bool:
    """Whether what is pickled goes to a process that is being started."""
    context = sys.modules.get("multiprocessing.context")
    return context is not None and context.get_spawning_popen() is not None


def _attach(descriptor: Any) -> _Columns:
    return _Columns(descriptor.detach())


def _copy(contents: bytes) -> _Columns:
    file = os.memfd_create("frozen-by-slotline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(file, "wb", closefd=False) as writer:
        writer.write(contents)
    return _Columns(file)


class FrozenList(Sequence[T_co]):
    """A list of objects that :func:`freeze` has made, or a slice of one.

    It does not change. Each access makes a new object, so what is done to an object is not seen by the next access. A slice shares
    the memory. A process that is started with it shares the memory, too; in other pickles, there is a copy of what it has.
    """

    __slots__ = ("__weakref__", "_columns", "_places")

    def __init__(self, columns: _Columns, places: range) -> None:
        self._columns = columns
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> FrozenList[T_co]: ...
    def __getitem__(self, index: Any) -> Any:
        try:
            place = self._places[index]
        except IndexError:
            raise IndexError(f"index {operator.index(index)} is out of range; the list has {len(self)} objects") from None
        except TypeError:
            kind = type(index).__name__
            raise TypeError(f"index {index!r} is of type {kind}; it must be an integer or a slice") from None
        return FrozenList(self._columns, place) if type(place) is range else self._columns.get(place)

    def __iter__(self) -> Iterator[T_co]:
        return map(self._columns.get, self._places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (FrozenList, list)):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> FrozenList[T_co]:
        return self

    def __deepcopy__(self, memo: Any) -> FrozenList[T_co]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if len(self) == len(self._columns) or _is_starting():
            return FrozenList, (self._columns, self._places)
        return FrozenList, (_frozen(self)._columns, range(len(self)))

    def __repr__(self) -> str:
        return f"<slotline.FrozenList of {len(self)} objects>"

    @property
    def nbytes(self) -> int:
        """How many bytes of memory the list takes, or the list that this is a slice of: once for all processes."""
        return self._columns.nbytes


D = TypeVar("D")


@overload
def freeze(objects: Iterable[T]) -> FrozenList[T]: ...
@overload
def freeze(objects: D) -> D: ...
def freeze(objects: Any) -> Any:
    """Puts objects, or the long lists of a dataset, into memory that worker processes share.

    Python writes to an object when it only uses it, to count references. So each worker process that is forked soon has a copy
    of a list of a million paths or dicts. What is frozen is no object any more: a :class:`FrozenList` makes objects when it is
    asked for them, with the types and values that they had.

    ``objects`` is any iterable, also a generator, so that there never need be a list of all objects. They are ``None``, ``bool``,
    ``int``, ``float``, ``complex``, ``str``, ``bytes``, lists, tuples and dicts of these, paths of ``pathlib``, and arrays and
    scalars of NumPy other than those of objects. There is a ``TypeError`` for everything else, also for subclasses such as
    named tuples, which names the place. An object that is in several places becomes several, arrays are contiguous and can be
    written to, and up to 100 containers may be in each other.

    If ``objects`` is a dataset, as torch's ``DataLoader`` takes it, its attributes that are lists or tuples of 1,000 or more such
    objects become frozen lists, also in the datasets that it consists of. The dataset is returned. There is a warning that says
    what was found if nothing can be frozen, or a long list cannot.
    """
    if isinstance(objects, FrozenList):
        return objects
    kind = type(objects)
    if _is_dataset(objects) or (hasattr(kind, "__getitem__") and not hasattr(kind, "__iter__")):
        return _freeze_dataset(objects)
    if isinstance(objects, (str, bytes, bytearray, Mapping)) or not hasattr(kind, "__iter__"):
        raise TypeError(f"freeze takes a list or another iterable of objects, or a dataset, and not {kind.__name__}")
    return _frozen(objects)


def _frozen(objects: Iterable[Any]) -> FrozenList[Any]:
    columns = _Columns(_slotline.freeze(objects))
    return FrozenList(columns, range(len(columns)))


def _is_dataset(value: Any) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, data.Dataset)


def _freeze_dataset(dataset: D) -> D:
    # By the identity of the lists, which are kept meanwhile: one list may be in several attributes.
    frozen: dict[int, tuple[Any, Any]] = {}
    reasons, others, found = [], [], False
    for place, part in _parts("dataset", dataset, set()):
        attributes = getattr(part, "__dict__", {})
        for name, value in list(attributes.items()):
            if type(value) in (list, tuple) and len(value) >= _LONG:
                if id(value) not in frozen:
                    try:
                        frozen[id(value)] = value, _frozen(value)
                    except TypeError as error:
                        reasons.append(f"{place}.{name} cannot be frozen: {error}")
                        frozen[id(value)] = value, value
                # Not by `setattr`, which classes may have changed.
                attributes[name] = frozen[id(value)][1]
            elif not isinstance(value, FrozenList):
                length = f" of {len(value)}" if isinstance(value, Sized) else ""
                others.append(f"{place}.{name} ({type(value).__name__}{length})")
            found = found or isinstance(attributes[name], FrozenList)
    if not found and not reasons:
        have = f"among its attributes: {', '.join(others)}" if others else "since it has no attributes"
        reasons = [f"the dataset has no list or tuple of {_LONG:,} or more objects {have}"]
    for reason in reasons:
        warnings.warn(reason, stacklevel=3)
    return dataset


def _parts(place: str, dataset: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields a dataset and those that it consists of, such as torch's ``Subset``, with the expressions that they are."""
    if id(dataset) in seen:
        return
    seen.add(id(dataset))
    yield place, dataset
    for name, value in list(getattr(dataset, "__dict__", {}).items()):
        if type(value) is dict:
            items = [(f"[{key!r}]", part) for key, part in value.items()]
        elif type(value) in (list, tuple) and value and _is_dataset(value[0]):
            items = [(f"[{k}]", part) for k, part in enumerate(value)]
        else:
            items = [("", value)]
        for key, part in items:
            if _is_dataset(part):
                yield from _parts(f"{place}.{name}{key}", part, seen)


# Types that are made of a plain value, which `split` gives.
_MADE: dict[type, Any] = {
    pathlib.PosixPath: str,
    pathlib.PurePosixPath: str,
    pathlib.PureWindowsPath: str,
    np.str_: str.__str__,
    np.bytes_: bytes,
    complex: lambda value: (value.real, value.imag),
}
_MAKERS = [*list(_MADE)[:-1], lambda parts: complex(*parts)]
_ARRAY, _SCALAR = len(_MAKERS), len(_MAKERS) + 1


def split(value: Any) -> tuple[Any, ...]:
    """Returns what an object is made of, for the extension, or raises a ``TypeError`` that says why it cannot be frozen."""
    kind = type(value)
    if kind in _MADE:
        return list(_MADE).index(kind), _MADE[kind](value)
    if kind is np.ndarray:
        return _ARRAY, _describe(value.dtype), value.shape, value.tobytes()
    if isinstance(value, np.generic) and kind is value.dtype.type:
        return _SCALAR, _describe(value.dtype), (), value.tobytes()
    name = f"{kind.__module__}.{kind.__qualname__}"
    base = next((base for base in kind.__mro__[1:] if base in _PLAIN), None)
    if base is not None:
        raise TypeError(f"is a {name}, a subclass of {base.__name__}: convert it, since freeze would not give it back")
    raise TypeError(f"is a {name}, which freeze does not take: convert it to plain objects or an array of NumPy")


_PLAIN = (bool, int, float, str, bytes, list, tuple, dict, np.ndarray, *_MADE)


def join(parts: tuple[Any, ...]) -> Any:
    """Makes the object that was :func:`split`."""
    code, first, *rest = parts
    if code < _ARRAY:
        return _MAKERS[code](first)
    array = np.ndarray(rest[0], _dtype(first), rest[1]).copy()
    return array if code == _ARRAY else array[()]


def _describe(dtype: np.dtype[Any]) -> Any:
    # Some types have the same description, such as those of C's long and long long.
    plain = dtype.kind in "biufc" and dtype.isnative
    try:
        if not dtype.hasobject:
            described = dtype.char if plain else np.lib.format.dtype_to_descr(dtype)
            made = _dtype(described)
            if (made, made.char, made.type) == (dtype, dtype.char, dtype.type):
                return described
    except (TypeError, ValueError):
        pass
    raise TypeError(f"has the type {dtype} of NumPy, which freeze does not take")


def _dtype(described: Any) -> np.dtype[Any]:
    return np.dtype(described) if isinstance(described, str) else np.lib.format.descr_to_dtype(described)
