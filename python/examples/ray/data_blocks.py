"""Ray Data as a source: slotline loads blocks that Ray has prepared as Arrow tables, in three ways.

1. Blocks in Ray's object store become arrays of a `slotline.Loader` without a copy; shuffling
   covers all blocks exactly.
2. Blocks that Ray creates while the loop runs are a stream for `slotline.torch.DataLoader`, in one
   loop or in one per rank.
3. Blocks that do not fit into the store are written as Parquet files, which `slotline.open` reads
   by index.
"""

import tempfile

import numpy as np
import ray
import torch
from torch.utils.data import IterableDataset

import slotline
from slotline.torch import DataLoader

[DIGITS] = slotline.Loader(slotline.digits(), 1797)
SCALED = (DIGITS["image"] / 16).astype(np.float32)


def prepare(rows):
    """A Ray task that makes samples from their indices. A real task would read, decode and filter
    here."""
    index = rows["id"]
    return {"image": (DIGITS["image"][index] / 16).astype(np.float32), "label": DIGITS["label"][index], "index": index}


def is_shared(array):
    """Returns whether an array is in the memory of Ray's object store, which all processes of a
    machine share."""
    address = array.__array_interface__["data"][0]
    for line in open("/proc/self/maps"):
        begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if begin <= address < end:
            return "plasma" in line
    raise AssertionError(f"no memory at {address:#x}")


def check_batch(batch):
    index = np.asarray(batch["index"])
    assert np.array_equal(batch["image"], SCALED[index]) and np.array_equal(batch["label"], DIGITS["label"][index])
    return index.tolist()


def blocks_as_arrays(prepared):
    blocks = prepared.materialize()
    parts = []
    for table in ray.get(blocks.to_arrow_refs()):
        # A column of a block is one chunk. `to_numpy` fails where Arrow would have to copy, for
        # example nulls or strings.
        arrays = {name: table[name].chunk(0).to_numpy(zero_copy_only=True) for name in table.column_names}
        assert table["index"].num_chunks == 1 and all(is_shared(array) for array in arrays.values())
        parts.append(slotline.Arrays(arrays))
    data = slotline.ConcatDataset(parts)  # keeps the blocks in the store
    assert len(parts) == 3 and data.fields[0] == ("image", "float32", (8, 8))

    loader = slotline.Loader(data, 64, shuffle=True, seed=1, num_workers=2, output="torch")
    whole = slotline.Loader(slotline.Arrays(index=np.arange(1797)), 64, shuffle=True, seed=1)
    for epoch in range(2):
        order = []
        for batch in loader:
            # This is the only copy: a thread of the loader has copied the batch's rows out of the
            # store.
            assert not is_shared(batch["image"].numpy())
            order += check_batch(batch)
        # The order equals that of a single array with all samples.
        assert order == np.concatenate([batch["index"] for batch in whole]).tolist()
    print("blocks as arrays: no copy until the batch; 1797 samples in the same order as from one array, in both epochs")


class Stream(IterableDataset):
    """The batches of a Ray data iterator: of a dataset, or of `ray.train.get_dataset_shard(…)` in
    Ray Train."""

    def __init__(self, source):
        self.source = source

    def __iter__(self):
        for batch in self.source.iter_batches(batch_size=64, batch_format="numpy"):
            # Unless a batch spans two blocks, its arrays are slices of a block in Ray's object
            # store, which must not be modified. `torch.tensor` copies them.
            yield {name: torch.tensor(array) for name, array in batch.items()}


def stream_loader(source):
    # Use Ray in a thread of this process, since in a forked process it would wait forever.
    # `batch_size=None`: Ray has already made batches.
    return DataLoader(Stream(source), batch_size=None, num_workers=1, worker_method="thread", copy_dataset=False)


def blocks_as_stream(prepared):
    loader = stream_loader(prepared.iterator())
    for epoch in range(2):
        order = [index for batch in loader for index in check_batch(batch)]
        assert order == list(range(1797))

    # The state counts batches. On resume, Ray creates the stream again, and the loader skips those
    # batches. With `preserve_order`, a stream has the same batches each time.
    batches = iter(loader)
    begun = [index for _ in range(10) for index in check_batch(next(batches))]
    state = loader.state_dict()
    batches = None
    resumed = stream_loader(prepared.iterator())
    resumed.load_state_dict(state)
    rest = [index for batch in resumed for index in check_batch(batch)]
    assert begun + rest == list(range(1797))
    print(f"blocks as a stream: 1797 samples in order, in both epochs; resumed after {len(begun)}, with the other {len(rest)}")


def a_stream_for_each_rank(prepared):
    # In Ray Train, each worker gets one of these from `get_dataset_shard`. With `equal`, all ranks
    # get equally many samples.
    loaders = [stream_loader(source) for source in prepared.streaming_split(2, equal=True)]
    ranks = [[], []]
    for batches in zip(*loaders, strict=True):
        for rank, batch in zip(ranks, batches, strict=True):
            rank += check_batch(batch)
    assert len(ranks[0]) == len(ranks[1]) == 1797 // 2 and len({*ranks[0], *ranks[1]}) == 2 * (1797 // 2)
    print(f"a stream for each of two ranks: {len(ranks[0])} samples each, no sample twice")


def blocks_as_files(prepared):
    with tempfile.TemporaryDirectory() as folder:
        prepared.write_parquet(folder)
        data = slotline.open(folder)
        # Ray writes tensors to Parquet as lists, so their shape is lost.
        assert data.fields[0] == ("image", "float32", (None,)) and len(data) == 1797
        seen = []
        for batch in slotline.Loader(data, 64, shuffle=True, seed=1, num_workers=2):
            seen += check_batch({**batch, "image": np.stack(batch["image"]).reshape(-1, 8, 8)})
        assert sorted(seen) == list(range(1797)) != seen
    print("blocks as Parquet files: 1797 samples by index, shuffled")


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    prepared = ray.data.range(1797, override_num_blocks=3).map_batches(prepare, batch_size=None)
    blocks_as_arrays(prepared)
    blocks_as_stream(prepared)
    a_stream_for_each_rank(prepared)
    blocks_as_files(prepared)
    ray.shutdown()
