"""The loader of datasets that the native engine reads."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import itertools
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from slotline import _slotline
from slotline._checks import ANYTHING, COUNT, COUNTS, DICT, FLAG, TEXT, Kind, check_fields, integer, nullable, wrong
from slotline._datasets import Batches, Dataset, _checked, _count, _element_of
from slotline._errors import DataError, OptionError, StateError
from slotline._rng import current

if TYPE_CHECKING:
    import torch

_U32, _U64 = integer(0, (1 << 32) - 1), integer(0, (1 << 64) - 1)
# The entries of a state and their types. The engine compares their values with the loader's.
_STATE = {
    "version": _U32,
    "kind": TEXT,
    "dataset_len": nullable(COUNT),
    "batch_size": nullable(COUNT),
    "drop_last": FLAG,
    "epoch": _U32,
    "batches": COUNT,
    "start": DICT,
}
# "fields" is the digest of the fields in older states, which have no "dataset".
_OPTIONAL = {"missing": COUNTS, "bad_samples": COUNT, "streams": DICT, "fields": TEXT, "dataset": DICT, "sampler": ANYTHING, "generator": ANYTHING}
# The entries of a state's description of the dataset, and the words for a difference in errors.
_DATASET = {"format": "another format", "fields": "other fields", "lengths": "other lengths", "image": "another image pipeline"}
# A Loader in Python seeds its own generators, which stay at position 0. To advance another
# generator to a later position could take minutes.
_UNUSED = Kind(lambda value: isinstance(value, str) and value.endswith(":0"), "the start of a generator")
_START = {
    "generator": TEXT,
    "default_generator": nullable(_UNUSED),
    "persistent": FLAG,
    "base_seed": nullable(_U64),
    "sampler": nullable(DICT),
}
_SAMPLER = {"name": TEXT, "saved": nullable(TEXT)}


class Loader:
    """Loads a dataset in batches, with threads that run without the interpreter.

    Each ``for`` loop over the loader is one pass. A batch is a dict of arrays if the dataset's
    fields have names, and a tuple of arrays otherwise; the first dimension of each array is the
    sample. The arrays refer to the memory that the threads wrote them into. They belong to the
    caller, may be written to, and are never overwritten by the loader. An array keeps the memory of
    its whole batch alive, except that fields with less than a 32nd of the batch's bytes, such as
    labels of pictures, have memory of their own.

    The order of a pass depends only on the dataset, ``seed`` and the number of the pass, its
    ``epoch`` (0 for the first loop). It equals the order of PyTorch's ``DataLoader`` with a
    generator of that seed.

    Args:
        dataset: A :class:`slotline.Dataset`, such as ``slotline.Arrays(x=images, y=labels)``.
        batch_size: The number of samples in a batch. ``None``: the loop gets single samples,
            without the first dimension.
        shuffle: Whether each pass has a new random order.
        sampler: The indices of each pass, in place of ``shuffle``: a list, an array, or another
            iterable over integers, such as one of torch's samplers. When a pass begins, the loop's
            thread iterates over it to its end, or up to ``num_samples``. Negative indices count
            from the end of the dataset. With several ranks, give each rank only its own indices.
        batch_sampler: An iterable over lists of indices, one list for each batch, in place of
            ``batch_size``, ``shuffle``, ``sampler`` and ``drop_last``.
        output: The type of a field of a batch: ``"numpy"``, an array; ``"torch"``, a tensor;
            ``"dlpack"``, a :class:`slotline.Tensor`, which any library with ``from_dlpack`` imports
            without a copy. A field of varying length is a list of these, one for each sample, and a
            text is a ``str``.
        packed: Whether a field of varying length is a pair instead of a list: the elements of all
            samples one after another (for texts, bytes of UTF-8), and the offsets at which the
            samples begin, followed by the end of the last one.
        padding: The number that fields of varying length are padded with to the longest sample of
            the batch. Each is then a pair instead of a list: an array whose second dimension has
            that length, and a mask of bools, which are true for elements that are not padding. A
            dict such as ``{"tokens": 0, "labels": -100}`` pads only these fields, and may have
            texts, of which it pads the bytes of UTF-8. ``None``: nothing is padded. Padded arrays
            have memory of their own, in addition to ``memory_ceiling``.
        multiple_of: The number of which the length of padded fields is a multiple.
        include_index: Whether a batch also has a last field ``"index"``, with the samples' indices
            in the dataset.
        collate_fn: A function that makes a batch of the list of its samples, each as ``dataset[i]``
            returns it, in place of arrays with a first dimension.
        transform: A function of a batch; the loop gets its result. With a ``collate_fn`` it gets
            the result of that. The loop's thread calls both in ``next()``, and their exceptions are
            raised there; the pass continues with the next batch. If a signal handler raises an
            exception meanwhile, both are called again with the same batch.
        seed: The seed of the random order, from 0 to 2**64 - 1. ``None``: a random seed for each
            loader, or 0 with ``world_size``, because all ranks need the same seed.
        generator: A ``torch.Generator`` or a ``numpy.random.Generator``, in place of ``seed``. Each
            pass draws its seed from it when it begins. With ``torch.default_generator``, passes
            depend on ``torch.manual_seed``. States contain the generator's state, 10 kB as text.
            With several ranks, all need generators with the same state.
        replacement: Whether samples are drawn independently of each other, so that some can come
            more than once. Requires ``shuffle``.
        num_samples: The number of samples in a pass. ``None``: the length of the dataset or of the
            sampler. Requires ``shuffle`` or ``sampler``.
        rank: The index of this process among those that divide the dataset, from 0. Requires
            ``world_size``. ``None``: the dataset is not divided.
        world_size: The number of processes that each load a share of the dataset, as with torch's
            ``DistributedSampler``. Requires ``rank``. All ranks get equally many samples: if the
            dataset cannot be divided evenly, some samples come twice, or with ``drop_last`` some
            are left out.
        drop_last: Whether to leave out the last batch if it is not full.
        num_workers: The number of threads. While the loop's thread would wait for a batch, it loads
            samples as well, or a further thread does that in its place (see below); with a
            ``timeout``, only the workers load. With 0 workers, each batch is loaded when the loop
            requests it.
        prefetch_factor: The number of batches to load ahead for each worker. ``None``: 2, or more
            if batches are small.
        in_order: Whether batches come in order. With ``False`` they come as soon as they are
            finished.
        hold: The number of batches that the loop keeps while it requests the next one. Memory for
            them is allocated from the start.
        on_held: What happens if the loop keeps more batches than ``hold``. ``"grow"``: the loader
            allocates memory for one more batch, which it reuses, and frees when the loader is
            deleted. ``"wait"``: the loop waits until another thread drops a batch. ``"raise"``:
            :class:`slotline.OutOfMemoryError` is raised.
        on_error: What happens if a sample cannot be read: ``"raise"`` an error, ``"skip"`` the
            sample, or ``"replace"`` it. If more than half of 1,000 samples in a row cannot be read,
            a :class:`slotline.SampleError` is raised in any case. A pass that skipped or replaced
            samples issues a warning at its end, and ``stats()`` lists them.
        timeout: The number of seconds to wait for a batch before
            :class:`slotline.LoaderTimeoutError` is raised; 0 for no limit. Requires a worker.
        memory_limit: The most bytes that the loader may allocate for batches and the order of a
            pass. It limits how many batches are loaded ahead.
        affinity: The CPU cores that the threads run on. ``None``: any; ``"spread"``: a different
            core for each; or a list of cores.

    A signal, such as that of Ctrl-C, is handled within about 0.1 s while the loop waits, however
    long a sample takes. For that, a further thread replaces the loop's own thread wherever loading
    takes long or files are on a network. Only batches from local disks that take less than a
    millisecond are loaded by the loop's own thread; the first batch that suddenly takes longer
    delays the signal. If a signal handler raises an exception, the following ``next()`` returns the
    batch that was waited for, and a state saved in between is the one before it. Dropping or
    closing an iterator does not wait for a sample either.

    Loaders can be pickled and copied. The copy has the same dataset and options, and starts at its
    first pass.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool = False,
        *,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Iterable[int]] | None = None,
        output: Literal["numpy", "torch", "dlpack"] = "numpy",
        packed: bool = False,
        padding: float | Mapping[str, float] | Mapping[int, float] | None = None,
        multiple_of: int = 1,
        include_index: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        seed: int | None = None,
        generator: torch.Generator | np.random.Generator | None = None,
        replacement: bool = False,
        num_samples: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        in_order: bool = True,
        hold: int = 2,
        on_held: Literal["grow", "wait", "raise"] = "grow",
        on_error: Literal["raise", "skip", "replace"] = "raise",
        timeout: float = 0,
        memory_limit: int | None = None,
        affinity: Literal["spread"] | Sequence[int] | None = None,
    ) -> None:
        numbers = {
            "batch_size": batch_size,
            "num_samples": num_samples,
            "rank": rank,
            "world_size": world_size,
            "num_workers": num_workers,
            "prefetch_factor": prefetch_factor,
            "hold": hold,
            "memory_limit": memory_limit,
            "seed": seed,
        }
        _check_integer("multiple_of", multiple_of, 32)
        flags = {
            "shuffle": shuffle,
            "packed": packed,
            "include_index": include_index,
            "replacement": replacement,
            "drop_last": drop_last,
            "in_order": in_order,
        }
        for name, number in numbers.items():
            if number is not None:
                _check_integer(name, number, 64)
        for core in () if affinity is None or isinstance(affinity, str) else affinity:
            _check_integer("a core of affinity", core, 64)
        for name, flag in flags.items():
            if not isinstance(flag, (bool, np.bool_)):
                raise TypeError(f"{name} is {flag!r}; it must be True or False")
        if output == "torch" and importlib.util.find_spec("torch") is None:
            raise ModuleNotFoundError('output="torch" needs PyTorch, which is not installed', name="torch")
        options: dict[str, Any] = {
            **numbers,
            **flags,
            "on_held": on_held,
            "on_error": on_error,
            "timeout": timeout,
            "affinity": affinity,
        }
        self._dataset = _checked(dataset)
        self._outline: dict[str, str] | None = None
        plan = dataset._plan
        self._sampler: Any = sampler if batch_sampler is None else batch_sampler
        self._has_batches = batch_sampler is not None
        self._generator: Any = generator
        # The number of a pass, and the states of the sampler and the generator before that pass.
        self._before: tuple[int, dict[str, Any]] | None = None
        if self._sampler is not None:
            excluded = {
                **({"batch_size": batch_size != 1, "sampler": sampler is not None, "drop_last": drop_last} if self._has_batches else {}),
                "shuffle": shuffle,
                "world_size": world_size is not None,
                "num_samples": self._has_batches and num_samples is not None,
            }
            _check_sampler(self._sampler, "batch_sampler" if self._has_batches else "sampler", excluded, dataset)
            plan = _slotline.Plan.given(self._has_batches)
        if isinstance(dataset, Batches) and batch_size != 1:
            raise OptionError("batch_size excludes a Batches, which decides which samples a batch has; leave it out")
        if include_index and "index" in (dataset._names or ()):
            raise OptionError("include_index would add a field 'index', but the dataset has one; rename it")
        pads = padding is not None
        if pads and (packed or batch_size is None):
            other = "packed" if packed else "batch_size=None"
            raise OptionError(f"padding and {other} exclude each other, since it pads to the longest sample of a batch; leave one of them out")
        if multiple_of == 0 or (multiple_of != 1 and not pads):
            raise OptionError(f"multiple_of is {multiple_of}; it must be 1 or more, and needs padding")
        if collate_fn is not None and (packed or pads or batch_size is None or output == "dlpack"):
            other = "packed" if packed else "padding" if pads else "batch_size=None" if batch_size is None else 'output="dlpack"'
            raise OptionError(f"collate_fn and {other} exclude each other, since it gets a list of samples; pass a transform instead")
        if generator is not None and seed is not None:
            raise OptionError("seed and generator exclude each other; leave one of them out")
        if not isinstance(generator, np.random.Generator | None) and not hasattr(generator, "get_state"):
            raise TypeError(f"generator is of type {type(generator).__name__}; pass a generator of torch, or one of numpy.random.default_rng")
        self._make = partial(
            Loader,
            dataset,
            output=output,
            padding=padding,
            multiple_of=multiple_of,
            sampler=sampler,
            batch_sampler=batch_sampler,
            collate_fn=collate_fn,
            transform=transform,
            generator=generator,
            **options,
        )
        if seed is None:
            options["seed"] = 0 if world_size is not None else int.from_bytes(os.urandom(6), "little")
        names = None if dataset._names is None else list(dataset._names)
        source = dataset._source if dataset._whole is None else dataset._whole
        options["padding"] = None if padding is None else _elements(dataset, padding)
        options |= {"adopts_seed": seed is None, "multiple_of": multiple_of}
        self._engine = _slotline.Engine(source, output, names, plan, **options)
        for warning in self._engine.warnings():
            warnings.warn(warning, stacklevel=2)

    def __iter__(self) -> _slotline.Pass:
        self._before = self.epoch, self._states()
        seed = None if self._generator is None else _drawn(self._generator)
        indices, ends = (None, None) if self._sampler is None else self._chosen()
        options = self._make.keywords
        functions = options["collate_fn"], options["transform"]
        finish = None if functions == (None, None) else partial(_finished, *functions, options["rank"] or 0)
        return self._engine.begin(indices, ends, seed=seed, finish=finish)

    def _is_stateful(self) -> bool:
        return all(callable(getattr(self._sampler, name, None)) for name in ("state_dict", "load_state_dict"))

    def _states(self) -> dict[str, Any]:
        """Returns the states of the sampler and the generator, which a state contains."""
        sampler = {"sampler": copy.deepcopy(self._sampler.state_dict())} if self._is_stateful() else {}
        return sampler if self._generator is None else {**sampler, "generator": _state_of(self._generator)}

    def _chosen(self) -> tuple[bytes, bytes | None]:
        """Reads the indices of a pass from the sampler. Returns them and, for a batch sampler, the
        ends of the batches among them, both as bytes."""
        length = len(self._dataset)
        if not self._has_batches:
            count = self._make.keywords["num_samples"]
            some = self._sampler[:count] if isinstance(self._sampler, np.ndarray) else list(itertools.islice(self._sampler, count))
            return _indices(some, "sampler", length).tobytes(), None
        batches = [_indices(batch, f"batch {i} of batch_sampler", length) for i, batch in enumerate(self._sampler)]
        for i, batch in enumerate(batches):
            if batch.size == 0:
                raise DataError(f"batch {i} of batch_sampler has no indices; leave it out")
        ends = np.cumsum([batch.size for batch in batches], dtype=np.uint64)
        if batches and ends[-1] >= 1 << 32:
            raise DataError("the batches of batch_sampler have more than 2**32 - 1 indices; choose fewer")
        indices = np.concatenate(batches) if batches else np.zeros(0, np.int64)
        return indices.tobytes(), ends.astype(np.uint32).tobytes()

    def __len__(self) -> int:
        """The number of batches in a pass; of batches by length, in the next pass, for which they
        are planned here. Raises a ``TypeError`` if it is not known in advance: for a stream, such as
        compressed tars, for a sampler without a length, and for batches by length if each pass draws
        its seed from a ``generator``.
        """
        if self._sampler is not None:
            options = self._make.keywords
            count: int = len(self._sampler)
            if self._has_batches:
                return count
            if options["num_samples"] is not None:
                count = min(count, options["num_samples"])
            size = options["batch_size"] or 1
            return count // size if options["drop_last"] else -(-count // size)
        if self._generator is not None and isinstance(self._dataset, Batches) and self._make.keywords["shuffle"]:
            raise TypeError(
                "the number of batches by length depends on the seed that the next pass draws from the generator; the length "
                "of its iterator is the number of batches that are left"
            )
        return len(self._engine)

    def __reduce__(self) -> tuple[Callable[[], Loader], tuple[()]]:
        return self._make, ()

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"slotline.Loader({self._dataset!r}, {options})"

    @property
    def dataset(self) -> Dataset:
        """The dataset."""
        return self._dataset

    @property
    def options(self) -> dict[str, Any]:
        """The options that the loader was created with, including defaults."""
        return dict(self._make.keywords)

    @property
    def batch_size(self) -> int | None:
        """The number of samples in a batch."""
        size: int | None = self._make.keywords["batch_size"]
        return size

    @property
    def seed(self) -> int:
        """The seed of the random order."""
        return self._engine.seed

    @property
    def epoch(self) -> int:
        """The number of the next pass."""
        return self._engine.next_epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next pass, which determines its order. Without it, passes count
        from 0.

        After :meth:`load_state_dict`, the number of the loaded pass changes nothing: the pass
        continues. Any other number begins a whole pass in place of it.
        """
        _check_integer("epoch", epoch, 32)
        self._engine.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the latest pass, or the start of the next pass if that one has
        ended.

        The state is a plain dict of some hundred bytes, which can be written as JSON. The position
        is the number of batches that the loop has received. The format is that of slotline for
        Rust, with an entry "dataset" that describes the dataset. If a ``sampler`` or
        ``batch_sampler`` has the methods ``state_dict`` and ``load_state_dict``, the entry
        "sampler" is its state from before the pass, when it had not chosen any indices of the pass.
        Otherwise the state has a digest of the indices that the sampler chose. The entry
        "generator" is the state of the ``generator`` from before the pass.
        """
        state: dict[str, Any] = json.loads(self._engine.state())
        state["dataset"] = self._about()
        epoch, before = self._before or (None, {})
        return {**state, **copy.deepcopy(before if epoch == state["epoch"] else self._states())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next pass continue, bit for bit, the pass that a state was saved in.

        The number of workers, ``prefetch_factor`` and the number of ranks may differ from the
        loader that saved the state, and the files may have moved. The same are required: the
        dataset's format, fields (names, dtypes and shapes), lengths and image pipeline,
        ``batch_size``, ``drop_last``, the kind of order, and ``seed``. A loader created without a
        seed takes the state's. Existing iterators are not affected.

        A sampler chooses all indices of the pass again, and the batches that the loop received
        before are skipped. If it chooses other indices than before, starting the pass raises an
        error.

        Raises :class:`slotline.StateError` if the state is damaged or does not fit this loader; the
        message names the difference. This loader is then unchanged.
        """
        own = _of_engine(state)
        # States that the Rust crate saved have neither "fields" nor "dataset".
        if state.get("fields", self._fields()) != self._fields():
            raise StateError(
                f"the state was taken with a dataset of other fields, since its digest of them is {state['fields']!r}, but "
                f"the loader's is {self._fields()!r}: finish the pass with the names, dtypes and shapes of that dataset"
            )
        about = self._about()
        different = _differences(state.get("dataset", about), about)
        if different:
            raise StateError(f"the state was taken with a dataset of {'; and of '.join(different)}: finish the pass with that dataset")
        former = None if self._generator is None else _state_of(self._generator)
        try:
            if former is not None and "generator" in state:
                _set_state_of(self._generator, state["generator"])
            self._engine.load_state(own)
        except Exception:
            if former is not None:
                _set_state_of(self._generator, former)
            raise
        self._before = state["epoch"], {name: copy.deepcopy(state.get(name, own)) for name, own in self._states().items()}
        if self._is_stateful() and "sampler" in state:
            self._sampler.load_state_dict(copy.deepcopy(state["sampler"]))

    def _about(self) -> dict[str, str]:
        """Returns the description of the dataset for a state: what determines its samples, without
        the paths of its files."""
        if self._outline is None:
            format, lengths, image = self._dataset._source.outline()
            fields = ", ".join(f"{field.name}: {field.dtype} {list(field.shape)}" for field in self._dataset.fields)
            parts = {"format": format, "fields": fields, "lengths": lengths, "image": image}
            self._outline = {name: _shortened(text) for name, text in parts.items()}
        return dict(self._outline)

    def _fields(self) -> str:
        """Returns the digest of a sample's fields, which states of older versions contain."""
        fields = json.dumps([(field.name, field.dtype, field.shape) for field in self._dataset.fields])
        return hashlib.sha256(fields.encode()).hexdigest()[:16]

    def stats(self) -> dict[str, Any]:
        """Returns statistics of the loader: counts, and times in seconds.

        With several live iterators, they cover the latest one, and the earlier ones that had ended
        before it began.
        """
        stats: dict[str, Any] = json.loads(self._engine.stats())
        return stats

    def verdict(self) -> str:
        """Returns one sentence about what has limited the loader's speed so far."""
        return self._engine.verdict()

    def warnings(self) -> list[str]:
        """Returns the warnings since the loader was created, including failed connections to its
        servers."""
        return self._engine.warnings()

    @property
    def memory_ceiling(self) -> int:
        """The most bytes that the loader allocates for batches and the order of a pass, unless the
        caller keeps more than ``hold`` batches."""
        return self._engine.memory_ceiling


def _finished(
    collate_fn: Callable[[list[Any]], Any] | None,
    transform: Callable[[Any], Any] | None,
    rank: int,
    batch: Any,
    seed: int,
    epoch: int,
    number: int,
) -> Any:
    """Returns what the loop gets for a batch."""
    before, current.key = current.key, ((seed, epoch, rank), number)
    try:
        if collate_fn is not None:
            batch = collate_fn(_samples(batch))
        return batch if transform is None else transform(batch)
    finally:
        current.key = before


def _elements(dataset: Dataset, padding: float | Mapping[Any, float]) -> list[bytes | None]:
    """Returns the bytes of the element that pads each field, or ``None`` if it is not padded."""
    names: Sequence[str | int] = range(len(dataset.fields)) if dataset._names is None else dataset._names
    varying = {name: field for name, field in zip(names, dataset.fields, strict=True) if field.dtype == "str" or None in field.shape}
    if not isinstance(padding, Mapping):
        padding = {name: padding for name, field in varying.items() if field.dtype != "str"}
    for name, number in padding.items():
        if name not in varying:
            known = ", ".join(map(repr, varying)) or "none"
            raise OptionError(f"padding has {name!r}, which is no field of varying length; those that are: {known}")
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, float, np.number)):
            raise TypeError(f"padding is {number!r}; it must be a number, or a dict of numbers")
    return [_element(name, varying[name].dtype, padding[name]) if name in padding else None for name in names]


