"""Pictures that are processed natively: all bits and random draws are compared with torch's loader
and torchvision."""

import functools
import io
import pickle
import random
import signal
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.utils.data as tud
from conftest import same
from datasets import Samples, resume, taken
from PIL import Image
from torch.utils.data._utils import collate
from torchvision import datasets, transforms as v1
from torchvision.transforms import InterpolationMode, v2

from slotline.torch import DataLoader, lift
from slotline.torch._lift import fetch, transforms as lifting
from slotline.torch._lift.draws import Draws

MEAN_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def photo(height, width, seed):
    """Returns a picture with edges and smooth parts."""
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(0, 6, (height, width, 3)), axis=1) + rng.integers(0, 255, 3)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


FILES = {
    "colour.jpg": lambda: (photo(120, 90, 1), {}),
    "full.jpg": lambda: (photo(61, 200, 2), {"subsampling": 0, "quality": 97}),
    "progressive.jpg": lambda: (photo(75, 60, 3), {"progressive": True}),
    "grey.jpg": lambda: (photo(50, 70, 4).convert("L"), {}),
    "cmyk.jpg": lambda: (photo(40, 44, 5).convert("CMYK"), {}),
    "exif.jpg": lambda: (photo(33, 80, 6), {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"}),
    "colour.png": lambda: (photo(70, 71, 7), {}),
    "palette.png": lambda: (photo(64, 50, 8).convert("P"), {"transparency": 3}),
    "alpha.png": lambda: (photo(45, 52, 9).convert("RGBA"), {}),
    "grey-alpha.png": lambda: (photo(45, 52, 10).convert("LA"), {}),
    "bits.png": lambda: (photo(45, 52, 11).convert("1"), {}),
    "deep.png": lambda: (Image.fromarray(np.arange(40 * 41, dtype=np.uint16).reshape(40, 41) * 39), {}),
    "point.png": lambda: (photo(1, 1, 12), {}),
    "wide.png": lambda: (photo(20, 700, 13), {}),
    "other.webp": lambda: (photo(60, 61, 14), {"lossless": True}),
    "other.bmp": lambda: (photo(30, 61, 15), {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    for number, (name, make) in enumerate(FILES.items()):
        path = root / "ab"[number % 2] / name
        path.parent.mkdir(exist_ok=True)
        image, options = make()
        image.save(path, **options)
    return root


@pytest.fixture(autouse=True)
def trusted(monkeypatch, request, capfd):
    """A fixture: disables the comparison of the first pictures, which would hide differences, and
    fails if native code panics."""
    if "turns_it_off" not in request.node.name:
        monkeypatch.setattr(lifting.Lifter, "to_compare", 0)
    yield
    assert "panicked" not in capfd.readouterr().err


@pytest.fixture
def natively(monkeypatch):
    """A fixture: fails if torchvision processes a batch."""

    def fail(*_):
        raise AssertionError("torchvision had to make a batch")

    monkeypatch.setattr(fetch.DeferredFetcher, "fetch_plainly", fail)


def to_tensor(t):
    return [t.ToTensor()] if t is v1 else [t.ToImage(), t.ToDtype(torch.float32, scale=True)]


def to_bytes(t):
    return t.PILToTensor() if t is v1 else t.ToImage()


def to_numbers(t):
    return [t.ConvertImageDtype(torch.float32) if t is v1 else t.ToDtype(torch.float32, scale=True), t.Normalize(*MEAN_STD)]


def seed(number=1):
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def states():
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


def as_torch(dataset, *arguments, epochs=1, number=1, **options):
    """Compares passes and the random numbers after them with torch's loader. Returns our loader."""
    seed(number)
    own = {name: options.pop(name) for name in ("worker_method",) if name in options}
    loader = tud.DataLoader(dataset, *arguments, **options)
    theirs, after = [list(loader) for _ in range(epochs)], states()
    seed(number)
    loader = DataLoader(dataset, *arguments, **options, **own)
    same([list(loader) for _ in range(epochs)], theirs)
    assert states() == after
    return loader


PIPELINES = {
    "training": lambda t: [t.RandomResizedCrop(48), t.RandomHorizontalFlip(), *to_tensor(t), t.Normalize(*MEAN_STD)],
    "validation": lambda t: [t.Resize(52), t.CenterCrop(48), *to_tensor(t), t.Normalize(*MEAN_STD)],
    "longest": lambda t: [t.Resize(30, max_size=40), t.CenterCrop([60, 20]), t.PILToTensor()],
    "bicubic": lambda t: [t.RandomResizedCrop((30, 41), interpolation=InterpolationMode.BICUBIC), *to_tensor(t)],
    "nearest": lambda t: [t.Resize((41, 30), interpolation=InterpolationMode.NEAREST), *to_tensor(t)],
    "jitter": lambda t: [t.Resize((40, 40)), t.ColorJitter(0.4, 0.4, 0.4, 0.1), *to_tensor(t), t.Normalize(*MEAN_STD)],
    "grey": lambda t: [t.Resize((40, 40)), t.RandomGrayscale(0.5), t.RandomVerticalFlip(), *to_tensor(t)],
    "one channel": lambda t: [t.Grayscale(), t.Resize((20, 21)), t.ColorJitter(0.5, 0.5, 0.5, 0.5), *to_tensor(t)],
    "pad behind": lambda t: [t.RandomResizedCrop((3, 41)), t.Pad(4, fill=58), *to_tensor(t)],
    "pad": lambda t: [t.Pad([1, 2, 3, 4], fill=(9, 8, 7)), t.Resize((40, 40)), t.PILToTensor()],
    **{
        f"crop {mode}": lambda t, mode=mode: [
            t.Resize((40, 40)),
            t.RandomCrop((44, 36), padding=3, fill=77, padding_mode=mode),
            t.PILToTensor(),
        ]
        for mode in ("constant", "edge", "reflect", "symmetric")
    },
    "crop if needed": lambda t: [t.RandomCrop(70, pad_if_needed=True), *to_tensor(t)],
    "apply": lambda t: [t.Resize((40, 40)), t.RandomApply([t.ColorJitter(0.5), t.RandomHorizontalFlip()], p=0.5), *to_tensor(t)],
    "choice": lambda t: [t.RandomChoice([t.CenterCrop(40), t.Resize((40, 40))]), *to_tensor(t)],
    "order": lambda t: [t.RandomOrder([t.CenterCrop(40), t.Resize((40, 40))]), *to_tensor(t)],
    "nested": lambda t: [t.Compose([t.Resize((40, 40)), t.Compose([t.RandomCrop(30)])]), *to_tensor(t)],
    "rand": lambda t: [t.Resize((40, 40)), t.RandAugment(3), *to_tensor(t)],
    "trivial": lambda t: [t.Resize((40, 40)), t.TrivialAugmentWide(), *to_tensor(t)],
    "auto": lambda t: [t.Resize((40, 40)), t.AutoAugment(), *to_tensor(t)],
    "values": lambda t: [
        t.Resize((40, 40)),
        t.RandomInvert(),
        t.RandomPosterize(3),
        t.RandomSolarize(100),
        t.RandomAdjustSharpness(1.7),
        t.RandomAutocontrast(),
        t.RandomEqualize(),
        *to_tensor(t),
    ],
    "types": lambda t: [t.Resize((40, 40)), t.PILToTensor(), t.ConvertImageDtype(torch.float64)],
    "erasing": lambda t: [t.RandomResizedCrop(40), *to_tensor(t), t.Normalize(*MEAN_STD), t.RandomErasing(0.9)],
    "colours": lambda t: [t.RandomResizedCrop(40), *to_tensor(t), t.RandomHorizontalFlip(), t.RandomErasing(0.9, value=(0.5, 3, -1))],
    # In the pipelines from here on, Python executes a part, of those of tensors only with transforms v1.
    "tensor training": lambda t: [to_bytes(t), t.RandomResizedCrop(48), t.RandomHorizontalFlip(), *to_numbers(t)],
    "tensor validation": lambda t: [to_bytes(t), t.Resize(52), t.CenterCrop(48), *to_numbers(t)],
    "tensor bicubic": lambda t: [t.PILToTensor(), t.Resize((40, 41), interpolation=InterpolationMode.BICUBIC)],
    "tensor crop": lambda t: [to_bytes(t), t.RandomCrop((44, 36), 4, True, 9), t.RandomVerticalFlip(), *to_numbers(t), t.RandomErasing()],
    "tensor colours": lambda t: [to_bytes(t), t.Pad(3, fill=9 if t is v1 else (9, 8, 7)), t.CenterCrop(60), *to_numbers(t)],
    "tensor apply": lambda t: [t.Resize(50), to_bytes(t), t.RandomApply([t.CenterCrop(40), t.Resize((50, 50))]), t.Resize((9, 9))],
    "noise": lambda t: [t.RandomResizedCrop(40), *to_tensor(t), t.RandomErasing(0.9, value="random")],
    "blur": lambda t: [t.RandomResizedCrop(40), t.GaussianBlur(5), *to_tensor(t)],
    "own": lambda t: [t.RandomResizedCrop(40), t.Lambda(lambda image: image.rotate(torch.rand(1).item())), *to_tensor(t)],
}


def test_what_is_no_transform_is_refused():
    for value in (5, [v1.ToTensor()], None):
        with pytest.raises(TypeError, match="lift needs a transform"):
            lift(value)


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", PIPELINES)
def test_pictures_have_the_bits_of_torchvision(name, t, folder):
    if name == "order" and t is v2:
        pytest.skip("it draws a permutation of torch, and is not known")
    dataset = datasets.ImageFolder(folder, t.Compose(PIPELINES[name](t)))
    as_torch(dataset, 3, shuffle=True, num_workers=1)
    loader = as_torch(dataset, 3, shuffle=True, epochs=2)
    assert loader.plan().startswith("ImageFolder: natively ")
    assert ("by Python" in loader.plan()) == (name in ("noise", "blur", "own") or (t is v1 and name.startswith("tensor ")))


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 4},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True},
        {"num_workers": 2, "worker_init_fn": np.random.seed},
        {"collate_fn": tuple, "num_workers": 2},
        {"batch_size": None},
        {"drop_last": True},
    ],
    ids=", ".join,
)
def test_pictures_are_the_same_however_they_are_loaded(options, folder):
    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["training"](v1)))
    as_torch(dataset, **{"batch_size": 3, "shuffle": True, "epochs": 2, **options})


