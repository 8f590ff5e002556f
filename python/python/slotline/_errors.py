"""The exceptions of :class:`slotline.Loader`, its datasets, and the states of all loaders."""


class Error(Exception):
    """The base class of all exceptions of slotline."""


class DataError(Error, ValueError):
    """Arrays, files or indices cannot be used as a dataset. The message says which, and why."""


class OptionError(Error, ValueError):
    """An option has an invalid value, or two options exclude each other."""


class StateError(Error, ValueError):
    """A state cannot be loaded: it is damaged, or the dataset, batch size, seed or order differ."""


class SampleError(Error, RuntimeError):
    """A sample could not be read. The pass continues with the next batch."""


class LoaderTimeoutError(Error, TimeoutError):
    """No batch was ready within the loader's ``timeout``. The next call waits for the same
    batch."""


class OutOfMemoryError(Error, MemoryError):
    """The batches need more memory than ``memory_limit`` allows or the system has.

    If it is raised during a pass, the caller keeps too many batches. After dropping one, ``next()``
    continues the pass.
    """


class WorkerError(Error, RuntimeError):
    """The loader's threads could not be started, or they have ended."""


class ForkError(Error, RuntimeError):
    """An iterator of the parent process was used after a fork. Make a new iterator in the child."""
