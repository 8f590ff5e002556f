"""The cases of random tests.

A case is made from its seed, which is printed if it fails. ``SLOTLINE_RANDOM_SEED=5`` runs that case alone, and
``SLOTLINE_RANDOM_SECONDS=600`` runs other cases for so long.
"""

import os
import time

SEED = os.environ.get("SLOTLINE_RANDOM_SEED")
SECONDS = float(os.environ.get("SLOTLINE_RANDOM_SECONDS", 0))


def cases(count):
    """Returns the seeds of a test's cases."""
    if SEED is not None:
        yield int(SEED)
        return
    yield from range(count)
    begun, seed = time.monotonic(), 1 << 20
    while time.monotonic() - begun < SECONDS:
        yield seed
        seed += 1
