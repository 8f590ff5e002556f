"""The native extension module. Only ``Pass`` and ``Tensor`` are public, as ``slotline.Pass`` and
``slotline.Tensor``."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Self, final

from typing_extensions import disjoint_base

__all__ = [
    "ByteTable",
    "Channel",
    "Closed",
    "Collator",
    "Columns",
    "Engine",
    "Gatherer",
    "Generators",
    "Memory",
    "NotLifted",
    "Pass",
    "Picture",
    "Plan",
    "Pool",
    "Port",
    "Source",
    "Steps",
    "Tensor",
    "__version__",
    "after_fork_in_child",
    "after_fork_in_parent",
    "before_fork",
    "draw_mix",
    "freeze",
    "image_text",
    "merge_states",
    "panic_on_purpose",
    "ranks_from_env",
    "run_program",
]

__version__: str

@final
class Pool:
    """A pool of memory for batches in this process; a loader reuses its pool in all of its
    passes."""

    def __new__(cls) -> Pool: ...


@final
class Collator:
    """Collates lists of samples as torch's ``default_collate`` does, into memory of this
    process."""

    def __new__(cls, pool: Pool | None = None) -> Collator: ...

    def __call__(self, samples: list[Any]) -> Any:
        """Collates samples into a batch."""

class NotLifted(RuntimeError):
    """Raised for a picture that torchvision itself has to process, or for which it would raise an
    error."""

@final
class ByteTable:
    """A lookup table from bytes to numbers, for each channel of a picture."""

    def __new__(cls, code: int, bits: int, channels: int, numbers: bytes) -> ByteTable:
        """Takes the DLPack code and bits of the number type, and 256 numbers for each channel:
        three channels, or one for grey pictures."""

@final
class Picture:
    """A placeholder for a picture's tensor in a list of samples that is collated."""

@final
class Steps:
    """A picture, and the operations to apply to it."""

    @staticmethod
    def open(path: str | PathLike[str]) -> Steps | None:
        """Reads a file. Returns ``None`` if it cannot be read, or if PIL might decode it
        differently."""

    @staticmethod
    def of_file(bytes: bytes) -> Steps | None:
        """The same for the contents of a file."""

    @staticmethod
    def of_pixels(bytes: bytes, height: int, width: int, channels: int) -> Steps:
        """Takes rows of pixels with three channels or one."""

    def copy(self) -> Steps: ...
    @property
    def size(self) -> tuple[int, int]:
        """The height and width after the operations so far."""

    def crop(self, top: int, left: int, height: int, width: int) -> None: ...
    def resize(self, height: int, width: int, filter: str, library: str) -> None:
        """Resizes as ``"Pillow"`` (13), ``"Pillow 12"`` (and earlier versions) or ``"torch"`` does."""

    def flip_horizontally(self) -> None: ...
    def flip_vertically(self) -> None: ...
    def pad(self, sides: Sequence[int], mode: str, fill: Sequence[int]) -> None:
        """Adds pixels at the left, top, right and bottom side."""

    def change(self, function: str, value: float = 0.0) -> None:
        """Changes colours with a function of torchvision, named by ``function``, and its parameter
        if it has one."""

    def shift(self, operation: str, magnitude: float, interpolation: str, fill: Sequence[int]) -> None:
        """Applies a geometric operation of torchvision's AutoAugment family, such as a shear, with
        a magnitude."""

    def pixels(self, channels: int) -> bytes:
        """Returns the pixels after all operations, row by row, one byte for each channel."""

    def picture(self, table: ByteTable, erased: Sequence[tuple[Sequence[int], bytes]]) -> Picture:
        """Returns a placeholder for the tensor that the operations make, with numbers from
        ``table``. Then rectangles are filled: each has a top, left, height and width, and the bytes
        of a number for each channel."""

