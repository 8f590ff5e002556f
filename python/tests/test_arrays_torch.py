"""`slotline.Loader` with torch: tensors as arrays and as batches, and torch's orders."""

import gc
import json
import weakref

import numpy as np
import pytest
import torch
from conftest import same
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

import slotline
import slotline.torch
from slotline import Arrays, Loader

N = 41
X = torch.arange(N * 6).reshape(N, 2, 3)
I = torch.arange(N)


def indices(batches):
    return [batch["i"].tolist() for batch in batches]


@pytest.mark.filterwarnings("ignore:a pass has no batch")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [1, 4, 64])
def test_the_order_is_torchs(workers, size):
    for options in ({}, {"drop_last": True}):
        torchs = DataLoader(TensorDataset(I), size, True, generator=torch.Generator().manual_seed(3), **options)
        ours = Loader(Arrays(i=I), size, True, seed=3, num_workers=workers, output="torch", **options)
        for _ in range(3):
            assert [batch[0].tolist() for batch in torchs] == indices(ours)


@pytest.mark.parametrize("replacement, count", [(True, None), (True, 100), (False, 100), (False, 7)])
def test_random_samplers_are_torchs(replacement, count):
    generator = torch.Generator().manual_seed(3)
    sampler = RandomSampler(I, replacement, count, generator)
    torchs = DataLoader(TensorDataset(I), 4, sampler=sampler, generator=generator)
    ours = Loader(Arrays(i=I), 4, True, seed=3, replacement=replacement, num_samples=count, output="torch")
    for _ in range(3):
        assert [batch[0].tolist() for batch in torchs] == indices(ours)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_are_torchs(shuffle, drop_last):
    for rank in range(3):
        sampler = DistributedSampler(TensorDataset(I), 3, rank, shuffle, 5, drop_last)
        torchs = DataLoader(TensorDataset(I), 4, sampler=sampler, drop_last=drop_last)
        ours = Loader(
            Arrays(i=I), 4, shuffle, seed=5, rank=rank, world_size=3, drop_last=drop_last, output="torch"
        )
        for epoch in (0, 1, 5):
            sampler.set_epoch(epoch)
            ours.set_epoch(epoch)
            assert [batch[0].tolist() for batch in torchs] == indices(ours)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.float16,
        torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    ],
)  # fmt: skip
def test_tensors_come_as_they_are(dtype):
    data = (X % 2 if dtype is torch.bool else X % 120).to(dtype)
    for view in (data, data.transpose(1, 2), data[:, :, ::2], data[:, 0, 0]):
        for batch in Loader(Arrays(x=view, i=I), 4, True, num_workers=1, output="torch"):
            assert batch["x"].dtype == dtype and batch["x"].is_contiguous()
            assert torch.equal(batch["x"], view[batch["i"]])
    if dtype is torch.bfloat16:
        with pytest.raises(slotline.DataError, match='\'x\' has the type bfloat16, which output="numpy" does not have'):
            Loader(Arrays(x=data))
    else:
        (batch,) = Loader(Arrays(x=data, i=I), N)
        assert np.array_equal(batch["x"], data.numpy())
        (batch,) = Loader(Arrays(x=data.numpy(), i=I), N, output="torch")
        assert torch.equal(batch["x"], data)


@pytest.mark.parametrize("workers", [0, 2])
def test_functions_return_bfloat16(workers):
    data = X.bfloat16() / 3
    rows = Arrays(i=I).map(lambda sample: {"x": data[sample["i"]].T, "s": data[sample["i"], 0, 0], "text": "t"})
    assert [field.dtype for field in rows.fields] == ["bfloat16", "bfloat16", "str"] and rows.fields[0].shape == (3, 2)
    for dataset in (rows, Arrays(i=I).map(lambda sample: {"x": data[sample["i"]].T, "s": data[sample["i"], 0, 0], "text": "t"}, rows.fields)):
        batch = next(iter(Loader(dataset, N, num_workers=workers, output="torch")))
        assert torch.equal(batch["x"], data.transpose(1, 2)) and torch.equal(batch["s"], data[:, 0, 0])
    lists = Arrays(i=I).map(lambda sample: (data.flatten()[: sample["i"]],), [(None, "bfloat16", (None,))])
    batch = next(iter(Loader(lists, N, num_workers=workers, output="torch")))[0]
    assert all(torch.equal(row, data.flatten()[:i]) for i, row in enumerate(batch))
    padded, mask = next(iter(Loader(lists, N, num_workers=workers, output="torch", padding=-1.5)))[0]
    expected = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=-1.5)
    assert torch.equal(padded, expected) and torch.equal(mask, torch.arange(N - 1) < I[:, None])
    with pytest.raises(slotline.OptionError, match="e[+]39, which is no bfloat16"):
        Loader(lists, N, output="torch", padding=1e39)
    with pytest.raises(slotline.SampleError, match="expected bfloat16, found float64; return"):
        list(Loader(Arrays(i=I).map(lambda sample: (0.5,), [(None, "bfloat16", ())]), output="torch"))
    with pytest.raises(slotline.DataError, match='the type bfloat16, which output="numpy" does not have'):
        rows[0]


