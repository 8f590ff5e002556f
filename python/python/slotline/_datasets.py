"""Datasets of arrays and their combinations, read by the threads of a :class:`slotline.Loader`."""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, SupportsIndex, overload

import numpy as np

from slotline import _slotline
from slotline._errors import DataError, Error, OptionError
from slotline._rng import sample_seed

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Field(NamedTuple):
    """The name, element type and shape of one field of a sample."""

    name: str | None
    """The field's name; ``None`` if samples are tuples."""
    dtype: str
    """The NumPy name of the element type; ``"str"`` for text."""
    shape: tuple[int | None, ...]
    """The shape of the field in one sample; ``(None,)`` if its number of elements varies, and
    ``(None, 4)`` for boxes."""


class Dataset:
    """A dataset that a :class:`slotline.Loader` can load.

    Its samples have one or more fields. If the fields have names, a batch is a dict; otherwise it
    is a tuple. Create a dataset with :class:`Arrays`, :func:`open`, :func:`folder`, :func:`tokens`,
    :func:`from_npy`, :func:`from_idx` or :func:`digits`. Combine datasets with :class:`Subset`,
    :class:`ConcatDataset` (or ``+``), :class:`StackDataset` and :func:`mix`, or with the methods of
    this class. Each method returns another dataset, and reads no samples unless it says so.

    ``dataset[i]`` is one sample, the same that a :class:`Loader` with ``batch_size=None`` and
    ``seed=0`` loads in its first pass, including random augmentations. In code that
    ``slotline.torch.DataLoader`` runs, as for :func:`rng`, and in workers of torch's own
    ``DataLoader``, augmentations are new in each pass instead. ``dataset[i:j]`` is a
    dataset of samples ``i`` to ``j - 1``, and a ``for`` loop yields the samples in order. A stream
    supports only the ``for`` loop. A :class:`Loader` is much faster than reading sample by sample.
    A dataset that has a length can also be passed to torch's ``DataLoader``, which reads it sample by
    sample, and to ``slotline.torch.DataLoader``, whose batches the same threads load.

    Datasets can be pickled: datasets of arrays with their contents, datasets of files with their
    paths only.
    """

    _source: _slotline.Source
    _names: tuple[str, ...] | None
    _make: Callable[[], Dataset]
    # How a loader makes its passes, for a mixture or batches by length; ``None``: the samples in
    # order or shuffled.
    _plan: _slotline.Plan | None = None
    # The samples that a loader's passes read for a mixture; ``None``: those of ``_source``.
    _whole: _slotline.Source | None = None
    # What ``repr`` adds after the number of samples.
    _words = ""

    def __init__(self) -> None:
        raise TypeError("Dataset is a base class; make a dataset with Arrays, open, tokens, from_npy, from_idx or digits")

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        length = len(self)
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(length)))
        try:
            place = operator.index(index)
        except TypeError:
            raise TypeError(f"index {index!r} is of type {type(index).__name__}; it must be an integer or a slice") from None
        if not -length <= place < length:
            raise IndexError(f"index {place} is out of range; the dataset has {length} samples")
        return self._loader._engine.sample(place % length, sample_seed())

    def __iter__(self) -> Iterator[Any]:
        # A new loader for each iteration, so that it is always the first pass.
        return iter(type(self._loader)(self, None, seed=0))

    @cached_property
    def _loader(self) -> Any:
        from slotline._loader import Loader

        # Without the plan of a mixture: another seed would choose other samples.
        return Loader(_Derived(self._source, self._names, self._make), None, seed=0)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a sample."""
        fields = self._source.fields
        names = [None] * len(fields) if self._names is None else self._names
        return tuple(Field(name, dtype, shape) for name, (dtype, shape) in zip(names, fields, strict=True))

    @property
    def classes(self) -> list[str] | None:
        """The class names that the field ``label`` indexes, for a folder of classes with all its
        fields, and for parts of it; otherwise ``None``."""
        return self._source.classes

    @property
    def paths(self) -> list[str] | None:
        """The path or URL of the file that each sample is in, such as a picture or a tar. ``None``
        if some samples are not in files, and for a stream. The list is made anew each time."""
        return self._source.paths(sys.maxsize)

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])

    def select(self, *fields: str | int) -> Dataset:
        """Returns the samples with only these fields, in this order. ``fields`` are names, or
        numbers if the fields have no names.

        The other fields are not written to batches, and their pictures are not decoded. A dataset
        in a :class:`StackDataset` is not read if none of its fields is selected. Records in files
        are still read as a whole; the option ``columns`` of :func:`open` avoids that.
        """
        known = range(len(self.fields)) if self._names is None else self._names
        for place, field in enumerate(fields):
            if field not in known or isinstance(field, bool):
                raise DataError(f"there is no field {field!r}; the dataset has {', '.join(map(repr, known))}")
            if field in fields[:place]:
                raise DataError(f"field {field!r} is selected twice")
        if not fields:
            raise DataError("no field is selected; pass at least one")
        source = _part(self)._source.select([known.index(field) for field in fields])  # type: ignore[arg-type]
        names = None if self._names is None else tuple(map(str, fields))
        return _Derived(source, names, partial(Dataset.select, self, *fields))

    def rename(self, *all: str, **names: str) -> Dataset:
        """Returns the samples with renamed fields: ``rename(image="x")`` renames field ``image``
        to ``x``.

        ``rename("x", "y")`` gives new names to all fields, even if they have no names yet.
        """
        old = self._names
        if all and (names or len(all) != len(self.fields)):
            raise DataError(f"{len(all)} names are given, but a sample has {len(self.fields)} fields; name each, or some by keyword")
        for name in names:
            if name not in (old or ()):
                known = ", ".join(map(repr, old)) if old else "none with a name; name all by position"
                raise DataError(f"there is no field {name!r}; the dataset has {known}")
        new = _names([*all] if all else [names.get(name, name) for name in old or ()])
        return _Derived(_part(self)._source, old if new is None else new, partial(Dataset.rename, self, *all, **names))

    def map(self, function: Callable[[Any], Any], fields: Iterable[Field | tuple[Any, ...]] | None = None) -> Dataset:
        """Returns the results of a function that is called with each sample.

        The function gets a sample as ``dataset[i]`` returns it, and returns another one: a dict or
        a tuple of arrays, numbers and strings. Its arrays are its own. It is called whenever a
        sample is loaded, by the loader's threads, also with ``num_workers=0``, so several calls may
        run at the same time; they share the interpreter's lock. The threads read the samples for it
        without the lock, and are the same from call to call, so that a ``threading.local`` can keep
        a connection or an open file. An exception becomes the cause of a
        :class:`slotline.SampleError`, which names the sample.

        For random numbers call :func:`slotline.rng` in the function. They are then a function of
        the loader's seed, the pass and the sample's position, and do not depend on ``num_workers``,
        the number of ranks or a resume.

        A state does not contain the function. The program waits for calls that have begun before it
        ends. A pickled dataset contains the function, so it cannot be a lambda then.

        Args:
            function: The function.
            fields: The fields of its results, as ``dataset.fields`` has them, such as
                ``[slotline.Field("x", "float32", (3,))]``, with the name ``None`` if the results
                are tuples. Values are converted if NumPy's rule ``same_kind`` allows it. ``None``:
                this call passes the first sample that can be read to the function. Fields then have
                the types and shapes of that result; only where a field replaces a text or a field
                of varying length, by its name or place and with as many dimensions (one for a
                text), its length varies, too.
        """
        names = _part(self)._names
        found = _found(self, function) if fields is None else [Field(*field) for field in fields]
        if not found:
            raise DataError("the function's results have no fields; return one at least")
        new = _names([field.name for field in found])
        kinds = [(None if dtype == "str" else _dtype(dtype), list(shape)) for _, dtype, shape in found]
        source = self._source.map(partial(function), names and list(names), new and list(new), kinds)
        mapped = _Derived(source, new, partial(Dataset.map, self, function, found))
        mapped._words = f" made by {_name_of(function)}"
        return mapped

    def filter(
        self, function: Callable[[Any], Any], fields: Iterable[str | int] | None = None, *, on_error: Literal["raise", "skip"] = "raise"
    ) -> Dataset:
        """Returns the samples for which a function returns a true value.

        The function is called as that of :meth:`map`. Of a dataset with a length, this call reads
        all samples, or only the chosen ``fields`` of them (see :meth:`select`), and calls the
        function for each. The result is a :class:`Subset`: it has a length, and pickles without the
        function. Of pictures with random augmentations, the function sees those of the first pass
        with seed 0. Of a stream, samples are left out while they are read, in each pass.

        Args:
            function: The function.
            fields: The fields that the function gets. ``None``: all.
            on_error: What happens if this call cannot read a sample, or the function raises an
                exception for it: ``"raise"`` a :class:`slotline.SampleError`, or ``"skip"`` the
                sample, which the result then lacks. As with the ``on_error`` of a :class:`Loader`, a
                warning says how many samples were skipped, and it is an error in any case if more
                than half of 1,000 samples in a row cannot be read. Of a stream, the loader decides.
        """
        some = _part(self) if fields is None else Dataset.select(self, *fields)
        names = some._names and list(some._names)
        stream = self._source.filter(partial(function), names)
        if stream is not None:
            if on_error != "raise":
                raise OptionError(f"on_error is {on_error!r}, but a stream is filtered while it is loaded; pass on_error to the loader")
            return _Derived(stream, self._names, partial(Dataset.filter, self, function))
        chosen = Dataset.map(some, partial(_chosen, function), [Field(None, "bool", ())])
        indices, found = _read_all(chosen, on_error, min(4, len(os.sched_getaffinity(0))), lambda flags: flags)
        return Subset(self, indices[found.astype(np.bool_)])

    def shuffle(self, window: int) -> Dataset:
        """Returns the samples of a stream in random order: its tars in random order, and in each
        worker ``window`` samples at a time.

        This is what a :class:`Loader` with ``shuffle=True`` does with the ``shuffle_buffer`` of
        :func:`open`, but also without ``shuffle=True``. The order depends on the loader's seed and
        the pass. Functions of :meth:`map` and :meth:`filter` are called after it. A dataset with a
        length is shuffled as a whole, by ``Loader(shuffle=True)``.
        """
        shuffled = self._source.shuffle(_count("window", window))
        if shuffled is None:
            raise DataError("only streams are shuffled by a window; pass shuffle=True to the loader, which shuffles all samples")
        return _Derived(shuffled, self._names, partial(Dataset.shuffle, self, window))

    def take(self, count: int) -> Dataset:
        """Returns the first ``count`` samples, or all if there are fewer."""
        return self[: _count("count", count)]

    def shard(self, rank: int, world_size: int) -> Dataset:
        """Returns the samples ``rank``, ``rank + world_size``, and so on. The shards of all ranks
        together have each sample once, so their lengths may differ by one.

        For ranks that train together, pass ``rank`` and ``world_size`` to :class:`Loader` instead.
        A loader shuffles before it divides the samples, and gives all ranks equally many batches.
        """
        if _count("rank", rank) >= _count("world_size", world_size):
            raise DataError(f"rank is {rank}, but world_size is {world_size}; ranks count from 0")
        return self[rank::world_size]

    def repeat(self, times: int) -> Dataset:
        """Returns all samples ``times`` times, one repetition after another. Random augmentations
        of pictures differ between repetitions."""
        length = len(_part(self))
        total = length * _count("times", times)
        if total >= 1 << 63:
            raise DataError(f"times is {times}, but {length} samples as many times can't be counted")
        return _Derived(_slotline.Source.every(self._source, 0, 1, total), self._names, partial(Dataset.repeat, self, times))

    def batch_by_tokens(
        self,
        budget: int,
        *,
        field: str | int | None = None,
        lengths: Iterable[int] | np.ndarray[Any, Any] | None = None,
        padded: bool = True,
        limit: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> Batches:
        """Groups the samples into batches of similar lengths, each with as many samples as fit into
        ``budget`` tokens.

        Pass the result to a loader without ``batch_size``:
        ``Loader(dataset.batch_by_tokens(8192), shuffle=True)``. Each sample comes once in a pass.
        With ``shuffle``, each pass has different batches, in random order. Without it, the batches
        are ordered from the longest samples to the shortest. All ranks get equally many batches. Of a
        mixture, all passes have the samples of its first pass.

        Args:
            budget: The most tokens in a batch.
            field: The field of varying length whose elements are counted as tokens; of a text, its
                bytes. ``None``: the only field of varying length.
            lengths: The number of tokens of each sample. ``None``: this call reads the field of all
                samples.
            padded: Whether each sample counts as many tokens as the longest sample of its batch,
                for batches that are padded to that length.
            limit: The most samples in a batch. Each batch has memory for the most samples that a
                batch can have, which short samples make large unless there is a limit.
            on_error: What happens if this call cannot read the length of a sample; see
                :meth:`filter`. With ``"skip"``, the result has the other samples.
        """
        dataset, found = _lengths(self, field, lengths, on_error)
        plan = _slotline.Plan.token_budget(found.tobytes(), _count("budget", budget), padded, limit)
        words = f" in batches of {budget} tokens"
        make = partial(Dataset.batch_by_tokens, dataset, budget, field=field, lengths=found, padded=padded, limit=limit)
        return Batches._of(dataset, plan, words, make)

    def bucket(
        self,
        boundaries: Iterable[int],
        batch_sizes: Iterable[int],
        *,
        field: str | int | None = None,
        lengths: Iterable[int] | np.ndarray[Any, Any] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> Batches:
        """Groups the samples into buckets by length, and makes each batch from one bucket, like
        TensorFlow's ``bucket_by_sequence_length``.

        Bucket ``i`` has the samples with lengths from ``boundaries[i - 1]`` to ``boundaries[i] - 1``,
        in batches of ``batch_sizes[i]`` samples. So there is one more batch size than boundaries. The
        last batch of a bucket may be smaller. Without ``shuffle``, the samples of a bucket are in
        the order of the dataset. ``field``, ``lengths``, ``on_error`` and the rest are as for
        :meth:`batch_by_tokens`.
        """
        edges, sizes = list(boundaries), list(batch_sizes)
        dataset, found = _lengths(self, field, lengths, on_error)
        plan = _slotline.Plan.buckets(found.tobytes(), edges, sizes)
        make = partial(Dataset.bucket, dataset, edges, sizes, field=field, lengths=found)
        return Batches._of(dataset, plan, f" in buckets of {sizes} samples by lengths {edges}", make)

    def pack(
        self,
        length: int,
        *,
        field: str | int | Sequence[str | int] | None = None,
        lengths: Iterable[int] | np.ndarray[Any, Any] | None = None,
        documents: bool = True,
        drop_last: bool = False,
        seed: int | None = None,
        padding: int | Sequence[int] = 0,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> Packed:
        """Packs samples of varying length, called documents here, into rows of equal length. Each
        row is one sample of the result.

        A row has these fields:

        - the packed field, with ``length`` elements
        - ``position_ids`` (int32), the position of each element in its document, from 0
        - ``document_ids`` (int32), which are 1 for the first document of the row, 2 for the second,
          and so on, and 0 for padding. Attention within documents compares them.
        - ``cu_seqlens``, of varying length, the offsets at which the row's documents begin, and the
          end of the last one

        Which documents are in which row depends only on the lengths and these arguments. So batch
        sizes, orders, ranks and states work as with any other dataset. The rows of a mixture are made
        once, of its first pass; for weights by epoch, pack each dataset and mix the rows.

        Args:
            length: The number of elements in a row.
            field: The field of varying length to pack, or several fields that have equal lengths in
                each sample, such as tokens and labels. All other fields are left out. ``None``: the
                only field of varying length.
            lengths: The length of each document. ``None``: this call reads the field of all
                samples.
            documents: Whether to keep documents whole. Each document then goes into the fullest row
                that has room for it, and only documents longer than a row are cut. With ``False``,
                all documents are concatenated and cut into rows, so only the last row is padded.
            drop_last: Whether to leave out the last row if it is not full. Only with
                ``documents=False``.
            seed: The seed for shuffling the documents before they are packed, and the rows
                afterwards. ``None``: no shuffling here. A loader shuffles only rows.
            padding: The number that fills the rest of a row, or one number for each field.
            on_error: What happens if this call cannot read the length of a document; see
                :meth:`filter`. With ``"skip"``, the rows have the other documents. If a document
                cannot be read later, that is an error of its row.
        """
        return Packed(self, length, field, lengths, documents, drop_last, seed, padding, on_error)

    def concat(self, *others: Dataset) -> ConcatDataset:
        """Returns the samples of this dataset and then those of the others, as ``+`` does."""
        return ConcatDataset([self, *others])

    def zip(self, *others: Dataset) -> StackDataset:
        """Returns a :class:`StackDataset`: its samples have the fields of this dataset and of the
        others. All datasets must have the same length."""
        return StackDataset(self, *others)

    def __repr__(self) -> str:
        fields = ", ".join(f"{'' if f.name is None else f.name + ': '}{f.dtype} {list(f.shape)}" for f in self.fields)
        kind = "Dataset" if isinstance(self, _Derived) else type(self).__name__
        try:
            count = f"{len(self)} samples{self._words}"
        except TypeError:
            count = "a stream of samples"
        return f"<slotline.{kind} of {count}: {fields}>"

    def _repr_html_(self) -> str:
        """Returns a table of the first samples, which notebooks show. It reads these samples."""
        from slotline._html import table

        return table(self)

    def __reduce__(self) -> tuple[Callable[[], Dataset], tuple[()]]:
        return self._make, ()


class Arrays(Dataset):
    """A dataset of arrays of equal length; sample ``i`` is row ``i`` of each array.

    ``Arrays(x=a, y=b)`` and ``Arrays({"x": a, "y": b})`` give batches that are dicts; ``Arrays(a,
    b)`` and ``Arrays((a, b))`` give tuples.

    Accepted are NumPy arrays with any strides, also memory maps; CPU tensors of torch or any other
    library with DLPack; and objects with the buffer protocol. The dataset reads them in place,
    without a copy, and keeps them alive. After that torch refuses to resize a tensor, as it does
    after ``numpy()``. A later write to an array appears in the batches that are loaded after it;
    loaders load batches ahead.
    """

    def __init__(self, *arrays: Any, **named: Any) -> None:
        only = arrays[0] if len(arrays) == 1 and not named else None
        if isinstance(only, Mapping):
            arrays, named = (), dict(only)
        elif isinstance(only, tuple):
            arrays = only
        self._names, values = _arguments("arrays", arrays, named)
        labels = self._names or range(len(values))
        self._source = _slotline.Source.arrays(values, [f"array {label!r}" for label in labels])
        self._make = partial(Arrays, *arrays, **named)


class _Derived(Dataset):
    """A dataset in files, or one that a method made from another dataset."""

    def __init__(self, source: _slotline.Source, names: tuple[str, ...] | None, make: Callable[[], Dataset]) -> None:
        self._source, self._names, self._make = source, names, make


def from_npy(*paths: Path, mmap: bool = False, **named: Path) -> Dataset:
    """Makes a dataset of ``.npy`` files, as ``numpy.save`` writes them; sample ``i`` is row ``i``
    of each file.

    Files are passed by position or by keyword, like the arrays of :class:`Arrays`. They are read
    into memory, or memory-mapped with ``mmap=True``, so that rows are read from the disk on first
    use. A mapped file must not be written to or truncated while the dataset exists: the system may
    end the process with SIGBUS. To replace it, rename another file over it.
    """
    names, files = _arguments("files", paths, named)
    source = _slotline.Source.npy([os.fsdecode(file) for file in files], mmap)
    return _Derived(source, names, partial(from_npy, *paths, mmap=mmap, **named))


def from_idx(*paths: Path, **named: Path) -> Dataset:
    """Makes a dataset of IDX files, the format of MNIST; sample ``i`` is row ``i`` of each file.

    The files are read into memory. They are passed by position or by keyword, like the arrays of
    :class:`Arrays`.
    """
    names, files = _arguments("files", paths, named)
    source = _slotline.Source.idx([os.fsdecode(file) for file in files])
    return _Derived(source, names, partial(from_idx, *paths, **named))


def digits() -> Dataset:
    """Makes a dataset of 1797 handwritten digits, which are part of the package.

    A sample has an ``image`` (uint8, 8 × 8, values 0 to 16) and a ``label`` (int64, 0 to 9). From "Optical Recognition of
    Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0.
    """
    return _Derived(_slotline.Source.digits(), ("image", "label"), digits)


class Subset(Dataset):
    """The samples of a dataset at the given indices, in the given order.

    ``indices`` are integers, where negative ones count from the end, or one bool for each sample.
    """

    def __init__(self, dataset: Dataset, indices: Iterable[int] | np.ndarray[Any, Any]) -> None:
        length = len(_part(dataset))
        self._names = dataset._names
        if isinstance(indices, range) and indices and -length <= min(indices[0], indices[-1]):
            # For a range, no list of its indices is stored.
            least, most = sorted((indices[0], indices[-1]))
            if most < (length if least >= 0 else 0):
                start = indices[0] if least >= 0 else indices[0] + length
                self._source = _slotline.Source.every(dataset._source, start, indices.step, len(indices))
                self._make = partial(Subset, dataset, indices)
                return
        chosen = np.asarray(indices if isinstance(indices, np.ndarray | Sequence) else list(indices))
        if chosen.ndim != 1 or (chosen.size > 0 and chosen.dtype.kind not in "iub"):
            raise DataError(f"indices have shape {chosen.shape} and type {chosen.dtype}; pass one integer for each sample")
        if chosen.dtype.kind == "b":
            if len(chosen) != length:
                raise DataError(f"indices are {len(chosen)} bools, but the dataset has {length} samples")
            chosen = np.flatnonzero(chosen)
        if chosen.dtype.kind == "i":
            chosen = np.where(chosen < 0, chosen + length, chosen)
            if len(chosen) > 0 and chosen.min() < 0:
                raise DataError(f"index {chosen.min() - length} is out of range; the dataset has {length} samples")
        self._source = _slotline.Source.subset(dataset._source, chosen.tolist())
        self._make = partial(Subset, dataset, chosen)


class ConcatDataset(Dataset):
    """Several datasets, one after another. Their fields must have the same names, types and
    shapes."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        parts = [_indexed(dataset) for dataset in datasets]
        if not parts:
            raise DataError("there are no datasets; pass at least one")
        self._names = parts[0]._names
        for place, part in enumerate(parts):
            if part._names != self._names:
                raise DataError(f"the fields of dataset {place} are {part._names}, but those of dataset 0 are {self._names}")
        self._source = _slotline.Source.concat([part._source for part in parts])
        self._make = partial(ConcatDataset, parts)


