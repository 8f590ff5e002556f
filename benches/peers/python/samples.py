"""Datasets that the loaders read. Processes of Grain import this module, so it imports NumPy only.

The checksum of a batch is that of its numbers, labels or first tokens.
"""

import os
import time

import numpy as np

PERIOD = 251  # byte i of all images is i * 31 % 251, label j is j
CROP, CROPS = 1024, 16_000
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Numbers:
    """The dataset of empty-items and slow-samples. A sample is its index; in slow-samples it is returned after a sleep."""

    def __init__(self, count, sleeps):
        self.count, self.sleeps = count, sleeps

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.sleeps:
            time.sleep(0.050 if index % 16 == 0 else 0.001)
        return index

    def verify(self, batch, take):
        for number in batch:
            take(int(number))

    def check(self, batch):
        return batch


class Images:
    """The dataset of small-images, large-images and first-batch: images and labels in memory, as arrays or tensors."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    def verify(self, batch, take):
        images, labels = (np.asarray(part) for part in batch)
        rows = images.reshape(len(images), -1)
        pattern = np.resize(image_bytes(), rows.shape[1] + PERIOD)
        for row, label in zip(rows, labels, strict=True):
            take(int(label))
            first = int(label) * len(row) % PERIOD
            if not np.array_equal(row, pattern[first : first + len(row)]):
                raise ValueError(f"wrong bytes in image {label}")

    def check(self, batch):
        return batch[1]


class MappedImages(Images):
    """Images in a mapped file. Grain pickles a source for its worker processes, which map the same file again."""

    def __init__(self, path, shape):
        self.made_by = path, shape
        size = int(np.prod(shape))
        if not path.exists() or path.stat().st_size != size:
            np.resize(image_bytes(), size).tofile(path)
        super().__init__(np.memmap(path, np.uint8, "r", shape=shape).view(np.ndarray), np.arange(shape[0]))

    def __reduce__(self):
        return type(self), self.made_by


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

    def check(self, batch):
        return batch[0][:, 0]


class Pictures:
    """Pictures that are decoded and transformed, each always in the same way. A label is the number of a picture."""

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

    def check(self, batch):
        return batch[1]


class Counted:
    """A dataset whose checksum is the number of samples."""

    def __init__(self, dataset):
        self.dataset, self.verify = dataset, dataset.verify

    def __len__(self):
        return len(self.dataset)

    def check(self, batch):
        return len(batch if isinstance(self.dataset, Numbers) else batch[1])


def photos(data):
    """Returns 512 JPEG files of 16 classes, and makes them if they are missing. Each picture is in two files."""
    files = [data / "photos" / f"{number % 16:02}" / f"{number:03}.jpg" for number in range(512)]
    if not files[-1].exists():
        from PIL import Image

        for number, file in enumerate(files):
            file.parent.mkdir(parents=True, exist_ok=True)
            if number < 256:
                Image.fromarray(picture(number)).save(file, quality=90)
            else:
                os.link(files[number - 256], file)
    return files


def picture(number):
    """Returns a picture of about 500 x 375 with waves of several lengths, and edges."""
    height, width = 365 + number % 21, 490 + number % 23
    y, x = np.mgrid[:height, :width].astype(np.float32)
    planes = []
    for channel in range(3):
        waves = np.sin((x * (1 + number % 7) + y * channel) / 60) + np.sin((x + y * (1 + number % 5)) / (4 + channel))
        edges = ((x // 40 + y // 30 + number + channel) % 3) * 30
        planes.append(100 + 40 * waves + edges)
    return np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)


def image_bytes():
    return (np.arange(PERIOD) * 31 % PERIOD).astype(np.uint8)
