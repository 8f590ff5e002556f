"""Random CSV and JSONL files, compared with what Python's csv and json read."""

import csv
import decimal
import json
import math
import random
import struct
import time

import numpy as np
import pytest
from helpers import rows_of

import slotline
from slotline import Loader

TEXTS = ["", " ", "a", "Once upon", '"', "\\", ",", "\n", "\t", "ü", "♥", "😀", "null", "1e5", "/", "\x7f", "{}", "\u2028"]
I64 = 1 << 63


def text(draw):
    return "".join(draw.choice(TEXTS) for _ in range(draw.randrange(5)))


def integer(draw, bits=63):
    return str(draw.randrange(-(1 << draw.randrange(1, bits + 1)), 1 << draw.randrange(1, bits + 1)))


def number(draw):
    """Returns a float in one of several notations: the shortest, one with too few or too many
    digits, or one next to the midpoint of two floats."""
    while not math.isfinite(value := struct.unpack("<d", draw.randbytes(8))[0]) or value == math.nextafter(value, math.inf):
        pass
    value = draw.choice([value, draw.uniform(-1000, 1000), draw.random()])
    with decimal.localcontext(prec=2000):
        middle = (decimal.Decimal(value) + decimal.Decimal(math.nextafter(value, 0.0))) / 2
        beside = middle * (1 + decimal.Decimal(draw.randrange(-1, 2)).scaleb(-draw.randrange(20, 900)))
        written = [
            repr(float(value)),
            f"{value:.{draw.randrange(26)}e}",
            f"{value:.{draw.randrange(1, 26)}f}",
            f"{draw.choice([middle, beside]):e}",
        ]
    chosen = draw.choice(written)
    # Rounding up the largest floats may give infinity.
    return draw.choice([chosen, chosen.replace("e", "E")]) if math.isfinite(float(chosen)) else "1.5"


def blank(draw):
    return draw.choice(["", "", " ", "\t", "  "])


def joined(draw, items):
    return ",".join(blank(draw) + item + blank(draw) for item in items)


def string(draw, value):
    return json.dumps(value, ensure_ascii=draw.random() < 0.5)


def listed(draw, make):
    return f"[{joined(draw, [make(draw) for _ in range(draw.randrange(6))])}]"


def nested(draw, depth=2):
    """Returns a list or an object, with repeated keys and with integers of any length."""
    scalars = [number, lambda draw: integer(draw, 200), lambda draw: string(draw, text(draw))]

    def any_value(draw):
        if depth and draw.random() < 0.4:
            return nested(draw, depth - 1)
        return draw.choice([*scalars, lambda draw: draw.choice(["null", "true"])])(draw)

    if draw.random() < 0.5:
        return listed(draw, any_value)
    pairs = [f"{string(draw, draw.choice('kkü'))}{blank(draw)}:{blank(draw)}{any_value(draw)}" for _ in range(draw.randrange(4))]
    return f"{{{joined(draw, pairs)}}}"


# For each kind of column: a function that writes a value, a value that determines the kind, and the
# type in Python.
COLUMNS = {
    "integers": (integer, "7", np.int64),
    "floats": (lambda draw: draw.choice([number(draw), integer(draw, 53)]), "0.5", np.float64),
    "truths": (lambda draw: draw.choice(["true", "false"]), "true", np.bool_),
    "texts": (lambda draw: string(draw, text(draw)), '"t"', None),
    "integer lists": (lambda draw: listed(draw, integer), "[3]", lambda found: np.array(found, np.int64)),
    "float lists": (
        lambda draw: listed(draw, lambda draw: draw.choice([number(draw), integer(draw, 53)])),
        "[ 0.5]",
        lambda found: np.array(found, np.float64),
    ),
    # Kept as text, in the notation of the file, for which json has no type.
    "objects": (nested, '{"k": 1.50}', ...),
    "long integers": (lambda draw: listed(draw, lambda draw: integer(draw, 100)), f"[{I64}]", ...),
}


def jsonl(draw, path):
    """Writes a JSONL file, and returns its rows."""
    kinds = [draw.choice([*COLUMNS]) for _ in range(draw.randrange(1, 7))]
    names = [f"{text(draw)}{column}" for column in range(len(kinds))]
    rows, lines = [], [draw.choice(["", "\ufeff"])]
    count = draw.randrange(1, 12)
    for row in range(count):
        cells = {}
        for name, kind in zip(names, kinds):
            make, first, _ = COLUMNS[kind]
            cells[name] = first if row == 0 else make(draw)
        pairs = [f"{string(draw, name)}{blank(draw)}:{blank(draw)}{cell}" for name, cell in cells.items()]
        if row > 0:
            draw.shuffle(pairs)
        line = f"{blank(draw)}{{{joined(draw, pairs)}}}{blank(draw)}"
        found, expected = json.loads(line), {}
        for (name, cell), kind in zip(cells.items(), kinds):
            of = COLUMNS[kind][2]
            expected[name] = cell if of is ... else found[name] if of is None else of(found[name])
        rows.append(expected)
        lines += [draw.choice(["", "", " \n"]), line, "" if row == count - 1 else draw.choice(["\n", "\r\n"])]
    path.write_text("".join(lines), encoding="utf-8", newline="")
    return rows


