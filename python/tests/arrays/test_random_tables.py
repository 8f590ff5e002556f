"""Random Parquet and Arrow files are read with the same values as in pyarrow. ``seeds`` generates
the cases."""

import random

import numpy as np
import pytest

import slotline
from seeds import cases
from slotline import Loader

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
TIMES = [pa.date32(), pa.time32("ms"), pa.time64("us"), pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ns")]
TEXTS = ["", "a", "Once upon", "ü♥😀", "more than twelve bytes", "x" * 100]


def integer(rng, of):
    bits = of.bit_width
    low, high = (0, 2**bits - 1) if pa.types.is_unsigned_integer(of) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice([low, high, 0, rng.randint(low, high)])


def maker(rng, is_parquet, depth=0):
    """Returns a random type, and a function that creates a random value of it."""
    kinds = ["integer", "float", "half", "bool", "time", "text", "bytes", "fixed", "categories"]
    kinds += ["list", "tensor", "struct"] if depth == 0 else []
    kind = rng.choice(kinds)
    if kind == "integer":
        of = rng.choice(INTEGERS)
        return of, lambda: integer(rng, of)
    if kind == "float":
        of = rng.choice([pa.float32(), pa.float64()])
        return of, lambda: rng.choice([0.0, -1.5, float("inf"), rng.randint(-1000, 1000) / 8])
    if kind == "half":
        return pa.float16(), lambda: np.float16(rng.randint(-100, 100) / 8)
    if kind == "bool":
        return pa.bool_(), lambda: rng.random() < 0.5
    if kind == "time":
        of = rng.choice(TIMES)
        return of, lambda: rng.randint(0, 80_000_000 if pa.types.is_time32(of) else 100_000)
    if kind == "text":
        of = rng.choice([pa.string(), pa.large_string(), pa.string_view()])
        return of, lambda: rng.choice(TEXTS)
    if kind == "bytes":
        of = rng.choice([pa.binary(), pa.large_binary(), pa.binary_view()])
        return of, lambda: rng.randbytes(rng.choice([0, 1, 12, 13, 200]))
    if kind == "fixed":
        size = rng.randint(1, 20)
        return pa.binary(size), lambda: rng.randbytes(size)
    if kind == "categories":
        # pyarrow restores dictionaries from Parquet with this type of index.
        return pa.dictionary(pa.int32() if is_parquet else rng.choice([pa.int8(), pa.int32()]), pa.string()), lambda: rng.choice(TEXTS)
    if kind == "struct":
        members = [(f"m{k}", *maker(rng, is_parquet, 1)) for k in range(rng.randint(1, 3))]
        return pa.struct([(name, of) for name, of, _ in members]), lambda: {name: make() for name, _, make in members}
    of = rng.choice([*INTEGERS, pa.float32(), pa.float64(), pa.bool_()])

    def element():
        return integer(rng, of) if pa.types.is_integer(of) else rng.random() < 0.5 if pa.types.is_boolean(of) else rng.randint(-99, 99) / 4

    if kind == "tensor":
        size = rng.randint(1, 4)
        return pa.list_(of, size), lambda: [element() for _ in range(size)]
    lists = [pa.list_(of), pa.large_list(of)] + ([] if is_parquet else [pa.list_view(of)])
    return rng.choice(lists), lambda: [element() for _ in range(rng.choice([0, 1, 5]))]


def column(rng, is_parquet, rows, nulls):
    of, make = maker(rng, is_parquet)
    values = [None if rng.random() < nulls else make() for _ in range(rows)]
    if pa.types.is_struct(of):
        # Have at least one value: where all are missing, pyarrow writes indices into empty
        # dictionaries.
        values[0] = make()
    if pa.types.is_temporal(of):
        width = pa.int32() if of.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(of)
    return pa.array(values, of)


def write(rng, table, path, is_parquet):
    if is_parquet:
        options = {
            "compression": rng.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
            "use_dictionary": rng.random() < 0.5,
            "row_group_size": rng.choice([3, 50, 1000]),
            "data_page_size": rng.choice([1, 100, 1 << 20]),
            "data_page_version": rng.choice(["1.0", "2.0"]),
            "write_page_index": rng.random() < 0.5,
            "write_batch_size": rng.choice([1, 7, 1024]),
            "store_schema": True,
        }
        parquet.write_table(table, path, **options)
        return options
    options = {"compression": rng.choice([None, "lz4", "zstd"]), "emit_dictionary_deltas": rng.random() < 0.5}
    new = rng.choice([pa.ipc.new_file, pa.ipc.new_stream])
    # A file has one dictionary for all of its batches.
    table = table.unify_dictionaries()
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, rng.choice([3, 50, 1000]))
    return options


