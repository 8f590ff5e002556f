"""Loaders for Python, as peers of the sections with data in memory and with files of pictures.

Use: loader.py --peer PEER --workload W --workers N --data DIR

    torch        torch.utils.data.DataLoader over __getitem__, with its default collation
    torch-bulk   the same over __getitems__, which gathers a whole batch at once
    grain        grain.MapDataset: reads, shuffles, batches; worker processes by mp_prefetch

and in the workloads of Python:

    slotline     slotline.torch.DataLoader
    threads      the same with worker_method="thread"
    any-worker   the same with round_robin=False
    unlifted     the same with lift=False
    torch-whole  torch with batch_size=None over a BatchSampler, so that a TensorDataset looks up whole batches
    torchdata    torchdata.stateful_dataloader.StatefulDataLoader
    spdl         spdl.pipeline with threads, whose stages make batches, or samples if these take long
    calls        the calls of __getitem__ alone, without a loader
    decoding     the same without a transform, so that files are read and decoded

In the workloads of Python, the checksum is the number of samples. For jpegs, torch decodes with torchvision if it is
installed and with Pillow otherwise, and Grain decodes with Pillow.
"""

import io
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

import loaders
import protocol
from protocol import Absent, Plan
from samples import CROP, DEVIATION, MEAN, Counted, Images, MappedImages, Numbers, Pictures, Tokens
from samples import image_bytes, photos

SMALL, LARGE = (60_000, 28, 28), (2_000, 3, 224, 224)
# The names of the peers in the report.
PEERS = {name: name for name in ("slotline", "torch", "torch-bulk", "torchdata", "spdl", "grain")} | {
    "threads": "slotline, threads",
    "any-worker": "slotline, round_robin=False",
    "torch-whole": "torch, whole batches",
    "unlifted": "slotline, lift=False",
    "calls": "bare calls",
    "decoding": "decoding alone",
}
# slotline's options by peer. Worker threads need no context that starts processes.
OPTIONS = {
    "threads": {"worker_method": "thread", "multiprocessing_context": None},
    "any-worker": {"round_robin": False},
    "unlifted": {"lift": False},
}


class BulkNumbers(Numbers):
    def __getitems__(self, indices):
        return torch.from_numpy(np.array(indices))


class BulkImages(Images):
    def __getitems__(self, indices):
        indices = torch.from_numpy(np.array(indices))  # the fastest way, together with index_select
        return self.images.index_select(0, indices), self.labels.index_select(0, indices)


class BulkTokens(Tokens):
    def __getitems__(self, indices):
        x, y = np.empty((2, len(indices), CROP), np.int64)
        for row, index in enumerate(indices):
            start = self.start(index)
            x[row] = self.tokens[start : start + CROP]
            y[row] = self.tokens[start + 1 : start + CROP + 1]
        return self.wrap(x), self.wrap(y)


def with_torchvision(file, crop=False):
    """Decodes a JPEG in memory, and resizes it to 224 × 224, or with `crop` to 256 on its short side and crops that."""
    import torch  # in processes of Grain, too
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2 import functional

    image = functional.resize(decode_jpeg(file, mode=ImageReadMode.RGB), [256] if crop else [224, 224], antialias=True)
    image = functional.center_crop(image, [224, 224]) if crop else image
    return functional.normalize(functional.to_dtype(image, torch.float32, scale=True), MEAN, DEVIATION)


def with_pillow(file):
    from PIL import Image

    image = Image.open(io.BytesIO(file)).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
    image = np.asarray(image, np.float32).transpose(2, 0, 1) / np.float32(255)
    mean, deviation = (np.array(three, np.float32)[:, None, None] for three in (MEAN, DEVIATION))
    return (image - mean) / deviation


def jpegs(args):
    files = [np.fromfile(path, np.uint8) for path in sorted((args.data / "jpeg").glob("*.jpg"))]
    if not files:
        raise Absent("no JPEGs in the data directory")
    if args.peer != "grain" and find_spec("torchvision"):
        return Pictures(files, lambda file: with_torchvision(torch.from_numpy(file)))
    if find_spec("PIL"):
        return Pictures(files, with_pillow)
    raise Absent("no package that decodes JPEGs is installed")


def file_with_torchvision(path):
    from torchvision.io import read_file

    return with_torchvision(read_file(path), crop=True)


def file_with_pillow(path):
    import torch  # in processes of Grain, too
    from PIL import Image

    with Image.open(path) as image:
        image = image.convert("RGB")
    scale = 256 / min(image.size)
    width, height = (round(side * scale) for side in image.size)
    left, top = (width - 224) // 2, (height - 224) // 2
    image = image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    pixels = pixels.to(torch.float32, memory_format=torch.contiguous_format)
    mean, deviation = (torch.tensor(three)[:, None, None] * 255 for three in (MEAN, DEVIATION))
    return pixels.sub_(mean).div_(deviation)


