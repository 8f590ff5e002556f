"""Samples that take long: a signal ends the wait for one, and no batch is lost."""

import contextlib
import gc
import gzip
import os
import signal
import tarfile
import threading
import time

import numpy as np
import pytest
from helpers import add_to_tar, in_threads, threads_named
from test_files import Server, served
from test_pictures import png

import slotline
from slotline import Loader, StackDataset, Subset

COUNT = 24


class Gate:
    """A web server that can withhold responses, so that a sample takes as long as the test
    needs."""

    def __init__(self, folder):
        self.open = threading.Event()
        self.open.set()
        self.arrived, self.free = threading.Semaphore(0), threading.Semaphore(0)
        gate = self

        class Gated(Server):
            def do_GET(self):
                gate.arrived.release()
                if not gate.free.acquire(blocking=False):
                    gate.open.wait()
                with contextlib.suppress(OSError):
                    super().do_GET()

        self.serving = contextlib.ExitStack()
        self.server = self.serving.enter_context(served(Gated, folder))
        np.arange(COUNT, dtype="u1").tofile(folder / "tokens.bin")
        url = f"http://127.0.0.1:{self.server.server_port}/tokens.bin"
        self.data = slotline.tokens(url, 1, stride=1, dtype="u1", labels=True, read_ahead=0)

    def close(self, free=0):
        """Withholds responses from now on, except for the first `free` samples."""
        self.open.clear()
        while self.arrived.acquire(blocking=False):
            pass
        for _ in range(free):
            self.free.release()

    def end(self):
        self.open.set()
        self.serving.close()


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path)
    yield gate
    gate.end()


@contextlib.contextmanager
def interrupted(begun=None):
    """Sends SIGINT 0.1 s after `begun` is released, and checks that the block ends soon after
    that."""
    sent = []

    def send():
        if begun is None or begun.acquire(timeout=20):
            time.sleep(0.1)
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
        thread.join()
    took = time.perf_counter() - sent[0]
    thread.join()
    assert took < 1, took


def helper_threads():
    """Returns the number of helper threads, which load in place of the loop's thread."""
    gc.collect()
    return len(threads_named("slotline-helper"))


def numbers(batches):
    return [batch["tokens"].ravel().tolist() for batch in batches]


# With two workers there are no quick samples: workers may request samples of the third batch before
# all of the second.
@pytest.mark.parametrize("workers, quick", [(0, 0), (0, 2), (1, 0), (2, 0)])
def test_an_interrupt_ends_the_wait_for_a_sample(gate, workers, quick):
    loader = Loader(gate.data, 4, shuffle=True, seed=3, num_workers=workers)
    expected = numbers(loader)
    loader.set_epoch(0)
    gate.close(4 * quick)
    batches = iter(loader)
    got = [next(batches) for _ in range(quick)]
    for _ in range(2):
        with interrupted():
            next(batches)
    # The loader returns its state while the sample is still withheld.
    state = loader.state_dict()
    assert state["batches"] == quick and batches.remaining() == len(loader) - quick
    assert loader.warnings() == Loader(gate.data, num_workers=workers).warnings() and loader.stats()["passes"] == 2
    gate.open.set()
    assert numbers(got) + numbers(batches) == expected
    loader.load_state_dict(state)
    assert numbers(got) + numbers(loader) == expected


def test_an_interrupt_ends_the_wait_while_files_are_opened(gate, tmp_path):
    url = f"http://127.0.0.1:{gate.server.server_port}"
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "tokens.bin", "0.bin")
    gate.close()
    for call in (
        lambda: slotline.open(f"{url}/a.tar", index_files=None),
        lambda: slotline.open(f"{url}/a.tar", index_files=None, columns=["bin"]),
        lambda: slotline.tokens([f"{url}/tokens.bin"], 1),
    ):
        with interrupted(gate.arrived):
            call()
    begun = time.perf_counter()
    while threads_named("slotline-open"):
        assert time.perf_counter() - begun < 10
        time.sleep(0.01)
    gate.open.set()
    assert len(slotline.open(f"{url}/a.tar", index_files=None)) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_ends_the_wait_for_a_packed_tar(gate, tmp_path, workers):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(24):
            add_to_tar(tar, f"{i}.bin", bytes(1 << 20))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes(), 0))
    batches = iter(Loader(slotline.open(f"http://127.0.0.1:{gate.server.server_port}/a.tar.gz"), 1, num_workers=workers))
    next(batches)
    # Four parts of 4 MiB were requested; responses to further requests are withheld.
    gate.close()
    stalled = threading.Semaphore(0)
    threading.Timer(0.5, stalled.release).start()
    with interrupted(stalled):
        for _ in batches:
            pass


