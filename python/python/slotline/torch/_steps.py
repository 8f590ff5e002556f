"""Loops that end at the same step on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist

from slotline._errors import OptionError

_T = TypeVar("_T")


def equal_steps(
    batches: Iterable[_T], shorter: Literal["drop", "pad", "repeat"] = "drop", group: dist.ProcessGroup | None = None
) -> Iterator[_T | None]:
    """Returns an iterator over ``batches`` that has equally many steps on all ranks, even if some have fewer batches.

    Datasets with an index need no such thing, since their samplers give all ranks equally many batches; streams do, as they end
    at different times, and a rank that has no batch would leave the others waiting in their collective operations.

    Args:
        batches: A loader, or anything else that can be iterated over.
        shorter: What happens when a rank has no more batches and others have. ``"drop"``: the loop ends on all of them, and the
            batches that the others have for that step are dropped. ``"pad"``: it gets ``None`` until all have ended; take the
            step without data, with a loss of 0. ``"repeat"``: it begins ``batches`` once more, which must be iterable more
            than once, and not empty.
        group: The process group, instead of that of all ranks.

    Each step begins with an all-reduce of one number, on the GPU if the group's backend is NCCL, where it waits for what was
    queued before. A group with gloo beside it, ``dist.new_group(backend="gloo")``, does not.

    Raises :class:`slotline.OptionError` if ``shorter`` is something else, or there is nothing to repeat. An exception on one
    rank does not reach the others, which wait for it until the group's timeout, as in any collective operation.
    """
    if shorter not in ("drop", "pad", "repeat"):
        raise OptionError(f'shorter is {shorter!r}; it must be "drop", "pad" or "repeat"')
    return _steps(batches, shorter, group)


def _steps(batches: Iterable[_T], shorter: str, group: dist.ProcessGroup | None) -> Iterator[_T | None]:
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")
    # Whether the ranks go on: all of those that have a batch, or any of those that have not ended yet.
    operation = dist.ReduceOp.MIN if shorter == "drop" else dist.ReduceOp.MAX
    end: Any = object()
    iterator, ended = iter(batches), False
    while True:
        batch = end if ended and shorter == "pad" else next(iterator, end)
        ended = ended or batch is end
        more = torch.tensor([not ended], dtype=torch.int32, device=device)
        dist.all_reduce(more, operation, group)
        if not more.item():
            return
        if batch is end and shorter == "repeat":
            iterator = iter(batches)
            batch = next(iterator, end)
            if batch is end:
                raise OptionError('there are no batches to repeat on this rank; use shorter="pad"')
        yield None if batch is end else batch
