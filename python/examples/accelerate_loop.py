"""Accelerate makes a new loader out of the one that it is given: torch's, unless its module finds slotline's by that name.

    torchrun --nproc-per-node 2 accelerate_loop.py     with ACCELERATE_USE_CPU=true
"""

import accelerate.data_loader
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, gather_object
from common import SEED, Digits, accuracy, loss_of, network, weights

import slotline.torch

EPOCHS = 4


def train(num_workers, use_seedable_sampler=False):
    """Returns the class of the loader that is used, the batches of this rank, and the weights."""
    configuration = DataLoaderConfiguration(use_seedable_sampler=use_seedable_sampler, data_seed=SEED)
    accelerator = Accelerator(dataloader_config=configuration)
    model = network()
    # Each process has random numbers of its own: Accelerate sees to it that all have the same order.
    torch.manual_seed(accelerator.process_index)
    loader = slotline.torch.DataLoader(Digits(), batch_size=24, shuffle=True, num_workers=num_workers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    batches = []
    for epoch in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
            batches.append(batch["index"].tolist())
        check_shares(batches[-len(loader) :], accelerator.num_processes)
    model = accelerator.unwrap_model(model)
    assert accuracy(model) > 0.95, accuracy(model)
    return type(loader.base_dataloader), batches, weights(model)


def check_shares(batches, num_processes):
    """Checks that all ranks have batches of the same sizes in an epoch, and that together they have all samples."""
    shares = gather_object([batches]) if num_processes > 1 else [batches]
    assert len(shares) == num_processes
    for share in shares:
        assert list(map(len, share)) == list(map(len, shares[0]))
    missing = set(range(1797)) - {index for share in shares for batch in share for index in batch}
    assert not missing, f"{len(missing)} samples were in no batch"


def main():
    torchs = accelerate.data_loader.DataLoader
    for options in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "use_seedable_sampler": True}):
        accelerate.data_loader.DataLoader = torchs
        kind, expected, expected_weights = train(**options)
        assert kind is torch.utils.data.DataLoader  # though it was given slotline's

        accelerate.data_loader.DataLoader = slotline.torch.DataLoader  # before `prepare`
        kind, batches, found_weights = train(**options)
        assert kind is slotline.torch.DataLoader
        assert batches == expected
        assert torch.equal(found_weights, expected_weights)
        if Accelerator().is_main_process:
            print(f"{options}: {len(batches)} batches from {kind.__module__}, those of torch's loader on each rank")


if __name__ == "__main__":
    main()
