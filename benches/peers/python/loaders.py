"""The loaders that several Python peers of the comparison use."""

import itertools
import multiprocessing
import os
import threading

from protocol import Loader


def whole(samples):
    return samples


class Torch(Loader):
    """torch's DataLoader, or another class with the same arguments.

    Its workers persist from pass to pass. If a pass is only the first batch, each pass starts new workers.
    """

    def __init__(self, kind, workers, dataset, plan, **more):
        self.limit = 1 if plan.first_batch else None
        options = {"batch_size": plan.batch_size, "shuffle": plan.shuffle, "drop_last": plan.drop_last}
        options |= {"num_workers": workers, "in_order": plan.in_order}
        if workers:
            options |= {"persistent_workers": not plan.first_batch, "multiprocessing_context": "fork"}
            options["prefetch_factor"] = plan.prefetch
        if hasattr(dataset, "__getitems__"):
            options["collate_fn"] = whole
        self.make = lambda: kind(dataset, **(options | more))
        self.loader = None if plan.first_batch else self.make()

    def batches(self):
        self.running = iter(self.loader or self.make())
        return itertools.islice(self.running, self.limit)

    def end(self):
        self.running = None  # ends the workers of a first batch


class Spdl(Loader):
    """A pipeline of SPDL with threads. ``make`` returns a new pipeline for each pass."""

    def __init__(self, make, plan):
        self.make = make
        self.limit = 1 if plan.first_batch else None

    def batches(self):
        pipeline = self.make()
        self.stack = pipeline.auto_stop()
        self.stack.__enter__()
        return itertools.islice(pipeline.get_iterator(), self.limit)

    def end(self):
        self.stack.__exit__(None, None, None)


def spdl_builder(source, function, workers):
    """Returns the builder of an SPDL pipeline with one stage: threads that call ``function`` and keep the order."""
    from spdl.pipeline import PipelineBuilder

    return PipelineBuilder().add_source(source).pipe(function, concurrency=workers, output_order="input")


def spdl_of_samples(order, get, workers, batch_size):
    """Returns a pipeline of SPDL whose stage makes samples."""
    from torch.utils.data import default_collate

    builder = spdl_builder(order, get, workers).aggregate(batch_size).pipe(default_collate)
    return builder.add_sink(2 * workers).build(num_threads=workers)


class Grain(Loader):
    """A pipeline of Grain that repeats the dataset forever, so that its processes persist from pass to pass."""

    def __init__(self, workers, dataset, plan):
        import grain

        pipeline = grain.MapDataset.source(dataset)
        if plan.shuffle:
            pipeline = pipeline.shuffle(seed=0)
        pipeline = pipeline.batch(plan.batch_size, drop_remainder=plan.drop_last)
        self.limit = 1 if plan.first_batch else len(pipeline)
        # The order is the same in every pass, so that any `len(pipeline)` batches in a row have each sample once.
        # Grain's documentation recommends no reading threads for data in memory.
        pipeline = pipeline.repeat(reseed_each_epoch=False)
        pipeline = pipeline.to_iter_dataset(grain.ReadOptions(num_threads=0))
        self.pipeline = pipeline.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        self.persists = not plan.first_batch
        self.running = iter(self.pipeline) if self.persists else None
        self.ahead = 4 * workers

    def drain(self):
        if self.persists:
            for _ in itertools.islice(self.running, self.ahead):
                pass

    def batches(self):
        if not self.persists:
            self.running = iter(self.pipeline)
        return itertools.islice(self.running, self.limit)

    def end(self):
        if not self.persists:
            self.running.close()

    def quit(self):
        """Closes Grain's processes. This sometimes takes 25 seconds, so they are killed after two."""
        closing = threading.Thread(target=self.running.close, daemon=True)
        closing.start()
        closing.join(2)
        for process in multiprocessing.active_children():
            process.kill()
        os._exit(0)


class Calls(Loader):
    """Calls of the dataset without a loader, to measure these alone. A batch is a list of samples, which is dropped."""

    def __init__(self, dataset, plan):
        import torch

        self.dataset, self.size = dataset, plan.batch_size
        self.draw = torch.randperm if plan.shuffle else torch.arange

    def batches(self):
        order = self.draw(len(self.dataset)).tolist()
        for first in range(0, len(order), self.size):
            yield [self.dataset[index] for index in order[first : first + self.size]]

    def check(self, batch):
        return len(batch)
