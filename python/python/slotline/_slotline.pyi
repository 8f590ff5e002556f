"""The native part of slotline. Only ``Pass`` and ``Tensor`` are public, as ``slotline.Pass`` and ``slotline.Tensor``."""

from collections.abc import Iterable, Sequence
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
    "Pool",
    "Port",
    "Source",
    "Steps",
    "Tensor",
    "__version__",
    "after_fork_in_child",
    "after_fork_in_parent",
    "before_fork",
    "freeze",
    "merge_states",
    "panic_on_purpose",
    "ranks_from_env",
    "run_program",
]

__version__: str

@final
class Pool:
    """Memory of this process for batches, which is used again: that of a loader, for all of its passes."""

    def __new__(cls) -> Pool: ...


@final
class Collator:
    """Makes batches of lists of samples as torch's ``default_collate`` does, in memory of this process."""

    def __new__(cls, pool: Pool | None = None) -> Collator: ...

    def __call__(self, samples: list[Any]) -> Any:
        """Makes a batch."""

class NotLifted(RuntimeError):
    """A picture that torchvision has to make, or that is an error."""

@final
class ByteTable:
    """The number for each byte of each channel."""

    def __new__(cls, code: int, bits: int, channels: int, numbers: bytes) -> ByteTable:
        """Takes the type of the numbers, as DLPack has it, and 256 numbers for each channel: three, or one for grey pictures."""

@final
class Picture:
    """Stands for a tensor of a picture, in a list of samples that is collated."""

@final
class Steps:
    """A picture, and what is done with it."""

    @staticmethod
    def open(path: str | PathLike[str]) -> Steps | None:
        """Reads a file. Returns ``None`` if it cannot be read, or PIL may make another picture of it."""

    @staticmethod
    def of_pixels(bytes: bytes, height: int, width: int, channels: int) -> Steps:
        """Takes rows of pixels, of three channels or one."""

    def copy(self) -> Steps: ...
    @property
    def size(self) -> tuple[int, int]:
        """The height and width after the steps so far."""

    def crop(self, top: int, left: int, height: int, width: int) -> None: ...
    def resize(self, height: int, width: int, filter: str) -> None: ...
    def flip_horizontally(self) -> None: ...
    def flip_vertically(self) -> None: ...
    def pad(self, sides: Sequence[int], mode: str, fill: Sequence[int]) -> None:
        """Adds pixels at the left, top, right and bottom."""

    def change(self, function: str, value: float = 0.0) -> None:
        """Changes colours by a function of torchvision, and its parameter, if it has one."""

    def shift(self, operation: str, magnitude: float, interpolation: str, fill: Sequence[int]) -> None:
        """Moves pixels, as transforms that draw one of many operations do, by a magnitude."""

    def pixels(self, channels: int) -> bytes:
        """The pixels, row by row, of one byte for each channel."""

    def picture(self, table: ByteTable) -> Picture:
        """The tensor that the steps make, with the numbers of a table."""

@final
class Gatherer:
    """Makes batches of tensors and arrays that a dataset holds, without calling the dataset."""

    def __new__(cls, kinds: Sequence[type], pool: Pool) -> Gatherer:
        """``kinds`` are torch's ``TensorDataset``, ``StackDataset``, ``ConcatDataset`` and ``Subset``."""

    def __call__(self, dataset: Any, index: Any) -> Any | None:
        """Returns the batch of the samples with these indices, or ``None`` if only the dataset itself can make it."""

class Closed(EOFError):
    """Nothing more comes from the other end of a channel."""

@disjoint_base
class Channel:
    """The memory of messages in one direction."""

    def __new__(cls, fd: int | None = None, limit: int | None = None) -> Channel:
        """Creates a channel, or maps one that another process has created, whose descriptor it then owns.

        The batches in a new one may have ``limit`` bytes together.
        """

    def fileno(self) -> int:
        """Returns the descriptor of the memory."""

    def regions(self) -> list[tuple[int, int]]:
        """Returns the parts of the memory that were mapped here for tensors, each with its address and its length.

        Others are added as it grows. Each tensor is in one of them.
        """

    def hold_back(self) -> None:
        """Holds the memory of tensors back: after they are dropped it is used again only after ``give_back``.

        To be called before the other process has its end.
        """

    def dropped(self) -> int:
        """Returns how many blocks that were held back have been dropped so far."""

    def give_back(self, count: int) -> None:
        """Gives back the first ``count`` of them, except for those that were given back before."""

    @property
    def figures(self) -> tuple[float, float, int, float, int, float]:
        """What the sender has done: for how many seconds it was busy, and collated and copied.

        Then the task that it is at (or 0), and when that began; and the task that took longest, and how long.
        """

    def want(self, first: int) -> None:
        """Tells the sender that nobody wants the answers of tasks before this one."""

    def close(self) -> None:
        """Ends the channel for both sides."""

