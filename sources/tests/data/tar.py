"""Writes tars, and the results of reading them by webdataset and tarfile.

    pip install webdataset==1.0.2 numpy && python tar.py
"""

import hashlib
import io
import json
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import webdataset

FOLDER = Path(__file__).with_suffix("")

# The size to which tars are padded; the default is 10240.
tarfile.RECORDSIZE = 1024


def written_by_webdataset():
    with webdataset.ShardWriter(str(FOLDER / "shard-%06d.tar"), maxcount=2, mtime=0, verbose=0) as writer:
        for i in range(3):
            writer.write({
                "__key__": f"sample{i:03d}",
                "jpg": bytes(range(i * 11 % 7)) * 40,
                "cls": i * 3 - 4,
                "txt": f"números {i}",
                "npy": np.arange(6, dtype=np.float32).reshape(2, 3) + i,
                "Extra.BIN": b"\0" * (i * 100),
            })


def written_by_tarfile(name, form, members):
    with tarfile.open(FOLDER / name, "w", format=form) as tar:
        for path, data in members:
            info = tarfile.TarInfo(path)
            info.mtime = 0.5 if path == "dir.x/two.txt" else 0
            if data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


LONG = "a" * 60 + "/" + "b" * 70
MEMBERS = [
    ("dir.x", None),
    ("dir.x/one.txt", b"1"),
    ("dir.x/one.seg.PNG", b"png"),
    ("link.txt", "dir.x/one.txt"),
    ("__meta__/skip.txt", b"no"),
    ("__meta__", b"no"),
    (".hidden.txt", b"no"),
    ("noextension", b"no"),
    ("dir.x/two.txt", b""),
    ("dir.x/two.seg.png", b"x" * 513),
    (f"{LONG}.txt", b"long"),
    (f"{LONG}.seg.png", b"y" * 512),
    ("c" * 250 + ".txt", b"very long"),
    ("c" * 250 + ".seg.png", b"z"),
    ("ümläut.txt", "größe".encode()),
    ("ümläut.seg.png", b"u"),
    ("two/.txt", b"odd"),
    ("two/.seg.png", b"odd"),
    # The key occurs again, which is another sample.
    ("dir.x/one.txt", b"again"),
    ("dir.x/one.seg.png", b"again"),
]

SHORTER = {
    "gnu": ["dir.x", "c" * 250 + ".txt", "c" * 250 + ".seg.png"],
    "ustar": ["dir.x/one.txt", "dir.x/one.seg.PNG", "dir.x/one.seg.png", f"{LONG}.txt", f"{LONG}.seg.png"],
}


def read(*names):
    samples = []
    for sample in webdataset.WebDataset([str(FOLDER / name) for name in names], shardshuffle=False):
        fields = {key: value for key, value in sample.items() if not key.startswith("__")}
        samples.append({
            "__key__": sample["__key__"],
            "fields": {key: [len(value), hashlib.sha256(value).hexdigest()[:16]] for key, value in fields.items()},
        })
    return samples


def dali_index(name):
    """Writes an index in the format of DALI's tools/wds2idx.py (v1.2)."""
    with tarfile.open(FOLDER / name) as tar:
        samples = []
        for member in tar:
            folder, slash, last = member.name.rpartition("/")
            base, _, extension = last.partition(".")
            key = folder + slash + base
            if not member.isreg() or not base:
                continue
            if not samples or samples[-1][0] != key:
                samples.append((key, []))
            samples[-1][1].append(f"{extension} {member.offset_data} {member.size} {member.name}")
    lines = [" ".join(members) for _, members in samples]
    (FOLDER / name).with_suffix(".idx").write_text("\n".join([f"v1.2 {len(lines)}", *lines, ""]))


def main():
    FOLDER.mkdir(exist_ok=True)
    written_by_webdataset()
    forms = {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT}
    for name, form in forms.items():
        members = [member for member in MEMBERS if form == tarfile.PAX_FORMAT or member[0] in SHORTER[name]]
        written_by_tarfile(f"{name}.tar", form, members)
    shards = ["shard-000000.tar", "shard-000001.tar"]
    for name in shards:
        dali_index(name)
    decoded = [
        {"cls": sample["cls"], "txt": sample["txt"], "npy": sample["npy"].flatten().tolist()}
        for sample in webdataset.WebDataset([str(FOLDER / name) for name in shards], shardshuffle=False).decode()
    ]
    expected = {
        "versions": {"webdataset": version("webdataset"), "numpy": version("numpy"), "python": sys.version.split()[0]},
        "shards": read(*shards),
        "decoded": decoded,
        **{name: read(f"{name}.tar") for name in forms},
    }
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


main()
