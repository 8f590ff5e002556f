"""Datasets of torchvision, whose own code runs with a :class:`Drawing` in place of each PIL image."""

from __future__ import annotations

import functools
import os
import types

import numpy as np
import torchvision  # type: ignore[import-untyped]
from PIL import Image
from torch.utils.data import ConcatDataset, Subset
from torchvision import datasets  # type: ignore[import-untyped]
from torchvision.datasets.folder import default_loader, pil_loader  # type: ignore[import-untyped]

from slotline._slotline import NotLifted, Steps
from slotline.torch._lift.drawing import Drawing
from slotline.torch._lift.draws import Draws
from slotline.torch._lift.function import LiftedTransform
from slotline.torch._lift.transforms import Lifter, States, changed_copy, is_of_torch, rebound

# The classes whose ``__getitem__`` opens a file or wraps an array, and then calls the transform.
_KNOWN = (
    "CIFAR10 CIFAR100 DTD EMNIST FGVCAircraft FashionMNIST Flowers102 Food101 GTSRB KMNIST MNIST QMNIST RenderedSST2 SEMEION STL10 "
    "SUN397 SVHN StanfordCars USPS"
).split()
_READERS = {getattr(datasets, name).__getitem__ for name in _KNOWN} | {datasets.DatasetFolder.__getitem__}


def _are_unchanged():
    """Returns whether the functions that open files are torchvision's and Pillow's originals."""
    loaders = (datasets.folder.default_loader, datasets.folder.pil_loader)
    return all(map(is_of_torch, loaders)) and Image.open.__globals__ is vars(Image)


def _open(path, load):
    """Returns a drawing of a picture file, or the image that ``load`` returns if the file cannot be
    decoded natively."""
    steps = Steps.open(path) if isinstance(path, (str, os.PathLike)) else None
    # PIL warns of pictures that are too large, or rejects them.
    if steps is None or steps.size[0] * steps.size[1] > (Image.MAX_IMAGE_PIXELS or float("inf")):
        return load(path)

    def info():
        with Image.open(path) as image:
            # For other formats, ``info`` is complete only after the whole file was read.
            return image.info if image.format in ("JPEG", "MPO") else load(path).info

    return Drawing(steps, "RGB", lambda: load(path), info)


class _File:
    """A file that was opened and is about to be converted to a mode."""

    def __init__(self, path):
        self._path = path

    def convert(self, mode):
        def load(path):
            return Image.open(path).convert(mode)

        return _open(self._path, load) if mode == "RGB" else load(self._path)

    def __getattr__(self, name):
        return getattr(Image.open(self._path), name)


class _ImageModule:
    """A replacement for the module ``PIL.Image``, which creates a :class:`Drawing` instead of each
    image that can be decoded natively."""

    open = _File

    @staticmethod
    def fromarray(array, mode=None):
        def load():
            return Image.fromarray(array) if mode is None else Image.fromarray(array, mode)

        shape = array.shape
        if type(array) is not np.ndarray or array.dtype != np.uint8 or 0 in shape or not (len(shape) == 2 or shape[2:] == (3,)):
            return load()
        channels = 3 if len(shape) == 3 else 1
        if mode not in (None, "RGB" if channels == 3 else "L"):
            return load()
        # Copy: the array may be modified later.
        steps = Steps.of_pixels(array.tobytes(), shape[0], shape[1], channels)
        return Drawing(steps, "RGB" if channels == 3 else "L", load)

    def __getattr__(self, name):
        return getattr(Image, name)


_MODULE = _ImageModule()
_NAMES = {"Image": _MODULE, "PIL": types.SimpleNamespace(Image=_MODULE), "_Image_fromarray": _MODULE.fromarray}


def _with_drawings(function):
    """Returns a copy of a function of torchvision that creates a :class:`Drawing` instead of an
    image."""
    return rebound(function, **{name: value for name, value in _NAMES.items() if name in function.__globals__})


def _constant(value, _):
    return value


class Lifted:
    """A dataset whose ``__getitem__`` runs natively. All other attributes are the original
    dataset's."""

    # Whether it can be read natively, if that is to be asked before each sample.
    is_current = None

    def __init__(self, dataset, getitem, /, **changed):
        self._dataset = dataset
        self._getitem = getitem
        # A property comes before an attribute of the dataset itself.
        properties = {name: property(functools.partial(_constant, value)) for name, value in changed.items()}
        self._changed = changed_copy(dataset, properties)

    def __getitem__(self, index):
        if self.is_current is not None and not self.is_current():
            return self._dataset[index]
        return self._getitem(self._changed, index)

    def __len__(self):
        return len(self._dataset)

    def __getattr__(self, name):
        if name == "__getitems__":
            raise AttributeError(name)
        return getattr(self._dataset, name)


