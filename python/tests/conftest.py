"""Fixtures and checks that the tests share."""

import gc
import multiprocessing
import os
import signal

import numpy as np
import pytest
from helpers import IS_FREE_THREADED

try:
    import torch
except ImportError:
    torch = None
    # Without torch, only the tests in `arrays` can run.
    collect_ignore_glob = ["test_*.py"]

# Importing torch takes seconds. Processes that are started by the method "forkserver" have it from the server.
multiprocessing.set_forkserver_preload(["pytest", "torch.utils.data"])


def pytest_collection_finish():
    """Excludes what the modules have made from garbage collection, which makes it fast."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """Lets libraries free what they have made, which some check when the interpreter ends."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def seeded():
    """A fixture: every test begins with the same random state and signal handlers, and fails after
    two minutes."""

    def late(*_):
        raise TimeoutError("the test takes too long")

    if torch is not None:
        torch.manual_seed(7)
    np.random.seed(7)
    # A shell ignores SIGINT for background programs, and Python inherits that.
    handlers = {signal.SIGALRM: late, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.alarm(120)
    yield
    signal.alarm(0)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    """A fixture: workers are processes unless a test chooses threads, also where threads are the
    default."""
    if IS_FREE_THREADED and torch is not None:
        monkeypatch.setattr("slotline.torch._iterators.threads.is_default", lambda: False)


@pytest.fixture
def leaves_nothing():
    """A fixture: fails if a test leaves processes or descriptors open."""

    def count():
        gc.collect()
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            return len(os.listdir("/proc/self/fd")), len(children.read().split())

    before = count()
    yield
    after = count()
    # multiprocessing keeps one process that tracks resources.
    assert after[0] <= before[0] and after[1] <= before[1] + 1


def bits(tensor):
    return tensor.detach().resolve_neg().resolve_conj().contiguous().flatten().view(torch.uint8)


def same(a, b):
    """Asserts that two batches are equal in types, containers, and every bit."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device)
        assert a.layout != torch.strided or a.stride() == b.stride()
        assert torch.equal(bits(a), bits(b)), (a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert a == b
