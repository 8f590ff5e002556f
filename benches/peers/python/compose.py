"""Datasets composed in Python, slotline's own datasets in a DataLoader, and lists of records.

Use: compose.py --peer PEER --workload W --workers N --data DIR

python-mixture: three sources of documents, mixed 5 : 3 : 2, packed into rows of 2,048 tokens with positions, in batches of 8

    slotline     slotline.mix(...).pack(...) in a slotline.Loader
    grain        MapDataset.mix and FirstFitPackIterDataset, in worker processes by mp_prefetch
    torchdata    torchdata.nodes: MultiNodeWeightedSampler, a generator of Python that packs, Prefetcher

python-datasets: a dataset of slotline that torch's samplers shuffle

    slotline     slotline.torch.DataLoader
    loader       slotline.Loader
    torch        torch.utils.data.DataLoader, which reads the same dataset sample by sample

python-records: 300,000 dicts, shuffled, in batches of 256

    slotline     slotline.torch.DataLoader over slotline.freeze of the list
    list         the same over the list
    torch        torch.utils.data.DataLoader over the list
    torch-frozen the same over slotline.freeze of the list

The checksum is the number of samples.
"""

import itertools
from importlib.metadata import version

import numpy as np

import loaders
import protocol
from protocol import Absent, Loader, Plan
from samples import Counted, Images, image_bytes, photos

LENGTH, ROWS, BATCHES = 2_048, 8, 200  # of python-mixture: tokens of a row, rows of a batch, batches of a pass
WEIGHTS = [5, 3, 2]
DOCUMENTS = 4_000  # of each source
RECORDS = 300_000
PEERS = {
    "slotline": "slotline",
    "loader": "slotline.Loader",
    "list": "slotline, list",
    "torch": "torch",
    "torch-frozen": "torch, frozen",
    "grain": "grain",
    "torchdata": "torchdata",
}


class Documents:
    """A source of documents in a mapped file. The tokens of document i are i, i + 1, i + 2, …, modulo 65,536."""

    def __init__(self, path, number):
        self.made_by = path, number
        file = path / f"documents-{number}.i32"
        lengths = np.random.default_rng(number).lognormal(6, 1, DOCUMENTS).clip(16, LENGTH).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        if not file.exists() or file.stat().st_size != 4 * self.starts[-1]:
            tokens = [np.arange(i, i + length) % 65_536 for i, length in enumerate(lengths)]
            np.concatenate(tokens).astype(np.int32).tofile(file)
        self.tokens = np.memmap(file, np.int32, "r").view(np.ndarray)

    def __reduce__(self):  # Grain's processes map the file again
        return type(self), self.made_by

    def __len__(self):
        return DOCUMENTS

    def __getitem__(self, index):
        return {"tokens": self.tokens[self.starts[index] : self.starts[index + 1]]}

    def arrow(self):
        """Returns the path of the same documents as an Arrow file."""
        import pyarrow

        path = self.made_by[0] / f"documents-{self.made_by[1]}.arrow"
        if not path.exists():
            table = pyarrow.table({"tokens": pyarrow.ListArray.from_arrays(self.starts.astype(np.int32), self.tokens)})
            with pyarrow.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
        return str(path)


class PackedRows:
    """Checks rows of packed documents: a batch is its tokens and the positions of these in their documents."""

    def __len__(self):
        return BATCHES * ROWS

    def verify(self, batch, take):
        tokens, positions = (np.asarray(part) for part in batch)
        if tokens.shape != (ROWS, LENGTH) or positions.shape != (ROWS, LENGTH):
            raise ValueError(f"rows of {tokens.shape} and {positions.shape}")
        if (positions > 0).mean() < 0.8:
            raise ValueError("rows with more than a fifth of padding")
        # Within a document, both count up; padding has position 0.
        inside = positions[:, 1:] > 0
        steps = (positions[:, 1:] - positions[:, :-1] == 1) & ((tokens[:, 1:] - tokens[:, :-1]) % 65_536 == 1)
        if not steps[inside].all():
            raise ValueError("a row whose documents are not whole")
        for _ in tokens:
            take(take.count)

    def check(self, batch):
        return len(batch[0])


class Endless(Loader):
    """A pipeline that never ends. A pass is the next batches of it."""

    def __init__(self, pipeline, ahead):
        self.running, self.ahead = iter(pipeline), ahead

    def drain(self):
        for _ in itertools.islice(self.running, self.ahead):
            pass

    def batches(self):
        return itertools.islice(self.running, BATCHES)


class Passes(Loader):
    """A slotline.Loader. A pass has at most ``limit`` batches. ``fields`` are those that a batch is made of."""

    def __init__(self, loader, fields, limit=None):
        self.loader, self.fields, self.limit = loader, fields, limit

    def batches(self):
        self.running = iter(self.loader)
        for batch in itertools.islice(self.running, self.limit):
            yield tuple(batch[field] for field in self.fields)

    def end(self):
        self.running = None


def pack(documents):
    """Packs documents into rows, each in the first of 64 rows that has room, and shuffles the 64 rows, as Grain does."""
    random = np.random.default_rng(0)

    def empty():
        return np.zeros((64, LENGTH), np.int32), np.zeros((64, LENGTH), np.int32), [0] * 64

    tokens, positions, used = empty()
    for document in documents:
        document = document["tokens"]
        row = next((row for row in range(64) if used[row] + len(document) <= LENGTH), None)
        if row is None:
            order = random.permutation(64)
            yield from zip(tokens[order], positions[order])
            tokens, positions, used = empty()
            row = 0
        part = slice(used[row], used[row] + len(document))
        tokens[row, part], positions[row, part] = document, np.arange(len(document))
        used[row] += len(document)


