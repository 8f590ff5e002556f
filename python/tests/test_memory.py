"""The memory of the workers' batches, and that unused memory is returned to the system."""

import gc
import glob
import os
import resource
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Samples
from helpers import mapped, run
from test_forks import Child

import slotline
from slotline.torch import DataLoader
from slotline.torch._workers import worker as worker_module
from slotline.torch._workers.messages import BATCH, STATE, Channel
from slotline.torch._iterators.processes import Port

MIB = 1 << 20
# The memory of a channel besides its blocks, in bytes.
HEAD = 160 << 10


def filled(size, k):
    return torch.full((size,), k, dtype=torch.int32), k


def Pictures(count=64, size=1 << 18):
    """Returns a dataset of samples of one MiB, each with a number."""
    return Samples(count, partial(filled, size))


def files(pid="self"):
    """Returns the channels that a process has open: the size of each in bytes, by inode."""
    found = {}
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            if "memfd:slotline" in os.readlink(path):
                status = os.stat(path)
                found[status.st_ino] = status.st_blocks * 512
        except FileNotFoundError:
            pass
    return found


class Watch:
    """The memory of a loader's batches, which can also be measured after the loader has ended."""

    def __init__(self, iterator):
        self.descriptors = [os.dup(replies.fileno()) for _, replies in iterator._channels]

    def __call__(self):
        gc.collect()
        return sum(os.fstat(descriptor).st_blocks * 512 for descriptor in self.descriptors)

    def __del__(self):
        for descriptor in self.descriptors:
            os.close(descriptor)


LIMITED = """
import resource, warnings
import torch
from slotline.torch import DataLoader

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, k):
        return torch.full((1000,), k)

def size():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmSize")) << 10

warnings.simplefilter("ignore")  # More workers than cores.
limit = size() + (192 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
loaders = [DataLoader(Rows(), 8, num_workers=4, worker_method="multiprocessing") for _ in range(2)]
passes = [iter(loader) for loader in loaders]
seen = [next(batches)[:, 0].tolist() for batches in passes]
grown = limit - size()
assert grown > 128 << 20, grown
own = torch.zeros(100 << 20, dtype=torch.uint8)
for first, batches in zip(seen, passes):
    assert first + [k for batch in batches for k in batch[:, 0].tolist()] == list(range(64))
"""


def test_loaders_work_where_the_address_space_is_limited():
    run(LIMITED)


UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def limit_address_space(room):
    with open("/proc/self/statm") as sizes:
        now = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + room, resource.RLIM_INFINITY))