def csv_table(draw, path):
    """Writes a CSV file, and returns its rows."""
    makes = [
        (integer, "+7", lambda cell: np.int64(int(cell))),
        (lambda draw: draw.choice([number(draw), integer(draw, 53)]), ".5", lambda cell: np.float64(float(cell))),
        (lambda draw: draw.choice(["true", "False", "TRUE"]), "true", lambda cell: np.bool_(cell.lower() == "true")),
        (text, "t", str),
        (integer, str(I64), str),
    ]
    columns = [draw.choice(makes) for _ in range(draw.randrange(1, 7))]
    names = [f"{text(draw)}{column}" for column in range(len(columns))]
    with path.open("w", encoding=draw.choice(["utf-8", "utf-8-sig"]), newline="") as file:
        quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        writer = csv.writer(file, quoting=quoting, lineterminator=draw.choice(["\n", "\r\n"]))
        writer.writerow(names)
        writer.writerow([first for _, first, _ in columns])
        writer.writerows([make(draw) for make, _, _ in columns] for _ in range(draw.randrange(10)))
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [{name: of(row[name]) for name, (_, _, of) in zip(names, columns)} for row in csv.DictReader(file)]


@pytest.mark.parametrize("write, extension", [(jsonl, "jsonl"), (csv_table, "csv")])
def test_random_tables_are_read_as_python_reads_them(tmp_path, write, extension):
    for seed in range(150):
        path = tmp_path / f"{seed}.{extension}"
        expected = write(random.Random(seed), path)
        found = rows_of(Loader(slotline.open(path), 4))
        assert len(found) == len(expected), seed
        for row, wanted in zip(found, expected):
            assert list(row) == list(wanted), seed
            for name, value in wanted.items():
                if isinstance(value, str):
                    assert row[name] == value, (seed, name)
                else:
                    assert (row[name].dtype, row[name].tobytes()) == (value.dtype, value.tobytes()), (seed, name, value)


@pytest.mark.parametrize(
    "rows, words",
    [
        ('{"n": 1}\n{"n": 9223372036854775808}', "line 2, column n: 9223372036854775808 is no i64"),
        ('{"n": 1.5}\n{"n": 1e999}', "line 2, column n: 1e999 is no i64 and no f64"),
        ('{"n": 1.5}\n{"n": 9007199254740993}', "line 2, column n: an integer that f64 does not hold exactly"),
        ('{"n": "a", "m": 1}\n{"m": 2}', "line 2, column n: no value"),
        ('{"n": 1}\n{"n": "1"}', "line 1, column n: values of different kinds"),
    ],
)
def test_what_does_not_fit_names_line_and_key(tmp_path, rows, words):
    (tmp_path / "rows.jsonl").write_text(rows)
    with pytest.raises(slotline.DataError, match=f"rows.jsonl: {words}"):
        slotline.open(tmp_path / "rows.jsonl")


def columns_of(rows, folder, **options):
    """Writes a table of numbers, nulls, texts and a category in small row groups; returns it, and a
    dataset of it."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    numbers = np.arange(rows, dtype=np.int64)
    columns = {
        "number": pa.array([None if i % 7 == 3 else int(i) for i in numbers], pa.int64()),
        "flag": pa.array([bool(i % 3) for i in numbers]),
        "half": pa.array(np.arange(rows).astype(np.float16)),
        "text": pa.array([f"row {i}" * (i % 4) for i in numbers]),
        "kind": pa.array([f"kind {i % 5}" for i in numbers]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), folder / "table.parquet", row_group_size=100)
    return slotline.open(folder / "table.parquet", default_number={"number": -1}, **options)


@pytest.mark.parametrize("limit", [1 << 30, 20_000])
def test_tables_are_written_column_by_column_with_defaults_and_little_memory(tmp_path, limit):
    dataset = columns_of(2_000, tmp_path, memory_limit=limit)
    found = []
    for batch in slotline.Loader(dataset, 64, shuffle=True, seed=1, num_workers=2):
        for number, flag, half, text, kind in zip(*(batch[name] for name in ("number", "flag", "half", "text", "kind"))):
            row = int(half)
            assert (int(number), bool(flag)) == (-1 if row % 7 == 3 else row, bool(row % 3))
            assert (str(text), str(kind)) == (f"row {row}" * (row % 4), f"kind {row % 5}")
            found.append(row)
    assert sorted(found) == list(range(2_000))


def test_a_column_that_only_a_later_file_has_is_an_error(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [1], "label": [2]}), tmp_path / "1.parquet")
    with pytest.raises(slotline.DataError, match="1.parquet: the column label is not in .*0.parquet"):
        slotline.open(tmp_path / "*.parquet")
    assert len(slotline.open(tmp_path / "*.parquet", columns=["a"])) == 2


def test_a_damaged_row_group_is_decoded_once_when_its_rows_are_skipped(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    table = pa.table({f"c{i}": rng.random(20_000) for i in range(8)})
    path = tmp_path / "table.parquet"
    pq.write_table(table, path, use_dictionary=False, compression="snappy", row_group_size=20_000)
    column = pq.ParquetFile(path).metadata.row_group(0).column(7)
    damaged = bytearray(path.read_bytes())
    damaged[column.data_page_offset : column.data_page_offset + 8] = b"\xff" * 8
    path.write_bytes(damaged)
    loader = slotline.Loader(slotline.open(path), 100, on_error="skip")
    # Reading the damaged file takes at least a millisecond each time.
    batches, errors, began = iter(loader), 0, time.monotonic()
    with pytest.warns(RuntimeWarning, match="left out"):
        while True:
            try:
                assert next(batches, None) is None
                break
            except slotline.SampleError as error:
                assert "1000 of the last 1000 samples are bad" in str(error)
                errors += 1
    assert errors == 20 and time.monotonic() - began < 10
    with pytest.raises(slotline.SampleError, match="row group 0: column c7"):
        next(iter(slotline.Loader(slotline.open(path), 100)))
