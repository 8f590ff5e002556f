"""A data loader for training loops.

:mod:`slotline.torch` has PyTorch's ``DataLoader``.
"""

from slotline._slotline import __version__

__all__ = ["__version__"]
