"""What the examples share: the digits, loaders of them, a network, and checks."""

from __future__ import annotations

import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, DistributedSampler

import slotline
import slotline.torch

SEED = 3


def digits() -> slotline.Dataset:
    """The digits that come with slotline, and the number of each sample as a third field."""
    data = slotline.digits()
    return slotline.StackDataset(data, slotline.Arrays(index=np.arange(len(data))))


class Digits(Dataset):
    """The same samples as a dataset of PyTorch, which is called for each sample."""

    def __init__(self):
        data = digits()
        (self._fields,) = slotline.Loader(data, batch_size=len(data))

    def __len__(self):
        return len(self._fields["label"])

    def __getitem__(self, index):
        return {name: values[index] for name, values in self._fields.items()}


def native(rank, world_size, batch_size, drop_last=False):
    """A loader whose threads read the samples. It shares them out itself, and counts the epochs."""
    options = {"shuffle": True, "seed": SEED, "rank": rank, "world_size": world_size, "drop_last": drop_last}
    return slotline.Loader(digits(), batch_size, num_workers=1, output="torch", **options), lambda epoch: None


def drop_in(rank, world_size, batch_size, drop_last=False, kind=slotline.torch.DataLoader):
    """A loader whose worker processes call a dataset of Python. torch's sampler shares the samples out, and is told the epoch."""
    dataset = Digits()
    sampler = DistributedSampler(dataset, world_size, rank, seed=SEED)
    return kind(dataset, batch_size, sampler=sampler, drop_last=drop_last, num_workers=1), sampler.set_epoch


def network() -> nn.Module:
    """A small network, with the same weights in each process. In float64, to tell rounding from a difference."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).double()


def outputs(model, batch) -> torch.Tensor:
    """What the network makes of a batch."""
    return model(batch["image"].to(next(model.parameters()).dtype) / 16)


def loss_of(model, batch) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs(model, batch), batch["label"])


def accuracy(model) -> float:
    """The share of all digits that the network recognises."""
    (everything,) = slotline.Loader(slotline.digits(), batch_size=1797, output="torch")
    with torch.no_grad():
        return (outputs(model, everything).argmax(1) == everything["label"]).double().mean().item()


def weights(model) -> torch.Tensor:
    """All weights of a model in one tensor."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def check_shares(shares, epochs):
    """Checks that in each epoch, all ranks have batches of the same sizes, and that together they have all samples. ``shares`` are
    the numbers of the samples of each batch, of each rank."""
    sizes = [[len(batch) for batch in share] for share in shares]
    assert all(each == sizes[0] for each in sizes), sizes
    count = len(shares[0]) // epochs
    for first in range(0, len(shares[0]), count):
        seen = {index for share in shares for batch in share[first : first + count] for index in batch}
        assert seen == set(range(1797)), f"{1797 - len(seen)} samples were in no batch"


def leave():
    """Ends the process group, and the process with it.

    A thread of torch may still be about to release the tensors of the last collective. If the interpreter shuts down before it
    does, the thread aborts the process (torch 2.15), so the interpreter is not shut down.
    """
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)
