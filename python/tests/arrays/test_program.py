"""The program as a command of the Python package."""

import signal
import subprocess
import sys
import time

import slotline

PROGRAM = [sys.executable, "-m", "slotline"]


def run(*arguments, **options):
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, **options)


def test_commands_run_and_say_what_is_wrong():
    assert run("--version").stdout == f"slotline {slotline.__version__}\n"
    order = run("order", "--len", "5", "--batch-size", "2")
    assert order.returncode == 0 and [len(line) > 0 for line in order.stdout.splitlines()] == [True] * 3
    wrong = run("feed", "--no-such-flag")
    assert wrong.returncode == 2 and "--no-such-flag" in wrong.stderr
    missing = run("feed", "no/such/file.parquet")
    assert missing.returncode == 2 and "no such file or folder" in missing.stderr and "Traceback" not in missing.stderr
    with open("/dev/full", "w") as full:
        unwritable = subprocess.run([*PROGRAM, "order", "--len", "5"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert unwritable.returncode == 1 and unwritable.stderr.startswith("error: cannot write to stdout")


def test_workers_that_are_processes_serve_the_command():
    digits = [run("feed", "digits", "--digest", "--json", *how).stdout for how in ([], ["--num-workers", "2", "--worker-kind", "process"])]
    assert digits[0] and all("digest" in out for out in digits), digits


def test_an_interrupt_ends_the_command():
    feed = subprocess.Popen([*PROGRAM, "feed", "digits", "--epochs", "100000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(2)
    assert feed.poll() is None
    feed.send_signal(signal.SIGINT)
    feed.communicate(timeout=20)
    assert feed.returncode == -signal.SIGINT
