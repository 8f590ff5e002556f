"""What packs documents and pads sequences in Python: peers of the sections packing and padding.

Use: sequences.py --peer PEER --workload W --workers N --data DIR

    trl          TRL's best-fit decreasing (the strategy "bfd" of pack_dataset), on a table of tokens of one byte (packing)
    torch        torch.utils.data.DataLoader with a collate function that pads, and makes the mask and lengths (padding)

The folder has the lengths of all documents, packing.u32 and padding.u32. The check sum of packing is the number of bins, that of padding the
number of tokens. padding has samplers that draw an order like that of transformers' LengthGroupedSampler.
"""

import time
from importlib.metadata import version

import numpy as np

import protocol
from protocol import Absent

CAPACITY, BATCH, GROUP = 8192, 64, 50


def trl(args):
    if args.workload != "packing":
        raise Absent("it packs, and makes no batches")
    try:
        import pyarrow
        from trl.data_utils import _pack_bfd
    except ImportError as error:
        raise Absent(str(error)) from error
    lengths = np.fromfile(args.data / "packing.u32", np.uint32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = pyarrow.LargeListArray.from_arrays(offsets, pyarrow.array(np.zeros(offsets[-1], np.int8)))
    table = pyarrow.table({"tokens": tokens})

    def run():
        begin = time.perf_counter()
        packed = _pack_bfd(table, CAPACITY)
        return {"batches": 1, "seconds": time.perf_counter() - begin, "check": len(packed)}

    # Without a pass to warm up: it takes a minute.
    return version("trl"), run


class Sequences:
    """Sequence i has the tokens i, i + 1, i + 2, …"""

    def __init__(self, lengths):
        self.starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
        tokens = [np.arange(i, i + length) for i, length in enumerate(lengths.tolist())]
        self.tokens = torch.from_numpy(np.concatenate(tokens))

    def __len__(self):
        return len(self.starts) - 1

    def __getitem__(self, index):
        return self.tokens[self.starts[index] : self.starts[index + 1]]


class Grouped:
    """Permutes the sequences, and sorts groups of 50 batches by length."""

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


def torch_loader(args):
    if args.workload != "padding":
        raise Absent("it does not pack")
    global torch
    try:
        import torch
    except ImportError as error:
        raise Absent(str(error)) from error
    torch.set_num_threads(1)
    lengths = np.fromfile(args.data / "padding.u32", np.uint32)
    dataset = Sequences(lengths)
    workers = args.workers
    options = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    loader = torch.utils.data.DataLoader(
        dataset, BATCH, sampler=Grouped(lengths), collate_fn=collate, num_workers=workers, **options
    )
    seen = np.zeros(len(lengths), np.int64)
    for tokens, mask, found in loader:
        if tokens.shape[1] != int(found.max()):
            raise ValueError("a batch that is not as wide as its longest row")
        for row, ones, length in zip(tokens, mask, found.tolist(), strict=True):
            first = int(row[0])
            seen[first] += 1
            if not torch.equal(row[:length], torch.arange(first, first + length)) or int(row[length:].sum()) != 0:
                raise ValueError(f"wrong tokens in sequence {first}")
            if int(ones.sum()) != length or not bool(ones[:length].all()):
                raise ValueError(f"a wrong mask of sequence {first}")
    if not (seen == 1).all():
        raise ValueError("a sequence that is missing, or comes twice")

    def run():
        begin = time.perf_counter()
        batches = total = 0
        for _, _, found in loader:
            total += int(found.sum())
            batches += 1
        return {"batches": batches, "seconds": time.perf_counter() - begin, "check": total}

    return torch.__version__.split("+")[0], run


def main():
    args = protocol.arguments(["trl", "torch"])
    try:
        release, run = (trl if args.peer == "trl" else torch_loader)(args)
    except Absent as why:
        return protocol.reply({"absent": str(why)})
    protocol.serve(args.peer, release, run)


if __name__ == "__main__":
    main()
