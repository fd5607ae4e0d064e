"""A training_step() that returns None skips its batch, as under Lightning's Trainer; what could not is left out."""

import sys

import pytest
import torch
from tests.unit.own.test_lightning_module import ADAMW, STEP, lit, opened
from tests.unit.own.test_lightning_schedule import by_lightning
from tests.unit.own.test_own_pieces import trained
from torch.utils.data import DataLoader, Sampler

from laptime.engine.check import check_one_step
from laptime.errors import RunError
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect

LOSS = "loss = F.cross_entropy(scores, labels)"
SEES = f"{LOSS}\n        SEEN.append((self.global_step, float(loss.detach())))"
SKIPS = (LOSS, f"{SEES}\n        if batch_idx % 3 == 1:\n            return None")
SEEN = ("class Lit(", "SEEN = []\n\n\nclass Lit(")
DECAYED = (ADAMW, ADAMW.replace("lr=1e-3", "lr=1e-2, weight_decay=0.5"))


class Order(Sampler):
    """The run's order of the samples."""

    def __init__(self, count=256):
        self.epoch, self.count = -1, count

    def __len__(self):
        return self.count

    def __iter__(self):
        self.epoch += 1
        return iter(permutation(self.count, 0, self.epoch).tolist())


@pytest.mark.parametrize("optimization", ["no-reads", "resident", "fused-optimizer", "lightning"])
def test_a_batch_is_skipped_as_by_lightnings_trainer(file, optimization, monkeypatch):
    lap, spec, opened_data, recipe = trained(lit(file, SKIPS, SEEN, DECAYED), optimization)
    module = sys.modules[file.stem]
    found = module.SEEN[-16:]
    assert check_one_step(spec, opened_data, 32).passed
    assert "where training_step() returns None" in recipe.notes[0]
    module.SEEN.clear()
    order = Order()
    monkeypatch.setattr(module.Points, "train_dataloader", lambda s: DataLoader(s.train, batch_size=32, sampler=order))
    torch.manual_seed(0)
    by_lightning(module, num_sanity_val_steps=0, limit_val_batches=0)
    assert [step for step, _ in found] == [step for step, _ in module.SEEN] == list(range(16))
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in module.SEEN], abs=1e-5)
    assert [loss == 0.0 for loss in lap.losses] == [step % 8 % 3 == 1 for step in range(16)]


BACK = "        return loss\n"
SHARED = """\
    def shared(self, loss, low):
        return None if low else loss

    def told(self):
        return None

"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("        return loss if loss < 9 else None\n", 31),
        ("        if loss > 9:\n            return\n        return loss\n", 32),
        ("        return self.shared(loss, loss > 9)\n", 34),
        ("        self.told()\n        return loss\n", 0),
        ("        told = lambda: None\n\n        def inner():\n            return None\n\n        return loss\n", 0),
        ("        return None\n", 0),  # which never gives a loss
    ],
)
def test_it_is_known_by_what_the_step_returns(file, said, line):
    workload = opened(file, (BACK, said), (STEP, SHARED + STEP)).workload
    assert workload.skips == (f"{file.name}, line {line}" if line else "")


def test_a_base_classes_step_skips_too(file):
    base = "class Base(LightningModule):\n    def training_step(self, batch, batch_idx):\n        return None\n\n\n"
    above = "        if loss < 9:\n            return loss\n        return super().training_step(batch, batch_idx)\n"
    changes = ("class Lit(LightningModule)", f"{base}class Lit(Base)"), (BACK, above)
    assert opened(file, *changes).workload.skips == f"{file.name}, line 23"


def test_what_could_not_skip_is_left_out(file):
    parts = ("        self.net = nn", "        self.micro_batch_size = 8\n        self.net = nn")
    refused = inspect(lit(file, parts, (BACK, f"        if loss > 9:\n            return\n{BACK}"))).own.refused
    for name in ("graph", "fp16", "whole-batch", "ddp", "flat-reduce"):
        assert refused[name].startswith(f"training_step() may skip a batch ({file.name}, line 33)")


def test_a_step_that_skips_the_samples_that_are_looked_at_is_refused(file):
    with pytest.raises(RunError, match=r"skips the first 8 samples \(training_\d+\.py, line 32\), on which two steps"):
        inspect(lit(file, (BACK, f"        if len(labels) == 8:\n            return\n{BACK}")))


def test_a_test_batch_that_is_skipped_is_no_loss(file):
    with pytest.raises(RunError, match=r"gave no loss: .*, or for the test give the module a validation_step\(\)"):
        inspect(lit(file, (BACK, f"        if not self.training:\n            return\n{BACK}")))


# The warning is the compiler's own, of a loss between two graphs.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_a_compiled_step_skips_the_same_batches(file):
    skips = (BACK, f"        if len(labels) > 8 and loss > 0.69:\n            return None\n{BACK}")
    plain, *_ = trained(lit(file, skips))
    name = lit(file.with_stem(f"{file.stem}_compiled"), skips)
    lap, *_ = trained(name, "compile", options={"backend": "eager"})
    assert lap.losses == pytest.approx(plain.losses, abs=1e-6)
    assert 0 < lap.losses.count(0.0) < 16
