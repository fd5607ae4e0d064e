"""Runs that are broken off, and what two runs must have alike."""

from collections.abc import Iterator
from contextlib import closing

import torch

from laptime import worker
from laptime.artifacts import ProgressFile
from laptime.engine.checkpoint import Checkpoints
from laptime.facts import Facts
from laptime.world import ALONE


def trained(spec, folder) -> Iterator[Facts]:
    """Trains a run in this process; what is known of it, after each epoch when that has been kept."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = Facts(0.0, spec.optimizations, Checkpoints(spec, ALONE))
    with (
        closing(ProgressFile(folder / "progress.jsonl")) as progress,
        closing(worker._train(spec, folder, facts, progress)) as training,
    ):
        for epoch in training:
            facts.epochs.append(epoch)
            yield facts


def broken_off(spec, folder, after: int) -> Facts:
    """Trains some epochs of a run, which then ends without any further word."""
    with closing(trained(spec, folder)) as training:
        return next(facts for facts in training if len(facts.epochs) == after)


def figures(record) -> list[tuple]:
    """What an epoch comes to, but for its times."""
    return [
        (e.index, e.train_loss, e.train_accuracy, e.test_loss, e.test_accuracy, e.test_map50, e.test_map)
        for e in record.epochs
    ]


def weights(folder):
    return torch.load(folder / "model.pt", weights_only=True)


def assert_alike(resumed, whole, folders) -> None:
    """Bit for bit: the figures of two records, and the models in their folders."""
    assert figures(resumed) == figures(whole)
    before, after = map(weights, folders)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
