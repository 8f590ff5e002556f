"""The loaders of Python programs, on the workloads of Python.

Use: pipelines.py --peer PEER --workload W --workers N --data DIR

    slotline     slotline.torch.DataLoader
    threads      the same with worker_method="thread"
    any-worker   the same with round_robin=False
    torch        torch.utils.data.DataLoader
    torch-bulk   the same with batch_size=None over a BatchSampler, so that a TensorDataset looks up whole batches
    torchdata    torchdata.stateful_dataloader.StatefulDataLoader
    spdl         spdl.pipeline with threads, whose stages make batches, or samples if these take long
    grain        grain.MapDataset: reads, shuffles, batches; worker processes by mp_prefetch
    calls        the calls of __getitem__ alone, without a loader

The program runs a pass in which it checks every byte. In the timed passes it counts samples, which is the check sum of
its answers. torch has one thread in each process.
"""

import os
import time
from importlib.metadata import version

import numpy as np

import loaders
import protocol
from protocol import Absent, Plan
from samples import Images, MappedImages, Numbers, image_bytes

SMALL, LARGE = (60_000, 28, 28), (2_000, 3, 224, 224)
# The program of each peer, and the package that it needs.
PACKAGES = {
    "slotline": "slotline",
    "threads": "slotline",
    "any-worker": "slotline",
    "torch": "torch",
    "torch-bulk": "torch",
    "torchdata": "torchdata",
    "spdl": "spdl",
    "grain": "grain",
    "calls": "torch",
}
# The names of the peers in the report.
NAMES = {
    "threads": "slotline, threads",
    "any-worker": "slotline, round_robin=False",
    "torch-bulk": "torch, whole batches",
    "calls": "bare calls",
}
# With threads, there is no context that starts processes.
OPTIONS = {
    "threads": {"worker_method": "thread", "multiprocessing_context": None},
    "any-worker": {"round_robin": False},
}


class Empty(Numbers):
    """python-empty-items and python-slow-samples: as in empty-items and slow-samples."""

    @staticmethod
    def size(batch):
        return len(batch)


class Rows(Images):
    """python-small-images, python-large-images and python-first-batch: images and labels in memory, of which a dataset gives one pair for an index."""

    @staticmethod
    def size(batch):
        return len(batch[1])


class MappedRows(MappedImages):
    """The same in a mapped file, for Grain's processes."""

    size = staticmethod(Rows.size)


def images(shape, dtype):
    return torch.from_numpy(np.resize(image_bytes(), shape)).to(dtype)


def workload(args):
    """Returns the dataset that the loader reads, an object that checks its batches, and the plan."""
    name, peer = args.workload, args.peer
    if name in ("python-empty-items", "python-slow-samples"):
        dataset = Empty(3_000, False) if name == "python-empty-items" else Empty(200, True)
        return dataset, dataset, Plan(1 if name == "python-empty-items" else 8)
    if name.startswith("python-jpegs"):
        try:
            from photos import Photos

            dataset = Photos(args.data / "photos", name.removeprefix("python-jpegs-"))
        except ImportError as error:
            raise Absent(str(error)) from error
        return dataset, dataset, Plan(32)
    shape = SMALL if name.startswith(("python-small-images", "python-indexed-images")) else LARGE
    plan = Plan(64 if shape == SMALL else 32, shuffle=True, first_batch=name.startswith("python-first-batch"))
    if peer == "grain":
        if name == "python-large-images-floats":
            raise Absent("its processes read the bytes of a mapped file, as in python-large-images-bytes")
        dataset = MappedRows(args.data / f"images-{shape[0]}.u8", shape)
        return dataset, dataset, plan
    pixels = images(shape, torch.float32 if name == "python-large-images-floats" else torch.uint8)
    labels = torch.arange(shape[0])
    if name in ("python-small-images", "python-large-images-bytes", "python-large-images-floats", "python-first-batch-tensors"):
        return torch.utils.data.TensorDataset(pixels, labels), Rows(pixels, labels), plan
    # Labels are Python's integers here.
    rows = Rows(pixels.numpy() if name == "python-indexed-images-numpy" else pixels, labels.tolist())
    return rows, rows, plan


