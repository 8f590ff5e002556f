"""Statistics of a pass, and the conclusion about what limited its speed."""

from __future__ import annotations

import os
import time

# The loader keeps up if the loop waits in it for less than this share of the time.
_KEPT_UP = 0.1
# Workers limit the speed if they are busy for more than this share of the time.
_BUSY = 0.6
# There are too few CPU cores if workers wait for one for more than this share of the time.
_STARVED = 0.5
# Batches count as small if one takes less than this, in seconds.
_SMALL = 0.0002
# The most samples that were left out to list.
_MAX_CAUSES = 1000


def run_delay(worker):
    """Returns for how many seconds a worker process or thread has waited for a CPU core; 0 if the
    system does not report it."""
    number = getattr(worker, "native_id", None) or getattr(worker, "pid", None)
    try:
        with open(f"/proc/{number}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Stats:
    """The statistics of a pass. Times are in seconds."""

    def __init__(self, num_workers):
        self.batches = 0
        self.errors = 0
        self.bad_samples = 0
        # The last samples that were left out: the index (``None`` in a stream) and the error of
        # each.
        self.bad_causes = []
        # The time that the loop spent in the loader.
        self.waited = 0.0
        # The time that each worker was busy.
        self.busy = [0.0] * num_workers
        # The time that each worker waited for a CPU core, and the total time of collating and
        # copying.
        self.starved = [0.0] * num_workers
        self.writing = 0.0
        # The duration of the slowest batch, and its number.
        self.slowest = 0.0, 0
        # The batches being made: for each its duration so far, its worker and its number. `look`
        # updates them.
        self.now = []
        self.look = None
        # The start of the current call into the loader, or ``None``.
        self._entered = None
        self._begun = None
        self._last = None

    def begin(self, begun):
        """Records the start of a call into the loader."""
        self._entered = begun
        if self._begun is None:
            self._begun = begun

    def count(self, begun):
        """Records the end of a call into the loader that began at ``begun``, a value of
        ``time.perf_counter``."""
        now = time.perf_counter()
        self._last = now
        self._entered = None
        self.waited += now - begun
        if not self.busy and now - begun > self.slowest[0]:
            self.slowest = now - begun, self.batches

    def leave_out(self, bad):
        self.bad_samples += len(bad)
        self.bad_causes.extend(bad)
        del self.bad_causes[:-_MAX_CAUSES]

    def _times(self):
        """Returns the duration of the pass, and the part of it in the loader, including a call that
        is still running."""
        if self._begun is None:
            return 0.0, 0.0
        entered, now = self._entered, time.perf_counter()
        until = self._last if entered is None else now
        if (look := self.look and self.look()) is not None:
            look(self._begun, until)
        return until - self._begun, self.waited + (0.0 if entered is None else now - entered)

    def _busy(self, elapsed):
        """Returns how long each worker was busy, at most ``elapsed``: workers also work before the
        first request, and during a step."""
        return [min(busy, elapsed) for busy in self.busy]

    def as_dict(self):
        elapsed, waited = self._times()
        return {
            "batches": self.batches,
            "errors": self.errors,
            "bad_samples": self.bad_samples,
            "bad_causes": list(self.bad_causes),
            "elapsed": elapsed,
            "waited": waited,
            "busy": self._busy(elapsed),
        }

    def verdict(self):
        elapsed, waiting = self._times()
        if elapsed == 0.0 or (self.batches == 0 and self._entered is None):
            return "no batch was delivered"
        waited = waiting / elapsed
        if waited < _KEPT_UP:
            return f"bound by the loop: it was inside the loader for {waited:.1%} of the time; the loader kept up"
        cores = len(os.sched_getaffinity(0))
        now = self.now
        if not self.busy and self._entered is not None:
            now = [(time.perf_counter() - self._entered, None, self.batches)]
        longest, worker, number = max(now, key=lambda batch: batch[0], default=(0.0, None, 0))
        if longest > elapsed / 2:
            who = "the loop's own thread" if worker is None else f"worker {worker}"
            return f"held up by a batch that has not ended: {who} has been making batch {number} for {longest:.1f} s"
        starved = sum(min(delay, elapsed) for delay in self.starved) / max(len(self.starved), 1) / elapsed
        if starved > _STARVED:
            return (
                f"starved of cores: workers could run, but waited {starved:.0%} of the time for one of {cores} cores; "
                f"{'fewer workers, or ' if len(self.busy) > cores else ''}fewer other threads and programs would help"
            )
        if self.slowest[0] > elapsed / 2 and self.batches > 1:
            return f"held up by one batch: batch {self.slowest[1]} alone took {min(self.slowest[0] / elapsed, 1.0):.0%} of the time"
        collating = self.writing > (sum(self.busy) if self.busy else waiting) / 2
        mostly = ", more than half of it collating and copying batches" if collating else ""
        each = elapsed / max(self.batches, 1)
        if not self.busy:
            advice = f"num_workers={min(cores, 2)} would do it beside the loop"
            if each < _SMALL:
                advice = f"batches take {each * 1e6:.0f} µs, and handing them over takes as long: a greater batch_size would help"
            return f"bound by loading: the loop's own thread loads everything, {waited:.0%} of the time{mostly}; {advice}"
        shares = [busy / elapsed for busy in self._busy(elapsed)]
        mean = sum(shares) / len(shares)
        most = max(range(len(shares)), key=shares.__getitem__)
        others = (sum(shares) - shares[most]) / max(len(shares) - 1, 1)
        if len(shares) > 1 and shares[most] > _BUSY and others < shares[most] / 2:
            return (
                f"held up by worker {most}: it was busy {shares[most]:.0%} of the time, and the others {others:.0%} on "
                "average; its samples take longer than theirs, so round_robin=False would help"
            )
        if mean > _BUSY:
            # The number of workers that make batches as fast as the loop's own work consumes them.
            enough = max(len(shares) + 1, round(sum(shares) / (1.0 - waited)) if waited < 1.0 else cores)
            more = (
                f"num_workers={min(enough, cores)} would be faster"
                if cores > len(shares)
                else f"there are as many workers as cores ({cores}), so samples must become cheaper"
            )
            return f"bound by the workers: they were busy {mean:.0%} of the time{mostly}; {more}"
        if each < _SMALL:
            return (
                f"bound by handing over small batches: there is one every {each * 1e6:.0f} µs, and the loop waited "
                f"{waited:.0%} of the time; a greater batch_size would help"
            )
        return (
            f"bound by loading, but by no single part of it: the loop waited {waited:.0%} of the time, and workers were "
            f"busy {mean:.0%} of it; a greater prefetch_factor may help"
        )