def _element(name: str | int, dtype: str, number: Any) -> bytes:
    """Returns the bytes of a number as an element of this type."""
    element = _element_of(dtype, number)
    if element is None:
        raise OptionError(f"padding of field {name!r} is {number!r}, which is no {dtype}; pass a number that is")
    return element


def _samples(batch: Any) -> list[Any]:
    """Returns the samples of a batch."""
    if isinstance(batch, tuple):
        return list(zip(*map(_rows, batch), strict=True))
    return [dict(zip(batch, row, strict=True)) for row in zip(*map(_rows, batch.values()), strict=True)]


def _rows(field: Any) -> list[Any]:
    """Returns the part of each sample, also of a field of single numbers as an array."""
    return field if isinstance(field, list) else [field[i, ...] for i in range(len(field))]


def _drawn(generator: Any) -> int:
    """Draws the seed of a pass, as torch's ``DataLoader`` does."""
    if isinstance(generator, np.random.Generator):
        return int(generator.integers(1 << 63))
    import torch

    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _state_of(generator: Any) -> Any:
    """Returns the state of a generator, without tensors."""
    if isinstance(generator, np.random.Generator):
        return copy.deepcopy(generator.bit_generator.state)
    return generator.get_state().numpy().tobytes().hex()


def _set_state_of(generator: Any, state: Any) -> None:
    try:
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = state
        else:
            import torch

            generator.set_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))
    except Exception as error:
        raise wrong("generator", state, "the generator has no such state") from error