class StackDataset(Dataset):
    """Datasets of equal length combined sample by sample: a sample has the fields of all of them.

    ``StackDataset(a, b)`` keeps the names of the datasets' fields. With ``StackDataset(x=a, y=b)``
    each dataset must have exactly one field, which is renamed to the keyword.
    """

    def __init__(self, *datasets: Dataset, **named: Dataset) -> None:
        names, parts = _arguments("datasets", datasets, named)
        fields: list[str | None] = []
        for place, part in enumerate(_indexed(part) for part in parts):
            if names is not None and len(part.fields) != 1:
                raise DataError(f"dataset {names[place]!r} has {len(part.fields)} fields; pass it by position to keep them")
            fields.extend([names[place]] if names is not None else part._names or [None] * len(part.fields))
        self._names = _names(fields)
        self._source = _slotline.Source.stack([part._source for part in parts])
        self._make = partial(StackDataset, *datasets, **named)


class Mixture(Dataset):
    """Several datasets, mixed by weight: see :func:`mix`."""

    def __init__(
        self,
        datasets: Iterable[Dataset],
        weights: Iterable[float] | None = None,
        *,
        stop: Literal["first_exhausted", "all_exhausted", "all_exhausted_without_replacement"] | int | None = None,
        even: bool = False,
        schedule: Iterable[Iterable[float]] | None = None,
    ) -> None:
        self.datasets: tuple[Dataset, ...] = tuple(datasets)
        both = ConcatDataset(self.datasets)
        lens = [len(part) for part in self.datasets]
        if schedule is None:
            self.schedule: tuple[tuple[float, ...], ...] = (_weights("weights", lens if weights is None else weights),)
        else:
            self.schedule = tuple(_weights("schedule", each) for each in schedule)
            if weights is not None:
                raise DataError("weights and schedule exclude each other; a schedule has the weights of each epoch")
            if not isinstance(stop, int) or not self.schedule:
                raise DataError("a schedule needs weights for one epoch at least, and stop as the number of samples of each epoch")
        if stop is None:
            stop = "all_exhausted_without_replacement" if weights is None else "first_exhausted"
        if isinstance(stop, str):
            if stop not in _STOPS:
                raise DataError(f"stop is {stop!r}; it must be {', '.join(map(repr, _STOPS))}, or a number of samples")
            self._plan = _slotline.Plan.mixture(lens, self.schedule, stop, 0, even)
        else:
            self._plan = _slotline.Plan.mixture(lens, self.schedule, "", _count("stop", stop), even)
        self._whole = both._source
        self._source = _slotline.Source.mixed(both._source, self._plan)
        self._names = both._names
        self._words = f" by weights {list(self.schedule[0])}" + (f" and {len(self.schedule) - 1} more" if self.schedule[1:] else "")
        weights = None if weights is None else self.schedule[0]
        self._mix = partial(Mixture, weights=weights, stop=stop, even=even, schedule=None if schedule is None else self.schedule)
        self._make = partial(self._mix, self.datasets)

    def select(self, *fields: str | int) -> Dataset:
        return self._mix([part.select(*fields) for part in self.datasets])

    def rename(self, *all: str, **names: str) -> Dataset:
        return self._mix([part.rename(*all, **names) for part in self.datasets])

    def map(self, function: Callable[[Any], Any], fields: Iterable[Field | tuple[Any, ...]] | None = None) -> Dataset:
        first = self.datasets[0].map(function, fields)
        return self._mix([first, *(part.map(function, first.fields) for part in self.datasets[1:])])


