"""Datasets, kinds of loaders, and helpers that tests of PyTorch's loader share."""

import json

from torch.utils.data import Dataset, Sampler

# Options for a loader of each kind.
KINDS = [dict(num_workers=0), dict(num_workers=2), dict(num_workers=2, worker_method="thread")]
IDS = ["inline", "processes", "threads"]


class Samples(Dataset):
    """A dataset of ``length`` samples, where sample ``k`` is ``make(k)``."""

    def __init__(self, length, make=int):
        self.length, self.make = length, make

    def __len__(self):
        return self.length

    def __getitem__(self, k):
        return self.make(k)


class Counts(Sampler):
    """A sampler with a state of its own, which gives each of ``count`` indices once."""

    def __init__(self, count):
        self.count, self.at, self.passes = count, 0, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        while self.at < self.count:
            self.at += 1
            yield (7 * self.at + self.passes) % self.count
        self.at = 0
        self.passes += 1

    def state_dict(self):
        return {"at": self.at, "passes": self.passes}

    def load_state_dict(self, state):
        self.at, self.passes = state["at"], state["passes"]


def resume(loader, state):
    """Loads a state, and returns the loader."""
    loader.load_state_dict(state)
    return loader


def taken(loader, count):
    """Takes the first batches, and returns the state at that point, as a file would store it, and
    the remaining batches."""
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    return state, list(batches)
