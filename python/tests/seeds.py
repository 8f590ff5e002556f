"""The seeds of random tests.

Each case of a random test is generated from a seed, which is printed if the case fails.
``SLOTLINE_RANDOM_SEED=5`` runs only that case, and ``SLOTLINE_RANDOM_SECONDS=600`` runs new cases
for that time.
"""

import os
import random
import time

SEED = os.environ.get("SLOTLINE_RANDOM_SEED")
SECONDS = float(os.environ.get("SLOTLINE_RANDOM_SECONDS", 0))


def cases(count, first=0):
    """Yields the seeds of a test's cases."""
    if SEED is not None:
        yield int(SEED)
        return
    yield from range(first, first + count)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield random.SystemRandom().randrange(1 << 20, 1 << 30)
