"""Checks and measures slotline's Python package with torch on a CUDA device. Each line of the output is one JSON object.

Use: device.py [--limit SECONDS] [--only NAME,NAME]
"""

import argparse
import io
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import torch
import torch.utils.data
from torch.utils.data import Dataset
from torch_loader import spread

import slotline
import slotline.torch

DEVICE = torch.device("cuda")
WORKERS = max(1, min(8, (os.cpu_count() or 2) - 1))
MB = 10**6


class Pictures(Dataset):
    """`count` samples of 3 × 224 × 224 bytes, each with its index. They share the memory of `distinct` pictures."""

    def __init__(self, count, distinct=512):
        self.count = count
        self.pictures = torch.arange(distinct * 3 * 224 * 224, dtype=torch.int64).mul_(31).remainder_(251).to(torch.uint8)
        self.pictures = self.pictures.view(distinct, 3, 224, 224)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.pictures[index % len(self.pictures)], index


class Jpegs(Dataset):
    """JPEGs in a folder, read like torchvision's `ImageFolder` with transforms."""

    def __init__(self, folder):
        from torchvision import transforms
        from torchvision.datasets import ImageFolder

        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.folder = ImageFolder(folder, transforms.Compose(steps))

    def __len__(self):
        return len(self.folder)

    def __getitem__(self, index):
        return self.folder[index]


def on_device(batch):
    return [part.to(DEVICE, non_blocking=True) for part in batch]


# ------------------------------------------------------------------------------------------------------------- checks


def check_batches():
    """Checks that batches on the device equal those of torch's loader, for processes and threads, while slow kernels run."""
    data = Pictures(70, 32)
    for method in ("multiprocessing", "thread"):
        for pinned in (False, True):
            for prefetch in (1, 3):
                options = {"batch_size": 8, "shuffle": True, "pin_memory": pinned}
                torch.manual_seed(1)
                expected = [[part.clone() for part in batch] for batch in torch.utils.data.DataLoader(data, **options)]
                torch.manual_seed(1)
                loader = slotline.torch.DataLoader(data, num_workers=2, worker_method=method, **options)
                got = []
                for x, y in slotline.torch.DeviceLoader(loader, DEVICE, prefetch=prefetch):
                    torch.cuda._sleep(2_000_000)
                    got.append((x.clone(), y.clone()))
                    del x, y
                assert len(got) == len(expected)
                for number, (mine, wanted) in enumerate(zip(got, expected)):
                    for a, b in zip(mine, wanted):
                        assert torch.equal(a.cpu(), b), f"{method}, pin_memory={pinned}, prefetch={prefetch}: batch {number}"
    yield {"ok": True}


def check_pinned():
    """Checks that pinned batches are page-locked, and unchanged when late copies read them. The copies are on a stream of
    the program's own, after the loop has dropped the batches."""
    data = Pictures(400, 32)
    side = torch.cuda.Stream()
    for loader in (
        slotline.torch.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True, persistent_workers=True),
        slotline.torch.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True, in_order=False),
        slotline.torch.DataLoader(torch.utils.data.TensorDataset(data.pictures, torch.arange(32)), batch_size=8, pin_memory=True),
    ):
        for _ in range(2):
            copies = []
            for x, y in loader:
                assert x.is_pinned() and y.is_pinned()
                with torch.cuda.stream(side):
                    torch.cuda._sleep(5_000_000)
                    copies.append(on_device((x, y)))
                del x, y
            side.synchronize()
            seen = []
            for x, y in copies:
                for row, number in enumerate(y.tolist()):
                    assert torch.equal(x[row].cpu(), data.pictures[number % 32]), f"sample {number}"
                    seen.append(number)
            assert sorted(seen) == list(range(len(loader.dataset)))
    yield {"ok": True}


