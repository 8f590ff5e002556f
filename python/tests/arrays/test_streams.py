"""Compressed tars, which are read as streams, compared with what plain Python reads from them."""

import bz2
import gzip
import io
import json
import pickle
import tarfile

import numpy as np
import pytest
from helpers import add_to_tar

import slotline
from slotline import ConcatDataset, Loader, StackDataset, Subset

SHARDS, EACH = 6, 20


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A fixture: a pattern for tars that are compressed with gzip and bzip2 in turn."""
    folder = tmp_path_factory.mktemp("packed")
    for shard in range(SHARDS):
        opened, end = ((gzip.open, "gz"), (bz2.open, "bz2"))[shard % 2]
        with opened(folder / f"shard-{shard:03}.tar.{end}", "wb") as packed, tarfile.open(fileobj=packed, mode="w") as file:
            for i in range(shard * EACH, (shard + 1) * EACH):
                points = io.BytesIO()
                np.save(points, np.full((2, 3), i, "f4"))
                parts = {"cls": b"%d" % i, "npy": points.getvalue(), "txt": f"größer {i}".encode(), "bin": bytes([i]) * i}
                for extension, contents in parts.items():
                    add_to_tar(file, f"{i:04}.{extension}", contents)
    return folder / "shard-*"


def numbers(loader):
    found = []
    for batch in loader:
        assert batch["txt"] == [f"größer {i}" for i in batch["cls"]]
        assert (batch["npy"] == batch["cls"][:, None, None]).all() and batch["npy"].shape[1:] == (2, 3)
        assert [bytes(value) for value in batch["bin"]] == [bytes([i]) * i for i in batch["cls"]]
        found += batch["cls"].tolist()
    return found


def test_a_stream_has_all_samples(path):
    stream = slotline.open(path)
    assert repr(stream).startswith("<slotline.Dataset of a stream of samples: cls: int64 []")
    assert numbers(Loader(stream, 7)) == list(range(SHARDS * EACH))
    for workers in (1, 2, 4):
        loader = Loader(pickle.loads(pickle.dumps(stream)), 7, num_workers=workers)
        assert sorted(numbers(loader)) == list(range(SHARDS * EACH))
    chosen = slotline.open(path.parent, columns=["txt", "cls"])
    assert [field.name for field in chosen.fields] == ["txt", "cls"]
    single = slotline.open(path.parent / "shard-003.tar.bz2")
    for samples in (Loader(single, None), single, single):
        assert [int(sample["cls"]) for sample in samples] == list(range(3 * EACH, 4 * EACH))
    for use in (len, lambda stream: stream[0], lambda stream: stream[:2]):
        with pytest.raises(TypeError, match="stream"):
            use(stream)


def test_a_shuffled_stream_is_in_another_order_in_each_pass(path):
    stream = slotline.open(path, shuffle_buffer=50)
    loader = Loader(stream, 7, True, seed=5, num_workers=2)
    passes = [numbers(loader) for _ in range(3)]
    assert len({tuple(order) for order in passes}) == 3
    assert all(sorted(order) == list(range(SHARDS * EACH)) for order in passes)
    again = Loader(stream, 7, True, seed=5, num_workers=2)
    again.set_epoch(2)
    assert numbers(again) == passes[2]


def test_ranks_read_different_tars(path):
    stream = slotline.open(path)
    shares = [numbers(Loader(stream, 7, True, rank=rank, world_size=4, num_workers=2)) for rank in range(4)]
    assert sorted(sum(shares, [])) == list(range(SHARDS * EACH))
    assert [len(share) for share in shares] == [2 * EACH, 2 * EACH, EACH, EACH]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_over_a_stream_resumes(path, workers):
    stream = slotline.open(path, shuffle_buffer=30)
    make = lambda: Loader(stream, 7, True, seed=1, num_workers=workers)
    whole = make()
    first, second = numbers(whole), numbers(whole)
    for skipped in (0, 1, 8):
        loader = make()
        numbers(loader)
        batches = iter(loader)
        got = [i for _ in range(skipped) for i in next(batches)["cls"].tolist()]
        state = json.loads(json.dumps(loader.state_dict()))
        other = make()
        other.load_state_dict(state)
        assert got + numbers(other) == second != first


def test_what_a_stream_cannot_do_is_an_error(path):
    stream = slotline.open(path)
    loader = Loader(stream, 7)
    for ask in (
        lambda: len(stream),
        lambda: len(loader),
        lambda: len(iter(loader)),
        lambda: Subset(stream, [0]),
        lambda: ConcatDataset([stream, stream]),
        lambda: StackDataset(stream, stream),
    ):
        with pytest.raises(TypeError, match="whose length is not known"):
            ask()
    with pytest.raises(slotline.OptionError, match="can't be drawn"):
        Loader(stream, 7, True, replacement=True)
    with pytest.raises(slotline.DataError, match="pictures of packed tars are not decoded"):
        slotline.open(path, image="resize(9)")
    (path.parent / "other").mkdir()
    cut = path.parent / "other" / "cut.tar.gz"
    cut.write_bytes((path.parent / "shard-000.tar.gz").read_bytes()[:-300])
    with pytest.raises(slotline.SampleError, match="cut.tar.gz: the packed data are not complete"):
        list(slotline.open(cut))
