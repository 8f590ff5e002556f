"""Iteration that ends at the same step on all ranks of a distributed run."""

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
    """Returns an iterator over ``batches`` with equally many steps on all ranks, even if some ranks
    have fewer batches.

    It is for streams, which can end at different times on different ranks: a rank without a batch
    would leave the others waiting in their collective operations. Samplers of indexed datasets
    already give all ranks equally many batches.

    Args:
        batches: A loader or another iterable.
        shorter: What happens when some ranks have no more batches. ``"drop"``: the loop ends on all
            ranks, and the batches that the others have for that step are dropped. ``"pad"``: such a
            rank gets ``None`` until all have ended; let it take the step without data, with a loss
            of 0. ``"repeat"``: such a rank iterates over ``batches`` again, which must be possible
            and must not be empty.
        group: The process group to use instead of all ranks.

    Each step begins with an all-reduce of one number. If the group's backend is NCCL, this runs on
    the GPU and waits for all work queued before. A separate group with gloo,
    ``dist.new_group(backend="gloo")``, avoids that wait.

    Raises :class:`slotline.OptionError` if ``shorter`` has another value, or if there is nothing to
    repeat. An exception on one rank does not reach the others, which wait until the group's
    timeout, as in any collective operation.
    """
    if shorter not in ("drop", "pad", "repeat"):
        raise OptionError(f'shorter is {shorter!r}; it must be "drop", "pad" or "repeat"')
    return _steps(batches, shorter, group)


def _steps(batches: Iterable[_T], shorter: str, group: dist.ProcessGroup | None) -> Iterator[_T | None]:
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")
    # Reduced over all ranks: "drop" continues while every rank has a batch, the others while any
    # rank has one.
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
