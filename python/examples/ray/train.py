"""Ray Train with slotline's loaders: a worker is killed in the middle of an epoch, and the run
continues exactly.

Two workers train a small network on digits. One of them kills itself with SIGKILL some steps after
a checkpoint. Ray restarts both, and their loaders resume from the checkpoint. Every later batch,
and the final weights, equal those of an uninterrupted run. This is checked with `slotline.Loader`
and with `slotline.torch.DataLoader`. Finally, one worker resumes a checkpoint of two workers.
"""

import json
import os
import pathlib
import signal
import tempfile

import numpy as np
import ray
import ray.train.torch
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from torch.utils.data import DistributedSampler

import slotline
from slotline.torch import DataLoader, DeviceLoader

SAMPLES, EPOCHS, BATCH_SIZE = 1600, 3, 32  # with two workers, an epoch has 25 steps
CHECKPOINT_EVERY = 10
KILLED = {"rank": 1, "epoch": 1, "step": 13}


class Digits(torch.utils.data.Dataset):
    """The digits as a PyTorch dataset for `slotline.torch.DataLoader`. Samples include their
    index."""

    def __init__(self):
        [whole] = slotline.Loader(slotline.digits(), 1797)
        self.images, self.labels = whole["image"], whole["label"]

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"image": self.images[index], "label": self.labels[index], "index": index}


def engine_loader(rank, world_size):
    """Returns a `slotline.Loader`, which divides the samples among ranks itself."""
    data = slotline.Subset(slotline.StackDataset(slotline.digits(), slotline.Arrays(index=np.arange(1797))), range(SAMPLES))
    return slotline.Loader(
        data, BATCH_SIZE, shuffle=True, seed=3, rank=rank, world_size=world_size, num_workers=1, output="torch"
    )


def torch_loader(rank, world_size):
    """Returns a `DataLoader` with a worker process, which `prepare_data_loader` of Ray returns
    unchanged."""
    data = Digits()
    sampler = DistributedSampler(data, world_size, rank, shuffle=True, seed=3)
    loader = DataLoader(data, BATCH_SIZE, sampler=sampler, num_workers=1, persistent_workers=True)
    # With move_to_device=True, Ray's own wrapper would request each batch one step early, so that a
    # state would count one batch that the loop has not received. `DeviceLoader` also moves batches
    # in advance, but its state is exact.
    prepared = ray.train.torch.prepare_data_loader(loader, add_dist_sampler=False, move_to_device=False)
    assert prepared is loader
    return DeviceLoader(prepared, ray.train.torch.get_device())


