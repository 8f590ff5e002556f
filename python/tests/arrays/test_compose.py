"""Datasets made of others, against lists of Python."""

import json
import pickle
import random

import numpy as np
import pytest

from seeds import cases

import slotline
from slotline import Arrays, ConcatDataset, DataError, Loader, StackDataset, Subset

N = 23
# Lists of any length, as those that are read from files.
DOCUMENTS = [[100 * i + k for k in range(i * 7 % 11 + 1)] for i in range(N)]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A file with a number, a list and a text in each line."""
    path = tmp_path_factory.mktemp("lines") / "documents.jsonl"
    path.write_text("".join(json.dumps({"i": i, "tokens": DOCUMENTS[i], "text": f"t{i}"}) + "\n" for i in range(N)))
    return slotline.open(path)


def plain(sample):
    """Returns a sample as numbers, texts and lists."""
    if isinstance(sample, dict):
        return {name: plain(value) for name, value in sample.items()}
    if isinstance(sample, tuple):
        return tuple(map(plain, sample))
    return sample if isinstance(sample, str) else sample.tolist()


def samples(dataset, **options):
    """Returns the samples of a dataset, from batches of 4."""
    found = []
    for batch in Loader(dataset, 4, **options):
        fields = batch.values() if isinstance(batch, dict) else batch
        for row in zip(*fields, strict=True):
            found.append(plain(dict(zip(batch, row, strict=True)) if isinstance(batch, dict) else row))
    return found


def arrays(length, start):
    x = np.arange(start, start + 2 * length, dtype="f4").reshape(length, 2)
    return Arrays(x=x, y=np.arange(start, start + length)), [{"x": r.tolist(), "y": start + i} for i, r in enumerate(x)]


def pipeline(draw, lines):
    """Returns a random dataset made of others, and its samples."""
    if draw.random() < 0.5:
        dataset, model = arrays(draw.randrange(1, 9), draw.randrange(100))
    else:
        dataset = lines
        model = [{"i": i, "text": f"t{i}", "tokens": DOCUMENTS[i]} for i in range(N)]
    model = [{field.name: sample[field.name] for field in dataset.fields} for sample in model]
    for _ in range(draw.randrange(1, 6)):
        names = [field.name for field in dataset.fields]
        match draw.randrange(8):
            case 0:
                chosen = draw.sample(names, draw.randint(1, len(names)))
                dataset, model = dataset.select(*chosen), [{name: s[name] for name in chosen} for s in model]
            case 1:
                old, new = draw.choice(names), f"n{draw.randrange(10**6)}"
                dataset = dataset.rename(**{old: new})
                model = [{new if name == old else name: value for name, value in s.items()} for s in model]
            case 2:
                count = draw.randrange(30)
                dataset, model = dataset.take(count), model[:count]
            case 3:
                world_size = draw.randint(1, 4)
                rank = draw.randrange(world_size)
                dataset, model = dataset.shard(rank, world_size), model[rank::world_size]
            case 4 if len(model) < 100:
                times = draw.randrange(4)
                dataset, model = dataset.repeat(times), model * times
            case 5 if len(model) < 100:
                dataset, model = dataset.concat(dataset.take(3), dataset), model + model[:3] + model
            case 6 if len(names) < 9:
                other, more = arrays(len(model), draw.randrange(100))
                x, y = (f"z{draw.randrange(10**6)}" for _ in range(2))
                dataset = dataset.zip(other.rename(x=x, y=y))
                model = [{**a, x: b["x"], y: b["y"]} for a, b in zip(model, more, strict=True)]
            case 7:
                step = draw.choice([-3, -1, 2])
                dataset, model = dataset[::step], model[::step]
    return dataset, model


@pytest.mark.filterwarnings("ignore:num_workers is")
def test_random_pipelines(lines):
    for seed in cases(60):
        draw = random.Random(seed)
        dataset, model = pipeline(draw, lines)
        assert len(dataset) == len(model), seed
        assert samples(dataset, num_workers=draw.randrange(3)) == model, seed
        assert [plain(dataset[i]) for i in range(-len(model), 0)] == model, seed
        if model:
            assert [field.name for field in dataset.fields] == list(model[0]), seed
        copy = pickle.loads(pickle.dumps(dataset))
        assert repr(copy) == repr(dataset) and f"of {len(model)} samples" in repr(dataset), seed
        assert samples(copy) == model, seed


def test_fields_without_names():
    dataset = Arrays(np.arange(4), np.arange(4) * 10, np.arange(8).reshape(4, 2))
    assert samples(dataset.select(2, 0)[1:3]) == [([2, 3], 1), ([4, 5], 2)]
    assert samples(dataset.rename("a", "b", "c").select("b").take(2)) == [{"b": 0}, {"b": 10}]
    assert samples(dataset.zip(dataset).select(4, 0, 1, 3).take(1)) == [(0, 0, 0, 0)]
    swapped = Arrays(a=np.arange(3), b=np.arange(3) * 10).rename(a="b", b="a")
    assert samples(swapped.take(2)) == [{"b": 0, "a": 0}, {"b": 1, "a": 10}]


def test_what_is_left_out_is_not_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n' * 3)
    files = slotline.open(tmp_path / "a.jsonl")
    both = files.zip(Arrays(y=np.arange(3)))
    (tmp_path / "a.jsonl").unlink()
    assert samples(both.select("y")) == [{"y": 0}, {"y": 1}, {"y": 2}]


def test_long_datasets_take_no_memory():
    dataset = Arrays(i=np.arange(10)).repeat(10**15)
    assert len(dataset) == 10**16 and dataset[123_456_789_012]["i"] == 2
    some = dataset.shard(3, 10**12).take(3)[::-1]
    assert [sample["i"].item() for sample in some] == [3, 3, 3]
    assert isinstance(some, Subset) and Loader(some).memory_ceiling < 1 << 20


def test_states_of_composed_datasets():
    x = Arrays(i=np.arange(N))
    dataset = x.take(20).repeat(3).concat(x[::-1]).shard(1, 2)
    loader = Loader(dataset, 4, shuffle=True, seed=3)
    whole = [batch["i"].tolist() for batch in loader]
    for done in range(len(whole)):
        loader = Loader(dataset, 4, shuffle=True, seed=3)
        batches = iter(loader)
        for _ in range(done):
            next(batches)
        resumed = Loader(dataset, 4, shuffle=True, seed=3)
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict() if done else Loader(dataset, 4, True, seed=3).state_dict())))
        assert [batch["i"].tolist() for batch in resumed] == whole[done:]


DATA = Arrays(x=np.arange(6), y=np.arange(6))


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: DATA.select("z"), DataError, "no field 'z'; the dataset has 'x', 'y'"),
        (lambda: DATA.select(0), DataError, "no field 0"),
        (lambda: DATA.select(), DataError, "no field is selected"),
        (lambda: DATA.select("x", "x"), DataError, "'x' is selected twice"),
        (lambda: Arrays(np.ones(2)).select(1), DataError, "no field 1; the dataset has 0"),
        (lambda: Arrays(np.ones(2)).select(True), DataError, "no field True"),
        (lambda: DATA.rename(z="a"), DataError, "no field 'z'"),
        (lambda: DATA.rename(x="y"), DataError, "two fields have the name 'y'"),
        (lambda: DATA.rename("a"), DataError, "1 names are given, but a sample has 2 fields"),
        (lambda: Arrays(np.ones(2)).rename(x="a"), DataError, "name all by position"),
        (lambda: DATA.take(-1), DataError, "count is -1"),
        (lambda: DATA.take(1.5), TypeError, "count is 1.5"),
        (lambda: DATA.repeat(True), TypeError, "times is True"),
        (lambda: DATA.repeat(1 << 62), DataError, "can't be counted"),
        (lambda: DATA.shard(2, 2), DataError, "rank is 2, but world_size is 2"),
        (lambda: DATA.zip(DATA), DataError, "two fields have the name 'x'"),
        (lambda: DATA.zip(Arrays(z=np.ones(5))), DataError, "dataset 1 has 5 samples"),
        (lambda: DATA.concat(DATA.select("x")), DataError, "fields of dataset 1"),
        (lambda: ConcatDataset([DATA.select("y", "x"), DATA]), DataError, "fields of dataset 1"),
        (lambda: StackDataset(a=DATA), DataError, "has 2 fields"),
    ],
)
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()
