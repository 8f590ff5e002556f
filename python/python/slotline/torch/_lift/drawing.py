"""A PIL image, or the tensor of one, that records operations instead of executing them, and the
functions of torchvision for it."""

from __future__ import annotations

import io
import types

import PIL
import torch
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from torchvision import tv_tensors  # type: ignore[import-untyped]
from torchvision.transforms import functional as v1  # type: ignore[import-untyped]

from slotline._slotline import NotLifted, Steps
from slotline.torch._lift.internals import (
    KERNELS,
    compute_resized_output_size,
    interpolation_modes_from_int,
    is_native_resize,
    v2_interpolation,
)


# Pillow 12 and earlier versions make the passes of a resize in another order.
_PILLOW = "Pillow" if int(PIL.__version__.split(".")[0]) > 12 else "Pillow 12"


class Drawing(Image.Image):
    """A PIL image without pixels for torchvision's code: its size, its mode, and the operations so
    far."""

    # The class for which transforms choose a colour.
    stands_for: type = Image.Image
    # The rectangles to fill with numbers.
    erased = ()

    def __init__(self, steps, mode, again, get_info=dict):
        """``again`` returns the image before all operations, and ``get_info`` returns its
        ``info``."""
        self.steps = steps
        self.again = again
        self.get_info = get_info
        self.is_changed = False
        self._mode = mode
        height, width = steps.size
        self._size = width, height

    @staticmethod
    def can_be(image):
        """Returns whether an object is a PIL image with one byte for each channel of a pixel."""
        return type(image).__module__.startswith("PIL.") and getattr(image, "mode", None) in ("RGB", "L") and 0 not in image.size

    @classmethod
    def of(cls, image):
        """Returns a drawing of a PIL image. If the mode is not ``RGB`` or ``L``, it cannot be
        executed."""
        if image.mode not in ("RGB", "L"):
            return cls(Steps.of_pixels(bytes(1), 1, 1, 1), image.mode, lambda: image)
        steps = _unread(image) or Steps.of_pixels(image.tobytes(), image.height, image.width, len(image.mode))
        return cls(steps, image.mode, lambda: image, lambda: image.info)

    def begun_again(self):
        """Returns a drawing with the same operations so far, independent of those added later."""
        return Drawing(self.steps.copy(), self._mode, self.again, self.get_info)

    @property
    def im(self):
        raise NotLifted("a transform wants pixels")

    @im.setter
    def im(self, value):
        raise NotLifted("a transform sets pixels")

    def load(self):
        raise NotLifted("a transform wants pixels")

    def changed(self, *, keeps_info=True, is_permuted=None):
        """Updates the size after an operation and returns the drawing. Without ``keeps_info``,
        PIL's operation drops ``info``. For a tensor, ``is_permuted`` says whether the channels are
        last in memory if the operation makes a new tensor, and not a view."""
        height, width = self.steps.size
        self._size = width, height
        self.is_changed = True
        if not keeps_info:
            self.get_info = dict
        return self

    def renewed(self):
        """Updates the drawing after an operation of which torch gives the result the strides of a
        copy, and returns it."""
        return self.changed()

    def to_image(self):
        """Executes the operations, and returns the PIL image."""
        if not self.is_changed:
            return self.again()
        image = Image.frombytes(self._mode, self._size, self.steps.pixels(len(self._mode)))
        image.info = dict(self.get_info())
        return image


def _unread(image):
    """Returns a JPEG that PIL has opened, but not read yet; ``None`` for all other images."""
    if type(image) is not JpegImageFile or image.mode != "RGB" or not image.tile or image.decoderconfig != ():
        return None
    file = image.fp
    if type(file) not in (io.BufferedReader, io.BytesIO) or file.closed:
        return None
    position = file.tell()
    file.seek(0)
    steps = Steps.of_file(file.read())
    file.seek(position)
    # It may have been opened with a smaller size.
    return steps if steps is not None and steps.size == (image.height, image.width) else None


class TensorDrawing(Drawing):
    """A tensor of bytes that was made of a PIL image."""

    stands_for = torch.Tensor
    # Those of torch's tensor, which determine those of what follows.
    strides = None

    def changed(self, *, keeps_info=True, is_permuted=None):
        super().changed()
        if 1 in self._size:
            raise NotLifted("torch has other strides or errors for single rows and columns")
        if is_permuted is not None:
            self.strides = dense_strides(self, is_permuted)
        return self

    def renewed(self):
        channels, height, width = self.shape
        plane, row, _ = self.strides
        has_gaps = row != width or (channels > 1 and plane != height * width)
        return self.changed(is_permuted=plane == 1 if plane == 1 or has_gaps else None)

    @property
    def shape(self):
        return tuple(_get_dimensions(self))

    def become(self, kind, is_permuted):
        """Makes a drawing of an image one of the tensor, unless it is one, whose class is ``kind``."""
        if not _is_tensor(self):
            self.__class__ = TensorDrawing
            self.changed(is_permuted=is_permuted)
        self.__class__ = ImageDrawing if kind is tv_tensors.Image else TensorDrawing


