"""Masks and boxes that are transformed as their pictures."""

import io
import json
import pickle
import re
import struct
import tarfile
import zlib

import numpy as np
import pytest
from test_pictures import png

import slotline
from slotline import Loader
from slotline.image import RandomCrop, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, SanitizeBoundingBoxes

COUNT, HEIGHT, WIDTH = 12, 40, 60
# Each pixel of a picture has its place as its colour, so that a crop shows where it is from.
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
PICTURE = np.stack([ROWS, COLUMNS, np.full_like(ROWS, 200)], -1).astype("u1")
CROPS = [RandomCrop(24, padding=6, fill=255), RandomHorizontalFlip(), RandomVerticalFlip()]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def grey(numbers, palette=False):
    """Encodes class numbers as a PNG, in grey or with a palette."""
    height, width = numbers.shape
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3 if palette else 0, 0, 0, 0))
    colours = chunk(b"PLTE", bytes(768)) if palette else b""
    rows = b"".join(b"\0" + row.astype("u1").tobytes() for row in numbers)
    return b"\x89PNG\r\n\x1a\n" + header + colours + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def classes(i):
    """Returns the mask of a sample, and its box, which is the place of class 7."""
    left, top = 5 + 3 * i, 4 + i
    of_box = [left, top, left + 12, top + 9]
    mask = (ROWS // 4 + COLUMNS // 5 + i) % 6
    mask[of_box[1] : of_box[3], of_box[0] : of_box[2]] = 7
    return mask, of_box


def write(path, *members):
    """Writes a tar: of each sample, the files that ``members`` has by their extensions."""
    with tarfile.open(path, "w") as tar:
        for i, sample in enumerate(members):
            for name, data in sample.items():
                info = tarfile.TarInfo(f"{i:03}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def scenes(tmp_path):
    def sample(i):
        mask, of_box = classes(i)
        objects = [{"bbox": of_box, "name": "thing"}, {"bbox": [0, 0, WIDTH, HEIGHT]}][: i % 3]
        # With two PNGs, the one that is not the mask is the picture.
        files = {"png": png(PICTURE), "mask.png": grey(mask, palette=i % 2 == 0)}
        return files | {"json": json.dumps({"objects": objects}).encode(), "cls": b"%d" % i}

    return write(tmp_path / "scenes.tar", *map(sample, range(COUNT)))


def opened(path, image=CROPS, **options):
    return slotline.open(path, image=image, image_dtype="uint8", channels_last=True, **options)


def samples(dataset, **options):
    """Returns all samples of a pass."""
    found = []
    for batch in Loader(dataset, 5, shuffle=True, seed=3, **options):
        names, fields = list(batch), list(batch.values())
        found += [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
    return found


def same(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_masks_and_boxes_show_what_their_pictures_show(scenes):
    data = opened(scenes, mask_field="mask.png", mask_dtype="int64", mask_fill=-1, boxes_field="json.objects.bbox")
    assert [(f.name, str(f.dtype), tuple(f.shape)) for f in data.fields] == [
        ("png", "uint8", (24, 24, 3)),
        ("mask.png", "int64", (24, 24)),
        ("json", "str", ()),
        ("cls", "int64", ()),
        ("json.objects.bbox", "float32", (None, 4)),
    ]
    assert "mask.png: int64 [24, 24], json: str [], cls: int64 [], json.objects.bbox: float32 [None, 4]" in repr(data)
    found = samples(data)
    assert len(found) == COUNT
    for sample in found:
        picture, mask, i = sample["png"].astype(int), sample["mask.png"], int(sample["cls"])
        wanted, _ = classes(i)
        is_padding = picture[..., 2] == 255
        assert (mask[is_padding] == -1).all() and is_padding.any() == (mask == -1).any()
        rows, columns, _ = picture[~is_padding].T
        np.testing.assert_array_equal(mask[~is_padding], wanted[rows, columns])
        boxes = sample["json.objects.bbox"]
        assert len(json.loads(sample["json"])["objects"]) == i % 3
        assert boxes.shape == (i % 3, 4) and boxes.dtype == np.float32
        if len(boxes) and (mask == 7).any():
            rows, columns = np.nonzero(mask == 7)
            assert boxes[0].tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        if len(boxes) == 2:
            rows, columns = np.nonzero(~is_padding)
            assert boxes[1].tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert any((sample["mask.png"] == -1).any() for sample in found)


def test_they_change_neither_the_pictures_nor_their_order_and_workers_change_nothing(scenes):
    options = {"mask_field": "mask.png", "boxes_field": "json.objects.bbox"}
    crops = [RandomResizedCrop(16), RandomHorizontalFlip()]
    data = opened(scenes, crops, **options)
    all = samples(data)
    same(all, samples(data, num_workers=2))
    same(all, samples(pickle.loads(pickle.dumps(data)), num_workers=1))
    plain = samples(opened(scenes, crops, image_field="png"))
    same([{"png": s["png"], "cls": s["cls"]} for s in all], [{"png": s["png"], "cls": s["cls"]} for s in plain])
    # A mask alone, whose picture is not decoded, has the same crop.
    same([{"mask.png": s["mask.png"]} for s in all], samples(data.select("mask.png")))
    same(samples(data.select("json.objects.bbox", "cls")), [{key: s[key] for key in ("json.objects.bbox", "cls")} for s in all])
    # By index, as a loader with seed 0.
    first = [dict(zip(batch, (values[0] for values in batch.values()), strict=True)) for batch in Loader(data, 1, seed=0)]
    same(first, [data[i] for i in range(COUNT)])


# A pass of slotline for Rust over these samples, with `Image::mask` and `Image::boxes`, seed 3 and this pipeline:
# `masks_and_boxes_are_those_of_an_image` of slotline-sources, which computes these numbers.
MASKS = 2757515208
BOXES = [6.7555556, 1.6, 16, 12.1, 0, 0, 16, 16, 4.923077, 1.6551725, 16, 16, 0, 0, 16, 16]


def test_masks_and_boxes_are_those_of_rust(tmp_path):
    numbers = (ROWS * 3 + COLUMNS * 5) % 251
    boxes = json.dumps([[10.5, 4, 40, 30.25], [0, 0, 60, 40]]).encode()
    tar = write(tmp_path / "a.tar", *({"png": png(PICTURE), "mask.png": grey(numbers), "json": boxes} for _ in range(6)))
    data = opened(tar, "random_resized_crop(16), hflip", mask_field="mask.png", boxes_field="json")
    (batch,) = Loader(data, 6, shuffle=True, seed=3)
    assert zlib.crc32(batch["mask.png"].tobytes()) == MASKS
    np.testing.assert_array_equal(np.concatenate(batch["json"][:2]).ravel(), np.array(BOXES, "f4"))


def test_boxes_are_read_from_lists_json_and_npy(tmp_path):
    def npy(boxes):
        file = io.BytesIO()
        np.save(file, np.array(boxes, "f4").reshape(-1, 4))
        return file.getvalue()

    sides = [[[3, 4, 13, 24]], [], [[0.5, 1, 10.5, 21], [20, 10, 50, 40]]]
    as_wh = [[[a, b, c - a, d - b] for a, b, c, d in boxes] for boxes in sides]
    centred = [[[a + w / 2, b + h / 2, w, h] for a, b, w, h in boxes] for boxes in as_wh]
    files = [
        {
            "png": png(PICTURE),
            "a.json": json.dumps(sides[i]).encode(),
            "b.json": json.dumps({"objects": {"bbox": as_wh[i]}}).encode(),
            "c.json": json.dumps([{"at": {"box": box}} for box in centred[i]]).encode(),
            "d.npy": npy(sides[i]),
        }
        for i in range(3)
    ]
    tar = write(tmp_path / "a.tar", *files)
    lines = [{"file_name": "a.png", "flat": sum(sides[i], []), "listed": sides[i], "boxes": {"xywh": as_wh[i]}} for i in range(3)]
    (tmp_path / "a.png").write_bytes(png(PICTURE))
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for path, field, options in [
        (tar, "a.json", {}),
        (tar, "b.json.objects.bbox", {"boxes_format": "xywh"}),
        (tar, "c.json.at.box", {"boxes_format": "cxcywh"}),
        (tar, "d.npy", {"decode": {"d.npy": "bytes"}}),
        (tmp_path / "list.jsonl", "flat", {}),
        (tmp_path / "list.jsonl", "listed", {}),
        (tmp_path / "list.jsonl", "boxes.xywh", {"boxes_format": "xywh"}),
    ]:
        options = {"decode": {"d.npy": "bytes"}} | options if path == tar else options
        data = opened(path, "resize([20, 30])", boxes_field=field, **options)
        (batch,) = Loader(data, 3)
        assert [boxes.tolist() for boxes in batch[field]] == [[[n / 2 for n in box] for box in boxes] for boxes in sides], field
        (batch,) = Loader(data, 3, packed=True)
        values, offsets = batch[field]
        assert values.shape == (3, 4) and offsets.tolist() == [0, 1, 1, 3], field
        assert [data[i][field].shape for i in range(3)] == [(1, 4), (0, 4), (2, 4)]


def test_columns_of_parquet_can_be_masks_and_boxes(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    masks, boxes = zip(*map(classes, range(3)), strict=True)
    image = [{"bytes": png(PICTURE), "path": None} for _ in range(3)]
    fixed = pyarrow.array(list(boxes), pyarrow.list_(pyarrow.int32(), 4))
    # As `List(List(Value("float32"), length=4))` of Hugging Face Datasets.
    nested = pyarrow.array([[box] * 3 for box in boxes], pyarrow.list_(pyarrow.list_(pyarrow.float32(), 4)))
    table = {"image": image, "mask": [{"bytes": grey(mask)} for mask in masks], "boxes": [box * 2 for box in boxes]}
    parquet.write_table(pyarrow.table(table | {"one": fixed, "nested": nested}), tmp_path / "a.parquet")
    columns = ["image.bytes", "mask.bytes", "boxes", "one", "nested"]
    whole = f"center_crop([{HEIGHT}, {WIDTH}])"
    for field, count in ("boxes", 2), ("one", 1), ("nested", 3):
        data = opened(tmp_path / "a.parquet", whole, columns=columns, mask_field="mask.bytes", boxes_field=field)
        (batch,) = Loader(data, 3)
        np.testing.assert_array_equal(batch["mask.bytes"], masks)
        assert [found.tolist() for found in batch[field]] == [[box] * count for box in boxes]


def test_a_missing_box_of_parquet_is_an_error(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    feather, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("feather", "parquet"))
    boxes = [[[1, 2, 3, 4], None], [[1, 2, None, 4]], [[1, 2, 3, 4], [5, 6, 7, 8]], [], None]
    for size in "list_", "large_list":
        table = pyarrow.table({"boxes": pyarrow.array(boxes, getattr(pyarrow, size)(pyarrow.list_(pyarrow.int16(), 4)))})
        try:
            parquet.write_table(table, tmp_path / "a.parquet")
        except pyarrow.ArrowNotImplementedError as error:
            pytest.skip(f"pyarrow {pyarrow.__version__} does not write such a file: {error}")
        feather.write_feather(table, tmp_path / "a.arrow", compression="uncompressed")
        for name in "a.parquet", "a.arrow":
            data = slotline.open(tmp_path / name, missing_as_zero=True)
            assert data.fields == (("boxes", "int16", (None, 4)),)
            for bad in 0, 1:
                with pytest.raises(slotline.SampleError, match="missing"):
                    data[bad]
            assert [data[i]["boxes"].tolist() for i in (2, 3, 4)] == [boxes[2], [], []]
            (batch,) = Loader(data[2:], 3)
            assert [found.tolist() for found in batch["boxes"]] == [boxes[2], [], []]


def test_lists_name_the_files_of_masks(tmp_path):
    (tmp_path / "masks").mkdir()
    lines = []
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png(PICTURE))
        (tmp_path / "masks" / f"{i}.png").write_bytes(grey(classes(i)[0]))
        lines.append({"label": i, "mask": f"masks/{i}.png", "file_name": f"{i}.png"})
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "list.csv").write_text("label,mask,file_name\n" + "".join(",".join(map(str, line.values())) + "\n" for line in lines))
    for name in "list.jsonl", "list.csv":
        options = {"file_column": ["file_name", "mask"], "mask_field": "mask"}
        data = opened(tmp_path / name, **options)
        assert [field.name for field in data.fields] == ["data", "mask", "label"]
        assert data.paths == [str(tmp_path / f"{i}.png") for i in range(3)]
        for sample in samples(data, num_workers=1):
            wanted = classes(int(sample["label"]))[0]
            inside = sample["data"][..., 2] != 255
            rows, columns = sample["data"][..., 0][inside], sample["data"][..., 1][inside]
            np.testing.assert_array_equal(sample["mask"][inside], wanted[rows, columns])
        other = opened(tmp_path / name, columns=["label", "mask", "data"], **options)
        assert [field.name for field in other.fields] == ["label", "mask", "data"]
        same([{key: s[key] for key in ("label", "mask", "data")} for s in samples(data)], samples(other))
    plain = slotline.open(tmp_path / "list.csv", file_column=["file_name", "mask"], columns=["mask"])
    assert plain[1]["mask"].tobytes() == grey(classes(1)[0])
    with pytest.raises(slotline.DataError, match="no column gone"):
        slotline.open(tmp_path / "list.csv", file_column=["file_name", "gone"])


def test_folders_have_masks_at_the_same_paths(tmp_path):
    for i in range(6):
        for folder, data in ("flat", png(PICTURE)), ("flat masks", grey(classes(i)[0])):
            for place in tmp_path / folder, tmp_path / f"classes {folder}" / "ab"[i % 2] / "deep":
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{i}.png").write_bytes(data)
    whole = f"center_crop([{HEIGHT}, {WIDTH}])"
    flat = opened(tmp_path / "flat", whole, mask_folder=tmp_path / "flat masks")
    assert [field.name for field in flat.fields] == ["data", "mask"] and flat.classes is None
    for data, order in [
        (flat, range(6)),
        (opened(tmp_path / "classes flat", whole, mask_folder=tmp_path / "classes flat masks"), [0, 2, 4, 1, 3, 5]),
    ]:
        assert [path[-5:] for path in data.paths] == [f"{i}.png" for i in order]
        for sample, i in zip(data, order, strict=True):
            np.testing.assert_array_equal(sample["mask"], classes(i)[0])
            assert data is flat or sample["label"] == i % 2
    again = pickle.loads(pickle.dumps(data))
    same(samples(data, num_workers=2), samples(again))
    masks = str(tmp_path / "classes flat masks")
    options = {"image": CROPS, "mask_dtype": "int64", "mask_fill": -1, "mask_folder": masks}
    folder = slotline.folder(tmp_path / "classes flat", **options)
    assert folder.fields[1] == ("mask", "int64", (24, 24))
    same(samples(folder), samples(pickle.loads(pickle.dumps(folder))))
    plain = slotline.open(tmp_path / "flat", mask_folder=tmp_path / "flat masks")
    assert plain[3]["mask"].tobytes() == grey(classes(3)[0])
    (tmp_path / "flat masks" / "2.png").unlink()
    with pytest.raises(slotline.SampleError, match="flat masks/2.png"):
        flat[2]
    (tmp_path / "none").mkdir()
    with pytest.raises(slotline.DataError, match="no files that end in .jpg"):
        slotline.open(tmp_path / "none", mask_folder=masks)
    (tmp_path / "list.csv").write_text("file_name\n1.png\n")
    with pytest.raises(slotline.DataError, match="`mask_folder` is an option of folders of classes"):
        slotline.open(tmp_path / "list.csv", mask_folder=masks)


def test_functions_and_composed_datasets_get_masks_and_boxes(scenes):
    data = opened(scenes, mask_field="mask.png", boxes_field="json.objects.bbox").rename(**{"json.objects.bbox": "boxes"})
    sanitize = SanitizeBoundingBoxes(min_size=3)

    def visible(sample):
        return {"boxes": sample["boxes"][sanitize(sample["boxes"])], "share": np.float32((sample["mask.png"] == 7).mean())}

    mapped = data.map(visible)
    assert mapped.fields == (("boxes", "float32", (None, 4)), ("share", "float32", ()))
    for a, b in zip(samples(data), samples(mapped, num_workers=2), strict=True):
        np.testing.assert_array_equal(b["boxes"], a["boxes"][sanitize(a["boxes"])])
        assert b["share"] == np.float32((a["mask.png"] == 7).mean())
    declared = data.map(visible, fields=[slotline.Field("boxes", "float32", (None, 4)), slotline.Field("share", "float32", ())])
    same(samples(mapped), samples(declared))
    wrong = data.map(lambda sample: {"boxes": sample["boxes"][:, :3]}, fields=[slotline.Field("boxes", "float32", (None, 4))])
    with pytest.raises(slotline.SampleError) as error:
        wrong[1]
    assert "float32 [None, 4] was declared" in str(error.value.__cause__)
    both = data[:3] + data[3:]
    assert both.fields == data.fields
    assert len(samples(both)) == COUNT
    few = data.filter(lambda sample: len(sample["boxes"]) == 2)
    assert len(few) == COUNT // 3
    with pytest.raises(slotline.DataError, match="'boxes' has no length of its own"):
        data.pack(8, field="boxes")
    html = data._repr_html_()
    # Pictures and masks of five samples, of which the numbers of the masks are shown as levels.
    assert html.count("<img") == 10 and "float32 [None, 4]" in html
    with pytest.raises(slotline.DataError, match=re.escape("boxes have shape (4,); pass [N, 4]")):
        sanitize(np.zeros(4))


def test_masks_are_read_by_torchs_loader(scenes):
    torch = pytest.importorskip("torch")
    from slotline.torch import DataLoader

    data = opened(scenes, mask_field="mask.png", mask_dtype="int64").select("png", "mask.png", "cls")
    loader = DataLoader(data, batch_size=4, num_workers=1)
    assert "natively" in loader.plan()
    ours, theirs = list(loader), list(torch.utils.data.DataLoader(data, batch_size=4))
    assert [batch["cls"].tolist() for batch in ours] == [batch["cls"].tolist() for batch in theirs]
    assert ours[0]["mask.png"].dtype == torch.int64 and ours[0]["mask.png"].shape == (4, 24, 24)
    boxes = opened(scenes, "center_crop(24)", mask_field="mask.png", boxes_field="json.objects.bbox")
    listed = DataLoader(boxes, batch_size=4, collate_fn=list)
    assert "sample by sample" in listed.plan()
    same([sample for batch in listed for sample in batch], [boxes[i] for i in range(COUNT)])
    (batch, *_) = Loader(boxes, 4, output="torch")
    assert [found.shape for found in batch["json.objects.bbox"]] == [(0, 4), (1, 4), (2, 4), (0, 4)]
    v2, formats = (pytest.importorskip(f"torchvision.{name}") for name in ("transforms.v2.functional", "tv_tensors"))
    options = {"mask_field": "mask.png", "boxes_field": "json.objects.bbox"}
    xywh = [opened(scenes, boxes_format=of, **options) for of in ("xywh", formats.BoundingBoxFormat.XYWH)]
    same(samples(xywh[0]), samples(pickle.loads(pickle.dumps(xywh[1]))))
    some = torch.tensor([[0, 0, 5, 5], [3, 3, 3, 9], [1, 1, 2, 1.5], [-1, 0, 5, 5]])
    assert SanitizeBoundingBoxes(min_area=2)(some).tolist() == [True, False, False, False]
    kept = v2.sanitize_bounding_boxes(some[:3], "XYXY", (20, 20), min_area=2)[1]
    assert SanitizeBoundingBoxes(min_area=2)(some[:3]).tolist() == kept.tolist()


def test_a_state_is_about_masks_and_boxes_too(scenes):
    def loader(**options):
        return Loader(opened(scenes, "center_crop(9)", boxes_field="json", **options), 4, shuffle=True, seed=1)

    state = loader(mask_field="mask.png").state_dict()
    loader(mask_field="mask.png").load_state_dict(state)
    words = "of png, masks of mask.png as u8 with fill 0, boxes of json as xyxy', and not .* with fill 255"
    with pytest.raises(slotline.StateError, match=words):
        loader(mask_field="mask.png", mask_fill=255).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mask_field": "gone"}, ValueError, "no field gone (these do: png, mask.png)"),
        ({"mask_field": "cls"}, ValueError, "the field cls holds i64, not pictures"),
        ({"mask_field": "png", "image_field": "png"}, ValueError, "the field png is named twice"),
        ({"mask_field": "mask.png", "mask_dtype": "float32"}, ValueError, "mask_dtype is 'float32'; it must be one of uint8, int64"),
        ({"mask_field": "mask.png", "mask_fill": -100}, ValueError, 'mask_fill is -100, which uint8 cannot hold; pass mask_dtype="int64"'),
        ({"mask_field": 3}, TypeError, "mask_field is 3; it must be the name of a field"),
        ({"mask_fill": 3}, TypeError, "pass mask_field or mask_folder, too"),
        ({"mask_field": "mask.png", "image": None}, TypeError, "mask_field is about decoded pictures; pass image, too"),
        ({"mask_field": "mask.png", "image": "rand_augment, center_crop(8)"}, ValueError, "masks and boxes cannot follow its shears"),
        ({"boxes_field": "cls"}, ValueError, "the field cls holds i64, not boxes"),
        ({"boxes_field": "gone.x"}, ValueError, "no field gone.x, but png, mask.png, json, cls"),
        ({"boxes_field": "json", "boxes_format": "yxyx"}, ValueError, "boxes in the format yxyx"),
        ({"boxes_format": "xywh"}, TypeError, "pass boxes_field, too"),
    ],
)
def test_what_cannot_be_done_is_an_error(scenes, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        slotline.open(scenes, **({"image": "center_crop(8)"} | options))


def test_damage_is_named_with_the_sample_and_the_field(tmp_path):
    good = {"png": png(PICTURE), "mask.png": grey(classes(0)[0]), "json": b"[[1, 2, 3, 4]]"}
    cases = [
        ({"mask.png": grey(np.zeros((3, 4)))}, "the field mask.png: a mask of 4 × 3 pixels for a picture of 60 × 40"),
        ({"mask.png": png(PICTURE)}, "the field mask.png: a mask must be a PNG with a palette or of grey"),
        ({"mask.png": b"none"}, "the field mask.png: "),
        ({"json": b"[[1, 2, 3]]"}, "the field json: a list of 3 numbers in its JSON, which are not four for each box"),
        ({"json": b"[[1, 2, 3, 4], [5, 6, 4, 9]]"}, "the field json: box 1, xyxy [5.0, 6.0, 4.0, 9.0], has a negative width"),
        ({"json": b"[[61, 2, 70, 4]]"}, "box 0, xyxy [61.0, 2.0, 70.0, 4.0], is outside of its picture of 60 × 40 pixels"),
        ({"json": b"{"}, "the field json: not valid JSON"),
        ({"json": b'{"a": 1}'}, 'the field json: expected a list of numbers in its JSON, found {"a":1}'),
    ]
    tar = write(tmp_path / "a.tar", good, *(good | files for files, _ in cases))
    data = opened(tar, "center_crop(8)", mask_field="mask.png", boxes_field="json")
    for i, (_, message) in enumerate(cases):
        with pytest.raises(slotline.SampleError, match=re.escape(message)) as error:
            data[i + 1]
        assert "a.tar" in str(error.value) and str(i + 1) in str(error.value)
    with pytest.warns(RuntimeWarning, match="8 samples of this pass were left out"):
        assert [len(batch["json"]) for batch in Loader(data, 3, on_error="skip")] == [1]
    paths = opened(tar, "center_crop(8)", mask_field="mask.png", boxes_field="json.objects.bbox")
    with pytest.raises(slotline.SampleError, match="expected an object with objects in its JSON, found 1"):
        paths[0]