_STOPS = ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement")


def mix(
    datasets: Iterable[Dataset],
    weights: Iterable[float] | None = None,
    *,
    stop: Literal["first_exhausted", "all_exhausted", "all_exhausted_without_replacement"] | int | None = None,
    even: bool = False,
    schedule: Iterable[Iterable[float]] | None = None,
) -> Mixture:
    """Mixes several datasets by weight. Their fields must have the same names, types and shapes.

    The numbers of samples that a pass has from each dataset are proportional to the weights. So are
    those of each block of 256 samples; within a block, the datasets alternate in random order. A
    sample is repeated only after all samples of its dataset have come once; a dataset that is
    exhausted within a pass starts again.

    A :class:`Loader` makes a new mixture for each pass, which depends on its seed. With
    ``shuffle=True`` each dataset is shuffled; otherwise each pass reads each dataset from its first
    sample on. With several ranks, each loads its share of one mixture, and a state can be loaded by
    any number of ranks. With ``include_index``, a sample's index is its position in the
    concatenation of the datasets.

    ``select``, ``rename`` and ``map`` of a mixture return a mixture. ``mixture[i]``, a ``for`` loop
    over the mixture, and every other dataset that is made from it have the same samples in each
    pass: those of the first pass with seed 0, without shuffling.

    Args:
        datasets: The datasets, which have a length. They may be packed or composed.
        weights: A number for each dataset; 0 leaves the dataset out. ``None``: the lengths of the
            datasets, so that each sample comes once.
        stop: When a pass ends. ``"first_exhausted"``: when one dataset has been read to its end, so
            that no sample comes twice. ``"all_exhausted"``: when each dataset has been read to its
            end. ``"all_exhausted_without_replacement"``: when each sample of every dataset has come
            once; an exhausted dataset gives its turns to the others. A number: after this many
            samples. ``None``: ``"first_exhausted"``, or without ``weights``
            ``"all_exhausted_without_replacement"``.
        even: Whether the datasets alternate as evenly as possible, instead of in random order
            within blocks.
        schedule: A list of weights for each epoch, in place of ``weights``, such as
            ``[[9, 1], [7, 3], [5, 5]]``. The last weights also apply to all later epochs. ``stop``
            must then be a number, so that all passes are equally long.
    """
    return Mixture(datasets, weights, stop=stop, even=even, schedule=schedule)


