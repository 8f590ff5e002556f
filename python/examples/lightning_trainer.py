"""Trains with Lightning on slotline's loader, compared with torch's.

Lightning creates a new loader, with a DistributedSampler, of the class of the loader that it is
given, so nothing needs to be configured. Its checkpoints contain the loader's state, so training
resumes in the middle of an epoch.

    python lightning_trainer.py     starts its processes itself
"""

import json
import pathlib
import tempfile

import lightning
import torch
from common import Digits, accuracy, check_shares, loss_of, network, weights
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DistributedSampler

import slotline.torch

RANKS = 2
EPOCHS = 3
# An epoch has 19 batches on each rank, so this step is in the middle of the second epoch.
SAVED_AT = 25


class Classifier(lightning.LightningModule):
    def __init__(self, kind, folder):
        super().__init__()
        self.network = network()
        self.kind, self.folder, self.batches = kind, folder, []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.9)

    def on_train_start(self):
        loader = self.trainer.train_dataloader
        assert type(loader) is self.kind, type(loader)
        assert isinstance(loader.sampler, DistributedSampler)

    def training_step(self, batch, _):
        self.batches.append(batch["index"].tolist())
        return loss_of(self.network, batch)

    def on_train_end(self):
        (self.folder / f"{self.global_rank}.json").write_text(json.dumps(self.batches))


def fit(kind, folder, checkpoint=None):
    """Trains in two processes, with a checkpoint in the folder. Returns the batches of each rank,
    and the model."""
    folder.mkdir(exist_ok=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy="ddp_spawn",
        max_epochs=EPOCHS,
        logger=False,
        callbacks=[ModelCheckpoint(folder, "{step}", every_n_train_steps=SAVED_AT, save_top_k=-1)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier(kind, folder)
    trainer.fit(model, kind(Digits(), batch_size=48, shuffle=True, num_workers=1), ckpt_path=checkpoint)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)], model.network


def main(folder):
    expected, expected_model = fit(torch.utils.data.DataLoader, folder / "torch")
    batches, model = fit(slotline.torch.DataLoader, folder / "slotline")
    assert batches == expected
    assert torch.equal(weights(model), weights(expected_model))
    assert accuracy(model) > 0.9, accuracy(model)
    check_shares(batches, EPOCHS)

    rest, resumed = fit(slotline.torch.DataLoader, folder / "resumed", folder / f"slotline/step={SAVED_AT}.ckpt")
    assert rest == [share[SAVED_AT:] for share in batches]
    assert torch.equal(weights(resumed), weights(model))
    print(
        f"Lightning {lightning.__version__}: {len(batches[0])} batches on each of {RANKS} ranks, those of torch's loader; resumed "
        f"after {SAVED_AT} of them, with the other {len(rest[0])}, and the same weights"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(pathlib.Path(folder))
