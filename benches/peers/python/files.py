"""Python readers of files, as peers of the sections about files. make_files.py makes the files.

Use: files.py --peer PEER --workload W --workers N --data DIR

    torchvision     folders: torchvision.datasets.DatasetFolder in a DataLoader; a batch is a list of bytes
    spdl            folders: spdl.pipeline with 16 threads that read files
    webdataset      tars: shards in a random order, and a shuffle buffer of 1,000 samples
    webshart        tars: samples by index in a DataLoader, with the index that webshart made; tar-index: its indexer
    wids            tars: samples by index in a DataLoader
    litdata         bucket: StreamingDataset in its StreamingDataLoader, with an empty cache in each pass
    memmap          token-files: NumPy as in nanoGPT's get_batch, which maps the file for each batch
    memmap-once     the same, with one map for all batches
    megatron        token-files: GPTDataset in a DataLoader
    datasets        tables: Hugging Face's Dataset with NumPy's format, by lists of indices
    datasets-rows   the same without a format by __getitems__, which a DataLoader calls: dicts of Python's objects
    pyarrow         tables: Table.take, of a mapped Arrow file or of a Parquet table in memory; of the whole table: iter_batches with
                    NumPy's stack in order, and otherwise columns of read_table by torch's randperm
    polars          tables, the whole table: read_parquet, slices or gathered rows, as NumPy's arrays
    tensordataset   tables, the whole table shuffled: torch's TensorDataset of the columns, by lists of indices
    tarfile         tar-index: Python's tarfile

The checksum of a pass is the number of tokens in token-files, of rows in tables, of samples in tar-index, and otherwise
of bytes.
"""

import atexit
import itertools
import json
import os
import platform
import shutil
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import protocol
from protocol import Loader, Plan

BATCH, SAMPLES, OBJECTS = 64, 20_000, 4_000
BATCHES = 300  # in a pass of tables' numbers
WHOLE, LARGE = 1_000_000, 4_096  # the rows of tables' whole table, and of a batch of it
CROP, CROPS = 1_024, 500  # batches in a pass of token-files


class Reader(Loader):
    """A reader of files that also checks its batches. A pass has ``samples`` samples."""

    def __init__(self, samples, plan):
        self.samples, self.plan = samples, plan

    def __len__(self):
        return self.samples

    @staticmethod
    def tar(data):
        return sorted(map(str, (data / "tars").glob("*.tar")))


class Bytes(Reader):
    """A reader whose batches are lists of bytes, and which knows the contents of all samples."""

    def __init__(self, args, samples=SAMPLES):
        super().__init__(samples, Plan(BATCH, shuffle=True))
        self.block = memoryview((args.data / "block.u8").read_bytes())
        self.data, self.workers = args.data, args.workers

    def verify(self, batch, take):
        for sample in batch:
            sample = memoryview(sample)
            index, place = np.frombuffer(sample, "<u4", 2).tolist()
            take(index)
            if sample[8:] != self.block[place : place + len(sample) - 8]:
                raise ValueError(f"wrong bytes in sample {index}")

    def check(self, batch):
        return sum(map(len, batch))

    def read_by(self, dataset, **more):
        """Makes the DataLoader with which every pass reads."""
        more |= {"batch_size": BATCH, "shuffle": True, "num_workers": self.workers}
        self.loader = torch.utils.data.DataLoader(dataset, persistent_workers=self.workers > 0, **more)

    def batches(self):
        return self.loader


class Torchvision(Bytes):
    """Section folders: torchvision's DatasetFolder in a DataLoader."""

    def __init__(self, args):
        from torchvision.datasets import DatasetFolder

        super().__init__(args)
        read = lambda path: Path(path).read_bytes()  # noqa: E731
        self.read_by(DatasetFolder(str(self.data / "folder"), read, extensions=(".bin",)))

    def batches(self):
        return (samples for samples, _classes in self.loader)


class Spdl(Bytes):
    """Section folders: a pipeline of SPDL, whose threads are started in each pass."""

    THREADS = 16

    def __init__(self, args):
        super().__init__(args)
        self.files = sorted((args.data / "folder").glob("*/*.bin"))

    def batches(self):
        from spdl.pipeline import PipelineBuilder

        order = np.random.permutation(len(self.files)).tolist()
        builder = PipelineBuilder().add_source([self.files[index] for index in order])
        builder = builder.pipe(Path.read_bytes, concurrency=self.THREADS, output_order="input").aggregate(BATCH)
        pipeline = builder.add_sink(4).build(num_threads=self.THREADS)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()


