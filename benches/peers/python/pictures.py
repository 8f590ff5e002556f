"""Loaders that transform pictures as in training: peers of jpeg-crops, pngs, rand-augment and python-torchvision.

Use: pictures.py --peer PEER --workload W --workers N --data DIR

    torch        torch.utils.data.DataLoader, torchvision's decode_image and transforms.v2 of tensors
    pillow       the same with PIL's decoder and transforms.v2 of its pictures
    spdl         spdl.pipeline with threads, and the functions of torch
    dali         NVIDIA DALI on the CPU, whose threads decode the drawn part only
    ffcv         FFCV, from its own file of the same JPEGs (crops only)

The pictures are DIR/W/*, or in python-torchvision those of samples.photos, and their labels are their numbers. All of
them are in memory. The program runs a pass in which it checks shapes, types and ranges and that there is each label once;
the pixels cannot be compared, as each peer draws its own crops. The checksum is that of the labels, or in
python-torchvision the number of samples.
"""

import io
import itertools
import os
from importlib.metadata import version

import numpy as np

import loaders
import protocol
from protocol import Absent, Loader, Plan
from samples import DEVIATION, MEAN, Counted, Pictures, photos

BATCH, SIDE = 32, 224


class Drawn(Pictures):
    """Pictures in memory with random transforms."""

    def verify(self, batch, take):
        check(batch, take)

    def check(self, batch):
        return int(batch[1].sum())


def check(batch, take):
    """Checks shape, type and range of a batch (the pixels cannot be known), and calls ``take`` with each label."""
    images, labels = (np.asarray(part) for part in batch)
    if images.shape != (len(labels), 3, SIDE, SIDE) or images.dtype != np.float32:
        raise ValueError(f"a batch of {images.shape} and {images.dtype} for {len(labels)} labels")
    # Bytes from 0 to 255, normalised.
    least, most = np.array(MEAN) / -np.array(DEVIATION) - 0.01, (1 - np.array(MEAN)) / np.array(DEVIATION) + 0.01
    if (images.min((0, 2, 3)) < least).any() or (images.max((0, 2, 3)) > most).any() or images.std() < 0.1:
        raise ValueError("wrong pixels")
    for label in labels.ravel():
        take(int(label))


def transforms(workload, tensors):
    """Returns torchvision's transforms of a workload, for tensors or for PIL's pictures."""
    from torchvision.transforms import v2

    size = [SIDE, SIDE]
    if workload == "pngs":
        steps = [v2.Resize(size, antialias=True)]
    else:
        steps = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
    if workload == "rand-augment":
        steps.append(v2.RandAugment(num_ops=2, magnitude=9))
    if not tensors:
        steps.append(v2.PILToTensor())
    return v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])


def with_torchvision(workload):
    from torchvision.io import ImageReadMode, decode_jpeg, decode_png

    decode, steps = decode_png if workload == "pngs" else decode_jpeg, transforms(workload, True)
    return lambda file: steps(decode(torch.from_numpy(file), mode=ImageReadMode.RGB))


def with_pillow(workload):
    from PIL import Image

    steps = transforms(workload, False)
    return lambda file: steps(Image.open(io.BytesIO(file)).convert("RGB"))