class Batches(Dataset):
    """Samples that a :class:`Loader` groups into batches of similar lengths, made by
    :meth:`Dataset.batch_by_tokens` or :meth:`Dataset.bucket`.

    Indexing this object, and a ``for`` loop over it, give single samples, not batches.
    """

    dataset: Dataset

    @staticmethod
    def _of(dataset: Dataset, plan: _slotline.Plan, words: str, make: Callable[[], Dataset]) -> Batches:
        batches = Batches.__new__(Batches)
        batches.dataset, batches._plan, batches._words, batches._make = _planned_once(_part(dataset)), plan, words, make
        batches._source, batches._names = dataset._source, dataset._names
        return batches

    @property
    def max_batch_size(self) -> int:
        """The most samples that a batch can have."""
        assert self._plan is not None
        return len(self._plan)

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) if isinstance(index, slice) else self.dataset[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


class Packed(Dataset):
    """Samples of varying length, packed into rows of equal length: see :meth:`Dataset.pack`."""

    def __init__(
        self,
        dataset: Dataset,
        length: int,
        field: str | int | Sequence[str | int] | None = None,
        lengths: Iterable[int] | np.ndarray[Any, Any] | None = None,
        documents: bool = True,
        drop_last: bool = False,
        seed: int | None = None,
        padding: int | Sequence[int] = 0,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        fields = [_ragged(dataset, None)] if field is None else [field] if isinstance(field, str | int) else list(field)
        chosen = Dataset.select(_planned_once(dataset), *(_ragged(dataset, each) for each in fields))
        numbers = [padding] * len(fields) if isinstance(padding, int) else list(padding)
        if len(numbers) != len(fields):
            raise DataError(f"padding has {len(numbers)} numbers for {len(fields)} fields; give one for each")
        if chosen._names is None and len(fields) > 1:
            raise DataError("several fields without names are packed; name them with rename")
        elements = []
        for number, about in zip(numbers, chosen.fields, strict=True):
            if about.dtype == "str":
                raise DataError(f"field {about.name!r} is a text; pack numbers, such as its tokens")
            element = _element_of(about.dtype, number)
            if element is None:
                raise DataError(f"padding is {number!r}, which is no {about.dtype}; pass a number that is")
            elements.append(element)
        chosen, found = _lengths(chosen, 0 if chosen._names is None else chosen._names[0], lengths, on_error)
        count = _count("length", length)
        self._source = _slotline.Source.packed(
            chosen._source, found.tobytes(), count, documents, drop_last, None if seed is None else _count("seed", seed), elements
        )
        self._names = _names([*(chosen._names or ("tokens",)), "position_ids", "document_ids", "cu_seqlens"])
        tokens = min(int(found.sum()), count * len(self))
        self._words = f" of {count} elements" + (f", {tokens / (count * len(self)):.1%} full" if len(self) else "")
        self._make = partial(Packed, chosen, count, chosen._names or 0, found, documents, drop_last, seed, padding)


def _found(dataset: Dataset, function: Callable[[Any], Any]) -> list[Field]:
    """Returns the fields of the result that a function has for the first sample that can be read."""
    from slotline._loader import Loader

    for sample in Loader(dataset, None, seed=0, on_error="skip"):
        made = function(sample)
        if not isinstance(made, (dict, tuple)):
            raise TypeError(f"the function returned an object of type {type(made).__name__}; it must return a dict or a tuple")
        varying = {f.name or i: len(f.shape) or 1 for i, f in enumerate(dataset.fields) if f.dtype == "str" or None in f.shape}
        fields = []
        for place, (name, value) in enumerate(made.items() if isinstance(made, dict) else ((None, value) for value in made)):
            # NumPy has no tensors of bfloat16.
            array = value if str(getattr(value, "dtype", None)) == "torch.bfloat16" else np.asarray(value)
            dtype, shape = str(array.dtype).removeprefix("torch."), tuple(array.shape)
            if dtype.startswith("<U") and not shape:
                fields.append(Field(name, "str", ()))
            else:
                varies = varying.get(name or place) == len(shape)
                fields.append(Field(name, dtype, (None, *shape[1:]) if varies else shape))
        return fields
    raise DataError("no sample can be read to find the function's fields with; pass fields")


def _dtype(dtype: Any) -> Any:
    """Returns NumPy's type, or the name of bfloat16, which NumPy has only with ml_dtypes."""
    try:
        return np.dtype(dtype)
    except TypeError:
        if str(dtype) in ("bfloat16", "torch.bfloat16"):
            return "bfloat16"
        raise


def _element_of(dtype: str, number: Any) -> bytes | None:
    """Returns the bytes of a number as an element of this type, or of a byte for a text. Returns
    ``None`` for a number that is too large, or that an integer cannot be."""
    is_finite = number == number and abs(number) != np.inf
    if dtype == "bfloat16":
        single = _element_of("float32", number)
        bits = 0 if single is None else int.from_bytes(single, sys.byteorder)
        # The upper half, rounded to even numbers.
        half = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        is_too_large = single is None or (half & 0x7FFF == 0x7F80 and is_finite)
        return None if is_too_large else half.to_bytes(2, sys.byteorder)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            element = np.array(number).astype("uint8" if dtype == "str" else dtype)
    except OverflowError:
        return None
    if element.dtype.kind in "fc":
        fits = bool(np.isfinite(element)) or not is_finite
    else:
        fits = element.item() == number
    return element.tobytes() if fits else None


def _chosen(function: Callable[[Any], Any], sample: Any) -> tuple[bool]:
    return (bool(function(sample)),)


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _ragged(dataset: Dataset, field: str | int | None) -> str | int:
    """Returns ``field`` if it has varying length; for ``None``, the only field that has."""
    about = _part(dataset).fields
    found = [place if f.name is None else f.name for place, f in enumerate(about) if f.shape == (None,)]
    if field is None:
        if len(found) != 1:
            if found:
                raise DataError(f"{len(found)} fields have varying length: {', '.join(map(repr, found))}; name one with field")
            raise DataError(
                "no field has varying length; if a function of map makes one, pass its fields, such as "
                'fields=[slotline.Field("tokens", "int64", (None,))], and for the bytes of a text, name it with field'
            )
        return found[0]
    texts = [place if f.name is None else f.name for place, f in enumerate(about) if f.dtype == "str"]
    if field not in [*found, *texts]:
        raise DataError(f"field {field!r} has no length of its own; those that have are {', '.join(map(repr, [*found, *texts])) or 'none'}")
    return field


def _read_all(
    dataset: Dataset, on_error: str, workers: int, value: Callable[[Any], np.ndarray[Any, Any]]
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any]]:
    """Reads all samples of a dataset with one field, in order. Returns the indices of those that were not skipped, and
    what ``value`` makes of the fields of a batch with ``packed=True``."""
    from slotline._loader import Loader

    _check_on_error(on_error)
    # Without names, none can be that of the index.
    unnamed = _Derived(dataset._source, None, dataset._make)
    loader = Loader(unnamed, 64, packed=True, include_index=True, num_workers=workers, on_error=on_error)  # type: ignore[arg-type]
    indices, values = [np.zeros(0, np.int64)], []
    for field, index in loader._engine.begin(warns=False):
        indices.append(index)
        values.append(value(field))
    stats = loader.stats()
    if stats["bad_samples"] > 0:
        last, level = stats["bad_causes"][-1], 2
        while sys._getframe(level - 1).f_globals is globals():
            level += 1
        message = f"{stats['bad_samples']} samples were left out, since they could not be read; the last one was sample"
        warnings.warn(f"{message} {last['index']}: {last['message']}", RuntimeWarning, stacklevel=level)
    return np.concatenate(indices), np.concatenate(values) if values else np.zeros(0, np.int64)


def _check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "skip"):
        raise OptionError(f'on_error is {on_error!r}; it must be "raise" or "skip"')


