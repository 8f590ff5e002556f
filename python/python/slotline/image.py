"""Transforms of pictures, as objects: ``image=[RandomResizedCrop(224), RandomHorizontalFlip()]``.

:func:`slotline.open` and :func:`slotline.folder` take a list of them as ``image``. The workers
decode the pictures and apply the transforms in this order, without Python. The names, arguments and
defaults are those of ``torchvision.transforms.v2``. Sizes and paddings are in pixels, probabilities
from 0 to 1, and colours from 0 to 255: one number, or ``[red, green, blue]``.

``str()`` of a transform is its text, which ``image`` takes, too:
``"random_resized_crop(224), random_horizontal_flip"``. Transforms are equal if their texts are. An
argument that is ``None`` has its default.

:class:`Options` says how files are read. :class:`MixUp`, :class:`CutMix` and
:class:`SanitizeBoundingBoxes` are not for the list: the loop calls them.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Literal

import numpy as np

from slotline import _slotline
from slotline._errors import DataError, OptionError
from slotline._loader import _check_integer
from slotline._rng import rng

Interpolation = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | Enum
"""How pixels are computed when a picture is resized: a word, or torchvision's ``InterpolationMode``.
All except ``"bilinear"`` need ``Options(exact=True)``. Bilinear and bicubic resizing is with
antialiasing."""
AffineInterpolation = Literal["nearest", "bilinear"] | Enum
"""How pixels are computed when a picture is rotated or sheared."""
Colour = int | Sequence[int]
"""One level for red, green and blue, or one for each, from 0 to 255."""


@dataclass(frozen=True, eq=False)
class Transform:
    """The base class of the transforms. Arguments are checked when an object is made: a wrong value
    raises a :class:`slotline.DataError`, which is a ``ValueError``."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # A list could change after its text was made.
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
        object.__setattr__(self, "_text", _slotline.image_text(self._source()))

    def _source(self) -> str:
        """Returns a text of the transform, with all arguments."""
        return f"{_snake_case(type(self).__name__)}({', '.join(f'{name}={text}' for name, text in self._arguments())})"

    def _arguments(self) -> Iterable[tuple[str, str]]:
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [(name, _written(f"{type(self).__name__}: {name}", value)) for name, value in given if value is not None]

    def __str__(self) -> str:
        text: str = vars(self)["_text"]
        return text

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _snake_case(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).removeprefix("_")


def _written(about: str, value: Any) -> str:
    """Returns the text of an argument."""
    if isinstance(value, Enum):
        value = str(value.value).replace("-", "_")
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if isinstance(value, Iterable):
        return f"[{', '.join(_written(about, item) for item in value)}]"
    raise TypeError(f"{about} is {value!r}; it must be a number, a word or a list of these")


def pipeline(transforms: Sequence[Transform]) -> str:
    """Returns the text of a list of transforms, which may contain :class:`Options`."""
    if isinstance(transforms, str) or not isinstance(transforms, Sequence):
        raise TypeError(f"the transforms are {transforms!r}; pass a list of transforms of slotline.image, or to image= their text")
    for transform in transforms:
        if not isinstance(transform, Transform):
            about = f"{type(transform).__module__}.{type(transform).__qualname__}"
            raise TypeError(f"one of the transforms is {transform!r} of type {about}; pass transforms of slotline.image")
    return ", ".join(filter(None, map(str, transforms)))


@dataclass(frozen=True, eq=False)
class Options(Transform):
    """How files are read. It may stand anywhere in a list of transforms.

    Args:
        exif: Whether to turn pictures upright, as their EXIF or XMP data says.
        reduced: Whether JPEGs may be decoded at a half, a quarter or an eighth of their size if that
            is large enough: faster, but less like PIL. Needs a build with libjpeg-turbo.
        strict: Whether warnings of the JPEG decoder are errors.
        check: Whether to read a file to its end if only a part of the picture is needed.
        exact: Whether pixels have the same bits as with torchvision's transforms of PIL images.
            Needs a build with libjpeg-turbo.
    """

    exif: bool = False
    reduced: bool = False
    strict: bool = False
    check: bool = True
    exact: bool = False

    def _source(self) -> str:
        return ", ".join(f"{name}({text})" for name, text in self._arguments())


