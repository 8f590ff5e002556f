"""How samples become batches."""

from __future__ import annotations

import threading

import numpy as np
import torch
import torch.utils.data._utils.worker as _worker
from torch.utils.data._utils import collate as _torchs
from torch.utils.data._utils.collate import collate, default_collate, default_collate_fn_map

# If this thread is a worker: which one, as torch's `WorkerInfo`.
worker_of_thread = threading.local()
# The functions that torch has for tensors, arrays, numbers and strings. Programs may register others, also before this module is
# imported.
_TORCHS = {
    torch.Tensor: _torchs.collate_tensor_fn,
    np.ndarray: _torchs.collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): _torchs.collate_numpy_scalar_fn,
    float: _torchs.collate_float_fn,
    int: _torchs.collate_int_fn,
    str: _torchs.collate_str_fn,
    bytes: _torchs.collate_str_fn,
}


def is_default(collate_fn) -> bool:
    """Whether ``collate_fn`` is torch's, which slotline replaces."""
    return collate_fn is default_collate and default_collate_fn_map == _TORCHS


def column(samples):
    """Collates a part of the samples as torch does.

    In a worker, torch's function would take a shared-memory file for each tensor, which is not needed here.
    """
    if hasattr(worker_of_thread, "info"):
        owner, name = worker_of_thread, "info"
    else:
        owner, name = _worker, "_worker_info"
    info = getattr(owner, name)
    setattr(owner, name, None)
    try:
        return collate(samples, collate_fn_map=default_collate_fn_map)
    finally:
        setattr(owner, name, info)
