"""Type checkers accept slotline's loader like torch's: `mypy --strict typed.py` and `basedpyright` report no
errors."""

from collections.abc import Iterator
from typing import Any, TypedDict, assert_type

import torch
import torch.utils.data as tud
from torch.utils.data.dataloader import _BaseDataLoaderIter  # pyright: ignore[reportPrivateUsage]

import slotline
from slotline.torch import DataLoader


class Sample(TypedDict):
    x: torch.Tensor
    y: int


class Numbers(tud.Dataset[Sample]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Sample:
        return {"x": torch.zeros(1), "y": index}


class Stream(tud.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def collate(samples: list[Sample]) -> torch.Tensor:
    return torch.stack([sample["x"] for sample in samples])


def init(worker_id: int) -> None:
    pass


def train(loader: tud.DataLoader[Sample]) -> None:
    pass


class Torchs(tud.DataLoader[Sample]):
    def __iter__(self) -> _BaseDataLoaderIter:
        return super().__iter__()


class Ours(DataLoader[Sample]):
    def __iter__(self) -> _BaseDataLoaderIter:
        return super().__iter__()


def torchs() -> None:
    loader = tud.DataLoader(Numbers(), 2, num_workers=2, collate_fn=collate, worker_init_fn=init, generator=torch.Generator())
    assert_type(loader, tud.DataLoader[Sample])
    assert_type(loader.dataset, tud.Dataset[Sample])
    assert_type(iter(loader), _BaseDataLoaderIter)
    for batch in loader:
        assert_type(batch, Any)
    assert_type(tud.DataLoader(Stream(), batch_size=None), tud.DataLoader[int])
    wrong: tud.DataLoader[str] = tud.DataLoader(Numbers())  # type: ignore[arg-type]
    tud.DataLoader(Numbers(), batch_size="2")  # type: ignore[arg-type]
    tud.DataLoader(Numbers(), collate_fn=3)  # type: ignore[arg-type]
    tud.DataLoader(Numbers(), worker_init_fn=collate)  # type: ignore[arg-type]
    train(loader)


def frozen() -> None:
    assert_type(slotline.freeze(["a"]), slotline.FrozenList[str])
    assert_type(slotline.freeze(iter([1])), slotline.FrozenList[int])
    assert_type(slotline.freeze(Numbers()), Numbers)
    assert_type(slotline.freeze(["a"])[0], str)
    assert_type(slotline.freeze(["a"])[1:], slotline.FrozenList[str])


def functions() -> None:
    data = slotline.digits().map(lambda sample: {"x": sample["image"]}, [slotline.Field("x", "uint8", (8, 8))])
    assert_type(data, slotline.Dataset)
    assert_type(data.filter(lambda sample: sample["x"].sum() > 3, ["x"], on_error="skip"), slotline.Dataset)
    data.pack(8, on_error="replace")  # type: ignore[arg-type]
    paddings = {"x": 0}
    slotline.Loader(data, padding=paddings, multiple_of=8)
    slotline.Loader(data, collate_fn=len, transform=str, generator=torch.Generator())
    slotline.Loader(data, collate_fn=3)  # type: ignore[arg-type]
    data.map(3)  # type: ignore[arg-type]


def ours() -> None:
    loader = DataLoader(Numbers(), 2, num_workers=2, collate_fn=collate, worker_init_fn=init, generator=torch.Generator())
    assert_type(loader, DataLoader[Sample])
    assert_type(loader.dataset, tud.Dataset[Sample])
    iterator: _BaseDataLoaderIter = iter(loader)
    assert_type(next(iterator), Any)
    for batch in loader:
        assert_type(batch, Any)
    assert_type(DataLoader(Stream(), batch_size=None), DataLoader[int])
    wrong: DataLoader[str] = DataLoader(Numbers())  # type: ignore[arg-type]
    DataLoader(Numbers(), batch_size="2")  # type: ignore[arg-type]
    DataLoader(Numbers(), collate_fn=3)  # type: ignore[arg-type]
    DataLoader(Numbers(), worker_init_fn=collate)  # type: ignore[arg-type]
    train(loader)
    # Arguments and methods that torch's loader does not have.
    DataLoader(Numbers(), worker_method="fibre")  # type: ignore[arg-type]
    DataLoader(Numbers(), on_error="ignore")  # type: ignore[arg-type]
    assert_type(loader.state_dict(), dict[str, Any])
    batches = iter(loader)
    left: int = batches.remaining()
    batches.remaining(left)  # type: ignore[call-arg]


def pictures() -> None:
    crop = slotline.image.RandomResizedCrop(224, scale=[0.5, 1], interpolation="bicubic")
    data = slotline.open("photos", image=[slotline.image.Options(exact=True), crop, slotline.image.Normalize.imagenet()])
    slotline.folder("photos", image="resize(256), center_crop(224)", mask_folder="masks", mask_fill=255)
    slotline.open("a.jsonl", file_column=["file_name", "mask"], image=[crop], mask_field="mask", boxes_field="boxes", boxes_format="xywh")
    slotline.open("a.tar", image=[crop], mask_field=3)  # type: ignore[arg-type]
    keep = slotline.image.SanitizeBoundingBoxes(min_size=2)(1)
    assert_type(keep, Any)
    slotline.folder("photos", image=[crop, "hflip"])  # type: ignore[list-item]
    slotline.image.Resize(8, "cubic")  # type: ignore[arg-type]
    slotline.image.Resize()  # type: ignore[call-arg]
    crop.size = 3  # type: ignore[misc]
    slotline.image.MixUp(num_classes=3)(1)  # type: ignore[call-arg]
    assert_type(slotline.image.pipeline([crop]), str)
    assert_type(data.paths, list[str] | None)
    assert_type(data.fields[0], slotline.Field)
