"""Random numbers of torch's default generator that are drawn many at once.

A number that torch draws alone takes longer than all else that is done in Python for a small picture.
"""

from __future__ import annotations

import operator
import threading

import numpy as np
import torch

from slotline.torch._internals import generator_state, has_changed_functions

# How many words are drawn at once, two of 32 bits in each number.
_AHEAD = 1024
_OF_TORCH = torch.rand, torch.randint


class _Integer(int):
    """Stands for a tensor of one integer."""

    __slots__ = ()

    def item(self):
        return int(self)


def _single(number):
    """Rounds a number as torch does that compares it with a tensor of 32-bit numbers."""
    return float(np.float32(number))


def _compared(compare):
    def method(self, other):
        if type(other) in (int, float) and 0 <= other <= 1:
            return compare(float(self), _single(other))
        # Tensors, which may be changed, and what torch refuses.
        return compare(torch.tensor([float(self)]), other)

    return method


class _Fraction(float):
    """Stands for a tensor of one number."""

    __slots__ = ()

    def item(self):
        return float(self)

    __lt__, __gt__, __le__, __ge__ = map(_compared, (operator.lt, operator.gt, operator.le, operator.ge))


def _words(generator, count):
    numbers = torch.empty(count, dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    # The first word is the higher one.
    return numbers.numpy().view(np.uint32).reshape(-1, 2)[:, ::-1].ravel()


class Draws:
    """``torch`` for the transforms of a batch: ``rand`` and ``randint`` return numbers that were drawn before.

    Between :meth:`begin` and :meth:`end`, torch's default generator stays as it is, and then it skips what was used. At other times,
    they are torch's.
    """

    # Whether this version of torch draws as is expected here, once that is known.
    _is_expected = None

    def __init__(self):
        self._is_on = False
        self._generator = torch.Generator()
        # The words that come next, the last one first.
        self._left = []
        self._drawn = 0
        # The state of the default generator to which they belong.
        self._state = None

    def begin(self, state):
        """Begins a batch, with the state of the default generator. Returns false if numbers have to be drawn alone."""
        self._is_on = threading.current_thread() is threading.main_thread() and _is_plain()
        if self._is_on and Draws._is_expected is None:
            Draws._is_expected = _are_as_expected()
        self._is_on = self._is_on and Draws._is_expected
        if not self._is_on:
            return False
        if self._state is None or not torch.equal(self._state, state):
            # An interrupt may come at any time.
            self._state, self._left = None, []
            self._generator.set_state(state)
        self._state = state
        self._drawn = len(self._left)
        return True

    def end(self):
        """Ends a batch. Returns false if somebody else has drawn numbers meanwhile, so that others were to be used."""
        self._is_on = False
        state, self._state = self._state, None
        if not torch.equal(generator_state(torch.default_generator), state):
            return False
        used = self._drawn - len(self._left)
        torch.empty(used // 2, dtype=torch.int64).random_(-(1 << 63), None)
        if used % 2 == 1:
            torch.rand(1)
        self._state = generator_state(torch.default_generator)
        return True

    def cancel(self):
        """Ends a batch for which nothing is to have been drawn."""
        self._is_on = False
        self._state = None

    def _word(self):
        if not self._left:
            self._left = _words(self._generator, _AHEAD)[::-1].tolist()
            self._drawn += 2 * _AHEAD
        return self._left.pop()

    def rand(self, *size, **options):
        if not self._is_on:
            return torch.rand(*size, **options)
        if size != (1,) or options:
            raise NotImplementedError
        return _Fraction((self._word() & 0xFFFFFF) / (1 << 24))

    def randint(self, low, high, size):
        if not self._is_on:
            return torch.randint(low, high, size)
        if size not in ((1,), ()) or not 0 < high - low < 1 << 24:
            raise NotImplementedError
        return _Integer(low + self._word() % (high - low))

    def __getattr__(self, name):
        return getattr(torch, name)


def _is_plain():
    """Whether torch's functions draw numbers of the default type on the CPU, and nobody has changed what they do."""
    return not has_changed_functions() and torch.get_default_dtype() is torch.float32 and (torch.rand, torch.randint) == _OF_TORCH


def _are_as_expected():
    """Whether this version of torch draws numbers as they are made here of its words."""
    generator, again = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    words = iter(_words(generator, 64).tolist())
    for high in range(1, 1 << 20, 1 << 15):
        if torch.randint(0, high, (1,), generator=again).item() != next(words) % high:
            return False
        if torch.rand(1, generator=again).item() != (next(words) & 0xFFFFFF) / (1 << 24):
            return False
        if torch.randint(0, high, (), generator=again).item() != next(words) % high:
            return False
        next(words), torch.rand(1, generator=again)
    return torch.equal(generator.get_state(), again.get_state())