def take_all(batches, before=lambda seen: None):
    """Takes and keeps all batches. Returns their numbers, and the number of errors."""
    kept, failed = [], 0
    while True:
        try:
            before(failed)
            batch = next(batches)
        except StopIteration:
            break
        except OSError as error:
            assert "MiB of memory for batches cannot be mapped" in str(error) and "ulimit -v" in str(error)
            failed += 1
        else:
            kept.append(batch)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, UNLIMITED)
    assert all(torch.equal(x[:, -1], y) for x, y in kept)
    return [int(y[0]) // 4 for _, y in kept], failed


def test_a_loop_without_address_space_loses_one_batch():
    def before(failed):
        if not failed and started:
            limit_address_space(2 * MIB)
        started.append(None)

    started = []
    batches = iter(DataLoader(Pictures(count=40, size=1 << 20), 4, num_workers=1))
    numbers, failed = take_all(batches, before)
    assert failed == 1 and len(numbers) == 9 and numbers == sorted(numbers)


def test_a_worker_without_address_space_loses_one_batch():
    def full(k):
        resource.setrlimit(resource.RLIMIT_AS, UNLIMITED)
        sample = filled(1 << 20, k)
        if k == 15:
            # There is no memory for the batch of this sample.
            limit_address_space(2 * MIB)
        return sample

    batches = iter(DataLoader(Samples(40, full), 4, num_workers=1))
    assert take_all(batches) == ([0, 1, 2, 4, 5, 6, 7, 8, 9], 1)


def test_labels_cost_their_own_pages():
    kept, watches = [], []
    for epoch in range(5):
        batches = iter(DataLoader(Pictures(), 8, num_workers=2))
        watches.append(Watch(batches))
        for x, labels in batches:
            pass
        del x
        assert watches[0].descriptors and not batches._channels
        kept.append(labels)
    del labels
    size, used = mapped()
    assert size <= len(kept) * 8192 and 0 < used <= size
    for watch in watches:
        assert watch() <= 2 * HEAD + 8192
    for labels in kept:
        assert labels.tolist() == list(range(56, 64))
    before = [watch() for watch in watches]
    del kept[2], labels
    assert [old - watch() for old, watch in zip(before, watches)] in ([0, 0, 4096, 0, 0], [0, 0, 8192, 0, 0])
    kept.clear()
    # On a busy machine, a worker that is still ending has the memory mapped. It is then freed with
    # a later block.
    for _ in range(5):
        if mapped() != [0, 0]:
            time.sleep(0.3)
            list(DataLoader(Pictures(), 8, num_workers=2))
    assert mapped() == [0, 0]


def test_an_iterator_that_has_ended_holds_nothing():
    batches = iter(DataLoader(Pictures(), 8, num_workers=2))
    first = next(batches)
    watch = Watch(batches)
    assert sum(1 for _ in batches) == 7
    assert watch() <= 8 * MIB + 2 * HEAD and files().keys() == {os.fstat(k).st_ino for k in watch.descriptors}
    assert first[0][:, -1].tolist() == list(range(8))
    # The two tensors are in separate blocks, or in parts of one.
    part = first[0][3]
    del first
    assert watch() >= 8 * MIB and part[0] == 3
    del part
    assert watch() <= 2 * HEAD


def test_a_page_stays_until_all_its_blocks_are_dropped():
    to, back = Channel(), Channel()
    port, other = Port(to, back), Port(back, to)
    kept = []
    for k in range(200):
        # Blocks of several sizes, so that some share a page with others, and some have pages of
        # their own.
        port.send(BATCH, k, torch.full((10 + 700 * (k % 3),), k))
        kept.append(other.receive()[2])
    descriptor = os.dup(to.fileno())
    del port, other, to, back

    def blocks():
        return os.fstat(descriptor).st_blocks * 512

    sizes = [blocks()]
    order = torch.randperm(200).tolist()
    for k in order:
        kept[k] = None
        for other in order[order.index(k) + 1 :: 7]:
            assert bool((kept[other] == other).all())
        sizes.append(blocks())
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 50
    assert sizes[0] > 8 * MIB // 10 and sizes[-1] <= HEAD
    os.close(descriptor)


def test_labels_of_many_passes_use_no_descriptors():
    before = len(os.listdir("/proc/self/fd"))
    kept = []
    for _ in range(10):
        *_, (_, labels) = DataLoader(Pictures(count=4, size=1000), 4, num_workers=1)
        kept.append(labels)
    del _
    gc.collect()
    # One more descriptor tells whether the latest worker is alive.
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert all(labels.tolist() == [0, 1, 2, 3] for labels in kept)


def test_idle_workers_give_their_memory_back(monkeypatch):
    monkeypatch.setattr(worker_module, "_PATIENCE", 0.1)
    loader = DataLoader(Pictures(), 8, num_workers=2, persistent_workers=True)
    for _ in range(3):
        seen = []
        for x, y in loader:
            assert torch.equal(x[:, -1], y)
            seen += y.tolist()
        assert seen == list(range(64))
        watch = Watch(loader._iterator)
        deadline = time.monotonic() + 20
        while watch() > 8 * MIB + 2 * HEAD and time.monotonic() < deadline:
            time.sleep(0.02)
        assert watch() <= 8 * MIB + 2 * HEAD, "what is kept"
        assert torch.equal(x[:, 0], y)
        del x, y
        for replies in (replies for _, replies in loader._iterator._channels):
            assert sum(size for _, size in replies.regions()) < 80 * MIB


def test_page_locked_memory_is_given_back_when_it_is_no_longer(monkeypatch):
    from test_pinned import Driver

    monkeypatch.setattr(worker_module, "_PATIENCE", 0.05)
    driver = Driver.installed(monkeypatch)
    loader = DataLoader(Pictures(), 8, num_workers=2, persistent_workers=True)
    loader._pins = True
    kept = [batch for batch in loader][5:]
    watch = Watch(loader._iterator)
    # Idle workers use no further memory, either.
    before = watch()
    time.sleep(0.5)
    assert watch() == before >= 64 * MIB
    for x, _ in kept:
        start = x.data_ptr()
        assert any(a <= start and start + x.nbytes <= a + size for a, size in driver.registered.items())
    del loader, x
    assert not driver.registered
    assert watch() <= 3 * 8 * MIB + 2 * HEAD
    assert [y.tolist() for _, y in kept] == [list(range(8 * k, 8 * k + 8)) for k in (5, 6, 7)]
    assert all(torch.equal(x[:, -1], y) for x, y in kept)
    kept.clear()
    assert watch() <= 2 * HEAD


def test_what_a_child_sees_stays_after_the_loader_has_ended():
    batches = iter(DataLoader(Pictures(), 8, num_workers=1))
    watch = Watch(batches)
    kept = [next(batches) for _ in range(2)]
    child = Child(lambda: all(torch.equal(x[:, -1], y) and y[0] == 8 * k for k, (x, y) in enumerate(kept)))
    kept.clear()
    assert sum(1 for _ in batches) == 6
    assert 16 * MIB <= watch() <= 16 * MIB + 8192 + HEAD
    assert child.end() == b"same"
    # Dropping any other block returns the memory.
    next(iter(DataLoader(Pictures(count=1), 1, num_workers=1)))
    assert watch() <= HEAD


def test_workers_of_another_loader_do_not_hold_memory():
    """Workers that are forked meanwhile inherit the mapping of the memory, and its descriptors."""
    others = DataLoader(Pictures(count=4, size=1000), 2, num_workers=2, persistent_workers=True)
    kept = []
    for x, y in DataLoader(Pictures(), 8, num_workers=2):
        if y[0] == 32:
            kept.append(y)
            # Drop the last picture too: the workers could otherwise read it.
            del x
            assert len(list(others)) == 2
    del x, y
    gc.collect()
    mine = files()
    for worker in others._iterator._workers:
        inherited = files(worker.pid)
        assert len(inherited) == 8 and mine.keys() < inherited.keys()
        assert sum(inherited.values()) <= sum(mine.values()) + 4 * HEAD + 3 * MIB
    assert kept[0].tolist() == list(range(32, 40))


@pytest.mark.parametrize("context", ["fork", "forkserver"])
@pytest.mark.parametrize("limit, words", [(1, "1 byte"), (1000, "1000 bytes"), (100_000, "100000 bytes"), (3 << 10, "3 KiB")])
def test_any_limit_is_an_error_that_names_it(limit, words, context):
    batches = iter(
        DataLoader(Pictures(count=16), 4, num_workers=1, memory_limit=limit, multiprocessing_context=context)
    )
    pids = [worker.pid for worker in batches._workers]
    for _ in range(4):
        with pytest.raises(OSError, match=f"a batch takes 4\\d+ bytes, and the batches of a worker may take {words}: raise"):
            next(batches)
        assert [worker.pid for worker in batches._workers] == pids and all(worker.is_alive() for worker in batches._workers)
    assert next(batches, None) is None


@pytest.mark.parametrize("value", [torch.zeros(100), list(range(100)), "x" * 800, {"a": [torch.zeros(100), None]}])
def test_a_limit_is_for_batches_of_all_kinds_only(value):
    to, back = Channel(limit=200), Channel()
    port, other = Port(to, back), Port(back, to)
    with pytest.raises(OSError, match="the batches of a worker may take 200 bytes"):
        port.send(BATCH, 0, value)
    assert port.send(STATE, 0, value)
    assert port.send(BATCH, 0, [1, 2, 3])
    assert other.receive()[0] == STATE and other.receive() == (BATCH, 0, [1, 2, 3])


def test_batches_in_use_count_for_the_limit():
    loader = DataLoader(Pictures(size=1000), 4, num_workers=1, memory_limit=200_000)
    kept = []
    with pytest.raises(OSError, match="in use take more than 200000 bytes together; keep fewer of them, or raise memory_limit"):
        for batch in loader:
            kept.append(batch)
    assert 200_000 // 17_000 - 3 <= len(kept) <= 200_000 // 16_000
    assert all(torch.equal(x[:, -1], y) for x, y in kept)
    assert sum(1 for _ in loader) == 16


def test_batches_that_grow_stay_within_the_limit():
    """The memory of small batches cannot be reused for larger ones, and is returned to the
    system."""
    most, rising = 0, Samples(120, lambda k: torch.full((100_000 + 30_000 * k,), k, dtype=torch.int32))
    batches = iter(DataLoader(rising, 1, num_workers=1, memory_limit=64 * MIB))
    watch = Watch(batches)
    for k, batch in enumerate(batches):
        assert batch[0, 0] == batch[0, -1] == k
        most = max(most, watch())
    assert 32 * MIB < most <= 64 * MIB + 15 * MIB


def test_what_comes_after_a_batch_without_address_space_is_whole():
    def collate(numbers):
        if numbers[0] == first:
            return [torch.full((16,), -1)]
        return {"rows": torch.full((1 << 20 if numbers[0] < 3 else 16,), numbers[0]), "number": numbers[0]}

    for first in (0, None):
        batches = iter(DataLoader(range(8), 1, num_workers=1, collate_fn=collate, prefetch_factor=1))
        if first == 0:
            assert next(batches)[0].tolist() == [-1] * 16
        limit_address_space(2 * MIB)
        try:
            with pytest.raises(OSError, match="cannot be mapped"):
                next(batches)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, UNLIMITED)
        for batch, number in zip(batches, range(1 if first is None else 2, 8), strict=True):
            assert list(batch) == ["rows", "number"] and batch["number"] == number
            assert (batch["rows"] == number).all()


