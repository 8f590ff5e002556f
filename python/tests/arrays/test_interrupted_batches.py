"""A signal handler that raises while a batch is ready loses neither that batch nor an error."""

import ctypes
import json
import signal

import numpy as np
import pytest
from helpers import in_threads

import slotline
from slotline import Loader

RAISE = ctypes.CDLL(None)["raise"]


class Interrupt(BaseException):
    pass


def _interrupt(*_):
    raise Interrupt


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGUSR1, _interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt(batches):
    """Requests a batch while a signal is pending; no other Python code runs in between."""
    with pytest.raises(Interrupt):
        next(zip(map(RAISE, [signal.SIGUSR1]), batches, strict=False))


def rows(batches):
    return [batch[0].tolist() for batch in batches]


def loader(**options):
    return Loader(slotline.Arrays(np.arange(30)), 4, shuffle=True, seed=3, **options)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_that_was_there_comes_next(workers, in_order):
    expected = sorted(rows(loader()))
    options = {"num_workers": workers, "in_order": in_order}
    for taken in range(8):
        made = loader(**options)
        batches = iter(made)
        found = [next(batches)[0].tolist() for _ in range(taken)]
        state = made.state_dict()
        for _ in range(3):
            interrupt(batches)
            assert made.state_dict()["batches"] == taken
            assert batches.remaining() == len(batches) == 8 - taken
            if in_order:
                assert made.state_dict() == state
        state = json.loads(json.dumps(made.state_dict()))
        rest = rows(batches)
        assert sorted(found + rest) == expected
        if in_order:
            assert found + rest == rows(loader())
        assert made.state_dict()["epoch"] == 1

        resumed = loader(**options)
        resumed.load_state_dict(state)
        batches = iter(resumed)
        interrupt(batches)
        again = rows(batches)
        assert sorted(again) == sorted(rest)


def test_a_pass_that_is_left_resumes_at_the_batch():
    made = loader()
    batches = iter(made)
    found = [next(batches)[0].tolist()]
    interrupt(batches)
    batches.close()
    assert list(batches) == []
    resumed = loader()
    resumed.load_state_dict(made.state_dict())
    assert found + rows(resumed) == rows(loader())
    second = rows(made)
    assert len(second) == 8 and made.state_dict()["epoch"] == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_that_was_there_comes_next(tmp_path, workers):
    (tmp_path / "data.jsonl").write_text("".join(f'{{"file_name": "{i}"}}\n' for i in range(4)))
    for i in (0, 2, 3):
        (tmp_path / str(i)).write_bytes(b"x")
    data = slotline.open(tmp_path / "data.jsonl")
    batches = iter(Loader(data, num_workers=workers))
    made = []
    for number in range(4):
        interrupt(batches)
        assert batches.remaining() == 4 - number
        if number == 1:
            with pytest.raises(slotline.SampleError, match="sample 1 of batch 1"):
                next(batches)
        else:
            made.append(next(batches))
        assert batches.remaining() == 3 - number
    assert len(made) == 3
    assert list(batches) == []


def test_other_threads_take_the_batch_as_well():
    made = loader(num_workers=2)
    batches = iter(made)
    interrupt(batches)
    found = []
    in_threads(1, lambda _: found.extend(rows(batches)))
    assert found == rows(loader())
