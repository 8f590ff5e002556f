"""What happened in a pass, and what held the loop back."""

from __future__ import annotations

import os
import time

# If the loop is inside the loader for less than this share of the time, the loader keeps up.
_KEPT_UP = 0.1
# Workers that are busy for more than this share of the time are the limit.
_BUSY = 0.6
# How many of the samples that were left out are listed.
_MOST_CAUSES = 1000


class Stats:
    """The statistics of a pass. Times are in seconds."""

    def __init__(self, num_workers):
        self.batches = 0
        self.errors = 0
        self.bad_samples = 0
        # The last samples that were left out: an index, or `None` in a stream, and the error.
        self.bad_causes = []
        # How long the loop was inside the loader.
        self.waited = 0.0
        # How long each worker was busy.
        self.busy = [0.0] * num_workers
        self._begun = None
        self._last = None

    def count(self, begun):
        """Counts a call into the loader that began at ``begun``, as ``time.perf_counter`` tells it."""
        now = time.perf_counter()
        if self._begun is None:
            self._begun = begun
        self._last = now
        self.waited += now - begun

    def leave_out(self, bad):
        self.bad_samples += len(bad)
        self.bad_causes.extend(bad)
        del self.bad_causes[:-_MOST_CAUSES]

    @property
    def elapsed(self):
        return 0.0 if self._begun is None else self._last - self._begun

    def as_dict(self):
        return {
            "batches": self.batches,
            "errors": self.errors,
            "bad_samples": self.bad_samples,
            "bad_causes": list(self.bad_causes),
            "elapsed": self.elapsed,
            "waited": self.waited,
            "busy": list(self.busy),
        }

    def verdict(self):
        if self.batches == 0 or self.elapsed == 0.0:
            return "no batch was delivered"
        waited = self.waited / self.elapsed
        if waited < _KEPT_UP:
            return f"bound by the loop: it was inside the loader for {waited:.1%} of the time; the loader kept up"
        cores = len(os.sched_getaffinity(0))
        if not self.busy:
            return (
                f"bound by loading: the loop's own thread loads everything, {waited:.0%} of the time; "
                f"num_workers={min(cores, 2)} would do it beside the loop"
            )
        shares = [busy / self.elapsed for busy in self.busy]
        mean = sum(shares) / len(shares)
        most = max(range(len(shares)), key=shares.__getitem__)
        others = (sum(shares) - shares[most]) / max(len(shares) - 1, 1)
        if len(shares) > 1 and shares[most] > _BUSY and others < shares[most] / 2:
            return (
                f"held up by worker {most}: it was busy {shares[most]:.0%} of the time, and the others {others:.0%} on "
                "average; its samples take longer than theirs, so round_robin=False would help"
            )
        if mean > _BUSY:
            # As many as would leave the loop what it does itself.
            enough = max(len(shares) + 1, round(sum(shares) / (1.0 - waited)) if waited < 1.0 else cores)
            more = (
                f"num_workers={min(enough, cores)} would be faster"
                if cores > len(shares)
                else f"there are as many workers as cores ({cores}), so samples must become cheaper"
            )
            return f"bound by the workers: they were busy {mean:.0%} of the time; {more}"
        return (
            f"bound by loading, but by no single part of it: the loop waited {waited:.0%} of the time, and workers were "
            f"busy {mean:.0%} of it; a greater batch_size or prefetch_factor may help, or there are not enough cores"
        )
