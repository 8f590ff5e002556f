"""The random generators of a worker. Their states are part of the loader's state.

The draws of a dataset cannot be observed, only that a generator's state has changed. The worker
checks that after each batch, and sends the states only after a change.
"""

from __future__ import annotations

import random
import struct
import sys

import numpy as np
import torch

from slotline.torch._internals import generator_state, set_generator_state
from slotline import _slotline

# The state of Python's generator, or of NumPy's default one, which has the same algorithm: 624
# words and the position in them, whether a second normally distributed number is stored, and that
# number.
_TWISTER = struct.Struct("=625I?d")
_WORDS = struct.Struct("=625I")
_WAITING = struct.Struct("=?d")
# Imported here, since forked workers must not import anything.
_MT19937 = np.random.MT19937
# The state of a generator of `numpy.random.default_rng`.
_PCG = struct.Struct(f"=16s16s?I{_TWISTER.size - 37}x")
# In place of a generator that the program has replaced, and has to save itself.
_OTHER = bytes(_TWISTER.size)
LENGTH = 1 + 2 * _TWISTER.size + len(torch.default_generator.get_state())


class _Generators:
    # The states at the last check.
    _packed = None

    def changed(self):
        """Returns the states as bytes, or ``None`` if they have not changed since the last call."""
        packed = self.pack()
        is_same, self._packed = packed == self._packed, packed
        return None if is_same else packed


class ProcessGenerators(_Generators):
    """The default generators of this process."""

    def __init__(self):
        bits = np.random.get_bit_generator()
        numpys = (bits, bits.ctypes.state_address) if type(bits) is _MT19937 else None
        words = _WORDS.pack(*random.getstate()[1])
        self._random = random.random.__self__
        try:
            self._watch = _slotline.Generators(torch.default_generator, self._random, words, numpys)
        except ValueError:
            # The layout of another Python version is unknown: compare all states instead.
            self._watch = None
        # The words of NumPy's generator, and whether it stores a second number, which the words do
        # not show.
        self._words, self._is_waiting = None, False
        self._packed = self.pack()

    def changed(self):
        """Implements :meth:`_Generators.changed`."""
        return None if self._watch is not None and not self._watch.changed() else super().changed()

    def pack(self):
        """Returns the states as bytes."""
        if self._watch is None:
            randoms = _pack(random.getstate())
        else:
            number = self._random.gauss_next
            randoms = self._watch.random + _WAITING.pack(number is not None, number or 0.0)
        return b"".join((b"p", randoms, self._pack_numpys(), _torchs(torch.default_generator)))

    def _pack_numpys(self):
        words = None if self._watch is None else self._watch.numpy
        # NumPy stores a second normally distributed number only in a draw that also changes the
        # words. So if the words are unchanged, there is still no such number.
        if words is not None and words == self._words and not self._is_waiting:
            return words + _WAITING.pack(False, 0.0)
        name, key, position, *waiting = np.random.get_state()
        if name != "MT19937":
            return _OTHER
        self._words, self._is_waiting = key.tobytes() + position.to_bytes(4, sys.byteorder), bool(waiting[0])
        if self._watch is not None:
            self._watch.waiting = self._is_waiting
        return self._words + _WAITING.pack(*waiting)

    def restore(self, packed):
        """Restores the generators from packed states. States of threads' generators are ignored."""
        if packed[:1] == b"p":
            randoms, numpys, torchs = _parts(packed)
            random.setstate(_unpack(randoms))
            if numpys != _OTHER:
                *words, position, is_waiting, number = _TWISTER.unpack(numpys)
                np.random.set_state(("MT19937", np.array(words, np.uint32), position, int(is_waiting), number))
            set_generator_state(torch.default_generator, torchs)
            self._packed = self.pack()


class ThreadGenerators(_Generators):
    """The generators of ``get_worker_info().rng`` in a worker thread."""

    def __init__(self, rng):
        self._rng = rng
        self._packed = self.pack()

    def pack(self):
        """Returns the states as bytes."""
        numpys = _OTHER
        if self._rng.numpy_generator is not None:
            state = self._rng.numpy_generator.bit_generator.state
            numbers = (state["state"][name].to_bytes(16, "little") for name in ("state", "inc"))
            numpys = _PCG.pack(*numbers, bool(state["has_uint32"]), state["uinteger"])
        return b"t" + _pack(self._rng.random_generator.getstate()) + numpys + _torchs(self._rng.torch_generator)

    def restore(self, packed):
        """Restores the generators from packed states. States of processes' generators are
        ignored."""
        if packed[:1] == b"t":
            randoms, numpys, torchs = _parts(packed)
            self._rng.random_generator.setstate(_unpack(randoms))
            if self._rng.numpy_generator is not None and numpys != _OTHER:
                state, inc, has_uint32, uinteger = _PCG.unpack(numpys)
                self._rng.numpy_generator.bit_generator.state = {
                    "bit_generator": "PCG64",
                    "state": {"state": int.from_bytes(state, "little"), "inc": int.from_bytes(inc, "little")},
                    "has_uint32": int(has_uint32),
                    "uinteger": uinteger,
                }
            set_generator_state(self._rng.torch_generator, torchs)
            self._packed = packed


def is_packed(packed):
    """Returns whether the bytes are valid states of generators."""
    if len(packed) != LENGTH or packed[0] not in b"pt":
        return False
    randoms, _, torchs = _parts(packed)
    try:
        random.Random().setstate(_unpack(randoms))
        torch.Generator().set_state(torchs)
    except (ValueError, RuntimeError):
        return False
    return True


def _torchs(generator):
    return generator_state(generator).numpy().tobytes()


def _pack(state):
    _, words, number = state
    return _TWISTER.pack(*words, number is not None, number or 0.0)


def _unpack(randoms):
    *words, is_waiting, number = _TWISTER.unpack(randoms)
    return 3, tuple(words), number if is_waiting else None


def _parts(packed):
    numpys, torchs = 1 + _TWISTER.size, 1 + 2 * _TWISTER.size
    return packed[1:numpys], packed[numpys:torchs], torch.frombuffer(bytearray(packed[torchs:]), dtype=torch.uint8)
