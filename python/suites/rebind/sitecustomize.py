"""Replaces torch's ``DataLoader`` in every Python process that starts with this folder on its path.

Python imports this module when it starts, so it also applies to processes that a test starts by
``spawn`` or ``python -c``. ``SUITE_LOADER`` selects the loader: ``slotline``, or ``torch`` to run the
tests with torch's own.
"""

import importlib.util
import os


def _rebind():
    import torch.utils.data

    loader = torch.utils.data.DataLoader
    if os.environ["SUITE_LOADER"] == "slotline":
        from slotline.torch import DataLoader as loader

        torch.utils.data.DataLoader = torch.utils.data.dataloader.DataLoader = loader
    if importlib.util.find_spec("torchdata") is not None:
        import torchdata.stateful_dataloader

        torchdata.stateful_dataloader.StatefulDataLoader = loader


if "SUITE_LOADER" in os.environ:
    _rebind()
