"""Transforms of torchvision as functions that do their work natively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LiftedTransform:
    """See :func:`lift`."""

    transform: Callable[..., Any]

    def __init__(self, transform: Callable[..., Any]) -> None:
        from slotline.torch._lift.drawing import Drawing
        from slotline.torch._lift.transforms import Lifter

        inner: Callable[..., Any] = transform.transform if isinstance(transform, LiftedTransform) else transform
        self.transform = inner
        self._drawing = Drawing
        self._lifter = Lifter(inner)

    def __call__(self, *images: Any) -> Any:
        if self._lifter.transform is not self.transform or not self._lifter.is_current():
            self._lifter = type(self._lifter)(self.transform)
        lifter = self._lifter
        if len(images) != 1 or not lifter.known or not self._drawing.can_be(images[0]):
            return self.transform(*images)
        return lifter.now(self._drawing.of(images[0]))

    def plan(self) -> str:
        """Returns what is done natively, and what is not, and why."""
        return self._lifter.describe()

    def __reduce__(self):
        return LiftedTransform, (self.transform,)

    def __repr__(self) -> str:
        return f"lift({self.transform!r})"


def lift(transform: Callable[..., Any]) -> LiftedTransform:
    """Returns a function that does what a transform of torchvision does with a PIL image, natively.

    It is for datasets of your own, which open their images themselves. The result has the same bits, and the same random numbers are
    drawn. What is not known is done by torchvision: transforms that are not torchvision's, with all that follow them, tensors,
    and images that are not ``RGB`` or ``L``. The first two images are compared with what torchvision makes of them; if one differs,
    there is a ``RuntimeWarning``, and torchvision does everything. The result has a method ``plan``, which says what is done how.

    A :class:`DataLoader` does this by itself for torchvision's datasets.

    Raises ``ImportError`` without torchvision.
    """
    return LiftedTransform(transform)
