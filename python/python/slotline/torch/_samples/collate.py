"""Collation of samples into batches with torch's function, and explanations of its errors."""

from __future__ import annotations

import collections.abc
import copyreg
import threading
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch

from slotline.torch._internals import WORKER_INFO, collate

# In a worker thread: its index and seed, as torch's `WorkerInfo`.
worker_of_thread = threading.local()
# torch's original collate function and its table of functions for tensors, arrays, numbers and
# strings. A program may replace both, also before this module is imported: the function is
# remembered as it is at import.
_DEFAULT = collate.default_collate
_OWN_FUNCTIONS = {
    torch.Tensor: collate.collate_tensor_fn,
    np.ndarray: collate.collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate.collate_numpy_scalar_fn,
    float: collate.collate_float_fn,
    int: collate.collate_int_fn,
    str: collate.collate_str_fn,
    bytes: collate.collate_str_fn,
}


def is_default_collate(collate_fn) -> bool:
    """Returns whether ``collate_fn`` is torch's default, which slotline replaces."""
    return collate_fn is _DEFAULT and collate.default_collate_fn_map == _OWN_FUNCTIONS


def collate_as_torch(samples):
    """Collates samples as torch does. An error gets a note that locates it in the samples."""
    try:
        return part(samples)
    except Exception as error:
        explain(samples, error)
        raise


def part(samples):
    """Collates a part of the samples as torch does.

    In a worker, torch's function would create a shared-memory file for each tensor. That is not
    needed here, so this function hides from torch that it runs in a worker.
    """
    if hasattr(worker_of_thread, "info"):
        owner, name = worker_of_thread, "info"
    else:
        owner, name = WORKER_INFO
    info = getattr(owner, name)
    setattr(owner, name, None)
    try:
        return collate.collate(samples, collate_fn_map=collate.default_collate_fn_map)
    finally:
        # If another thread hides the worker's information at the same time, that thread restores
        # it.
        if info is not None:
            setattr(owner, name, info)


def explain(samples, error):
    """Adds a note to an error of collating: the field, and the first sample that does not fit."""
    try:
        found = _find(samples, ())
    except Exception:
        # The samples are too unusual to examine.
        return
    if found is not None:
        path, number, what = found
        is_name = len(path) == 1 and isinstance(path[0], str)
        field = repr(path[0]) if is_name else "".join(f"[{step!r}]" for step in path)
        error.add_note(f"In {f'field {field}' if path else 'the samples'}, sample {number} of the batch {what}.")


def _find(column, path):
    """Returns the first place where samples cannot be collated: its path, the sample's number and
    the reason."""
    first = column[0]
    if isinstance(first, collections.abc.Mapping):
        for key in first:
            values = []
            for number, sample in enumerate(column):
                try:
                    values.append(sample[key])
                except Exception:
                    return path, number, f"has no {key!r}, which sample 0 has"
            if (found := _find(values, (*path, key))) is not None:
                return found
        return None
    if isinstance(first, collections.abc.Sequence) and not isinstance(first, (str, bytes)):
        names = first._fields if isinstance(first, tuple) and hasattr(first, "_fields") else None
        for number, sample in enumerate(column if names is None else ()):
            if not hasattr(sample, "__len__") or len(sample) != len(first):
                size = f"{len(sample)} parts" if hasattr(sample, "__len__") else "no parts"
                return path, number, f"has {size}, and sample 0 has {len(first)}"
        for k, values in enumerate(zip(*column)):
            if (found := _find(values, (*path, names[k] if names else k))) is not None:
                return found
        return None
    if _fit(column):
        return None
    for number, sample in enumerate(column):
        if not _fit([first, sample] if number else [first]):
            return path, number, "does not fit sample 0" if number else "cannot be collated"
    return None


def _fit(samples) -> bool:
    try:
        part(samples)
    except Exception:
        return False
    return True


def is_plain_named(kind) -> bool:
    """Returns whether ``kind`` was made by ``collections.namedtuple`` unchanged, so that calling it
    with the values restores a tuple."""
    own = vars(kind)
    return (
        kind.__bases__ == (tuple,)
        and own.get("__slots__") == ()
        and getattr(own.get("__new__"), "__module__", None) == f"namedtuple_{kind.__name__}"
        and _PICKLING.isdisjoint(own)
        and kind not in copyreg.dispatch_table
        and kind not in ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    )


_PICKLING = {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"}
