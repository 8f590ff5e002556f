"""The messages between a loader and its workers."""

from __future__ import annotations

from multiprocessing import reduction

from slotline import _slotline

# From the loader to a worker. A task's value is what the sampler has given.
TASK = 1
# Begin another pass. The value is the seed that all workers share, for datapipes.
RESUME = 2
# No more tasks will come.
END = 3

# From a worker to the loader. The extension knows the number of this one, to which a limit of the memory applies.
BATCH = 4
# The value is an ``ExceptionWrapper``.
ERROR = 5
# The worker's stream has ended.
EXHAUSTED = 6
# It has begun the pass.
RESUMED = 7
# The state of the worker's dataset, after the batch whose message is next. It is not an answer, so it names no task.
STATE = 8
# The samples that were left out of the batch whose message is next; no answer, either.
BAD = 9
# All samples of the batch were left out.
SKIPPED = 10
# The states of the worker's generators, after the batch whose message is next. The port keeps them.
GENERATORS = 11


class Channel(_slotline.Channel):
    """A channel that can be given to a process when it is started."""

    def __reduce__(self):
        return _attach, (reduction.DupFd(self.fileno()),)


def _attach(descriptor):
    return Channel(descriptor.detach())
