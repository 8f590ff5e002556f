"""What a dataset shows of itself: the files of its samples, and a table of the first samples."""

import base64
import io
import json
import re
import tarfile
import zlib

import numpy as np
import pytest
from test_pictures import ORDER, PICTURES, photos  # noqa: F401

import slotline
from slotline.image import CenterCrop


def tar(path, count):
    with tarfile.open(path, f"w:{'gz' if path.suffix == '.gz' else ''}") as file:
        for i in range(count):
            info = tarfile.TarInfo(f"{i}.txt")
            info.size = 6
            file.addfile(info, io.BytesIO(b"<b>%d" % i + b"\n\n"))
    return path


def test_paths_are_the_files_of_the_samples(photos, tmp_path):  # noqa: F811
    files = [f"{photos}/{'ab'[i % 2]}/{i:02}.png" for i in ORDER]
    folder = slotline.folder(photos)
    assert folder.paths == slotline.folder(photos, image=[CenterCrop(8)]).paths == files
    assert folder[::-2].paths == folder[::-2].repeat(1).paths == files[::-2]
    assert folder.select("label").rename(label="y").paths == files
    numbers = slotline.Arrays(i=np.arange(10))
    assert (folder[2:4] + folder[7:8]).paths == [files[2], files[3], files[7]]
    assert numbers.zip(folder).paths == slotline.mix([folder]).paths == files
    assert numbers.paths is None and (numbers + numbers).paths is None
    shards = [tar(tmp_path / f"s{i}.tar", 2) for i in range(2)]
    assert slotline.open(tmp_path / "s{0..1}.tar").paths == [str(shards[i // 2]) for i in range(4)]
    assert slotline.open(tar(tmp_path / "s.tar.gz", 3)).paths is None


def shown(dataset):
    """Returns the text of the cells of a table, without its head, and its pictures."""
    html = dataset._repr_html_()
    assert html.startswith("<code>&lt;slotline.") and html.count("<tr>") == html.count("</tr>")
    rows = [re.findall("<td>(.*?)</td>", row, re.DOTALL) for row in re.findall("<tr>(.*?)</tr>", html, re.DOTALL)]
    pictures = [base64.b64decode(data) for data in re.findall('src="data:image/png;base64,([^"]*)"', html)]
    return rows[0], [[re.sub("<img.*>", "<img>", cell) for cell in row] for row in rows[1:]], pictures


def pixels(data):
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    start = data.index(b"IDAT") + 4
    return np.frombuffer(zlib.decompress(data[start:-16]), "u1").reshape(height, 1 + 3 * width)[:, 1:].reshape(height, width, 3)


def test_a_table_has_the_first_samples(photos):  # noqa: F811
    head, rows, pictures = shown(slotline.folder(photos, image=[CenterCrop([32, 36])], image_dtype="uint8"))
    assert head == ["", "file", "data<br><small>uint8 [3, 32, 36]</small>", "label<br><small>int64 []</small>"]
    assert rows == [[str(i), f"{photos}/a/{ORDER[i]:02}.png", "<img>", "0 (a)"] for i in range(5)]
    for i, picture in zip(ORDER[:5], pictures, strict=True):
        begin = round((PICTURES[i].shape[0] - 32) / 2)
        np.testing.assert_array_equal(pixels(picture), PICTURES[i][begin : begin + 32, 7:43])
    # Large pictures are shown smaller, and numbers as levels.
    _, _, pictures = shown(slotline.folder(photos, image=[CenterCrop(300)])[5:6])
    assert pixels(pictures[0]).shape == (100, 100, 3) and pixels(pictures[0]).min() == 0 and pixels(pictures[0]).max() > 240


def test_files_with_pictures_are_shown_if_pillow_is_installed(photos):  # noqa: F811
    _, rows, pictures = shown(slotline.folder(photos)[:2])
    try:
        import PIL  # noqa: F401
    except ImportError:
        assert [row[2].startswith("[137  80 ...") for row in rows] == [True, True] and pictures == []
    else:
        for i, picture in zip(ORDER, pictures, strict=False):
            np.testing.assert_array_equal(pixels(picture), PICTURES[i])


def test_samples_that_cannot_be_read_have_their_error(photos):  # noqa: F811
    (photos / "a" / "02.png").write_bytes(b"<html>")
    _, rows, pictures = shown(slotline.folder(photos, image=[CenterCrop(8)]))
    assert [len(row) for row in rows] == [4, 3, 4, 4, 4] and len(pictures) == 4
    assert "SampleError" in rows[1][2] and "02.png: expected a JPEG" in rows[1][2]


def test_texts_arrays_and_streams_are_shown(tmp_path):
    for path in tar(tmp_path / "s.tar", 7), tar(tmp_path / "s.tar.gz", 7):
        _, rows, _ = shown(slotline.open(path))
        assert [row[-1].strip() for row in rows] == [f"&lt;b&gt;{i}" for i in range(5)]
    (tmp_path / "x.jsonl").write_text(json.dumps({"<i>": [1.5] * 9, "text": "y" * 999}))
    head, rows, _ = shown(slotline.open(tmp_path / "x.jsonl"))
    assert head[-2:] == ["&lt;i&gt;<br><small>float64 [None]</small>", "text<br><small>str []</small>"]
    assert rows[0][-2:] == ["[1.5 1.5 ... 1.5 1.5]", "y" * 200 + "\u2026"]
    head, rows, pictures = shown(slotline.Arrays(np.arange(3), np.zeros((3, 4, 5), "u1"), np.ones((3, 2, 2))))
    assert head == ["", "<br><small>int64 []</small>", "<br><small>uint8 [4, 5]</small>", "<br><small>float64 [2, 2]</small>"]
    assert len(pictures) == 3 and rows[2][:2] == ["2", "2"]
    assert shown(slotline.Arrays(np.zeros((0, 2)))[:0])[1] == []


@pytest.mark.parametrize("make", [lambda d: d.batch_by_tokens(8), lambda d: d.pack(4)])
def test_batches_and_packed_rows_are_shown(make, tmp_path):
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"x": list(range(n))}) for n in range(1, 4)))
    assert shown(make(slotline.open(tmp_path / "x.jsonl")))[1]