@pytest.mark.parametrize("name", ["training", "erasing", "tensor training", "tensor validation", "tensor crop", "tensor colours"])
def test_all_is_done_natively(name, folder, natively):
    for workers in (0, 2):
        dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES[name](v2 if "tensor" in name else v1)))
        # PIL decodes these files, but torchvision's transforms do not run.
        others = ("deep.png", "point.png") if "tensor" in name else "deep.png"
        dataset.samples = [sample for sample in dataset.samples if not sample[0].endswith(others)]
        as_torch(dataset, 4, shuffle=True, num_workers=workers)


def test_resizes_of_tensors_on_other_cpus_are_not_guessed(folder, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    dataset = datasets.ImageFolder(folder, v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(), v2.Resize((40, 41))]))
    assert "by Python Resize: Resize has floating-point numbers" in as_torch(dataset, 3).plan()


def test_threads_have_the_same_pictures(folder):
    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["validation"](v1)))
    as_torch(dataset, 3, num_workers=2, worker_method="thread")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_threads_that_draw_while_another_compares_are_no_difference(folder, monkeypatch):
    monkeypatch.setattr(lifting.Lifter, "to_compare", 10)
    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["training"](v1)))
    dataset.samples = [sample for sample in dataset.samples if sample[0].endswith("colour.jpg")] * 80
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for _ in range(3):
            list(DataLoader(dataset, 4, num_workers=4, worker_method="thread"))


