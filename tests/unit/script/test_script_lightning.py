"""The script of a LightningModule: plain torch around the user's file, training to the losses of the run."""

from __future__ import annotations

import ast

import pytest
from tests.unit.own.test_lightning_module import LIT
from tests.unit.script.script_runs import assert_equal, assert_tidy, numbers_of, run_laptime
from typer.testing import CliRunner

from laptime.cli import app
from laptime.errors import UsageError
from laptime.script import print_script
from laptime.variants import resolve

# Its loaders are its own; two groups of parameters, a schedule, a bound of the gradient; a step and metrics of its own
# for the test; asks its Trainer how long it trains and where it is; draws from the weights on to dropout.
IMAGES = """\
import torch
import torchmetrics
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    clip_norm = 0.5

    def __init__(self, width=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(8))
        self.deep = nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.head = nn.BatchNorm1d(width), nn.Sequential(nn.Dropout(0.2), nn.Linear(width, 2))
        self.train_acc, self.val_acc = (torchmetrics.Accuracy(task="multiclass", num_classes=2) for _ in range(2))

    def setup(self, stage):
        x = torch.randn(72, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        y = (x.mean(dim=(1, 2, 3)) > 0).long()
        self.parts = TensorDataset(x[:48], y[:48]), TensorDataset(x[48:], y[48:])

    def prepare_data(self):
        torch.rand(3)

    def train_dataloader(self):
        return DataLoader(self.parts[0], batch_size=8, shuffle=True)

    def val_dataloader(self):
        return {"own": DataLoader(self.parts[1], batch_size=8), "again": DataLoader(self.parts[0])}

    def scores(self, x):
        return self.head(self.norm(self.deep(self.body(x)).flatten(1)))

    def training_step(self, batch):
        x, y = batch
        scores = self.scores(x)
        self.train_acc(scores, y)
        warm = min(1.0, (1 + self.global_step) / 8) / (1 + self.current_epoch)
        return {"loss": warm * F.cross_entropy(scores, y, label_smoothing=0.1)}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self.scores(x)
        self.val_acc(scores, y)
        self.log("val_loss", F.cross_entropy(scores, y))

    def configure_optimizers(self):
        heads = [p for n, p in self.named_parameters() if n.startswith("head")]
        rest = [p for n, p in self.named_parameters() if not n.startswith("head")]
        groups = [{"params": heads, "lr": 0.05}, {"params": rest, "weight_decay": 0.01}]
        made = torch.optim.SGD(groups, lr=0.02, momentum=0.9)
        steps = self.trainer.estimated_stepping_batches
        return {"optimizer": made, "lr_scheduler": torch.optim.lr_scheduler.LinearLR(made, 0.1, 1.0, steps)}


def narrow():
    return Net


ready = Net(3)
"""
EXACT = "cpu-baseline+resident+no-reads+channels-last+fused-optimizer+dead-taps"
# Moves the rate on in each step, the momentum too.
ADAMW = "torch.optim.AdamW(self.parameters(), lr=1e-3)"
ONE_CYCLE = "torch.optim.lr_scheduler.OneCycleLR(made, 0.01, self.trainer.estimated_stepping_batches)"
MADE = f'made = {ADAMW}\n        return [made], [{{"scheduler": {ONE_CYCLE}, "interval": "step"}}]'
CYCLE = LIT.replace(f"return {ADAMW}", MADE)
# Asks in setup() how long it trains, and in what a step calls where it is; tells a rate, here as an accuracy.
SET_UP = """\
    def setup(self, stage):
        self.whole = self.trainer.estimated_stepping_batches

    def configure_optimizers(self):"""