def train(config):
    """The function that runs in each Ray worker."""
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    loader = config["make_loader"](rank, world_size)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    model = ray.train.torch.prepare_model(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    # After a failure, this is the latest checkpoint of the run; in a run that starts from another
    # run's checkpoint, that one.
    checkpoint = ray.train.get_checkpoint() or config["checkpoint"]
    first_epoch = first_step = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(f"{folder}/training.pt")
            # Each rank has saved its loader. These states are equal, since all ranks have received
            # equally many batches. So if the number of ranks has changed, all of them can load the
            # first one.
            own = rank if world_size == saved["world_size"] else 0
            loader.load_state_dict(json.loads(pathlib.Path(f"{folder}/loader-{own}.json").read_text()))
        layers.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first_epoch, first_step = saved["epoch"], saved["step"]

    def report(epoch, step):
        """Saves a checkpoint: each rank saves its loader, and rank 0 everything else. Ray collects
        these files in one folder."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(f"{folder}/loader-{rank}.json").write_text(json.dumps(loader.state_dict()))
            if rank == 0:
                training = {"epoch": epoch, "step": step, "world_size": world_size}
                torch.save({**training, "model": layers.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/training.pt")
            ray.train.report({"epoch": epoch, "step": step}, checkpoint=Checkpoint.from_directory(folder))

    log = open(f"{config['log']}/{'resumed' if checkpoint else 'begun'}-{rank}.jsonl", "w")
    for epoch in range(first_epoch, EPOCHS):
        if isinstance(loader, DeviceLoader):
            loader.sampler.set_epoch(epoch)  # a `slotline.Loader` counts epochs itself
        for step, batch in enumerate(loader, first_step):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch["image"] / 16), batch["label"])
            loss.backward()
            optimizer.step()
            print(json.dumps([epoch, step, rank, batch["index"].tolist()]), file=log, flush=True)
            if (step + 1) % CHECKPOINT_EVERY == 0:
                report(epoch, step + 1)
            if checkpoint is None and {"rank": rank, "epoch": epoch, "step": step} == config["killed"]:
                ray.train.get_all_reported_checkpoints()  # waits for the latest one
                os.kill(os.getpid(), signal.SIGKILL)
        first_step = 0
    report(EPOCHS, 0)


class Run:
    """A finished run: its checkpoints, and the samples of its batches."""

    def __init__(self, folder, make_loader, *, workers=2, killed=None, checkpoint=None):
        folder.mkdir()
        trainer = ray.train.torch.TorchTrainer(
            train,
            train_loop_config={"make_loader": make_loader, "killed": killed, "checkpoint": checkpoint, "log": str(folder)},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(name="run", storage_path=str(folder), failure_config=FailureConfig(max_failures=1)),
        )
        result = trainer.fit()
        assert result.error is None, result.error
        self.checkpoints = {(m["epoch"], m["step"]): checkpoint for checkpoint, m in result.best_checkpoints}
        self.begun, self.resumed = batches(folder, "begun"), batches(folder, "resumed")

    def weights(self):
        with self.checkpoints[EPOCHS, 0].as_directory() as folder:
            return torch.load(f"{folder}/training.pt")["model"]


def batches(folder, attempt):
    """Returns the indices of the samples of each batch, by epoch, step and rank."""
    lines = [json.loads(line) for log in folder.glob(f"{attempt}-*.jsonl") for line in log.open()]
    return {(epoch, step, rank): indices for epoch, step, rank, indices in lines}


def samples(batches, epoch):
    """Returns all samples of an epoch, sorted."""
    return sorted(index for (of, _, _), indices in batches.items() for index in indices if of == epoch)


def check(folder, make_loader):
    """Compares a run in which a worker is killed with an uninterrupted one. Returns the former, and
    its batches before the checkpoint."""
    whole = Run(folder / f"{make_loader.__name__}-whole", make_loader)
    assert len(whole.begun) == EPOCHS * 25 * 2 and not whole.resumed
    for epoch in range(EPOCHS):
        assert samples(whole.begun, epoch) == list(range(SAMPLES))
    accuracy = test(whole.weights())
    assert accuracy > 0.85, accuracy

    run = Run(folder / f"{make_loader.__name__}-killed", make_loader, killed=KILLED)
    # Both workers did the checkpoint's step, and the killed worker also the step at which it was
    # killed.
    resumed_at = min(run.resumed)[:2]
    assert resumed_at == (KILLED["epoch"], CHECKPOINT_EVERY), resumed_at
    assert (KILLED["epoch"], KILLED["step"], KILLED["rank"]) in run.begun
    kept = {key: indices for key, indices in run.begun.items() if key[:2] < resumed_at}
    rest = samples(run.resumed, KILLED["epoch"])
    assert sorted(samples(kept, KILLED["epoch"]) + rest) == list(range(SAMPLES))
    assert kept | run.resumed == whole.begun
    for name, weights in whole.weights().items():
        assert torch.equal(weights, run.weights()[name]), name
    print(
        f"{make_loader.__name__}: killed at step {KILLED['step']} of epoch {KILLED['epoch']}, resumed at step {resumed_at[1]}: "
        f"the {len(rest)} samples that were left of the epoch, each once; the same weights as without; accuracy {accuracy:.3f}"
    )
    return run, kept


def check_fewer_workers(folder, two, kept):
    """Checks that one worker can resume a checkpoint of two in the middle of an epoch."""
    epoch = KILLED["epoch"]
    one = Run(folder / "one", engine_loader, workers=1, checkpoint=two.checkpoints[epoch, CHECKPOINT_EVERY])
    rest = samples(one.resumed, epoch)
    assert sorted(samples(kept, epoch) + rest) == list(range(SAMPLES))
    assert samples(one.resumed, epoch + 1) == list(range(SAMPLES))
    print(f"one worker resumed the checkpoint of two: it had the {len(rest)} samples that were left of the epoch, each once")


def test(weights):
    """Returns the fraction of the remaining digits that a network classifies correctly."""
    [digits] = slotline.Loader(slotline.Subset(slotline.digits(), range(SAMPLES, 1797)), 1797, output="torch")
    inputs = digits["image"].flatten(1) / 16
    hidden = torch.relu(inputs @ weights["1.weight"].T + weights["1.bias"])
    outputs = hidden @ weights["3.weight"].T + weights["3.bias"]
    return (outputs.argmax(1) == digits["label"]).float().mean().item()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
        check(pathlib.Path(folder), torch_loader)
        check_fewer_workers(pathlib.Path(folder), *check(pathlib.Path(folder), engine_loader))
        ray.shutdown()
