"""Datasets made of others, against lists of Python."""

import json
import pickle
import random

import numpy as np
import pytest

import test_arrays
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
    for seed in cases(40):
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


class Drawn:
    """A sampler that draws from a generator of its own, whose state it has."""

    def __init__(self, seed, batches=False):
        self.generator, self.batches = random.Random(seed), batches

    def __iter__(self):
        order = [self.generator.randrange(N) for _ in range(20)]
        if not self.batches:
            return iter(order)
        cuts = sorted(self.generator.sample(range(1, 20), 6))
        return iter([order[a:b] for a, b in zip([0, *cuts], [*cuts, 20], strict=True)])

    def state_dict(self):
        return {"state": self.generator.getstate()}

    def load_state_dict(self, state):
        version, words, gauss = state["state"]
        self.generator.setstate((version, tuple(words), gauss))


NUMBERS = Arrays(i=np.arange(N))


def numbers(batches):
    return [batch["i"].tolist() for batch in batches]


def cut(order, size, drop_last=False):
    batches = [order[at : at + size] for at in range(0, len(order), size)]
    return [batch for batch in batches if len(batch) == size or not drop_last]


@pytest.mark.filterwarnings("ignore:num_workers is")
@pytest.mark.parametrize("workers", [0, 2])
def test_samplers(workers):
    order = [3, 1, 4, -1, 5, 9, 2, 6, 5]
    plain = [i % N for i in order]
    for sampler in (order, np.array(order), tuple(order), dict.fromkeys(order).keys()):
        whole = plain if len(sampler) == len(order) else list(dict.fromkeys(plain))
        for drop_last in (False, True):
            loader = Loader(NUMBERS, 4, sampler=sampler, num_workers=workers, drop_last=drop_last)
            for _ in range(2):
                assert numbers(loader) == cut(whole, 4, drop_last)
            assert len(loader) == len(cut(whole, 4, drop_last)) and loader.epoch == 2
    loader = Loader(NUMBERS, None, sampler=order, num_samples=3, include_index=True)
    assert [(s["i"].item(), s["index"].item()) for s in loader] == [(3, 3), (1, 1), (4, 4)] and len(loader) == 3
    drawn = Loader(NUMBERS, 4, sampler=Drawn(7), num_workers=workers)
    model = Drawn(7)
    assert [numbers(drawn) for _ in range(3)] == [cut(list(model), 4) for _ in range(3)]
    with pytest.raises(TypeError, match="len"):
        len(drawn)
    # Each pass has as many samples as the sampler says then.
    grown = [1]
    loader = Loader(NUMBERS, 4, sampler=grown, num_workers=workers)
    for _ in range(3):
        assert numbers(loader) == cut(grown, 4)
        grown.extend(range(7))


@pytest.mark.filterwarnings("ignore:num_workers is")
@pytest.mark.parametrize("workers", [0, 2])
def test_batch_samplers(workers):
    batches = [[1], [2, 3], [-1, 0, 5]]
    loader = Loader(NUMBERS, batch_sampler=batches, num_workers=workers, include_index=True)
    for _ in range(2):
        passed = iter(loader)
        assert len(loader) == len(passed) == len(batches)
        for batch, expected in zip(passed, batches, strict=True):
            assert batch["index"].tolist() == batch["i"].tolist() == [i % N for i in expected]
        # A batch that is longer than any before.
        batches.append([4] * (9 + len(batches)))
    loader, model = Loader(NUMBERS, batch_sampler=Drawn(3, True), num_workers=workers), Drawn(3, True)
    assert [numbers(loader) for _ in range(4)] == [list(model) for _ in range(4)]
    generators = Loader(NUMBERS, batch_sampler=[np.array([1, 2]), range(3), (4,)])
    assert numbers(generators) == [[1, 2], [0, 1, 2], [4]]
    assert numbers(Loader(NUMBERS, batch_sampler=[])) == []


