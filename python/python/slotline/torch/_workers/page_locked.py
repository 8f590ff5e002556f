"""Page-locking of the batches of worker processes in place, without a copy.

The memory that workers share with the loop is registered with CUDA's driver as it grows, so that
the tensors in it are page-locked. A copy with ``non_blocking=True`` may still read a tensor after
the program has dropped it. So a worker may reuse the tensor's memory only when the devices have
finished all the work that was queued when the tensor was dropped. An event recorded in a whole
context tells when: it waits for all of the context's streams, including those that only the program
knows.

A signal handler can raise an exception at any point. Channels count the blocks that were dropped
and those that were given back, so every operation here can be repeated.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from slotline.torch._workers.messages import Channel

_SUCCESS = 0
_NOT_READY = 600
_CAPTURING = 900
_PORTABLE = 1
_NO_TIMING = 2

# A device and an event of its context.
_Event = tuple[int, ctypes.c_void_p]

# Objects whose closing was postponed because a graph was being captured.
_unclosed: list[PinnedChannels] = []


def find_driver() -> Any:
    """Returns CUDA's driver, or ``None`` if torch does not use CUDA, or if the driver lacks context
    events (before 12.5)."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuCtxRecordEvent  # noqa: B018
    except (OSError, AttributeError):
        return None
    return driver


def _is_capturing() -> bool:
    """Returns whether this thread's stream captures a graph. Recording an event of the context
    would break the capture."""
    try:
        return torch.cuda.is_current_stream_capturing()
    except RuntimeError:
        # An error of an earlier kernel. The program gets it when it uses the device.
        return False


class PinnedChannels:
    """Registers the memory of channels with the driver, and allows the reuse of dropped blocks once
    the devices are done with them.

    Create it before the workers are started. Only one thread at a time may call ``cover`` and
    ``give_back``.
    """

    def __init__(self, driver: Any, channels: Sequence[Channel]) -> None:
        self._driver = driver
        self._channels = channels
        self._owner = os.getpid()
        # The number of registered regions of each channel, and their addresses.
        self._covered = [0] * len(channels)
        self._registered: list[int] = []
        # The primary contexts in use, by device, each with events for reuse.
        self._contexts: dict[int, tuple[ctypes.c_void_p, list[ctypes.c_void_p]]] = {}
        # For each batch of recorded events, oldest first: the block counts of the channels that may
        # be reused after them. Then the latest counts.
        self._waiting: deque[tuple[list[_Event], list[int]]] = deque()
        self._marked = [0] * len(channels)
        self._is_closing = threading.Lock()
        # CUDA is initialised later, since processes forked after its initialisation cannot use it.
        for channel in channels:
            channel.hold_back()

    def cover(self, number: int) -> None:
        """Registers the regions added to a channel since the last call. If the driver refuses,
        their tensors are not page-locked."""
        added = self._channels[number].regions()[self._covered[number] :]
        if not added or _is_capturing():
            return
        device = torch.cuda.current_device()
        is_retained = device in self._contexts or self._retain(device)
        for start, size in added:
            if is_retained:
                self._registered.append(start)
                with _Current(self._driver, self._contexts[device][0]):
                    self._driver.cuMemHostRegister_v2(ctypes.c_void_p(start), ctypes.c_size_t(size), _PORTABLE)
            self._covered[number] += 1

    def give_back(self) -> None:
        """Allows the reuse of dropped blocks that no device uses any more.

        For blocks that were dropped since the last call, records events that show when the devices
        have finished with them.
        """
        if _is_capturing():
            return
        _close_later()
        while self._waiting and self._is_reached(self._waiting[0][0]):
            events, counts = self._waiting[0]
            self._give(counts)
            self._waiting.popleft()
            self._free(events)
        counts = [channel.dropped() for channel in self._channels]
        if counts != self._marked:
            recorded = self._record()
            if recorded is not None:
                self._waiting.append((recorded, counts))
                self._marked = counts

    def _give(self, counts: list[int]) -> None:
        for channel, count in zip(self._channels, counts):
            channel.give_back(count)

    def _is_reached(self, events: list[_Event]) -> bool:
        """Returns whether all work before these events is done. A context that has failed does no
        more work."""
        return all(self._driver.cuEventQuery(event) not in (_NOT_READY, _CAPTURING) for _, event in events)

    def _record(self) -> list[_Event] | None:
        """Records an event in each context.

        If a context cannot record events, waits for all contexts and returns an empty list. Returns
        ``None`` if nothing can be recorded because another thread captures a graph.
        """
        for device in range(torch.cuda.device_count()):
            if device not in self._contexts and self._is_active(device) and not self._retain(device):
                return None
        events: list[_Event] = []
        code = _SUCCESS
        for device, (context, free) in self._contexts.items():
            event = free.pop() if free else ctypes.c_void_p()
            if event.value is None:
                with _Current(self._driver, context):
                    code = self._driver.cuEventCreate(ctypes.byref(event), _NO_TIMING)
            if code == _SUCCESS:
                events.append((device, event))
                code = self._driver.cuCtxRecordEvent(context, event)
            if code != _SUCCESS:
                break
        else:
            return events
        self._free(events)
        return [] if code != _CAPTURING and self._wait() else None

    def _wait(self) -> bool:
        """Waits until the devices have finished all work. Returns whether that was possible."""
        codes = []
        for context, _ in self._contexts.values():
            with _Current(self._driver, context):
                codes.append(self._driver.cuCtxSynchronize())
        return _CAPTURING not in codes

    def _free(self, events: list[_Event]) -> None:
        for device, event in events:
            self._contexts[device][1].append(event)

    def _is_active(self, device: int) -> bool:
        flags, active = ctypes.c_uint(), ctypes.c_int()
        code = self._driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        return code == _SUCCESS and active.value != 0

    def _retain(self, device: int) -> bool:
        context = ctypes.c_void_p()
        if self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != _SUCCESS:
            return False
        self._contexts[device] = context, []
        return True

    def close(self) -> None:
        """Waits for the devices and unregisters the memory, which may then be unmapped. Postponed
        while a graph is captured.
        """
        if self._owner != os.getpid() or not self._is_closing.acquire(blocking=False):
            return
        try:
            if _is_capturing() or not self._wait():
                close_later(self)
                return
            for events, _ in self._waiting:
                self._free(events)
            self._waiting.clear()
            for context, free in self._contexts.values():
                with _Current(self._driver, context):
                    while free:
                        self._driver.cuEventDestroy_v2(free.pop())
                    while self._registered:
                        self._driver.cuMemHostUnregister(ctypes.c_void_p(self._registered[-1]))
                        self._registered.pop()
            while self._contexts:
                self._driver.cuDevicePrimaryCtxRelease_v2(self._contexts.popitem()[0])
        finally:
            self._is_closing.release()


def close_later(pinned: PinnedChannels) -> None:
    """Closes ``pinned`` at the next request for a batch. Until then its memory stays mapped."""
    _unclosed.append(pinned)


def _close_later() -> None:
    for pinned in list(_unclosed):
        try:
            _unclosed.remove(pinned)
        except ValueError:
            # Another thread closes it.
            continue
        pinned.close()


class _Current:
    """A context manager that makes a CUDA context current on this thread."""

    def __init__(self, driver: Any, context: ctypes.c_void_p) -> None:
        self._driver = driver
        self._context = context

    def __enter__(self) -> None:
        self._driver.cuCtxPushCurrent_v2(self._context)

    def __exit__(self, *_: object) -> None:
        self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
