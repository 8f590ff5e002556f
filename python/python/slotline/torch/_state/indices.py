"""Drawing batches of indices from a sampler, and the record of which batches are done."""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
import time

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from slotline._checks import wrong
from slotline.torch._internals import _InfiniteConstantSampler, generator_state, set_generator_state
from slotline.torch._state import entries

# Samplers that draw no random numbers, or only from a generator that they create for each pass.
_FIXED = (SequentialSampler, DistributedSampler, _InfiniteConstantSampler)
# If copying a sampler's state took t seconds, the next copy is made after at least this many times
# t.
_STATE_PAUSE = 50.0


def source_of(sampler):
    """Returns the generator that a program's own sampler draws from, or ``None`` for one of torch's
    samplers.

    A program's sampler may draw all numbers when its iterator is created, while torch's samplers
    draw when indices are requested.
    """
    if type(sampler) in (BatchSampler, RandomSampler, *_FIXED):
        return None
    generator = getattr(sampler, "generator", None)
    return generator if isinstance(generator, torch.Generator) else torch.default_generator


class IndexStream:
    """The batches of indices of one pass, and which of them are done.

    It draws the same random numbers as torch at the same time, but from torch's own samplers in
    whole lists instead of one index at a time. A signal handler can raise an exception at any
    point; indices drawn until then are kept.
    """

    def __init__(self, sampler, loader_generator, resumed, is_ahead):
        """``resumed`` is the state to resume from, or ``None``. ``is_ahead`` says whether batches
        are drawn before the loop requests them.
        """
        self._sampler = sampler
        self._resumed = resumed
        self._is_ahead = is_ahead
        # All batches before number `done` are done, and of the later ones those in `ahead`.
        self.done = 0
        self.ahead = set()
        if resumed is not None and not resumed[entries.FINISHED]:
            self.done = resumed[entries.SAMPLER_ITER_YIELDED]
            self.ahead = set(resumed.get(entries.AHEAD, ()))
        # The batches in `ahead` that were done before the resume, and are not given out again.
        self._skipped = frozenset(self.ahead)
        # `_iterator`: the sampler's iterator, until something is drawn. `_batches`: from then on, an iterator over the batches
        # and their numbers. `_waiting`: the batch that was drawn last, until it is given out. `_drawn`: the number of the next
        # batch to draw, if none is waiting.
        self._iterator = None
        self._batches = None
        self._waiting = []
        self._drawn = self.done
        # How many batches were drawn before the pass was resumed. The resumed pass draws as many at once, though the loop may
        # not have asked for all of them yet.
        self._drawn_before = 0
        # Whether a batch is being drawn, or was being drawn when an exception was raised.
        self._is_drawing = False
        # The batch that `take` returned last, until the caller no longer needs to put it back.
        self.taken = None
        # The sampler that chooses the indices, and the generator that it draws from, if it has one.
        self._inner = sampler.sampler if type(sampler) is BatchSampler else sampler
        generator = getattr(self._inner, "generator", None)
        self._generator = generator if isinstance(generator, torch.Generator) else None
        # Whether the sampler draws from the loader's generator, and whether it draws from another one, whose state is kept here.
        self.is_loaders = self._generator is not None and self._generator is loader_generator
        self.is_random = not self.is_loaders and type(self._inner) not in _FIXED
        # The state of the generator before anything was drawn, or after everything was.
        self._random = entries.Random()
        # The sampler and the iterator that can save their own state, or `None`. `_states`: copies of that state before the end,
        # by the number of batches drawn before each copy. `_next_state`: the time before which no further copy is made.
        # `_end`: the state at the end of the pass.
        self._stateful = next((each for each in (sampler, self._inner) if entries.is_stateful(each)), None)
        self._stateful_iterator = None
        self._states = {}
        self._next_state = 0.0
        self._end = None
        # The epoch that the order was drawn for, if the sampler has one.
        self._epoch = None

    @property
    def is_stateful(self):
        """Whether the sampler can save a state of its own."""
        return self._stateful is not None

    @property
    def drawn(self):
        """The number of batches drawn in this pass."""
        return self._waiting[-1][1] + 1 if self._waiting else self._drawn

    @property
    def next_number(self):
        """The number of the next batch to give out."""
        return self._waiting[0][1] if self._waiting else self._drawn

    def finish(self, number):
        """Records that batch ``number`` is done. With ``in_order=False``, earlier ones may not
        be."""
        if number == self.done and not self.ahead:
            self.done += 1
            return
        self.ahead.add(number)
        while self.done in self.ahead:
            self.ahead.remove(self.done)
            self.done += 1

    def finish_all(self):
        """Records that the pass has ended."""
        # The state of torch's default generator is not saved here; saving it is up to the program.
        self._random = entries.Random(self._generator if self.is_random else None)

    def begin(self, iterator, before):
        """Sets the sampler's iterator if it was created but not used yet. Nothing is drawn from it
        before the first batch is requested.

        If creating the iterator has drawn random numbers, ``before`` is the generator's state
        before that; otherwise ``None``.
        """
        self._iterator = iterator
        if before is not None:
            self._random = before

    def look(self):
        """Returns the indices and the number of the next batch that is not done.

        Returns the same batch until :meth:`give` is called.
        """
        waiting = self._waiting
        while True:
            if waiting:
                self._is_drawing = False
            else:
                self._draw()
            first = waiting[0]
            if not self._skipped or first[1] not in self._skipped:
                return first
            self.give()

    def give(self):
        """Records that the batch from :meth:`look` was given out."""
        self._drawn = self._waiting[0][1] + 1
        self._waiting.clear()

    def take(self):
        """Returns the next batch and its number, and records that it was given out and is done.

        The same as :meth:`look`, :meth:`give` and :meth:`finish`.
        """
        if not self._is_drawing and not self._waiting and not self._skipped and self._batches is not None:
            self._is_drawing = True
            batch = next(self._batches, None)
            if batch is not None:
                self._is_drawing = False
                self.done = self._drawn = batch[1] + 1
                self.taken = batch
                return batch
            self._is_drawing = False
        batch = self.look()
        self.give()
        self.finish(batch[1])
        self.taken = batch
        return batch

    def put_back(self):
        """Undoes :meth:`take`, if a batch was taken since ``taken`` was set to ``None``."""
        batch = self._unfinished()
        if batch is not None:
            self._waiting.insert(0, batch)
            self._drawn = batch[1]

    def _unfinished(self):
        """Undoes :meth:`finish` for the batch in ``taken``. Returns that batch, or ``None`` if there is none."""
        batch, self.taken = self.taken, None
        if batch is not None:
            number = batch[1]
            if number < self.done:
                self.ahead.update(range(number + 1, self.done))
                self.done = number
            else:
                self.ahead.discard(number)
        return batch

    def _draw(self):
        if self._batches is None:
            self._start()
        was_interrupted, self._is_drawing = self._is_drawing, True
        # A signal handler cannot run in the middle of this, unless the sampler is written in Python.
        self._waiting.extend(itertools.islice(self._batches, 1))
        self._is_drawing = False
        if self._waiting:
            if self._states:
                self._note_state()
            return
        if self._has_state():
            self._end = copy.deepcopy(self._snapshot(None))
        if was_interrupted and not self._is_complete():
            raise RuntimeError(
                f"an exception came while the sampler was drawing indices, and ended it: the pass ends after {self._drawn} batches"
            )
        raise StopIteration

    def _is_complete(self):
        try:
            return self._drawn >= len(self._sampler)
        except (TypeError, NotImplementedError):
            return False

    def _start(self):
        """Begins or resumes the pass. After an exception, it is called again."""
        resumed = self._resumed
        # If this fails, the next call must make a new iterator.
        iterator, self._iterator = self._iterator, None
        if resumed is None or resumed[entries.FINISHED]:
            if iterator is None:
                before = self._now()
                iterator = iter(self._sampler)
                if not torch.equal(before.state, self._now().state):
                    self._random = before
            if resumed is not None:
                iterator = self._load(resumed, iterator)
            self._epoch = self._epoch_now()
            if self.is_random and self._random.state is None:
                self._random = self._now()
            batches, inner = self._begin(iterator)
        else:
            with self._as_at_first(resumed):
                batches, inner = self._begin(self._load(resumed, iter(self._sampler)))
                batches = self._skip(batches, inner, resumed)
            self._epoch = self._epoch_now()
        self._stateful_iterator = inner if entries.is_stateful(inner) else None
        if self._is_ahead and self._has_state():
            self._states = {self.done: copy.deepcopy(self._snapshot(inner))}
        self._resumed = None
        self._batches = zip(batches, itertools.count(self.done))

    def _has_state(self):
        return self._stateful is not None or self._stateful_iterator is not None

    def _note_state(self):
        """Copies the sampler's state, unless copying takes too much time. Without a copy, later
        batches are drawn again on resume."""
        begun = time.perf_counter()
        if begun < self._next_state:
            return
        self._states[self.drawn] = copy.deepcopy(self._snapshot(self._stateful_iterator))
        last = max((number for number in self._states if number <= self.done), default=0)
        self._states = {number: state for number, state in self._states.items() if number >= last}
        now = time.perf_counter()
        self._next_state = now + _STATE_PAUSE * (now - begun)

    def _own_state(self):
        """Returns a state of the sampler, and the number of batches done since that state."""
        known = max((number for number in self._states if number <= self.done), default=None)
        if known is None:
            return self._snapshot(self._stateful_iterator), 0
        return self._states[known], self.done - known

    def state_dict(self, is_finished):
        """Returns the part of the loader's state that describes the sampler."""
        state = {entries.SAMPLER_ITER_YIELDED: self.done, entries.SAMPLER_SINCE: 0}
        state[entries.SAMPLER_DRAWN] = max(self.drawn, self._drawn_before)
        if self._resumed is not None and not is_finished:
            # Nothing was drawn yet: repeat the entries of the state that was loaded.
            keys = [entries.SAMPLER_GENERATOR, entries.SAMPLER_STATE]
            if not self._resumed[entries.FINISHED]:
                keys += [entries.SAMPLER_ITER_STATE, entries.SAMPLER_EPOCH, entries.SAMPLER_SINCE, entries.SAMPLER_DRAWN]
            state.update({key: self._resumed[key] for key in keys if key in self._resumed})
        else:
            random = self._random
            if random.state is None and self.is_random and not is_finished:
                random = self._now()
            state[entries.SAMPLER_GENERATOR] = random.text()
            if is_finished and self._end is not None:
                state.update(copy.deepcopy(self._end))
            elif self._has_state():
                own, state[entries.SAMPLER_SINCE] = self._own_state()
                state.update(copy.deepcopy(own))
            epoch = self._epoch_now() if self._epoch is None else self._epoch
            if epoch is not None and not is_finished:
                state[entries.SAMPLER_EPOCH] = epoch
        if self.ahead:
            state[entries.AHEAD] = sorted(self.ahead)
        return state

    def _epoch_now(self):
        return self._inner.epoch if isinstance(self._inner, DistributedSampler) else None

    def _now(self):
        return entries.Random(torch.default_generator if self._generator is None else self._generator)

    @contextlib.contextmanager
    def _as_at_first(self, resumed):
        """A context manager in which the sampler draws the random numbers that it drew before the
        resume."""
        text = resumed[entries.SAMPLER_GENERATOR]
        if text is None or not (self.is_random or self.is_loaders):
            yield
            return
        self._random = entries.Random(text=text)
        if self._generator is not None:
            now = generator_state(self._generator)
            set_generator_state(self._generator, self._random.state)
            yield
            if self.is_loaders:
                # Undo the draws: the loader's generator was already restored to a later state.
                set_generator_state(self._generator, now)
            return
        if torch.equal(generator_state(torch.default_generator), self._random.state):
            # The program has restored the default generator to the state before these draws, so let
            # them advance it.
            yield
            return
        with entries.undisturbed():
            set_generator_state(torch.default_generator, self._random.state)
            yield

    def _load(self, resumed, iterator):
        if resumed[entries.FINISHED] and self.is_random and self._generator is not None:
            if resumed[entries.SAMPLER_GENERATOR] is not None:
                self._random = entries.Random(text=resumed[entries.SAMPLER_GENERATOR])
                set_generator_state(self._generator, self._random.state)
                iterator = iter(self._sampler)
        if not resumed[entries.FINISHED] and entries.SAMPLER_EPOCH in resumed and self._epoch_now() is not None:
            # The program sets the epoch, too, but Lightning does so only after it has begun the pass.
            self._inner.set_epoch(resumed[entries.SAMPLER_EPOCH])
            iterator = iter(self._sampler)
        if self._stateful is None or resumed.get(entries.SAMPLER_STATE) is None:
            return iterator
        self._stateful.load_state_dict(resumed[entries.SAMPLER_STATE])
        return iter(self._sampler)

    def _begin(self, iterator):
        """Returns an iterator over the batches, and the iterator over the indices unless it is
        torch's own."""
        sampler, inner = self._sampler, self._inner
        if type(inner) is _InfiniteConstantSampler:
            return itertools.repeat(None if inner is sampler else [None] * sampler.batch_size), None
        if inner is sampler:
            return iterator, iterator
        if type(inner) in (RandomSampler, SequentialSampler):
            return _Slices(inner, sampler.batch_size, sampler.drop_last), None
        indices = iter(inner)
        return _Groups(indices, sampler.batch_size, sampler.drop_last), indices

    def _skip(self, batches, inner, resumed):
        """Draws and discards the batches that are already done."""
        # Draw as many batches as were drawn before, since a sampler may draw random numbers for
        # each batch; at least one, since other samplers draw all random numbers of the pass for the
        # first batch.
        done, drawn = self.done, max(resumed[entries.SAMPLER_DRAWN], 1)
        if entries.is_stateful(inner) and resumed.get(entries.SAMPLER_ITER_STATE) is not None:
            inner.load_state_dict(resumed[entries.SAMPLER_ITER_STATE])
            done = drawn = resumed[entries.SAMPLER_SINCE]
        elif self._stateful is not None and resumed.get(entries.SAMPLER_STATE) is not None:
            done = drawn = resumed[entries.SAMPLER_SINCE]
        elif self._stateful is not None or entries.is_stateful(inner):
            drawn = done
        else:
            self._drawn_before = drawn
        if type(self._inner) is _InfiniteConstantSampler:
            return batches
        skipped = sum(1 for _ in itertools.islice(batches, done))
        if skipped < done:
            raise wrong(entries.SAMPLER_ITER_YIELDED, self.done, f"the sampler has only {skipped} batches")
        return itertools.chain(list(itertools.islice(batches, drawn - done)), batches)

    def _snapshot(self, inner):
        return {
            entries.SAMPLER_STATE: entries.state_of(self._stateful),
            entries.SAMPLER_ITER_STATE: entries.state_of(inner),
        }