def flat(name, array):
    """Returns the fields that a column is read as, with their Python values, and the replacement of
    a missing value."""
    of = array.type
    if pa.types.is_struct(of):
        fields = []
        for k in range(of.num_fields):
            # Flattened columns include the nulls of the struct.
            fields += flat(f"{name}.{of.field(k).name}", pa.chunked_array([chunk.flatten()[k] for chunk in array.chunks], of.field(k).type))
        return fields
    if pa.types.is_temporal(of):
        array = array.cast(pa.int32() if of.bit_width == 32 else pa.int64())
    zero = 0
    if pa.types.is_dictionary(of) or pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of):
        zero = ""
    elif pa.types.is_fixed_size_list(of):
        zero = [0] * of.list_size
    elif pa.types.is_fixed_size_binary(of):
        zero = bytes(of.byte_width)
    elif pa.types.is_binary(of) or pa.types.is_large_binary(of) or pa.types.is_binary_view(of):
        zero = b""
    elif pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_list_view(of):
        zero = []
    return [(name, array.to_pylist(), zero)]


def plain(value):
    """Returns a value of a batch as a Python object."""
    return value if isinstance(value, str) else value.tolist()


def test_random_tables_have_the_values_of_pyarrow(tmp_path):
    for seed in cases(150):
        rng = random.Random(seed)
        is_parquet = rng.random() < 0.6
        rows, nulls = rng.choice([1, 20, 300]), rng.choice([0, 0, 0.2])
        columns = {f"c{k}": column(rng, is_parquet, rows, nulls) for k in range(rng.randint(1, 6))}
        columns["row"] = pa.array(range(rows))
        table = pa.table(columns)
        path = tmp_path / f"{seed}.{'parquet' if is_parquet else 'arrow'}"
        try:
            written = write(rng, table, path, is_parquet)
        except pa.ArrowNotImplementedError:
            # pyarrow does not support row groups of view types.
            continue
        about = f"seed {seed}: {written}, {table.schema.to_string(show_field_metadata=False)}"
        limit = rng.choice([None, 1 << 30, 10_000])
        # Parquet has no seconds, for example, so compare with what pyarrow reads back.
        try:
            table = parquet.read_table(path) if is_parquet else table
        except pa.ArrowInvalid:
            # pyarrow cannot read some of its own files with tiny pages.
            continue
        wanted = [field for name in columns for field in flat(name, table[name])]
        try:
            dataset = slotline.open(path, missing_as_zero=True, memory_limit=limit)
        except slotline.DataError as error:
            if limit == 10_000 and "dictionary" in str(error):
                continue
            raise AssertionError(about) from error
        assert [field.name for field in dataset.fields] == [name for name, _, _ in wanted], about
        loader = Loader(dataset, rng.choice([1, 7, 64]), shuffle=rng.random() < 0.5, seed=seed, num_workers=rng.choice([0, 2]))
        seen = {name: [] for name, _, _ in wanted}
        for batch in loader:
            for name in seen:
                seen[name] += [plain(value) for value in batch[name]]
        indices = seen["row"]
        assert sorted(indices) == list(range(rows)), about
        for name, values, zero in wanted:
            for row, (index, value) in enumerate(zip(indices, seen[name], strict=True)):
                want = zero if values[index] is None else values[index]
                if isinstance(want, bytes):
                    want = list(want)
                assert value == want, f"{about}; row {index} of {name}, place {row}"


def test_row_groups_with_a_page_index_are_read_in_parts(tmp_path):
    draw = np.random.default_rng(0)
    count = 200_000
    few = draw.integers(0, 5, count).astype("u1")
    table = pa.table({
        "row": np.arange(count),
        "few": few,
        "text": [f"{'x' * (row % 50)}{row}" for row in range(count)],
        "lists": pa.array([list(range(row % 4)) for row in range(count)], pa.list_(pa.int32())),
    })
    path = tmp_path / "x.parquet"
    for version, dictionary in (("1.0", True), ("2.0", False)):
        options = {"data_page_version": version, "use_dictionary": dictionary, "write_page_index": True}
        parquet.write_table(table, path, row_group_size=150_000, data_page_size=50_000, **options)
        for limit in (None, 1 << 20):
            dataset = slotline.open(path, memory_limit=limit)
            loader = Loader(slotline.Subset(dataset, draw.permutation(count)[:200]), 100, num_workers=2)
            for batch in loader:
                for row, small, text, numbers in zip(batch["row"], batch["few"], batch["text"], batch["lists"]):
                    assert small == few[row]
                    assert text == f"{'x' * (row % 50)}{row}"
                    assert numbers.tolist() == list(range(row % 4))
            whole = slotline.open(path, columns=["row"], memory_limit=limit)
            np.testing.assert_array_equal(np.concatenate([batch["row"] for batch in Loader(whole, 1000, num_workers=2)]), np.arange(count))


def test_categories_that_are_all_missing_need_no_dictionary(tmp_path):
    table = pa.table({"a": pa.array([None, None], pa.dictionary(pa.int8(), pa.string())), "b": [1, 2]})
    parquet.write_table(table, tmp_path / "x.parquet")
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("x.parquet", "x.arrow"):
        (batch,) = Loader(slotline.open(tmp_path / name, missing_as_zero=True), 2)
        assert batch["a"] == ["", ""] and batch["b"].tolist() == [1, 2]
        with pytest.raises(slotline.SampleError, match=r"row 0: column a has no value \(null\)"):
            list(Loader(slotline.open(tmp_path / name), 2))
