"""Pickling of objects whose tensors are sent separately, without pickling them.

Storages and tensors of unusual types cannot be pickled, or only by copying them twice. torch's
reductions for its queues rebuild them from untyped storages, whose bytes are sent as a tensor.
"""

from __future__ import annotations

import io
import pickle
import threading
from multiprocessing.reduction import ForkingPickler

import torch

from slotline.torch._internals import new_dtypes, reductions

_received = threading.local()
# Element types of less than a byte, and types that ``Tensor.__reduce_ex__`` pickles in a form that
# only ``torch.load`` reads.
_SMALL = {getattr(torch, f"{sign}int{bits}", None) for sign in ("", "u") for bits in range(1, 8)} - {None}
_UNUSUAL = _SMALL | new_dtypes()


class _Pickler(ForkingPickler):
    def __init__(self, file, is_sendable):
        super().__init__(file, 5)
        self._is_sendable = is_sendable
        self.tensors = []

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor):
            if self._is_sendable(value):
                return self._send(value, _tensor)
            if type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu" and not value.is_nested:
                # torch's reduction for queues loses the negation bit, and rejects tensors with a
                # gradient history.
                if value.dtype in _UNUSUAL:
                    return reductions.reduce_tensor(value.resolve_conj().resolve_neg())
                return value.__reduce_ex__(5)
        elif isinstance(value, torch.UntypedStorage) and value.device.type == "cpu":
            return self._send(torch.empty(0, dtype=torch.uint8, device="cpu").set_(value), _storage)
        return NotImplemented

    def _send(self, tensor, receive):
        self.tensors.append(tensor)
        return receive, (len(self.tensors) - 1,)


def dumps(value, is_sendable):
    """Returns the pickled object, and the tensors that it contains."""
    file = io.BytesIO()
    pickler = _Pickler(file, is_sendable)
    pickler.dump(value)
    return file.getvalue(), pickler.tensors


def loads(pickled, tensors):
    """Returns the object unpickled, with ``tensors`` as the tensors that it contains."""
    before = getattr(_received, "tensors", None)
    _received.tensors = tensors
    try:
        return pickle.loads(pickled)
    finally:
        _received.tensors = before


def _tensor(number):
    return _received.tensors[number]


def _storage(number):
    return _received.tensors[number].untyped_storage()