@pytest.mark.parametrize("name", ["jitter", "tensor crop"])
def test_a_loader_resumes_within_a_pass(name, folder):
    dataset = datasets.ImageFolder(folder, v2.Compose(PIPELINES[name](v2)))
    for workers in (0, 2):
        seed()
        state, rest = taken(DataLoader(dataset, 3, shuffle=True, num_workers=workers), 2)
        generators = None
        if workers == 0:
            # Without workers, these random states are the program's.
            seed()
            batches = iter(DataLoader(dataset, 3, shuffle=True))
            next(batches), next(batches)
            generators = torch.get_rng_state()
        seed(99)
        loader = resume(DataLoader(dataset, 3, shuffle=True, num_workers=workers), state)
        batches = iter(loader)
        if generators is not None:
            torch.set_rng_state(generators)
        same(list(batches), rest)


def made(kind, **attributes):
    """Returns a dataset of torchvision with this data in memory."""
    dataset = kind.__new__(kind)
    dataset.__dict__.update({"transform": None, "target_transform": None, **attributes})
    return dataset


def arrays(shape, count=12):
    return np.random.default_rng(3).integers(0, 256, (count, *shape), dtype=np.uint8)


def in_memory(transform):
    labels = list(range(12))
    return {
        "CIFAR10": made(datasets.CIFAR10, data=arrays((32, 32, 3)), targets=labels, transform=transform),
        "CIFAR100": made(datasets.CIFAR100, data=arrays((32, 32, 3)), targets=labels, transform=transform),
        "MNIST": made(datasets.MNIST, data=torch.from_numpy(arrays((28, 28))), targets=torch.arange(12), transform=transform),
        "EMNIST": made(datasets.EMNIST, data=torch.from_numpy(arrays((28, 28))), targets=torch.arange(12), transform=transform),
        "SVHN": made(datasets.SVHN, data=arrays((3, 32, 32)), labels=np.arange(12), transform=transform),
        "STL10": made(datasets.STL10, data=arrays((3, 96, 96)), labels=np.arange(12), transform=transform),
        "USPS": made(datasets.USPS, data=arrays((16, 16)), targets=labels, transform=transform),
    }


@pytest.mark.parametrize("name", in_memory(None))
def test_arrays_in_memory_are_pictures(name, natively):
    grey = name in ("MNIST", "EMNIST", "USPS")
    normalize = v1.Normalize([0.1], [0.3]) if grey else v1.Normalize(*MEAN_STD)
    augment = [v2.RandomCrop(16, padding=4), v2.RandomHorizontalFlip()]
    for parts in [*augment, v1.ToTensor(), normalize], [v2.ToImage(), *augment, v2.ToDtype(torch.float32, scale=True), normalize]:
        for workers in (0, 1):
            loader = as_torch(in_memory(v1.Compose(parts))[name], 5, shuffle=True, num_workers=workers)
        assert loader.plan() == f"{name}: natively {', '.join(type(part).__name__ for part in parts)}"


def test_folders_of_files_with_other_classes(folder, natively):
    files = sorted(path for path in folder.glob("*/*") if path.name != "deep.png")
    transform = v1.Compose(PIPELINES["training"](v1))
    flowers = made(datasets.Flowers102, _image_files=files, _labels=list(range(len(files))), transform=transform, loader=datasets.folder.default_loader)
    assert as_torch(flowers, 4, num_workers=1).plan().startswith("Flowers102: natively")


def test_parts_of_datasets_are_known(folder, natively):
    transform = v1.Compose([v1.RandomCrop(16, padding=4), v1.ToTensor()])
    cifar, cifar100 = (in_memory(transform)[name] for name in ("CIFAR10", "CIFAR100"))
    first, second = tud.random_split(cifar, [5, 7], generator=torch.Generator().manual_seed(1))
    dataset = tud.ConcatDataset([tud.Subset(tud.Subset(first, [4, 1, 2]), [-1, 0]), cifar100, second])
    assert as_torch(dataset, 4, shuffle=True, num_workers=2).plan().count("natively") == 3


SIMPLE = v1.Compose([v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor()])


def test_numbers_that_were_drawn_ahead_are_those_of_torch(natively, monkeypatch):
    # A batch uses up several reserves, and an odd number of words.
    dataset = made(datasets.CIFAR10, data=arrays((32, 32, 3), 900), targets=list(range(900)), transform=SIMPLE)
    as_torch(dataset, 301, True, epochs=3)
    as_torch(dataset, 7, num_workers=2)

    def batches(loader):
        seed()
        for number, batch in enumerate(loader):
            yield batch
            # The loop draws, too, or goes back.
            if number % 3 == 0:
                yield torch.rand(number % 2 + 1)
            elif number % 5 == 0:
                torch.manual_seed(number)
        yield states()

    def own(index):
        """Draws from the same generator as the transforms of its batch."""
        if index == 17:
            raise KeyError(index)
        torch.rand(1)
        return index

    same(list(batches(DataLoader(dataset, 10))), list(batches(tud.DataLoader(dataset, 10))))
    monkeypatch.undo()
    dataset.target_transform = own
    outcomes = []
    for loader in DataLoader(dataset, 4), tud.DataLoader(dataset, 4):
        seed()
        got = []
        with pytest.raises(KeyError):
            got.extend(loader)
        outcomes.append((got, states()))
    same(*outcomes)