def check_arrays():
    """Checks the batches of `slotline.Loader` on the device."""
    pictures = np.arange(64 * 3 * 32 * 32, dtype=np.int64).reshape(64, 3, 32, 32).astype(np.float32)
    data = slotline.Arrays(image=pictures, label=np.arange(64))
    loader = slotline.Loader(data, batch_size=8, shuffle=True, seed=3, num_workers=2, output="torch")
    seen = set()
    for _ in range(3):
        for batch in slotline.torch.DeviceLoader(loader, DEVICE):
            torch.cuda._sleep(2_000_000)
            labels = batch["label"].cpu()
            assert torch.equal(batch["image"].cpu(), torch.from_numpy(pictures[labels.numpy()]))
            seen.update(labels.tolist())
    assert len(seen) == 64
    yield {"ok": True}


# ------------------------------------------------------------------------------------------------------ what pinning costs


def pinning():
    """Measures `Tensor.pin_memory`, which the loop's thread would call for each batch, and registering shared memory."""
    for size in (64 << 10, MB, 9_633_792, 38_535_168):
        source = torch.randint(0, 255, (size,), dtype=torch.uint8)
        target = torch.empty_like(source)

        def timed(run, rounds=30):
            times = []
            for _ in range(rounds):
                begin = time.perf_counter()
                run()
                times.append(1e6 * (time.perf_counter() - begin))
            return spread(times)

        kept = [source.pin_memory() for _ in range(2)]
        del kept
        yield {
            "bytes": size,
            "pin_us": timed(lambda: source.pin_memory()),
            "copy_us": timed(lambda: target.copy_(source)),
            "is_pinned_us": timed(lambda: source.is_pinned()),
        }
    import mmap

    for size in (1 << 20, 64 << 20, 1 << 30):
        file = os.memfd_create("shared")
        os.ftruncate(file, size)
        memory = mmap.mmap(file, size)
        tensor = torch.frombuffer(memory, dtype=torch.uint8)
        tensor.fill_(1)
        runtime = torch.cuda.cudart()
        begin = time.perf_counter()
        code = runtime.cudaHostRegister(tensor.data_ptr(), size, 0)
        registered = time.perf_counter()
        pinned = tensor.is_pinned()
        end = time.perf_counter()
        released = runtime.cudaHostUnregister(tensor.data_ptr())
        yield {
            "registered": size,
            "code": str(code),
            "is_pinned": pinned,
            "released": str(released),
            "register_ms": 1e3 * (registered - begin),
            "unregister_ms": 1e3 * (time.perf_counter() - end),
        }
        os.close(file)


# ------------------------------------------------------------------------------------------------------------- training


class Net(torch.nn.Module):
    """A small convolutional network for pictures whose values are bytes."""

    def __init__(self):
        super().__init__()
        layers = [torch.nn.Conv2d(3, 32, 7, stride=4), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, stride=2), torch.nn.ReLU()]
        self.body = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 10))

    def forward(self, x):
        x = x.half() / 255 if x.dtype == torch.uint8 else x.half()
        return self.body(x)


class Trainer:
    def __init__(self):
        self.net = Net().to(DEVICE).half()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)

    def step(self, x, y):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.net(x), y % 10).backward()
        self.optimizer.step()

    def run(self, batches):
        """Trains on the batches. Returns the total seconds, the seconds of waiting for batches, and the number of batches."""
        torch.cuda.synchronize()
        begin, waited, count = time.perf_counter(), 0.0, 0
        batches = iter(batches)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            x, y = batch.values() if isinstance(batch, dict) else batch
            if x.device.type == "cpu":
                x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
            self.step(x, y)
            count += 1
            del batch, x, y
        torch.cuda.synchronize()
        return time.perf_counter() - begin, waited, count


def compare(case, loaders, resident, rounds=4):
    """Trains with each loader in turn. For comparison, it also runs the steps on one batch that stays on the device."""
    trainer = Trainer()
    results = {name: ([], []) for name in [*loaders, "no loader"]}
    for number in range(rounds + 1):
        count = None
        for name, loader in loaders.items():
            seconds, waited, count = trainer.run(loader)
            if number:
                results[name][0].append(1e6 * seconds / count)
                results[name][1].append(1e6 * waited / count)
        seconds, waited, count = trainer.run([resident] * count)
        if number:
            results["no loader"][0].append(1e6 * seconds / count)
            results["no loader"][1].append(1e6 * waited / count)
    for name, (steps, waits) in results.items():
        hidden = [floor / step for floor, step in zip(results["no loader"][0], steps)]
        row = {"case": case, "loader": name, "workers": WORKERS, "step_us": spread(steps), "next_us": spread(waits)}
        yield row | {"hidden": spread(hidden)}


