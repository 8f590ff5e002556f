"""PyTorch's ``DataLoader``, implemented by slotline.

Only the import changes::

    from slotline.torch import DataLoader
"""

from slotline.torch._device import DeviceLoader
from slotline.torch._lift.function import lift
from slotline.torch._loader import DataLoader
from slotline.torch._steps import equal_steps

__all__ = ["DataLoader", "DeviceLoader", "equal_steps", "lift"]