@dataclass(frozen=True, eq=False)
class Resize(Transform):
    """Resizes a picture.

    Args:
        size: The length of the shorter side, or ``[height, width]``.
        interpolation: See :data:`Interpolation`.
        max_size: The largest length of the longer side, if ``size`` is that of the shorter one.
    """

    size: int | Sequence[int]
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None


@dataclass(frozen=True, eq=False)
class CenterCrop(Transform):
    """Crops a picture around its centre, and pads smaller pictures with black.

    Args:
        size: The side of a square, or ``[height, width]``.
    """

    size: int | Sequence[int]


@dataclass(frozen=True, eq=False)
class RandomCrop(Transform):
    """Crops a picture at a random position.

    Args:
        size: The side of a square, or ``[height, width]``.
        padding: The pixels to add around the picture before: for all sides, ``[left and right, top
            and bottom]`` or ``[left, top, right, bottom]``.
        pad_if_needed: Whether to pad pictures that are smaller than ``size``. Otherwise they are
            errors.
        fill: The colour of the padding, for ``"constant"``.
        padding_mode: What the padding shows: a colour, the pixels at the edge, or the picture
            mirrored without (``"reflect"``) or with (``"symmetric"``) the pixels at the edge.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: Colour = 0
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"


@dataclass(frozen=True, eq=False)
class RandomResizedCrop(Transform):
    """Crops a random part of a picture, and resizes it.

    Args:
        size: The side of a square, or ``[height, width]``.
        scale: The smallest and the largest area of the part, as a fraction of the picture's area.
        ratio: The smallest and the largest width of the part, divided by its height.
        interpolation: See :data:`Interpolation`.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True, eq=False)
class RandomHorizontalFlip(Transform):
    """Mirrors left and right, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True, eq=False)
class RandomVerticalFlip(Transform):
    """Mirrors top and bottom, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True, eq=False)
class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random amounts, in random order.

    Args:
        brightness: The range of the factor, ``[from, to]`` with both at least 0, or the largest
            distance of the factor from 1. 1 changes nothing.
        contrast: The same as for ``brightness``.
        saturation: The same as for ``brightness``.
        hue: The range of the rotation, as a fraction of the colour circle, from -0.5 to 0.5, or the
            largest rotation in both directions.
    """

    brightness: float | Sequence[float] | None = None
    contrast: float | Sequence[float] | None = None
    saturation: float | Sequence[float] | None = None
    hue: float | Sequence[float] | None = None


@dataclass(frozen=True, eq=False)
class RandomGrayscale(Transform):
    """Makes a picture grey, with probability ``p``."""

    p: float = 0.1


@dataclass(frozen=True, eq=False)
class GaussianBlur(Transform):
    """Blurs a picture. Not with ``Options(exact=True)``.

    Args:
        kernel_size: The side of the kernel, which is odd and at most 999, or ``[width, height]``.
        sigma: The range of the standard deviation in pixels, above 0, or one number.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)


@dataclass(frozen=True, eq=False)
class RandomAdjustSharpness(Transform):
    """Changes the sharpness by ``sharpness_factor``, with probability ``p``: 0 smooths, 1 changes
    nothing, and 2 doubles the sharpness."""

    sharpness_factor: float
    p: float = 0.5


@dataclass(frozen=True, eq=False)
class RandomAutocontrast(Transform):
    """Stretches each channel to the full range, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True, eq=False)
class RandomEqualize(Transform):
    """Makes all values of each channel equally frequent, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True, eq=False)
class RandomInvert(Transform):
    """Inverts all values, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True, eq=False)
class RandomPosterize(Transform):
    """Keeps the highest ``bits`` bits of each value, from 0 to 8, with probability ``p``."""

    bits: int
    p: float = 0.5


@dataclass(frozen=True, eq=False)
class RandomSolarize(Transform):
    """Inverts the values from ``threshold`` on, which is from 0 to 255, with probability ``p``."""

    threshold: float
    p: float = 0.5


@dataclass(frozen=True, eq=False)
class RandomApply(Transform):
    """Applies all of ``transforms``, or none, with probability ``p`` for all.

    Args:
        transforms: Transforms of colours, those from :class:`ColorJitter` to :class:`AutoAugment`.
        p: The probability.
    """

    transforms: Sequence[Transform]
    p: float = 0.5

    def _source(self) -> str:
        return f"random_apply({pipeline(self.transforms)!r}, p={_written('RandomApply: p', self.p)})"


@dataclass(frozen=True, eq=False)
class RandAugment(Transform):
    """Applies random operations from a list of 14, with one magnitude.

    Args:
        num_ops: The number of operations, at most 100.
        magnitude: The magnitude, from 0 to ``num_magnitude_bins - 1``, which is the strongest.
        num_magnitude_bins: The number of magnitudes, from 2 to 1,000,000.
        interpolation: See :data:`AffineInterpolation`.
        fill: The colour of pixels from outside of the picture. ``None``: black.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: AffineInterpolation = "nearest"
    fill: Colour | None = None