def test_numbers_are_drawn_ahead_after_an_interrupt():
    class Interrupted:
        def set_state(self, state):
            raise KeyboardInterrupt

    first, second = (torch.Generator().manual_seed(number).get_state() for number in (1, 2))
    draws = Draws()
    generator = draws._generator
    assert draws.begin(first)
    number = float(draws.rand(1))
    draws.cancel()
    draws._state = first
    draws._generator = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        draws.begin(second)
    draws._generator = generator
    assert draws.begin(first)
    assert float(draws.rand(1)) == number
    draws.cancel()


def test_a_number_is_compared_as_by_torch():
    draws = Draws()
    for start in range(20):
        generator = torch.Generator().manual_seed(start)
        assert draws.begin(generator.get_state())
        exact = torch.rand(1, generator=generator)
        number = draws.rand(1)
        for p in (exact.item() + d for d in (0, 1e-12, -1e-12, 1e-7, -1e-7)):
            assert [number < p, p < number, number >= p, p >= number, number > p, number <= p] == [
                bool(it) for it in (exact < p, p < exact, exact >= p, p >= exact, exact > p, exact <= p)
            ]
        draws.cancel()


def changed_in_a_pass(kind, make, change):
    """Batches of a pass during which something is changed, and the random numbers behind them."""
    dataset = make()
    seed()
    seen = []
    for number, batch in enumerate(kind(dataset, 5)):
        seen.append(batch)
        if number == 1:
            change(dataset)
    return seen, states()


def one_cifar(*parts):
    return made(datasets.CIFAR10, data=arrays((32, 32, 3), 30), targets=list(range(30)), transform=v1.Compose([*parts, v1.ToTensor()]))


def with_p(p):
    flip = v1.RandomHorizontalFlip()
    flip.p = p
    return one_cifar(flip)


def exchange(apply):
    del apply.transforms[0]
    apply.transforms.append(v1.RandomHorizontalFlip(1.0))


def zeros(indices):
    return [(torch.zeros(2), 0) for _ in indices]


class Turned(v1.RandomHorizontalFlip):
    def forward(self, image):
        return image.rotate(90)


def flips():
    return one_cifar(v1.RandomHorizontalFlip())


CHANGES = {
    "tensor": (lambda: with_p(torch.tensor(0.0)), lambda d: d.transform.transforms[0].p.fill_(1)),
    "method": (flips, lambda d: setattr(d.transform.transforms[0], "forward", lambda image: image.rotate(90))),
    "class": (flips, lambda d: setattr(d.transform.transforms[0], "__class__", Turned)),
    "same place": (lambda: one_cifar(v1.RandomApply([v1.RandomHorizontalFlip(0.0)], 1.0)), lambda d: exchange(d.transform.transforms[0])),
    "subset": (lambda: tud.Subset(flips(), range(30)), lambda d: setattr(d, "dataset", one_cifar(v1.Pad(2)))),
    "parts": (lambda: tud.ConcatDataset([flips()]), lambda d: d.datasets.__setitem__(0, one_cifar(v1.Pad(2)))),
    "batches": (flips, lambda d: setattr(d, "__getitems__", zeros)),
    "target": (flips, lambda d: setattr(d, "target_transform", lambda k: k + torch.rand(1))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_in_a_pass_count(name):
    same(*(changed_in_a_pass(kind, *CHANGES[name]) for kind in (DataLoader, tud.DataLoader)))


def test_what_is_changed_in_classes_and_functions_in_a_pass_counts(monkeypatch):
    def changed(kind, name, holder, function):
        with monkeypatch.context() as patch:
            return changed_in_a_pass(kind, flips, lambda _: patch.setattr(holder, name, function))

    rand = torch.rand
    for change in (
        ("forward", v1.RandomHorizontalFlip, lambda self, image: image.rotate(90)),
        ("hflip", v1.functional, lambda image: image.rotate(90)),
        ("rand", torch, lambda *size: rand(*size) * 0 + 0.1),
        ("__getitem__", datasets.CIFAR10, lambda self, index: (torch.zeros(2), 0)),
    ):
        same(*(changed(kind, *change) for kind in (DataLoader, tud.DataLoader)))


def test_datasets_that_read_whole_batches_are_not_guessed(monkeypatch):
    for dataset in flips(), tud.Subset(flips(), range(20)):
        dataset.__getitems__ = zeros
        as_torch(dataset, 4)
    monkeypatch.setattr(tud.Subset, "__getitems__", functools.wraps(tud.Subset.__getitems__)(lambda self, indices: zeros(indices)))
    as_torch(tud.Subset(flips(), range(20)), 4)


def test_numbers_of_other_types_are_drawn_by_torch(natively):
    as_torch(flips(), 4)
    for dtype in torch.float64, torch.float16:
        torch.set_default_dtype(dtype)
        try:
            as_torch(flips(), 4)
        finally:
            torch.set_default_dtype(torch.float32)

    class Least(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), named=None):
            result = function(*arguments, **(named or {}))
            return result * 0 if function is torch.rand else result

    with Least():
        as_torch(flips(), 4)


def test_a_colour_for_the_images_of_pil(natively):
    fill = {Image.Image: 5, "others": 9}
    pictures = made(datasets.CIFAR10, data=arrays((32, 32, 3)), targets=list(range(12)))
    for part in v2.Pad(4, fill=fill), v2.RandomCrop(40, padding=8, fill=fill), v2.RandAugment(3, fill=fill):
        pictures.transform = v2.Compose([part, v1.ToTensor()])
        as_torch(pictures, 4)


def test_targets_may_be_changed_by_the_program(folder):
    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["training"](v1)), target_transform=lambda k: k + torch.rand(1))
    as_torch(dataset, 4, num_workers=1)
    as_torch(tud.ConcatDataset([dataset, Samples(3, lambda k: (torch.ones(3, 48, 48), torch.tensor([k])))]), 4)


class OwnCrop(v1.RandomResizedCrop):
    pass


def flipped(self, image):
    return image


