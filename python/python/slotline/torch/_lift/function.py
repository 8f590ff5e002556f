"""Transforms of torchvision as functions that run natively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slotline.torch._lift.fetch import is_of_program


class LiftedTransform:
    """The result of :func:`lift`."""

    transform: Callable[..., Any]

    def __init__(self, transform: Callable[..., Any]) -> None:
        from slotline.torch._lift.drawing import Drawing
        from slotline.torch._lift.transforms import Lifter

        inner: Callable[..., Any] = transform.transform if isinstance(transform, LiftedTransform) else transform
        if not callable(inner):
            raise TypeError(f"lift needs a transform, such as a Compose, but got an object of type {type(inner).__name__}")
        self.transform = inner
        self._drawing = Drawing
        self._lifter = Lifter(inner)

    def __call__(self, *images: Any, **named: Any) -> Any:
        if self._lifter.transform is not self.transform or not self._lifter.is_current():
            self._lifter = type(self._lifter)(self.transform)
        lifter = self._lifter
        if len(images) != 1 or named or not lifter.known or not self._drawing.can_be(images[0]):
            return self.transform(*images, **named)
        try:
            drawing = self._drawing.of(images[0])
        except Exception as error:
            if is_of_program(error):
                raise
            # The file of an image that was not read yet is damaged. The transform may draw numbers before it finds out.
            return self.transform(images[0])
        return lifter.now(drawing)

    def plan(self) -> str:
        """Returns which transforms run natively, which do not, and why."""
        return self._lifter.describe()

    def __reduce__(self) -> tuple[type[LiftedTransform], tuple[Any]]:
        return LiftedTransform, (self.transform,)

    def __repr__(self) -> str:
        return f"lift({self.transform!r})"


def lift(transform: Callable[..., Any]) -> LiftedTransform:
    """Returns a function that applies a transform of torchvision to a PIL image natively.

    It is for your own datasets that open images themselves. The results are bit-identical, and the
    same random numbers are drawn. torchvision executes what is not supported: transforms of other
    packages and all transforms after them, tensors, and images with modes other than ``RGB`` and
    ``L``. The first two images are compared with torchvision's results; if one differs, a
    ``RuntimeWarning`` is issued, and torchvision executes everything. The result's method ``plan``
    lists what runs natively. A JPEG that ``PIL.Image.open`` has returned, and that was not read yet,
    is also decoded natively.

    A :class:`DataLoader` does this automatically for torchvision's datasets.

    Raises ``ImportError`` without torchvision.
    """
    return LiftedTransform(transform)