def jpeg_files(args):
    """Returns the dataset of python-jpegs, which decodes pictures in Python code."""
    if args.workload == "python-jpegs-torchvision":
        import torchvision  # noqa: F401
    decode = file_with_torchvision if args.workload == "python-jpegs-torchvision" else file_with_pillow
    return Pictures(list(map(str, photos(args.data))), decode)


def half(image):
    return image / 2


def torchvision_dataset(args, lifted):
    """Returns torchvision's dataset of a workload, or one in Python that opens files and applies torchvision's
    transforms. If ``lifted`` is set, these transforms are replaced by slotline's ``lift`` of them."""
    from PIL import Image
    from torchvision import datasets, transforms

    case = args.workload.removeprefix("python-torchvision-")
    crop = transforms.RandomCrop(32, 4) if case == "cifar" else transforms.RandomResizedCrop(224)
    steps = [crop, transforms.RandomHorizontalFlip()]
    steps += [transforms.RandAugment()] if case == "rand-augment" else []
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
    steps += [half] if case == "own-transform" else []
    transform = transforms.Compose(steps)
    if case == "cifar":
        dataset = datasets.CIFAR10.__new__(datasets.CIFAR10)  # its files would be downloaded
        dataset.data = np.resize(image_bytes(), (5_120, 32, 32, 3))
        dataset.targets = [label % 10 for label in range(5_120)]
        dataset.transform, dataset.target_transform = transform, None
        return dataset
    files = photos(args.data)
    if case != "own-dataset":
        # Without a transform, ImageFolder returns decoded pictures.
        return datasets.ImageFolder(args.data / "photos", None if args.peer == "decoding" else transform)
    if lifted:
        from slotline.torch import lift

        transform = lift(transform)

    def opened(file):
        with Image.open(file) as image:
            return transform(image)

    return Pictures(files, opened)


class LikeTorch:
    """Checks that batches are bit by bit those that torch's loader makes from the same seed."""

    def __init__(self, dataset, workers, plan):
        self.size = len(dataset)
        torch.manual_seed(0)
        batches = loaders.Torch(torch.utils.data.DataLoader, workers, dataset, plan).batches()
        self.expected = [self.bits(batch) for batch in batches]
        torch.manual_seed(0)

    def __len__(self):
        return self.size

    def bits(self, batch):
        return [hash(part.numpy().tobytes()) for part in batch]

    def verify(self, batch, take):
        first = take.count
        for _ in batch[1]:
            take(take.count)
        if self.bits(batch) != self.expected.pop(0):
            raise ValueError(f"the batch from sample {first} on is not torch's")


def images(args, shape, kind=Images, dtype=None):
    """Returns a dataset of images: in a mapped file for Grain, and in torch's tensors for other peers."""
    if args.peer == "grain":
        return MappedImages(args.data / f"images-{shape[0]}.u8", shape)
    pixels = torch.from_numpy(np.resize(image_bytes(), shape)).to(dtype or torch.uint8)
    return kind(pixels, torch.arange(shape[0]))


def workload(args):
    """Returns the dataset and the plan of a workload."""
    name, bulk, grain = args.workload, args.peer == "torch-bulk", args.peer == "grain"
    if name == "empty-items":
        return (BulkNumbers if bulk else Numbers)(2_000 if grain else 20_000, False), Plan(1)
    if name == "small-images":
        return images(args, SMALL, BulkImages if bulk else Images), Plan(64, shuffle=True, drop_last=True)
    if name in ("large-images", "first-batch"):
        plan = Plan(32, shuffle=True, first_batch=name == "first-batch")
        return images(args, LARGE, BulkImages if bulk else Images), plan
    if name == "token-crops":
        wrap = loaders.whole if grain else torch.from_numpy
        return (BulkTokens if bulk else Tokens)(args.data / "tokens.u16", wrap), Plan(16)
    if bulk:
        raise Absent("the same as torch: the workload has no bulk gather")
    if name == "jpegs":
        return jpegs(args), Plan(32)
    if not name.startswith("slow-samples-"):
        raise Absent("this peer does not support this workload")
    if grain and name.endswith("arrival"):
        raise Absent("grain always keeps the order")
    if grain and name.endswith("prefetch-16"):
        raise Absent("grain's read-ahead is only measured with its default")
    plan = Plan(int(name.split("-")[2]), in_order=not name.endswith("arrival"))
    plan.prefetch = 16 if name.endswith("prefetch-16") else None
    return Numbers(200, True), plan