def test_arrays_of_ml_dtypes_are_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    data = (X.numpy() / 3).astype(ml_dtypes.bfloat16)
    for dataset in (Arrays(x=data), Arrays(i=I).map(lambda sample: {"x": data[sample["i"]]})):
        assert dataset.fields == (slotline.Field("x", "bfloat16", (2, 3)),)
        assert next(iter(Loader(dataset, N)))["x"].tobytes() == data.tobytes()
        assert torch.equal(next(iter(Loader(dataset, N, output="torch")))["x"], (X / 3).double().bfloat16())


def test_kept_tensors_do_not_change():
    for workers in (0, 2):
        loader = Loader(Arrays(x=X, i=I), 3, True, num_workers=workers, output="torch")
        kept = [batch for _ in range(6) for batch in loader]
        del loader
        for batch in kept:
            assert torch.equal(batch["x"], X[batch["i"]])
            batch["x"].zero_()


def test_dlpack_is_imported_without_a_copy():
    batch = next(iter(Loader(Arrays(x=X), 4, output="dlpack")))["x"]
    tensor = torch.from_dlpack(batch)
    tensor.zero_()
    assert (np.from_dlpack(batch) == 0).all() and tensor.data_ptr() == np.from_dlpack(batch).ctypes.data


def test_tensors_are_read_in_place_and_kept():
    data = X.clone()
    dataset = Arrays(x=data)
    data[0] = -1
    storage = weakref.ref(data.untyped_storage())
    del data
    assert (next(iter(Loader(dataset, 2, output="torch")))["x"][0] == -1).all()
    del dataset
    gc.collect()
    assert storage() is None


def test_tensors_that_cannot_be_read():
    for data, error, words in (
        (torch.ones(3, requires_grad=True), BufferError, "gradient"),
        (torch.ones(3, device="meta"), ValueError, "meta"),
        (torch.view_as_complex(torch.ones(3, 2)).conj().imag, slotline.DataError, "negated view; call resolve_neg"),
        (torch.ones(3, dtype=torch.complex64).conj(), BufferError, "conj"),
        (torch.ones(3).to_sparse(), BufferError, "layout"),
        (torch.ones(3).to(torch.float8_e4m3fn), slotline.DataError, "type that is not supported .*8 bits"),
    ):
        with pytest.raises(error, match=words):
            Arrays(x=data)
    with pytest.raises(slotline.DataError, match='type datetime64.*output="torch" does not have'):
        Loader(Arrays(np.zeros(3, "M8[s]")), output="torch")


