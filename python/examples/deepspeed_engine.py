"""Trains with DeepSpeed on slotline's loader, compared with torch's.

In each epoch, DeepSpeed creates a loader from the dataset that it is given. It uses torch's class,
unless its module's name ``DataLoader`` is set to slotline's.

    torchrun --nproc-per-node 2 deepspeed_engine.py     with DS_ACCELERATOR=cpu
"""

import deepspeed
import deepspeed.runtime.dataloader
import torch
import torch.distributed as dist
from common import Digits, accuracy, check_shares, leave, loss_of, network, weights

import slotline.torch

EPOCHS = 4


def train(kind):
    """Trains with loaders of the class ``kind``. Returns the batches of this rank, and the
    model."""
    deepspeed.runtime.dataloader.DataLoader = kind  # must precede the first epoch
    model = network().float()  # DeepSpeed does not reduce gradients in float64
    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
        training_data=Digits(),
        collate_fn=torch.utils.data.default_collate,
        config={"train_micro_batch_size_per_gpu": 48, "steps_per_print": 1000},
        dist_init_required=False,
    )
    assert type(loader) is deepspeed.runtime.dataloader.DeepSpeedDataLoader
    batches = []
    for epoch in range(EPOCHS):
        loader.data_sampler.set_epoch(epoch)
        for batch in loader:
            engine.backward(loss_of(engine, batch))
            engine.step()
            batches.append(batch["index"].tolist())
        assert type(loader.dataloader) is kind, type(loader.dataloader)
    return batches, engine.module


def main():
    dist.init_process_group("gloo")
    expected, expected_model = train(torch.utils.data.DataLoader)
    batches, model = train(slotline.torch.DataLoader)
    assert batches == expected
    assert torch.equal(weights(model), weights(expected_model))
    assert accuracy(model) > 0.9, accuracy(model)
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, batches)
    check_shares(shares, EPOCHS)
    if dist.get_rank() == 0:
        print(f"DeepSpeed {deepspeed.__version__}: {len(batches)} batches on each of {len(shares)} ranks, those of torch's loader")
    leave()


if __name__ == "__main__":
    main()