def _lengths(
    dataset: Dataset, field: str | int | None, lengths: Iterable[int] | np.ndarray[Any, Any] | None, on_error: str
) -> tuple[Dataset, np.ndarray[Any, np.dtype[np.uint64]]]:
    """Checks the given lengths of all samples, or reads them from a field of varying length. Returns them, and the dataset
    without the samples that were skipped."""
    count = len(_planned_once(_part(dataset)))
    if lengths is None:
        some = Dataset.select(dataset, _ragged(dataset, field))
        workers = min(4, len(os.sched_getaffinity(0))) if count > 64 else 0
        indices, read = _read_all(some, on_error, workers, lambda field: np.diff(field[1]))
        return dataset if len(indices) == count else Subset(dataset, indices), read.astype(np.uint64)
    _check_on_error(on_error)
    found = np.asarray(lengths if isinstance(lengths, np.ndarray | Sequence) else list(lengths))
    if found.shape != (count,) or (count > 0 and (found.dtype.kind not in "iu" or found.min() < 0)):
        raise DataError(
            f"lengths have shape {found.shape} and type {found.dtype}; pass an integer from 0 on for each of {count} samples"
        )
    return dataset, found.astype(np.uint64)


def _names(fields: list[str | None]) -> tuple[str, ...] | None:
    """Returns the names of all fields, or ``None`` if no field has one."""
    names = tuple(name for name in fields if name is not None)
    if names and len(names) != len(fields):
        raise DataError("only some of the datasets have names for their fields; pass the datasets by keyword")
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"two fields have the name {name!r}; give one another name in slotline.Arrays, or leave it out with columns in "
                "slotline.open"
            )
    return names or None


