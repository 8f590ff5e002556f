"""Fetchers of datasets whose pictures are decoded and transformed natively."""

from __future__ import annotations

import contextlib
import sys
import traceback

# What runs while a batch is made of which no code of the program is a part.
_LIBRARIES = sys.stdlib_module_names | {"slotline", "torch", "torchvision", "PIL", "numpy"}


def is_of_program(error):
    """Returns whether an exception comes from the program, which means from a handler of a signal, or is an interrupt.

    Such an exception must reach the loop. Any other is raised again by torchvision's own code.
    """
    if not isinstance(error, Exception):
        return True
    names = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not all((name or "").partition(".")[0] in _LIBRARIES for name in (type(error).__module__, *names))


class _Nothing:
    """The result for a dataset of which nothing can run natively, with the reason."""

    dataset = None

    def __init__(self, reason):
        self.lines = [f"by Python, since {reason}"]


def preload():
    """Imports what workers need, so that they inherit it instead of importing it each."""
    if "torchvision" in sys.modules:
        # What is wrong with it is found out where a dataset is looked at.
        with contextlib.suppress(Exception):
            import slotline.torch._lift.datasets  # noqa: F401


def recognised(dataset):
    """Returns which parts of a dataset can run natively."""
    if "torchvision" not in sys.modules:
        return _Nothing("torchvision is not imported")
    try:
        from slotline.torch._lift.datasets import Recognised

        return Recognised(dataset)
    except Exception as error:
        return _Nothing(f"the dataset, or this version of torchvision, is not as expected: {error}")


class DeferredFetcher:
    """Draws the random numbers of a batch when it is fetched; the pictures are computed when it is
    collated.

    The time for the pictures does not count as collating. If a picture cannot be computed natively
    or is an error, the generators are restored, and torchvision makes the whole batch.
    """

    def __init__(self, plain, found, collate_fn):
        self._plain = plain
        self._found = found
        self._collate_fn = collate_fn
        self._before = None

    def __getattr__(self, name):
        return getattr(self._plain, name)

    def fetch(self, index):
        if not (self._found.is_current() and all(lifter.is_on and lifter.is_current() for lifter in self._found.lifters)):
            return self._plain.fetch(index)
        states = self._found.states()
        self._before = states, index
        try:
            return self._collate_fn(self._found.read(index, states))
        except BaseException as error:
            if is_of_program(error):
                # If the loop asks again, it gets the same numbers.
                states.restore()
                raise
            return self.fetch_plainly()

    def fetch_plainly(self):
        """Fetches the last batch again, with torchvision."""
        states, index = self._before
        states.restore()
        return self._plain.fetch(index)