def hooked():
    flip = v1.RandomHorizontalFlip()
    flip.register_forward_hook(lambda *_: None)
    return flip


def patched():
    flip = v1.RandomHorizontalFlip()
    flip.forward = lambda image: image
    return flip


@pytest.mark.parametrize("make", [lambda: OwnCrop(40), hooked, patched], ids=["subclass", "hook", "method"])
def test_what_is_not_torchvisions_is_not_guessed(make, folder):
    dataset = datasets.ImageFolder(folder, v1.Compose([make(), v1.Resize((40, 40)), v1.ToTensor()]))
    assert "by Python, since" in as_torch(dataset, 4).plan()
    with_method = datasets.ImageFolder(folder, v1.Compose(PIPELINES["training"](v1)), loader=lambda path: Image.open(path).convert("RGB"))
    assert with_method and "another loader" in as_torch(with_method, 4).plan()


def test_a_patched_class_is_not_guessed(folder, monkeypatch):
    monkeypatch.setattr(v1.RandomHorizontalFlip, "forward", flipped)
    dataset = datasets.ImageFolder(folder, v1.Compose([v1.RandomHorizontalFlip(), v1.Resize((40, 40)), v1.ToTensor()]))
    assert "RandomHorizontalFlip is not torchvision's" in as_torch(dataset, 4).plan()


@pytest.mark.parametrize("workers", [0, 1])
def test_another_pillow_turns_it_off(workers, folder, monkeypatch):
    resize = Image.Image.resize
    monkeypatch.setattr(Image.Image, "resize", lambda self, *args, **named: Image.eval(resize(self, *args, **named), lambda x: x ^ 1))
    dataset = datasets.ImageFolder(folder, v1.Compose([v1.Resize((40, 41)), v1.RandomHorizontalFlip(), v1.ToTensor()]))
    if workers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            as_torch(dataset, 4, num_workers=workers)
    else:
        with pytest.warns(RuntimeWarning, match="^Resize gives other pixels"):
            as_torch(dataset, 4)


def test_numbers_that_another_thread_draws_are_no_difference(monkeypatch):
    monkeypatch.setattr(lifting.Lifter, "to_compare", 2)
    draw, calls = lifting.Lifter.draw, []

    def disturbed(self, image):
        if len(calls) < 3:
            calls.append(torch.rand(1))
        return draw(self, image)

    monkeypatch.setattr(lifting.Lifter, "draw", disturbed)
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lifted = lift(flips().transform)
            image = photo(32, 32, 1)
            assert any(torch.equal(lifted(image), v1.ToTensor()(turned)) for turned in (image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)))
    finally:
        ended.set()
        other.join()
    assert len(calls) == 3 and lifted._lifter.is_on


def test_threads_do_not_disturb_each_others_comparisons(folder, monkeypatch):
    monkeypatch.setattr(lifting.Lifter, "to_compare", 2)
    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["training"](v1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for _ in range(5):
            assert len(list(DataLoader(dataset, 2, num_workers=3, worker_method="thread"))) == 8


@pytest.mark.parametrize("damage", [b"", b"\xff\xd8\xff", None], ids=["empty", "start", "cut"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_file_is_the_same_error(damage, workers, tmp_path):
    (tmp_path / "class").mkdir()
    for number in range(6):
        photo(50, 60, number).save(tmp_path / "class" / f"{number}.jpg")
    victim = tmp_path / "class" / "4.jpg"
    victim.write_bytes(victim.read_bytes()[:-300] if damage is None else damage)
    dataset = datasets.ImageFolder(tmp_path, v1.Compose(PIPELINES["training"](v1)))

    def outcome(kind):
        seed()
        batches, seen = iter(kind(dataset, 2, num_workers=workers)), []
        for _ in range(3):
            try:
                seen.append(next(batches))
            except Exception as error:
                seen.append((type(error).__name__, str(error).split("\n")[-2:] if workers else str(error)))
        return seen, states()

    (ours, our_states), (theirs, their_states) = outcome(DataLoader), outcome(tud.DataLoader)
    same(ours, theirs)
    assert our_states == their_states and isinstance(theirs[2][0], str)


def test_damage_of_any_kind_has_the_same_outcome(tmp_path):
    rng = random.Random(5)
    (tmp_path / "class").mkdir()
    for number in range(80):
        buffer = io.BytesIO()
        photo(60, 50, number).save(buffer, rng.choice(["JPEG", "JPEG", "PNG"]), progressive=number % 7 == 0)
        data = bytearray(buffer.getvalue())
        for _ in range(rng.choice([1, 1, 3, 30])):
            data[rng.randrange(2, len(data))] = rng.randrange(256)
        if number % 5 == 0:
            data = data[: rng.randrange(10, len(data))] + b"\xff\xd9"
        (tmp_path / "class" / f"{number:02}.jpg").write_bytes(data)
    dataset = datasets.ImageFolder(tmp_path, v1.Compose([v1.RandomResizedCrop(20), v1.ToTensor()]))

    def outcomes(kind):
        seed()
        found = []
        for k in range(len(dataset)):
            try:
                found.append(next(iter(kind(tud.Subset(dataset, [k]), 1, num_workers=0))))
            except Exception as error:
                found.append((type(error).__name__, str(error)[:40]))
        return found, states()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (ours, our_states), (theirs, their_states) = outcomes(DataLoader), outcomes(tud.DataLoader)
    same(ours, theirs)
    assert our_states == their_states


def test_samples_that_are_errors_are_left_out(folder, tmp_path):
    (tmp_path / "class").mkdir()
    for number in range(4):
        photo(50, 60, number).save(tmp_path / "class" / f"{number}.jpg")
    (tmp_path / "class" / "2.jpg").write_bytes(b"nothing")
    dataset = datasets.ImageFolder(tmp_path, v1.Compose(PIPELINES["validation"](v1)))
    loader = DataLoader(dataset, 4, on_error="skip")
    with pytest.warns(RuntimeWarning, match="1 samples were left out"):
        ((pictures, _),) = loader
    same(pictures, torch.stack([dataset[k][0] for k in (0, 1, 3)]))


def test_lift_is_an_option(folder):
    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["training"](v1)))
    assert DataLoader(dataset, lift=False).plan() == "by Python, since lift=False"
    with pytest.raises(ValueError, match="lift is a bool, and not 1"):
        DataLoader(dataset, lift=1)
    assert DataLoader(range(3)).plan() == "range: by Python, since its class is not known"


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["training", "jitter", "own", "one channel"])
def test_lift_is_a_transform(name, t, folder):
    transform = t.Compose(PIPELINES[name](t))
    lifted = lift(transform)
    assert lifted.plan().startswith("natively ")
    for mode in ("RGB", "L", "RGBA", "P", "CMYK"):
        for number in range(4):
            image = photo(50, 61, number).convert(mode)
            seed(number)
            theirs = outcome_of(transform, image)
            after = states()
            seed(number)
            same(outcome_of(lifted, image), theirs)
            assert states() == after
    if name != "own":
        again = pickle.loads(pickle.dumps(lifted))
        seed()
        theirs = transform(photo(50, 61, 1))
        seed()
        same(again(photo(50, 61, 1)), theirs)


