"""All of torch's private names that this package uses, so that another version of torch can be checked in one place.

The tests run with torch 2.15; 2.6 is the oldest version that is supported. What only some versions have is looked up with
``getattr`` or ``hasattr`` where it is used. Besides these names, the loader and its iterators are subclasses of torch's
``DataLoader`` and ``_BaseDataLoaderIter``, whose attributes (``_index_sampler``, ``_dataset_kind``, ``_num_yielded`` and others)
they read and set; and the extension uses ``Tensor.__dlpack_c_exchange_api__``, ``torch._C._storage_Use_Count`` and
``UntypedStorage._cdata``.
"""

from __future__ import annotations

import torch
from torch._utils import ExceptionWrapper
from torch.autograd import profiler
from torch.multiprocessing import reductions
from torch.utils.data import _utils
from torch.utils.data._utils import collate, signal_handling, worker
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _InfiniteConstantSampler,
    _sharding_worker_init_fn,
)
from torch.utils.data.graph_settings import apply_random_seed, apply_sharding

__all__ = [
    "ExceptionWrapper",
    "_BaseDataLoaderIter",
    "_DatasetKind",
    "_InfiniteConstantSampler",
    "_sharding_worker_init_fn",
    "apply_random_seed",
    "apply_sharding",
    "collate",
    "is_profiling",
    "is_python_exiting",
    "new_dtypes",
    "pin_memory",
    "profiler",
    "reductions",
    "set_thread_name",
    "signal_handling",
    "stop_timeout",
    "worker",
]

set_thread_name = torch.multiprocessing._set_thread_name
new_dtypes = torch.storage._new_dtypes


def is_profiling() -> bool:
    """Whether a profiler records what the program does."""
    return profiler._is_profiler_enabled


def is_python_exiting() -> bool:
    """Whether the interpreter is about to end, so that worker processes have been ended already."""
    return _utils is None or _utils.python_exit_status is not False


def stop_timeout() -> float:
    """Returns for how many seconds a loader waits for its workers to stop."""
    return _utils.MP_STATUS_CHECK_INTERVAL