class ImageDrawing(TensorDrawing):
    """The same as an image of ``tv_tensors``."""

    stands_for = tv_tensors.Image


def dense_strides(img, is_permuted):
    """Returns the strides of a tensor without gaps, whose channels are last in memory if ``is_permuted``."""
    channels, height, width = _get_dimensions(img)
    return (1, channels * width, channels) if is_permuted else (height * width, width, 1)


def _is_tensor(img):
    return isinstance(img, TensorDrawing)


def is_resized_natively(interpolation, antialias):
    """Returns whether torch resizes tensors of bytes with such a filter without floating-point
    numbers, which depends on the CPU."""
    has_vectors = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return antialias is True and has_vectors and is_native_resize(v2_interpolation(interpolation))


def _size(img):
    return list(img.steps.size)


def _get_dimensions(img):
    return [len(img._mode), *_size(img)]


def _crop(img, top, left, height, width):
    if not all(hasattr(number, "__round__") for number in (top, left, height, width)):
        raise NotLifted("PIL rounds these numbers, and cannot round tensors")
    img.steps.crop(top, left, height, width)
    return img.changed()


def _resize(img, size, interpolation=v1.InterpolationMode.BILINEAR, max_size=None, antialias=True):
    if antialias is False:
        raise NotLifted("torchvision warns that PIL images are always antialiased")
    if _is_tensor(img) and not is_resized_natively(interpolation, antialias):
        raise NotLifted("torch resizes tensors with floating-point numbers")
    if isinstance(interpolation, int):
        interpolation = interpolation_modes_from_int(interpolation)
    if max_size is not None and not isinstance(size, int) and size is not None and len(size) != 1:
        raise NotLifted("an error of torchvision's")
    before = _size(img)
    after = compute_resized_output_size(tuple(before), [size] if isinstance(size, int) else size, max_size, allow_size_none=True)
    if before != list(after):
        is_permuted = _is_tensor(img) and len(img._mode) == 3 and img.strides == dense_strides(img, True)
        img.steps.resize(*after, v1.InterpolationMode(interpolation).value, "torch" if _is_tensor(img) else _PILLOW)
        img.changed(is_permuted=is_permuted)
    return img


