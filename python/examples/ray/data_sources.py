"""slotline's sources in Ray Data: Ray's tasks read samples by index from files that slotline opens.

Ray distributes ranges or indices of samples; each task reads its samples. Ray then filters, joins
or writes them, on any number of machines, if all of them have the files or the files are in a
bucket. This works for all formats that slotline reads; here are three, each with a different way to
pass the dataset to a task.
"""

import io
import pathlib
import tarfile
import tempfile

import numpy as np
import ray

import slotline


def read_ranges(path):
    """Returns a function for tasks, which opens the files, and reads ranges of samples in
    batches."""

    def read(ranges):
        data = slotline.open(path)
        for start, stop in zip(ranges["start"], ranges["stop"], strict=True):
            first = start
            for batch in slotline.Loader(slotline.Subset(data, range(start, stop)), batch_size=100):
                rows = columns(batch)
                yield {"id": np.arange(first, first + len(rows["cls"])), **rows}
                first += len(rows["cls"])

    return read


class Reader:
    """A class for actors, which keep the files open and read samples in any order, such as a
    shuffled one."""

    def __init__(self, path):
        self.data = slotline.folder(path, extensions=[".pgm"])

    def __call__(self, rows):
        return {**rows, **columns(read_all(slotline.Subset(self.data, rows["id"])))}


def read_dataset(data):
    """Returns a function that contains the dataset. A dataset of files is pickled as its paths, so
    each task opens them itself."""
    return lambda rows: {**rows, **columns(read_all(slotline.Subset(data, rows["id"])))}


def read_all(data):
    """Returns all samples of a dataset as one batch."""
    [batch] = slotline.Loader(data, len(data), num_workers=1)
    return batch


def columns(batch):
    """Returns a batch for Ray. The bytes of files, a list of arrays of different lengths, become
    Arrow's binary values."""
    return {name: [file.tobytes() for file in field] if is_bytes(field) else field for name, field in batch.items()}


def is_bytes(field):
    return isinstance(field, list) and isinstance(field[0], np.ndarray) and field[0].dtype == np.uint8


def check(dataset, data, what):
    """Compares the rows of a Ray dataset, whose field `id` is the sample's index, with samples read
    in this process."""
    blocks = list(dataset.iter_batches(batch_size=None))
    order = np.concatenate([block.pop("id") for block in blocks])
    assert sorted(order) == list(range(len(data)))
    expected = columns(read_all(data))
    assert all(set(block) == set(expected) for block in blocks)
    for name, field in expected.items():
        rows = [row for block in blocks for row in block[name]]
        for index, row in zip(order, rows, strict=True):
            assert np.array_equal(row, field[index]), (name, index)
    print(f"{what}: {len(order)} rows in {len(blocks)} blocks are as slotline reads them here")


def write_tar(path, digits):
    """Writes samples in the format of WebDataset: the bytes of a picture, its class, and a text."""
    with tarfile.open(path, "w") as tar:
        for index, (image, label) in enumerate(zip(digits["image"], digits["label"], strict=True)):
            for extension, contents in (("pgm", pgm(image)), ("cls", b"%d" % label), ("txt", b"a written %d" % label)):
                member = tarfile.TarInfo(f"{index:04}.{extension}")
                member.size = len(contents)
                tar.addfile(member, io.BytesIO(contents))


def write_folder(path, digits):
    """Writes a folder with one folder of pictures for each class."""
    for index, (image, label) in enumerate(zip(digits["image"], digits["label"], strict=True)):
        file = path / str(label) / f"{index:04}.pgm"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pgm(image))


def pgm(image):
    """Returns a picture as a text file; the files have different lengths."""
    rows = (" ".join(map(str, row)) for row in image)
    return ("P2 8 8 16\n" + "\n".join(rows)).encode()


def main(folder):
    digits = read_all(slotline.digits())

    tar = str(folder / "digits.tar")
    write_tar(tar, digits)
    data = slotline.open(tar)
    ranges = [{"start": start, "stop": min(start + 450, len(data))} for start in range(0, len(data), 450)]
    tasks = ray.data.from_items(ranges, override_num_blocks=len(ranges)).map_batches(read_ranges(tar), batch_size=1)
    check(tasks, data, "a tar, by ranges in tasks")

    pictures = str(folder / "pictures")
    write_folder(folder / "pictures", digits)
    data = slotline.folder(pictures, extensions=[".pgm"])
    numbers = ray.data.range(len(data), override_num_blocks=4).random_shuffle(seed=1)
    # Each actor occupies a core, and Ray's own tasks need one, too.
    one = ray.data.ActorPoolStrategy(size=1)
    actors = numbers.map_batches(Reader, fn_constructor_args=[pictures], compute=one, batch_size=200)
    check(actors, data, "a folder, shuffled, by an actor")

    np.save(folder / "images.npy", digits["image"])
    np.save(folder / "labels.npy", digits["label"])
    data = slotline.from_npy(image=folder / "images.npy", label=folder / "labels.npy", mmap=True)
    check(ray.data.range(len(data)).map_batches(read_dataset(data)), data, "memory-mapped arrays, by a dataset in tasks")


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as folder:
        main(pathlib.Path(folder))
    ray.shutdown()
