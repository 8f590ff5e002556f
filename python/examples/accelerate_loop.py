"""Training with Accelerate on slotline's loader, compared with torch's.

Accelerate creates a new loader from the one that it is given. It uses torch's class, unless its
module's name ``DataLoader`` is set to slotline's.

    torchrun --nproc-per-node 2 accelerate_loop.py     with ACCELERATE_USE_CPU=true
"""

import accelerate.data_loader
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, gather_object
from common import SEED, Digits, accuracy, check_shares, leave, loss_of, network, weights

import slotline.torch

EPOCHS = 4


def train(num_workers, use_seedable_sampler=False):
    """Returns the class of the loader that Accelerate used, the batches of this rank, and the
    weights."""
    configuration = DataLoaderConfiguration(use_seedable_sampler=use_seedable_sampler, data_seed=SEED)
    accelerator = Accelerator(dataloader_config=configuration)
    model = network()
    # The processes have different random states; Accelerate makes the order the same in all.
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
    assert accelerator.num_processes == 2
    check_shares(gather_object([batches]), EPOCHS)
    model = accelerator.unwrap_model(model)
    assert accuracy(model) > 0.95, accuracy(model)
    return type(loader.base_dataloader), batches, weights(model)


def main():
    torchs = accelerate.data_loader.DataLoader
    for options in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "use_seedable_sampler": True}):
        accelerate.data_loader.DataLoader = torchs
        kind, expected, expected_weights = train(**options)
        assert kind is torch.utils.data.DataLoader  # although slotline's was passed

        accelerate.data_loader.DataLoader = slotline.torch.DataLoader  # must precede `prepare`
        kind, batches, found_weights = train(**options)
        assert kind is slotline.torch.DataLoader
        assert batches == expected
        assert torch.equal(found_weights, expected_weights)
        if Accelerator().is_main_process:
            print(f"Accelerate {accelerate.__version__}, {options}: {len(batches)} batches on each rank, those of torch's loader")
    leave()


if __name__ == "__main__":
    main()
