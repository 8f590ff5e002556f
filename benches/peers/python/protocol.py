"""What the Python programs of the comparison share: see benches/src/protocol.rs."""

import argparse
import ctypes
import json
import sys
from dataclasses import dataclass
from pathlib import Path


class Absent(Exception):
    """The peer is not installed, or does not support the workload."""


@dataclass
class Plan:
    """How a workload is read."""

    batch_size: int
    shuffle: bool = False
    drop_last: bool = False
    in_order: bool = True
    prefetch: int | None = None  # batches made ahead by each worker, or None for the default
    first_batch: bool = False  # each pass builds a loader and takes one batch

    def samples(self, size):
        if self.first_batch:
            return self.batch_size
        return size // self.batch_size * self.batch_size if self.drop_last else size


class Ledger:
    """Checks the labels of a pass: each at most once and, if the order is kept, in order."""

    def __init__(self, size, ordered):
        self.seen, self.ordered, self.count = bytearray(size), ordered, 0

    def __call__(self, label):
        if not 0 <= label < len(self.seen) or self.seen[label] or (self.ordered and label != self.count):
            raise ValueError(f"label {label} was received at position {self.count}")
        self.seen[label] = 1
        self.count += 1


def arguments(peers):
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, choices=peers)
    for name, kind in (("--workload", str), ("--workers", int), ("--data", Path)):
        parser.add_argument(name, required=True, type=kind)
    return parser.parse_args()


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


def serve(peer, release, run):
    """Says that the peer is ready, and answers requests until there are no more."""
    reply({"ready": True, "peer": peer, "version": release})
    for line in map(str.strip, sys.stdin):
        if line == "quit":
            break
        if line != "pass":
            raise ValueError(f"unknown command {line}")
        reply(run())
