"""Random loaders behave like torch's: the same batches, errors, warnings and random numbers,
whatever the options are.

Each case is generated from a seed: a dataset, options, and a program of some passes, which are
abandoned early, or during which the process forks, keeps batches, or writes to them. It runs with
torch's loader and with ours, and then again with loaders that stop and resume. ``seeds`` generates
the cases. All together take half a minute on two idle cores.
"""

import collections
import copy
import json
import os
import random
import signal
import subprocess
import warnings
from collections.abc import Mapping

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from datasets import Counts, Samples
from helpers import in_child
from seeds import SECONDS, SEED, cases

from slotline.torch import DataLoader

# The number of cases in each test.
PART = 30

Pair = collections.namedtuple("Pair", "first second")


class Sub(torch.Tensor):
    pass


class Own(dict):
    pass


class Bad(Exception):
    pass


# ---- Samples: functions of an index.

DTYPES = [
    torch.float32, torch.float32, torch.int64, torch.uint8, torch.bool, torch.float64, torch.bfloat16, torch.complex64, torch.float16,
]  # fmt: skip
SHAPES = [(), (3,), (2, 3), (1,), (0,), (4, 3, 2), (2, 0, 3), (40, 50)]
ARRAYS = ["f4", "f4", "f8", "i8", "i4", "i2", "u1", "?", "f2", "u2", "c8", ">i4", "U3", "M8[s]", "O"]


def some_tensor(rng):
    dtype, shape = rng.choice(DTYPES), rng.choice(SHAPES)
    layout = rng.choice(["plain", "plain", "transposed", "strided", "expanded", "subclass"])
    count = int(np.prod(shape))

    def tensor(i):
        x = (torch.arange(count) + 3 * i).reshape(shape).to(dtype)
        if layout == "transposed" and x.dim() >= 2:
            return x.mT.contiguous().mT
        if layout == "strided":
            return torch.stack([x, x], -1)[..., 1]
        if layout == "expanded" and x.dim() >= 1:
            return x[:1].expand(shape) if shape[0] else x
        if layout == "subclass":
            return x.as_subclass(Sub)
        return x

    return f"tensor {dtype} {shape} {layout}", tensor


def some_array(rng):
    dtype, shape, fortran = rng.choice(ARRAYS), rng.choice(SHAPES), rng.random() < 0.3
    count = int(np.prod(shape))

    def array(i):
        x = (np.arange(count) + 3 * i).reshape(shape).astype(dtype)
        return np.asfortranarray(x) if fortran else x

    return f"array {dtype} {shape} {fortran}", array


def some_leaf(rng):
    plain = {
        "int": lambda i: i - 2,
        "float": lambda i: i / 3 if i else float("nan"),
        "bool": lambda i: i % 3 == 0,
        "text": lambda i: f"sample {i} \u20ac",
        "bytes": lambda i: bytes([i % 256]) * i,
        "number of NumPy": lambda i: np.float32(i / 7),
        "integer of NumPy": lambda i: np.int16(i),
        "truth of NumPy": lambda i: np.bool_(i % 2),
        "great int": lambda i: 2**62 + 2 ** (i % 70),
        "int or float": lambda i: i if i % 5 else i / 2,
        "nothing": lambda i: None,
        "complex": lambda i: complex(i, 1),
        "an object": lambda i: slice(i, i + 1),
    }
    kind = rng.choices(["tensor", "array", "plain"], [4, 3, 4])[0]
    if kind == "tensor":
        return some_tensor(rng)
    if kind == "array":
        return some_array(rng)
    name = rng.choices(list(plain), [5, 4, 2, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1])[0]
    return name, plain[name]


