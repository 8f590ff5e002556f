"""Trains with DistributedDataParallel on slotline's loaders, and compares with training in one
process.

    torchrun --standalone --nproc-per-node 2 ddp.py
"""

import torch
import torch.distributed as dist
from common import accuracy, drop_in, leave, loss_of, native, network, weights
from torch.nn.parallel import DistributedDataParallel

import slotline

# Divisible by the number of processes. The last batch is dropped, since it may contain samples that
# are repeated so that all ranks have equally many.
GLOBAL_BATCH = 96
EPOCHS = 4


def train(model, loader, set_epoch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(EPOCHS):
        set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    return weights(model)


def check_counts(loader, rank, world_size):
    """Checks that all ranks have equally many batches, and together all samples."""
    batches = [batch["index"] for batch in loader]
    assert len(batches) == len(loader)
    counts = torch.zeros(world_size, dtype=torch.int64)
    counts[rank] = len(batches)
    dist.all_reduce(counts)
    assert (counts == counts[0]).all(), counts
    seen = torch.zeros(1797, dtype=torch.int64)
    seen.index_add_(0, torch.cat(batches), torch.ones(sum(map(len, batches)), dtype=torch.int64))
    dist.all_reduce(seen)
    # 1797 samples are divided; to give each rank equally many, the first samples of the order are
    # repeated.
    assert seen.min() == 1 and seen.sum() == -(-1797 // world_size) * world_size, seen
    return len(batches)


def main():
    dist.init_process_group("gloo")
    ranks = slotline.find_ranks()
    rank, world_size = ranks.rank, ranks.world_size
    for make in (native, drop_in):
        batches = check_counts(make(rank, world_size, GLOBAL_BATCH // world_size)[0], rank, world_size)

        together = train(DistributedDataParallel(network()), *make(rank, world_size, GLOBAL_BATCH // world_size, drop_last=True))
        alone = train(model := network(), *make(0, 1, GLOBAL_BATCH, drop_last=True))
        torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)
        assert not torch.allclose(together, weights(network()), atol=1e-2)
        assert accuracy(model) > 0.95, accuracy(model)
        if rank == 0:
            difference = (together - alone).abs().max()
            print(f"{make.__name__}: {batches} batches on each of {world_size} ranks; weights as of one process, up to {difference:.0e}")
    leave()


if __name__ == "__main__":
    main()
