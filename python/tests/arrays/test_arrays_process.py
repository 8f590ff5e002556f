"""`slotline.Loader` in a process: signals, forks, the exit of the interpreter, Python threads, and
leaks."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import in_child, run

import slotline
from slotline import Arrays, Loader

DATA = Arrays(x=np.zeros((100, 8), "u1"), i=np.arange(100))


def threads():
    return len(os.listdir("/proc/self/task"))


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_but_numpy_is_needed():
    program = "import slotline, sys; next(iter(slotline.Loader(slotline.digits()))); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_examples_of_the_readme_run():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    blocks = [block.split("```")[0] for block in readme.split("```python\n")[1:]]
    arrays, processes, files = [block for block in blocks if "slotline.Loader" in block]
    assert run(arrays).strip(), "it prints the verdict"
    assert "rank 0 of 1" in run(arrays + processes)
    run(files)


def test_an_interrupt_ends_a_wait():
    # The loop waits for a batch to be dropped, which does not happen.
    batches = iter(Loader(DATA, 4, hold=1, on_held="wait", num_workers=1))
    kept, times, sent = [], [], []

    def interrupt():
        time.sleep(0.1)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    for _ in range(5):
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            while True:
                kept.append(next(batches))
        except KeyboardInterrupt:
            times.append(time.perf_counter() - sent.pop())
        thread.join()
    assert len(times) == 5 and sorted(times)[2] < 0.1, times
    # No batch was lost.
    found = [kept.pop(0)["i"].tolist() for _ in range(len(kept))]
    found += [batch["i"].tolist() for batch in batches]
    assert sum(found, []) == list(range(100))


def test_other_threads_run_during_a_wait():
    batches, kept = iter(Loader(DATA, 4, hold=1, on_held="wait")), []
    turns, over = 0, threading.Event()

    def drop_late():
        nonlocal turns
        for _ in range(100):
            turns += 1
            time.sleep(0.001)
        kept.clear()
        over.set()

    thread = threading.Thread(target=drop_late)
    thread.start()
    while not over.is_set():
        kept.append(next(batches))
    thread.join()
    assert turns == 100


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_forks(workers):
    loader = Loader(DATA, 4, shuffle=True, seed=1, num_workers=workers)
    first, second, third = ([batch["i"].tolist() for batch in loader] for _ in range(3))
    loader.set_epoch(0)
    batches = iter(loader)
    kept = [next(batches), next(batches)]
    state = loader.state_dict()

    def goes_on():
        assert [batch["i"].tolist() for batch in kept] == first[:2]
        with pytest.raises(slotline.ForkError, match="make a new iterator"):
            list(batches)
        assert loader.state_dict() == state and loader.epoch == 1 and loader.stats()["passes"] == 4
        assert [batch["i"].tolist() for batch in loader] == second
        loader.load_state_dict(state)
        assert [batch["i"].tolist() for batch in loader] == first[2:]
        loader.set_epoch(2)
        return [batch["i"].tolist() for batch in loader] == third

    def resumes():
        return [batch["i"].tolist() for batch in loader] == first[2:]

    def drops():
        nonlocal loader, batches, kept
        del loader, batches, kept
        gc.collect()

    assert in_child(goes_on) and in_child(drops)
    # The parent is not affected.
    assert [batch["i"].tolist() for batch in batches] == first[2:]
    loader.load_state_dict(state)
    assert in_child(resumes)
    assert [batch["i"].tolist() for batch in loader] == first[2:]


@pytest.mark.parametrize(
    "program",
    [
        "batches = iter(loader); next(batches)",
        "batches = iter(loader); kept = [next(batches), next(batches)]",
        "import atexit; batches = iter(loader); next(batches); atexit.register(lambda: next(batches))",
        "class Keeper:\n    def __init__(self): self.me = self; self.batches = iter(loader); next(self.batches)\nKeeper()",
        "import builtins; builtins.kept = list(loader)",
        "import threading, time\n"
        "batches = iter(slotline.Loader(data, 4, hold=1, on_held='wait', num_workers=1)); kept = []\n"
        "def wait():\n    while True: kept.append(next(batches))\n"
        "threading.Thread(target=wait, daemon=True).start(); time.sleep(0.2)",
        "import threading, time\n"
        "batches = iter(slotline.Loader(data, 4, collate_fn=lambda samples: time.sleep(0.01)))\n"
        "threading.Thread(target=list, args=(batches,), daemon=True).start(); time.sleep(0.2)",
        "import sys; batches = iter(loader); next(batches); sys.exit(0)",
    ],
)
def test_the_interpreter_ends_with_live_loaders(program):
    if "collate_fn" in program and sys.version_info < (3, 13):
        pytest.skip("this CPython crashes if it ends while a daemon thread runs Python code that was called from Rust")
    setup = """
        import numpy as np, slotline
        data = slotline.Arrays(i=np.arange(1000))
        loader = slotline.Loader(data, 4, shuffle=True, num_workers=2)
    """
    run(textwrap.dedent(setup) + program)


def test_many_loaders_leave_nothing():
    data = Arrays(x=np.zeros((2000, 64), "u1"), i=np.arange(2000))

    def use(count):
        for at in range(count):
            loader = Loader(data, 16, shuffle=True, num_workers=at % 3, output="dlpack" if at % 5 == 0 else "numpy")
            batches = iter(loader)
            kept = next(batches)
            if at % 2:
                list(batches)
            if at % 7 == 0:
                list(zip(loader, loader, strict=True))
            del loader, batches, kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # More workers than cores.
        use(150)
        gc.collect()
        before = (threads(), len(os.listdir("/proc/self/fd")))
        memory = resident()
        use(400)
    gc.collect()
    # Without the interpreter's lock, what earlier tests have left may have been freed meanwhile.
    assert threads() <= before[0] and len(os.listdir("/proc/self/fd")) <= before[1]
    assert resident() - memory < 2 << 20


def test_long_loops_take_no_more_memory():
    loader = Loader(DATA, 4, shuffle=True, num_workers=1)
    for _ in range(50):
        last = [batch for batch in loader][-1]
    memory = resident()
    for _ in range(1500):
        last = list(loader)[-1]
    assert len(last["i"]) == 4 and resident() - memory < 2 << 20
