"""Batches of indices."""

from __future__ import annotations

import contextlib
import copy
import itertools

import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _InfiniteConstantSampler

from slotline._checks import wrong
from slotline.torch import _state

# Samplers that draw nothing, or only from a generator that they make anew for each pass.
_FIXED = (SequentialSampler, DistributedSampler, _InfiniteConstantSampler)


class Draws:
    """The batches of indices of one pass, and which of them are done.

    It draws the same random numbers as torch does, at the same time, but for torch's own samplers in whole lists instead of
    index by index.
    """

    def __init__(self, sampler, loader_generator, resumed):
        """``resumed`` is the state to resume from, or ``None``."""
        self._sampler = sampler
        self._resumed = resumed
        # All batches before number `done` are done, and of those after it, the ones in `ahead`.
        self.done = 0
        self.ahead = set()
        if resumed is not None and not resumed[_state.FINISHED]:
            self.done = resumed[_state.SAMPLER_ITER_YIELDED]
            self.ahead = set(resumed.get(_state.AHEAD, ()))
        # The numbers of those that were done before the pass was resumed, and are not drawn again.
        self.skipped = frozenset(self.ahead)
        # The sampler that decides about the indices, and where its random numbers come from.
        self._inner = sampler.sampler if type(sampler) is BatchSampler else sampler
        generator = getattr(self._inner, "generator", None)
        self._generator = generator if isinstance(generator, torch.Generator) else None
        # Whether that is the loader's generator, or one whose state is kept here.
        self.is_loaders = self._generator is not None and self._generator is loader_generator
        self.is_random = not self.is_loaders and type(self._inner) not in _FIXED
        # The state of that source before anything was drawn, or after everything was.
        self._random = _state.Random()
        # The sampler that has a state of its own, and that state after so many batches, from `done` on, and at the end.
        self._stateful = next((each for each in (sampler, self._inner) if _state.is_stateful(each)), None)
        self._states = {}
        self._end = None
        # The epoch that the order was drawn for, if the sampler has one.
        self._epoch = None

    @property
    def is_stateful(self):
        """Whether the sampler has a state of its own."""
        return self._stateful is not None

    def finish(self, task):
        """Records that a batch is done. With ``in_order=False``, others before it may not be."""
        self.ahead.add(task)
        while self.done in self.ahead:
            self.ahead.remove(self.done)
            self.done += 1

    def finish_all(self):
        """Records that the pass has ended."""
        if self.is_random:
            # The default generator is the program's to save.
            self._random = _state.Random(self._generator)

    def batches(self, iterator):
        """Yields the batches of indices that are not done. ``iterator`` is the sampler's, and was not used yet."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            iterator = self._load(resumed, iterator)
        self._epoch = self._epoch_now()
        if resumed is None or resumed[_state.FINISHED]:
            if self.is_random:
                self._random = self._now()
            batches, inner = self._begin(iterator)
        else:
            with self._as_at_first(resumed):
                batches, inner = self._begin(iterator)
                batches = self._skip(batches, inner, resumed)
        first, skipped = self.done, self.skipped
        if self._stateful is None and not _state.is_stateful(inner):
            yield from _without(batches, first, skipped) if skipped else batches
            return
        self._states[first] = self._snapshot(inner)
        for number in itertools.count(first):
            batch = next(batches, None)
            if batch is None:
                self._end = self._snapshot(None)
                return
            self._states[number + 1] = self._snapshot(inner)
            for old in [old for old in self._states if old < self.done]:
                del self._states[old]
            if number not in skipped:
                yield batch

    def state_dict(self, is_finished):
        """Returns the part of the state that is about the sampler."""
        if self._resumed is not None and not is_finished:
            # Nothing was drawn yet.
            keys = (_state.SAMPLER_GENERATOR, _state.SAMPLER_STATE, _state.SAMPLER_ITER_STATE, _state.SAMPLER_EPOCH)
            state = {key: self._resumed[key] for key in keys if key in self._resumed}
            if self._resumed[_state.FINISHED]:
                state.pop(_state.SAMPLER_ITER_STATE, None)
                state.pop(_state.SAMPLER_EPOCH, None)
        else:
            random = self._random
            if random.state is None and self.is_random and not is_finished:
                random = self._now()
            state = {_state.SAMPLER_GENERATOR: random.text()}
            own = self._end if is_finished else self._states.get(self.done)
            if own is None and self._stateful is not None:
                own = self._snapshot(None)
            if own:
                state.update(copy.deepcopy(own))
            epoch = self._epoch_now() if self._epoch is None else self._epoch
            if epoch is not None and not is_finished:
                state[_state.SAMPLER_EPOCH] = epoch
        state[_state.SAMPLER_ITER_YIELDED] = self.done
        if self.ahead:
            state[_state.AHEAD] = sorted(self.ahead)
        return state

    def _epoch_now(self):
        return self._inner.epoch if isinstance(self._inner, DistributedSampler) else None

    def _now(self):
        return _state.Random(torch.default_generator if self._generator is None else self._generator)

    @contextlib.contextmanager
    def _as_at_first(self, resumed):
        """Makes the sampler draw the numbers that it drew in the pass that is resumed."""
        text = resumed[_state.SAMPLER_GENERATOR]
        if text is None or not self.is_random:
            yield
            return
        self._random = _state.Random(text=text)
        if self._generator is not None:
            self._generator.set_state(self._random.state)
            yield
            return
        if torch.equal(torch.get_rng_state(), self._random.state):
            # The program has set the default generator to where it was then, so these draws must advance it as they did.
            yield
            return
        with _state.undisturbed():
            torch.set_rng_state(self._random.state)
            yield

    def _load(self, resumed, iterator):
        if resumed[_state.FINISHED] and self.is_random and self._generator is not None:
            if resumed[_state.SAMPLER_GENERATOR] is not None:
                self._generator.set_state(_state.Random(text=resumed[_state.SAMPLER_GENERATOR]).state)
        if not resumed[_state.FINISHED] and _state.SAMPLER_EPOCH in resumed and self._epoch_now() is not None:
            # The program sets the epoch, too, but Lightning does so only after it has begun the pass.
            self._inner.set_epoch(resumed[_state.SAMPLER_EPOCH])
            iterator = iter(self._sampler)
        if self._stateful is None or resumed.get(_state.SAMPLER_STATE) is None:
            return iterator
        self._stateful.load_state_dict(resumed[_state.SAMPLER_STATE])
        return iter(self._sampler)

    def _begin(self, iterator):
        """Returns the batches, and the iterator that decides about them, if it is not torch's own."""
        sampler, inner = self._sampler, self._inner
        if type(inner) is _InfiniteConstantSampler:
            return itertools.repeat(None if inner is sampler else [None] * sampler.batch_size), None
        if inner is sampler:
            return iterator, iterator
        if type(inner) in (RandomSampler, SequentialSampler):
            return _slices(_parts(inner), sampler.batch_size, sampler.drop_last), None
        indices = iter(inner)
        return _groups(indices, sampler.batch_size, sampler.drop_last), indices

    def _skip(self, batches, inner, resumed):
        """Leaves out the batches that are done."""
        if _state.is_stateful(inner) and resumed.get(_state.SAMPLER_ITER_STATE) is not None:
            inner.load_state_dict(resumed[_state.SAMPLER_ITER_STATE])
        elif self._stateful is not None and resumed.get(_state.SAMPLER_STATE) is not None:
            pass
        elif type(self._inner) is not _InfiniteConstantSampler:
            # One more, since the numbers of a pass are drawn for its first batch.
            skipped = sum(1 for _ in itertools.islice(batches, self.done))
            if skipped < self.done:
                raise wrong(_state.SAMPLER_ITER_YIELDED, self.done, f"the sampler has only {skipped} batches")
            more = 0 if self._stateful is not None or _state.is_stateful(inner) else 1
            return itertools.chain(list(itertools.islice(batches, more)), batches)
        return batches

    def _snapshot(self, inner):
        return copy.deepcopy(
            {
                _state.SAMPLER_STATE: _state.state_of(self._stateful),
                _state.SAMPLER_ITER_STATE: _state.state_of(inner),
            }
        )


def _without(batches, first, numbers):
    for number, batch in enumerate(batches, first):
        if number not in numbers:
            yield batch


def _groups(indices, size, drop_last):
    while batch := list(itertools.islice(indices, size)):
        if drop_last and len(batch) < size:
            return
        yield batch


def _parts(sampler):
    """Yields the indices of a sampler in lists."""
    if type(sampler) is SequentialSampler:
        yield range(len(sampler.data_source))
        return
    count = len(sampler.data_source)
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    if sampler.replacement:
        for size in [32] * (sampler.num_samples // 32) + [sampler.num_samples % 32]:
            yield torch.randint(high=count, size=(size,), dtype=torch.int64, generator=generator).tolist()
    else:
        for _ in range(sampler.num_samples // count):
            yield torch.randperm(count, generator=generator).tolist()
        yield torch.randperm(count, generator=generator).tolist()[: sampler.num_samples % count]


def _slices(parts, size, drop_last):
    part, start = (), 0
    while True:
        batch = list(part[start : start + size])
        start += size
        while len(batch) < size:
            # Only now, as with torch, is the next part drawn.
            part = next(parts, None)
            if part is None:
                if batch and not drop_last:
                    yield batch
                return
            start = size - len(batch)
            batch += part[:start]
        yield batch
