"""PyTorch's DataLoader and Grain as peers of the loader comparison.

Use: loader.py --peer PEER --workload W --workers N --data DIR

    torch        torch.utils.data.DataLoader over __getitem__, with its default collation
    torch-bulk   the same over __getitems__, which gathers a whole batch at once
    grain        grain.MapDataset: reads, shuffles, batches; worker processes by mp_prefetch

The program runs a warm-up pass, in which it checks every byte, and prints a line {"ready": true, ...}. For each line
`pass` on stdin, it runs a timed pass and prints {"batches": ..., "seconds": ..., "check": ...}. It exits on `quit` or at
the end of its input. If the peer is not installed or does not support the workload, it prints {"absent": "why"}. For
wrong content, it prints a message on stderr and exits with code 1. It needs numpy and the packages of the peer. For jpegs,
torch decodes with torchvision if it is installed and with Pillow otherwise, and Grain decodes with Pillow.
"""

import io
import time
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

import loaders
import protocol
from protocol import Absent, Plan
from samples import Images, MappedImages, Numbers, image_bytes

CROP = 1024
CROPS = 16_000
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class BulkNumbers(Numbers):
    def __getitems__(self, indices):
        return torch.from_numpy(np.array(indices))


class BulkImages(Images):
    def __getitems__(self, indices):
        indices = torch.from_numpy(np.array(indices))  # the fastest way, together with index_select
        return self.images.index_select(0, indices), self.labels.index_select(0, indices)


class Tokens:
    """token-crops: crop k is the 1,025 tokens from splitmix64(k) % (tokens - 1,024) on; x drops the last one, y the first."""

    def __init__(self, path, wrap):
        self.made_by = path, wrap
        self.wrap = wrap  # converts a numpy array into an array of the peer
        self.tokens = np.memmap(path, np.uint16, "r").view(np.ndarray)

    def __reduce__(self):
        return type(self), self.made_by

    def __len__(self):
        return CROPS

    def start(self, k):
        word = 2**64 - 1
        k = (k + 0x9E3779B97F4A7C15) & word
        k = ((k ^ (k >> 30)) * 0xBF58476D1CE4E5B9) & word
        k = ((k ^ (k >> 27)) * 0x94D049BB133111EB) & word
        return (k ^ (k >> 31)) % (len(self.tokens) - CROP)

    def __getitem__(self, index):
        start = self.start(index)
        wide = self.wrap(self.tokens[start : start + CROP + 1].astype(np.int64))
        return wide[:-1], wide[1:]

    def verify(self, batch, take):
        for x, y in zip(*(np.asarray(part) for part in batch), strict=True):
            start = self.start(take.count)
            wanted = np.arange(start, start + CROP + 1) * 7919 % 50257
            if not (np.array_equal(x, wanted[:-1]) and np.array_equal(y, wanted[1:])):
                raise ValueError(f"wrong token in crop {take.count}")
            take(take.count)

    def checked(self, batch):
        return batch[0][:, 0]


class BulkTokens(Tokens):
    def __getitems__(self, indices):
        x, y = np.empty((2, len(indices), CROP), np.int64)
        for row, index in enumerate(indices):
            start = self.start(index)
            x[row] = self.tokens[start : start + CROP]
            y[row] = self.tokens[start + 1 : start + CROP + 1]
        return self.wrap(x), self.wrap(y)


class Jpegs:
    """jpegs: JPEGs in memory, decoded, resized to 224 x 224 and normalised, with their numbers as labels."""

    def __init__(self, files, decode):
        self.files, self.decode = files, decode

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.decode(self.files[index]), index

    def verify(self, batch, take):
        images, labels = (np.asarray(part) for part in batch)
        for image, label in zip(images, labels, strict=True):
            take(int(label))
            if image.shape != (3, 224, 224) or not np.array_equal(image, np.asarray(self[int(label)][0])):
                raise ValueError(f"wrong pixels in image {label}")

    def checked(self, batch):
        return batch[1]


def decode_with_torchvision(file):
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2 import functional

    image = decode_jpeg(torch.from_numpy(file), mode=ImageReadMode.RGB)
    image = functional.to_dtype(functional.resize(image, [224, 224], antialias=True), torch.float32, scale=True)
    return functional.normalize(image, MEAN, DEVIATION)


