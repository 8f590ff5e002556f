"""Checks of the fields of a saved state, made before anything is loaded from it."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from slotline._errors import StateError


class Kind(NamedTuple):
    """The set of values that a field may have: a predicate, and its description for error
    messages."""

    accepts: Callable[[Any], bool]
    words: str


def integer(first: int, last: int) -> Kind:
    """Returns the kind of the integers from ``first`` to ``last``; a ``bool`` is not an integer."""
    bits = last.bit_length()
    words = f"an integer from {first} to {last if bits < 32 else f'2**{bits} - 1'}"
    return Kind(lambda value: isinstance(value, int) and is_integer(value) and first <= value <= last, words)


def is_integer(value: Any) -> bool:
    """Returns whether a value is an integer; a ``bool`` is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def nullable(kind: Kind) -> Kind:
    """Returns the kind that allows the values of ``kind`` and ``None``."""
    return Kind(lambda value: value is None or kind.accepts(value), f"{kind.words} or None")


COUNT = integer(0, (1 << 63) - 1)
FLAG = Kind(lambda value: isinstance(value, bool), "True or False")
TEXT = Kind(lambda value: isinstance(value, str), "a string")
DICT = Kind(lambda value: isinstance(value, dict), "a dict")
COUNTS = Kind(lambda value: isinstance(value, list) and all(map(COUNT.accepts, value)), "a list of integers from 0 on")
ANYTHING = Kind(lambda value: True, "anything")


def check_fields(state: Mapping[str, Any], kinds: Mapping[str, Kind], path: str = "") -> None:
    """Raises a :class:`StateError` if the state lacks a field, or if a field has an invalid value.

    ``path`` is the prefix of the names in messages if the state is nested in another, such as
    ``"start."``.
    """
    for name, kind in kinds.items():
        if name not in state:
            raise StateError(f"the state has no {path + name!r}; it is damaged, or not a state of this class")
        if not kind.accepts(state[name]):
            raise wrong(path + name, state[name], f"it must be {kind.words}")


def wrong(name: str, value: Any, reason: str) -> StateError:
    """Returns the error for an invalid value of the field ``name``."""
    return StateError(f"the state's {name!r} is {reprlib.repr(value)}, but {reason}; it is damaged: load an earlier one")