ASKED = (
    CYCLE.replace("    def configure_optimizers(self):", SET_UP)
    .replace("0.01, self.trainer.estimated_stepping_batches", "0.01, self.whole")
    .replace("labels).float().mean()", "labels).float().mean() * 0 + self.optimizers().param_groups[0]['lr']")
    .replace("loss = F.cross_entropy(scores, labels)", "loss = ramp(self) * F.cross_entropy(scores, labels)")
    + "\n\ndef ramp(module):\n    t = module.trainer\n"
    "    return t.max_epochs / (1 + t.current_epoch) / t.num_training_batches\n"
)
# Trains a part alone, which the bound is of; begins with moments of a checkpoint, notes how long it trains where its
# optimizer is made, and counts its batches.
WHOLE = "loss = F.cross_entropy(scores, labels)"
# Skips a batch in each epoch.
SKIPPED = "        if batch_idx == 3:\n            return None\n        return loss\n"
BEGUN = (
    LIT.replace("        return loss\n", SKIPPED)
    .replace(WHOLE, f"{WHOLE} * (1 + batch_idx) / self.whole")
    .replace("class Lit(LightningModule):\n", "class Lit(LightningModule):\n    clip_norm = 0.01\n\n")
)
BEGUN = BEGUN.replace(
    f"return {ADAMW}",
    f"""made = {ADAMW.replace("self.", "self.net[2].")}
        ones = [(torch.tensor(9.0), torch.ones_like(p), torch.ones_like(p)) for p in self.net[2].parameters()]
        state = {{i: dict(zip(("step", "exp_avg", "exp_avg_sq"), one)) for i, one in enumerate(ones)}}
        made.load_state_dict({{**made.state_dict(), "state": state}})
        self.whole = self.trainer.estimated_stepping_batches
        return made""",
)
# Mixes samples to train on alone.
MIXED = LIT.replace(
    "\nclass Points(",
    "\ndef mixed(items):\n    x, y = torch.utils.data.default_collate(items)\n"
    "    return x.lerp(x.flip(0), torch.rand(()) / 2), y\n\n\nclass Points(",
).replace("shuffle=True", "shuffle=True, collate_fn=mixed")
FILES = {
    "points": (LIT, "Lit", ("cpu-baseline", "cpu-baseline+resident+no-reads+fused-optimizer+ema:every=1")),
    "named": (LIT, "Lit,Points", ("cpu-baseline+workers:count=1",)),
    "images": (IMAGES, "Net", ("cpu-baseline", EXACT, "cpu-baseline+products:layers=all+large-batch:size=16")),
    "makers": (IMAGES, "narrow", ("cpu-baseline+large-batch:size=24",)),
    "cycle": (CYCLE, "Lit", ("cpu-baseline", "cpu-baseline+large-batch:size=64")),
    "asked": (ASKED, "Lit", ("cpu-baseline", "cpu-baseline+fused-optimizer")),
    "objects": (IMAGES, "ready", ("cpu-baseline",)),
    "begun": (BEGUN, "Lit", ("cpu-baseline",)),
    "mixed": (MIXED, "Lit", ("cpu-baseline",)),
}
CASES = [(kind, name) for kind, (*_, names) in FILES.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_script_trains_to_the_losses_of_the_run(kind, name, printed, found, tmp_path):
    record = run_laptime(resolve(name), "own", found[kind], tmp_path)
    assert_equal(printed[f"{kind}|{name}"], numbers_of(record))
    assert record.epochs[0].train_accuracy is not None


def test_it_steps_the_users_module_without_laptime_and_its_trainer(found):
    text = print_script(resolve(EXACT), "own", found["images"])
    imported = {n.module or "" for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
    assert not any(name.startswith(("laptime", "lightning")) for name in imported)
    assert "configure_optimizers()" in text
    assert "Trainer(" not in text


def test_what_is_printed_is_tidy(found, tmp_path):
    for kind, name in [
        *CASES,
        ("points", "cpu-baseline+bf16"),
        ("points", "cpu-baseline+onecycle"),
        ("points", "cuda-baseline+pinned+evaluate-on-cpu"),
    ]:
        file = tmp_path / f"{kind}_{name}.py"
        file.write_text(print_script(resolve(name), "own", found[kind]), encoding="utf-8")
    assert_tidy(tmp_path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ddp", "the script of a LightningModule prepares its data in one process"),
        ("flat-reduce", "the script of a LightningModule prepares its data in one process"),
        ("lightning", "Lightning's Trainer runs the loop"),
        ("graph", "its buffers depend on how your batches are nested"),
    ],
)
def test_what_it_does_not_show_is_refused_with_a_reason(name, reason, found):
    device = "cuda" if name == "graph" else "cpu"
    with pytest.raises(UsageError, match=f"no script, because of {name}: {reason}.*Leave {name} out"):
        print_script(resolve(f"{device}-baseline+{name}"), "own", found["points"])


def test_explain_prints_it(found):
    name = f"{found['images'].path}:Net"
    printed = CliRunner().invoke(app, ["explain", "cpu-optimized", "--code", "--workload", name])
    assert printed.exit_code == 0, printed.output
    assert f'WORKLOAD = (Path("{found["images"].path}"), "Net")' in printed.stdout