class Dali(Loader):
    """A pipeline of DALI, whose threads persist. It gets the files of each batch from ``batch``."""

    def __init__(self, dataset, workload, workers):
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.auto_aug import rand_augment

        self.files, self.next = dataset.files, 0
        pixels = {"dtype": types.FLOAT, "output_layout": "CHW"}
        pixels |= {"mean": [255 * mean for mean in MEAN], "std": [255 * deviation for deviation in DEVIATION]}

        @pipeline_def(
            batch_size=BATCH, num_threads=workers, device_id=None, enable_conditionals=True, prefetch_queue_depth=2
        )
        def pipeline():
            files, labels = fn.external_source(self.batch, num_outputs=2, dtype=[types.UINT8, types.INT64], ndim=[1, 1])
            size = {"resize_x": SIDE, "resize_y": SIDE, "interp_type": types.INTERP_LINEAR, "antialias": True}
            if workload == "pngs":
                return fn.crop_mirror_normalize(fn.resize(fn.decoders.image(files), **size), **pixels), labels
            images = fn.decoders.image_random_crop(files, random_area=[0.08, 1], random_aspect_ratio=[3 / 4, 4 / 3])
            images = fn.resize(images, **size)
            if workload == "rand-augment":
                images = rand_augment.rand_augment(fn.flip(images, horizontal=fn.random.coin_flip()), n=2, m=9)
                return fn.crop_mirror_normalize(images, **pixels), labels
            return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), **pixels), labels

        self.pipeline = pipeline()
        self.pipeline.build()

    def batch(self):
        # The number of files is a multiple of BATCH, so every pass begins with the first file.
        first = self.next % len(self.files)
        self.next += BATCH
        rows = range(first, first + BATCH)
        return [self.files[row] for row in rows], [np.array([row]) for row in rows]

    def drain(self):
        for _ in range(len(self.files) // BATCH):
            self.pipeline.run()

    def batches(self):
        for _ in range(len(self.files) // BATCH):
            images, labels = self.pipeline.run()
            yield torch.from_numpy(images.as_array()), torch.from_numpy(labels.as_array()).squeeze(1)


class Ffcv(Loader):
    """FFCV's loader, which starts new threads in each pass."""

    def __init__(self, dataset, folder, workers):
        from ffcv.fields import IntField, RGBImageField
        from ffcv.fields.basics import IntDecoder
        from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
        from ffcv.writer import DatasetWriter
        from PIL import Image

        file = folder / f"{os.getpid()}.beton"  # opened in each pass
        # As in FFCV's own scripts: the JPEGs are encoded again, with a quality of 90.
        fields = {"image": RGBImageField("jpg", jpeg_quality=90), "label": IntField()}
        pictures = [np.array(Image.open(io.BytesIO(jpeg)).convert("RGB")) for jpeg in dataset.files]
        DatasetWriter(str(file), fields, num_workers=1).from_indexed_dataset(list(zip(pictures, itertools.count())))
        pixels = np.array([255 * mean for mean in MEAN]), np.array([255 * deviation for deviation in DEVIATION])
        image = [RandomResizedCropRGBImageDecoder((SIDE, SIDE)), RandomHorizontalFlip()]
        image += [NormalizeImage(*pixels, np.float32), ToTensor(), ToTorchImage()]
        pipelines = {"image": image, "label": [IntDecoder(), ToTensor(), Squeeze(1)]}
        self.loader = Loader(
            str(file), BATCH, num_workers=workers, os_cache=True, order=OrderOption.SEQUENTIAL, pipelines=pipelines
        )

    def batches(self):
        return iter(self.loader)


def make(args):
    global torch
    workload, workers, peer = args.workload, args.workers, args.peer
    if workers == 0 and peer in ("spdl", "dali", "ffcv"):
        raise Absent("it has no mode without threads")
    import torch

    torch_release = protocol.torch_release()
    is_python = workload.startswith("python-")
    paths = photos(args.data) if is_python else sorted((args.data / workload).iterdir())
    files = [np.fromfile(path, np.uint8) for path in paths]
    dataset, plan = Drawn(files, None), Plan(BATCH)
    checks = Counted(dataset) if is_python else dataset
    if peer == "dali":
        return version("nvidia-dali-cuda120"), Dali(dataset, workload, workers), checks, plan
    if peer == "ffcv":
        return version("ffcv"), Ffcv(dataset, args.data, workers), checks, plan
    dataset.decode = (with_pillow if peer == "pillow" else with_torchvision)(workload)
    if peer == "spdl":
        pipeline = lambda: loaders.spdl_of_samples(range(len(files)), dataset.__getitem__, workers, BATCH)  # noqa: E731
        return version("spdl"), loaders.Spdl(pipeline, plan), checks, plan
    release = version("pillow") if peer == "pillow" else torch_release
    return release, loaders.Torch(torch.utils.data.DataLoader, workers, dataset, plan), checks, plan


if __name__ == "__main__":
    peers = {"torch": "torch", "pillow": "torch, Pillow", "spdl": "spdl", "dali": "dali", "ffcv": "ffcv"}
    protocol.main(peers, make)