@final
class Gatherer:
    """Makes batches of tensors and arrays that a dataset holds in memory, without calling the
    dataset."""

    def __new__(cls, kinds: Sequence[type], pool: Pool) -> Gatherer:
        """``kinds`` are torch's classes ``TensorDataset``, ``StackDataset``, ``ConcatDataset`` and
        ``Subset``."""

    def __call__(self, dataset: Any, index: Any) -> Any | None:
        """Returns the batch of the samples at these indices, or ``None`` if only the dataset itself
        can make it."""

class Closed(EOFError):
    """Raised when the other end of a channel is closed and no message is left."""

@disjoint_base
class Channel:
    """Shared memory for messages in one direction between two processes."""

    def __new__(cls, fd: int | None = None, limit: int | None = None) -> Channel:
        """Creates a channel, or maps the one with the descriptor ``fd``, which it then owns.

        ``limit`` is the most bytes that the batches in a new channel may have together.
        """

    def fileno(self) -> int:
        """Returns the descriptor of the memory."""

    def regions(self) -> list[tuple[int, int]]:
        """Returns address and length of each region of the memory that is mapped here for tensors.

        Regions are added as the memory grows. Each tensor is in one region.
        """

    def hold_back(self) -> None:
        """Delays the reuse of tensors' memory: after a tensor is dropped, its memory is reused only
        after ``give_back``.

        Call it before the other process has its end of the channel.
        """

    def dropped(self) -> int:
        """Returns how many delayed blocks have been dropped so far."""

    def give_back(self, count: int) -> None:
        """Allows the reuse of the first ``count`` dropped blocks, counted since the start of the
        channel."""

    @property
    def figures(self) -> tuple[float, float, int, float, int, float]:
        """The sender's statistics, with times in seconds:

        - the time that it was busy
        - the time that it spent on collating and copying
        - the current task, or 0
        - when the current task began
        - the slowest task
        - the time that the slowest task took
        """

    def want(self, first: int) -> None:
        """Tells the sender that the replies to tasks before ``first`` are not needed."""

    def close(self) -> None:
        """Closes the channel for both sides."""

@disjoint_base
class Columns:
    """Objects that ``slotline.freeze`` wrote, in a file without a name."""

    def __new__(cls, fd: int) -> Self:
        """Takes the descriptor of a file that ``freeze`` has made, and owns it from then on."""

    def __len__(self) -> int: ...
    def get(self, index: int) -> Any:
        """Makes the object at this index."""

    def fileno(self) -> int:
        """Returns the descriptor of the file."""

    def contents(self) -> bytes:
        """Returns the contents of the file."""

    @property
    def nbytes(self) -> int:
        """The size of the file in bytes."""

@final
class Port:
    """One process's end of a connection: a channel to send and a channel to receive."""

    def __new__(cls, to: Channel, from_: Channel, pool: Pool | None = None) -> Port:
        """Takes the channel to send to, and the channel to receive from."""

    def send(self, kind: int, task: int = 0, value: Any = None) -> bool:
        """Sends a value. Returns ``False`` if the receiver has closed the channel."""

    def collate(self, kind: int, task: int, samples: list[Any]) -> bool:
        """Collates samples into a batch, and sends it."""

    def ask(self, kind: int, task: int, value: Any = None) -> bool:
        """Sends a request that will be answered by a message with the same task. Task numbers must
        ascend."""

    @property
    def due(self) -> list[int]:
        """The tasks whose replies have not been received."""

    def send_bytes(self, kind: int, value: bytes) -> bool:
        """Sends bytes unchanged: states of generators, which the port at the other end stores."""

    @property
    def generators(self) -> bytes | None:
        """The states of the worker's generators after the message received last, if it sent
        them."""

    @property
    def closed(self) -> bool:
        """Whether the receiver has closed the channel."""

    @property
    def wanted(self) -> int:
        """The first task whose reply is still needed."""

    @property
    def ready(self) -> int:
        """The number of messages that can be received without waiting."""

    def trim(self) -> None:
        """Returns unused memory to the system until it is needed again."""

    def begin(self, task: int, begun: float) -> None:
        """Records that this end begins a task, at the time ``begun`` of ``time.perf_counter``."""

    def end(self, took: float, writing: float) -> None:
        """Records that this end has finished its task, after ``took`` seconds, of which it collated
        and copied for ``writing`` seconds."""

    def receive(self, timeout: float = 0.0) -> tuple[int, int, Any] | None:
        """Returns the kind, task and value of the next message.

        Returns ``None`` if there is none within ``timeout`` seconds. Raises ``Closed`` if there
        will be no more.
        """