def outcome_of(function, value):
    try:
        return function(value)
    except Exception as error:
        return type(error), str(error)


def test_lift_in_a_dataset_of_ones_own():
    buffer = io.BytesIO()
    photo(50, 60, 1).save(buffer, "JPEG")
    transform = v1.Compose(PIPELINES["training"](v1))

    def sample(transform, k):
        return transform(Image.open(buffer).convert("RGB")), k

    seed()
    theirs = list(tud.DataLoader(Samples(6, lambda k: sample(transform, k)), 3, num_workers=1))
    seed()
    lifted = lift(transform)
    same(list(DataLoader(Samples(6, lambda k: sample(lifted, k)), 3, num_workers=1)), theirs)


@pytest.mark.parametrize("name", ["training", "jitter", "own"])
def test_an_opened_jpeg_is_decoded_natively(name, tmp_path):
    transform = v1.Compose(PIPELINES[name](v1))
    lifted = lift(transform)
    kinds = {
        "plain": (lambda image: image, {}),
        "progressive": (lambda image: image, {"progressive": True, "quality": 60}),
        "tables": (lambda image: image, {"subsampling": 0, "optimize": True, "comment": b"words", "dpi": (30, 40)}),
        "grey": (lambda image: image.convert("L"), {}),
        "four": (lambda image: image.convert("CMYK"), {}),
    }
    # The first images are compared, which PIL reads.
    for _ in range(3):
        lifted(photo(70, 90, 0))
    for number, (kind, (change, options)) in enumerate(kinds.items()):
        path = tmp_path / f"{kind}.jpg"
        change(photo(130 + number, 150 - number, number)).save(path, "JPEG", **options)

        def opened(how):
            image = Image.open(io.BytesIO(path.read_bytes()) if how == "memory" else path)
            if how == "draft":
                image.draft("RGB", (40, 40))
            elif how == "read":
                image.load()
            elif how == "moved":
                image.fp.seek(7)
            return image

        for how in ("file", "memory", "draft", "read", "moved"):
            seed(number)
            theirs = outcome_of(transform, opened(how))
            after = states()
            seed(number)
            image = opened(how)
            same(outcome_of(lifted, image), theirs)
            assert states() == after
            assert bool(image.tile) == (image.mode == "RGB" and how not in ("draft", "read"))
            same(image.tobytes(), opened(how).tobytes())
    closed = opened("file")
    closed.close()
    assert outcome_of(lifted, closed) == outcome_of(transform, closed)


def test_a_lifted_transform_takes_what_the_transform_takes():
    image, array = photo(50, 60, 1), np.zeros((4, 5, 3), np.uint8)
    # Functions of C have no attributes.
    assert lift(np.asarray)(image).shape == (50, 60, 3) and lift(np.asarray).plan().startswith("natively nothing")
    smaller = v1.Compose([v1.Resize((20, 21)), np.array])
    same(lift(smaller)(image).tolist(), smaller(image).tolist())
    assert lift(smaller).plan().startswith("natively Resize; by Python array")
    assert lift(lambda *, image, mask: image is array and mask)(image=array, mask=3) == 3
    same(lift(smaller)(img=image).tolist(), smaller(image).tolist())


def test_an_image_that_cannot_be_read_leaves_the_same_numbers():
    buffer = io.BytesIO()
    photo(90, 80, 1).save(buffer, "JPEG", quality=95)
    cut = buffer.getvalue()[:-2000]
    transform = v1.Compose(PIPELINES["training"](v1))
    outcomes = []
    for function in (lift(transform), transform):
        seed()
        outcomes.append((outcome_of(function, Image.open(io.BytesIO(cut))), states()))
    same(*outcomes)
    assert outcomes[0][0][0] is OSError


class Late(Exception):
    pass