def _resized_crop(img, top, left, height, width, size, interpolation=v1.InterpolationMode.BILINEAR, antialias=True):
    return _resize(_crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def _center_crop(img, output_size):
    if isinstance(output_size, int):
        output_size = (output_size, output_size)
    elif len(output_size) == 1:
        output_size = (output_size[0], output_size[0])
    sides = list(zip(output_size, _size(img)))
    (top, bottom), (left, right) = [(max(new - old, 0) // 2, (max(new - old, 0) + 1) // 2) for new, old in sides]
    if top or bottom or left or right:
        img = _pad(img, [left, top, right, bottom])
    sides = zip(output_size, _size(img))
    return _crop(img, *(int(round((old - new) / 2.0)) for new, old in sides), *output_size)


def _horizontal_flip(img):
    img.steps.flip_horizontally()
    return img.renewed()


def _vertical_flip(img):
    img.steps.flip_vertically()
    return img.renewed()


def _colour(img, fill):
    """Returns the three bytes of a colour for an image."""
    if fill is None:
        fill = 0
    if type(fill) is int and 0 <= fill <= 255:
        return [fill] * 3
    if len(img._mode) == 1 and not isinstance(fill, int):
        raise NotLifted("a colour for a grey picture")
    values = [fill] * 3 if isinstance(fill, (int, float)) else list(fill)
    if len(values) == 1:
        values *= 3
    if _is_tensor(img):
        # Transforms give floating-point numbers for tensors.
        values = [int(value) if value == int(value) else value for value in values]
    if len(values) != 3 or not all(isinstance(value, int) and 0 <= value <= 255 for value in values):
        raise NotLifted("the colour is not of whole numbers")
    return values


def _pad(img, padding, fill=0, padding_mode="constant"):
    if isinstance(padding, int):
        padding = [padding]
    left, top, right, bottom = {1: padding * 4, 2: [*padding, *padding], 4: padding}[len(padding)]
    sides = [left, top, right, bottom]
    if _is_tensor(img):
        if padding_mode != "constant" and isinstance(fill, (list, tuple)) and len(fill) > 1:
            raise NotLifted("an error of torchvision's")
        if not any(sides):
            raise NotLifted("the strides depend on how the image is padded")
    img.steps.pad(sides, padding_mode, _colour(img, fill))
    return img.changed(keeps_info=False, is_permuted=False)


def _change(name, *, keeps_info):
    def function(img, value=0.0):
        img.steps.change(name, float(value))
        return img.changed(keeps_info=keeps_info)

    return function


def _adjust_hue(img, hue_factor):
    # A grey picture is unchanged.
    if len(img._mode) == 3:
        img.steps.change("adjust_hue", float(hue_factor))
        img.changed(keeps_info=False)
    return img


def _rgb_to_grayscale(img, num_output_channels=1):
    if num_output_channels not in (1, 3):
        raise NotLifted("a number of channels that is an error")
    if len(img._mode) == 3:
        img.steps.change("grayscale")
    img.changed(keeps_info=num_output_channels == 1)
    img._mode = "L" if num_output_channels == 1 else "RGB"
    return img


def _shift(img, operation, magnitude, interpolation, fill):
    img.steps.shift(operation, float(magnitude), v1.InterpolationMode(interpolation).value, _colour(img, fill))
    return img.changed()


def _affine(img, angle, translate, scale, shear, interpolation=v1.InterpolationMode.NEAREST, fill=None, center=None):
    """Records one shear around the corner, or one translation; raises :class:`NotLifted` otherwise.
    ``shear`` is the magnitude, since ``SHEAR`` replaces the conversion to degrees."""
    if angle != 0 or scale != 1:
        raise NotLifted("it turns or resizes as well")
    numbers = {"shear_x": shear[0], "shear_y": shear[1]} if center is not None else {"translate_x": translate[0], "translate_y": translate[1]}
    operation = max(numbers, key=lambda name: abs(numbers[name]))
    if sum(number != 0 for number in [*shear, *translate]) > 1 or (center is None and any(shear)):
        raise NotLifted("it does several things at once")
    return _shift(img, operation, numbers[operation], interpolation, fill)


# Replaces `math`: torchvision converts a magnitude to degrees for `affine`, but `_affine` takes the
# magnitude.
SHEAR = types.SimpleNamespace(degrees=lambda magnitude: magnitude, atan=lambda magnitude: magnitude)


def _rotate(img, angle, interpolation=v1.InterpolationMode.NEAREST, expand=False, center=None, fill=None):
    if expand or center is not None:
        raise NotLifted("the result has another size, or another centre")
    return _shift(img, "rotate", angle, interpolation, fill)


def _erase(img, i, j, h, w, v, inplace=False):
    # Transforms v1 give the image itself if they found no rectangle.
    if v is not img:
        img.erased = *img.erased, ((i, j, h, w), v)
    return img


# The functions by their names in `torchvision.transforms.v2.functional`.
_FUNCTIONS = {
    "get_dimensions": _get_dimensions,
    "get_size": _size,
    "get_num_channels": lambda img: len(img._mode),
    "crop": _crop,
    "resize": _resize,
    "resized_crop": _resized_crop,
    "center_crop": _center_crop,
    "horizontal_flip": _horizontal_flip,
    "vertical_flip": _vertical_flip,
    "pad": _pad,
    "rgb_to_grayscale": _rgb_to_grayscale,
    "adjust_hue": _adjust_hue,
    "affine": _affine,
    "erase": _erase,
    "rotate": _rotate,
    "adjust_brightness": _change("adjust_brightness", keeps_info=False),
    "adjust_contrast": _change("adjust_contrast", keeps_info=False),
    "adjust_saturation": _change("adjust_saturation", keeps_info=True),
    "adjust_sharpness": _change("adjust_sharpness", keeps_info=True),
    **{name: _change(name, keeps_info=True) for name in ("posterize", "solarize", "invert", "autocontrast", "equalize")},
}
# The module `functional` of transforms v1.
V1_FUNCTIONAL = types.SimpleNamespace(**_FUNCTIONS, hflip=_horizontal_flip, vflip=_vertical_flip)


def _by_name(kernel, function):
    """Wraps a function to accept the argument names of torchvision's function."""
    names = kernel.__code__.co_varnames[1 : kernel.__code__.co_argcount]

    def call(img, *arguments, **named):
        return function(img, *arguments, *(named[name] for name in names[len(arguments) :] if name in named))

    return call


def register():
    """Registers the functions for drawings with ``torchvision.transforms.v2``."""
    from torchvision.transforms.v2 import functional  # type: ignore[import-untyped]

    for name, function in _FUNCTIONS.items():
        dispatcher = getattr(functional, name)
        KERNELS[dispatcher].setdefault(Drawing, _by_name(dispatcher, function))
