"""Datasets that both programs read. Processes of Grain import this module, so it imports NumPy only."""

import time

import numpy as np

PERIOD = 251  # byte i of all images is i * 31 % 251, label j is j


class Numbers:
    """empty-items and slow-samples: the sample is its index, after a sleep in slow-samples."""

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

    def checked(self, batch):
        return batch


class Images:
    """small-images, large-images and first-batch: images and labels in memory, as numpy arrays or as tensors."""

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

    def checked(self, batch):
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


def image_bytes():
    return (np.arange(PERIOD) * 31 % PERIOD).astype(np.uint8)
