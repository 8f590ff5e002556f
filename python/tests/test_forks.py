"""Batches that a forked process sees do not change in that process."""

import gc
import os
import subprocess

import pytest
import torch
from datasets import Samples
from helpers import in_child, run

from slotline.torch import DataLoader


def Rows(count=4000):
    return Samples(count, lambda k: (torch.full((20_000,), k, dtype=torch.int32), k))


class Child:
    """A forked process that runs a check when `end` is called.

    With `is_daemon`, it is forked from a process that then ends, and it has closed the inherited
    descriptors.
    """

    def __init__(self, check, is_daemon=False):
        (self.read, write), (told, self.tell) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            answer = b"error"
            try:
                os.close(self.tell)
                if is_daemon and os.fork() > 0:
                    os._exit(0)
                if is_daemon:
                    own = sorted((told, write))
                    for start, end in zip([2, *own], [*own, os.sysconf("SC_OPEN_MAX")]):
                        os.closerange(start + 1, end)
                os.read(told, 1)
                answer = b"same" if check() else b"changed"
            finally:
                os.write(write, answer)
                os._exit(0)
        os.close(write)
        os.close(told)

    def end(self):
        os.write(self.tell, b"x")
        os.close(self.tell)
        answer = os.read(self.read, 100)
        os.close(self.read)
        os.waitpid(self.pid, 0)
        return answer


def is_whole(batch, number, size=4):
    x, y = batch
    return y.tolist() == list(range(size * number, size * number + size)) and torch.equal(x[:, 0], y) and torch.equal(x[:, -1], y)


@pytest.mark.parametrize("is_daemon", [False, True])
@pytest.mark.parametrize("pins", [False, True])
def test_a_child_has_its_batches_after_the_parent_has_dropped_them(pins, is_daemon, monkeypatch):
    if pins:
        from test_pinned import Driver

        driver = Driver.installed(monkeypatch)
    loader = DataLoader(Rows(), 4, num_workers=2)
    loader._pins = pins
    children = []
    for number, batch in enumerate(loader):
        if pins:
            driver.reach()
        if number in (3, 4, 40):
            kept = batch
            children.append(Child(lambda: is_whole(kept, number), is_daemon))
            kept = None
        if number == 60:
            # One child ends early.
            assert children.pop(0).end() == b"same"
        batch = None
    assert [child.end() for child in children] == [b"same"] * 2


def memory(loader):
    return sum(size for _, replies in loader._iterator._channels for _, size in replies.regions())


def test_the_memory_is_used_again_when_the_child_has_ended():
    loader = DataLoader(Rows(count=2000), 4, num_workers=1, persistent_workers=True)
    next(iter(loader))
    for _ in loader:
        pass
    before = memory(loader)
    for number, batch in enumerate(loader):
        if number % 5 == 0:
            child = Child(lambda: is_whole(batch, number), is_daemon=number % 10 == 0)
            assert child.end() == b"same"
    assert memory(loader) <= before + (2 << 20), "100 children have ended"
    descriptors = len(os.listdir("/proc/self/fd"))
    for number, batch in enumerate(loader):
        if number % 5 == 0:
            assert Child(lambda: True).end() == b"same"
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


def test_workers_of_another_loader_are_children_too():
    batches = iter(DataLoader(Rows(), 4, num_workers=1))
    first = [next(batches) for _ in range(5)]

    look = Samples(60, lambda k: int(all(is_whole(batch, number) for number, batch in enumerate(first))))
    others = iter(DataLoader(look, 1, num_workers=1, prefetch_factor=1))
    next(others)
    del first
    gc.collect()
    for _ in range(200):
        next(batches)
    assert all(answer.item() == 1 for answer in others)


def test_programs_that_are_run_hold_nothing_back():
    loader = DataLoader(Rows(count=800), 4, num_workers=1, persistent_workers=True)
    for _ in loader:
        pass
    before = memory(loader)
    running = []
    for number, _batch in enumerate(loader):
        if number % 10 == 0:
            start = (lambda: None) if number % 20 == 0 else None
            running.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, preexec_fn=start))
    assert memory(loader) <= before + (1 << 20)
    for process in running:
        process.communicate()


def test_a_child_has_loaders_of_its_own():
    batches = iter(DataLoader(Rows(), 4, num_workers=1))
    kept = next(batches)

    def check():
        mine = list(DataLoader(Rows(count=200), 4, num_workers=1))
        return all(is_whole(batch, number) for number, batch in enumerate(mine)) and is_whole(kept, 0)

    child = Child(check)
    del kept
    for _ in range(100):
        next(batches)
    assert child.end() == b"same"


def test_a_collection_in_the_middle_of_a_fork_does_not_wait_for_it():
    code = """
import gc, os, sys, torch
dropped = []
# Hooks run in the opposite order: this one while ours hold their lock.
os.register_at_fork(before=lambda: dropped.clear())
from slotline.torch import DataLoader
batches = iter(DataLoader(range(100), 4, num_workers=1))
for _ in range(10):
    dropped.extend(next(batches) for _ in range(2))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
"""
    run(code)


def test_a_loop_goes_on_while_another_thread_forks():
    """The forking thread needs the interpreter, which the loop must not hold while it waits for the
    fork."""
    code = """
import os, threading, time, warnings
warnings.simplefilter("ignore")  # Python warns of threads in the process that forks.
# Hooks run in the opposite order: this one while ours hold their lock.
os.register_at_fork(before=lambda: time.sleep(0.01))
from slotline.torch import DataLoader
batches = iter(DataLoader(range(4000), 4, num_workers=1))
kept = next(batches)
read, write = os.pipe()

def fork(act):
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    return pid

# It sees that batch for as long as it lives.
child = fork(lambda: (os.close(write), os.read(read, 1)))
kept = None
thread = threading.Thread(target=lambda: [time.sleep(0.0005) for _ in batches])
thread.start()
while thread.is_alive():
    os.waitpid(fork(lambda: None), 0)
os.close(write)
os.waitpid(child, 0)
"""
    run(code)


def test_a_batch_that_comes_in_the_middle_of_a_fork_is_given_back():
    code = """
import os
# Hooks run in the opposite order: this one after ours, which have seen that there was no batch.
taken = []
os.register_at_fork(before=lambda: taken.append(next(batches)))
from helpers import mapped
from slotline.torch import DataLoader
batches = iter(DataLoader(range(8), 4, num_workers=1))
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
assert taken.pop().tolist() == [0, 1, 2, 3] and next(batches).tolist() == [4, 5, 6, 7]
assert list(batches) == [] and mapped() == [0, 0], mapped()
"""
    # The loader's workers are forked in the same way, so the hook must not be registered before.
    code = code.replace("taken = []", "taken, batches = [], iter(())").replace("next(batches))", "next(batches, None))")
    run(code)


def test_a_process_that_is_forked_while_an_iterator_is_made_gets_no_batch_of_its_parent(capfd):
    class Forking(torch.utils.data.Sampler):
        def __iter__(self):
            def check():
                for batches in others:
                    with pytest.raises(RuntimeError, match="has its workers in another process"):
                        next(batches)

            assert in_child(check)
            return iter([[0, 1], [2, 3]])

    others = [iter(DataLoader(range(8), 2, num_workers=1)) for _ in range(4)]
    made = iter(DataLoader(range(8), batch_sampler=Forking(), num_workers=1))
    assert [batch.tolist() for batch in made] == [[0, 1], [2, 3]]
    assert all([batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5], [6, 7]] for batches in others)
    assert "AttributeError" not in capfd.readouterr().err