def test_a_request_ends_when_it_has_taken_too_long(gate, tmp_path):
    url = f"http://127.0.0.1:{gate.server.server_port}/tokens.bin"
    gate.close()
    with pytest.raises(slotline.DataError, match="not answered completely within 500ms"):
        slotline.tokens(url, 1, request_timeout=0.5)
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="request_timeout"):
            slotline.tokens(url, 1, request_timeout=wrong)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_is_left_while_a_sample_takes_long(gate, workers):
    before = helper_threads()
    loader = Loader(gate.data, 4, num_workers=workers)
    expected = numbers(loader)
    gate.close()
    batches = iter(loader)
    with interrupted(gate.arrived):
        next(batches)
    begun = time.perf_counter()
    batches.close()
    del batches
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    # The next pass begins, and is interrupted too.
    batches = iter(loader)
    with interrupted():
        next(batches)
    del batches
    loader.load_state_dict(state)
    assert time.perf_counter() - begun < 5
    gate.open.set()
    assert numbers(loader) == expected and loader.epoch == 2
    del loader
    for _ in range(200):
        if helper_threads() == before:
            break
        time.sleep(0.02)
    assert helper_threads() == before


def test_an_interrupt_ends_the_wait_for_the_pass_before(gate):
    # With a timeout, only workers load: the next pass waits until they have finished with this one.
    loader = Loader(gate.data, 4, shuffle=True, seed=3, num_workers=1, timeout=60)
    first, second = numbers(loader), numbers(loader)
    loader.set_epoch(0)
    gate.close()
    batches = iter(loader)
    with interrupted(gate.arrived):
        next(batches)
    batches.close()
    with interrupted():
        iter(loader)
    assert loader.epoch == 1 and loader.state_dict()["epoch"] == 1
    gate.open.set()
    assert numbers(loader) == second
    loader.set_epoch(0)
    assert numbers(loader) == first


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_ends_the_wait_for_a_large_batch(tmp_path, workers):
    # Decoding takes seconds in total, and the loop's thread takes part in it.
    (tmp_path / "a").mkdir()
    for i in range(2):
        (tmp_path / "a" / f"{i}.png").write_bytes(png(np.full((1500, 1500, 3), i, "u1")))
    photos = Subset(slotline.folder(tmp_path, image="resize(8), center_crop(8)", image_dtype="uint8"), [0, 1] * 400)
    data = StackDataset(photos, slotline.Arrays(i=np.arange(800)))
    batches = iter(Loader(data, 800, num_workers=workers))
    with interrupted():
        next(batches)
    assert batches.remaining() == 1
    begun = time.perf_counter()
    del batches
    assert time.perf_counter() - begun < 1


@pytest.mark.parametrize("workers", [0, 2])
def test_slow_and_quick_batches_come_in_order(tmp_path, workers):
    (tmp_path / "a").mkdir()
    for i, size in enumerate([300, 4, 4, 4]):
        (tmp_path / "a" / f"{i}.png").write_bytes(png(np.full((size, size, 3), 50 * i, "u1")))
    photos = Subset(slotline.folder(tmp_path, image="resize(2), center_crop(2)", image_dtype="uint8"), [0, *[1, 2, 3] * 20] * 3)
    data = StackDataset(photos, slotline.Arrays(i=np.arange(len(photos))))
    loader = Loader(data, 1, num_workers=workers)
    for _ in range(2):
        for i, batch in enumerate(loader):
            picture = 0 if i % 61 == 0 else (i % 61 - 1) % 3 + 1
            # Shrinking this much changes the picture's levels slightly.
            assert batch["i"].item() == i and (np.abs(batch["data"].astype(int) - 50 * picture) < 9).all()
        assert i == len(photos) - 1


def test_threads_share_an_iterator_over_slow_samples(gate):
    batches, found, lock = iter(Loader(gate.data, 1)), [], threading.Lock()

    def take(_):
        for batch in batches:
            with lock:
                found.append(batch["tokens"].item())

    in_threads(3, take)
    assert sorted(found) == list(range(COUNT - 1))
