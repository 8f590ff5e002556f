"""All private names of torchvision that this package uses.

The tests run with torchvision 0.29. ``transforms`` also copies methods of torchvision's transforms, and has lists of their names.
"""

from torchvision.transforms import _functional_pil as functional_pil  # type: ignore[import-untyped]
from torchvision.transforms.functional import (  # type: ignore[import-untyped]
    _compute_resized_output_size as compute_resized_output_size,
)
from torchvision.transforms.functional import _interpolation_modes_from_int as interpolation_modes_from_int
from torchvision.transforms.v2._utils import _get_fill as get_fill  # type: ignore[import-untyped]
from torchvision.transforms.v2.functional._geometry import _check_interpolation as v2_interpolation  # type: ignore[import-untyped]
from torchvision.transforms.v2.functional._geometry import (  # type: ignore[import-untyped]
    _do_native_uint8_resize_on_cpu as is_native_resize,
)
from torchvision.transforms.v2.functional._utils import _KERNEL_REGISTRY as KERNELS  # type: ignore[import-untyped]

__all__ = [
    "KERNELS",
    "compute_resized_output_size",
    "functional_pil",
    "get_fill",
    "interpolation_modes_from_int",
    "is_native_resize",
    "v2_interpolation",
]