@final
class Generators:
    """Detects whether the default random generators of this process were used."""

    def __new__(cls, torch: Any, random: Any, words: bytes, numpy: tuple[Any, int] | None) -> Generators:
        """Takes torch's generator, Python's with the words and the position in its state, and, if
        it is a Mersenne Twister, NumPy's with the address of its state.
        """

    @property
    def random(self) -> bytes:
        """The words of the state of Python's generator, and the position in them."""

    @property
    def numpy(self) -> bytes | None:
        """The words and the position of NumPy's generator. ``None`` also while another thread draws
        from it."""

    waiting: bool
    """Whether NumPy's generator stores a second normally distributed number, which its words do not
    show. Write-only."""

    def changed(self) -> bool:
        """Returns whether a generator may have changed since the last call."""

@final
class Source:
    """A dataset that the engine reads; the native part of ``slotline.Dataset``."""

    @staticmethod
    def arrays(arrays: tuple[Any, ...], names: Sequence[str]) -> Source:
        """Reads arrays in place. ``names`` appear in error messages."""

    @staticmethod
    def idx(paths: Sequence[str | PathLike[str]]) -> Source:
        """Reads IDX files into memory."""

    @staticmethod
    def npy(paths: Sequence[str | PathLike[str]], mapped: bool) -> Source:
        """Reads ``.npy`` files into memory, or maps them, which requires that they do not
        change."""

    @staticmethod
    def digits() -> Source:
        """Returns the dataset of digits that is part of the package."""

    @staticmethod
    def open(
        path: str | PathLike[str],
        opening: dict[str, Any],
        reading: dict[str, Any],
        shuffle_buffer: int,
    ) -> Source:
        """Opens files with the options of ``slotline.open``, and detects their format.

        ``reading`` has the options that all formats share: ``read_ahead``, ``cache``, ``requests``
        and ``image``.
        """

    @staticmethod
    def folder(
        path: str | PathLike[str],
        extensions: Sequence[str] | None,
        allow_empty: bool,
        mask_folder: str | PathLike[str] | None,
        reading: dict[str, Any],
    ) -> Source:
        """Opens a folder with one folder of files for each class."""

    @staticmethod
    def tokens(paths: Sequence[str | PathLike[str]], blocks: dict[str, Any], reading: dict[str, Any]) -> Source:
        """Opens token files. ``blocks`` defines the samples: ``size``, ``stride``, ``dtype``,
        ``labels`` and ``widen``."""

    @staticmethod
    def subset(source: Source, indices: Sequence[int]) -> Source:
        """Returns the samples at these indices."""

    @staticmethod
    def every(source: Source, start: int, step: int, len: int) -> Source:
        """Returns ``len`` samples: those at ``start``, ``start + step``, and so on, modulo the length
        of the source."""

    @staticmethod
    def mixed(source: Source, plan: Plan) -> Source:
        """Returns the samples of a mixture's first pass with seed 0, without shuffling."""

    @staticmethod
    def packed(
        source: Source,
        lengths: bytes,
        capacity: int,
        whole: bool,
        drop_last: bool,
        seed: int | None,
        padding: Sequence[bytes],
    ) -> Source:
        """Returns rows of ``capacity`` tokens, filled with documents. ``lengths`` are the lengths of
        the documents, as 64-bit integers. Each field is padded with one element, given as bytes.
        """

    def map(
        self,
        function: Callable[[Any], Any],
        names: Sequence[str] | None,
        new: Sequence[str] | None,
        fields: Sequence[tuple[Any, Sequence[int | None]]],
    ) -> Source:
        """Returns what a function makes of each sample. ``names`` are those of the samples' fields,
        and ``new`` those of the results'. ``fields`` are the results' types, ``None`` for a text,
        and shapes. The function must support weak references."""

    def filter(self, function: Callable[[Any], Any], names: Sequence[str] | None) -> Source | None:
        """Returns the samples of a stream that a function chooses; ``None`` for other datasets. The
        function must support weak references."""

    def shuffle(self, window: int) -> Source | None:
        """Returns a stream that shuffles ``window`` samples at a time; ``None`` for other
        datasets."""

    def select(self, fields: Sequence[int]) -> Source:
        """Returns the same samples with only the fields of these numbers."""

    @staticmethod
    def concat(sources: Sequence[Source]) -> Source:
        """Returns several datasets one after another."""

    @staticmethod
    def stack(sources: Sequence[Source]) -> Source:
        """Returns several datasets of equal length, combined sample by sample."""

    def __len__(self) -> int: ...
    @property
    def fields(self) -> list[tuple[str, tuple[int | None, ...]]]:
        """The element type's name and the shape of each field of a sample."""

    def outline(self) -> tuple[str, str, str]:
        """Returns the description of the dataset for a state: formats, lengths of the parts, and
        image pipeline."""

    @property
    def names(self) -> list[str] | None:
        """The names of the fields, for files that name them."""

    def paths(self, count: int) -> list[str] | None:
        """Returns the path or URL of the file that each of the first ``count`` samples is in, or
        ``None`` for a stream, and if one of them is not in a file."""

    @property
    def classes(self) -> list[str] | None:
        """The class names, for a folder of classes."""