def some_sample(rng, depth=0):
    """Returns a description of a random sample, and a function from an index to that sample."""
    kind = rng.choices(["leaf", "tuple", "list", "dict", "own", "pair", "ordered", "default", "user"], [9 if depth else 3, 4, 2, 4, 1, 1, 1, 1, 1])[0]
    if kind == "leaf" or depth > 2:
        return some_leaf(rng)
    parts = [some_sample(rng, depth + 1) for _ in range(2 if kind == "pair" else rng.choice([0, 1, 1, 2, 3]))]
    names = ", ".join(name for name, _ in parts)
    make = [make for _, make in parts]
    builders = {
        "tuple": lambda i: tuple(part(i) for part in make),
        "list": lambda i: [part(i) for part in make],
        "pair": lambda i: Pair(*(part(i) for part in make)),
        "dict": lambda i: {f"k{k}": part(i) for k, part in enumerate(make)},
        "own": lambda i: Own((k, part(i)) for k, part in enumerate(make)),
        "ordered": lambda i: collections.OrderedDict((f"k{k}", part(i)) for k, part in enumerate(make)),
        "default": lambda i: collections.defaultdict(list, ((k, part(i)) for k, part in enumerate(make))),
        "user": lambda i: collections.UserDict((k, part(i)) for k, part in enumerate(make)),
    }
    return f"{kind}({names})", builders[kind]


# ---- Datasets.


class Map(tud.Dataset):
    def __init__(self, length, sample, bad, odd, other):
        self.length, self.sample, self.bad, self.odd, self.other = length, sample, bad, odd, other

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        i = int(i)
        if not 0 <= i < self.length:
            raise IndexError(f"no sample {i}")
        if i in self.bad:
            raise self.bad[i](f"bad {i}")
        return (self.other if i in self.odd else self.sample)(i)


class Many(Map):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


class ManyTensors(Map):
    """A dataset whose ``__getitems__`` returns a tensor instead of a list, so its batches are
    collated like a tensor."""

    def __getitems__(self, indices):
        return torch.as_tensor([int(i) for i in indices])


class Noisy(Map):
    def __getitem__(self, i):
        return super().__getitem__(i), torch.rand(2), np.random.rand(), random.random()


class Counting(Map):
    """A dataset whose samples contain their worker's number, and how many samples it has made."""

    calls = 0

    def __getitem__(self, i):
        self.calls += 1
        info = tud.get_worker_info()
        return super().__getitem__(i), self.calls, (-1, -1, -1) if info is None else (info.id, info.num_workers, info.seed)


class Stream(tud.IterableDataset):
    def __init__(self, lengths, sample, bad, noisy):
        self.lengths, self.sample, self.bad, self.noisy = lengths, sample, bad, noisy

    def part(self):
        info = tud.get_worker_info()
        return 0 if info is None else info.id

    def at(self, worker, k):
        if k in self.bad:
            raise self.bad[k](f"bad {k}")
        return (100 * worker + k, self.sample(k), torch.rand(1) if self.noisy else 0)

    def __iter__(self):
        worker = self.part()
        return (self.at(worker, k) for k in range(self.lengths[worker]))


class SizedStream(Stream):
    def __len__(self):
        return self.lengths[0]


class Walk:
    """An iterator that continues after an error."""

    def __init__(self, stream):
        self.stream, self.worker, self.k = stream, stream.part(), 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.k >= self.stream.lengths[self.worker]:
            raise StopIteration
        self.k += 1
        return self.stream.at(self.worker, self.k - 1)


class WalkedStream(Stream):
    def __iter__(self):
        return Walk(self)


class StatefulWalk(Walk):
    def state_dict(self):
        return {"k": self.k}

    def load_state_dict(self, state):
        self.k = state["k"]


class StatefulStream(Stream):
    def __iter__(self):
        return StatefulWalk(self)


# ---- Samplers.


class Lazy(tud.Sampler):
    """A sampler that draws each index when it is requested."""

    def __init__(self, count, generator):
        self.count, self.generator = count, generator

    def __len__(self):
        return self.count

    def __iter__(self):
        return (int(torch.randint(self.count, (), generator=self.generator)) for _ in range(self.count))


class Eager(Lazy):
    """A sampler that draws once for each pass, and returns tensors."""

    def __iter__(self):
        return iter(torch.randperm(self.count, generator=self.generator))


