"""What the examples share: the digits, a network for them, and the steps of its training."""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

import slotline

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


def ranks() -> tuple[int, int]:
    """The rank and the number of processes, as torchrun and its likes say in the environment."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