@pytest.mark.parametrize("batches", [False, True])
def test_samplers_resume_at_every_batch(batches):
    def loader(seed=5, sampler=Drawn):
        sampler = sampler(seed, batches)
        return Loader(NUMBERS, batch_sampler=sampler) if batches else Loader(NUMBERS, 4, sampler=sampler)

    whole = [numbers(passes) for passes in [loader()] for _ in range(4)]
    for epoch in range(2):
        for done in range(len(whole[epoch]) + 1):
            first = loader()
            for _ in range(epoch):
                list(first)
            passed = iter(first)
            for _ in range(done):
                next(passed)
            if done == len(whole[epoch]):
                assert next(passed, None) is None
            state = json.loads(json.dumps(first.state_dict()))
            # That of another seed: the state has the sampler's own.
            second = loader(99)
            second.load_state_dict(state)
            assert second.state_dict()["sampler"] == state["sampler"]
            rest = numbers(second)
            assert rest == whole[epoch][done:] or done == len(whole[epoch]) and rest == whole[epoch + 1]
            assert numbers(second) == whole[second.epoch - 1]

    class Fixed(Drawn):
        """Has no state, and always draws the same."""

        state_dict = load_state_dict = None

        def __init__(self, seed, batches):
            self.seed, self.batches = seed, batches

        def __iter__(self):
            return iter(list(Drawn(self.seed, self.batches)))

    first = loader(5, Fixed)
    next(iter(first))
    state = first.state_dict()
    assert "sampler" not in state
    second = loader(5, Fixed)
    second.load_state_dict(state)
    assert numbers(second) == whole[0][1:]
    other = loader(6, Fixed)
    other.load_state_dict(state)
    with pytest.raises(slotline.Error, match="has chosen other samples than in the pass that the state was saved in"):
        list(other)
    kinds = [Loader(NUMBERS, 4), Loader(NUMBERS, 4, True), Loader(NUMBERS, 4, sampler=[1]), Loader(NUMBERS, batch_sampler=[[1]])]
    for another in (kind for place, kind in enumerate(kinds) if place != 2 + batches):
        with pytest.raises(slotline.StateError, match="saved with"):
            another.load_state_dict(state)


def test_indices_of_samples():
    tuples = Arrays(np.arange(N) * 10)
    for batch, index in Loader(tuples, 5, shuffle=True, include_index=True):
        assert index.dtype == np.int64 and (batch == 10 * index).all()
    chosen = Loader(tuples[::2], 5, shuffle=True, include_index=True)
    assert all((batch == 20 * index).all() for batch, index in chosen)
    copy = pickle.loads(pickle.dumps(Loader(NUMBERS, 2, sampler=[2, 1, 0], include_index=True)))
    assert [list(batch) for batch in copy] == [["i", "index"]] * 2


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"sampler": [N]}, DataError, f"sampler has index {N}, but the dataset has {N} samples"),
        ({"sampler": [0, -N - 1]}, DataError, "sampler has index -24"),
        ({"sampler": [0.5]}, DataError, "type float64"),
        ({"sampler": [True]}, DataError, "type bool"),
        ({"sampler": iter([1])}, TypeError, "one pass at most"),
        ({"sampler": 3}, TypeError, "of type int"),
        ({"sampler": [1], "shuffle": True}, slotline.OptionError, "sampler and shuffle exclude"),
        ({"sampler": [1], "rank": 0, "world_size": 2}, slotline.OptionError, "sampler and world_size exclude"),
        ({"sampler": [1], "replacement": True}, slotline.OptionError, "replacement needs shuffle"),
        ({"batch_sampler": [[1], []]}, DataError, "batch 1 of batch_sampler has no indices"),
        ({"batch_sampler": [[1], [2, N]]}, DataError, "batch 1 of batch_sampler has index 23"),
        ({"batch_sampler": [1]}, TypeError, "iterable"),
        ({"batch_sampler": [[1]], "batch_size": 2}, slotline.OptionError, "batch_sampler and batch_size exclude"),
        ({"batch_sampler": [[1]], "sampler": [1]}, slotline.OptionError, "batch_sampler and sampler exclude"),
        ({"batch_sampler": [[1]], "drop_last": True}, slotline.OptionError, "batch_sampler and drop_last exclude"),
        ({"batch_sampler": [[1]], "num_samples": 2}, slotline.OptionError, "batch_sampler and num_samples exclude"),
    ],
)
def test_wrong_samplers(options, error, words):
    with pytest.raises(error, match=words):
        list(Loader(NUMBERS, **options))
    with pytest.raises(slotline.OptionError, match="rename"):
        Loader(NUMBERS.rename(i="index"), include_index=True)


