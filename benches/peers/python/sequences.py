"""Python packages that pack documents and pad sequences, as peers of the sections packing and padding.

Use: sequences.py --peer PEER --workload W --workers N --data DIR

    trl          TRL's best-fit decreasing (the strategy "bfd" of pack_dataset), on a table of tokens of one byte (packing)
    torch        torch.utils.data.DataLoader with a collate function that pads, and makes the mask and lengths (padding)

The folder has the lengths of all documents, packing.u32 and padding.u32. The checksum of packing is the number of bins,
that of padding the number of tokens. padding has samplers that draw an order like that of transformers'
LengthGroupedSampler.
"""

from importlib.metadata import version

import numpy as np

import loaders
import protocol
from protocol import Loader, Plan

CAPACITY, BATCH, GROUP = 8192, 64, 50


class Trl(Loader):
    """TRL's packing of all documents. A pass is one batch: the packed table."""

    def __init__(self, args):
        import pyarrow
        from trl.data_utils import _pack_bfd

        lengths = np.fromfile(args.data / "packing.u32", np.uint32)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        tokens = pyarrow.LargeListArray.from_arrays(offsets, pyarrow.array(np.zeros(offsets[-1], np.int8)))
        self.table, self.pack = pyarrow.table({"tokens": tokens}), _pack_bfd

    def batches(self):
        yield self.pack(self.table, CAPACITY)

    def check(self, batch):
        return len(batch)


class Sequences:
    """Sequences in memory. Sequence i has the tokens i, i + 1, i + 2, …"""

    def __init__(self, lengths):
        self.starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
        tokens = [np.arange(i, i + length) for i, length in enumerate(lengths.tolist())]
        self.tokens = torch.from_numpy(np.concatenate(tokens))

    def __len__(self):
        return len(self.starts) - 1

    def __getitem__(self, index):
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    def verify(self, batch, take):
        tokens, mask, lengths = batch
        if tokens.shape[1] != int(lengths.max()):
            raise ValueError("a batch that is not as wide as its longest row")
        for row, ones, length in zip(tokens, mask, lengths.tolist(), strict=True):
            first = int(row[0])
            take(first)
            if not torch.equal(row[:length], torch.arange(first, first + length)) or int(row[length:].sum()) != 0:
                raise ValueError(f"wrong tokens in sequence {first}")
            if int(ones.sum()) != length or not bool(ones[:length].all()):
                raise ValueError(f"a wrong mask of sequence {first}")

    def check(self, batch):
        return int(batch[2].sum())


class Grouped:
    """A sampler that permutes the sequences, and sorts each group of 50 batches by length."""

    def __init__(self, lengths):
        self.lengths = torch.from_numpy(lengths.astype(np.int64))

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        groups = torch.randperm(len(self.lengths)).split(GROUP * BATCH)
        orders = [group[self.lengths[group].argsort(descending=True, stable=True)] for group in groups]
        return iter(torch.cat(orders).tolist())


def collate(sequences):
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    tokens = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    return tokens, (torch.arange(tokens.shape[1]) < lengths[:, None]).long(), lengths


def make(args):
    if args.peer == "trl":
        trl = Trl(args)
        # There is no pass to warm up, since a pass takes a minute.
        return version("trl"), trl, trl, None
    global torch
    import torch

    release = protocol.torch_release()
    lengths = np.fromfile(args.data / "padding.u32", np.uint32)
    dataset, plan = Sequences(lengths), Plan(BATCH, shuffle=True)
    own = {"shuffle": None, "sampler": Grouped(lengths), "collate_fn": collate}
    return release, loaders.Torch(torch.utils.data.DataLoader, args.workers, dataset, plan, **own), dataset, plan


if __name__ == "__main__":
    protocol.main({"trl": "trl", "torch": "torch"}, make)
