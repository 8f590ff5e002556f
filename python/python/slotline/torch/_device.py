"""Moving batches to a device while the loop computes."""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from slotline._checks import is_integer
from slotline.torch._loader import DataLoader


class DeviceLoader:
    """Moves the batches of a loader to a device, and copies the next batches while the loop
    computes.

    ``loader`` is any iterable of batches, such as a :class:`DataLoader`. Tensors in dicts, lists,
    tuples and named tuples are moved, and so are other objects with a method ``to``. Everything
    else is unchanged.

    On a device with streams, such as CUDA, batches are copied from page-locked memory on a separate
    stream. Tensors outside of page-locked memory (see the loader's ``pin_memory``) are copied there
    first. Work that the loop queues on a batch waits for its copy, and the batch's device memory is
    reused only after the loop's stream has finished with it, so no synchronization is needed.
    ``prefetch`` batches are being copied or ready while the loop has another.

    Passes, ``len`` and errors are those of the loader. ``state_dict`` returns the loader's state
    after the last batch that the loop has received; batches that were only prefetched come again
    after a resume. All other attributes, such as ``stats``, ``verdict``, ``dataset``,
    ``batch_size`` and ``sampler``, are looked up on the loader.

    Raises a ``TypeError`` if ``loader`` is not iterable, a ``ValueError`` if ``prefetch`` is not
    positive, and a ``RuntimeError`` if the device does not exist.
    """

    def __init__(self, loader: Any, device: torch.device | str | int = "cuda", *, prefetch: int = 2) -> None:
        if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
            raise TypeError(f"DeviceLoader needs a loader, or another iterable of batches, but got {type(loader).__name__}")
        if not is_integer(prefetch) or prefetch < 1:
            raise ValueError(f"prefetch is a number of batches from 1 on, and not {prefetch!r}")
        self.loader = loader
        self.device: torch.device = torch.device(device)
        self.prefetch = prefetch
        # Fails if the device does not exist.
        torch.empty(0, device=self.device)
        if self.device.type == "cuda" and isinstance(loader, DataLoader):
            loader._pins = True
        self._state: dict[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        # ``copy`` and ``pickle`` look up attributes before ``loader`` is set.
        if name.startswith("_") or name == "loader":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self._state = None
        has_state = hasattr(self.loader, "state_dict")
        copies = _Copies(self.device)
        batches = iter(self.loader)
        # The prefetched batches, each with the loader's state after it.
        ahead: collections.deque[Any] = collections.deque()
        if has_state:
            self._state = self.loader.state_dict()
        try:
            yield from self._deliver(copies, batches, ahead, has_state)
        finally:
            for batch, _ in ahead:
                copies.drop(batch)

    def _deliver(self, copies: _Copies, batches: Iterator[Any], ahead: collections.deque[Any], has_state: bool) -> Iterator[Any]:
        error: Exception | None = None
        while True:
            while error is None and len(ahead) <= self.prefetch:
                try:
                    ahead.append([copies.begin(next(batches)), None])
                    if has_state:
                        ahead[-1][1] = self.loader.state_dict()
                except Exception as raised:
                    # Raised only after the earlier batches were delivered.
                    error = raised
            if not ahead:
                if has_state:
                    self._state = self.loader.state_dict()
                if error is None or isinstance(error, StopIteration):
                    return
                try:
                    raise error
                finally:
                    # The error's traceback refers to this frame: break the reference cycle.
                    error = None
            batch, self._state = ahead.popleft()
            yield copies.end(batch)
            batch = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the loader's state after the last batch that the loop has received."""
        return self.loader.state_dict() if self._state is None else copy.deepcopy(self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes the next pass resume from a state, like the loader's method."""
        self._state = None
        self.loader.load_state_dict(state_dict)


class _Copies:
    """Copies batches to a device, in the background if the device has streams.

    A tensor's device memory is allocated on the loop's stream, and the copy waits for the work
    queued there so far. So the memory may be reused from an earlier batch, and returns to the
    loop's stream when the loop drops the tensor.
    """

    def __init__(self, device):
        module = None if device.type in ("cpu", "meta") else torch.get_device_module(device)
        self._module = module if hasattr(module, "Stream") else None
        self._target = device
        if self._module is not None:
            if device.index is None:
                self._target = torch.device(device.type, self._module.current_device())
            self._stream = self._module.Stream(self._target)

    def begin(self, batch):
        if self._module is None:
            return moved(batch, lambda tensor: tensor.to(self._target)), None, None
        current = self._module.current_stream(self._target)
        self._stream.wait_stream(current)
        try:
            return moved(batch, self._copy), self._stream.record_event(), current
        except BaseException:
            # Copies that have begun write to memory that the loop's stream could reuse: make it
            # wait.
            current.wait_stream(self._stream)
            raise

    def _copy(self, value):
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            # A tensor already on the target is returned unchanged. Otherwise torch orders the
            # streams of both devices.
            return value.to(self._target, non_blocking=True)
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.requires_grad or value.is_nested or value.is_quantized:
            # The memory is allocated on the copy stream, which waits for the loop's stream before
            # reusing it.
            with self._module.stream(self._stream):
                return value.to(self._target, non_blocking=True)
        # torch reuses its own page-locked memory only after the copies that read it.
        if not value.is_pinned():
            value = value.pin_memory()
        target = torch.empty_like(value, device=self._target)
        with self._module.stream(self._stream):
            return target.copy_(value, non_blocking=True)

    def end(self, copied):
        batch, event, begun_on = copied
        if event is None:
            return batch
        current = self._module.current_stream(self._target)
        current.wait_event(event)
        if current != begun_on:
            moved(batch, lambda value: value.record_stream(current) if isinstance(value, torch.Tensor) else None)
        return batch

    def drop(self, copied):
        """Drops a batch that the loop does not receive: its memory is reused only after its
        copy."""
        _, event, begun_on = copied
        if event is not None:
            begun_on.wait_event(event)


def moved(value, move):
    """Returns a batch with ``move`` applied to its tensors and to other objects with a method
    ``to``."""
    if isinstance(value, torch.Tensor) or hasattr(value, "to"):
        return move(value)
    if isinstance(value, dict):
        items = {key: moved(item, move) for key, item in value.items()}
        if type(value) is dict:
            return items
        # A subclass such as `defaultdict` has another constructor, so copy and update, as torch
        # does.
        clone = copy.copy(value)
        clone.update(items)
        return clone
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, move) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(moved(item, move) for item in value)
    return value
