"""The supported transforms, and their native execution."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import random
import threading
import types
import warnings
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as v1  # type: ignore[import-untyped]
from torchvision.transforms import v2  # type: ignore[import-untyped]

from slotline._slotline import ByteTable, Collator, NotLifted
from slotline.torch._internals import generator_state, has_module_hooks, set_generator_state
from slotline.torch._lift import drawing
from slotline.torch._lift.drawing import Drawing, TensorDrawing, dense_strides
from slotline.torch._lift.fetch import is_of_program
from slotline.torch._lift.internals import functional_pil, get_fill

_V1 = (
    "Resize CenterCrop Pad RandomCrop RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip ColorJitter Grayscale RandomGrayscale "
    "RandomInvert RandomPosterize RandomSolarize RandomAdjustSharpness RandomAutocontrast RandomEqualize RandAugment "
    "TrivialAugmentWide AutoAugment"
).split()
_KNOWN = {getattr(version, name) for version in (v1, v2) for name in _V1}
# All others draw only single numbers, by ``torch.rand`` and ``torch.randint``.
_DRAWS_OTHERS = "RandomResizedCrop ColorJitter RandAugment TrivialAugmentWide AutoAugment RandomErasing".split()
# Transforms that convert an image to a tensor, and transforms that change each number independently.
_TO_TENSOR = {v1.ToTensor, v1.PILToTensor, v2.PILToTensor, v2.ToImage}
_OF_NUMBERS = {v1.Normalize, v1.ConvertImageDtype, v2.Normalize, v2.ToDtype, v2.ConvertImageDtype, v2.ToPureTensor}
# Transforms of tensors: those that move numbers, those of bytes, and those that fill rectangles with numbers.
_FLIPS = {getattr(version, name) for version in (v1, v2) for name in ("RandomHorizontalFlip", "RandomVerticalFlip")}
_OF_BYTES = {v2.Resize, v2.CenterCrop, v2.Pad, v2.RandomCrop, v2.RandomResizedCrop}
_ERASING = {v1.RandomErasing, v2.RandomErasing}
_COMPOSE = {v1.Compose, v2.Compose}
_CONTAINERS = _COMPOSE | {v1.RandomApply, v2.RandomApply, v1.RandomChoice, v2.RandomChoice, v1.RandomOrder}

_COLLATOR = Collator()
# DLPack's type code and number of bits.
_DTYPES = {
    torch.uint8: (1, 8),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
}


# Held while a lifter draws numbers, so that threads do not disturb each other's comparisons.
_drawing = threading.RLock()


def _after_fork():
    # Another thread of the parent may have held it.
    global _drawing
    _drawing = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class States:
    """The states of the default generators that supported transforms draw from."""

    def __init__(self, has_random):
        self.torch = generator_state(torch.default_generator)
        self._random = random.getstate() if has_random else None

    def restore(self):
        set_generator_state(torch.default_generator, self.torch)
        if self._random is not None:
            random.setstate(self._random)

    def __eq__(self, other):
        return torch.equal(self.torch, other.torch) and self._random == other._random


def is_of_torch(function):
    """Returns whether a function is the original of torchvision or torch."""
    # A wrapper may copy the name of the module, but not its globals.
    return getattr(function, "__globals__", {}).get("__name__", "").startswith(("torchvision.", "torch.nn.", "torch.utils.data."))


def _has_patches():
    """Returns whether the program has replaced a function that transforms call."""
    modules = (v1.functional, functional_pil, v2.functional)
    functions = (value for module in modules for name, value in vars(module).items() if callable(value) and name[0] != "_")
    return not all(is_of_torch(function) for function in functions if isinstance(function, types.FunctionType))


# The methods of a transform that may be changed.
_CHANGEABLE = "forward __call__ get_params make_params transform check_inputs _augmentation_space _call_kernel".split()
# Where functions may be changed that transforms call.
_FUNCTIONS = [vars(module) for module in (v1.functional, functional_pil, v2.functional)]


def _functions():
    return [functions.get(name) for functions in _FUNCTIONS for name in vars(drawing.V1_FUNCTIONAL)]


def _is_own(transform):
    """Returns whether a transform is an unmodified one of torchvision."""
    kind = type(transform)
    own = getattr(transform, "__dict__", {})
    methods = [getattr(kind, name) for name in _CHANGEABLE if hasattr(kind, name)]
    return (
        all(is_of_torch(method) for method in methods)
        and own.keys().isdisjoint(_CHANGEABLE)
        and not any(own.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks"))
        and not has_module_hooks()
    )


# The methods that call functions of torchvision, or draw numbers.
_METHODS = ("forward", "get_params", "make_params", "transform")
# The method of transforms v2 that converts a magnitude to the degrees of a shear.
_SHEARING = "_apply_image_or_video_transform"


def rebound(function, **changed):
    """Returns a copy of a function in which some global names refer to other objects."""
    names = {**function.__globals__, **changed}
    bound = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    bound.__kwdefaults__ = function.__kwdefaults__
    return bound


def _forward(self, img):
    """Applies a transform of v2 to one picture, where its own method takes any number of them."""
    self.check_inputs([img])
    return self.transform(img, self.make_params([img]))


def _forward_at_random(self, draws, img):
    return img if draws.rand(1) >= self.p else _forward(self, img)


def _get_fill(fill, kind):
    """Returns the colour that is given for this class, or for the one that a drawing stands for."""
    return get_fill(fill, getattr(kind, "stands_for", kind))


def changed_copy(original, changed):
    """Returns an object with the same attributes and other methods or properties."""
    kind = type(original)
    copied = object.__new__(type(kind.__name__, (kind,), changed))
    object.__setattr__(copied, "__dict__", original.__dict__)
    return copied


def _with_drawings(part, draws):
    """Returns a transform with the same attributes, whose methods call functions for drawings and draw from ``draws``."""
    kind = type(part)
    is_newer = kind.__module__.startswith("torchvision.transforms.v2")
    changed = {}
    for name in (*_METHODS, _SHEARING):
        function = getattr(kind, name, None)
        if function is None:
            continue
        names = {"_get_fill": _get_fill} if is_newer else {"F": drawing.V1_FUNCTIONAL}
        if draws is not None and kind.__name__ not in _DRAWS_OTHERS:
            names["torch"] = draws
        if name == _SHEARING:
            names["math"] = drawing.SHEAR
        if "_apply_op" in function.__code__.co_names and not is_newer:
            names["_apply_op"] = rebound(function.__globals__["_apply_op"], **names, math=drawing.SHEAR)
        is_static = isinstance(inspect.getattr_static(kind, name), staticmethod)
        changed[name] = (staticmethod if is_static else lambda method: method)(rebound(function, **names))
    if is_newer and kind.forward is v2.Transform.forward:
        changed["forward"] = _forward
    elif is_newer and kind.forward is v2.RandomHorizontalFlip.forward:
        changed["forward"] = functools.partialmethod(_forward_at_random, draws or torch)
    return changed_copy(part, changed)


class _Unknown(Exception):
    """Raised for a transform that is not supported; the text is the reason."""


def _name(transform):
    kind = type(transform)
    return getattr(transform, "__qualname__", kind.__qualname__)


class _Numbers(NamedTuple):
    """How the bytes of an image become a tensor: a table, the tensor's class and type, whether its
    numbers are the bytes, and whether its channels are last in memory."""

    table: ByteTable
    kind: type
    dtype: torch.dtype
    is_bytes: bool
    is_permuted: bool


def _tables(tail):
    """Computes the number for each byte, for each mode of an image."""
    tables = {}
    for mode, shape in (("RGB", (1, 256, 3)), ("L", (1, 256))):
        values = np.arange(256, dtype=np.uint8)
        image = Image.fromarray(np.ascontiguousarray(np.broadcast_to(values[:, None] if mode == "RGB" else values, shape)))
        try:
            numbers = _through(tail, image)
        except Exception:
            # For example, a normalization with three means cannot apply to a grey picture.
            tables[mode] = None
            continue
        channels = len(mode)
        if not isinstance(numbers, torch.Tensor) or numbers.shape != (channels, 1, 256) or numbers.dtype not in _DTYPES:
            tables[mode] = None
            continue
        plain = numbers.as_subclass(torch.Tensor).contiguous()
        packed = bytes(plain.view(torch.uint8).numpy().tobytes())
        table = ByteTable(*_DTYPES[numbers.dtype], channels, packed)
        is_bytes = numbers.dtype is torch.uint8 and bool((plain[:, 0] == torch.from_numpy(values)).all())
        is_permuted = _through(tail, Image.new(mode, (3, 2))).stride() == (1, 3 * channels, channels)
        tables[mode] = _Numbers(table, type(numbers), numbers.dtype, is_bytes, is_permuted)
    if tables["RGB"] is None and tables["L"] is None:
        raise NotLifted("it has no numbers for bytes")
    return tables


def _found(table, img):
    found = table[img.mode]
    if found is None:
        raise NotLifted("there is no table for such pictures")
    return found


def _packed(value, dtype, channels):
    """Returns the bytes of the numbers that fill a rectangle of each channel."""
    if value.shape[1:] != (1, 1):
        raise NotLifted("each number of a rectangle is another one")
    return value.to(dtype).expand(channels, 1, 1).contiguous().view(torch.uint8).numpy().tobytes()


def _becomes(table):
    """Returns a function that makes a drawing one of the tensor with these numbers."""

    def function(img):
        numbers = _found(table, img)
        TensorDrawing.become(img, numbers.kind, numbers.is_permuted)
        return img

    return function


def _require_own(part):
    if not _is_own(part):
        raise _Unknown(f"{_name(part)} is not torchvision's, or was changed; where it calls torchvision's, let it call slotline.torch.lift of them")


class Lifter:
    """Applies a transform to drawings.

    ``known`` are the transforms that run natively. ``rest`` are the transforms after them, which
    get an image or a tensor.
    """

    # How many pictures are still to be compared with torchvision's.
    to_compare = 2

    def __init__(self, transform, draws=None):
        self.transform = transform
        self._draws = draws
        # Whether all its numbers come from there.
        self.is_simple = True
        self.uses_random = False
        self.known, self.rest, self.reason = [], [], None
        self._calls = []
        self._tail = []
        self._is_erased = False
        self.table = None
        parts = _flat(transform)
        # They are kept, since another object could have the identity of one that is gone.
        self._of, self._parts = self._seen(), list(_all_parts(transform))
        if _has_patches():
            self.reason, self.rest, parts = "functions of torchvision were changed", parts, []
        for number, part in enumerate(parts):
            try:
                self._add(part)
            except _Unknown as unknown:
                self.reason = str(unknown)
                self.rest = parts[number:]
                break
        # Whether all pictures that were compared were the same.
        self.is_on = True

    def _add(self, part):
        kind = type(part)
        if kind in (_OF_NUMBERS if self._tail else _TO_TENSOR):
            _require_own(part)
            if self._is_erased and kind is not v2.ToPureTensor:
                raise _Unknown(f"{_name(part)} is not known behind RandomErasing")
            try:
                self.table = _tables([*self._tail, part])
            except Exception as error:
                raise _Unknown(f"{_name(part)} cannot be a table of bytes: {error}") from None
            self._tail.append(part)
        else:
            call = self._call(part)
            self._calls += [_becomes(self.table), call] if self._tail else [call]
        self.known.append(part)

    @property
    def _numbers(self):
        return [found for found in self.table.values() if found is not None]

    def _require_of_tensors(self, part):
        """Raises an exception for a transform of tensors that is not supported."""
        kind = type(part)
        is_newer = kind.__module__.startswith("torchvision.transforms.v2")
        if self._is_erased or not (is_newer or self._numbers[0].kind is torch.Tensor) or kind not in _FLIPS | _OF_BYTES | _ERASING:
            raise _Unknown(f"{_name(part)} is not known for tensors, or behind {_name(self.known[-1])}")
        if kind in _OF_BYTES and not all(found.is_bytes for found in self._numbers):
            raise _Unknown(f"{_name(part)} is only known for tensors of bytes")
        if kind in (v2.Resize, v2.RandomResizedCrop) and not drawing.is_resized_natively(part.interpolation, part.antialias):
            raise _Unknown(f"{_name(part)} has floating-point numbers with this filter, or on this CPU")
        if kind in _ERASING:
            if part.value in (None, "random") or not all(found.dtype.is_floating_point for found in self._numbers):
                raise _Unknown(f"{_name(part)} is only known for floating-point numbers and a given value")
            self._is_erased = True

    def _call(self, part):
        """Returns a function that applies a supported transform."""
        kind = type(part)
        _require_own(part)
        if kind in _CONTAINERS:
            self.uses_random |= kind in (v1.RandomChoice, v1.RandomOrder)
            self.is_simple &= kind in _COMPOSE
            return _container(part, [self._call(inner) for inner in part.transforms])
        if self._tail:
            self._require_of_tensors(part)
        elif kind not in _KNOWN:
            raise _Unknown(f"{_name(part)} is not known")
        if kind.__module__.startswith("torchvision.transforms.v2"):
            drawing.register()
        self.is_simple &= kind.__name__ not in _DRAWS_OTHERS
        return _with_drawings(part, self._draws).forward

    def _seen(self):
        """Returns the properties that must not change after the lifter was created."""
        module = torch.nn.modules.module
        hooks = len(module._global_forward_hooks), len(module._global_forward_pre_hooks)
        return torch.get_default_dtype(), hooks, _functions(), [seen for part in _all_parts(self.transform) for seen in _state(part)]

    def is_current(self):
        """Returns whether the properties that were inspected only at creation are unchanged."""
        return self._seen() == self._of

    def draw(self, img):
        """Records the operations of the supported transforms in a drawing."""
        if img.mode not in ("RGB", "L"):
            raise NotLifted("its pixels are not bytes of grey or of colours")
        with _drawing:
            img = _in_turn(self._calls, img)
        if not isinstance(img, Drawing):
            raise NotLifted("a transform has made something else")
        return img

    def picture(self, img):
        """Returns the placeholder for a drawing's tensor in a batch."""
        found = _found(self.table, img)
        return img.steps.picture(found.table, [(place, _packed(value, found.dtype, len(img.mode))) for place, value in img.erased])

    def value(self, img):
        """Executes the supported transforms of a drawing, and returns a tensor or PIL image."""
        if self.table is None:
            return img.to_image()
        found = _found(self.table, img)
        tensor = _COLLATOR([self.picture(img)])[0]
        if isinstance(img, TensorDrawing):
            strides = img.strides if found.dtype is torch.uint8 else img.renewed().strides
        else:
            # A single pixel has no other order.
            strides = dense_strides(img, found.is_permuted or img.size == (1, 1))
        if strides != tensor.stride():
            tensor = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
        return tensor if found.kind is torch.Tensor else tensor.as_subclass(found.kind)

    def compare(self, img):
        """Compares the native result for an image with torchvision's, until two images agreed.

        It leaves the generators unchanged. A difference disables native execution, with a warning.
        """
        if self.to_compare:
            with _drawing:
                self._compare(img)

    def _compare(self, img):
        before = States(self.uses_random)
        whole = len(self.known)
        # Other code may draw numbers in another thread.
        tries = 10 if threading.active_count() > 1 else 1
        is_same = any(self._is_same(img, whole, before) for _ in range(tries))
        differing = whole if is_same else next((n for n in range(1, whole) if not self._is_same(img, n, before)), whole)
        before.restore()
        if is_same:
            self.to_compare -= 1
            return
        self.is_on = False
        name = _name(self.known[differing - 1])
        warnings.warn(
            f"{name} gives other pixels or draws other random numbers natively than with this version of torchvision and Pillow, so "
            "slotline has torchvision do all transforms of this dataset; lift=False avoids this warning",
            RuntimeWarning,
            stacklevel=3,
        )

    def _is_same(self, img, count, before):
        """Returns whether the first ``count`` transforms have the same result natively and in
        torchvision."""
        before.restore()
        expected = None
        try:
            expected = _through(self.known[:count], img.again())
        except Exception as error:
            if is_of_program(error):
                raise
            # If the native execution fails too, torchvision is called again and raises the error.
        after = States(self.uses_random)
        before.restore()
        start = img.begun_again()
        try:
            if count == len(self.known):
                found = self.value(self.draw(start))
            else:
                first = Lifter(v1.Compose(self.known[:count]))
                found = first.value(first.draw(start))
        except Exception as error:
            if is_of_program(error):
                raise
            # torchvision processes such a picture, so there is no difference.
            return True
        return _same(expected, found) and States(self.uses_random) == after

    def now(self, img):
        """Applies all transforms at once, natively where possible. The lifter must be current."""
        self.compare(img)
        states = States(self.uses_random)
        value = None
        if self.is_on:
            try:
                value = self.value(self.draw(img))
            except BaseException as error:
                states.restore()
                if is_of_program(error):
                    raise
        if value is None:
            return self.transform(img.again())
        return _through(self.rest, value)

    def now_if_current(self, img):
        """Applies all transforms at once, natively unless one of them was changed."""
        return self.now(img) if self.is_current() else self.transform(img.again())

    def later(self, img):
        """Draws the random numbers, and returns the placeholder for the tensor.

        After any error, torchvision has to process the picture or raise the error, with the
        generators restored.
        """
        self.compare(img)
        if not self.is_on:
            raise NotLifted("it differs from torchvision")
        return self.picture(self.draw(img))

    def describe(self):
        """Returns one line about what runs natively and what does not."""
        names = ", ".join(map(_name, self.known)) or "nothing"
        if not self.rest:
            return f"natively {names}"
        return f"natively {names}; by Python {', '.join(map(_name, self.rest))}: {self.reason}"