# `DistributedSampler::over(MixtureSampler::new([12, 4], [0.75, 0.25])?, 1, 0)` of slotline for Rust with seed 42, in epochs 0 and 1.
MIXED = {
    ("first_exhausted", False): [
        [14, 15, 2, 7, 13, 3, 9, 6, 11, 0, 8, 12, 1, 4, 10],
        [9, 14, 0, 10, 6, 11, 7, 13, 3, 4, 15, 1, 5, 2, 12],
    ],
    ("all_exhausted", False): [
        [14, 15, 2, 7, 13, 3, 9, 6, 11, 0, 8, 1, 4, 10, 12, 5],
        [9, 14, 0, 10, 6, 11, 13, 15, 7, 3, 4, 1, 5, 12, 2, 8],
    ],
    ("all_exhausted_without_replacement", True): [
        [2, 7, 14, 3, 9, 6, 15, 11, 0, 8, 13, 1, 4, 10, 12, 5],
        [9, 0, 14, 10, 6, 11, 13, 7, 3, 4, 15, 1, 5, 2, 12, 8],
    ],
    (11, False): [[14, 15, 13, 2, 7, 3, 9, 6, 11, 0, 8], [9, 14, 0, 10, 6, 11, 13, 7, 15, 3, 4]],
}
PARTS = [Arrays(i=np.arange(12)), Arrays(i=np.arange(12, 16))]


