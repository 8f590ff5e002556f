"""Code that the Python programs of the comparison share. benches/src/protocol.rs describes their protocol.

A program makes a loader and a dataset. ``batches()`` of the loader iterates over the batches of one pass. The dataset
checks batches: ``verify(batch, take)`` checks every byte and calls ``take`` with the number of each sample, and
``check(batch)`` returns the batch's part of the checksum. If the content is wrong, the program ends with a message on
stderr. If the peer is not installed or does not support the workload, the program prints the reason as its reply.
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
    """The error for a workload that the peer does not support."""


@dataclass
class Plan:
    """The options with which a loader reads a workload."""

    batch_size: int
    shuffle: bool = False
    drop_last: bool = False
    in_order: bool = True
    prefetch: int | None = None  # batches made ahead by each worker; None for the loader's default
    first_batch: bool = False  # each pass builds a loader and takes one batch
    limit: int | None = None  # the number of samples of a pass; None for all samples of the dataset

    def samples(self, size):
        if self.first_batch:
            return self.batch_size
        return self.limit or (size // self.batch_size * self.batch_size if self.drop_last else size)


class Loader:
    """A peer's loader. The methods here are for one that makes no batches before a pass and leaves none after it."""

    def drain(self):
        """Takes the batches that were made before a pass, so that only batches made during the pass are timed."""

    def end(self):
        """Frees what the loader keeps of a pass that has ended."""

    def quit(self):
        """Stops the loader's workers before the program ends."""


class Ledger:
    """Checks that each label occurs at most once in a pass and, if `ordered` is set, that labels count up from 0."""

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
    """Runs a pass, and checks every byte of its batches."""
    if plan.first_batch:
        # In a real program, the first batch is in new pages. glibc would raise the size from which allocations get new
        # pages (M_MMAP_THRESHOLD), so it is fixed here.
        ctypes.CDLL(None).mallopt(-3, 128 * 1024)
    take = Ledger(len(dataset), not plan.shuffle and plan.in_order)
    for batch in loader.batches():
        dataset.verify(batch, take)
    loader.end()
    if take.count != plan.samples(len(dataset)):
        raise ValueError(f"a pass of {take.count} samples instead of {plan.samples(len(dataset))}")


def timed_pass(loader, dataset):
    loader.drain()
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
    """Runs a program. ``peers`` maps the values of ``--peer`` to the names in the report. ``make`` takes the parsed
    arguments, and returns the peer's version, loader, dataset and plan. If the plan is None, no pass is checked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, choices=list(peers))
    for name, kind in (("--workload", str), ("--workers", int), ("--data", Path)):
        parser.add_argument(name, required=True, type=kind)
    args = parser.parse_args()
    # Worker processes of the peers inherit this.
    os.environ["OMP_NUM_THREADS"] = "1"
    # Some packages print to stdout, which must contain only replies, so their output goes to stderr.
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
    """Makes torch use one thread, and returns torch's version."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.__version__.split("+")[0]
