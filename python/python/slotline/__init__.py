"""A data loader for training loops.

:class:`Loader` loads datasets of arrays and files with threads that run without the interpreter.
Its batches are NumPy arrays, PyTorch tensors, or anything else that imports DLPack. It needs only
NumPy.

:mod:`slotline.torch` has a replacement for PyTorch's ``DataLoader``.
"""

from typing import TYPE_CHECKING

from slotline._datasets import (
    Arrays,
    Batches,
    ConcatDataset,
    Dataset,
    Field,
    Mixture,
    Packed,
    StackDataset,
    Subset,
    digits,
    from_idx,
    from_npy,
    mix,
)
from slotline._errors import (
    DataError,
    Error,
    ForkError,
    LoaderTimeoutError,
    OptionError,
    OutOfMemoryError,
    SampleError,
    StateError,
    WorkerError,
)
from slotline._files import folder, open, tokens
from slotline._frozen import FrozenList, freeze
from slotline._loader import Loader, merge_states
from slotline._ranks import Ranks, find_ranks
from slotline._rng import is_stopping, rng
from slotline._sheet import sheet
from slotline._slotline import Pass, Tensor, __version__

if TYPE_CHECKING:
    from slotline import image
else:

    def __getattr__(name):
        # Most programs need no transforms, whose classes would take a third of the time to import this package.
        if name == "image":
            import importlib

            return importlib.import_module("slotline.image")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Arrays",
    "Batches",
    "ConcatDataset",
    "DataError",
    "Dataset",
    "Error",
    "Field",
    "ForkError",
    "FrozenList",
    "Loader",
    "LoaderTimeoutError",
    "Mixture",
    "OptionError",
    "OutOfMemoryError",
    "Packed",
    "Pass",
    "Ranks",
    "SampleError",
    "StackDataset",
    "StateError",
    "Subset",
    "Tensor",
    "WorkerError",
    "__version__",
    "digits",
    "find_ranks",
    "folder",
    "freeze",
    "from_idx",
    "from_npy",
    "image",
    "is_stopping",
    "merge_states",
    "mix",
    "open",
    "rng",
    "sheet",
    "tokens",
]