class Recognised:
    """The parts of a dataset that can run natively.

    ``dataset`` replaces the original, or is ``None`` if nothing is supported. ``lifters`` execute
    the transforms. ``is_plain`` is true if no code of the program takes part. ``lines`` describe
    what runs natively and what does not.
    """

    def __init__(self, dataset):
        self.lifters = []
        self.is_plain = True
        self.lines = []
        self._draws = Draws()
        # What must stay as it is, and what that was.
        self._watched = []
        found = self._lifted(dataset)
        self.dataset = found if self.lifters else None

    def _watch(self, holder, *names):
        def seen():
            values = [getattr(holder, name, None) for name in ("__getitems__", *names)]
            return type(holder), getattr(type(holder), "__getitem__", None), [list(it) if type(it) is list else it for it in values]

        self._watched.append((seen, seen()))

    def is_current(self):
        """Whether the datasets are as they were when this was made."""
        return all(seen() == before for seen, before in self._watched)

    def states(self):
        """Returns the current states of all generators that the lifters draw from."""
        return States(any(lifter.uses_random for lifter in self.lifters))

    def read(self, indices, states):
        """Reads the samples of a batch, with these states of the generators at its beginning.

        Raises ``NotLifted`` if others are to be used.
        """
        draws = self._draws
        is_simple = all(lifter.is_simple and not lifter.to_compare for lifter in self.lifters)
        if not (is_simple and draws.begin(states.torch)):
            return [self.dataset[k] for k in indices]
        try:
            samples = [self.dataset[k] for k in indices]
        except BaseException:
            draws.cancel()
            raise
        if not draws.end():
            raise NotLifted("other code draws numbers at the same time")
        return samples

    def set_deferred(self, is_deferred):
        for lifter in self.lifters:
            lifter.run = lifter.later if is_deferred else lifter.now_if_current
        self.dataset.is_current = None if is_deferred else self.is_current

    def _lifted(self, dataset):
        kind = type(dataset)
        is_own = "__getitems__" in getattr(dataset, "__dict__", ())
        if kind is Subset and not is_own and is_of_torch(kind.__getitem__) and is_of_torch(kind.__getitems__):
            self._watch(dataset, "dataset")
            return Lifted(dataset, kind.__getitem__, dataset=self._lifted(dataset.dataset))
        if kind is ConcatDataset and not hasattr(dataset, "__getitems__") and is_of_torch(kind.__getitem__):
            self._watch(dataset, "datasets")
            return Lifted(dataset, kind.__getitem__, datasets=[self._lifted(part) for part in dataset.datasets])
        reason, changed = None, {}
        getitem = getattr(kind, "__getitem__", None)
        if is_own or hasattr(kind, "__getitems__"):
            reason = "it has a method of its own that reads samples"
        elif getitem not in _READERS or not kind.__module__.startswith("torchvision."):
            reason = "its class is not known"
        elif not (is_of_torch(getitem) and _are_unchanged()):
            reason = "functions of torchvision or Pillow were changed"
        elif (loader := getattr(dataset, "loader", default_loader)) is not pil_loader and (
            loader is not default_loader or torchvision.get_image_backend() != "PIL"
        ):
            reason = "it has another loader than PIL's"
        else:
            changed["loader"] = lambda path: _open(path, loader)
        if reason is None and getattr(dataset, "transform", None) is None:
            reason = "it has no transform"
        if reason is None:
            given = dataset.transform
            lifter = Lifter(given.transform if type(given) is LiftedTransform else given, self._draws)
            if not lifter.known:
                reason = lifter.reason
        if reason is not None:
            self.is_plain = False
            self.lines.append(f"{kind.__qualname__}: by Python, since {reason}")
            return dataset
        self.lifters.append(lifter)
        self.is_plain &= lifter.table is not None and not lifter.rest and dataset.target_transform is None
        self.lines.append(f"{kind.__qualname__}: {lifter.describe()}")
        self._watch(dataset, "transform", "target_transform", "loader")
        if type(given) is LiftedTransform:
            self._watch(given, "transform")

        def run(img):
            return lifter.run(img if type(img) is Drawing else Drawing.of(img))

        changed["transform"] = run
        return Lifted(dataset, _with_drawings(getitem), **changed)