def decode_with_pillow(file):
    from PIL import Image

    image = Image.open(io.BytesIO(file)).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
    image = np.asarray(image, np.float32).transpose(2, 0, 1) / np.float32(255)
    mean, deviation = (np.array(three, np.float32)[:, None, None] for three in (MEAN, DEVIATION))
    return (image - mean) / deviation


def workload(args):
    """Returns the dataset and the plan of the workload for the peer."""
    name, bulk, tensors = args.workload, args.peer == "torch-bulk", args.peer != "grain"
    if bulk and name.startswith(("jpegs", "slow-samples")):
        raise Absent("the same as torch: the workload has no bulk gather")
    if name == "empty-items":
        return (BulkNumbers if bulk else Numbers)(20_000 if tensors else 2_000, False), Plan(1)
    if name in ("small-images", "large-images", "first-batch"):
        shape = (60_000, 28, 28) if name == "small-images" else (2_000, 3, 224, 224)
        plan = Plan(64 if name == "small-images" else 32, shuffle=True, drop_last=name == "small-images", first_batch=name == "first-batch")
        if not tensors:
            return MappedImages(args.data / f"images-{shape[0]}.u8", shape), plan
        images = torch.from_numpy(np.resize(image_bytes(), shape))
        return (BulkImages if bulk else Images)(images, torch.arange(shape[0])), plan
    if name == "token-crops":
        wrap = torch.from_numpy if tensors else loaders.whole
        return (BulkTokens if bulk else Tokens)(args.data / "tokens.u16", wrap), Plan(16)
    if name == "jpegs":
        return jpegs(args, tensors), Plan(32)
    if name in ("slow-samples-1", "slow-samples-8", "slow-samples-1-arrival", "slow-samples-8-arrival", "slow-samples-1-prefetch-16"):
        if name.endswith("arrival") and not tensors:
            raise Absent("grain always keeps the order")
        if name.endswith("16") and not tensors:
            raise Absent("grain's read-ahead is only measured with its default")
        prefetch = 16 if name.endswith("16") else None
        return Numbers(200, True), Plan(int(name[3]), in_order=not name.endswith("arrival"), prefetch=prefetch)
    raise Absent("this peer does not support this workload")


def jpegs(args, tensors):
    files = [np.fromfile(path, np.uint8) for path in sorted((args.data / "jpeg").glob("*.jpg"))]
    if not files:
        raise Absent("no JPEGs in the data directory")
    if tensors and find_spec("torchvision"):
        return Jpegs(files, decode_with_torchvision)
    if find_spec("PIL"):
        return Jpegs(files, decode_with_pillow)
    raise Absent("no package that decodes JPEGs is installed")


def import_peer(peer):
    """Imports the peer's packages. Returns its version."""
    global torch
    try:
        if peer == "grain":
            import grain  # noqa: F401

            return version("grain")
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        return torch.__version__.split("+")[0]
    except ImportError as error:
        raise Absent(str(error)) from error


def timed_pass(loader, dataset):
    loader.settle()
    count, total = 0, None
    begin = time.perf_counter()
    for batch in loader.batches():
        labels = dataset.checked(batch)
        if total is None:  # one sum for each row of a batch, which is cheaper than one sum per batch
            total = labels + 0
        else:
            total[: len(labels)] += labels
        count += 1
        del batch, labels
    seconds = time.perf_counter() - begin
    loader.end()
    return {"batches": count, "seconds": seconds, "check": int(total.sum())}


def main():
    args = protocol.arguments(["torch", "torch-bulk", "grain"])
    try:
        release = import_peer(args.peer)
        dataset, plan = workload(args)
    except Absent as why:
        return protocol.reply({"absent": str(why)})
    if args.peer == "grain":
        loader = loaders.Grain(args.workers, dataset, plan)
    else:
        loader = loaders.Torch(torch.utils.data.DataLoader, args.workers, dataset, plan)
    protocol.check(loader, dataset, plan)
    protocol.serve(args.peer, release, lambda: timed_pass(loader, dataset))
    loader.quit()


if __name__ == "__main__":
    main()
