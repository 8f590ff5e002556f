"""The ``slotline`` program, as a command and as ``python -m slotline``."""

from __future__ import annotations

import signal
import sys

from slotline import _slotline


def main() -> int:
    """Runs the program with the arguments of the process, and returns its exit code."""
    # Python's handler would only record Ctrl-C until the native program returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _slotline.run_program(["slotline", *sys.argv[1:]])