def test_autograd_and_in_place_operations():
    layer = torch.nn.Linear(6, 1)
    for batch in Loader(Arrays(x=X.float().flatten(1)), 4, output="torch", num_workers=1):
        batch["x"].mul_(0.1)
        layer(batch["x"]).sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_samples_of_any_length_are_tensors(tmp_path):
    pictures = [bytes(range(10 * i)) for i in range(9)]
    for i, picture in enumerate(pictures):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        (tmp_path / "ab"[i % 2] / f"{i}.jpg").write_bytes(picture)
    expected = sorted(pictures, key=lambda picture: len(picture) // 10 % 2)
    data = slotline.open(tmp_path)
    kept = [batch for _ in range(3) for batch in Loader(data, 4, num_workers=2, output="torch")]
    found = [part for batch in kept for part in batch["data"]]
    assert all(part.dtype == torch.uint8 and part.is_contiguous() for part in found)
    assert [bytes(part.tolist()) for part in found] == 3 * expected
    assert all(batch["label"].dtype == torch.int64 and len(batch["label"]) == len(batch["data"]) for batch in kept)
    # Each tensor has its own storage, so saving it saves only its own elements.
    assert all(part.untyped_storage().nbytes() == len(part) for part in found)
    values, offsets = next(iter(Loader(data, 4, output="torch", packed=True)))["data"]
    assert bytes(values.tolist()) == b"".join(expected[:4])
    assert offsets.tolist() == [0, *torch.tensor([len(part) for part in expected[:4]]).cumsum(0)]
    assert [bytes(sample["data"].tolist()) for sample in Loader(data, None, output="torch")] == expected


def test_blocks_are_drawn_as_nanogpt_draws_them(tmp_path):
    tokens = torch.randint(50_000, (2000,)).to(torch.uint16)
    tokens.numpy().tofile(tmp_path / "train.bin")
    blocks = slotline.tokens(tmp_path / "train.bin", 32, stride=1, labels=True, widen=True)
    assert len(blocks) == len(tokens) - 32
    loader = Loader(blocks, 12, True, replacement=True, num_samples=36, seed=4, output="torch")
    generator = torch.Generator().manual_seed(4)
    sampler = RandomSampler(range(len(blocks)), True, 36, generator)
    starts = [batch.tolist() for batch in DataLoader(range(len(blocks)), 12, sampler=sampler, generator=generator)]
    for batch, drawn in zip(loader, starts, strict=True):
        assert torch.equal(batch["tokens"], torch.stack([tokens[i : i + 32].long() for i in drawn]))
        assert torch.equal(batch["labels"], torch.stack([tokens[i + 1 : i + 33].long() for i in drawn]))


@pytest.mark.parametrize("loader", [DataLoader, slotline.torch.DataLoader])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 1, "multiprocessing_context": "forkserver"}])
def test_torchs_loaders_load_a_dataset(loader, workers):
    for dataset in (Arrays(x=X.numpy().copy(), i=I.numpy().copy()), slotline.digits()[:-9:-1]):
        dataset[0]  # This creates objects that must not be shared with the workers.
        batches, wanted = list(loader(dataset, 4, **workers)), list(Loader(dataset, 4, output="torch"))
        assert len(batches) == len(wanted)
        for a, b in zip(batches, wanted, strict=True):
            assert list(a) == list(b) and all(a[name].dtype == b[name].dtype and a[name].equal(b[name]) for name in b)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_generator_of_torch_gives_the_seeds(workers):
    def make(seed):
        generator = torch.Generator().manual_seed(seed)
        return Loader(Arrays(i=I), 4, True, output="torch", generator=generator, num_workers=workers)

    loader, draws = make(3), torch.Generator().manual_seed(3)
    expected = []
    for epoch in range(3):
        expected.append(indices(loader))
        seeded = Loader(Arrays(i=I), 4, True, seed=torch.empty((), dtype=torch.int64).random_(generator=draws).item())
        seeded.set_epoch(epoch)
        assert indices(seeded) == expected[-1]
    # The first pass has the order of torch's loader with that seed.
    seed = torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(3)).item()
    torchs = DataLoader(TensorDataset(I), 4, True, generator=torch.Generator().manual_seed(seed))
    assert [batch[0].tolist() for batch in torchs] == expected[0]
    loader = make(3)
    list(loader)
    batches = iter(loader)
    first = indices(next(batches) for _ in range(5))
    resumed = make(4)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert [first + indices(resumed), indices(resumed)] == expected[1:]

    def default():
        torch.manual_seed(3)
        return indices(Loader(Arrays(i=I), 4, True, output="torch", generator=torch.default_generator))

    assert default() == default() == expected[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_functions_get_and_return_tensors(workers):
    data = Arrays(x=X.float(), i=I)
    collated = Loader(data, 4, output="torch", collate_fn=torch.utils.data.default_collate, num_workers=workers)
    torchs = DataLoader([{"x": x, "i": i} for x, i in zip(X.float(), I, strict=True)], 4)
    for ours, theirs in zip(collated, torchs, strict=True):
        same(ours, theirs)
    mapped = data.map(lambda sample: {"x": torch.from_numpy(sample["x"]).T, "n": torch.tensor(sample["i"] + 1)})
    for ours, theirs in zip(Loader(mapped, 4, output="torch", num_workers=workers), torchs, strict=True):
        same(ours["x"], theirs["x"].transpose(1, 2).contiguous())
        same(ours["n"], theirs["i"] + 1)
    # As a dataset of torch's loader, in processes.
    for ours, theirs in zip(slotline.torch.DataLoader(mapped, 4, num_workers=workers), torchs, strict=True):
        assert torch.equal(ours["n"], theirs["i"] + 1)
