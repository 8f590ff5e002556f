"""Writes token files into the folder `tokens` next to this file, with the results of reading them by NumPy and megatron-core.

Needs numpy, torch and megatron-core.
"""

import json
import os
from types import SimpleNamespace

import megatron.core
import numpy as np
import torch
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.blended_megatron_dataset_builder import _get_size_per_split_per_dataset
from megatron.core.datasets.utils import Split, normalize

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokens")
os.makedirs(HERE, exist_ok=True)
os.chdir(HERE)
random = np.random.default_rng(5)
expected = {"numpy": np.__version__, "megatron-core": megatron.core.__version__}

# nanoGPT: tokens without a header. nanoGPT's get_batch takes data[i : i + block_size], and the same range shifted by one.
expected["raw"] = {}
for name, dtype, len_ in [("a16", np.uint16, 103), ("b16", np.uint16, 7), ("c16", np.uint16, 64), ("d32", np.uint32, 50)]:
    tokens = random.integers(0, np.iinfo(dtype).max, len_, dtype, endpoint=True)
    tokens.tofile(f"{name}.bin")
    expected["raw"][name] = np.memmap(f"{name}.bin", dtype, mode="r").tolist()

# llm.c: the header and tokens of dev/data/data_common.py.
expected["llmc"] = {}
for name, magic, version, dtype, len_ in [
    ("gpt2_0", 20240520, 1, np.uint16, 40),
    ("gpt2_1", 20240520, 1, np.uint16, 33),
    ("llama3", 20240801, 7, np.uint32, 29),
]:
    header = np.zeros(256, np.int32)
    header[:3] = magic, version, len_
    tokens = random.integers(0, np.iinfo(dtype).max, len_, dtype, endpoint=True)
    with open(f"{name}.llmc", "wb") as file:
        file.write(header.tobytes())
        file.write(tokens.tobytes())
    expected["llmc"][name] = tokens.tolist()

# Megatron: every dtype, empty sequences, documents of several sequences, and modes of sequences.
expected["sequences"] = {}
for code in DType:
    dtype = DType.dtype_from_code(code.value)
    for modes in [False, True]:
        name = f"{code.name}{'_modes' if modes else ''}"
        builder = IndexedDatasetBuilder(f"{name}.bin", dtype=dtype, multimodal=modes)
        for lengths in [[3], [0, 5], [1, 1, 4], [7]]:
            total = sum(lengths)
            if np.issubdtype(dtype, np.integer):
                tokens = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, total, dtype, endpoint=True)
            else:
                tokens = random.standard_normal(total).astype(dtype)
            tokens = torch.from_numpy(tokens.astype(np.int64) if dtype == np.uint16 else tokens)
            builder.add_document(tokens, lengths, [i - 1 for i in range(len(lengths))] if modes else None)
        builder.finalize(f"{name}.idx")
        dataset = IndexedDataset(name, multimodal=modes)
        items = [dataset[i] for i in range(len(dataset))]
        expected["sequences"][name] = {
            "dtype": np.dtype(dtype).name,
            "documents": dataset.document_indices.tolist(),
            "bytes": [(item[0] if modes else item).tobytes().hex() for item in items],
            "modes": [int(item[1]) for item in items] if modes else [],
        }

# The samples of megatron-core's GPTDataset.
for name, count, most in [("corpus0", 40, 30), ("corpus1", 17, 60), ("corpus2", 9, 21)]:
    builder = IndexedDatasetBuilder(f"{name}.bin", dtype=np.uint16)
    for _ in range(count):
        length = int(random.integers(1, most))
        builder.add_document(torch.from_numpy(random.integers(0, 50000, length)), [length])
    builder.finalize(f"{name}.idx")


def digest(items):
    digest = 0
    for item in items:
        for token in item["tokens"].tolist() + item["labels"].tolist():
            digest = (digest * 1_000_003 + token + 1) % (1 << 61)
    return digest


def config(seed, length, extra):
    return GPTDatasetConfig(
        random_seed=seed,
        sequence_length=length,
        blend=None,
        split="1,0,0",
        tokenizer=SimpleNamespace(eod=0, vocab_size=50000, unique_identifiers={}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        add_extra_token_to_sequence=extra,
        path_to_cache="/nonexistent",
    )


def gpt(name, sequences, samples, seed, length, extra):
    settings = config(seed, length, extra)
    settings.path_to_cache = None
    settings.mock = True  # so that nothing is saved
    return GPTDataset(IndexedDataset(name), name, np.arange(*sequences, dtype=np.int32), samples, Split.train, settings)


expected["gpt"] = []
for name, sequences, samples, seed, length, extra in [
    ("corpus0", (0, 40), None, 1234, 16, True),
    ("corpus0", (0, 40), None, 1234, 16, False),
    ("corpus0", (0, 40), 90, 1, 16, True),  # only a part of the last epoch is needed
    ("corpus0", (0, 40), 109, 1, 11, True),
    ("corpus0", (0, 40), 150, 7, 11, True),
    ("corpus0", (3, 29), 100, 99, 13, False),
    ("corpus1", (0, 17), 1, 4294967295, 200, True),
    ("corpus1", (0, 17), 9, 3, 700, True),  # samples longer than an epoch
    ("corpus2", (0, 9), 7, 0, 1, True),
    ("corpus2", (0, 9), 240, 0, 2, False),
    *(("corpus1", (0, 17), n, 42, 10, True) for n in range(40, 200, 7)),
]:
    dataset = gpt(name, sequences, samples, seed, length, extra)
    items = [dataset[i] for i in range(len(dataset))]
    entry = {
        "name": name, "sequences": sequences, "samples": samples, "seed": seed, "length": length, "extra": extra,
        "len": len(dataset),
        # The first samples, and a digest of all in order, which keeps the file small.
        "first": [[item["tokens"].tolist(), item["labels"].tolist()] for item in items[:2] if length < 100],
        "digest": digest(items),
    }
    expected["gpt"].append(entry)

# Blends: datasets that megatron-core mixes by weight.
expected["blends"] = []
for weights, samples in [([0.3, 0.5, 0.2], 200), ([1.0, 1.0, 1.0], 100), ([5.0, 0.1, 3.3], 77), (None, None)]:
    names = ["corpus0", "corpus1", "corpus2"]
    if weights is None:
        sizes = [None] * 3
    else:
        sizes = [size for [size] in _get_size_per_split_per_dataset(normalize(weights), [samples], surplus=0.005)]
    parts = [gpt(name, (0, n), size, 1234, 12, True) for name, n, size in zip(names, [40, 17, 9], sizes)]
    settings = config(1234, 12, True)
    settings.path_to_cache = None
    blend = BlendedDataset(parts, weights or [len(part) for part in parts], samples, settings)
    expected["blends"].append({
        "weights": weights, "samples": samples,
        "parts": blend.dataset_index.tolist(),
        "samples_of_parts": blend.dataset_sample_index[-5:].tolist(),
        "digest": digest([blend[i] for i in range(len(blend))]),
    })

with open("expected.json", "w") as file:
    json.dump(expected, file, separators=(",", ":"))
