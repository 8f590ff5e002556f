"""The exceptions of :class:`slotline.Loader` and its datasets, and for states of all loaders."""


class Error(Exception):
    """The base class of all exceptions of slotline."""


class DataError(Error, ValueError):
    """Arrays, files or indices cannot be used as a dataset. The message says which, and why."""


class OptionError(Error, ValueError):
    """An option has an invalid value, or options exclude each other."""


class StateError(Error, ValueError):
    """A state cannot be loaded: it is damaged, or of a loader with another dataset, batch size, seed or order."""


class SampleError(Error, RuntimeError):
    """A sample could not be read. The pass continues with the next batch."""


class LoaderTimeoutError(Error, TimeoutError):
    """No batch came within the loader's ``timeout``. Asking again waits for the same batch."""


class OutOfMemoryError(Error, MemoryError):
    """The batches need more memory than ``memory_limit`` allows or the system has.

    If it is raised while a pass runs, too many batches are kept: asking again after one was dropped continues the pass.
    """


class WorkerError(Error, RuntimeError):
    """The loader's threads could not be started, or have ended."""


class ForkError(Error, RuntimeError):
    """The process was forked, and an iterator of its parent was used. Make a new iterator in the child."""