@disjoint_base
class Columns:
    """Objects that were frozen, in a file without a name."""

    def __new__(cls, fd: int) -> Self:
        """Takes the descriptor of a file that ``freeze`` has made, and owns it from then on."""

    def __len__(self) -> int: ...
    def get(self, index: int) -> Any:
        """Makes one of the objects."""

    def fileno(self) -> int:
        """Returns the descriptor of the file."""

    def contents(self) -> bytes:
        """Returns the file."""

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""

@final
class Port:
    """One end of two channels."""

    def __new__(cls, to: Channel, from_: Channel, pool: Pool | None = None) -> Port:
        """Takes the sending end of one channel and the receiving end of another one."""

    def send(self, kind: int, task: int = 0, value: Any = None) -> bool:
        """Sends a value. Returns ``False`` if nobody will receive it."""

    def collate(self, kind: int, task: int, samples: list[Any]) -> bool:
        """Makes a batch of samples, and sends it."""

    def ask(self, kind: int, task: int, value: Any = None) -> bool:
        """Sends a value that will be answered by a message with the same task. Tasks must ascend."""

    @property
    def due(self) -> list[int]:
        """The tasks whose answers have not been received."""

    def send_bytes(self, kind: int, value: bytes) -> bool:
        """Sends bytes as they are. For the states of generators, which the other end's port keeps."""

    @property
    def generators(self) -> bytes | None:
        """The states of the worker's generators after the message that was received last, if they have come."""

    @property
    def closed(self) -> bool:
        """Whether nobody will receive what is sent."""

    @property
    def wanted(self) -> int:
        """The first task whose answer is wanted."""

    @property
    def ready(self) -> int:
        """How many messages can be received without waiting."""

    def trim(self) -> None:
        """Gives memory that is not in use to the system, until it is used again."""

    def begin(self, task: int, begun: float) -> None:
        """Records that this end begins a task, at this value of ``time.perf_counter``."""

    def end(self, took: float, writing: float) -> None:
        """Records that this end has ended its task, how long that took, and how long of it it collated and copied."""

    def receive(self, timeout: float = 0.0) -> tuple[int, int, Any] | None:
        """Returns the next message as its kind, its task and its value.

        Returns ``None`` if there is none within so many seconds, and raises ``Closed`` if there will not be one.
        """

@final
class Generators:
    """Tells whether the default generators of this process were used."""

    def __new__(cls, torch: Any, random: Any, words: bytes, numpy: tuple[Any, int] | None) -> Generators:
        """Takes torch's generator, Python's with the words and the position in its state, and NumPy's if it is a Mersenne Twister,
        with the address of its state.
        """

    @property
    def random(self) -> bytes:
        """The words of Python's generator, and the position in them."""

    @property
    def numpy(self) -> bytes | None:
        """The same of NumPy's generator. ``None`` also while another thread draws from it."""

    waiting: bool
    """Whether a normally distributed number is waiting in NumPy's, which its words do not tell. Can only be set."""

    def changed(self) -> bool:
        """Whether any of them may not be as it was when this was last called."""