def merge_states(states: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merges the states that the loaders of all ranks returned after the same step. Any number of
    ranks can load the result.

    Raises :class:`slotline.StateError` if there are no states, if one is damaged, or if they are
    from different runs or steps.
    """
    states = list(states)
    own = [_of_engine(state) for state in states]
    about: dict[str, Any] = {name: states[0][name] for name in ("dataset", "fields") if states and name in states[0]}
    for number, state in enumerate(states):
        different = [name for name in ("dataset", "fields") if state.get(name) != about.get(name)]
        if different:
            named = _differences(state["dataset"], about["dataset"]) if "dataset" in state and "dataset" in about else []
            words = "; and of ".join(named) or "other fields"
            raise StateError(f"state {number} was taken with a dataset of {words} than the first one; they are not of one run")
    merged: dict[str, Any] = json.loads(_slotline.merge_states(own))
    drawn = {"generator": states[0]["generator"]} if "generator" in states[0] else {}
    return {**merged, **about, **copy.deepcopy(drawn)}


def _differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Returns the differences between the descriptions of the dataset in two states, in words."""
    return [f"{words} ({found[n]!r}, and not {expected[n]!r})" for n, words in _DATASET.items() if found[n] != expected[n]]


def _shortened(text: str) -> str:
    """Returns a text unchanged, or its beginning and its digest if it is long."""
    return text if len(text) <= 120 else f"{text[:80]}... {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _of_engine(state: dict[str, Any]) -> str:
    """Checks a state, and returns the part that the engine loads, as JSON."""
    if not isinstance(state, dict):
        raise StateError(f"the state of a loader is a dict, and not {type(state).__name__}")
    check_fields(state, _STATE)
    check_fields(state, {name: kind for name, kind in _OPTIONAL.items() if name in state})
    check_fields(state["start"], _START, "start.")
    if "dataset" in state:
        check_fields(state["dataset"], dict.fromkeys(_DATASET, TEXT), "dataset.")
    if state["start"]["sampler"] is not None:
        check_fields(state["start"]["sampler"], _SAMPLER, "start.sampler.")
    known = {*_STATE, *_OPTIONAL} - {"sampler", "generator"}
    return json.dumps({name: value for name, value in state.items() if name in known})


def _check_sampler(sampler: Any, what: str, excluded: dict[str, bool], dataset: Dataset) -> None:
    """Checks a sampler, which excludes these options if they are set."""
    for name in (name for name, is_set in excluded.items() if is_set):
        hint = "have it choose the samples of one rank" if name == "world_size" else "leave one of them out"
        raise OptionError(f"{what} and {name} exclude each other; {hint}")
    if dataset._plan is not None:
        raise OptionError(f"{what} excludes a {type(dataset).__name__}, which decides what a pass has; leave one of them out")
    if isinstance(sampler, Iterator) or not isinstance(sampler, Iterable):
        kind = type(sampler).__name__
        hint = "pass a list, an array, or an object whose __iter__ makes an iterator for each pass"
        raise TypeError(f"{what} is of type {kind}, which has the indices of one pass at most; {hint}")


def _indices(chosen: Any, what: str, length: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Checks the indices that a sampler chose, and returns them as an array."""
    indices = np.asarray(chosen if isinstance(chosen, np.ndarray | Sequence) else list(chosen))
    if indices.ndim != 1 or (indices.size > 0 and indices.dtype.kind not in "iu"):
        raise DataError(f"{what} has indices of shape {indices.shape} and type {indices.dtype}; it must have integers")
    indices = indices.astype(np.int64)
    wrong = np.flatnonzero((indices < -length) | (indices >= length))
    if wrong.size > 0:
        raise DataError(f"{what} has index {indices[wrong[0]]}, but the dataset has {length} samples")
    return np.where(indices < 0, indices + length, indices)


def _check_integer(name: str, number: Any, bits: int) -> None:
    value = _count(name, number, OptionError)
    if value >= 1 << bits:
        raise OptionError(f"{name} is {value}; it must be less than 2**{bits}")
