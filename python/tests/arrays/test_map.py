"""Functions of the program that a dataset calls with its samples, against plain Python."""

import gc
import gzip
import io
import json
import os
import pickle
import signal
import tarfile
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
from helpers import IS_FREE_THREADED, add_to_tar, in_child, in_threads, outcomes, run
from test_compose import DOCUMENTS, lines, plain, samples  # noqa: F401

import slotline
from slotline import Arrays, DataError, Field, Loader, SampleError

N = 41
X = np.arange(N * 6, dtype="f4").reshape(N, 2, 3)
DATA = Arrays(x=X, i=np.arange(N))


def doubled(sample):
    assert sample["x"].flags.writeable and sample["i"].shape == ()
    return {"x": (sample["x"] * 2)[:, ::-1], "sum": float(sample["x"].sum()), "even": sample["i"] % 2 == 0, "text": f"t{sample['i']}"}


def want(i):
    return {"x": (X[i] * 2)[:, ::-1].tolist(), "sum": float(X[i].sum()), "even": i % 2 == 0, "text": f"t{i}"}


def halves(sample):
    return {"tokens": sample["tokens"][: len(sample["tokens"]) // 2], "text": sample["text"].upper()}


def even(sample):
    return sample["i"] % 2 == 0


def pair(sample):
    return sample["i"], sample["x"][0]


def noise(sample):
    rng = slotline.rng()
    return {"i": sample["i"], "noise": rng.numpy.random(2), "other": rng.random.random()}


@pytest.mark.parametrize("workers", range(5))
def test_the_results_of_a_function_are_the_samples(workers):
    mapped = DATA.map(doubled)
    assert repr(mapped) == (
        "<slotline.Dataset of 41 samples made by doubled: x: float32 [2, 3], sum: float64 [], even: bool [], text: str []>"
    )
    assert len(mapped) == N and plain(mapped[-1]) == want(N - 1) and [plain(sample) for sample in mapped] == list(map(want, range(N)))
    for dataset in (mapped, pickle.loads(pickle.dumps(mapped)), DATA.map(doubled, mapped.fields)):
        assert samples(dataset, num_workers=workers) == list(map(want, range(N)))
    order = [i for batch in Loader(DATA, 4, True, seed=3) for i in batch["i"]]
    loader = Loader(mapped, 4, True, seed=3, num_workers=workers, include_index=True)
    got = [(i, e) for batch in loader for i, e in zip(batch["index"].tolist(), batch["even"].tolist(), strict=True)]
    assert got == [(i, i % 2 == 0) for i in order]


@pytest.mark.parametrize("workers", [0, 3])
def test_mapped_datasets_compose(workers, lines):  # noqa: F811
    options = {"num_workers": workers}
    mapped = DATA.map(doubled)
    assert samples(mapped.select("even", "x"), **options) == [{n: want(i)[n] for n in ("even", "x")} for i in range(N)]
    assert samples(mapped.rename(sum="s").select("s"), **options) == [{"s": want(i)["sum"]} for i in range(N)]
    chosen = [3, 3, -1, 7]
    assert samples(slotline.Subset(mapped, chosen), **options) == [want(i % N) for i in chosen]
    assert samples(mapped[5:9] + mapped.shard(1, 20), **options) == [want(i) for i in (5, 6, 7, 8, 1, 21)]
    assert samples(mapped.zip(DATA.select("i")), **options) == [{**want(i), "i": i} for i in range(N)]
    assert samples(mapped.repeat(2), **options) == 2 * list(map(want, range(N)))
    twice = mapped.map(lambda sample: (sample["x"][0], len(sample["text"])))
    assert samples(twice, **options) == [(want(i)["x"][0], len(f"t{i}")) for i in range(N)]
    mixed = slotline.mix([mapped, mapped])
    assert sorted(s["sum"] for s in samples(mixed, **options)) == sorted(2 * [want(i)["sum"] for i in range(N)])
    assert samples(DATA.map(pair), **options) == [(i, X[i, 0].tolist()) for i in range(N)]

    texts = lines.map(halves)
    assert [field.shape for field in texts.fields] == [(None,), ()]
    expected = [{"tokens": DOCUMENTS[i][: len(DOCUMENTS[i]) // 2], "text": f"T{i}"} for i in range(len(lines))]
    assert samples(texts, **options) == expected
    packed = texts.pack(16)
    tokens = [t for row in Loader(packed, None, **options) for t, d in zip(row["tokens"], row["document_ids"], strict=True) if d > 0]
    assert sorted(tokens) == sorted(t for each in expected for t in each["tokens"])
    batches = list(Loader(texts.batch_by_tokens(12), **options))
    assert sorted(s for batch in batches for s in batch["text"]) == sorted(each["text"] for each in expected)
    assert all(len(batch["text"]) * max(map(len, batch["tokens"])) <= 12 for batch in batches)
    assert sorted(s for batch in Loader(texts.bucket([3], [2, 4]), **options) for s in batch["text"]) == sorted(e["text"] for e in expected)
    # A tokenizer: a text becomes a list.
    ids = lines.select("text").map(lambda sample: {"text": np.frombuffer(sample["text"].encode(), np.uint8)})
    assert samples(ids, **options) == [{"text": list(f"t{i}".encode())} for i in range(len(lines))]


def test_values_are_converted_or_refused():
    def returns(value, **options):
        return DATA.map(lambda sample: {"v": value}, **options)

    values = [3, 2.5, True, 1j, [1, 2], np.float32(2), np.arange(6).reshape(2, 3).T, np.datetime64("2020-02-03"), np.zeros((0, 2))]
    for value in values:
        dataset = returns(value)
        array = np.asarray(value)
        assert dataset.fields == (Field("v", str(array.dtype), array.shape),)
        assert dataset[0]["v"].dtype == array.dtype and dataset[0]["v"].tolist() == array.tolist()
    assert returns(np.zeros(3), fields=[("v", "float32", (3,))])[0]["v"].dtype == np.float32
    assert returns([1.5, 2], fields=[Field("v", np.float16, (None,))])[0]["v"].tolist() == [1.5, 2]
    assert returns(1, fields=[("v", "float64", ())])[0]["v"] == 1.0
    assert returns([], fields=[("v", "int64", (None,))])[0]["v"].tolist() == []
    labels = DATA.map(lambda sample: {"text": np.array(f"t{sample['i']}"), "scalar": np.str_("é" * int(sample["i"]))})
    assert [(*plain(labels[i]).values(),) for i in (0, 40)] == [("t0", ""), ("t40", 40 * "é")]
    big = DATA.map(lambda sample: (np.arange(sample["i"] * 100),), [(None, "int64", (None,))])
    assert [len(row) for batch in Loader(big, 8, num_workers=2) for row in batch[0]] == [100 * i for i in range(N)]
    for value, field, message in [
        (0.5, ("v", "int64", ()), "same_kind"),
        (np.zeros(3), ("v", "float64", (2,)), r"'v' has shape \[3\], but float64 \[2\] was declared"),
        (np.zeros((2, 2)), ("v", "float64", (None,)), "has shape"),
        (3, ("v", "str", ()), "'v' is a int, but a str"),
        (np.arange(2), ("v", "str", ()), "'v' is a ndarray, but a str"),
        (40_000, ("v", "int16", ()), "int64 is beyond int16"),
        (12, ("v", "U4", ()), "int64 is no text"),
        (b"abcdef", ("v", "U2", ()), r"\|S6 is longer than <U2"),
        (b"abc", ("v", "S2", ()), r"\|S3 is longer than \|S2, .*frombuffer"),
        ("\udc80", ("v", "str", ()), "surrogates not allowed"),
        ("text", ("v", "int64", ()), "same_kind"),
        (3, ("w", "int64", ()), r"the function returned \{'v': 3\}; it must return a dict with 'w'"),
        (3, (None, "int64", ()), "it must return a tuple of 1"),
    ]:
        with pytest.raises(SampleError, match=message):
            returns(value, fields=[field])[0]
    for function, fields, error, message in [
        (lambda sample: {}, None, DataError, "no fields"),
        (lambda sample: sample["x"], None, TypeError, "a dict or a tuple"),
        (lambda sample: {"v": object()}, None, DataError, "Python objects"),
        (pair, [("a", "int64", (2, None)), ("b", "int64", ())], DataError, r"only the first dimension .* as in \(None,\)"),
        (pair, [("a", "int64", (None, 0)), ("b", "int64", ())], DataError, "only the first dimension"),
        (pair, [("a", "M8[s]", (None,))], DataError, "dimension of numbers"),
        (pair, [("a", "int64", ()), (None, "int64", ())], DataError, "names"),
    ]:
        with pytest.raises(error, match=message):
            DATA.map(function, fields)
    with pytest.raises(DataError, match="pass fields"):
        DATA[:0].map(pair)
    assert len(DATA[:0].map(pair, [(None, "int64", ()), (None, "float32", (3,))])) == 0
    with pytest.raises(DataError, match="batched? it last|in batches already"):
        big.rename("v").batch_by_tokens(5000).map(pair)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_is_the_cause(workers):
    def fails(sample):
        if sample["i"] in (5, 17):
            raise KeyError(f"bad {sample['i']}")
        return pair(sample)

    dataset = DATA.map(fails)
    with pytest.raises(SampleError, match="sample 5 .*KeyError: 'bad 5'") as caught:
        dataset[5]
    assert isinstance(caught.value.__cause__, KeyError) and caught.value.__cause__.__traceback__.tb_frame.f_code is fails.__code__
    got = list(outcomes(iter(Loader(dataset, 4, num_workers=workers))))
    assert [i for i, batch in enumerate(got) if isinstance(batch, SampleError)] == [1, 4]
    assert str(got[4].__cause__) == "'bad 17'"
    with pytest.warns(RuntimeWarning, match="left out.*sample 17: KeyError"):
        left = [i for batch in Loader(dataset, 4, num_workers=workers, on_error="skip") for i in batch[0].tolist()]
    assert left == [i for i in range(N) if i not in (5, 17)]

    def stops(sample):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DATA.map(stops, dataset.fields)[0]


def test_random_numbers_depend_on_seed_and_position():
    def numbers(dataset, **options):
        return [
            (i, *row)
            for batch in Loader(dataset, 4, True, seed=9, **options)
            for i, row in zip(batch["i"].tolist(), np.c_[batch["noise"], batch["other"]].tolist(), strict=True)
        ]

    noisy = DATA.map(noise)
    expected = numbers(noisy)
    assert len({number for row in expected for number in row[1:]}) == 3 * N
    for workers in (1, 2, 4):
        assert numbers(noisy, num_workers=workers) == expected
    shares = [numbers(noisy, rank=rank, world_size=3, num_workers=rank) for rank in range(3)]
    again = {row for rank in range(3) for row in numbers(noisy, rank=rank, world_size=3)}
    assert {row for share in shares for row in share} == again and {i for i, *_ in again} == set(range(N))
    assert numbers(noisy) == expected
    loader = Loader(noisy, 4, True, seed=9)
    first, second = [[batch["noise"].tolist() for batch in loader] for _ in range(2)]
    assert first != second
    assert noisy[3]["noise"].tolist() == next(iter(Loader(noisy, 4, seed=0)))["noise"][3].tolist()
    # Parts of one sample, and functions of functions, have different numbers.
    both = noisy.zip(DATA.map(noise).rename(i="j", noise="n", other="o"))
    sample = both.map(lambda sample: {**sample, "third": slotline.rng().random.random()})[0]
    assert len({*sample["noise"].tolist(), *sample["n"].tolist(), float(sample["other"]), float(sample["o"]), float(sample["third"])}) == 7
    key = slotline._rng.current.key
    assert key is None and noisy[0] and slotline._rng.current.key is None


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_pass_resumes_at_every_batch(workers):
    def make(**options):
        return Loader(DATA.map(noise), 4, True, seed=5, **options)

    def plain_batches(batches):
        return [plain(batch) for batch in batches]

    expected = plain_batches(make())
    for count in range(len(expected) + 1):
        loader = make(num_workers=workers)
        batches = iter(loader)
        first = [plain(next(batches)) for _ in range(count)]
        resumed = make(num_workers=2 - workers // 2)
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        rest = plain_batches(resumed)
        assert (first + rest if count < len(expected) else first) == expected
    # With another number of ranks.
    loaders = [make(rank=rank, world_size=2, num_workers=workers) for rank in range(2)]
    passes = list(map(iter, loaders))
    seen = [i for each in passes for i in next(each)["i"].tolist() + next(each)["i"].tolist()]
    state = slotline.merge_states(loader.state_dict() for loader in loaders)
    alone = make(rank=0, world_size=1)
    alone.load_state_dict(state)
    seen += [i for batch in alone for i in batch["i"].tolist()]
    assert sorted(seen)[: N - 1] == sorted(set(seen))[: N - 1] or sorted(set(seen)) == list(range(N))
    with pytest.raises(slotline.StateError, match="another format"):
        Loader(DATA.map(noise).map(noise), 4, True, seed=5).load_state_dict(make().state_dict())


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_threads_keep_what_belongs_to_them(workers):
    local, made = threading.local(), []

    def counted(sample):
        local.calls = getattr(local, "calls", 0) + 1
        if local.calls == 1:
            made.append(threading.get_ident())
        assert threading.current_thread() is not threading.main_thread()
        return (sample["i"],)

    dataset = DATA.map(counted, [(None, "int64", ())])
    for _ in range(3):
        loader = Loader(dataset, 2, num_workers=workers)
        assert [i for _ in range(2) for batch in loader for i in batch[0].tolist()] == 2 * list(range(N))
        del loader
    assert len(made) <= 3 * (workers + 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_signal_ends_the_wait_for_a_function(workers):
    entered, free = threading.Event(), threading.Event()

    def waits(sample):
        if sample["i"] == 9:
            entered.set()
            assert free.wait(60)
        return (sample["i"],)

    loader = Loader(DATA.map(waits, [(None, "int64", ())]), 4, num_workers=workers)
    batches, got = iter(loader), []

    def send():
        entered.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        # Helping a worker, the loop may call the function for a later batch than it waits for.
        for batch in batches:
            got.append(batch[0].tolist())
    thread.join()
    state = loader.state_dict()
    assert state["batches"] == len(got) <= 2
    # Neither another pass nor the end of the first one waits for the function.
    begun = time.monotonic()
    other = iter(loader)
    assert time.monotonic() - begun < 5 and len(other) == 11
    free.set()
    got += [batch[0].tolist() for batch in batches]
    assert sum(got, []) == list(range(N))
    resumed = Loader(DATA.map(waits, [(None, "int64", ())]), 4, num_workers=workers)
    resumed.load_state_dict(state)
    assert [i for batch in resumed for i in batch[0].tolist()] == list(range(4 * state["batches"], N))


def test_loaders_end_while_functions_run():
    def slow(sample):
        time.sleep(0.002)
        return pair(sample)

    dataset = DATA.map(slow, [(None, "int64", ()), (None, "float32", (3,))])

    def use(number):
        for k in range(6):
            loader = Loader(dataset, 1 + k, k % 2 == 0, num_workers=(number + k) % 4)
            batches = iter(loader)
            for _ in range(k % 3):
                next(batches)
            if k % 2:
                loader.load_state_dict(loader.state_dict())
                next(iter(loader))
            loader.set_epoch(3)
            del batches, loader

    in_threads(4, use)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_ends_while_functions_run(workers):
    program = f"""
        import _thread, sys, threading, time
        import numpy as np, slotline
        def slow(sample):
            time.sleep(0.3)
            return (sample[0],)
        loader = slotline.Loader(slotline.Arrays(np.arange(1000)).map(slow, [(None, "int64", ())]), 1, num_workers={workers})
        batches = iter(loader)
        threading.Timer(0.1, _thread.interrupt_main).start()
        try:
            next(batches)
        except KeyboardInterrupt:
            sys.stdout.write("ok")
    """
    for _ in range(3):
        assert run(program) == "ok"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_forked_process_makes_new_iterators(workers):
    def slow(sample):
        time.sleep(0.001)
        return pair(sample)

    loader = Loader(DATA.map(slow), 4, num_workers=workers)
    batches = iter(loader)
    next(batches)

    def check():
        got = [i for batch in Loader(DATA.map(slow), 4, num_workers=workers) for i in batch[0].tolist()]
        try:
            next(batches)
        except slotline.ForkError:
            return got == list(range(N))

    assert in_child(check)
    assert sum(len(batch[0]) for batch in batches) == N - 4


@pytest.mark.parametrize("fields", [None, ["i"]])
def test_a_filter_chooses_samples(fields):
    seen = []

    def chooses(sample):
        seen.append(sorted(sample))
        return even(sample)

    chosen = DATA.filter(chooses, fields)
    assert isinstance(chosen, slotline.Subset) and len(seen) == N and seen[0] == sorted(fields or ["x", "i"])
    assert [sample["i"] for sample in samples(pickle.loads(pickle.dumps(chosen)), num_workers=2)] == list(range(0, N, 2))
    assert len(seen) == N and len(chosen) == 21
    assert len(DATA.filter(lambda sample: False)) == 0 == len(DATA[:0].filter(even))
    assert [i for i, _ in samples(DATA.filter(lambda sample: np.bool_(sample["i"] > 38)).map(pair))] == [39, 40]
    with pytest.raises(SampleError, match="sample 0 .*'y'") as caught:
        DATA.filter(lambda sample: sample["y"])
    assert isinstance(caught.value.__cause__, KeyError)


def test_samples_that_fail_are_left_out(tmp_path):
    def fails(sample):
        if sample["i"] in (0, 5, 40):
            raise KeyError(f"bad {sample['i']}")
        return even(sample)

    with pytest.warns(RuntimeWarning, match="^3 samples were left out, .* sample 40: KeyError: 'bad 40'$") as caught:
        chosen = DATA.filter(fails, ["i"], on_error="skip")
    assert [warning.filename for warning in caught] == [__file__]
    assert [int(sample["i"]) for sample in chosen] == list(range(2, 40, 2))
    assert [int(sample["i"]) for sample in DATA.filter(even, on_error="skip")] == list(range(0, N, 2))
    with pytest.raises(slotline.OptionError, match="on_error is 'replace'; it must be"):
        DATA.filter(fails, on_error="replace")
    with pytest.raises(SampleError, match="1000 of the last 1000 samples are bad"):
        Arrays(i=np.arange(1000)).filter(lambda sample: sample["y"], on_error="skip")

    # Lengths that cannot be read, of texts in the first of two lines that are damaged.
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"tokens": [i] * (i + 1), "index": i})[: 9 if i in (0, 5) else None] + "\n" for i in range(12)))
    lines = slotline.open(path)
    assert plain(lines.map(lambda sample: {"t": sample["tokens"][0]})[3]) == {"t": 3}
    for make, words in [
        (lambda **options: lines.batch_by_tokens(24, **options), " in batches of 24 tokens"),
        (lambda **options: lines.bucket([4], [3, 2], **options), " in buckets of [3, 2] samples by lengths [4]"),
        (lambda **options: lines.pack(16, **options), " of 16 elements, 88.8% full"),
    ]:
        with pytest.raises(SampleError, match="sample 0 .*documents.jsonl, byte 0: line 1"):
            make()
        with pytest.warns(RuntimeWarning, match="^2 samples were left out, .* sample 5: .*line 6: not valid") as caught:
            dataset = make(on_error="skip")
        assert [warning.filename for warning in caught] == [__file__]
        for each in (dataset, pickle.loads(pickle.dumps(dataset))):
            assert f" samples{words}: " in repr(each)
            tokens = [t for batch in Loader(each) for row in batch["tokens"] for t in row.tolist()]
            assert sorted(t for t in tokens if t) == [i for i in range(12) if i not in (0, 5) for _ in range(i + 1)]
        assert len(make(lengths=range(1, 13), on_error="skip").fields) == len(dataset.fields)
        with pytest.raises(slotline.OptionError, match="on_error is 'ignore'"):
            make(lengths=range(1, 13), on_error="ignore")


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """A fixture: a stream of 60 samples in four compressed tars."""
    folder = tmp_path_factory.mktemp("stream")
    for shard in range(4):
        with gzip.open(folder / f"{shard}.tar.gz", "wb") as packed, tarfile.open(fileobj=packed, mode="w") as file:
            for i in range(15 * shard, 15 * shard + 15):
                points = io.BytesIO()
                np.save(points, np.full(3, i, "f4"))
                add_to_tar(file, f"{i:04}.cls", b"%d" % i)
                add_to_tar(file, f"{i:04}.npy", points.getvalue())
                add_to_tar(file, f"{i:04}.txt", b"ab" * i)
    return slotline.open(folder / "*.tar.gz")


def from_stream(sample):
    return {"n": sample["cls"] * 10, "npy": sample["npy"][:2], "txt": sample["txt"][1:], "noise": slotline.rng().random.random()}


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams_are_mapped_and_filtered(stream, workers):
    fields = "n: int64 [], npy: float32 [2], txt: str [], noise: float64 []"
    mapped = stream.map(from_stream)
    assert repr(mapped) == f"<slotline.Dataset of a stream of samples: {fields}>"
    third = mapped.filter(lambda sample: sample["n"] % 30 == 0)
    last = third.map(lambda sample: (sample["n"] // 30, sample["noise"], sample["txt"]))
    for dataset, model in [
        (stream.filter(lambda sample: sample["cls"] > 50), [i for i in range(60) if i > 50]),
        (mapped, [10 * i for i in range(60)]),
        (third, [30 * i for i in range(20)]),
        (last, list(range(20))),
    ]:
        batches = [(*batch.values(),) if isinstance(batch, dict) else batch for batch in Loader(dataset, 4, num_workers=workers)]
        got = [n for batch in batches for n in batch[0].tolist()]
        assert (got if workers < 2 else sorted(got)) == model
        texts = {n: t for batch in batches for n, t in zip(batch[0].tolist(), batch[2], strict=True)}
        if dataset is last:
            assert texts == {i: ("ab" * (3 * i))[1:] for i in range(20)}
    assert [int(sample[0]) for sample in last] == list(range(20))

    def make(workers=workers):
        return Loader(last, 3, True, seed=2, num_workers=workers)

    def lists(batches):
        return [tuple(map(list, batch)) for batch in batches]

    expected = lists(make())
    for count in range(len(expected)):
        loader = make()
        batches = iter(loader)
        first = lists(next(batches) for _ in range(count))
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        assert first + lists(resumed) == expected

    def fails(sample):
        if sample["cls"] == 7:
            raise KeyError("seven")
        return True

    got = list(outcomes(iter(Loader(stream.filter(fails), 4, num_workers=workers))))
    errors = [batch for batch in got if isinstance(batch, SampleError)]
    assert len(errors) == 1 and isinstance(errors[0].__cause__, KeyError)
    with pytest.warns(RuntimeWarning, match="KeyError: 'seven'"):
        skipping = Loader(stream.filter(fails), 4, num_workers=workers, on_error="skip")
        assert sorted(n for batch in skipping for n in batch["cls"].tolist()) == [n for n in range(60) if n != 7]
    copy = pickle.loads(pickle.dumps(stream.map(from_stream)))
    assert [int(sample["n"]) for sample in copy] == [10 * i for i in range(60)]
    with pytest.raises(DataError, match="columns"):
        stream.filter(fails, ["cls"])
    with pytest.raises(slotline.OptionError, match="pass on_error to the loader"):
        stream.filter(fails, on_error="skip")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_window_shuffles_a_stream(stream, workers):
    def numbers(dataset, **options):
        return [n for batch in Loader(dataset, 4, num_workers=workers, **options) for n in batch["cls"].tolist()]

    shuffled = pickle.loads(pickle.dumps(stream.shuffle(10)))
    order = numbers(shuffled, seed=3)
    assert sorted(order) == list(range(60)) != order
    assert order == numbers(shuffled, seed=3) != numbers(shuffled, seed=4)
    filtered = shuffled.filter(lambda sample: sample["cls"] % 2 == 0)
    assert sorted(numbers(filtered, seed=3)) == list(range(0, 60, 2))
    if workers == 0:
        assert numbers(filtered, seed=3) == [n for n in order if n % 2 == 0]
    for count in range(15):
        loader = Loader(shuffled, 4, seed=3, num_workers=workers)
        batches = iter(loader)
        first = [n for _ in range(count) for n in next(batches)["cls"].tolist()]
        resumed = Loader(shuffled, 4, num_workers=workers)
        resumed.load_state_dict(loader.state_dict())
        assert first + [n for batch in resumed for n in batch["cls"].tolist()] == order
    with pytest.raises(DataError, match="shuffle=True"):
        DATA.shuffle(10)


def joined(rows):
    assert isinstance(rows, list)
    return [plain(row) for row in rows]


@pytest.mark.parametrize("workers", [0, 2])
def test_functions_of_batches(workers, lines):  # noqa: F811
    loader = Loader(DATA, 4, collate_fn=joined, num_workers=workers, include_index=True)
    assert sum(loader, []) == [{"x": X[i].tolist(), "i": i, "index": i} for i in range(N)]
    assert sum(Loader(lines.select("tokens", "text"), 4, collate_fn=joined), []) == [
        {"tokens": DOCUMENTS[i], "text": f"t{i}"} for i in range(len(lines))
    ]
    assert sum(Loader(DATA.map(pair), 4, collate_fn=joined), []) == [(i, X[i, 0].tolist()) for i in range(N)]
    both = Loader(DATA, 4, collate_fn=joined, transform=len, num_workers=workers)
    assert list(pickle.loads(pickle.dumps(both))) == [4] * 10 + [1]
    assert list(Loader(DATA, None, transform=even)) == [i % 2 == 0 for i in range(N)]
    assert "transform=<built-in function len>" in repr(both)

    def numbers(batch):
        return [int(batch["i"][0]), slotline.rng().random.random()]

    def make(**options):
        return Loader(DATA, 4, True, seed=1, transform=numbers, **options)

    loader = make()
    expected = [list(loader), list(loader)]
    assert len({number for each in expected for _, number in each}) == 22
    for count in range(12):
        loader = make(num_workers=workers)
        batches = iter(loader)
        first = [next(batches) for _ in range(min(count, 11))]
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        assert first + (list(resumed) if count < 11 else []) == expected[0]
    for options, message in [({"packed": True}, "packed"), ({"batch_size": None}, "batch_size=None"), ({"output": "dlpack"}, "dlpack")]:
        with pytest.raises(slotline.OptionError, match=message):
            Loader(DATA, **options, collate_fn=joined)


def test_an_interrupted_function_gets_its_batch_again():
    raised = iter([ValueError("once"), None, KeyboardInterrupt(), None])

    def fails(batch):
        if batch["i"][0] in (4, 12) and (error := next(raised)) is not None:
            raise error
        return batch["i"].tolist()

    loader = Loader(DATA, 4, transform=fails)
    batches = iter(loader)
    assert next(batches) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="once"):
        next(batches)
    assert loader.state_dict()["batches"] == 2
    assert next(batches) == [8, 9, 10, 11]
    next(raised)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert loader.state_dict()["batches"] == 3 and len(batches) == 8
    assert next(batches) == [12, 13, 14, 15] and next(batches) == [16, 17, 18, 19]


@pytest.mark.parametrize("options", [{}, {"rank": 0, "world_size": 1}, {"num_workers": 2}])
def test_a_generator_gives_the_seeds(options):
    def make(seed):
        return Loader(DATA, 4, True, generator=np.random.default_rng(seed), **options)

    def numbers(loader):
        return [batch["i"].tolist() for batch in loader]

    loader, draws = make(3), np.random.default_rng(3)
    expected = []
    for epoch in range(3):
        expected.append(numbers(loader))
        seeded = Loader(DATA, 4, True, seed=int(draws.integers(1 << 63)), **options)
        seeded.set_epoch(epoch)
        assert loader.seed == seeded.seed and numbers(seeded) == expected[-1]
    assert len({str(each) for each in expected}) == 3
    for epoch in range(3):
        for count in (0, 1, 5, 11):
            loader = make(3)
            for _ in range(epoch):
                list(loader)
            batches = iter(loader)
            first = [next(batches)["i"].tolist() for _ in range(count)]
            if count == 11:
                assert next(batches, None) is None
            resumed = make(8)
            resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            if count < 11:
                assert first + numbers(resumed) == expected[epoch]
            if epoch + 1 < 3:
                assert numbers(resumed) == expected[epoch + 1]
    loader = make(3)
    state, before = loader.state_dict(), loader._generator.bit_generator.state
    for damaged in ({**state, "generator": 3}, {**state, "batch_size": 5}):
        with pytest.raises(slotline.StateError):
            loader.load_state_dict(damaged)
        assert loader._generator.bit_generator.state == before
    copy = pickle.loads(pickle.dumps(loader))
    assert numbers(copy) == expected[0] == numbers(loader)
    with pytest.raises(slotline.OptionError, match="seed and generator"):
        Loader(DATA, seed=1, generator=np.random.default_rng(1))
    with pytest.raises(TypeError, match="generator is of type int"):
        Loader(DATA, generator=3)


class Own:
    """An object with a dataset that calls a method of the object."""

    def __init__(self, make, use=lambda own: None):
        self.dataset = make(self.call)
        self.used = use(self)

    def call(self, sample):
        return {"n": sample["cls"]}


def begun(dataset, **options):
    batches = iter(Loader(dataset, 4, num_workers=2, **options))
    return next(batches), batches


NUMBER = [Field("n", "int64", ())]
MADE = {
    "indexed": lambda stream: lambda call: Arrays(cls=np.arange(60)).map(call, NUMBER),
    "stream": lambda stream: lambda call: stream.map(call, NUMBER),
    "filter": lambda stream: lambda call: stream.filter(call),
}
USES = {
    "none": lambda own: None,
    "samples": lambda own: next(iter(own.dataset)),
    "renamed": lambda own: begun(own.dataset.rename(**{own.dataset.fields[0].name: "m"})),
    "loader": lambda own: [loader := Loader(own.dataset, 4), list(loader)],
    "begun": lambda own: begun(own.dataset),
    "transform": lambda own: begun(own.dataset, transform=lambda batch: (own, batch)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", MADE)
def test_a_function_that_refers_to_its_dataset_is_freed(kind, use, stream):
    own = Own(MADE[kind](stream), USES[use])
    alive = weakref.ref(own)
    del own
    # On free-threaded interpreters, what a thread of the engine has dropped may be freed a collection later.
    for _ in range(20 if IS_FREE_THREADED else 1):
        gc.collect()
    assert alive() is None


@pytest.mark.parametrize("kind", MADE)
def test_what_calls_a_function_keeps_it(kind, stream):
    def count(batches):
        gc.collect()
        return sum(np.size(next(iter(batch.values()))) for batch in batches)

    make = MADE[kind](stream)
    assert count(iter(Own(make).dataset)) == 60
    assert count(Loader(Own(make).dataset, 4, num_workers=2)) == 60
    assert count(iter(Loader(Own(make).dataset, 4, num_workers=2))) == 60
    assert count(Own(make).dataset.rename(*"abc"[: len(Own(make).dataset.fields)])) == 60


def test_partial_functions_have_names():
    assert " made by functools.partial(<function pair" in repr(DATA.map(partial(pair)))
