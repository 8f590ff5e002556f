"""Measures PyTorch's DataLoader on the same work as slotline-cuda-check, for comparison.

Use: torch_loader.py REPORT > TORCH

REPORT ends with the JSON line of `slotline-cuda-check --json`, which provides the sizes, the number of workers and the
step times. The output is lines of JSON: one for each figure as it is measured, and at the end one with the same keys as in
REPORT, under `measure`: `feed` and `step`.

The dataset consists of shuffled rows of bytes in memory, with their numbers, like the dataset `gather` of
slotline-cuda-check. It is read in two ways:

    torch        __getitem__ and torch's default collation
    torch-bulk   __getitems__, which gathers a whole batch at once

Workers are processes; batches are pinned by the loader's thread (pin_memory=True) and copied with non_blocking=True on
the training stream. A step is the same kernel as in slotline's steps, from `kernels/check.ptx` next to this file.
Needs only torch 2.x with CUDA.
"""

import argparse
import ctypes
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

ROWS = 64
SOURCE = 512 << 20
COPIED = 512 << 20
ROUNDS = 3


class Rows(Dataset):
    """A dataset of `count` samples that share fewer rows in memory."""

    def __init__(self, count, row_bytes):
        self.count = count
        in_memory = max(SOURCE // row_bytes, 1)
        self.rows = torch.full((in_memory, row_bytes), 7, dtype=torch.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.rows[index % len(self.rows)], index


class BulkRows(Rows):
    def __getitems__(self, indices):
        indices = torch.tensor(indices)
        return self.rows.index_select(0, indices % len(self.rows)), indices


def whole(samples):
    return samples


PEERS = {"torch": Rows, "torch-bulk": BulkRows}


def loader(peer, count, row_bytes, workers):
    options = {"batch_size": ROWS, "shuffle": True, "num_workers": workers, "pin_memory": True}
    if workers:
        options |= {"persistent_workers": True}
    if peer == "torch-bulk":
        options |= {"collate_fn": whole}
    return DataLoader(PEERS[peer](count, row_bytes), **options)


class Spin:
    """Launches the kernel `spin` on torch's current stream, through the driver API."""

    def __init__(self, ptx):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), ptx.read_bytes() + b"\0"))
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(self.function), module, b"spin"))

    def __call__(self, nanos):
        value = ctypes.c_uint64(nanos)
        params = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.cuda.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, stream, params, None))

    @staticmethod
    def check(code):
        if code:
            raise RuntimeError(f"CUDA driver error {code}")


def link(batch_bytes):
    """Returns the bandwidth of back-to-back copies from pinned memory, in 10^9 bytes per second."""
    source = torch.empty((8, batch_bytes), dtype=torch.uint8).pin_memory()
    target = torch.empty(batch_bytes, dtype=torch.uint8, device="cuda")
    copies = min(max(COPIED // batch_bytes, 1), 1000)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    target.copy_(source[0], non_blocking=True)
    begin.record()
    for copy in range(copies):
        target.copy_(source[copy % 8], non_blocking=True)
    end.record()
    torch.cuda.synchronize()
    return copies * batch_bytes / (begin.elapsed_time(end) / 1e3) / 1e9


def to_device(batch):
    return [part.to("cuda", non_blocking=True) for part in batch]


def feed(peer, like):
    batches, batch_bytes = like["batches"], like["batch_bytes"]
    batch_loader = loader(peer, batches * ROWS, batch_bytes // ROWS, like["workers"])

    def through():
        for batch in batch_loader:
            to_device(batch)
        torch.cuda.synchronize()

    through()
    rates, shares = [], []
    for _ in range(ROUNDS):
        raw = link(batch_bytes)
        begin = time.perf_counter()
        through()
        rates.append(batches * batch_bytes / (time.perf_counter() - begin) / 1e9)
        shares.append(rates[-1] / raw)
    same = {key: like[key] for key in ("dataset", "batch_bytes", "workers", "batches")}
    return {"loader": peer, **same, "gb_per_s": spread(rates), "share": spread(shares)}


def step(peer, like, spin):
    steps, batch_bytes, nanos = like["steps"], like["batch_bytes"], int(like["step_us"] * 1e3)
    batch_loader = loader(peer, steps * ROWS, batch_bytes // ROWS, like["workers"])
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(steps)]

    def waited(batches):
        for batch, (begin, end) in zip(batches, events):
            if batch is not None:
                batch = to_device(batch)
            begin.record()
            spin(nanos)
            end.record()
        torch.cuda.synchronize()
        idle = sum(before[1].elapsed_time(after[0]) for before, after in zip(events, events[1:]))
        return idle / events[0][0].elapsed_time(events[-1][1])

    waited(batch_loader)
    rounds = [(waited(batch_loader), waited([None] * steps)) for _ in range(ROUNDS)]
    waits, floors = zip(*rounds)
    same = {key: like[key] for key in ("batch_bytes", "workers", "steps", "step_us")}
    return {"loader": peer, **same, "wait_share": spread(waits), "floor_share": spread(floors)}


def spread(values):
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"low": low, "median": median, "high": high}


def once(figures, *keys):
    """Returns one figure of each group that differs only in the number of slots, since torch has no slots."""
    return list({tuple(figure[key] for key in keys): figure for figure in figures}.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="the output of slotline-cuda-check --json")
    parser.add_argument("--ptx", type=Path, default=Path(__file__).parent / "kernels" / "check.ptx")
    args = parser.parse_args()
    report = json.loads(args.report.read_text().splitlines()[-1])
    if not torch.cuda.is_available():
        sys.exit(f"this torch ({torch.__version__}) found no CUDA device")
    torch.cuda.init()
    torch.empty(1, device="cuda")
    spin, figures = Spin(args.ptx), report["measure"]
    measured = {"feed": [], "step": []}
    for peer in PEERS:
        for like in once([like for like in figures["feed"] if like["dataset"] == "gather"], "batch_bytes"):
            measured["feed"].append(feed(peer, like))
            print(json.dumps(measured["feed"][-1]), flush=True)
        for like in once(figures["step"], "batch_bytes", "step_us"):
            measured["step"].append(step(peer, like, spin))
            print(json.dumps(measured["step"][-1]), flush=True)
    machine = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(json.dumps({"machine": machine, "measure": measured}))


if __name__ == "__main__":
    main()