@final
class Plan:
    """How a loader makes its passes: the native part of a mixture, of batches by length, and of a
    sampler."""

    @staticmethod
    def given(batches: bool) -> Plan:
        """Returns the plan for a sampler, or with ``batches`` for a batch sampler: ``Engine.begin``
        gets the indices of each pass."""

    @staticmethod
    def mixture(
        lens: Sequence[int],
        schedule: Sequence[Sequence[float]],
        stop: str,
        num_samples: int,
        even: bool,
    ) -> Plan:
        """Returns the plan of a mixture of datasets with the lengths ``lens``, with a list of weights
        for each epoch."""

    @staticmethod
    def token_budget(lengths: bytes, max_tokens: int, padded: bool, limit: int | None) -> Plan:
        """Returns the plan of batches that each have at most ``max_tokens`` tokens. ``lengths`` are
        64-bit integers."""

    @staticmethod
    def buckets(lengths: bytes, boundaries: Sequence[int], batch_sizes: Sequence[int]) -> Plan:
        """Returns the plan of batches from buckets of lengths."""

    def __len__(self) -> int:
        """The number of samples of a mixture, or the most samples of a batch."""

@final
class Engine:
    """The native part of ``slotline.Loader``, which documents the options."""

    def __new__(
        cls,
        source: Source,
        output: str,
        names: Sequence[str] | None,
        plan: Plan | None,
        *,
        packed: bool,
        include_index: bool,
        batch_size: int | None,
        shuffle: bool,
        seed: int,
        adopts_seed: bool,
        replacement: bool,
        num_samples: int | None,
        rank: int | None,
        world_size: int | None,
        drop_last: bool,
        num_workers: int,
        prefetch_factor: int | None,
        in_order: bool,
        hold: int,
        on_held: str,
        on_error: str,
        timeout: float,
        memory_limit: int | None,
        affinity: str | Sequence[int] | None,
        padding: Sequence[bytes | None] | None = None,
        multiple_of: int = 1,
    ) -> Engine:
        """Builds a loader. With ``adopts_seed``, the seed of a loaded state replaces this
        loader's. ``padding`` has the bytes of the element that pads each field, or ``None`` for
        fields that are not padded."""

    def begin(
        self,
        indices: bytes | int | tuple[int, int, int, bool] | None = None,
        ends: bytes | None = None,
        at: tuple[int, int, int, Sequence[int]] | None = None,
        seed: int | None = None,
        finish: Callable[[Any, int, int, int], Any] | None = None,
        warns: bool = True,
    ) -> Pass:
        """Begins the next pass. ``indices`` are the samples that a sampler chose: 64-bit integers, the
        number of samples in order, or what torch's ``RandomSampler`` draws, as the seed, the number of
        samples of the dataset and of the pass, and whether with replacement. ``ends`` are the ends of a
        batch sampler's batches among them, as 32-bit integers. ``at`` makes
        it the pass with a seed and a number, without the batches before another number except those in
        a list. ``seed`` is that of the pass, unless it continues another one. ``finish`` gets each
        batch, the seed and number of the pass and the number of the batch, and returns what the loop
        gets. ``warns`` is whether the pass warns of samples that it lacks.
        """

    def sample(self, index: int, seed: int | None) -> Any:
        """Loads one sample, as the first pass in order would, with the random numbers of ``seed``
        if it is given."""

    def __len__(self) -> int:
        """The number of batches of a pass; of batches by length, of the next one."""

    @property
    def seed(self) -> int:
        """The seed of the random order."""

    @property
    def next_epoch(self) -> int:
        """The number of the next pass."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next pass."""

    def state(self) -> str:
        """Returns the position, as JSON."""

    def load_state(self, state: str) -> None:
        """Makes the next pass resume from a position."""

    def stats(self) -> str:
        """Returns the statistics of the latest pass, as JSON."""

    def verdict(self) -> str:
        """Returns one sentence about what has limited the loader's speed."""

    def warnings(self) -> list[str]:
        """Returns the warnings since the engine was built."""

    @property
    def memory_ceiling(self) -> int:
        """The most bytes that batches and the order of a pass take."""