def _arguments(what: str, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[str, ...] | None, tuple[Any, ...]]:
    """Returns the names (``None`` for positional arguments) and the values of a function's
    arguments."""
    if values and named:
        raise TypeError(f"pass all {what} by position, for batches that are tuples, or all by keyword, for dicts")
    if named:
        for name in named:
            if not isinstance(name, str):
                raise TypeError(f"the names of {what} must be strings, but one is {name!r}")
        return tuple(named), tuple(named.values())
    return None, values


def _weights(name: str, weights: Any) -> tuple[float, ...]:
    try:
        return tuple(map(float, weights))
    except (TypeError, ValueError):
        wanted = "a number for each dataset" if name == "weights" else "weights for each epoch, such as [[9, 1], [5, 5]]"
        raise DataError(f"{name} has {weights!r}; pass {wanted}") from None


def changes_by_epoch(dataset: object) -> bool:
    """Returns whether a dataset is a mixture whose weights are not the same in each epoch."""
    return isinstance(dataset, Mixture) and len(set(dataset.schedule)) > 1


def _planned_once(dataset: Dataset) -> Dataset:
    """Checks a dataset whose samples are planned once, for all passes."""
    if changes_by_epoch(dataset):
        raise DataError(
            "a mixture with a schedule has other samples in each pass, but packed rows and batches by length are made of the same "
            "ones; pack each dataset and mix the results, or mix without a schedule"
        )
    return dataset


