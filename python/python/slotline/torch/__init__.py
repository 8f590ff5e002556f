"""PyTorch's ``DataLoader``, implemented by slotline.

Only the import changes::

    from slotline.torch import DataLoader
"""

import torch

if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(f"slotline.torch needs PyTorch 2.10 or later, and this is {torch.__version__}; slotline.Loader needs no PyTorch")

from slotline.torch._device import DeviceLoader
from slotline.torch._lift.function import lift
from slotline.torch._loader import DataLoader
from slotline.torch._steps import equal_steps

__all__ = ["DataLoader", "DeviceLoader", "equal_steps", "lift"]
