"""Writes vectors.json: batches by length of Hugging Face's transformers, and bins of TRL.

Needs the packages transformers, trl, datasets, accelerate, pyarrow and torch:

    python vectors.py > vectors.json
"""

import json
import random
import sys
from importlib.metadata import version

import pyarrow
import torch
from transformers.trainer_pt_utils import DistributedLengthGroupedSampler, get_length_grouped_indices
from trl.data_utils import _pack_bfd, _pack_wrapped


def grouped():
    for seed, (n, batch_size, most) in enumerate(
        [(1, 1, 9), (7, 3, 4), (40, 4, 100), (50, 64, 50), (100, 3, 2), (257, 2, 1000), (600, 1, 300)]
    ):
        lengths = [random.randrange(most + 1) for _ in range(n)]
        generator = torch.Generator()
        generator.manual_seed(seed)
        case = {"lengths": lengths, "batch_size": batch_size, "seed": seed}
        passes = [get_length_grouped_indices(lengths, batch_size, generator=generator) for _ in range(2)]
        shares = []
        # With fewer samples than ranks, theirs fails.
        for rank in range(3 if n >= 3 else 0):
            for drop_last in (False, True):
                sampler = DistributedLengthGroupedSampler(
                    batch_size, lengths=lengths, num_replicas=3, rank=rank, seed=seed, drop_last=drop_last
                )
                sampler.set_epoch(2)
                shares.append({"rank": rank, "drop_last": drop_last, "indices": list(sampler)})
        yield case | {"passes": passes, "shares": shares}


def bins():
    for capacity, n, most in [(1, 6, 3), (10, 30, 10), (10, 40, 35), (64, 200, 64), (100, 120, 250), (2048, 300, 3000)]:
        lengths = [int(most * random.random() ** 3) for _ in range(n)]
        # Each token is the number of its document and its place there.
        tokens = [[document * 10_000 + place for place in range(length)] for document, length in enumerate(lengths)]
        table = pyarrow.table({"tokens": tokens})
        split = _pack_bfd(table, capacity, on_seq_length_overflow="split").to_pydict()
        wrapped = _pack_wrapped(table, capacity).to_pydict()
        yield {
            "lengths": lengths,
            "capacity": capacity,
            # The first token and the length of each piece.
            "best_fit": [
                [[row[sum(pieces[:i])], piece] for i, piece in enumerate(pieces)]
                for row, pieces in zip(split["tokens"], split["seq_lengths"], strict=True)
            ],
            "chunks": [[row[0], row[-1], len(row)] for row in wrapped["tokens"]],
        }


random.seed(0)
versions = {name: version(name).split("+")[0] for name in ("transformers", "trl", "torch")}
json.dump({"versions": versions, "grouped": list(grouped()), "bins": list(bins())}, sys.stdout, separators=(",", ":"))
print()
