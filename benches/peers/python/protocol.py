"""What the Python programs of the comparison share: see benches/src/protocol.rs.

A program makes a loader, whose ``batches()`` is a pass, and a dataset that checks batches: ``verify(batch, take)``
checks every byte, and calls ``take`` with the number of each sample, and ``check(batch)`` returns its part of the
checksum. For wrong content, it ends with a message on stderr. If the peer is not installed or does not support the
workload, it says why.
"""

import argparse
import ctypes
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path


class Absent(Exception):
    """The peer does not support the workload."""


@dataclass
class Plan:
    """How a workload is read."""

    batch_size: int
    shuffle: bool = False
    drop_last: bool = False
    in_order: bool = True
    prefetch: int | None = None  # batches made ahead by each worker, or None for the default
    first_batch: bool = False  # each pass builds a loader and takes one batch
    limit: int | None = None  # the samples of a pass, or None for all

    def samples(self, size):
        if self.first_batch:
            return self.batch_size
        return self.limit or (size // self.batch_size * self.batch_size if self.drop_last else size)


class Loader:
    """A loader of a peer. By default, nothing is made ahead of a pass, and nothing is left of it."""

    def settle(self):
        """Takes the batches that were made ahead, so that the timed pass only has batches made during it."""

    def end(self):
        """Ends a pass."""

    def quit(self):
        """Ends the program."""


class Ledger:
    """Checks the labels of a pass: each at most once and, if the order is kept, in order."""

    def __init__(self, size, ordered):
        self.seen, self.ordered, self.count = bytearray(size), ordered, 0

    def __call__(self, label):
        if not 0 <= label < len(self.seen) or self.seen[label] or (self.ordered and label != self.count):
            raise ValueError(f"label {label} was received at position {self.count}")
        self.seen[label] = 1
        self.count += 1


def reply(answer):
    print(json.dumps(answer), flush=True)


def check(loader, dataset, plan):
    """Runs a pass, and checks every byte."""
    if plan.first_batch:
        # A program's first batch gets fresh pages, so the threshold for them (M_MMAP_THRESHOLD) must not rise.
        ctypes.CDLL(None).mallopt(-3, 128 * 1024)
    take = Ledger(len(dataset), not plan.shuffle and plan.in_order)
    for batch in loader.batches():
        dataset.verify(batch, take)
    loader.end()
    if take.count != plan.samples(len(dataset)):
        raise ValueError(f"a pass of {take.count} samples instead of {plan.samples(len(dataset))}")


def timed_pass(loader, dataset):
    loader.settle()
    batches, total = 0, None
    begin = time.perf_counter()
    for batch in loader.batches():
        part = dataset.check(batch)
        if total is None:
            total = part + 0
        elif isinstance(part, int):
            total += part
        else:  # one sum for each row of a batch, which is cheaper than one sum per batch
            total[: len(part)] += part
        batches += 1
        del batch, part
    seconds = time.perf_counter() - begin
    loader.end()
    return {"batches": batches, "seconds": seconds, "check": total if isinstance(total, int) else int(total.sum())}


def main(peers, make):
    """Runs a program. ``peers`` has the names of the peers in the report, and ``make`` returns the version of the peer of its
    arguments, its loader, its dataset, and its plan, which is None if no pass is to be checked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, choices=list(peers))
    for name, kind in (("--workload", str), ("--workers", int), ("--data", Path)):
        parser.add_argument(name, required=True, type=kind)
    args = parser.parse_args()
    # In the processes of all peers.
    os.environ["OMP_NUM_THREADS"] = "1"
    # Some packages print to stdout, where only answers must be.
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        release, loader, dataset, plan = make(args)
        if plan is not None:
            check(loader, dataset, plan)
    except (Absent, ImportError, FileNotFoundError) as why:
        return reply({"absent": str(why)})
    reply({"ready": True, "peer": peers[args.peer], "version": release})
    for line in map(str.strip, sys.stdin):
        if line == "quit":
            break
        if line != "pass":
            raise ValueError(f"unknown command {line}")
        reply(timed_pass(loader, dataset))
    loader.quit()


def torch_release():
    """Has torch use one thread, and returns its version."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.__version__.split("+")[0]
