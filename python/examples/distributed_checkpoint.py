"""Saves states of loaders in checkpoints of torch.distributed, as torchdata's StatefulDataLoader
does.

    torchrun --nproc-per-node 2 distributed_checkpoint.py save FOLDER
    torchrun --nproc-per-node 2 distributed_checkpoint.py resume FOLDER     with slotline.Loader, also on 1 or 3 processes
"""

import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import drop_in, leave, loss_of, native, network, weights
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import slotline
import slotline.torch

BATCH = 48
# An epoch has 19 batches on each of two ranks.
SAVED_AT = 8


def make(kind, rank, world_size):
    loader, _ = native(rank, world_size, BATCH) if kind is slotline.Loader else drop_in(rank, world_size, BATCH, kind=kind)
    return loader


def train(kind, folder=None, resume=False):
    """Trains for an epoch.

    With a folder, trains for ``SAVED_AT`` batches and saves a checkpoint, or with ``resume``
    continues from it. Returns this rank's batches, the weights, and how often each sample was in a
    batch of any rank, before the checkpoint and after it.
    """
    ranks = slotline.find_ranks()
    rank, world_size = ranks.rank, ranks.world_size
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)  # no momentum, so no state to save
    loader = make(kind, rank, world_size)
    state = {"model": model.state_dict(), "seen": torch.zeros(1797, dtype=torch.int64)}
    # A state of `slotline.Loader` is valid for all ranks. Those of other loaders contain their
    # rank's random seeds, so each is saved.
    name = "loader" if kind is slotline.Loader else f"loader of rank {rank}"
    if resume:
        # Reads into the tensors of `state`, and calls the loader's `load_state_dict`.
        dcp.load(state | {name: loader}, checkpoint_id=folder)
    after, batches = torch.zeros(1797, dtype=torch.int64), []
    for batch in loader:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        batches.append(batch["index"].tolist())
        after[batch["index"]] += 1
        if folder is not None and not resume and len(batches) == SAVED_AT:
            break
    dist.all_reduce(after)
    if folder is not None and not resume:
        dcp.save(state | {name: loader, "seen": after}, checkpoint_id=folder)
    return batches, weights(model), state["seen"], after


def main(action, folder):
    dist.init_process_group("gloo")
    ranks = slotline.find_ranks()
    rank, world_size = ranks.rank, ranks.world_size
    for kind in (slotline.Loader, slotline.torch.DataLoader, StatefulDataLoader):
        path = folder / f"{kind.__module__}.{kind.__name__}"
        if action == "save":
            assert len(train(kind, path)[0]) == SAVED_AT
            continue
        if world_size != 2 and kind is not slotline.Loader:
            continue  # the states of other loaders are for one rank of two
        rest, resumed, before, after = train(kind, path, resume=True)
        assert before.sum() == 2 * SAVED_AT * BATCH and before.max() == 1
        # Samples that had not been seen are seen, and others only to give each rank equally many.
        assert (before + after).min() == 1
        assert (before + after).sum() - 1797 < 2 + world_size, (before + after).sum()
        if world_size == 2:
            whole, expected, *_ = train(kind)
            assert rest == whole[SAVED_AT:]
            assert torch.equal(resumed, expected)
        if rank == 0:
            name = f"{kind.__module__.partition('._')[0]}.{kind.__name__}"
            print(f"{name}: saved after {before.sum()} samples on 2 ranks, {after.sum()} others came on {world_size}")
    leave()


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
