"""Trains with the Trainer of Transformers on slotline's loader, compared with torch's.

The Trainer creates a torch loader from its dataset, and Accelerate creates another one from that,
of the class that its module's name ``DataLoader`` refers to.

    torchrun --nproc-per-node 2 transformers_trainer.py FOLDER

Checkpoints are written to FOLDER, which must be empty at the start.
"""

import sys

import accelerate.data_loader
import torch
import torch.distributed as dist
import transformers
from common import SEED, Digits, accuracy, check_shares, leave, loss_of, network, weights
from transformers import Trainer, TrainerCallback, TrainingArguments

import slotline.torch

EPOCHS = 3
# An epoch has 19 batches on each of two ranks, so this step is in the middle of the second epoch.
SAVED_AT = 25


class Classifier(torch.nn.Module):
    """A model that gets the fields of a batch and returns the loss, as the Trainer requires."""

    def __init__(self):
        super().__init__()
        self.network = network()
        self.batches = []

    def forward(self, **batch):
        self.batches.append(batch["index"].tolist())
        return {"loss": loss_of(self.network, batch)}


class Used(TrainerCallback):
    """A callback that records the loader that the Trainer uses."""

    def on_train_begin(self, args, state, control, train_dataloader, **_):
        self.loader = train_dataloader.base_dataloader


def train(kind, folder, checkpoint=None):
    """Trains with loaders of the class ``kind``. Returns the batches of this rank, and the
    model."""
    accelerate.data_loader.DataLoader = kind  # must precede the creation of the Trainer
    model, used = Classifier(), Used()
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=48,
        num_train_epochs=EPOCHS,
        save_steps=SAVED_AT,
        dataloader_num_workers=1,
        remove_unused_columns=False,
        learning_rate=0.01,
        seed=SEED,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    # The Trainer's default collate function would rename the labels.
    collate = torch.utils.data.default_collate
    trainer = Trainer(model, arguments, collate, train_dataset=Digits(), callbacks=[used])
    trainer.train(resume_from_checkpoint=checkpoint)
    assert type(used.loader) is kind, type(used.loader)
    return model.batches, model.network


def main(folder):
    expected, expected_model = train(torch.utils.data.DataLoader, f"{folder}/torch")
    batches, model = train(slotline.torch.DataLoader, f"{folder}/slotline")
    assert batches == expected
    assert torch.equal(weights(model), weights(expected_model))
    assert accuracy(model) > 0.9, accuracy(model)
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, batches)
    check_shares(shares, EPOCHS)

    rest, resumed = train(slotline.torch.DataLoader, f"{folder}/resumed", f"{folder}/slotline/checkpoint-{SAVED_AT}")
    assert rest == batches[SAVED_AT:]
    assert torch.equal(weights(resumed), weights(model))
    if dist.get_rank() == 0:
        print(
            f"Transformers {transformers.__version__}, Accelerate {accelerate.__version__}: {len(batches)} batches on each of {len(shares)} ranks, "
            f"those of torch's loader; resumed after {SAVED_AT} of them, with the other {len(rest)}, and the same weights"
        )
    leave()


if __name__ == "__main__":
    main(sys.argv[1])
