"""The seeds of random tests.

Each case of a random test is generated from a seed, which is printed if the case fails.
``SLOTLINE_RANDOM_SEED=5`` runs only that case, and ``SLOTLINE_RANDOM_SECONDS=600`` runs new cases
for that time.
"""

import os
import time

SEED = os.environ.get("SLOTLINE_RANDOM_SEED")
SECONDS = float(os.environ.get("SLOTLINE_RANDOM_SECONDS", 0))


def cases(count):
    """Yields the seeds of a test's cases."""
    if SEED is not None:
        yield int(SEED)
        return
    yield from range(count)
    begun, seed = time.monotonic(), 1 << 20
    while time.monotonic() - begun < SECONDS:
        yield seed
        seed += 1
