"""Lightning works with slotline's loader as with torch's.

Lightning's packages do not contain its tests, so these tests do what Lightning does to a loader: make
a new one with another sampler, read its attributes, wrap its constructor, and fit, validate, predict
and resume with it. They need ``pip install lightning``; run them with ``python -m pytest
python/suites/test_lightning.py``.
"""

import logging
import warnings

import lightning
import pytest
import torch
import torch.utils.data as tud
from lightning.fabric.utilities.data import _replace_dunder_methods, has_len
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.data import _update_dataloader

from slotline.torch import DataLoader

KINDS = [tud.DataLoader, DataLoader]
DATA = tud.TensorDataset(torch.arange(42.0).reshape(21, 2))


class Numbers(tud.Dataset):
    """A map-style dataset whose samples contain random numbers."""

    def __len__(self):
        return 21

    def __getitem__(self, i):
        return torch.tensor([i, 1.0]) + torch.rand(2)


class Stream(tud.IterableDataset):
    def __iter__(self):
        info = tud.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (torch.tensor([k, 1.0]) for k in range(first, 20, step))


class Halves(tud.BatchSampler):
    """A batch sampler with an argument of its own, which Lightning must know to create it again."""

    def __init__(self, sampler, parts, drop_last=False):
        super().__init__(sampler, 21 // parts, drop_last)


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


OPTIONS = {
    "plain": lambda: {},
    "shuffled": lambda: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "workers": lambda: {"batch_size": 4, "num_workers": 2, "persistent_workers": True, "prefetch_factor": 3, "timeout": 60},
    "out of order": lambda: {"batch_size": 4, "num_workers": 1, "in_order": False},
    "without batches": lambda: {"batch_size": None, "collate_fn": str},
    "batch sampler": lambda: {"batch_sampler": tud.BatchSampler(range(21), 5, True)},
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(2)},
    "context": lambda: {"num_workers": 1, "multiprocessing_context": "spawn", "worker_init_fn": print},
}


def options_of(loader):
    """Returns the attributes that torch's loader also has. Objects that each loader creates anew are replaced by names."""
    names = ["batch_size", "drop_last", "num_workers", "prefetch_factor", "persistent_workers", "timeout", "in_order", "collate_fn"]
    context = loader.multiprocessing_context
    samplers = [type(loader.sampler), type(loader.batch_sampler), getattr(loader.batch_sampler, "batch_size", None)]
    return [getattr(loader, name) for name in names], context and context.get_start_method(), loader.worker_init_fn, *samplers