class WebDataset(Bytes):
    """Section tars: webdataset, which splits the shards among the workers."""

    def __init__(self, args):
        import webdataset

        super().__init__(args)
        shards = self.tar(args.data)
        dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1_000).to_tuple("bin")
        dataset = dataset.batched(BATCH, collation_fn=None)
        workers = {"num_workers": args.workers, "persistent_workers": args.workers > 0}
        self.loader = webdataset.WebLoader(dataset, batch_size=None, **workers)

    def batches(self):
        return ([sample for (sample,) in batch] for batch in self.loader)


class Webshart(Bytes):
    """Section tars: samples by index, with the index that webshart made."""

    def __init__(self, args):
        super().__init__(args)
        self.read_by(Shards(args.data / "tars", index_of(args.data)), collate_fn=list)


class Wids(Bytes):
    """Section tars: samples by index. All shards stay open, since a random order reads all of them in turn."""

    def __init__(self, args):
        import wids

        super().__init__(args)
        shards = self.tar(args.data)
        shards = [{"url": path, "nsamples": SAMPLES // len(shards)} for path in shards]
        dataset = wids.ShardListDataset(shards, lru_size=len(shards), cache_size=1 << 62, keep=True, transformations=[])
        self.read_by(dataset, collate_fn=self.bytes_of)

    @staticmethod
    def bytes_of(samples):
        return [sample[".bin"].read() for sample in samples]


class Shards:
    def __init__(self, tars, index):
        self.tars, self.index, self.shards = tars, index, None

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        shard, sample = divmod(index, 1_000)
        if self.shards is None:  # in each worker
            import webshart

            dataset = webshart.discover_dataset(source=str(self.tars), metadata=str(self.index))
            self.shards = [dataset.open_shard(i) for i in range(dataset.num_shards)]
        return self.shards[shard].read_sample(sample)


def index_of(data):
    """Returns the folder of webshart's index, and makes the index if it does not exist."""
    folder = data / "webshart"
    if not folder.exists():
        extract(data, data / "new-webshart")
        (data / "new-webshart").rename(folder)
    return folder


def extract(data, to):
    import webshart

    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    webshart.MetadataExtractor().extract_metadata(source=str(data / "tars"), destination=str(to), max_workers=2)


class LitData(Bytes):
    """Section bucket: chunks of LitData, fetched into a cache on the disk that is empty when a pass begins."""

    def __init__(self, args):
        import litdata
        from litdata.streaming import downloader

        # The server is on loopback and speaks plain HTTP, which the library's object store refuses by default.
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
        super().__init__(args, OBJECTS)
        self.cache = tempfile.mkdtemp(dir=args.data)
        atexit.register(shutil.rmtree, self.cache, ignore_errors=True)
        self.litdata = litdata

    def drain(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        os.mkdir(self.cache)

    def batches(self):
        dataset = self.litdata.StreamingDataset("s3://bucket/litdata", cache_dir=self.cache, shuffle=True)
        return self.litdata.StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=self.workers, collate_fn=self.bytes_of
        )

    @staticmethod
    def bytes_of(samples):
        return [bytes(sample) for sample in samples]  # They are views, which cannot be sent to another process.


class Tokens(Reader):
    """Section token-files: x and y are 1,024 tokens each, as i64. y begins one token after x."""

    def __init__(self, consecutive):
        super().__init__(16 * CROPS, Plan(16))
        self.consecutive = consecutive

    def verify(self, batch, take):
        x, y = map(np.asarray, batch)
        if x.shape != (16, CROP) or not np.array_equal(x[:, 1:], y[:, :-1]):
            raise ValueError("y is not x shifted by one")
        if self.consecutive and not np.array_equal((x + 7_919) % 50_257, y):
            raise ValueError("wrong tokens")
        for _ in x:
            take(take.count)

    def check(self, batch):
        return batch[0].shape[0] * batch[0].shape[1]


class Memmap(Tokens):
    def __init__(self, args):
        super().__init__(consecutive=True)
        self.path, self.map = args.data / "tokens.bin", None
        if args.peer == "memmap-once":
            self.map = np.memmap(self.path, np.uint16, "r")

    def batches(self):
        for _ in range(CROPS):
            tokens = np.memmap(self.path, np.uint16, "r") if self.map is None else self.map
            places = torch.randint(len(tokens) - CROP, (16,))
            x = torch.stack([torch.from_numpy(tokens[i : i + CROP].astype(np.int64)) for i in places])
            y = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + CROP].astype(np.int64)) for i in places])
            yield x, y