def _same(expected, found):
    if type(expected) is not type(found):
        return False
    if isinstance(expected, torch.Tensor):
        return expected.dtype == found.dtype and expected.stride() == found.stride() and torch.equal(expected, found)
    if expected is None:
        return False
    return (expected.mode, expected.size, expected.info) == (found.mode, found.size, found.info) and (
        expected.tobytes() == found.tobytes()
    )


def _state(part):
    """Yields the properties of a transform that are inspected once: its identity, its methods, its hooks, and the parameters of a table."""
    kind = type(part)
    own = getattr(part, "__dict__", {})
    yield id(part), kind, [getattr(kind, name, None) for name in _CHANGEABLE], own.keys().isdisjoint(_CHANGEABLE)
    yield bool(own.get("_forward_hooks")), bool(own.get("_forward_pre_hooks"))
    if kind in _OF_NUMBERS:
        for name in ("mean", "std", "dtype", "scale"):
            value = own.get(name)
            # A copy, also of tensors and arrays.
            yield value.tolist() if hasattr(value, "tolist") else copy.copy(value)


def _all_parts(transform):
    """Returns a transform, and all in it."""
    yield transform
    for inner in transform.transforms if type(transform) in _CONTAINERS else ():
        yield from _all_parts(inner)


def _flat(transform):
    """Returns a list of transforms without nested ``Compose``."""
    if type(transform) in _COMPOSE and _is_own(transform):
        return [part for inner in transform.transforms for part in _flat(inner)]
    return [transform]


def _in_turn(calls, img):
    for call in calls:
        img = call(img)
    return img


def _container(part, calls):
    """Returns a function that combines ``calls``, the functions of the inner transforms, as the
    container does."""
    kind = type(part)
    if kind is v1.RandomApply:
        return lambda img: img if part.p < torch.rand(1) else _in_turn(calls, img)
    if kind is v2.RandomApply:
        return lambda img: img if torch.rand(1) >= part.p else _in_turn(calls, img)
    if kind is v1.RandomChoice:
        return lambda img: random.choices(calls, weights=part.p)[0](img)
    if kind is v2.RandomChoice:
        return lambda img: calls[int(torch.multinomial(torch.tensor(part.p), 1))](img)
    if kind is v1.RandomOrder:

        def in_any_order(img):
            order = list(range(len(calls)))
            random.shuffle(order)
            return _in_turn([calls[number] for number in order], img)

        return in_any_order
    return lambda img: _in_turn(calls, img)


def _through(transforms, image):
    for transform in transforms:
        image = transform(image)
    return image