class _Groups:
    """Batches of a sampler's indices. If an exception interrupts a batch, the indices drawn for it are kept for the next call."""

    def __init__(self, indices, size, drop_last):
        self._indices = indices
        self._size = size
        self._drop_last = drop_last
        self._batch = []

    def __iter__(self):
        return self

    def __next__(self):
        self._batch.extend(itertools.islice(self._indices, self._size - len(self._batch)))
        if not self._batch or (self._drop_last and len(self._batch) < self._size):
            raise StopIteration
        batch, self._batch = self._batch, []
        return batch


class _Slices:
    """Batches of indices of one of torch's samplers.

    The indices are drawn in whole lists, and only when needed, as in torch, but kept as an array,
    which takes a fifth of a list's memory. If an exception interrupts the drawing of a list, the
    list is drawn again with the same random numbers.
    """

    def __init__(self, sampler, size, drop_last):
        self._sampler = sampler
        self._size = size
        self._drop_last = drop_last
        self._lengths = _lengths(sampler)
        # The indices of the current list, how many of them were given out, and the number of lists
        # drawn.
        self._indices = ()
        self._given = 0
        self._lists = 0
        self._generator = getattr(sampler, "generator", None)
        # The state of the generator before the next list is drawn.
        self._before = None

    def __iter__(self):
        return self

    def __next__(self):
        end = self._given + self._size
        while end > len(self._indices) and self._lists < len(self._lengths):
            rest, new = self._indices[self._given :], self._draw(self._lengths[self._lists])
            if len(rest) > 0:
                new = np.concatenate([rest, new])
            # A signal handler does not run between these assignments.
            self._indices = new
            self._given, self._before, self._lists = 0, None, self._lists + 1
            end = self._size
        batch = self._indices[self._given : end]
        batch = batch.tolist() if isinstance(batch, np.ndarray) else list(batch)
        if not batch or (self._drop_last and len(batch) < self._size):
            raise StopIteration
        self._given = end
        return batch

    def _draw(self, length):
        sampler = self._sampler
        if type(sampler) is SequentialSampler:
            return range(len(sampler.data_source))
        if self._generator is None:
            self._generator = _new_generator()
        if self._before is None:
            self._before = generator_state(self._generator)
        else:
            set_generator_state(self._generator, self._before)
        return _draw_list(sampler, length, self._generator).numpy()