class LazyBatches(Lazy):
    def __iter__(self):
        return (torch.randint(self.count, (1 + k % 3,), generator=self.generator).tolist() for k in range(self.count // 2))


# ---- Collate functions.


def objects(samples):
    return {"samples": samples, "count": torch.tensor([len(samples)]), "text": (str(len(samples)), None)}


def arrays(samples):
    x = np.arange(6.0).reshape(2, 3) + len(samples)
    return [x, np.asfortranarray(x), np.float32(1), np.array(["a", None], object)]


def permuted(samples):
    x = torch.arange(24.0).reshape(2, 3, 4) + len(samples)
    return x.permute(2, 0, 1).clone(memory_format=torch.preserve_format), x.repeat(30, 4, 1).transpose(0, 1).clone(), torch.empty(3, 0, 2)


def by_torch(samples):
    return Pair(tud.default_collate([1, 2]), tud.default_collate(samples))


def picky(samples):
    if len(samples) < 3:
        raise Bad(f"only {len(samples)}")
    return len(samples)


# ---- Cases.


def seed_worker(worker_id):
    torch.manual_seed(worker_id)
    random.seed(worker_id)


class Case:
    """A dataset, options and a program. All are generated from the seed, so that each run gets its
    own copy."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.seed = seed
        self.about = {}
        self.options, self.ours = {}, {}
        # Whether batches depend on the worker that makes them, or on random numbers that are drawn
        # in the worker.
        self.of_worker = self.is_noisy = self.is_stream = self.skips = False
        self.workers = self.pick("workers", [0, 1, 2, 3], [60, 17, 16, 2])
        self.add_dataset()
        self.add_options()
        self.program = [self.some_pass() for _ in range(self.pick("passes", [1, 2, 3], [1, 3, 1]))]

    def pick(self, name, choices, weights=None):
        chosen = self.rng.choices(choices, weights)[0]
        self.about[name] = chosen
        return chosen

    def chance(self, name, probability):
        return self.pick(name, [True, False], [probability, 1 - probability])

    def add_dataset(self):
        rng = self.rng
        self.length = self.pick("length", [0, 1, 5, 12, 20], [1, 1, 3, 5, 4])
        kind = self.pick("dataset", ["map", "stream", "native", "python"], [6, 3, 4, 1])
        if kind == "native":
            self.dataset = self.some_native(self.length)
            return
        if kind == "python":
            self.about["python"], make = some_leaf(rng)
            samples = [make(i) for i in range(self.length)]
            self.dataset = rng.choice([samples, range(self.length), dict(enumerate(samples))])
            return
        self.about["sample"], sample = some_sample(rng)
        errors = [ValueError, Bad, KeyError, StopIteration, OSError] if kind == "map" else [ValueError, Bad]
        bad = {rng.randrange(1 + self.length): rng.choice(errors) for _ in range(rng.choice([0, 0, 0, 1, 2]))}
        self.about["bad"] = bad
        if kind == "stream":
            self.is_stream = True
            self.is_noisy = self.chance("noisy", 0.2)
            lengths = [self.length, *(rng.randrange(9) for _ in range(2))]
            self.about["lengths"] = lengths
            what = self.pick("stream", [Stream, SizedStream, WalkedStream, StatefulStream])
            self.dataset = what(lengths, sample, bad, self.is_noisy)
            return
        odd, (other_name, other) = (), (None, None)
        if self.chance("has an odd sample", 0.12):
            odd, (other_name, other) = {rng.randrange(1 + self.length)}, some_sample(rng)
            self.about["odd"] = odd, other_name
        what = self.pick("map", [Map, Many, ManyTensors, Noisy, Counting], [6, 2, 1, 2, 2])
        self.is_noisy = what is Noisy
        self.of_worker = what in (Noisy, Counting)
        self.dataset = what(self.length, sample, bad, odd, other)

    def some_native(self, length, depth=0):
        rng = self.rng
        kind = self.pick(f"native {depth}", ["tensors", "stack", "named", "concat", "subset"], [3, 2, 2, 2, 3] if depth < 3 else [1, 1, 1, 0, 0])

        def column():
            make = rng.choice([some_tensor, some_array])
            name, value = make(rng)
            self.about.setdefault("columns", []).append(name)
            rows = [value(i) for i in range(length)]
            if make is some_array:
                return np.stack(rows) if rows else np.zeros((0, 2), "f4")
            rows = torch.stack(rows) if rows else torch.zeros(0, 2)
            return rows.transpose(0, 1).contiguous().transpose(0, 1) if rows.dim() > 1 and rng.random() < 0.3 else rows

        if kind == "tensors":
            columns = [torch.zeros(length, 2), *(column() for _ in range(rng.choice([0, 1, 2])))]
            return tud.TensorDataset(*(column for column in columns if isinstance(column, torch.Tensor)))
        if kind == "stack":
            return tud.StackDataset(*(column() for _ in range(rng.choice([1, 2]))))
        if kind == "named":
            return tud.StackDataset(x=column(), y=self.some_native(length, depth + 1) if rng.random() < 0.3 else column())
        if kind == "concat":
            if length < 2:
                return tud.ConcatDataset([self.some_native(length, 3)])
            first = rng.randrange(1, length)
            if rng.random() < 0.3:  # parts that may not fit together
                return tud.ConcatDataset([self.some_native(first, depth + 1), self.some_native(length - first, depth + 1)])
            part = self.some_native(max(first, length - first), depth + 1)
            return tud.ConcatDataset([tud.Subset(part, range(first)), tud.Subset(part, range(length - first))])
        inner = self.some_native(2 * length + 1, depth + 1)
        indices = [rng.randrange(-len(inner), len(inner)) if rng.random() < 0.2 else rng.randrange(len(inner)) for _ in range(length)]
        if length and rng.random() < 0.1:
            indices[-1] = len(inner) + 3
        form = self.pick(f"subset {depth}", [list, tuple, np.array, torch.tensor, "range"])
        if form == "range":
            return tud.Subset(inner, range(length))
        return tud.Subset(inner, form(indices) if indices else [])

    def add_options(self):
        rng, options = self.rng, self.options
        count = self.length
        generator = torch.Generator().manual_seed(self.seed) if self.chance("generator", 0.3) else None
        if generator is not None:
            options["generator"] = generator
        self.generators = [] if generator is None else [generator]
        own = torch.Generator().manual_seed(1) if rng.random() < 0.3 else None
        if own is not None:
            self.generators.append(own)
        size = self.pick("batch_size", [None, 1, 2, 3, 4, 7, 30], [2, 2, 3, 3, 3, 2, 1])
        drop = self.chance("drop_last", 0.25)
        kind = "none"
        if not self.is_stream and count:
            kind = self.pick(
                "sampler",
                ["none", "shuffle", "random", "replacement", "many", "subset", "weighted", "distributed", "lazy", "eager", "stateful", "list", "array", "wrong",
                 "batches", "lazy batches", "batch sampler", "batch sampler as sampler"],
                [4, 6, 1, 2, 2, 1, 1, 2, 1, 2, 2, 2, 1, 1, 1, 2, 2, 1],
            )  # fmt: skip
        samplers = {
            "random": lambda: tud.RandomSampler(self.dataset, generator=own),
            "replacement": lambda: tud.RandomSampler(self.dataset, True, rng.choice([None, 40]), own),
            "many": lambda: tud.RandomSampler(self.dataset, False, 2 * count + 1, own),
            "subset": lambda: tud.SubsetRandomSampler(range(0, count, 2), own),
            "weighted": lambda: tud.WeightedRandomSampler([1.0 + i for i in range(count)], 9, generator=own),
            "distributed": lambda: tud.DistributedSampler(self.dataset, 2, rng.randrange(2), seed=3),
            "lazy": lambda: Lazy(count, own),
            "eager": lambda: Eager(count, own),
            "stateful": lambda: Counts(count),
            "list": lambda: [i for i in range(count)][::-1],
            "array": lambda: np.arange(count),
            "wrong": lambda: [0, count + 5, 0, 0],
        }
        if kind in ("batches", "lazy batches", "batch sampler"):
            if kind == "batches":
                options["batch_sampler"] = [[0], [count - 1, 0], (0,), []][: rng.choice([3, 3, 4])]
            elif kind == "lazy batches":
                options["batch_sampler"] = LazyBatches(count, own)
            else:
                options["batch_sampler"] = tud.BatchSampler(rng.choice([*samplers.values()][:6])(), size or 2, drop)
        elif kind == "batch sampler as sampler":
            options["batch_size"] = None
            options["sampler"] = tud.BatchSampler(tud.RandomSampler(self.dataset, generator=own), 3, drop)
        else:
            options["batch_size"] = size
            if drop and (size is not None or rng.random() < 0.1):
                options["drop_last"] = True
            if kind == "shuffle":
                options["shuffle"] = True
            elif kind != "none":
                options["sampler"] = samplers[kind]()
        if rng.random() < 0.02:
            self.options["shuffle"] = True  # may be an error together with other options
        collate = self.pick("collate_fn", [None, tud.default_collate, objects, arrays, permuted, by_torch, picky, str], [12, 1, 2, 1, 1, 1, 1, 1])
        if collate is not None:
            options["collate_fn"] = collate
        # Whether batches contain copies of the samples.
        self.owns_batches = collate in (None, tud.default_collate) and options.get("batch_size", 0) is not None
        if self.workers or rng.random() < 0.01:
            options["num_workers"] = self.workers
            options["prefetch_factor"] = self.pick("prefetch_factor", [None, 1, 2, 3])
            options["persistent_workers"] = self.chance("persistent_workers", 0.4)
            options["timeout"] = self.pick("timeout", [0, 100], [3, 1])
        self.is_ordered = True
        if self.workers:
            if not self.of_worker and not self.is_noisy and self.chance("threads", 0.35):
                self.ours["worker_method"] = "thread"
            elif self.chance("init", 0.15):
                options["worker_init_fn"] = seed_worker
            if not self.of_worker and not self.is_stream:
                if self.chance("out of order", 0.12):
                    options["in_order"] = self.is_ordered = False
                if self.chance("no round robin", 0.15):
                    self.ours["round_robin"] = False
            if self.chance("limit", 0.1):
                self.ours["memory_limit"] = 1 << 30
        if self.is_stream:
            self.ours["snapshot_every_n_steps"] = self.pick("snapshot", [0, 1, 2])
            # The moment at which torch notices that a worker's stream has ended depends on timing.
            self.is_ordered = self.workers < 2
        elif type(self.dataset) is Map and not self.dataset.odd and self.chance("skips", 0.1):
            # Compare with a torch loader that leaves out bad samples.
            self.skips = True
            self.ours["on_error"] = "skip"

    def some_pass(self):
        rng = self.rng
        # The number of batches after which the pass is abandoned; how and when the process forks.
        left = rng.randrange(5) if rng.random() < 0.3 else None
        fork = rng.choice(["fork", "process", "queue", "program"]) if rng.random() < 0.08 else None
        twice = rng.random() < 0.1 and not self.options.get("persistent_workers") and not self.is_stream
        return {"left": left, "fork": fork, "twice": twice, "at": rng.randrange(4), "writes": rng.random() < 0.3, "keeps": rng.random() < 0.5}

    def loader(self, kind):
        if kind is DataLoader:
            return kind(self.dataset, **self.options, **self.ours)
        if not self.skips:
            return kind(self.dataset, **self.options)
        options = dict(self.options)
        collate = options.pop("collate_fn", None)
        if options.get("batch_size", 0) is None:
            collate = Single(collate or tud._utils.collate.default_convert)
        else:
            collate = Several(collate or tud.default_collate)
        return kind(caught(self.dataset), **options, collate_fn=collate)


def caught(dataset):
    """Returns a dataset whose samples are errors where those of another one raise them."""

    def make(i):
        try:
            return dataset[i]
        except Exception:
            return Bad

    return Samples(len(dataset), make)


class Several:
    def __init__(self, collate):
        self.collate = collate

    def __call__(self, samples):
        good = [sample for sample in samples if sample is not Bad]
        return self.collate(good) if good else Bad


class Single(Several):
    def __call__(self, sample):
        return sample if sample is Bad else self.collate(sample)


# ---- Runs.


def frozen(x):
    """Returns the contents of a batch in a form that can be compared with another batch, or with
    the same one later."""
    if isinstance(x, torch.Tensor):
        plain = torch.empty(x.shape, dtype=x.dtype).copy_(x.detach())
        # Workers remove gaps, and the strides of dimensions of length one do not matter.
        strides = [stride if size > 1 else 0 for size, stride in zip(x.shape, torch.empty_like(x).stride())] if x.numel() else []
        return type(x), x.dtype, tuple(x.shape), strides, x.requires_grad, plain.flatten().view(torch.uint8).numpy().tobytes()
    if isinstance(x, np.ndarray):
        # torch's workers change the byte order.
        return type(x), x.dtype.newbyteorder("=").str, x.shape, x.size and x.strides, repr(x.tolist())
    if isinstance(x, (Mapping, collections.UserDict)):
        return type(x), [(key, frozen(value)) for key, value in x.items()]
    if isinstance(x, (list, tuple)):
        return type(x), [frozen(value) for value in x]
    return type(x), repr(x)


def tensors(x):
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (Mapping, list, tuple, collections.UserDict)):
        for value in x.values() if hasattr(x, "values") else x:
            yield from tensors(value)


def error_of(error, case):
    """Returns the properties of an error that must be the same."""
    lines = str(error).splitlines() or [""]
    if "bad " not in lines[-1]:
        # Samples do not fit together. In workers, torch's function fails in different ways.
        return ("error",) if case.workers else ("error", type(error), lines[-1])
    is_by_turns = case.ours.get("round_robin", True) and case.options.get("in_order", True)
    worker = lines[0].replace("worker thread", "worker process") if is_by_turns and len(lines) > 1 else ""
    return "error", type(error), lines[-1].strip(), worker


def numbers():
    return torch.get_rng_state(), random.getstate(), copy.deepcopy(np.random.get_state())


def set_numbers(state):
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    np.random.set_state(state[2])


def begin(case):
    torch.manual_seed(case.seed)
    random.seed(case.seed)
    np.random.seed(case.seed % 2**32)


def rest(case, trace):
    """Appends the random numbers that are drawn next to a trace."""
    trace.append(("numbers", torch.rand(1).item(), random.random(), np.random.rand(), [g.get_state().tolist() for g in case.generators]))
    return trace


def one(iterator, case):
    """Returns the next event of a pass, and its batch if there is one."""
    try:
        batch = next(iterator)
    except StopIteration:
        return ("end",), None
    except Exception as error:
        return error_of(error, case), None
    return ("batch", frozen(batch)), batch


def run(seed, kind):
    """Runs a case, and returns a list of events for each pass, and the random numbers after it."""
    case = Case(seed)
    begin(case)
    try:
        loader = case.loader(kind)
    except Exception as error:
        return rest(case, [("refused", type(error), str(error))])
    trace, kept = [], []
    for number, program in enumerate(case.program):
        if isinstance(loader.sampler, tud.DistributedSampler):
            loader.sampler.set_epoch(number)
        events = []
        trace.append(events)
        try:
            iterator = iter(loader)
        except Exception as error:
            events.append(("no iterator", type(error)))
            continue
        while program["left"] is None or len(events) < program["left"]:
            event, batch = one(iterator, case)
            if event == ("batch", frozen(Bad)):
                continue
            events.append(event)
            if event == ("end",):
                # Call it again: after an error of a sample that looked like the end, there may be
                # more batches.
                events.append(one(iterator, case)[0])
                break
            if batch is None:
                assert len(events) < 200, "errors without an end"
                continue
            if program["keeps"]:
                kept.append((batch, event[1]))
            if program["twice"] and len(events) == program["at"] + 1:
                other = iter(loader)
                events.append(one(other, case)[0])
                if kind is not DataLoader:
                    end(other, case)
                del other
            if kind is DataLoader and program["fork"] and len(events) == program["at"] + 1:
                fork(program["fork"], kept, batch, iterator)
            if program["writes"] and not program["keeps"] and case.owns_batches:
                for tensor in tensors(batch):
                    tensor.zero_()
            batch = None
        if kind is not DataLoader:
            end(iterator, case)
        del iterator
        if not case.is_ordered:
            events[:] = sorted(events, key=str) if program["left"] is None else []
    for batch, event in kept:
        assert frozen(batch) == event, "a batch that was kept has changed"
    if kind is DataLoader:
        loader.stats(), loader.verdict()
    if kind is not DataLoader and loader._iterator is not None:
        loader._iterator._shutdown_workers()
    return rest(case, trace)


def end(iterator, case):
    """Ends the workers of a torch iterator.

    An error may keep the iterator in a reference cycle. If the garbage collector freed it, it could
    wait for the workers in vain, or run in another process and end them.
    """
    if case.workers and not case.options["persistent_workers"]:
        iterator._shutdown_workers()


def fork(how, kept, batch, iterator):
    """Forks, and checks in the other process that the batches are unchanged."""
    expected = [event for _, event in kept]

    def check():
        assert [frozen(batch) for batch, _ in kept] == expected
        if hasattr(iterator, "belongs_to_parent"):
            with pytest.raises(RuntimeError, match="another process"):
                next(iterator)

    if how == "fork":
        assert in_child(check)
    elif how == "process":
        process = torch.multiprocessing.get_context("fork").Process(target=check)
        process.start()
        process.join()
        assert process.exitcode == 0
    elif how == "queue":
        if type(batch) is torch.Tensor and not batch.requires_grad:
            context = torch.multiprocessing.get_context("fork")
            results, is_read = context.SimpleQueue(), context.Event()
            process = context.Process(target=lambda: (results.put(batch), is_read.wait()))
            process.start()
            assert frozen(results.get()) == frozen(batch)
            is_read.set()
            process.join()
    else:
        subprocess.run(["/bin/true"], check=True, preexec_fn=os.getpid)


def resumes(case):
    """Returns whether a case can resume without losing anything that only its workers and samplers
    know."""
    left = any(program["left"] is not None or program["twice"] for program in case.program)
    ends = StopIteration in getattr(case.dataset, "bad", {}).values()
    # Otherwise it depends on timing which worker makes a batch, and so which numbers are drawn.
    is_fixed = not case.workers or (case.is_ordered and case.ours.get("round_robin", True))
    return not (left or ends or (case.is_noisy and not is_fixed) or type(case.dataset) is Counting)


def run_with_stops(seed, counts, has_errors):
    """Runs a case with loaders that stop after some batches, and new loaders that resume."""
    case = Case(seed)
    stops = random.Random(seed)
    begin(case)
    loader = case.loader(DataLoader)
    trace, where = [], []
    for number in range(len(case.program)):
        events = []
        trace.append(events)
        ended = False
        while not ended:
            if isinstance(loader.sampler, tud.DistributedSampler):
                loader.sampler.set_epoch(number)
            iterator = iter(loader)
            while not ended:
                event, _ = one(iterator, case)
                events.append(event)
                ended = event == ("end",)
                if ended:
                    events.append(one(iterator, case)[0])
                is_last = ended and number + 1 == len(case.program)
                # A short batch has ended the sampler, so that its state is the end of the pass.
                is_late = type(loader.sampler) is Counts and len(events) == counts[number] - 2
                if stops.random() < (0.1 if case.workers else 0.2) and not is_last and not is_late:
                    where.append((number, len(events)))
                    state = json.loads(json.dumps(loader.state_dict()))
                    saved = numbers()
                    del iterator
                    case = Case(seed)
                    # Errors contain the worker's number.
                    needs_worker = has_errors or case.is_stream or case.of_worker or case.is_noisy
                    if case.workers and not needs_worker and stops.random() < 0.3:
                        case.options["num_workers"] = stops.choice([1, 2])
                    loader = case.loader(DataLoader)
                    # Reset the generators, as if the process had ended, and restore only what was
                    # saved.
                    torch.manual_seed(0)
                    set_numbers(saved)
                    loader.load_state_dict(state)
                    break
        if not case.is_ordered:
            events.sort(key=str)
    return rest(case, trace), where


def difference(expected, found, where=""):
    """Returns the first difference between two traces."""
    if type(expected) is type(found) and isinstance(expected, (list, tuple)) and len(expected) == len(found):
        for k, (a, b) in enumerate(zip(expected, found)):
            if a != b:
                return difference(a, b, f"{where}[{k}]")
    return f"{where}:\n  expected {str(expected)[:500]}\n  found    {str(found)[:500]}"


def check(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = Case(seed)
        if SEED is not None:
            print({**case.about, "options": case.options, "ours": case.ours, "program": case.program})
        torchs = run(seed, tud.DataLoader)
        ours = run(seed, DataLoader)
        assert torchs == ours, f"not as torch: {difference(torchs, ours)}"
        if torchs[0][:1] == ("refused",) or not resumes(case):
            return
        has_errors = any(type(event) is tuple and event[0] == "error" for events in ours for event in events)
        resumed, where = run_with_stops(seed, [len(events) for events in ours], has_errors)
        assert ours == resumed, f"not as without stops at {where}: {difference(ours, resumed)}"


@pytest.mark.parametrize("part", range(1 if SEED or SECONDS else 12))
def test_random_loaders_are_torchs(part):
    for seed in cases(PART, PART * part):
        # Each case gets the time limit of a whole test.
        signal.alarm(120)
        try:
            check(seed)
        except BaseException as error:
            error.add_note(f"this is SLOTLINE_RANDOM_SEED={seed}")
            raise