class Megatron(Tokens):
    def __init__(self, args):
        super().__init__(consecutive=False)  # a sample may have the end of a document and the start of another
        import warnings
        from types import SimpleNamespace

        warnings.simplefilter("ignore")
        from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
        from megatron.core.datasets.indexed_dataset import IndexedDataset
        from megatron.core.datasets.utils import Split

        config = GPTDatasetConfig(
            random_seed=1,
            sequence_length=CROP,
            blend=None,
            split="1,0,0",
            tokenizer=SimpleNamespace(eod=0, vocab_size=50_257, unique_identifiers={}),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
            path_to_cache=None,
        )
        config.mock = True  # so that nothing is saved
        prefix = str(args.data / "tokens")
        indexed = IndexedDataset(prefix)
        documents = np.arange(len(indexed.document_indices) - 1, dtype=np.int32)
        self.dataset = GPTDataset(indexed, prefix, documents, None, Split.train, config)
        self.loader = torch.utils.data.DataLoader(self.dataset, batch_size=16, num_workers=args.workers)

    def batches(self):
        return ((batch["tokens"], batch["labels"]) for batch in itertools.islice(self.loader, CROPS))


class Rows(Reader):
    """Section tables: random rows of a table, which are read by their numbers, as an Arrow table or as dicts."""

    def __init__(self, args):
        import pyarrow
        import pyarrow.parquet

        _, kind, what = args.workload.split("-")
        path = args.data / f"{what}.{kind}"
        self.numbers = what == "numbers"
        if kind == "arrow":
            self.table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()
        else:
            self.table = pyarrow.parquet.read_table(path)
        super().__init__(len(self.table), Plan(BATCH, shuffle=True, limit=BATCH * BATCHES if self.numbers else None))
        self.get = self.open(args)
        self.block = (args.data / "block.u8").read_bytes()

    def open(self, args):
        if args.peer == "pyarrow":
            return self.table.take
        import datasets

        datasets.disable_progress_bars()
        dataset = datasets.Dataset(self.table)
        if args.peer == "datasets-rows":
            return lambda indices: dataset.__getitems__(indices.tolist())
        dataset = dataset.with_format("numpy")
        return lambda indices: dataset[indices.tolist()]

    def batches(self):
        order = np.random.permutation(len(self.table))[: self.plan.limit]
        return (self.get(order[first : first + BATCH]) for first in range(0, len(order), BATCH))

    def verify(self, batch, take):
        if isinstance(batch, list):
            batch = {name: [row[name] for row in batch] for name in batch[0]}
        if self.numbers:
            table = np.stack([np.asarray(batch[name]) for name in self.table.column_names], 1)
            if not np.array_equal(table, table[:, :1] + np.arange(table.shape[1])):
                raise ValueError("wrong numbers in a row")
            for first in table[:, 0].tolist():
                take(first // table.shape[1])
            return
        for sample in batch["data"]:
            sample = sample.as_py() if hasattr(sample, "as_py") else sample
            index, place = np.frombuffer(sample, "<u4", 2).tolist()
            take(index)
            if sample[8:] != self.block[place : place + len(sample) - 8]:
                raise ValueError(f"wrong bytes in row {index}")

    def check(self, batch):
        return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)


