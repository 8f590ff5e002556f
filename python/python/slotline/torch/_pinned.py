"""Page-locked batches without a copy.

The memory that workers share with the loop is registered with CUDA's driver as it grows, so that the tensors in it are
page-locked where they are. A copy that was started with ``non_blocking=True`` may still read a tensor after the program has
dropped it. So a worker gets that memory back only when everything is done that the devices had to do when the tensor was
dropped. An event of a whole context tells when: it waits for all of its streams, also for those that only the program knows.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from slotline.torch._messages import Channel

_PAGE = 4096
_SUCCESS = 0
_PORTABLE = 1
_NO_TIMING = 2


def find_driver() -> Any:
    """Returns CUDA's driver, or ``None`` if torch does not use it, or if it is older than events of contexts (12.5)."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuCtxRecordEvent  # noqa: B018
    except (OSError, AttributeError):
        return None
    return driver


class PinnedChannels:
    """Registers the memory of channels, and gives dropped blocks back when the devices are done with them.

    The workers must not have been started. ``cover`` and ``give_back`` are called by one thread at a time.
    """

    def __init__(self, driver: Any, channels: Sequence[Channel]) -> None:
        self._driver = driver
        self._channels = channels
        self._owner = os.getpid()
        # How much of each channel's memory was looked at, and the addresses that were registered.
        self._covered = [0] * len(channels)
        self._registered: list[int] = []
        # The primary contexts in use, by device, each with events that are free.
        self._contexts: dict[int, tuple[ctypes.c_void_p, list[ctypes.c_void_p]]] = {}
        # Blocks, and the events after which they may be written, oldest first.
        self._waiting: deque[tuple[list[tuple[int, ctypes.c_void_p]], list[tuple[Channel, list[int]]]]] = deque()
        # Blocks without events, since recording one has failed.
        self._unmarked: list[tuple[Channel, list[int]]] = []
        # CUDA is first used after the workers are forked, which could not use it otherwise.
        for channel in channels:
            channel.hold_back()

    def cover(self, number: int) -> None:
        """Registers what has been added to a channel's memory. If the driver refuses, those tensors are not page-locked."""
        start, size = self._channels[number].range()
        size -= size % _PAGE
        covered = self._covered[number]
        if size == covered:
            return
        self._covered[number] = size
        device = torch.cuda.current_device()
        if device not in self._contexts and not self._context(device):
            return
        added = ctypes.c_void_p(start + covered), ctypes.c_size_t(size - covered)
        with _Current(self._driver, self._contexts[device][0]):
            if self._driver.cuMemHostRegister_v2(*added, _PORTABLE) == _SUCCESS:
                self._registered.append(start + covered)

    def give_back(self) -> None:
        """Gives blocks back that no device uses any more, and marks those that were dropped since the last call."""
        if torch.cuda.is_current_stream_capturing():
            # An event would end the capture.
            return
        while self._waiting and all(self._driver.cuEventQuery(event) == _SUCCESS for _, event in self._waiting[0][0]):
            events, dropped = self._waiting.popleft()
            for device, event in events:
                self._contexts[device][1].append(event)
            for channel, blocks in dropped:
                channel.give_back(blocks)
        dropped = [(channel, blocks) for channel in self._channels if (blocks := channel.dropped())]
        self._unmarked += dropped
        if self._unmarked and (events := self._record()) is not None:
            self._waiting.append((events, self._unmarked))
            self._unmarked = []

    def _record(self) -> list[tuple[int, ctypes.c_void_p]] | None:
        """Records an event in each context, or returns ``None`` if one refuses, as during another thread's capture."""
        for device in range(torch.cuda.device_count()):
            if device not in self._contexts and self._is_active(device) and not self._context(device):
                return None
        events = []
        for device, (context, free) in self._contexts.items():
            event = free.pop() if free else self._event(context)
            if event is not None:
                events.append((device, event))
            if event is None or self._driver.cuCtxRecordEvent(context, event) != _SUCCESS:
                for device, event in events:
                    self._contexts[device][1].append(event)
                return None
        return events

    def _is_active(self, device: int) -> bool:
        flags, active = ctypes.c_uint(), ctypes.c_int()
        code = self._driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        return code == _SUCCESS and active.value != 0

    def _context(self, device: int) -> bool:
        context = ctypes.c_void_p()
        if self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != _SUCCESS:
            return False
        self._contexts[device] = context, []
        return True

    def _event(self, context: ctypes.c_void_p) -> ctypes.c_void_p | None:
        event = ctypes.c_void_p()
        with _Current(self._driver, context):
            return event if self._driver.cuEventCreate(ctypes.byref(event), _NO_TIMING) == _SUCCESS else None

    def close(self) -> None:
        """Waits for the devices, and ends the registrations: the memory may be unmapped from then on."""
        if self._owner != os.getpid():
            return
        for context, free in self._contexts.values():
            with _Current(self._driver, context):
                self._driver.cuCtxSynchronize()
                for event in free:
                    self._driver.cuEventDestroy_v2(event)
        for events, _ in self._waiting:
            for _, event in events:
                self._driver.cuEventDestroy_v2(event)
        for context, _ in list(self._contexts.values())[:1]:
            with _Current(self._driver, context):
                for start in self._registered:
                    self._driver.cuMemHostUnregister(ctypes.c_void_p(start))
        for device in self._contexts:
            self._driver.cuDevicePrimaryCtxRelease_v2(device)
        self._registered = []
        self._contexts = {}
        self._waiting.clear()


class _Current:
    """Makes a context current on this thread."""

    def __init__(self, driver: Any, context: ctypes.c_void_p) -> None:
        self._driver = driver
        self._context = context

    def __enter__(self) -> None:
        self._driver.cuCtxPushCurrent_v2(self._context)

    def __exit__(self, *_: object) -> None:
        self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