@dataclass(frozen=True, eq=False)
class TrivialAugmentWide(Transform):
    """Applies one random operation from a list of 14, with a random magnitude.

    Args:
        num_magnitude_bins: The number of magnitudes, from 2 to 1,000,000.
        interpolation: See :data:`AffineInterpolation`.
        fill: The colour of pixels from outside of the picture. ``None``: black.
    """

    num_magnitude_bins: int = 31
    interpolation: AffineInterpolation = "nearest"
    fill: Colour | None = None


@dataclass(frozen=True, eq=False)
class AutoAugment(Transform):
    """Applies one of the pairs of operations of a learnt policy.

    Args:
        policy: The dataset that the policy was learnt on: a word, or torchvision's
            ``AutoAugmentPolicy``.
        interpolation: See :data:`AffineInterpolation`.
        fill: The colour of pixels from outside of the picture. ``None``: black.
    """

    policy: Literal["imagenet", "cifar10", "svhn"] | Enum = "imagenet"
    interpolation: AffineInterpolation = "nearest"
    fill: Colour | None = None


@dataclass(frozen=True, eq=False)
class RandomErasing(Transform):
    """Replaces a random rectangle, with probability ``p``.

    Args:
        p: The probability.
        scale: The smallest and the largest fraction of the picture's area, from 0 to 1.
        ratio: The smallest and the largest height of the rectangle, divided by its width.
        value: What replaces it: a number, or ``[red, green, blue]``. After :class:`Normalize` they
            are normalised (0 is the mean), and ``"random"`` is noise; before it, they are from 0 to
            255.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | Literal["random"] = 0.0


@dataclass(frozen=True, eq=False)
class Normalize(Transform):
    """Subtracts ``mean`` from red, green and blue, and divides them by ``std``.

    Both are for values from 0 for black to 1. It comes last, or only :class:`RandomErasing` comes
    after it, and needs elements of a floating-point type.
    """

    mean: Sequence[float]
    std: Sequence[float]

    @classmethod
    def imagenet(cls) -> Normalize:
        """Returns the transform with the statistics of ImageNet, which pretrained models expect."""
        return cls((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class SanitizeBoundingBoxes:
    """Says which boxes to keep after they were transformed and clipped, with torchvision's name and
    defaults. Call it with the boxes of a sample::

        keep = slotline.image.SanitizeBoundingBoxes()(boxes)
        boxes, labels = boxes[keep], labels[keep]

    Args:
        min_size: The smallest width and height, in pixels.
        min_area: The smallest area, in pixels.
    """

    min_size: float = 1.0
    min_area: float = 1.0

    def __call__(self, boxes: Any) -> Any:
        """Returns whether to keep each box.

        Args:
            boxes: An array of NumPy or a tensor of torch of shape ``[N, 4]``: left, top, right and
                bottom. The result is of the same kind, and has the shape ``[N]``.
        """
        if boxes.ndim != 2 or boxes.shape[1] != 4:
            raise DataError(f"boxes have shape {tuple(boxes.shape)}; pass [N, 4]")
        width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        large = (width >= self.min_size) & (height >= self.min_size) & (width * height >= self.min_area)
        return large & (boxes >= 0).all(1)


@dataclass(frozen=True, kw_only=True)
class _Mix:
    num_classes: int
    alpha: float = 1.0
    seed: int = 0
    channels_last: bool = False

    def __post_init__(self) -> None:
        _check_integer("num_classes", self.num_classes, 63)
        _check_integer("seed", self.seed, 64)
        if self.num_classes == 0:
            raise OptionError("num_classes is 0; pass the number of classes")
        self._draw((self.seed, 0, 0), (1, 1))

    def _draw(self, key: tuple[int, int, int], size: tuple[int, int]) -> tuple[float, list[list[int]] | None]:
        return _slotline.draw_mix(isinstance(self, CutMix), self.alpha, key, size)

    def __call__(self, images: Any, labels: Any, epoch: int | None = None, index: int | None = None) -> tuple[Any, Any]:
        """Mixes the pictures of a batch in place. Returns them, and the mixed labels as ``float32``
        of shape ``[N, num_classes]``.

        Args:
            images: The pictures, an array of NumPy or a tensor of torch on any device.
            labels: The class of each picture, an array or tensor of integers of shape ``[N]``.
            epoch: The number of the pass.
            index: The number of the batch in the pass. The seed, the epoch and this number
                determine the mix. Without both, :func:`slotline.rng` and the seed do.
        """
        for name, value in ("images", images), ("labels", labels):
            if not hasattr(value, "shape"):
                raise TypeError(f"{name} is of type {type(value).__name__}; pass an array of NumPy or a tensor of torch")
        shape = "[N, H, W, 3]" if self.channels_last else "[N, 3, H, W]"
        if images.ndim != 4 or labels.shape != images.shape[:1] or images.shape[3 if self.channels_last else 1] > 4:
            raise DataError(f"images have shape {tuple(images.shape)}, and labels {tuple(labels.shape)}; pass {shape} and [N]")
        if labels.dtype.kind not in "iu" if isinstance(labels, np.ndarray) else labels.is_floating_point():
            raise DataError(f"labels have elements of type {labels.dtype}; pass integers")
        if (epoch is None) != (index is None):
            raise TypeError("epoch and index belong together; pass both, or none in a function that a loader calls")
        if epoch is None or index is None:
            key = rng().samples ^ self.seed, 0, 0
        else:
            _check_integer("epoch", epoch, 32)
            _check_integer("index", index, 64)
            key = self.seed, epoch, index
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.num_classes:
            raise DataError(f"labels are from {int(labels.min())} to {int(labels.max())}, but num_classes is {self.num_classes}")
        is_numpy = isinstance(images, np.ndarray)
        height, width = images.shape[1:3] if self.channels_last else images.shape[2:]
        own, rectangle = self._draw(key, (height, width))
        if rectangle is not None:
            rows, columns = (slice(*ends) for ends in rectangle)
            part = images[:, rows, columns] if self.channels_last else images[..., rows, columns]
            part[...] = _rolled(part)
        elif images.dtype.kind == "f" if is_numpy else images.is_floating_point():
            before = _rolled(images)
            before *= 1 - own
            images *= own
            images += before
        else:
            raise DataError(f"images have elements of type {images.dtype}; MixUp needs a floating-point type")
        if is_numpy:
            soft = np.zeros((len(labels), self.num_classes), "f4")
            soft[np.arange(len(labels)), labels] = 1
        else:
            soft = images.new_zeros((len(labels), self.num_classes)).float().scatter_(1, labels.long()[:, None], 1)
        return images, _rolled(soft) * (1 - own) + soft * own


def _rolled(batch: Any) -> Any:
    """Returns a copy of a batch in which each sample is in the place of the next one."""
    return np.roll(batch, 1, 0) if isinstance(batch, np.ndarray) else batch.roll(1, 0)


class MixUp(_Mix):
    """Blends each picture of a batch, and its label, with the one before it (the first one with the
    last), by a random weight. Call it in the loader, or in the loop::

        mix = slotline.image.MixUp(num_classes=10, alpha=0.2)
        loader = slotline.Loader(photos, 64, shuffle=True, transform=lambda batch: mix(batch["data"], batch["label"]))

    In a loader's ``transform``, the mix depends on the loader's seed, the pass, the rank and the
    batch, also after a resume. In the loop it is a new one in each call, unless the epoch and the
    number of the batch are passed. Pictures have elements of a floating-point type. The batches
    should be shuffled.

    Args:
        num_classes: The number of classes.
        alpha: The parameter of the distribution Beta(α, α) that the weight is drawn from, above 0.
        seed: The seed of the random numbers. Where the loop calls it, each rank should have its own.
        channels_last: Whether pictures have the shape ``[N, height, width, 3]``.
    """


class CutMix(_Mix):
    """Replaces a random rectangle of each picture of a batch by that of the picture before it, and
    mixes the labels by the area. The arguments are those of :class:`MixUp`."""