class Whole(Reader):
    """Section tables: all rows of a table, as a list of columns or as one array. A pass in order opens the file."""

    def __init__(self, args):
        self.path, self.peer = args.data / "whole.parquet", args.peer
        self.shuffled = args.workload.endswith("-shuffled")
        super().__init__(WHOLE, Plan(LARGE, shuffle=self.shuffled))
        threads = max(args.workers, 1)
        if args.peer == "polars":
            os.environ["POLARS_MAX_THREADS"] = str(threads)
        else:
            import pyarrow

            pyarrow.set_cpu_count(threads)
        self.rows = getattr(self, self.peer)
        self.opened = self.rows() if self.shuffled else None

    def pyarrow(self):
        import pyarrow.parquet

        if not self.shuffled:
            stacked = lambda rows: np.stack([column.to_numpy(zero_copy_only=False) for column in rows.columns], 1)
            return map(stacked, pyarrow.parquet.ParquetFile(self.path).iter_batches(LARGE))
        columns = [torch.from_numpy(column.to_numpy()) for column in pyarrow_table(self.path).columns]
        return lambda indices: [column[indices] for column in columns]

    def polars(self):
        import polars

        table = polars.read_parquet(self.path)
        arrays = lambda rows: [column.to_numpy() for column in rows.get_columns()]
        if not self.shuffled:
            return (arrays(table[first : first + LARGE]) for first in range(0, WHOLE, LARGE))
        return lambda indices: arrays(table[indices.numpy()])

    def tensordataset(self):
        columns = pyarrow_table(self.path).columns
        dataset = torch.utils.data.TensorDataset(*(torch.from_numpy(column.to_numpy()) for column in columns))
        return lambda indices: dataset[indices]

    def datasets(self):
        import datasets

        datasets.disable_progress_bars()
        dataset = datasets.Dataset(pyarrow_table(self.path)).with_format("numpy")
        get = lambda which: list(dataset[which].values())
        if not self.shuffled:
            return (get(slice(first, first + LARGE)) for first in range(0, WHOLE, LARGE))
        return lambda indices: get(indices.tolist())

    def batches(self):
        if not self.shuffled:
            return self.rows()
        order = torch.randperm(WHOLE)
        return (self.opened(order[first : first + LARGE]) for first in range(0, WHOLE, LARGE))

    def verify(self, batch, take):
        table = np.stack([np.asarray(column) for column in batch], 1) if isinstance(batch, list | tuple) else batch
        if table.shape[1] != 20 or not np.array_equal(table, table[:, :1] + np.arange(20)):
            raise ValueError("wrong numbers in a row")
        for first in table[:, 0].tolist():
            take(first // 20)

    def check(self, batch):
        return len(batch[0]) if isinstance(batch, list | tuple) else len(batch)


def pyarrow_table(path):
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path)


class Index(Reader):
    """Section tar-index: finds the samples in the tars."""

    def __init__(self, args):
        super().__init__(SAMPLES, Plan(1))
        self.data, self.peer = args.data, args.peer
        self.to = Path(tempfile.mkdtemp(dir=args.data))
        atexit.register(shutil.rmtree, self.to, ignore_errors=True)

    def batches(self):
        if self.peer == "webshart":
            extract(self.data, self.to)
            yield [len(json.loads(file.read_text())["files"]) for file in self.to.glob("*.json")]
            return
        found = []
        for path in self.tar(self.data):
            with tarfile.open(path) as tar:
                found += [(member.name, member.offset_data, member.size) for member in tar]
        yield [len(found)]

    def verify(self, batch, take):
        for number in range(sum(batch)):
            take(number)

    def check(self, batch):
        return sum(batch)


# The reader of each peer, its name in the report, and its package.
PEERS = {
    "torchvision": (Torchvision, "torchvision", "torchvision"),
    "spdl": (Spdl, "spdl", "spdl"),
    "webdataset": (WebDataset, "webdataset", "webdataset"),
    "webshart": (Webshart, "webshart", "webshart"),
    "wids": (Wids, "wids", "wids"),
    "litdata": (LitData, "litdata", "litdata"),
    "memmap": (Memmap, "NumPy's memmap", "numpy"),
    "memmap-once": (Memmap, "NumPy's memmap, once", "numpy"),
    "megatron": (Megatron, "Megatron's GPTDataset", "megatron-core"),
    "datasets": (Rows, "datasets", "datasets"),
    "datasets-rows": (Rows, "datasets, rows", "datasets"),
    "pyarrow": (Rows, "pyarrow", "pyarrow"),
    "polars": (Whole, "polars", "polars"),
    "tensordataset": (Whole, "TensorDataset", "torch"),
    "tarfile": (Index, "Python's tarfile", None),
}


def make(args):
    global torch
    kind, _, package = PEERS[args.peer]
    release = version(package) if package else platform.python_version()
    import torch

    protocol.torch_release()
    reader = {"tar-index": Index, "tables-whole-order": Whole, "tables-whole-shuffled": Whole}.get(args.workload, kind)(args)
    return release, reader, reader, reader.plan


if __name__ == "__main__":
    protocol.main({peer: name for peer, (_, name, _) in PEERS.items()}, make)