def in_a_queue(batch):
    queue = torch.multiprocessing.get_context("fork").SimpleQueue()
    queue.put(batch)
    assert torch.equal(queue.get(), batch)


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("share", [torch.Tensor.share_memory_, in_a_queue])
@pytest.mark.parametrize("look", [torch.Tensor.numpy, lambda batch: batch[1].detach().numpy(), torch.from_dlpack])
def test_what_was_made_of_a_batch_stays_when_torch_moves_it(look, share):
    loader = DataLoader(Pictures(count=128, size=50_000), 2, num_workers=1, memory_limit=4 * MIB)
    seen = expected = None
    for k, (batch, _) in enumerate(loader):
        # Each batch is moved to other memory, which is reused only when nothing refers to it.
        array = look(batch)
        if k == 3:
            seen, expected = array, torch.as_tensor(array).clone()
        share(batch)
    assert k == 63
    del array, batch
    gc.collect()
    assert torch.equal(torch.as_tensor(seen), expected)


def test_a_copy_without_memory_is_a_memory_error():
    # A size that no allocator caches.
    data = np.arange(1 << 24, dtype=np.float32).reshape(4, -1)
    batch = next(iter(slotline.Loader(slotline.Arrays(data), 4, output="dlpack")))[0]
    limit_address_space(2 * MIB)
    try:
        with pytest.raises(MemoryError, match="no memory for a copy of 67108864 bytes"):
            batch.__dlpack__(copy=True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, UNLIMITED)
    assert np.array_equal(np.from_dlpack(batch), data)


