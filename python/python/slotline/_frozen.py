"""Lists of objects that worker processes share without copies."""

from __future__ import annotations

import operator
import os
import pathlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, ClassVar, TypeVar, overload

import numpy as np

from slotline import _slotline

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# The minimum length of a dataset's list for `freeze` to replace it.
_LONG = 1000


class _Columns(_slotline.Columns):
    """A file of frozen objects. If it is pickled for a process that is being started, the process
    shares the file; in any other pickle it is copied."""

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing import reduction

        if _is_starting():
            return _attach, (reduction.DupFd(self.fileno()),)
        return _copy, (self.contents(),)


def _is_starting() -> bool:
    """Returns whether objects are being pickled for a process that ``multiprocessing`` is
    starting."""
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

    The list cannot be changed. Each access makes a new object, so changes to an object do not affect
    later accesses. A slice shares the list's memory, and so does a process that is started with the
    list as an argument. Any other pickle contains a copy of the objects.
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

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

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
        """The size of the memory in bytes, which all processes share. For a slice, the size of the
        whole list."""
        return self._columns.nbytes


D = TypeVar("D")


@overload
def freeze(objects: Iterable[T]) -> FrozenList[T]: ...
@overload
def freeze(objects: D) -> D: ...
def freeze(objects: Any) -> Any:
    """Puts objects, or the long lists of a dataset, into memory that worker processes share.

    Python writes to every object that it uses, to count references. So each forked worker process
    soon has its own copy of a list of a million paths or dicts. A :class:`FrozenList` stores bytes
    instead of objects. It makes a new object on each access, with the original's type and value.

    ``objects`` is any iterable. If it is a generator, there is never a list of all objects. Objects
    of these types are accepted: ``None``, ``bool``, ``int``, ``float``, ``complex``, ``str``,
    ``bytes``, paths of ``pathlib``, arrays and scalars of NumPy except arrays of Python objects, and
    lists, tuples and dicts of these. Any other type, including a subclass such as a named tuple,
    raises a ``TypeError`` that says where the object is. An object that occurs several times is
    copied each time. The arrays that an access makes are contiguous and writable. Containers may be
    nested up to 100 deep.

    ``objects`` can also be a dataset for torch's ``DataLoader``. Its attributes that are lists or
    tuples of 1,000 or more such objects become frozen lists, and so do those of the datasets that
    it is made of, such as the one in a ``Subset``. The same dataset is returned. A warning is
    issued if nothing can be frozen, or if a long list cannot be; it says what was found.
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
    # The key is the list's `id`, since several attributes may refer to one list. The value keeps
    # the list alive, so that its `id` stays unique.
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
                # Not with `setattr`, since a class may define its own `__setattr__`.
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
    """Yields a dataset and the datasets that it is made of, such as the one in torch's ``Subset``,
    each with a Python expression that leads to it, for messages."""
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


# Types whose objects `join` makes from a plain value that `split` returns.
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
    """Splits an object into plain values, which the extension module stores. Raises a ``TypeError``
    that says why an object cannot be frozen."""
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
    """Makes an object from the result of :func:`split`."""
    code, first, *rest = parts
    if code < _ARRAY:
        return _MAKERS[code](first)
    array = np.ndarray(rest[0], _dtype(first), rest[1]).copy()
    return array if code == _ARRAY else array[()]


def _describe(dtype: np.dtype[Any]) -> Any:
    # Some dtypes have the same string, such as those of C's long and long long.
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
