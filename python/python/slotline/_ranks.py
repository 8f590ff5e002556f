"""Finding this process's rank among the processes that train together."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from slotline import _slotline
from slotline._errors import OptionError


@dataclass(frozen=True)
class Ranks:
    """The rank of this process among the processes that train together.

    Pass it as ``Loader(..., rank=ranks.rank, world_size=ranks.world_size)``. For logs,
    ``str(ranks)`` also names the launcher, such as ``"rank 2 of 8 (torchrun)"``.
    """

    rank: int
    """The index of this process, from 0."""
    world_size: int
    """The number of processes."""
    local_rank: int | None = None
    """The index of this process among those of its machine, if known."""
    local_world_size: int | None = None
    """The number of processes on this machine, if known."""
    source: str | None = None
    """Where the numbers were found, such as ``"torch.distributed"``, ``"Ray Train"`` or
    ``"torchrun"``; ``None`` for a single process."""

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size}" + (f" ({self.source})" if self.source else "")


def find_ranks(group: Any = None) -> Ranks:
    """Returns the rank of this process; rank 0 of 1 if no launcher or library tells of other
    processes.

    The first available source is used: ``torch.distributed``, if it is initialised; Ray Train's
    context, inside its training function; the environment variables of torchrun, PMI (MPICH, Intel
    MPI), Open MPI, MVAPICH or Slurm's ``srun``. Neither PyTorch nor Ray is imported for that.
    ``group`` is a process group of ``torch.distributed`` to use instead of all processes. Where
    several ranks need the same batches, as with tensor parallelism, pass the data-parallel group.

    Loaders never call this function: pass the result to them.

    Raises :class:`slotline.OptionError` if variables are missing, invalid or contradictory, or if
    this process is not in the group.
    """
    ranks = _of_torch(group) or _of_ray()
    if ranks is not None:
        return ranks
    found = _slotline.ranks_from_env()
    return Ranks(0, 1) if found is None else Ranks(*found)


def _of_torch(group: Any) -> Ranks | None:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        if group is not None:
            raise OptionError("group needs an initialised torch.distributed; call init_process_group first")
        return None
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise OptionError(f"rank {dist.get_rank()} is not in the group; pass one that it is in")
    return Ranks(rank, world_size, source="torch.distributed")


def _of_ray() -> Ranks | None:
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
    except RuntimeError:  # outside of a training function
        return None
    local = context.get_local_rank(), context.get_local_world_size()
    return Ranks(context.get_world_rank(), context.get_world_size(), *local, source="Ray Train")