def huge(k):
    """Returns samples of one byte; sample 1 has a shape of several TiB, with a stride of 0."""
    return torch.zeros(1, dtype=torch.uint8).expand(1 << 42) if k == 1 else torch.zeros(1, dtype=torch.uint8)


def refuses():
    """Returns whether the system refuses allocations that exceed its memory. Without worker
    processes, the memory of a batch is such an allocation."""
    return Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "1"


@pytest.mark.parametrize("kind", [dict(num_workers=1), *([dict(), dict(num_workers=1, worker_method="thread")] if refuses() else [])])
def test_a_batch_that_no_machine_holds_is_an_error_at_once(kind):
    batches, found = iter(DataLoader(Samples(4, huge), 1, **kind)), []
    for _ in range(4):
        begun = time.monotonic()
        try:
            found.append(next(batches).shape)
        except (MemoryError, RuntimeError) as error:
            assert "4398046511104" in str(error) and "emory" in str(error)
        assert time.monotonic() - begun < 5
    assert found == [(1, 1)] * 3


def test_a_full_collection_in_a_worker_copies_no_inherited_objects():
    def private():
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))

    def grown(k):
        before = private()
        gc.collect()
        return private() - before

    inherited = [[k] for k in range(1 << 20)]  # About 90 MiB.
    most = max(DataLoader(Samples(8, grown), num_workers=2))
    assert len(inherited) == 1 << 20
    assert most < 16 * MIB
