"""The kinds of messages between a loader and its workers."""

from __future__ import annotations

from multiprocessing import reduction

from slotline import _slotline

# From the loader to a worker: make a batch. The value is what the sampler returned.
TASK = 1
# Begin another pass. The value contains the seed that all workers share, for datapipes.
RESUME = 2
# The last message: no more tasks follow.
END = 3

# From a worker to the loader: a batch. The extension module knows this number too, since the memory
# limit applies to batches.
BATCH = 4
# The error of a task, as an ``ExceptionWrapper``.
ERROR = 5
# The worker's stream has ended.
EXHAUSTED = 6
# The worker has begun the pass of a ``RESUME``.
RESUMED = 7
# The state of the worker's dataset after the batch in the next message. It is not a reply, so it
# names no task.
STATE = 8
# The samples that were left out of the batch in the next message. Not a reply either.
BAD = 9
# A reply without a batch: all of its samples were left out.
SKIPPED = 10
# The states of the worker's generators after the batch in the next message. The port stores them.
GENERATORS = 11


class Channel(_slotline.Channel):
    """A channel that can be passed to a process when it is started."""

    def __reduce__(self):
        return _attach, (reduction.DupFd(self.fileno()),)


def _attach(descriptor):
    return Channel(descriptor.detach())
