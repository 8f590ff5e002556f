"""Pictures in files that the workers decode, compared with Pillow."""

import os
import pickle
import re
import struct
import zlib

import numpy as np
import pytest

import slotline
from slotline import Loader

RANDOM = np.random.default_rng(5)
# Smooth pictures: resizing with other rounding changes them by at most one or two levels.
PICTURES = [
    np.clip(np.add.outer(np.arange(40 + i), np.arange(50))[..., None] * [1, 2, 1 + i % 2] + 3 * i, 0, 255).astype("u1")
    for i in range(10)
]


def png(pixels):
    """Encodes pixels as a PNG."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture
def photos(tmp_path):
    for i, pixels in enumerate(PICTURES):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        (tmp_path / "ab"[i % 2] / f"{i:02}.png").write_bytes(png(pixels))
    return tmp_path


ORDER = [*range(0, 10, 2), *range(1, 10, 2)]


def batches(dataset, **options):
    return [(batch["data"].copy(), batch["label"].copy()) for batch in Loader(dataset, 4, **options)]


def test_a_crop_has_the_pixels_of_the_file(photos):
    dataset = slotline.folder(photos, image="center_crop([32, 36])", image_dtype="uint8", channels_last=True)
    assert [(field.name, str(field.dtype), tuple(field.shape)) for field in dataset.fields] == [
        ("data", "uint8", (32, 36, 3)),
        ("label", "int64", ()),
    ]
    images, labels = (np.concatenate(parts) for parts in zip(*batches(dataset), strict=True))
    for image, i in zip(images, ORDER, strict=True):
        pixels = PICTURES[i]
        top = round((pixels.shape[0] - 32) / 2)
        np.testing.assert_array_equal(image, pixels[top : top + 32, 7:43])
    assert labels.tolist() == [0] * 5 + [1] * 5


def test_resized_pictures_are_close_to_those_of_pillow(photos):
    Image = pytest.importorskip("PIL.Image")
    dataset = slotline.open(photos, image="resize([24, 30]), normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25])")
    images = np.concatenate([data for data, _ in batches(dataset)])
    assert images.shape == (10, 3, 24, 30) and images.dtype == np.float32
    for image, i in zip(images, ORDER, strict=True):
        wanted = Image.fromarray(PICTURES[i]).resize((30, 24), Image.Resampling.BILINEAR)
        levels = (image.transpose(1, 2, 0) * 0.25 + 0.5) * 255
        assert np.abs(levels - np.asarray(wanted, "f4")).max() < 1.5


def test_random_pictures_are_the_same_for_any_workers(photos):
    dataset = slotline.folder(photos, image="random_resized_crop(16), hflip, normalize(imagenet)")
    alone = batches(dataset, shuffle=True, seed=3)
    again = pickle.loads(pickle.dumps(dataset))
    for other in (batches(dataset, shuffle=True, seed=3, num_workers=2), batches(again, shuffle=True, seed=3)):
        for (a, b), (c, d) in zip(alone, other, strict=True):
            np.testing.assert_array_equal(a, c)
            np.testing.assert_array_equal(b, d)
    assert any((a != c).any() for (a, _), (c, _) in zip(alone, batches(dataset, shuffle=True, seed=4), strict=True))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"image": "resize(8), hflp"}, ValueError, "character 12 of the pipeline: unknown transform hflp (did you mean hflip?)"),
        ({"image": "resize(8)"}, ValueError, "differs between pictures; add resize([height, width]), center_crop"),
        ({"image": "center_crop(8)", "image_field": "label"}, ValueError, "the field label holds i64, not pictures"),
        ({"image": "center_crop(8)", "image_dtype": "float64"}, ValueError, "it must be one of float32"),
        ({"image": "hflip, normalize(imagenet)", "image_dtype": "uint8"}, ValueError, "floating-point"),
        ({"image": 8}, TypeError, "the transforms are 8; pass a list of transforms of slotline.image, or to image= their text"),
        ({"channels_last": True}, TypeError, "pass image, too"),
    ],
)
def test_what_cannot_be_done_is_an_error(photos, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        slotline.open(photos, **options)


def test_exif_can_be_said_in_the_text(photos):
    tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\4\0\0\0\1\0\0\0\6\0\0\0\0"  # orientation 6, as a LONG
    chunk = struct.pack(">I", len(tiff)) + b"eXIf" + tiff + struct.pack(">I", zlib.crc32(b"eXIf" + tiff))
    file = png(PICTURES[0])
    for path in photos.glob("*/*.png"):
        path.write_bytes(file[:33] + chunk + file[33:])
    for text, upright in ("center_crop(40)", PICTURES[0]), ("exif, center_crop(40)", np.rot90(PICTURES[0], -1)):
        image = batches(slotline.folder(photos, image=text, image_dtype="uint8", channels_last=True))[0][0][0]
        top, left = ((side - 40) // 2 for side in upright.shape[:2])
        np.testing.assert_array_equal(image, upright[top : top + 40, left : left + 40])


def test_a_damaged_picture_is_named(photos):
    (photos / "b" / "03.png").write_bytes(b"<html>")
    with pytest.raises(Exception, match="03.png: expected a JPEG, PNG.*found a web page"):
        batches(slotline.folder(photos, image="center_crop(8)"))


def test_a_rank_whose_pictures_are_all_damaged_has_as_many_batches(photos):
    for i in ORDER[1], ORDER[3]:  # the first batch of rank 1
        (photos / "ab"[i % 2] / f"{i:02}.png").write_bytes(b"<html>")
    data = slotline.folder(photos, image="center_crop(4)")
    sizes = []
    for rank in range(2):
        loader = Loader(data, 2, rank=rank, world_size=2, on_error="skip")
        sizes.append([len(batch["label"]) for batch in loader])
    assert sizes == [[2, 2, 1], [0, 2, 1]]


def test_a_state_of_other_pictures_is_refused(photos):
    def loader(image, **options):
        return Loader(slotline.folder(photos, image=image, **options), 4, shuffle=True, seed=1)

    text = "resize(16), center_crop(8), normalize(imagenet)"
    state = loader(text).state_dict()
    # The same pipeline in another notation.
    loader("resize( 16 ),center_crop(8),  normalize(imagenet)").load_state_dict(state)
    words = r"another image pipeline \('resize\(16\), .*', and not 'resize\(17\), .*'\): finish the pass with that dataset"
    with pytest.raises(slotline.StateError, match=words):
        loader(text.replace("16", "17")).load_state_dict(state)
    with pytest.raises(slotline.StateError, match="another image pipeline .* as f32 of data', and not .* as f32, channels last of data"):
        loader(text, channels_last=True).load_state_dict(state)


def test_a_sheet_shows_what_a_loop_sees_first(photos, tmp_path):
    def shown(name):
        data = (tmp_path / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        start = data.index(b"IDAT") + 4
        lines = np.frombuffer(zlib.decompress(data[start:-16]), "u1").reshape(height, 1 + 3 * width)
        assert not lines[:, 0].any()
        return lines[:, 1:].reshape(height, width, 3)

    whole = {"image": "center_crop([32, 36])", "image_dtype": "uint8"}
    assert slotline.sheet(slotline.folder(photos, **whole, channels_last=True), tmp_path / "a.png", 5) == 5
    assert slotline.sheet(slotline.folder(photos, **whole), tmp_path / "b.png", 5, num_workers=2) == 5
    sheet = shown("a.png")
    np.testing.assert_array_equal(sheet, shown("b.png"))
    # 5 pictures in two columns and 3 rows, the grid that is nearest to a square.
    assert sheet.shape == (3 * 36 + 4, 2 * 40 + 4, 3) and (sheet[:4] == 255).all() and (sheet[-32:, -36:] == 255).all()
    for place, i in enumerate(ORDER[:5]):
        top, left = 4 + place // 2 * 36, 4 + place % 2 * 40
        begin = round((PICTURES[i].shape[0] - 32) / 2)
        np.testing.assert_array_equal(sheet[top : top + 32, left : left + 36], PICTURES[i][begin : begin + 32, 7:43])
    normalised = slotline.folder(photos, image="center_crop([32, 36]), normalize(imagenet)")
    assert slotline.sheet(normalised, tmp_path / "c.png", field="data", shuffle=True, seed=3) == 10
    inside = shown("c.png")[4:-4, 4:-4]
    assert inside.min() == 0 and inside.max() == 255
    with pytest.raises(slotline.DataError, match="no field of pictures of one size"):
        slotline.sheet(slotline.folder(photos), tmp_path / "d.png")
    with pytest.raises(slotline.DataError, match="no field 'x'"):
        slotline.sheet(normalised, tmp_path / "d.png", field="x")
    with pytest.raises(ValueError, match="positive"):
        slotline.sheet(normalised, tmp_path / "d.png", 0)
    with pytest.raises(slotline.DataError, match="image_dtype='uint8'"):
        slotline.sheet(slotline.folder(photos, image="center_crop(8)", image_dtype="bfloat16"), tmp_path / "d.png")
    assert not (tmp_path / "d.png").exists()


def test_a_picture_by_index_is_that_of_a_loader_with_seed_0(photos):
    dataset = slotline.folder(photos, image="random_resized_crop(16), hflip")
    wanted = np.concatenate([data for data, _ in batches(dataset, seed=0)])
    threads = len(os.listdir("/proc/self/task"))
    for i in (7, 0, -1, 7):
        np.testing.assert_array_equal(dataset[i]["data"], wanted[i])
    assert len(os.listdir("/proc/self/task")) <= threads
    for sample, want in zip(dataset, wanted, strict=True):
        np.testing.assert_array_equal(sample["data"], want)
    (photos / "a" / "00.png").write_bytes(b"none")
    with pytest.raises(slotline.SampleError):
        dataset[0]