def from_memory():
    """Compares loaders of pictures that are bytes in memory, in batches of 64."""
    data = Pictures(64 * 150)
    options = {"batch_size": 64, "shuffle": True, "num_workers": WORKERS, "persistent_workers": True}
    pictures, labels = data.pictures, torch.arange(len(data.pictures))
    tensors = torch.utils.data.ConcatDataset([torch.utils.data.TensorDataset(pictures, labels)] * (len(data) // len(pictures)))
    arrays = slotline.Arrays(image=pictures.numpy(), label=labels.numpy())
    arrays = slotline.Subset(arrays, np.arange(len(data)) % len(pictures))
    engine = slotline.Loader(arrays, 64, shuffle=True, num_workers=WORKERS, output="torch")
    ours = slotline.torch.DataLoader(data, pin_memory=True, **options)
    loaders = {
        "torch, pin_memory": torch.utils.data.DataLoader(data, pin_memory=True, **options),
        "slotline, pin_memory": ours,
        "slotline, pageable": slotline.torch.DataLoader(data, **options),
        "slotline, DeviceLoader": slotline.torch.DeviceLoader(slotline.torch.DataLoader(data, **options), DEVICE),
        "slotline, tensors, DeviceLoader": slotline.torch.DeviceLoader(
            slotline.torch.DataLoader(tensors, batch_size=64, shuffle=True), DEVICE
        ),
        "slotline.Loader, DeviceLoader": slotline.torch.DeviceLoader(engine, DEVICE),
    }
    resident = on_device((pictures[:64], labels[:64]))
    yield from compare("64 pictures of bytes from memory", loaders, resident)


def from_pictures():
    """Compares loaders of JPEGs of 500 × 375 pixels from a folder, in batches of 64, with a random crop."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        for number in range(1024):
            path = Path(folder) / str(number % 4) / f"{number}.jpg"
            path.parent.mkdir(exist_ok=True)
            if number < 64:
                coarse = rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)
                picture = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
                encoded = io.BytesIO()
                picture.save(encoded, "JPEG", quality=90)
                made = [encoded.getvalue()] if number == 0 else [*made, encoded.getvalue()]
            path.write_bytes(made[number % 64])
        options = {"batch_size": 64, "shuffle": True, "num_workers": WORKERS, "persistent_workers": True, "drop_last": True}
        data = Jpegs(folder)
        engine = slotline.open(folder, image="random_resized_crop(224), hflip")
        engine = slotline.Loader(engine, 64, shuffle=True, num_workers=WORKERS, drop_last=True, output="torch")
        loaders = {
            "torch, pin_memory": torch.utils.data.DataLoader(data, pin_memory=True, **options),
            "slotline, pin_memory": slotline.torch.DataLoader(data, pin_memory=True, **options),
            "slotline, DeviceLoader": slotline.torch.DeviceLoader(slotline.torch.DataLoader(data, **options), DEVICE),
            "slotline.Loader, DeviceLoader": slotline.torch.DeviceLoader(engine, DEVICE),
        }
        resident = (torch.rand(64, 3, 224, 224, device=DEVICE), torch.arange(64, device=DEVICE))
        yield from compare("64 JPEGs of 500 × 375", loaders, resident, rounds=3)


PARTS = [check_batches, check_pinned, check_arrays, pinning, from_memory, from_pictures]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--only", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    end, failed = time.monotonic() + arguments.limit, False
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name()}
    print(json.dumps(about), flush=True)
    for part in PARTS:
        if arguments.only and part.__name__ not in arguments.only:
            continue
        if time.monotonic() > end:
            print(json.dumps({"part": part.__name__, "ok": None, "why": "no time left"}), flush=True)
            continue
        try:
            for line in part():
                print(json.dumps({"part": part.__name__} | line), flush=True)
        except Exception:
            failed = True
            print(json.dumps({"part": part.__name__, "ok": False, "why": traceback.format_exc()[-1500:]}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
