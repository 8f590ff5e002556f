"""Code that the examples share: the digits, loaders for them, a network, and checks."""

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
    """Returns the digits that are part of slotline, with each sample's index as a third field."""
    data = slotline.digits()
    return slotline.StackDataset(data, slotline.Arrays(index=np.arange(len(data))))


class Digits(Dataset):
    """The same samples as a PyTorch dataset, whose Python code is called for each sample."""

    def __init__(self):
        data = digits()
        (self._fields,) = slotline.Loader(data, batch_size=len(data))

    def __len__(self):
        return len(self._fields["label"])

    def __getitem__(self, index):
        return {name: values[index] for name, values in self._fields.items()}


def native(rank, world_size, batch_size, drop_last=False):
    """Returns a loader whose threads read the samples, and a function to set the epoch. The loader
    divides samples among ranks and counts epochs itself, so the function does nothing."""
    options = {"shuffle": True, "seed": SEED, "rank": rank, "world_size": world_size, "drop_last": drop_last}
    return slotline.Loader(digits(), batch_size, num_workers=1, output="torch", **options), lambda epoch: None


def drop_in(rank, world_size, batch_size, drop_last=False, kind=slotline.torch.DataLoader):
    """Returns a loader whose worker processes call a Python dataset, and a function to set the
    epoch. torch's sampler divides the samples among ranks, and must be told the epoch."""
    dataset = Digits()
    sampler = DistributedSampler(dataset, world_size, rank, seed=SEED)
    return kind(dataset, batch_size, sampler=sampler, drop_last=drop_last, num_workers=1), sampler.set_epoch


def network() -> nn.Module:
    """Returns a small network with the same weights in each process. It uses float64, so that
    rounding is distinguishable from real differences."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).double()


def outputs(model, batch) -> torch.Tensor:
    """Returns the network's outputs for a batch."""
    return model(batch["image"].to(next(model.parameters()).dtype) / 16)


def loss_of(model, batch) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs(model, batch), batch["label"])


def accuracy(model) -> float:
    """Returns the fraction of all digits that the network classifies correctly."""
    (everything,) = slotline.Loader(slotline.digits(), batch_size=1797, output="torch")
    with torch.no_grad():
        return (outputs(model, everything).argmax(1) == everything["label"]).double().mean().item()


def weights(model) -> torch.Tensor:
    """Returns all weights of a model in one tensor."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def check_shares(shares, epochs):
    """Checks that in each epoch all ranks have batches of the same sizes, and together all samples.

    ``shares`` has the indices of the samples in each batch, for each rank.
    """
    sizes = [[len(batch) for batch in share] for share in shares]
    assert all(each == sizes[0] for each in sizes), sizes
    count = len(shares[0]) // epochs
    for first in range(0, len(shares[0]), count):
        seen = {index for share in shares for batch in share[first : first + count] for index in batch}
        assert seen == set(range(1797)), f"{1797 - len(seen)} samples were in no batch"


def leave():
    """Ends the process group and the process, without shutting down the interpreter.

    A thread of torch may still be about to release the tensors of the last collective operation. If
    the interpreter shuts down first, that thread aborts the process (torch 2.15).
    """
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)
