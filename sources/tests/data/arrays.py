"""Writes .safetensors and .npz files into the folder `arrays` next to this file, with the results of reading them by
safetensors and NumPy.

Needs numpy, safetensors and torch.
"""

import json
import os
import shutil

import numpy as np
import safetensors
import safetensors.torch
import torch

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "arrays")
shutil.rmtree(HERE, ignore_errors=True)
os.makedirs(HERE)
os.chdir(HERE)
random = np.random.default_rng(4)

names = ["bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64"]
arrays = {}
for i, name in enumerate(names):
    shape = [(7,), (7, 3), (7, 2, 2)][i % 3]
    arrays[name] = random.integers(0, 2 if name == "bool" else 100, shape).astype(name)

parts = np.random.default_rng(5)
for name, shape in (("complex64", (7, 3)), ("complex128", (7,))):
    arrays[name] = (parts.standard_normal(shape) + 1j * parts.standard_normal(shape)).astype(name)


def rows(arrays):
    return {name: [row.tobytes().hex() for row in array] for name, array in arrays.items()}


np.savez("stored.npz", **arrays)
np.savez_compressed("packed.npz", **arrays)
np.savez("mixed.npz", a=np.arange(7), b=np.arange(6), c=np.float32(3), d=np.arange(14.0).reshape(7, 2).T.copy().T, e=np.arange(7, dtype=">i4"), f=np.array(["x"] * 7), g=np.zeros((7, 0)))
expected = {"numpy": np.__version__, "safetensors": safetensors.__version__}
for name in ("stored", "packed"):
    expected[name] = rows(dict(np.load(f"{name}.npz")))

# safetensors has no complex128.
tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if name != "complex128"}
tensors["bfloat16"] = torch.from_numpy(random.standard_normal((7, 5))).bfloat16()
safetensors.torch.save_file(tensors, "all.safetensors", metadata={"by": "a test"})
loaded = safetensors.torch.load_file("all.safetensors")
expected["all"] = rows({name: (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy() for name, t in loaded.items()})
safetensors.torch.save_file({"a": torch.arange(7), "b": torch.arange(6), "c": torch.tensor(3.0), "f8": torch.ones(7).to(torch.float8_e4m3fn)}, "mixed.safetensors")

with open("expected.json", "w") as file:
    json.dump(expected, file, separators=(",", ":"))
