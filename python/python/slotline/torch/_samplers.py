"""Batches of indices, without a step of a generator for each index."""

from __future__ import annotations

import torch
from torch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler


def faster(sampler, iterator):
    """Returns an iterator over what ``sampler`` gives: ``iterator``, which was not used yet, or a faster one.

    For torch's own samplers there is one, which draws the same random numbers at the same time.
    """
    if type(sampler) is BatchSampler and type(sampler.sampler) in (RandomSampler, SequentialSampler):
        return _slices(_parts(sampler.sampler), sampler.batch_size, sampler.drop_last)
    return iterator


def _parts(sampler):
    """Yields the indices of a sampler in lists."""
    if type(sampler) is SequentialSampler:
        yield range(len(sampler.data_source))
        return
    count = len(sampler.data_source)
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    if sampler.replacement:
        for size in [32] * (sampler.num_samples // 32) + [sampler.num_samples % 32]:
            yield torch.randint(high=count, size=(size,), dtype=torch.int64, generator=generator).tolist()
    else:
        for _ in range(sampler.num_samples // count):
            yield torch.randperm(count, generator=generator).tolist()
        yield torch.randperm(count, generator=generator).tolist()[: sampler.num_samples % count]


def _slices(parts, size, drop_last):
    part, start = (), 0
    while True:
        batch = list(part[start : start + size])
        start += size
        while len(batch) < size:
            # Only now, as with torch, is the next part drawn.
            part = next(parts, None)
            if part is None:
                if batch and not drop_last:
                    yield batch
                return
            start = size - len(batch)
            batch += part[:start]
        yield batch