@pytest.mark.parametrize("error", [Late, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["draw", "picture", "value"])
def test_an_exception_of_a_signal_reaches_the_program(error, place, monkeypatch):
    def late(*_):
        raise error

    def interrupted(*arguments):
        monkeypatch.setattr(lifting.Lifter, place, original)
        signal.raise_signal(signal.SIGUSR1)

    dataset, original = flips(), getattr(lifting.Lifter, place)
    before = signal.signal(signal.SIGUSR1, late)
    try:
        seed()
        whole = list(DataLoader(dataset, 5))
        seed()
        batches = iter(DataLoader(dataset, 5))
        got = [next(batches)]
        drawn = states()
        monkeypatch.setattr(lifting.Lifter, place, interrupted)
        if place == "value":
            with pytest.raises(error):
                lift(dataset.transform)(photo(32, 32, 1))
        else:
            with pytest.raises(error):
                next(batches)
        assert states() == drawn
        if error is KeyboardInterrupt:
            # An interrupted batch is made again, with the same numbers.
            same(got + list(batches), whole)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_functions_that_are_registered_in_a_pass_count(monkeypatch):
    def register(_):
        monkeypatch.setitem(collate.default_collate_fn_map, int, lambda batch, **_: f"{len(batch)} numbers")

    seen = []
    for kind in (DataLoader, tud.DataLoader):
        seen.append(changed_in_a_pass(kind, flips, register))
        monkeypatch.undo()
    same(*seen)
    assert seen[0][0][2][1] == "5 numbers"


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["RandomCrop", "RandomResizedCrop", "CenterCrop"])
def test_sizes_that_are_tensors_turn_it_off_without_a_warning(name, t, monkeypatch):
    monkeypatch.setattr(lifting.Lifter, "to_compare", 2)
    transform = t.Compose([getattr(t, name)(torch.tensor([20, 21])), t.PILToTensor()])
    lifted = lift(transform)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(4):
            seed(number)
            theirs, after = outcome_of(transform, photo(50, 60, number)), states()
            seed(number)
            same(outcome_of(lifted, photo(50, 60, number)), theirs)
            assert states() == after


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("to_tensor", ["PILToTensor", "ToImage", "ToTensor"])
def test_what_follows_gets_tensors_with_the_same_strides(to_tensor, t):
    if not hasattr(t, to_tensor):
        pytest.skip("only v2 has it")
    parts = [getattr(t, to_tensor)(), t.ConvertImageDtype(torch.float64), t.Lambda(lambda x: (x.stride(), type(x), x.normal_()))]
    for mode in ("RGB", "L"):
        image = photo(20, 31, 2).convert(mode)
        seed()
        theirs = t.Compose(parts)(image)
        seed()
        same(lift(t.Compose(parts))(image), theirs)


INFO = {
    "crop": v1.RandomCrop(20),
    "resize": v1.Resize((20, 21)),
    "same size": v1.Resize((60, 50)),
    "no flip": v1.RandomHorizontalFlip(0),
    "flip": v1.RandomHorizontalFlip(1),
    "pad": v1.Pad(3),
    "brightness": v1.ColorJitter(brightness=0.5),
    "contrast": v1.ColorJitter(contrast=0.5),
    "saturation": v1.ColorJitter(saturation=0.5),
    "hue": v1.ColorJitter(hue=0.2),
    "sharpness": v1.RandomAdjustSharpness(2, 1),
    "one channel": v1.Grayscale(),
    "grey": v1.Grayscale(3),
    "posterize": v1.RandomPosterize(3, 1),
    "solarize": v1.RandomSolarize(99, 1),
    "invert": v1.RandomInvert(1),
    "autocontrast": v1.RandomAutocontrast(1),
    "equalize": v1.RandomEqualize(1),
    "rand": v1.RandAugment(4),
}


@pytest.mark.parametrize("name", INFO)
def test_what_follows_gets_images_with_the_same_info(name, tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    (tmp_path / "class").mkdir()
    for number in range(4):
        image = photo(60, 50, number)
        image.save(tmp_path / "class" / f"{number}.jpg", exif=exif, dpi=(72, 73), icc_profile=b"some")
        image.save(tmp_path / "class" / f"{number}.png", exif=exif, dpi=(72, 73))
    seen = []

    def look(image):
        seen.append((type(image), image.mode, image.size, image.tobytes(), sorted(image.info.items(), key=str), image.getexif().get(274)))
        return 0

    dataset = datasets.ImageFolder(tmp_path, v1.Compose([INFO[name], v1.Lambda(look)]))
    as_torch(dataset, 3)
    assert len(seen) == 16 and seen[:8] == seen[8:]


def test_errors_of_torchvision_are_raised():
    for t in (v1, v2):
        transform = t.Compose([t.Resize((32, 32), max_size=64), t.ToTensor()] if t is v1 else [t.RandomHorizontalFlip(), t.ToTensor()])
        if t is v1:
            with pytest.raises(ValueError, match="max_size should only be passed"):
                transform(photo(50, 60, 1))
            with pytest.raises(ValueError, match="max_size should only be passed"):
                lift(transform)(photo(50, 60, 1))


def test_changes_of_transforms_count(folder):
    normalize, flip = v1.Normalize([0.5] * 3, [0.5] * 3), v1.RandomHorizontalFlip(0)
    transform = v1.Compose([v1.Resize((40, 40)), flip, v1.ToTensor(), normalize])
    lifted, image = lift(transform), photo(50, 60, 1)
    same(lifted(image), transform(image))
    normalize.mean = [0.1] * 3
    same(lifted(image), transform(image))
    normalize.mean[0], flip.p = 0.3, 1
    same(lifted(image), transform(image))
    normalize.mean = np.array([0.25, 0.5, 0.75])
    same(lifted(image), transform(image))
    normalize.mean[1] = 0.4
    same(lifted(image), transform(image))
    transform.transforms.append(v1.Lambda(lambda x: x + 1))
    same(lifted(image), transform(image))
    normalize.register_forward_hook(lambda module, args, result: result * 2)
    same(lifted(image), transform(image))

    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["validation"](v1)))
    batches = iter(DataLoader(dataset, 3))
    next(batches)
    dataset.transform = v1.Compose(PIPELINES["bicubic"](v1))
    seed()
    ours = next(batches)
    seed()
    same(ours[0], torch.stack([dataset[k][0] for k in range(3, 6)]))
    dataset.transform.transforms[1:] = to_tensor(v1) + [v1.Normalize([0.2] * 3, [0.3] * 3)]
    seed()
    ours = next(batches)
    seed()
    same(ours[0], torch.stack([dataset[k][0] for k in range(6, 9)]))


