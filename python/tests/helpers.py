"""What tests with and without PyTorch do again and again."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback


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
    """Runs a function in a forked process, and returns whether it ended without an error and did not return ``False``."""
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
    """Calls a function in several threads, each with its number, and waits for them."""
    threads = [threading.Thread(target=function, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def script(program, *options):
    """Runs a program in another interpreter, and returns how it ended and what it printed."""
    command = [sys.executable, *options, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def rows_of(batches):
    """Returns the samples of batches that are dicts."""
    return [
        {name: field[row] for name, field in batch.items()}
        for batch in batches
        for row in range(len(next(iter(batch.values()))))
    ]
