"""The loader."""

from __future__ import annotations

import copy
import inspect
from typing import Any, TypeVar

import torch.utils.data

from slotline.torch import _state
from slotline.torch._inline import InlineIterator
from slotline.torch._native import NativeIterator, is_native
from slotline.torch._processes import ProcessIterator

_T_co = TypeVar("_T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[_T_co]):
    """A ``torch.utils.data.DataLoader`` that loads faster, and can go on in the middle of a pass.

    It takes the same arguments, checks them in the same way, and gives the same batches in the same order. Workers write
    their batches into memory that they share with the loop, which finds its tensors there. A tensor can be kept for as
    long as you want. Its memory is used again when no tensor refers to it any more.

    It has one argument more:

    snapshot_every_n_steps (int):
        A worker that reads a stream (an ``IterableDataset``) which has a state sends that state with each n-th of its
        batches. A loader that goes on from a state in between has the worker read the batches since then once more. 0
        means that no states are sent, so the worker reads the stream from its beginning. Default: 1.
    """

    def __init__(self, *args: Any, snapshot_every_n_steps: int = 1, **kwargs: Any) -> None:
        if not isinstance(snapshot_every_n_steps, int) or snapshot_every_n_steps < 0:
            raise ValueError(f"snapshot_every_n_steps is a number from 0 on, and not {snapshot_every_n_steps!r}")
        super().__init__(*args, **kwargs)
        self.snapshot_every_n_steps = snapshot_every_n_steps
        # How far the latest pass is; an iterator that was made to have one; and the state to go on from.
        self._pass = None
        self._early = None
        self._resumed = None

    def __iter__(self):
        early, self._early = self._early, None
        return super().__iter__() if early is None else early

    def _get_iterator(self):
        if is_native(self):
            return NativeIterator(self)
        if self.num_workers == 0:
            return InlineIterator(self)
        self.check_worker_number_rationality()
        return ProcessIterator(self)

    def state_dict(self) -> dict[str, Any]:
        """Returns how far the latest pass is, for :meth:`load_state_dict`.

        It is a dict of numbers, texts, lists and dicts, which JSON can hold, except that what ``state_dict`` methods of
        your dataset and your sampler return is in it as it is. If there was no pass yet, one begins, which the next loop
        goes on with.

        A dataset that has the methods ``state_dict`` and ``load_state_dict`` is asked for its state after each batch, in
        each worker, and so are a stream's iterator and a sampler or its iterator. A sampler that has no state is asked for
        its indices again, and the first ones are left out, and so are the first batches of a stream. What torch's samplers
        draw is the same as before, whatever the state of the default generator is by then.
        """
        if self._resumed is not None:
            return copy.deepcopy(self._resumed)
        if self._pass is None:
            self._early = super().__iter__()
        return self._pass.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Has the next loop go on where a state was taken, with the same dataset, sampler and batch size.

        A state that was taken at the end of a pass has the next loop begin the pass after it. An empty dict has it begin
        a new one. The number of workers may be another one, unless the dataset is a stream or has a state.

        Raises a ``ValueError`` if the state is not one of this class, or if it needs another number of workers.
        """
        resumed = _state.checked(state_dict, self) if state_dict else None
        self._iterator = self._early = self._pass = None
        self._resumed = resumed

    def __getstate__(self):
        # A copy of the loader in another process has no iterators.
        return {**self.__dict__, "_iterator": None, "_pass": None, "_early": None}


# As torch's, with our arguments at the end.
_torchs = inspect.signature(torch.utils.data.DataLoader.__init__)
_ours = inspect.signature(DataLoader.__init__).parameters["snapshot_every_n_steps"]
DataLoader.__init__.__signature__ = _torchs.replace(parameters=[*_torchs.parameters.values(), _ours])