def make(args, dataset, plan):
    """Returns the loader of the peer."""
    peer, workers = args.peer, args.workers
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    if PACKAGES[peer] == "slotline":
        from slotline.torch import DataLoader as Ours

        return loaders.Torch(Ours, workers, dataset, plan, **OPTIONS.get(peer, {}))
    if peer == "torch":
        return loaders.Torch(DataLoader, workers, dataset, plan)
    if peer == "torch-bulk":
        if not isinstance(dataset, TensorDataset):
            raise Absent("only a TensorDataset can look up whole batches")
        sampler = BatchSampler(RandomSampler(dataset), plan.batch_size, plan.drop_last)
        return loaders.Torch(DataLoader, workers, dataset, plan, batch_size=None, shuffle=False, sampler=sampler)
    if peer == "torchdata":
        from torchdata.stateful_dataloader import StatefulDataLoader

        return loaders.Torch(StatefulDataLoader, workers, dataset, plan)
    if peer == "spdl":
        return loaders.Spdl(lambda: spdl_pipeline(args, dataset, plan), plan)
    return loaders.Grain(workers, dataset, plan) if peer == "grain" else loaders.Calls(dataset, plan)


def spdl_pipeline(args, dataset, plan):
    """Follows SPDL's documentation: stages of functions that release the GIL where they can, in threads."""
    from spdl.pipeline import PipelineBuilder
    from torch.utils.data import TensorDataset, default_collate

    workers = args.workers
    draw = torch.randperm if plan.shuffle else torch.arange
    stage = {"concurrency": workers, "output_order": "input"}
    if args.workload.startswith(("python-jpegs", "python-slow-samples")):
        builder = PipelineBuilder().add_source(draw(len(dataset)).tolist())
        builder = builder.pipe(dataset.__getitem__, **stage).aggregate(plan.batch_size).pipe(default_collate)
    elif isinstance(dataset, TensorDataset):
        batches = draw(len(dataset)).split(plan.batch_size)
        gather = lambda index: tuple(tensor.index_select(0, index) for tensor in dataset.tensors)  # noqa: E731
        builder = PipelineBuilder().add_source(batches).pipe(gather, **stage)
    else:
        batches = [batch.tolist() for batch in draw(len(dataset)).split(plan.batch_size)]
        fetch = lambda index: default_collate([dataset[i] for i in index])  # noqa: E731
        builder = PipelineBuilder().add_source(batches).pipe(fetch, **stage)
    return builder.add_sink(2 * workers).build(num_threads=workers)


def import_peer(args):
    """Imports the peer's packages. Returns its version."""
    global torch
    # In the processes of all peers.
    os.environ["OMP_NUM_THREADS"] = "1"
    package = PACKAGES[args.peer]
    if args.peer == "spdl" and args.workers == 0:
        raise Absent("it has no mode without threads")
    if args.peer == "threads" and args.workers == 0:
        raise Absent("the same as slotline: there are no workers")
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if package == "torch":
        return torch.__version__.split("+")[0]
    try:
        __import__(package)
        return version(package)
    except ImportError as error:
        raise Absent(str(error)) from error


def timed_pass(running, size):
    running.settle()
    batches = samples = 0
    begin = time.perf_counter()
    for batch in running.batches():
        samples += size(batch)
        batches += 1
        del batch
    seconds = time.perf_counter() - begin
    running.end()
    return {"batches": batches, "seconds": seconds, "check": samples}


def main():
    args = protocol.arguments(list(PACKAGES))
    try:
        release = import_peer(args)
        dataset, checks, plan = workload(args)
        running = make(args, dataset, plan)
    except Absent as why:
        return protocol.reply({"absent": str(why)})
    size = len if args.peer == "calls" else checks.size
    if args.peer != "calls":
        protocol.check(running, checks, plan)
    protocol.serve(NAMES.get(args.peer, args.peer), release, lambda: timed_pass(running, size))
    running.quit()


if __name__ == "__main__":
    main()