def test_patched_functions_count(folder, monkeypatch):
    dataset = datasets.ImageFolder(folder, v1.Compose(PIPELINES["validation"](v1)))
    plain = datasets.folder.pil_loader
    with monkeypatch.context() as patch:
        patch.setattr(datasets.folder, "pil_loader", functools.wraps(plain)(lambda path: plain(path).rotate(90)))
        assert "were changed" in as_torch(dataset, 3).plan()
    plain_resize = v1.functional.resize
    with monkeypatch.context() as patch:
        patch.setattr(v1.functional, "resize", functools.wraps(plain_resize)(lambda img, *rest: plain_resize(img.rotate(90), *rest)))
        assert "were changed" in as_torch(dataset, 3).plan()
    with monkeypatch.context() as patch:
        forward = v1.CenterCrop.forward
        patch.setattr(v1.CenterCrop, "forward", functools.wraps(forward)(lambda self, img: forward(self, img).rotate(90)))
        assert "CenterCrop is not torchvision's" in as_torch(dataset, 3).plan()
    assert as_torch(dataset, 3).plan().startswith("ImageFolder: natively Resize, CenterCrop")


class OwnFolder(datasets.ImageFolder):
    pass


def test_subclasses_of_datasets_are_not_guessed(folder):
    assert "its class is not known" in as_torch(OwnFolder(folder, v1.Compose(PIPELINES["validation"](v1))), 3).plan()


def test_pillow_warns_as_before(tmp_path, monkeypatch):
    (tmp_path / "class").mkdir()
    for number in range(4):
        image = photo(50, 60, number)
        image.save(tmp_path / "class" / f"{number}.jpg")
        image.convert("P").save(tmp_path / "class" / f"{number}.png", transparency=bytes(range(200)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2900)

    def warned(kind):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            batches = list(kind(datasets.ImageFolder(tmp_path, v1.Compose(PIPELINES["validation"](v1))), 3))
        return batches, sorted(str(one.message) for one in found)

    (ours, of_ours), (theirs, of_theirs) = warned(DataLoader), warned(tud.DataLoader)
    same(ours, theirs)
    assert of_ours == of_theirs and len(of_theirs) == 12, (of_ours, of_theirs)


def random_pipeline(rng, t):
    """Returns a pipeline of random transforms with random parameters."""
    interpolation = rng.choice([InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, InterpolationMode.LANCZOS])
    makers = [
        lambda: t.RandomResizedCrop((rng.randint(1, 60), rng.randint(1, 60)), scale=(rng.random() / 2, 1), interpolation=interpolation),
        lambda: t.Resize((rng.randint(1, 80), rng.randint(1, 80)), interpolation=interpolation),
        lambda: t.Resize(rng.randint(1, 60), interpolation=interpolation),
        lambda: t.CenterCrop((rng.randint(1, 90), rng.randint(1, 90))),
        lambda: t.RandomCrop(rng.randint(1, 50), padding=rng.randint(0, 9), padding_mode=rng.choice(["constant", "edge", "reflect", "symmetric"])),
        lambda: t.Pad(rng.randint(0, 9), fill=rng.randint(0, 255)),
        lambda: t.RandomHorizontalFlip(),
        lambda: t.RandomVerticalFlip(),
        lambda: t.ColorJitter(rng.random(), rng.random(), rng.random(), rng.random() / 2),
        lambda: t.RandomGrayscale(0.5),
        lambda: t.RandAugment(),
        lambda: t.TrivialAugmentWide(),
        lambda: t.AutoAugment(),
        lambda: t.RandomApply([t.ColorJitter(0.4)]),
        lambda: t.RandomAdjustSharpness(2 * rng.random()),
        lambda: t.RandomEqualize(),
    ]
    parts = [rng.choice(makers)() for _ in range(rng.randint(1, 5))]
    if t is v1 or rng.random() < 0.3:
        return t.Compose([*parts, *to_tensor(t)])
    # Transforms of tensors; most often, all of them are native.
    tensors = [rng.choice(makers[: 8 if rng.random() < 0.8 else None])() for _ in range(rng.randint(1, 4))]
    end = [[t.ToDtype(torch.float32, scale=True), t.RandomVerticalFlip(), t.RandomErasing(0.8)], [t.ToPureTensor()], []]
    return t.Compose([*parts[: rng.randint(0, 2)], rng.choice([t.ToImage, t.PILToTensor])(), *tensors, *rng.choice(end)])


@pytest.mark.parametrize("number", range(100))
def test_random_pipelines(number):
    rng = random.Random(number)
    transform = random_pipeline(rng, rng.choice([v1, v2]))
    lifted = lift(transform)
    for _ in range(6):
        image = photo(rng.randint(1, 90), rng.randint(1, 90), rng.randint(0, 999)).convert(rng.choice(["RGB", "RGB", "L"]))
        start = rng.randint(0, 999)
        seed(start)
        theirs, after = outcome_of(transform, image), states()
        seed(start)
        same(outcome_of(lifted, image), theirs)
        assert states() == after


def test_numbers_come_by_tables():
    lifter = lifting.Lifter(v1.Compose([v1.Resize((5, 6)), v1.ToTensor(), v1.Normalize(*MEAN_STD)]))
    assert lifter.table["L"] is None and lifter.table["RGB"].kind is torch.Tensor


@pytest.mark.parametrize("workers", [0, 1])
def test_making_pictures_is_not_collating(workers, folder):
    loader = DataLoader(datasets.ImageFolder(folder, v1.Compose(PIPELINES["bicubic"](v1))), 8, num_workers=workers)
    assert len(list(loader)) == 2
    assert loader._pass.stats.writing == 0
