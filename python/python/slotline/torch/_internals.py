"""All private names of torch that this package uses, so that a new version of torch can be checked
in one place. Those of torchvision are in ``_lift/internals.py``.

The tests run with torch 2.15. Besides the names here, the
loader and its iterators subclass torch's ``DataLoader`` and ``_BaseDataLoaderIter`` and use their
attributes (``_index_sampler``, ``_dataset_kind``, ``_num_yielded`` and others). The extension module
uses ``Tensor.__dlpack_c_exchange_api__`` (since torch 2.10), ``torch._C._storage_Use_Count``
and ``UntypedStorage._cdata``.
"""

from __future__ import annotations

import os
import threading

import torch
from torch._utils import ExceptionWrapper
from torch.autograd import profiler
from torch.multiprocessing import reductions
from torch.utils.data import _utils
from torch.utils.data._utils import collate, signal_handling, worker
from torch.utils.data._utils.worker import WorkerInfo, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _InfiniteConstantSampler,
    _sharding_worker_init_fn,
)
from torch.utils.data.graph_settings import apply_random_seed, apply_sharding

__all__ = [
    "RNG",
    "WORKER_INFO",
    "ExceptionWrapper",
    "WorkerInfo",
    "_BaseDataLoaderIter",
    "_DatasetKind",
    "_InfiniteConstantSampler",
    "_sharding_worker_init_fn",
    "apply_random_seed",
    "apply_sharding",
    "collate",
    "generate_state",
    "generator_state",
    "get_worker_info",
    "has_changed_functions",
    "has_module_hooks",
    "is_profiling",
    "is_python_exiting",
    "new_dtypes",
    "pin_memory",
    "profiler",
    "reductions",
    "remove_worker_pids",
    "set_generator_state",
    "set_thread_name",
    "set_worker_pids",
    "set_worker_signal_handlers",
    "stop_timeout",
]

set_thread_name = torch.multiprocessing._set_thread_name
new_dtypes = torch.storage._new_dtypes
set_worker_signal_handlers = signal_handling._set_worker_signal_handlers
remove_worker_pids = signal_handling._remove_worker_pids
# The module and the name of the variable that ``get_worker_info`` returns.
WORKER_INFO = worker, "_worker_info"
# Makes the seeds of a worker's generator of NumPy.
generate_state = worker._generate_state
# The type of ``WorkerInfo.rng``; ``None`` if torch has none, as torch 2.10.
RNG = getattr(worker, "_RNG", None)


def set_worker_pids(owner: int, pids: tuple[int, ...]) -> None:
    """Makes torch watch worker processes: if one dies, its handler raises an error."""
    signal_handling._set_worker_pids(owner, pids)
    signal_handling._set_SIGCHLD_handler()


def has_changed_functions() -> bool:
    """Returns whether a mode may change what torch's functions do."""
    return torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack() > 0


def has_module_hooks() -> bool:
    """Returns whether there are hooks that all modules call."""
    modules = torch.nn.modules.module
    return bool(modules._global_forward_hooks or modules._global_forward_pre_hooks)


def is_profiling() -> bool:
    """Returns whether a profiler is recording."""
    return profiler._is_profiler_enabled


def is_python_exiting() -> bool:
    """Returns whether the interpreter is shutting down, so that worker processes have already
    ended."""
    return _utils is None or _utils.python_exit_status is not False


def stop_timeout() -> float:
    """Returns how many seconds a loader waits for its workers to stop."""
    return _utils.MP_STATUS_CHECK_INTERVAL


# While torch reads a generator's state, it holds the generator's lock and creates an object. If that
# collects garbage with tensors in it, it releases the interpreter's lock. Another thread that then
# waits for the generator's lock does so with the interpreter's lock held, so both wait forever.
_states = threading.RLock()


def _after_fork() -> None:
    # Another thread of the parent may have held it.
    global _states
    _states = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def generator_state(generator: torch.Generator) -> torch.Tensor:
    """Returns the state of a generator that other threads may use."""
    with _states:
        return generator.get_state()


def set_generator_state(generator: torch.Generator, state: torch.Tensor) -> None:
    """Sets the state of a generator that other threads may use."""
    with _states:
        generator.set_state(state)