def mixture(args):
    sources = [Documents(args.data, number) for number in range(len(WEIGHTS))]
    workers = args.workers
    if args.peer == "slotline":
        import slotline

        mixed = slotline.mix([slotline.open(source.arrow()) for source in sources], WEIGHTS, stop=2 * DOCUMENTS)
        rows = mixed.pack(LENGTH)
        loader = slotline.Loader(rows, ROWS, shuffle=True, seed=0, num_workers=workers, drop_last=True)
        return Passes(loader, ("tokens", "position_ids"), BATCHES)
    if workers == 0:
        raise Absent("measured with workers")
    if args.peer == "grain":
        import grain

        shuffled = [grain.MapDataset.source(source).shuffle(seed=0).repeat() for source in sources]
        mixed = grain.MapDataset.mix(shuffled, [weight / sum(WEIGHTS) for weight in WEIGHTS])
        rows = grain.experimental.FirstFitPackIterDataset(
            mixed.to_iter_dataset(grain.ReadOptions(num_threads=0)),
            length_struct={"tokens": LENGTH},
            num_packing_bins=64,
        )
        batches = rows.map(lambda row: (row["tokens"], row["tokens_positions"])).batch(ROWS)
        return GrainMixture(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)), 4 * workers)
    import torch
    from torchdata import nodes

    named = {
        str(number): nodes.SamplerWrapper(torch.utils.data.RandomSampler(source)) for number, source in enumerate(sources)
    }
    named = {name: nodes.Mapper(node, sources[int(name)].__getitem__) for name, node in named.items()}
    weights = {str(number): float(weight) for number, weight in enumerate(WEIGHTS)}
    mixed = nodes.MultiNodeWeightedSampler(named, weights)

    def rows():
        while True:
            mixed.reset()
            yield from pack(iter(mixed))

    batches = nodes.Batcher(nodes.IterableWrapper(rows()), ROWS)
    stacked = nodes.ParallelMapper(batches, stack, num_workers=workers, method="thread")
    return Endless(nodes.Prefetcher(stacked, prefetch_factor=2 * workers), 4 * workers)


class GrainMixture(Endless):
    quit = loaders.Grain.quit


def stack(rows):
    import torch

    return tuple(torch.from_numpy(np.stack(parts)) for parts in zip(*rows))


def dataset_of_files(args):
    """Returns a dataset of slotline, its fields, the dataset that checks batches, and the plan."""
    import slotline

    if args.workload.endswith("rows"):
        shape = (60_000, 784)
        images, labels = np.resize(image_bytes(), shape), np.arange(shape[0])
        return slotline.Arrays(image=images, label=labels), ("image", "label"), Images(images, labels), Plan(64, True)
    photos(args.data)
    image = "random_resized_crop(224), hflip, normalize(imagenet)"
    dataset = slotline.folder(str(args.data / "photos"), image=image)
    return dataset, ("data", "label"), Cropped(len(dataset)), Plan(32, True)


class Cropped:
    """Checks batches of random crops, whose pixels cannot be known."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def verify(self, batch, take):
        images, labels = (np.asarray(part) for part in batch)
        if images.shape[1:] != (3, 224, 224) or images.dtype != np.float32 or images.std() < 0.1:
            raise ValueError("wrong pixels")
        for _ in labels:
            take(take.count)


class Fields(loaders.Torch):
    """A DataLoader whose batches are dicts."""

    def __init__(self, fields, *args):
        super().__init__(*args)
        self.fields = fields

    def batches(self):
        return (tuple(batch[field] for field in self.fields) for batch in super().batches())


def record(number):
    box = [float(number % 97), float(number % 89), 32.0, 48.0]
    return {"path": f"images/{number:07}.jpg", "caption": f"Picture number {number}", "label": number % 10, "box": box}


class Records:
    """A dataset of records. A batch is the list of paths and the labels."""

    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]

    def verify(self, batch, take):
        paths, labels = batch
        for path, label in zip(paths, labels.tolist(), strict=True):
            number = int(path[7:14])
            take(number)
            if label != record(number)["label"]:
                raise ValueError(f"wrong label in record {number}")

    def check(self, batch):
        return len(batch[0])


def records(args):
    rows = [record(number) for number in range(RECORDS)]
    if args.peer in ("slotline", "torch-frozen"):
        import slotline

        rows = slotline.freeze(rows)
    return Records(rows), ("path", "label"), Plan(256, True)


def make(args):
    package = {"loader": "slotline", "list": "slotline"}.get(args.peer, args.peer.split("-")[0])
    __import__(package)
    release = version(package)
    if args.peer != "grain":
        torch_release = protocol.torch_release()
        release = torch_release if package == "torch" else release
    if args.workload == "python-mixture":
        return release, mixture(args), PackedRows(), Plan(ROWS, drop_last=True)
    if args.workload == "python-records":
        dataset, fields, plan = records(args)
        checks = dataset
    else:
        dataset, fields, checks, plan = dataset_of_files(args)
        checks = Counted(checks)
    if args.peer == "loader":
        import slotline

        loader = slotline.Loader(dataset, plan.batch_size, shuffle=True, num_workers=args.workers, output="torch")
        return release, Passes(loader, fields), checks, plan
    if package == "slotline":
        from slotline.torch import DataLoader
    else:
        from torch.utils.data import DataLoader
    return release, Fields(fields, DataLoader, args.workers, dataset, plan), checks, plan


if __name__ == "__main__":
    protocol.main(PEERS, make)