def python_workload(args):
    """Returns, for a workload of Python, the dataset that the loader reads, the dataset that checks its batches, and the
    plan."""
    name = args.workload
    if name in ("python-empty-items", "python-slow-samples"):
        slow = name == "python-slow-samples"
        dataset = Numbers(200 if slow else 3_000, slow)
        return dataset, dataset, Plan(8 if slow else 1)
    if name.startswith("python-jpegs"):
        dataset = jpeg_files(args)
        return dataset, dataset, Plan(32, shuffle=True)
    if name.startswith("python-torchvision"):
        plan = Plan(128 if name.endswith("cifar") else 32, shuffle=True)
        dataset = torchvision_dataset(args, lifted=args.peer == "slotline")
        if args.peer in ("calls", "decoding"):
            return dataset, None, plan
        return dataset, LikeTorch(torchvision_dataset(args, lifted=False), args.workers, plan), plan
    shape = LARGE if "large" in name or "first" in name else SMALL
    plan = Plan(64 if shape == SMALL else 32, shuffle=True, first_batch=name.startswith("python-first-batch"))
    floats = name.endswith("floats")
    if args.peer == "grain" and floats:
        raise Absent("its processes read the bytes of a mapped file, as in python-large-images-bytes")
    rows = images(args, shape, dtype=torch.float32 if floats else None)
    if args.peer == "grain":
        return rows, rows, plan
    if name.startswith("python-indexed") or name == "python-first-batch-python":
        # In these workloads, labels are Python's integers.
        rows = Images(rows.images.numpy() if name.endswith("numpy") else rows.images, rows.labels.tolist())
        return rows, rows, plan
    return torch.utils.data.TensorDataset(rows.images, rows.labels), rows, plan


def python_loader(args, dataset, plan):
    """Returns the peer's loader for a workload of Python."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    peer, workers = args.peer, args.workers
    if peer == "slotline" or peer in OPTIONS:
        from slotline.torch import DataLoader as Ours

        return loaders.Torch(Ours, workers, dataset, plan, **OPTIONS.get(peer, {}))
    if peer == "torch-whole":
        if not isinstance(dataset, TensorDataset):
            raise Absent("only a TensorDataset can look up whole batches")
        sampler = BatchSampler(RandomSampler(dataset), plan.batch_size, plan.drop_last)
        return loaders.Torch(DataLoader, workers, dataset, plan, batch_size=None, shuffle=False, sampler=sampler)
    if peer == "torchdata":
        from torchdata.stateful_dataloader import StatefulDataLoader

        return loaders.Torch(StatefulDataLoader, workers, dataset, plan)
    if peer == "spdl":
        return loaders.Spdl(lambda: spdl_pipeline(args, dataset, plan), plan)
    if peer in ("calls", "decoding"):
        return loaders.Calls(dataset, plan)
    return plain_loader(args, dataset, plan)


def plain_loader(args, dataset, plan):
    if args.peer == "grain":
        return loaders.Grain(args.workers, dataset, plan)
    return loaders.Torch(torch.utils.data.DataLoader, args.workers, dataset, plan)


def spdl_pipeline(args, dataset, plan):
    """Returns a pipeline as SPDL's documentation recommends: threads, with functions that mostly release the GIL."""
    from torch.utils.data import TensorDataset, default_collate

    workers = args.workers
    order = (torch.randperm if plan.shuffle else torch.arange)(len(dataset))
    if args.workload.startswith(("python-jpegs", "python-slow-samples")):
        return loaders.spdl_of_samples(order.tolist(), dataset.__getitem__, workers, plan.batch_size)
    batches = order.split(plan.batch_size)
    if isinstance(dataset, TensorDataset):
        gather = lambda index: tuple(tensor.index_select(0, index) for tensor in dataset.tensors)  # noqa: E731
    else:
        batches = [batch.tolist() for batch in batches]
        gather = lambda index: default_collate([dataset[i] for i in index])  # noqa: E731
    return loaders.spdl_builder(batches, gather, workers).add_sink(2 * workers).build(num_threads=workers)


def make(args):
    global torch
    if args.peer == "spdl" and args.workers == 0:
        raise Absent("it has no mode without threads")
    if args.peer == "threads" and args.workers == 0:
        raise Absent("the same as slotline: there are no workers")
    is_python = args.workload.startswith("python-")
    packages = dict.fromkeys(OPTIONS, "slotline") | {"calls": "torch", "decoding": "torch"}
    package = packages.get(args.peer, args.peer.split("-")[0])
    __import__(package)
    release = version(package)
    # Grain's processes read arrays of NumPy, so the program does not import torch for them.
    if args.peer != "grain" or is_python:
        import torch

        torch_release = protocol.torch_release()
        release = torch_release if package == "torch" else release
    if not is_python:
        dataset, plan = workload(args)
        return release, plain_loader(args, dataset, plan), dataset, plan
    dataset, checks, plan = python_workload(args)
    loader = python_loader(args, dataset, plan)
    # Calls without a loader make lists of samples, whose checksum is their number, and which are not checked.
    is_bare = isinstance(loader, loaders.Calls)
    return (release, loader, loader, None) if is_bare else (release, loader, Counted(checks), plan)


if __name__ == "__main__":
    protocol.main(PEERS, make)