@pytest.mark.filterwarnings("ignore:num_workers is")
@pytest.mark.parametrize("workers", [0, 2])
def test_mixtures_are_those_of_rust(workers):
    for (stop, even), expected in MIXED.items():
        mixture = slotline.mix(PARTS, [0.75, 0.25], stop=stop, even=even)
        assert len(mixture) == len(expected[0]) and mixture.datasets == tuple(PARTS)
        for dataset in (mixture, pickle.loads(pickle.dumps(mixture))):
            loader = Loader(dataset, 4, shuffle=True, seed=42, num_workers=workers, include_index=True)
            assert len(loader) == -(-len(expected[0]) // 4)
            for order in expected:
                assert [index.tolist() for index in (b["index"] for b in loader)] == cut(order, 4)
            loader.set_epoch(1)
            assert numbers(loader) == cut(expected[1], 4)
    assert repr(mixture) == "<slotline.Mixture of 11 samples by weights [0.75, 0.25]: i: int64 []>"


def test_mixtures_in_order_and_as_parts():
    mixture = slotline.mix([*PARTS, Arrays(i=np.arange(100, 103))], [3, 1, 0.5], stop=30)
    order = [sample["i"].item() for sample in mixture]
    counts = [sum(low <= i < high for i in order) for low, high in ((0, 12), (12, 16), (100, 200))]
    assert counts == [20, 7, 3]
    for low, high in ((0, 12), (12, 16), (100, 103)):
        own = [i for i in order if low <= i < high]
        assert own == [low + k % (high - low) for k in range(len(own))]
    assert [mixture[i]["i"].item() for i in range(-30, 0)] == order
    assert sum(numbers(Loader(mixture, 7, seed=0)), []) == order
    assert sum(numbers(Loader(mixture, 7, seed=1)), []) != order
    assert [sample["i"].item() for sample in mixture.take(9).concat(mixture[::-1])] == order[:9] + order[::-1]
    zipped = mixture.zip(Arrays(w=np.arange(30))).rename(i="sample").select("w", "sample")
    assert samples(zipped) == [{"w": w, "sample": i} for w, i in enumerate(order)]
    by_size = slotline.mix(PARTS)
    assert sorted(sum(numbers(Loader(by_size, 5, shuffle=True)), [])) == list(range(16))
    # A mixture of a mixture.
    nested = slotline.mix([by_size, PARTS[1]], stop=40)
    assert set(sum(numbers(Loader(nested, 8, shuffle=True)), [])) == set(range(16))


SCHEDULE = [[1, 0], [1, 1], [0, 1]]


def test_changed_samples_of_a_mixture_follow_its_schedule():
    mixture = slotline.mix(PARTS, schedule=SCHEDULE, stop=24)
    passes = Loader(mixture, 5, shuffle=True, seed=4)
    expected = [numbers(passes) for _ in range(4)]
    for changed in (
        mixture.rename(i="j").select("j").rename(j="i"),
        mixture.map(lambda sample: sample),
        pickle.loads(pickle.dumps(mixture.rename(i="j"))).rename("i"),
    ):
        loader = Loader(changed, 5, shuffle=True, seed=4)
        assert [numbers(loader) for _ in range(4)] == expected
    few = mixture.filter(lambda sample: sample["i"] < 4, fields=["i"])
    assert [sample["i"] for sample in few] == [sample["i"] for sample in mixture if sample["i"] < 4]


@pytest.mark.parametrize("options", [{"weights": [2, 1], "stop": 50}, {"schedule": SCHEDULE, "stop": 48}, {"weights": [1, 3]}])
def test_mixtures_resume_on_any_number_of_ranks(options):
    mixture = slotline.mix(PARTS, **options)

    def loaders(world_size, size):
        return [Loader(mixture, size, True, seed=9, rank=r, world_size=world_size) for r in range(world_size)]

    def step(passes):
        """Returns what all ranks get together, in the order of the pass."""
        batches = [next(each, None) for each in passes]
        assert len({batch is None for batch in batches}) == 1
        return None if batches[0] is None else sum(zip(*(batch["i"].tolist() for batch in batches)), ())

    alone = Loader(mixture, 4, True, seed=9)
    whole = [sum(numbers(alone), []) for _ in range(4)]
    if "schedule" in options:
        firsts = [sum(i < 12 for i in order) for order in whole]
        assert firsts == [48, 24, 0, 0]
    for epoch in range(3):
        for done in range(len(whole[epoch]) // 4):
            first = loaders(2, 2)
            for loader in first:
                loader.set_epoch(epoch)
            passes = [iter(loader) for loader in first]
            assert [i for _ in range(done) for i in step(passes)] == whole[epoch][: 4 * done]
            if done == 0:
                continue
            state = slotline.merge_states([loader.state_dict() for loader in first])
            for resumed in (loaders(2, 2), [Loader(mixture, 2, True, seed=9)], loaders(1, 2)):
                for loader in resumed:
                    loader.load_state_dict(json.loads(json.dumps(state)))
                rest = list(iter(lambda passes=[iter(loader) for loader in resumed]: step(passes), None))
                rest = [i for some in rest for i in some]
                assert rest[: len(whole[epoch]) - 4 * done] == whole[epoch][4 * done :]
                assert sum(numbers(resumed[0]), []) == whole[epoch + 1][:: len(resumed)][: len(whole[epoch + 1]) or None]


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: slotline.mix(PARTS, [1]), DataError, "1 weights for 2 datasets"),
        (lambda: slotline.mix(PARTS, [1, -1]), DataError, "weight.*-1"),
        (lambda: slotline.mix(PARTS, [0, 0]), DataError, "sum"),
        (lambda: slotline.mix(PARTS, [1, 1], stop="never"), DataError, "stop is 'never'"),
        (lambda: slotline.mix(PARTS, [1, 1], stop=0), DataError, "stop is 0"),
        (lambda: slotline.mix([PARTS[0], PARTS[0].take(0)], [1, 1]), DataError, "dataset 1 is empty"),
        (lambda: slotline.mix([], []), DataError, "no datasets"),
        (lambda: slotline.mix([PARTS[0], DATA], [1, 1]), DataError, "fields of dataset 1"),
        (lambda: slotline.mix(PARTS, schedule=SCHEDULE), DataError, "stop as the number"),
        (lambda: slotline.mix(PARTS, schedule=[1, 2], stop=9), DataError, "schedule has 1; pass weights for each epoch"),
        (lambda: slotline.mix(PARTS, {"a": 1, "b": 2}), DataError, "pass a number for each dataset"),
        (lambda: slotline.mix(PARTS, [1, 1], schedule=SCHEDULE, stop=9), DataError, "exclude each other"),
        (lambda: Loader(slotline.mix(PARTS), sampler=[1]), slotline.OptionError, "sampler excludes a Mixture"),
        (lambda: Loader(slotline.mix(PARTS), 2, True, num_samples=3), slotline.OptionError, "num_samples excludes"),
    ],
)
def test_wrong_mixtures(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_states_of_other_mixtures():
    loader = Loader(slotline.mix(PARTS, [2, 1], stop=20), 2, True, seed=1)
    next(iter(loader))
    state = loader.state_dict()
    for other in (slotline.mix(PARTS, [1, 1], stop=20), slotline.mix(PARTS, [2, 1], stop=20, even=True), PARTS[0].take(8).concat(*PARTS).take(20)):
        with pytest.raises(slotline.StateError):
            Loader(other, 2, True, seed=1).load_state_dict(state)
    with pytest.raises(slotline.StateError, match="its weights are not those of the saved state"):
        Loader(slotline.mix(PARTS, [3, 1], stop=20), 2, True, seed=1).load_state_dict(state)
    same = Loader(slotline.mix(PARTS, [2, 1], stop=20), 2, True, seed=1)
    same.load_state_dict(state)
    # A state that was refused has changed nothing.
    with pytest.raises(slotline.StateError):
        same.load_state_dict({**state, "epoch": 5, "batch_size": 3})
    assert numbers(same) == numbers(Loader(slotline.mix(PARTS, [2, 1], stop=20), 2, True, seed=1))[1:]


LENGTHS = [len(document) for document in DOCUMENTS]
# `LengthBatchSampler::token_budget(lengths, 24)` and `buckets(lengths, [4, 8], [5, 3, 2])` of slotline for Rust with generators of
# seed 42 and 43.
BUDGETED = [
    [[16, 8], [10, 19], [13], [6, 17], [7, 22], [3, 15], [11], [1, 2, 0], [20, 4], [14, 18], [21, 5], [9, 12]],
    [[4, 8], [14, 6], [10], [13, 16], [12, 15, 21], [2, 19, 22, 0], [3, 9], [17, 20], [5], [1, 18, 7], [11]],
]
BUCKETED = [
    [[19, 22], [12, 9], [6, 17], [7, 13], [2, 18, 21], [1, 14], [3, 20], [16, 8, 0, 11, 5], [15, 10, 4]],
    [[3, 9], [16, 11, 8, 22, 19], [10, 15, 21], [1, 12], [0, 5], [4, 2], [14, 6], [13, 18, 7], [17, 20]],
]
# The documents, and the parts of them, of `PackingOptions::new(16).best_fit(lengths)` and `seed(3).chunks(lengths)`.
BEST = [
    [(3, 0, 11), (21, 0, 5)],
    [(14, 0, 11), (10, 0, 5)],
    [(6, 0, 10), (18, 0, 6)],
    [(17, 0, 10), (7, 0, 6)],
    [(9, 0, 9), (15, 0, 7)],
    [(20, 0, 9), (4, 0, 7)],
    [(1, 0, 8), (12, 0, 8)],
    [(2, 0, 4), (13, 0, 4), (5, 0, 3), (16, 0, 3), (8, 0, 2)],
    [(19, 0, 2), (0, 0, 1), (11, 0, 1), (22, 0, 1)],
]
CHUNKS = [
    [(20, 3, 9), (7, 0, 6), (5, 0, 3), (18, 0, 1)],
    [(18, 1, 6), (19, 0, 2), (4, 0, 7), (8, 0, 2)],
    [(1, 6, 8), (16, 0, 3), (15, 0, 7), (14, 0, 4)],
    [(14, 4, 11), (13, 0, 4), (22, 0, 1), (11, 0, 1), (20, 0, 3)],
    [(12, 0, 8), (9, 0, 8)],
    [(9, 8, 9), (0, 0, 1), (10, 0, 5), (6, 0, 9)],
    [(3, 5, 11), (2, 0, 4), (1, 0, 6)],
    [(6, 9, 10), (17, 0, 10), (3, 0, 5)],
    [(21, 0, 5)],
]


@pytest.mark.filterwarnings("ignore:num_workers is")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("given", [False, True])
def test_batches_by_length_are_those_of_rust(lines, workers, given):
    options = {"lengths": LENGTHS} if given else {}
    by_tokens = lines.batch_by_tokens(24, **options)
    in_buckets = lines.bucket([4, 8], (5, 3, 2), **options)
    assert repr(in_buckets).startswith("<slotline.Batches of 23 samples in buckets of [5, 3, 2] samples by lengths [4, 8]: i: int64")
    for dataset, expected in ((by_tokens, BUDGETED), (in_buckets, BUCKETED)):
        for copy in (dataset, pickle.loads(pickle.dumps(dataset))):
            loader = Loader(copy, shuffle=True, seed=42, num_workers=workers)
            for batches in expected:
                counted, passed = len(loader), iter(loader)
                assert counted == len(passed) == len(batches)
                for batch, indices in zip(passed, batches, strict=True):
                    assert batch["i"].tolist() == indices
                    assert [row.tolist() for row in batch["tokens"]] == [DOCUMENTS[i] for i in indices]
            loader.set_epoch(0)
            assert numbers(loader) == expected[0]
            # The number of batches is that of the next pass, on each rank.
            assert len(loader) == len(expected[1])
            resumed = Loader(copy, shuffle=True, seed=42)
            resumed.load_state_dict(loader.state_dict())
            assert len(resumed) == len(expected[1])
            assert [len(Loader(copy, shuffle=True, seed=42, rank=r, world_size=2)) for r in range(2)] == 2 * [-(-len(expected[0]) // 2)]
            drawn = Loader(copy, shuffle=True, generator=np.random.default_rng(3), num_workers=workers)
            with pytest.raises(TypeError, match="depends on the seed"):
                len(drawn)
            assert len(list(drawn)) > 5 and len(Loader(copy, generator=np.random.default_rng(3))) == len(list(Loader(copy)))
    assert sorted(sum(numbers(Loader(by_tokens)), [])) == list(range(N))
    assert [len(batch) for batch in numbers(Loader(lines.batch_by_tokens(10**6, limit=9)))] == [9, 9, 5]
    assert plain(by_tokens[3]) == plain(lines[3]) and len(list(by_tokens)) == N and by_tokens.max_batch_size >= 4
    assert [field.name for field in by_tokens.fields] == ["i", "tokens", "text"]


@pytest.mark.parametrize("kind", ["tokens", "buckets"])
def test_batches_by_length_resume_on_any_number_of_ranks(lines, kind):
    dataset = lines.batch_by_tokens(24) if kind == "tokens" else lines.bucket([4, 8], [5, 3, 2])

    def loaders(world_size):
        return [Loader(dataset, shuffle=True, seed=42, rank=r, world_size=world_size) for r in range(world_size)]

    whole = BUDGETED[1] if kind == "tokens" else BUCKETED[1]
    for done in range(1, len(whole) // 2):
        first = loaders(2)
        for loader in first:
            loader.set_epoch(1)
        passes = [iter(loader) for loader in first]
        assert [next(each)["i"].tolist() for _ in range(done) for each in passes] == whole[: 2 * done]
        state = slotline.merge_states([loader.state_dict() for loader in first])
        for world_size in (1, 2, 3):
            resumed = loaders(world_size)
            for loader in resumed:
                loader.load_state_dict(json.loads(json.dumps(state)))
            rest = [numbers(loader) for loader in resumed]
            assert len({len(each) for each in rest}) == 1
            assert [batch for step in zip(*rest, strict=True) for batch in step][: len(whole) - 2 * done] == whole[2 * done :]
            with pytest.raises(slotline.StateError, match="other batches by length|its lengths are not|max_tokens|buckets"):
                other = lines.batch_by_tokens(23) if kind == "tokens" else lines.bucket([4, 8], [5, 3, 1])
                Loader(other, shuffle=True, seed=42, rank=0, world_size=1).load_state_dict(state)
            # The next pass is that of epoch 2.
            again = Loader(dataset, shuffle=True, seed=42, rank=0, world_size=world_size)
            again.set_epoch(2)
            assert numbers(resumed[0]) == numbers(again)


@pytest.mark.parametrize("output", ["numpy", pytest.param("dlpack", marks=test_arrays.dlpack)])
def test_fields_of_varying_length_are_padded(lines, output):
    def padded(rows, number, width, dtype=np.int64):
        values = np.array([row + [number] * (width - len(row)) for row in rows], dtype)
        return values, np.array([[True] * len(row) + [False] * (width - len(row)) for row in rows])

    def check(found, expected):
        found = [np.from_dlpack(field) if output == "dlpack" else field for field in found]
        for field, want in zip(found, expected, strict=True):
            assert field.dtype == want.dtype and field.shape == want.shape and field.tolist() == want.tolist()

    starts = range(0, N, 4)
    loader = Loader(lines, 4, output=output, padding=-100, multiple_of=3, num_workers=2)
    for start, batch in zip(starts, pickle.loads(pickle.dumps(loader)), strict=True):
        rows = DOCUMENTS[start : start + 4]
        check(batch["tokens"], padded(rows, -100, -(-max(map(len, rows)) // 3) * 3))
        assert batch["text"] == [f"t{i}" for i in range(start, min(start + 4, N))]
    for start, batch in zip(starts, Loader(lines, 4, output=output, padding={"text": 32}), strict=True):
        rows = [list(f"t{i}".encode()) for i in range(start, min(start + 4, N))]
        check(batch["text"], padded(rows, 32, max(map(len, rows)), np.uint8))
        assert [row.shape for row in batch["tokens"]] == [(length,) for length in LENGTHS[start : start + 4]]
    # Boxes, samples without elements, and fields without names.
    boxes = Arrays(i=np.arange(3)).map(lambda s: (np.full((s["i"], 2), 7, "f4"), s["i"]), [(None, "f4", (None, 2)), (None, "i8", ())])
    values, mask = next(iter(Loader(boxes, 3, output=output, padding={0: float("nan")})))[0]
    check([mask], [np.array([[False, False], [True, False], [True, True]])])
    values = np.from_dlpack(values) if output == "dlpack" else values
    assert values.shape == (3, 2, 2) and np.isnan(values).sum() == 6 and (values == 7).sum() == 6
    check(next(iter(Loader(boxes[:1], 2, output=output, padding=0)))[0], [np.zeros((1, 0, 2), "f4"), np.zeros((1, 0), np.bool_)])
    for options, error, words in [
        ({"padding": {"i": 0}}, slotline.OptionError, "'i', which is no field of varying length; those that are: 'tokens', 'text'"),
        ({"padding": 0.5}, slotline.OptionError, "field 'tokens' is 0.5, which is no int64"),
        ({"padding": float("nan")}, slotline.OptionError, "field 'tokens' is nan, which is no int64"),
        ({"padding": 2**64}, slotline.OptionError, "field 'tokens' is 18446744073709551616, which is no int64"),
        ({"padding": {"text": 256}}, slotline.OptionError, "field 'text' is 256"),
        ({"padding": True}, TypeError, "padding is True"),
        ({"padding": 0, "packed": True}, slotline.OptionError, "padding and packed exclude"),
        ({"padding": 0, "batch_size": None}, slotline.OptionError, "padding and batch_size=None exclude"),
        ({"padding": 0, "collate_fn": list}, slotline.OptionError, "collate_fn and padding exclude"),
        ({"padding": 0, "multiple_of": 0}, slotline.OptionError, "multiple_of is 0"),
        ({"multiple_of": 2}, slotline.OptionError, "needs padding"),
    ]:
        with pytest.raises(error, match=words):
            Loader(lines, **{"batch_size": 4, **options})


def bins(plan, width, documents=DOCUMENTS, padding=0):
    """Returns rows of documents as Python makes them."""
    made = []
    for pieces in plan:
        tokens, positions, ids, ends = [], [], [], [0]
        for number, (document, start, end) in enumerate(pieces, 1):
            tokens += documents[document][start:end]
            positions += range(end - start)
            ids += [number] * (end - start)
            ends.append(len(tokens))
        rest = width - len(tokens)
        made.append((tokens + [padding] * rest, positions + [0] * rest, ids + [0] * rest, ends))
    return made


@pytest.mark.filterwarnings("ignore:num_workers is")
@pytest.mark.parametrize("workers", [0, 2])
def test_packed_documents_are_those_of_rust(lines, workers):
    packed = lines.pack(16, padding=-1)
    assert repr(packed) == (
        "<slotline.Packed of 9 samples of 16 elements, 92.4% full: "
        "tokens: int64 [16], position_ids: int32 [16], document_ids: int32 [16], cu_seqlens: int32 [None]>"
    )
    chunks = lines.pack(16, documents=False, seed=3, lengths=np.array(LENGTHS))
    for dataset, expected in ((packed, bins(BEST, 16, padding=-1)), (chunks, bins(CHUNKS, 16))):
        for copy in (dataset, pickle.loads(pickle.dumps(dataset))):
            assert [tuple(row.values()) for row in samples(copy, num_workers=workers)] == expected
        shuffled = Loader(dataset, 4, shuffle=True, seed=1, num_workers=workers, include_index=True)
        for batch in shuffled:
            for place, index in enumerate(batch["index"]):
                assert tuple(batch[f.name][place].tolist() for f in dataset.fields) == expected[index]
    assert samples(lines.pack(16, documents=False, drop_last=True)) == samples(lines.pack(16, documents=False))[:-1]
    assert samples(lines.take(0).pack(16)) == []


def test_packing_two_fields(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"labels": [-i for i in d], "tokens": d}) + "\n" for d in DOCUMENTS))
    pairs = slotline.open(path)
    packed = pairs.pack(16, field=["tokens", "labels"], padding=[0, -100])
    assert [field.name for field in packed.fields] == ["tokens", "labels", "position_ids", "document_ids", "cu_seqlens"]
    expected = zip(bins(BEST, 16), bins(BEST, 16, [[-i for i in d] for d in DOCUMENTS], -100), strict=True)
    assert [tuple(row.values()) for row in samples(packed)] == [(a[0], b[0], *a[1:]) for a, b in expected]
    path.write_text(json.dumps({"labels": [1, 2], "tokens": [1]}) + "\n")
    with pytest.raises(slotline.Error, match="document 0 has 2 tokens, but 1 were packed"):
        list(Loader(slotline.open(path).pack(16, field=["tokens", "labels"])))


def test_mixtures_of_packed_documents_and_the_reverse(lines):
    first, second = lines.take(12), lines[12:]
    mixture = slotline.mix([first.pack(16), second.pack(16)], [2, 1], stop=12)
    rows = bins(BEST, 16)  # Some of them are in one part only.
    loader = Loader(mixture, 4, shuffle=True, seed=5)
    whole = [batch["tokens"].tolist() for batch in loader]
    assert len(sum(whole, [])) == 12 and rows[0][0] not in sum(whole, [])
    for done in range(1, 3):
        loader = Loader(mixture, 4, shuffle=True, seed=5)
        passed = iter(loader)
        for _ in range(done):
            next(passed)
        other = Loader(mixture, 4, shuffle=True, seed=5)
        other.load_state_dict(loader.state_dict())
        assert [batch["tokens"].tolist() for batch in other] == whole[done:]
    # A packed mixture, and one batched by tokens, are those of the mixture in order.
    mixed = slotline.mix([first, second], [2, 1], stop=18)
    order = [sample["i"].item() for sample in mixed]
    documents = [DOCUMENTS[i] for i in order]
    packed = samples(mixed.pack(16, documents=False))
    assert sum((row["tokens"] for row in packed), [])[: sum(map(len, documents))] == sum(documents, [])
    batched = numbers(Loader(mixed.batch_by_tokens(24), shuffle=True, seed=2))
    assert sorted(sum(batched, [])) == sorted(order)
    assert all(len(batch) == 1 or max(LENGTHS[i] for i in batch) * len(batch) <= 24 for batch in batched)
    zipped = lines.pack(16).zip(Arrays(w=np.arange(9)))
    assert [row["w"] for row in samples(zipped)] == list(range(9))
    assert [row["w"] for row in samples(zipped.select("w"))] == list(range(9))
    rowed = lines.pack(16).batch_by_tokens(40, lengths=[16] * 9)
    assert [len(batch["tokens"]) for batch in Loader(rowed)] == [2, 2, 2, 2, 1]


def test_what_cannot_be_packed_or_batched(lines):
    batches = lines.batch_by_tokens(24)
    scheduled = slotline.mix([lines, lines], schedule=[[1, 2], [2, 1]], stop=9)
    for make, error, words in [
        (lambda: lines.batch_by_tokens(5), DataError, "sample 1 has 8 tokens, but max_tokens is 5"),
        (lambda: lines.batch_by_tokens(24, field="i"), DataError, "field 'i' has no length of its own"),
        (lambda: lines.batch_by_tokens(24, lengths=[1]), DataError, "lengths have shape .1,."),
        (lambda: lines.batch_by_tokens(24, lengths=[-1] * N), DataError, "from 0 on"),
        (lambda: NUMBERS.batch_by_tokens(24), DataError, "no field has varying length"),
        (lambda: lines.zip(lines.select("tokens").rename(tokens="more")).batch_by_tokens(24), DataError, "2 fields .*'tokens', 'more'"),
        (lambda: lines.bucket([8, 4], [1, 1, 1]), DataError, "boundaries must ascend"),
        (lambda: lines.bucket([4], [1]), DataError, "one batch size more"),
        (lambda: lines.pack(0), DataError, "capacity is 0"),
        (lambda: lines.pack(16, field="text"), DataError, "is a text; pack numbers"),
        (lambda: lines.pack(16, field=["tokens"], padding=[0, 1]), DataError, "2 numbers for 1 fields"),
        (lambda: lines.pack(16, padding=[0.5]), DataError, "padding is 0.5"),
        (lambda: lines.pack(16).select("tokens"), DataError, "select before pack"),
        (lambda: list(Loader(lines.pack(16, lengths=[3] * N))), slotline.Error, "has 1 tokens, but 3 were packed"),
        (lambda: batches.take(3), DataError, "batch it last"),
        (lambda: batches + lines, DataError, "batch it last"),
        (lambda: batches.pack(9), DataError, "batch it last"),
        (lambda: batches.rename(i="j"), DataError, "batch it last"),
        (lambda: slotline.mix([batches, lines]), DataError, "batch it last"),
        (lambda: batches.batch_by_tokens(9), DataError, "batch it last"),
        (lambda: scheduled.pack(16), DataError, "pack each dataset and mix the results"),
        (lambda: scheduled.batch_by_tokens(24), DataError, "mix without a schedule"),
        (lambda: scheduled.rename(i="j").bucket([4], [1, 1]), DataError, "mix without a schedule"),
        (lambda: Loader(batches, 4), slotline.OptionError, "batch_size excludes a Batches"),
        (lambda: Loader(batches, batch_sampler=[[1]]), slotline.OptionError, "batch_sampler excludes a Batches"),
    ]:
        with pytest.raises(error, match=words):
            pytest.fail(f"{make()} should be: {words}")
