"""Resumes after a rank is killed in the middle of an epoch: torchrun restarts all ranks, and
training continues exactly.

        torchrun --standalone --nproc-per-node 2 --max-restarts 1 elastic.py native FOLDER     or drop_in, for the other loader

The checkpoint is written to FOLDER, which must be empty at the start.
"""

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from common import drop_in, leave, loss_of, native, network, weights
from torch.nn.parallel import DistributedDataParallel

import slotline

EPOCHS = 3
BATCH = 48
SAVE_EVERY = 5
# 1797 samples are 19 batches on each of two ranks, so this step is in the second epoch, three steps
# after a checkpoint.
KILLED_AT = 28
KILLED_RANK = 1


def train(make, path=None):
    """Trains, with checkpoints at ``path`` if it is given.

    Returns the model, the indices of this rank's samples in each epoch, and how many of them an
    earlier process had taken before this one was started.
    """
    ranks = slotline.find_ranks()
    rank, world_size = ranks.rank, ranks.world_size
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    loader, set_epoch = make(rank, world_size, BATCH)
    step, seen, earlier = 0, [[]], 0
    if path is not None and path.exists():
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loaders"][rank])
        step, seen = checkpoint["step"], checkpoint["seen"][rank]
        earlier = len(seen[-1])
    for epoch in range(len(seen) - 1, EPOCHS):
        set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            seen[epoch] += batch["index"].tolist()
            step += 1
            if path is not None and step % SAVE_EVERY == 0:
                save(path, model, optimizer, {"loaders": loader.state_dict(), "seen": seen}, step)
            if path is not None and restarts() == 0 and (step, rank) == (KILLED_AT, KILLED_RANK):
                os.kill(os.getpid(), signal.SIGKILL)
        seen.append([])
    return model, seen, earlier


def save(path, model, optimizer, own, step):
    """Saves what all ranks share (rank 0 writes it), and ``own`` of each rank."""
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, own)
    if dist.get_rank() == 0:
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        checkpoint |= {name: [state[name] for state in states] for name in own}
        new = path.with_suffix(".new")
        torch.save(checkpoint, new)
        new.replace(path)  # a complete checkpoint exists at any time


def restarts():
    """Returns how often torchrun has restarted the processes."""
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def main(make, folder):
    dist.init_process_group("gloo")
    model, seen, earlier = train(make, folder / "checkpoint.pt")

    assert restarts() == 1, "no rank was killed"
    whole, expected, _ = train(make)
    # The rest of the epoch contains exactly the samples that were not seen before, in the same
    # order.
    batches = KILLED_AT // SAVE_EVERY * SAVE_EVERY - len(expected[0]) // BATCH - 1
    assert earlier == batches * BATCH, earlier
    assert seen == expected
    before, after = set(seen[1][:earlier]), set(seen[1][earlier:])
    assert after and not before & after
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, before | after)
    assert set().union(*shares) == set(range(1797))
    # Every step had the same batches and initial weights, so all bits are equal.
    assert torch.equal(weights(model), weights(whole))
    if dist.get_rank() == 0:
        print(
            f"{make.__name__}: rank {KILLED_RANK} was killed after step {KILLED_AT}; resumed after {earlier} samples of epoch 1 on "
            f"each rank; the other {len(after)}, and the weights, are those of a run that was not interrupted"
        )
    leave()


if __name__ == "__main__":
    main({"native": native, "drop_in": drop_in}[sys.argv[1]], pathlib.Path(sys.argv[2]))