@final
class Source:
    """A dataset that the engine reads: the native part of ``slotline.Dataset``."""

    @staticmethod
    def arrays(arrays: tuple[Any, ...], names: Sequence[str]) -> Source:
        """Reads arrays in place. ``names`` are for errors."""

    @staticmethod
    def idx(paths: Sequence[str | PathLike[str]]) -> Source:
        """Reads IDX files into memory."""

    @staticmethod
    def npy(paths: Sequence[str | PathLike[str]], mapped: bool) -> Source:
        """Reads NumPy's files into memory, or maps them, if they do not change."""

    @staticmethod
    def digits() -> Source:
        """Returns the digits that come with slotline."""

    @staticmethod
    def open(
        path: str | PathLike[str],
        opening: dict[str, Any],
        reading: dict[str, Any],
        shuffle_buffer: int,
    ) -> Source:
        """Opens files, whose format is found out, with the options of ``slotline.open``.

        ``reading`` says how files of any format are read: ``read_ahead``, ``cache``, ``requests`` and ``image``.
        """

    @staticmethod
    def folder(
        path: str | PathLike[str],
        extensions: Sequence[str] | None,
        allow_empty: bool,
        reading: dict[str, Any],
    ) -> Source:
        """Opens a folder with a folder of files for each class."""

    @staticmethod
    def tokens(paths: Sequence[str | PathLike[str]], blocks: dict[str, Any], reading: dict[str, Any]) -> Source:
        """Opens files of tokens. ``blocks`` says how they are divided: ``size``, ``stride``, ``dtype``, ``labels`` and ``widen``."""

    @staticmethod
    def subset(source: Source, indices: Sequence[int]) -> Source:
        """Returns the samples with these indices."""

    @staticmethod
    def concat(sources: Sequence[Source]) -> Source:
        """Returns the samples of several datasets, in sequence."""

    @staticmethod
    def stack(sources: Sequence[Source]) -> Source:
        """Returns several datasets of equal length, combined sample by sample."""

    def __len__(self) -> int: ...
    @property
    def fields(self) -> list[tuple[str, tuple[int | None, ...]]]:
        """The name of the type and the shape of each field of a sample."""

    def outline(self) -> tuple[str, str, str]:
        """Returns what a state records: the formats, the lengths of the parts, and how pictures are decoded."""

    @property
    def names(self) -> list[str] | None:
        """The names of the fields of files."""

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes of a folder."""

@final
class Engine:
    """The native part of ``slotline.Loader``, which describes the options."""

    def __new__(
        cls,
        source: Source,
        output: str,
        names: Sequence[str] | None,
        *,
        packed: bool,
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
    ) -> Engine:
        """Builds a loader. ``adopts_seed``: the seed of a state replaces this one."""

    def begin(self) -> Pass:
        """Begins the next pass."""

    def sample(self, index: int) -> Any:
        """Loads one sample, as the first pass in order does."""

    def __len__(self) -> int:
        """The number of batches of a pass."""

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
        """Returns what the engine of the latest pass has done, as JSON."""

    def verdict(self) -> str:
        """Returns what held the loop back."""

    def warnings(self) -> list[str]:
        """Returns the warnings since the engine was built."""

    @property
    def memory_ceiling(self) -> int:
        """The most bytes that batches and the order of a pass take."""

@final
class Pass:
    """The batches of one pass. Several threads may take batches from it; each batch goes to one of them."""

    def __iter__(self) -> Pass: ...
    def __next__(self) -> Any: ...
    def __len__(self) -> int:
        """The number of batches that are left: see ``remaining``."""

    def remaining(self) -> int:
        """Returns the number of batches of this pass that the loop has not got yet; 0 once the pass has ended.

        Batches of which no sample can be read, and which ``on_error="skip"`` leaves out, are among them.
        """

    def close(self) -> None:
        """Ends the pass: the threads stop, and no more batches come. An iterator that is dropped does the same."""

@final
class Tensor:
    """One field of a batch, for any library that imports tensors by DLPack, without a copy.

    It keeps the batch's memory, and so does what is made of it.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""

    @property
    def dtype(self) -> str:
        """The name of the elements' type, as NumPy has it."""

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
    """The memory of one field of a batch, as bytes. NumPy's arrays keep it."""

def ranks_from_env() -> tuple[int, int, int | None, int | None, str] | None:
    """Returns rank, world size, the same two on this machine, and the launcher whose variables said so."""

def merge_states(states: Sequence[str]) -> str:
    """Makes one state, as JSON, of those of all ranks."""

def freeze(objects: Iterable[Any]) -> int:
    """Writes objects into a new file without a name, and returns its descriptor, for ``Columns``."""

def panic_on_purpose(message: str) -> int: ...
def before_fork() -> None:
    """To be called before each fork: the child sees the memory of the batches that there are."""

def after_fork_in_parent() -> None: ...
def after_fork_in_child() -> None: ...

def run_program(arguments: Sequence[str]) -> int:
    """Runs the ``slotline`` program with these arguments, of which the first is its name, and returns its exit code."""
