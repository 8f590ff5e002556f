"""Helpers that tests with and without PyTorch share."""

import contextlib
import copy
import functools
import gc
import glob
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import traceback
from pathlib import Path

# Whether this is a free-threaded CPython. There, worker threads are the default, and the memory of
# batches that the loop's thread makes is not used again.
IS_FREE_THREADED = "free-threading" in sys.version


def outcomes(batches, errors=Exception):
    """Yields each batch of an iterator, or the error that is raised in its place."""
    while True:
        try:
            yield next(batches)
        except StopIteration:
            return
        except errors as error:
            yield error


def in_child(check):
    """Runs a function in a forked process. Returns whether it ended without an error and did not
    return ``False``."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            status = int(check() is False)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def in_threads(count, function):
    """Calls a function in several threads, passes each its number, and waits for them."""
    threads = [threading.Thread(target=function, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@functools.cache
def _prepared():
    command = [sys.executable, Path(__file__).with_name("prepared.py")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def script(program):
    """Runs a program in another interpreter, which can import the tests' modules and has imported
    PyTorch, and returns its exit code and output."""
    prepared = _prepared()
    print(json.dumps(textwrap.dedent(program)), file=prepared.stdin, flush=True)
    return subprocess.CompletedProcess(program, *json.loads(prepared.stdout.readline()))


def run(program):
    """Runs a program as `script` does, checks that it ends without an error, and returns its
    output."""
    ended = script(program)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


def rows_of(batches):
    """Returns the samples in batches that are dicts."""
    return [
        {name: field[row] for name, field in batch.items()}
        for batch in batches
        for row in range(len(next(iter(batch.values()))))
    ]


def add_to_tar(file, name, contents):
    """Adds a file with these bytes to a tar that is open for writing."""
    info = tarfile.TarInfo(name)
    info.size = len(contents)
    file.addfile(info, io.BytesIO(contents))


def threads_named(name):
    """Returns the threads of this process whose names begin with ``name``."""
    found = set()
    for path in glob.glob("/proc/self/task/*/comm"):
        # A thread may end during the loop.
        with contextlib.suppress(OSError), open(path) as comm:
            if comm.read().startswith(name):
                found.add(path)
    return found


def damages(state, values, opaque=(), path=()):
    """Yields damaged states: for each field its path, the invalid value (``...`` for a missing
    field), and the state with it.

    Fields whose names are in ``opaque`` are only removed.
    """
    for name, value in state.items():
        at = (*path, name)
        yield at, ..., {other: value for other, value in state.items() if other != name}
        if name in opaque:
            continue
        for wrong in values:
            if not (wrong is True and isinstance(value, bool)):
                yield at, wrong, {**state, name: copy.deepcopy(wrong)}
        if isinstance(value, dict):
            for inner, wrong, damaged in damages(value, values, opaque, at):
                yield inner, wrong, {**state, name: damaged}


def damage(state, path, value):
    """Sets the field at a path such as ``"start.generator"``, or removes it if the value is
    ``...``."""
    *outer, name = path.split(".")
    for key in outer:
        state = state[key]
    if value is ...:
        del state[name]
    else:
        state[name] = value


def mapped():
    """Returns how many bytes of channels this process has mapped, and how many of them are in
    use."""
    gc.collect()
    sizes, is_ours = [0, 0], False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            if "-" in line.split()[0]:
                is_ours = "memfd:slotline" in line
            elif is_ours and line.startswith(("Size:", "Rss:")):
                sizes[line.startswith("Rss:")] += int(line.split()[1]) << 10
    return sizes
