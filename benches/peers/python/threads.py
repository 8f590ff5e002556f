"""Measures how much faster a second worker thread makes a dataset whose samples are pure Python.

``threads.py [PYTHON…]`` measures in each of these interpreters, which need slotline and torch, or in
the one that runs it. Use an idle machine with at least two cores.
"""

import statistics
import subprocess
import sys
import time

PASSES = 20
SAMPLES = 200
BATCH_SIZE = 4


class Computed:
    """Samples that take some milliseconds each, all of it in Python code."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        number = index
        for step in range(20_000):
            number = (number * 31 + step) % 1_000_003
        return number


def spread(values, unit=""):
    """Returns the median of some values, and between which values half of them are."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f}{unit} ({low:.2f} to {high:.2f})"


def measure():
    import torch
    from slotline.torch import DataLoader

    def duration(workers):
        begun = time.perf_counter()
        for _ in DataLoader(Computed(), BATCH_SIZE, num_workers=workers, worker_method="thread"):
            pass
        return time.perf_counter() - begun

    duration(1), duration(2)
    # Alternately, so that other load and the clock of the processor affect both.
    pairs = [(duration(1), duration(2)) for _ in range(PASSES)]
    one, two = zip(*pairs)
    is_locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"CPython {sys.version.split()[0]} {'with' if is_locked else 'without'} the interpreter's lock, torch {torch.__version__}")
    print(f"  a pass with one worker {spread(one, ' s')}, with two {spread(two, ' s')}")
    print(f"  two workers are {spread([a / b for a, b in pairs])} times as fast as one", flush=True)


if __name__ == "__main__":
    for python in sys.argv[1:]:
        subprocess.run([python, __file__], check=True)
    if len(sys.argv) == 1:
        measure()