def _part(dataset: Any) -> Dataset:
    """Checks a dataset from which another dataset is made."""
    if isinstance(dataset, Batches):
        raise DataError("a dataset is in batches already; batch it last, after all else that is done with its samples")
    return _checked(dataset)


def _indexed(dataset: Any) -> Dataset:
    checked = _part(dataset)
    len(checked)  # A stream has no length: this raises an error.
    return checked


def _count(name: str, number: Any, error: type[Error] = DataError) -> int:
    """Checks an argument that must be a number of something: a non-negative integer."""
    try:
        # A bool in place of a number is a mistake. (``operator.index`` of NumPy before 2 accepts
        # NumPy's bool.)
        if isinstance(number, (bool, np.bool_)):
            raise TypeError
        count = operator.index(number)
    except TypeError:
        raise TypeError(f"{name} is {number!r}; it must be an integer") from None
    if count < 0:
        raise error(f"{name} is {count}; it must not be negative")
    return count


def _checked(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        if isinstance(getattr(dataset, "dataset", None), Dataset) and hasattr(dataset, "indices"):
            raise TypeError("a dataset is torch's Subset of one of slotline; pass slotline.Subset(subset.dataset, subset.indices)")
        raise TypeError(
            f"a dataset is of type {type(dataset).__name__}; make one with slotline.Arrays, such as "
            "slotline.Arrays(x=array), or with slotline.open, or use slotline.torch.DataLoader for datasets of PyTorch"
        )
    return dataset
