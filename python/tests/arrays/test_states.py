"""States of `slotline.Loader` that are damaged, or belong to another dataset."""

import json

import numpy as np
import pytest
from helpers import damage, damages

import slotline
from slotline import Arrays, Loader, Subset

COUNT = 37
DATA = Arrays(x=np.zeros((COUNT, 2), "u1"), i=np.arange(COUNT))
KINDS = [{}, {"shuffle": True}, {"shuffle": True, "replacement": True}, {"shuffle": True, "rank": 1, "world_size": 2}]
VALUES = ["x", "1:999", "1:1099511627776", "", -1, -1 << 70, 1 << 20, 1 << 62, 1 << 70, 1.5, None, True, [], ["x"], {}]


def make(options, data=DATA):
    return Loader(data, 4, seed=1, **options)


def rest(loader):
    return [batch["i"].tolist() for batch in loader]


def state_of(loader, passes, batches):
    """Returns the state after these numbers of passes and batches, in the form in which a file
    would store it."""
    for _ in range(passes):
        list(loader)
    current = iter(loader)
    for _ in range(batches):
        next(current)
    return json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("passes", [0, 2])
def test_damage_is_an_error_or_makes_no_difference(options, passes):
    state = state_of(make(options), passes, 3)
    loader = make(options)
    loader.load_state_dict(state)
    expected = rest(loader)
    refused = set()
    for path, wrong, damaged in damages(state, VALUES):
        loader = make(options)
        try:
            loader.load_state_dict(damaged)
            found = rest(loader)
        except slotline.StateError:
            refused.add(path)
        else:
            assert found == expected, (path, wrong)
    assert {path for path, _, _ in damages(state, VALUES)} <= refused


@pytest.mark.parametrize(
    "path, value, words",
    [
        ("batches", "x", "'batches' is 'x', but it must be an integer from 0 to 2..63 - 1"),
        ("batches", -1, "'batches' is -1, but it must be an integer"),
        ("batches", ..., "the state has no 'batches'"),
        ("drop_last", 0, "'drop_last' is 0, but it must be True or False"),
        ("epoch", 1 << 32, "'epoch' is 4294967296, but it must be an integer from 0 to 2..32 - 1"),
        ("missing", [-1], r"'missing' is \[-1\], but it must be a list of integers"),
        ("start", None, "'start' is None, but it must be a dict"),
        ("start.generator", 7, "'start.generator' is 7, but it must be a string"),
        ("start.generator", "1:999", "generator is at number 999, but epoch 0 begins at number 0"),
        ("start.sampler.name", 7, "'start.sampler.name' is 7, but it must be a string"),
        ("dataset.fields", "x", r"other fields \('x', and not 'x: uint8 \[2\], i: int64 \[\]'\): finish the pass with that"),
        ("dataset.image", 7, "'dataset.image' is 7, but it must be a string"),
        ("dataset.lengths", ..., "the state has no 'dataset.lengths'"),
    ],
)
def test_the_error_names_the_field(path, value, words):
    state = state_of(make({"shuffle": True}), 0, 3)
    damage(state, path, value)
    loader = make({"shuffle": True})
    expected = rest(make({"shuffle": True}))
    with pytest.raises(slotline.StateError, match=words):
        loader.load_state_dict(state)
    assert loader.epoch == 0 and rest(loader) == expected


def test_what_is_no_dict_is_refused():
    for value in (None, 3, "{}", []):
        with pytest.raises(slotline.StateError, match=f"is a dict, and not {type(value).__name__}"):
            make({}).load_state_dict(value)


@pytest.mark.parametrize(
    "other",
    [
        Arrays(y=np.zeros((COUNT, 2), "u1"), i=np.arange(COUNT)),
        Arrays(x=np.zeros((COUNT, 2), "i1"), i=np.arange(COUNT)),
        Arrays(x=np.zeros((COUNT, 3), "u1"), i=np.arange(COUNT)),
        Arrays(i=np.arange(COUNT), x=np.zeros((COUNT, 2), "u1")),
        Arrays(i=np.arange(COUNT)),
        Arrays(np.zeros((COUNT, 2), "u1"), np.arange(COUNT)),
    ],
    ids=str,
)
def test_a_state_of_a_dataset_with_other_fields_is_refused(other):
    state = state_of(make({}), 0, 3)
    with pytest.raises(slotline.StateError, match="dataset of other fields"):
        make({}, other).load_state_dict(state)


def test_a_state_of_other_contents_with_the_same_fields_is_accepted():
    state = state_of(make({}), 0, 3)
    loader = make({}, Arrays(x=np.ones((COUNT, 2), "u1"), i=np.arange(COUNT) + 100))
    loader.load_state_dict(state)
    assert sum(rest(loader), []) == list(range(112, 137))
    # A state of the Rust crate does not describe the dataset.
    del state["dataset"]
    loader.load_state_dict(state)
    assert sum(rest(loader), []) == list(range(112, 137))