@final
class Pass:
    """An iterator over the batches of one pass. Several threads may share it; each batch goes to
    one of them."""

    @property
    def latest(self) -> int | None:
        """The number of the batch that came last, or in whose place an error was raised."""

    def __iter__(self) -> Pass: ...
    def __next__(self) -> Any: ...
    def __len__(self) -> int:
        """The number of batches that are left; see ``remaining``."""

    def remaining(self) -> int:
        """Returns the number of batches that the loop has not received yet; 0 once the pass has
        ended.

        It includes batches that ``on_error="skip"`` will leave out because none of their samples
        can be read.
        """

    def close(self) -> None:
        """Ends the pass: the threads stop, and no more batches come. Dropping the iterator does the
        same."""

@final
class Tensor:
    """One field of a batch, which any library with DLPack imports without a copy.

    The tensor, and everything imported from it, keeps the batch's memory alive.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""

    @property
    def dtype(self) -> str:
        """The NumPy name of the element type."""

    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...

@final
class Memory:
    """The bytes of one field of a batch. NumPy arrays over them keep this object alive."""

def ranks_from_env() -> tuple[int, int, int | None, int | None, str] | None:
    """Returns rank, world size, local rank, local world size, and the launcher whose variables were
    found."""

def merge_states(states: Sequence[str]) -> str:
    """Merges the states of all ranks into one, as JSON."""

def image_text(text: str) -> str:
    """Checks the text of transforms, and returns it in the form in which pipelines are written."""

def draw_mix(
    cut: bool, alpha: float, key: tuple[int, int, int], size: tuple[int, int]
) -> tuple[float, list[list[int]] | None]:
    """Draws how a batch of pictures of this height and width is mixed, with the generator of a
    seed, an epoch and the index of a batch.

    Returns the weight of a picture's own label, and for CutMix the rows and columns of the
    rectangle.
    """

def freeze(objects: Iterable[Any]) -> int:
    """Writes objects into a new file without a name, and returns its descriptor, for ``Columns``."""

def panic_on_purpose(message: str) -> int: ...
def before_fork() -> None:
    """Prepares the memory of existing batches for a fork, so that the child can read it. Call it
    before each fork."""

def after_fork_in_parent() -> None: ...
def after_fork_in_child() -> None: ...

def run_program(arguments: Sequence[str]) -> int:
    """Runs the ``slotline`` program, and returns its exit code. ``arguments`` begin with the
    program's name."""
