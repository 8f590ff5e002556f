"""Checks of the fields of a state, before anything is loaded from it."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from slotline._errors import StateError


class Kind(NamedTuple):
    """The values that a field can have."""

    accepts: Callable[[Any], bool]
    words: str


def integer(first: int, last: int) -> Kind:
    """Integers from ``first`` to ``last``; a ``bool`` is none."""
    bits = last.bit_length()
    words = f"an integer from {first} to {last if bits < 32 else f'2**{bits} - 1'}"
    return Kind(lambda value: isinstance(value, int) and is_integer(value) and first <= value <= last, words)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer; a ``bool`` is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def nullable(kind: Kind) -> Kind:
    """The values of ``kind``, and ``None``."""
    return Kind(lambda value: value is None or kind.accepts(value), f"{kind.words} or None")


COUNT = integer(0, (1 << 63) - 1)
FLAG = Kind(lambda value: isinstance(value, bool), "True or False")
TEXT = Kind(lambda value: isinstance(value, str), "a string")
DICT = Kind(lambda value: isinstance(value, dict), "a dict")
COUNTS = Kind(lambda value: isinstance(value, list) and all(map(COUNT.accepts, value)), "a list of integers from 0 on")
ANYTHING = Kind(lambda value: True, "anything")


def check_fields(state: Mapping[str, Any], kinds: Mapping[str, Kind], path: str = "") -> None:
    """Raises a :class:`StateError` if the state lacks a field, or has a value there that it cannot have.

    ``path`` is where the state is in another one, such as ``"start."``.
    """
    for name, kind in kinds.items():
        if name not in state:
            raise StateError(f"the state has no {path + name!r}; it is damaged, or not a state of this class")
        if not kind.accepts(state[name]):
            raise wrong(path + name, state[name], f"it must be {kind.words}")


def wrong(name: str, value: Any, reason: str) -> StateError:
    """Returns the error for the value of a field."""
    return StateError(f"the state's {name!r} is {reprlib.repr(value)}, but {reason}; it is damaged: load an earlier one")