def test_a_state_with_the_digest_of_fields_is_accepted():
    state = state_of(make({}), 0, 3)
    del state["dataset"]
    # The entry that older versions wrote.
    loader = make({})
    loader.load_state_dict({**state, "fields": "f2cf3bd3f5ea8134"})
    assert sum(rest(loader), []) == list(range(12, 37))
    with pytest.raises(slotline.StateError, match="dataset of other fields, since its digest of them is 'x'"):
        loader.load_state_dict({**state, "fields": "x"})


def test_a_state_of_parts_with_other_lengths_is_refused():
    def parts(first):
        return Subset(DATA, range(first)) + Subset(DATA, range(first, COUNT))

    state = state_of(make({}, parts(12)), 0, 3)
    loader = make({}, parts(12))
    loader.load_state_dict(state)
    assert sum(rest(loader), []) == list(range(12, 37))
    words = r"other lengths \('37\(12\(37\), 25\(37\)\)', and not '37\(20\(37\), 17\(37\)\)'\): finish"
    with pytest.raises(slotline.StateError, match=words):
        make({}, parts(20)).load_state_dict(state)
    with pytest.raises(slotline.StateError, match=r"another format \('concat\(subset\(arrays\), .*; and of other lengths"):
        make({}).load_state_dict(state)


def test_a_state_stays_small():
    many = slotline.ConcatDataset([DATA] * 1000)
    state = state_of(make({"shuffle": True}, many), 0, 3)
    assert len(json.dumps(state)) < 1000
    other = slotline.ConcatDataset([*[DATA] * 998, Subset(DATA, [*range(COUNT), 0]), Subset(DATA, range(COUNT - 1))])
    assert len(other) == len(many)
    with pytest.raises(slotline.StateError, match=r"other lengths \('37000\(37, 37, "):
        make({"shuffle": True}, other).load_state_dict(state)


@pytest.mark.parametrize(
    ("saved", "own", "words"),
    [
        (KINDS[3], {"shuffle": True}, "saved with rank and world_size, but this loader has neither; set both .rank=0, world_size=1"),
        ({"shuffle": True}, KINDS[3], "saved without rank and world_size, but this loader has them"),
        ({"shuffle": True}, {}, "saved with shuffle=True, but this loader has shuffle=False"),
        ({}, KINDS[2], "saved with shuffle=False, but this loader has replacement or num_samples"),
    ],
)
def test_a_state_of_another_order_names_the_options(saved, own, words):
    with pytest.raises(slotline.StateError, match=words):
        make(own).load_state_dict(state_of(make(saved), 0, 1))


def test_one_process_reads_the_state_of_two():
    options = {"shuffle": True, "world_size": 2}
    ranks = [make({"rank": rank, **options}) for rank in range(2)]
    passes = [iter(loader) for loader in ranks]
    seen = {i for batches in passes for i in next(batches)["i"].tolist()}
    alone = make({"shuffle": True, "rank": 0, "world_size": 1})
    alone.load_state_dict(ranks[0].state_dict())
    assert sorted(i for batch in rest(alone) for i in batch) == sorted(set(range(COUNT)) - seen)


class Chosen:
    def __iter__(self):
        return iter([3, 1, 2, 5, 4])


LINES = [[i] * (i * 7 % 11 + 1) for i in range(COUNT)]


@pytest.mark.parametrize("kind", [*KINDS, "mixture", "schedule", "tokens", "sampler"], ids=str)
@pytest.mark.parametrize("ranks", [{}, {"rank": 1, "world_size": 2}], ids=["alone", "rank"])
def test_the_epoch_of_a_loaded_state(kind, ranks, tmp_path):
    """Setting the epoch of the state changes nothing, and any other begins a whole pass of it."""
    data, size, options = DATA, {"batch_size": 4}, {"shuffle": True}
    if isinstance(kind, dict):
        options = kind
        if ranks and (kind.keys() & {"replacement", "rank"}):
            pytest.skip("it cannot be combined with ranks, or has them")
    elif kind == "mixture":
        data = slotline.mix([DATA, DATA.take(9)], [2, 1], stop=40)
    elif kind == "schedule":
        data = slotline.mix([DATA, DATA.take(9)], schedule=[[2, 1], [1, 2], [1, 1]], stop=40)
    elif kind == "tokens":
        path = tmp_path / "lines.jsonl"
        path.write_text("".join(json.dumps({"i": line[0], "tokens": line}) + "\n" for line in LINES))
        data, size = slotline.open(path).batch_by_tokens(24), {}
    elif ranks:
        pytest.skip("a sampler divides the samples itself")
    else:
        options = {"sampler": Chosen()}

    def new():
        return Loader(data, seed=1, **{**size, **options, **ranks})

    loader = new()
    expected = [rest(loader) for _ in range(4)]
    state = state_of(new(), 1, 1)
    for epoch in range(4):
        loader = new()
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        assert rest(loader) == expected[epoch][epoch == 1 :]
        if epoch < 3:
            assert rest(loader) == expected[epoch + 1]
    # The one that was loaded is discarded, even if its epoch is set afterwards.
    loader = new()
    loader.load_state_dict(state)
    loader.set_epoch(3)
    loader.set_epoch(1)
    assert rest(loader) == expected[1]