def _new_seed():
    """Draws the seed for a pass of a ``RandomSampler`` that has no generator, as torch draws it."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


def _new_generator():
    """Returns the generator of a pass of a ``RandomSampler`` that has none, seeded as torch seeds it."""
    return torch.Generator().manual_seed(_new_seed())


def _draw_list(sampler, length, generator):
    """Draws a list of indices as torch's ``RandomSampler`` does, as a tensor."""
    count = len(sampler.data_source)
    if sampler.replacement:
        return torch.randint(high=count, size=(length,), dtype=torch.int64, generator=generator)
    return torch.randperm(count, generator=generator)[:length]


def _lengths(sampler):
    """Returns the lengths of the lists of indices that torch's sampler draws in a pass."""
    if type(sampler) is SequentialSampler:
        return [len(sampler.data_source)]
    whole = 32 if sampler.replacement else len(sampler.data_source)
    return [whole] * (sampler.num_samples // whole) + [sampler.num_samples % whole]


# Samplers of torch that draw all indices of a pass when the first one is requested, and lists of indices.
_AT_ONCE = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
_LISTS = (list, tuple, range, np.ndarray, torch.Tensor)


def drawn_later(sampler) -> str | None:
    """Returns why the indices of a pass cannot all be read from a loader's sampler when the pass begins, or ``None`` if they
    can."""
    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    if type(inner) not in (*_AT_ONCE, *_LISTS):
        return f"its sampler is a {type(inner).__name__}, which may choose indices during the pass"
    if type(inner) is RandomSampler and inner.generator is not None and sum(length > 0 for length in _lengths(inner)) > 1:
        return "its RandomSampler draws from its generator several times in a pass"
    return None


class WholeStream(IndexStream):
    """An :class:`IndexStream` that reads a pass from its sampler as a whole: see :func:`drawn_later`."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        # What `draw` returned if the engine has not begun that pass yet, and its arguments.
        self.whole = None
        self._arguments = False, 0
        # The number of batches in the pass, and of those that torch draws in advance.
        self._count = 0
        self._lead = 0
        # The batch with which torch draws an empty list of indices from the sampler's generator, until that is done.
        self.last = None
        # The batches that `put_back` got and their numbers, with the latest first.
        self.returned = []

    def draw(self, has_batches, most, lead):
        """Reads the whole pass. Returns its indices, those of batches that are done too, and the ends of all batches among them,
        or ``None`` if they have the sampler's batch size.

        ``has_batches`` says whether the sampler is a list of batches, and ``lead`` how many batches torch draws in advance. If
        there are at most ``most`` samples, the indices may also be what an engine can draw itself (see ``Engine.begin``).
        """
        if self.whole is not None:
            return self.whole
        self._arguments, self._lead = (has_batches, most), lead
        generators = [torch.default_generator, *([] if self._generator is None else [self._generator])]
        before = [generator_state(generator) for generator in generators]
        try:
            self._start()
        except BaseException:
            # An interrupt may come at any point: the next call draws the same.
            for generator, state in zip(generators, before, strict=True):
                set_generator_state(generator, state)
            raise
        self.draw_last(self.done + len(self.ahead) - 1)
        return self.whole

    @property
    def drawn(self):
        # As many as torch would have drawn.
        return max(self._drawn, min(self.done + len(self.ahead) + self._lead, self._count))

    def draw_last(self, number):
        """Draws from the sampler's generator what torch has drawn after batch ``number`` was requested."""
        if self.last is not None and number + self._lead >= self.last:
            self.last = None
            _draw_list(self._inner, 0, self._generator)

    def put_back(self):
        batch = self._unfinished()
        if batch is not None:
            self.returned.append(batch)

    def _begin(self, iterator):
        sampler, inner = self._sampler, self._inner
        size = sampler.batch_size if type(sampler) is BatchSampler else 1
        has_batches, most = self._arguments
        ends = None
        if has_batches:
            batches = [_read(batch) for batch in iterator]
            indices = np.concatenate(batches) if batches else np.zeros(0, np.int64)
            ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
            count = len(indices)
        elif type(inner) is SequentialSampler:
            count = len(inner.data_source)
            indices = count if count <= most else np.arange(count, dtype=np.int64)
        elif type(inner) is RandomSampler:
            lengths = _lengths(inner)
            count = sum(lengths)
            if self._generator is None and 0 < len(inner.data_source) <= most:
                indices = _new_seed(), len(inner.data_source), count, inner.replacement
            else:
                generator = _new_generator() if self._generator is None else self._generator
                lists = [_draw_list(inner, length, generator) for length in lengths if length > 0]
                indices = (lists[0] if len(lists) == 1 else torch.cat(lists)).numpy()
                if self._generator is not None and lengths[-1] == 0:
                    self.last = count // size
        else:
            indices = _read(inner)
            count = len(indices)
        if ends is not None:
            self._count = len(ends)
        else:
            self._count = count // size if getattr(sampler, "drop_last", False) else -(-count // size)
        self.whole = indices, ends
        return (), None

    def _skip(self, batches, inner, resumed):
        if self.done > self._count:
            raise wrong(entries.SAMPLER_ITER_YIELDED, self.done, f"the sampler has only {self._count} batches")
        self._drawn = min(max(resumed[entries.SAMPLER_DRAWN], 1), self._count)
        self.draw_last(self._drawn - 1 - self._lead)
        return batches


def _read(indices):
    """Returns indices as an array."""
    if isinstance(indices, np.ndarray) and indices.dtype == np.int64 and indices.ndim == 1:
        return indices
    return np.fromiter(map(operator.index, indices), np.int64)