@pytest.mark.parametrize("mode", [None, RunningStage.TRAINING, RunningStage.PREDICTING], ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_loader_gets_another_sampler(options, mode):
    found = []
    for kind in KINDS:
        loader = kind(DATA, **options())
        try:
            again = _update_dataloader(loader, tud.DistributedSampler(DATA, 2, 1), mode)
        except Exception as error:
            found.append((type(error), str(error)))
            continue
        assert type(again) is kind and again.dataset is DATA
        found.append((options_of(again), [str(batch) for batch in again] if again.num_workers == 0 else len(again)))
    assert found[0] == found[1]


def test_options_of_slotlines_own_stay():
    loader = DataLoader(
        Numbers(), 4, num_workers=2, worker_method="thread", copy_dataset=True, round_robin=False, on_error="skip", memory_limit=1 << 30, watchdog=9.0,
        snapshot_every_n_steps=3, affinity=None,
    )  # fmt: skip
    again = _update_dataloader(loader, tud.DistributedSampler(DATA, 2, 1))
    for name in ("worker_method", "copy_dataset", "round_robin", "on_error", "memory_limit", "watchdog", "snapshot_every_n_steps", "affinity"):
        assert getattr(again, name) == getattr(loader, name), name
    assert len(list(again)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_are_seen_in_hooks(kind):
    class Mine(kind):
        def __init__(self, dataset, extra, **options):
            super().__init__(dataset, **options)
            self.extra = extra

    with _replace_dunder_methods(tud.DataLoader, "dataset"), _replace_dunder_methods(tud.BatchSampler):
        loader = Mine(DATA, 2, batch_sampler=Halves(range(21), 3))
    again = _update_dataloader(loader, range(7))
    assert (type(again), type(again.batch_sampler), again.extra) == (Mine, Halves, 2)
    assert [len(batch) for (batch,) in again] == [7]
    assert has_len(again)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(2, 1)
        self.seen = []

    def forward(self, batch):
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        self.seen.append((self.trainer.state.stage, self.current_epoch, x.tolist()))
        return self.layer(x).mean()

    def training_step(self, batch, _):
        return self(batch)

    def validation_step(self, batch, _):
        self(batch)

    def predict_step(self, batch, _):
        return self(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class ReadsLoaders(Model):
    """A module whose hooks create loaders; Lightning wraps the constructor meanwhile."""

    kind = DataLoader

    def train_dataloader(self):
        return self.kind(Numbers(), 4, shuffle=True)

    def val_dataloader(self):
        return [self.kind(DATA, 5), self.kind(Stream(), 3)]

    def validation_step(self, batch, _, dataloader_idx):
        self(batch)


def trainer(folder, **options):
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"max_epochs": 3, "enable_checkpointing": False, **options}
    return lightning.Trainer(default_root_dir=folder, **quiet, **options)


RUNS = {
    "native": (DATA, {"shuffle": True}, {}),
    "called": (Numbers(), {"shuffle": True}, {}),
    "workers": (Numbers(), {"shuffle": True, "num_workers": 2}, {}),
    "persistent workers": (Numbers(), {"shuffle": True, "num_workers": 2, "persistent_workers": True}, {}),
    "stream": (Stream(), {"num_workers": 1}, {"limit_train_batches": 3}),
    "overfit": (Numbers(), {"shuffle": True}, {"overfit_batches": 2}),
    "reloaded": (Numbers(), {"shuffle": True}, {"reload_dataloaders_every_n_epochs": 1}),
    "limited": (Numbers(), {"shuffle": True, "num_workers": 1}, {"limit_train_batches": 0.5, "val_check_interval": 1}),
    "accumulated": (Numbers(), {}, {"accumulate_grad_batches": 2, "num_sanity_val_steps": 0}),
}


@pytest.mark.parametrize(("dataset", "options", "trainers"), RUNS.values(), ids=RUNS)
def test_training_sees_the_same(dataset, options, trainers, tmp_path):
    found = []
    for kind in KINDS:
        model = Model()
        torch.manual_seed(5)
        fits = trainer(tmp_path, **trainers)
        fits.fit(model, kind(dataset, 4, **options), kind(DATA, 6, num_workers=options.get("num_workers", 0)))
        assert type(fits.train_dataloader) is kind
        predicted = fits.predict(model, kind(DATA, 8, drop_last=True))
        found.append((model.seen, [parameter.tolist() for parameter in model.parameters()], str(predicted), torch.rand(1).item()))
    assert found[0] == found[1]


def test_hooks_may_make_loaders(tmp_path):
    found = []
    for kind in KINDS:
        model = ReadsLoaders()
        model.kind = kind
        torch.manual_seed(5)
        trainer(tmp_path).fit(model)
        found.append(model.seen)
    assert found[0] == found[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_checkpoint_resumes_within_an_epoch(workers, tmp_path):
    def fit(checkpoint=None, **options):
        model = Model()
        torch.manual_seed(5)
        saves = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=8, save_top_k=-1)
        loader = DataLoader(DATA, 4, shuffle=True, num_workers=workers)
        trainer(tmp_path, enable_checkpointing=True, callbacks=[saves], **options).fit(model, loader, ckpt_path=checkpoint)
        return model.seen

    whole = fit()
    resumed = fit(tmp_path / "step=8.ckpt")
    assert len(whole) == 18 and [batch for *_, batch in resumed][:4] == [batch for *_, batch in whole][8:12]
