"""A LightningModule with micro batches: told what Lightning's Trainer tells where it accumulates gradients."""

import sys

import pytest
import torch
from tests.unit.own.test_lightning_module import ADAMW, lit
from tests.unit.own.test_lightning_progress import LOSS
from tests.unit.own.test_lightning_schedule import BY_STEP, LINEAR, MADE, by_lightning, noted
from tests.unit.own.test_own_pieces import trained

from laptime.data.lightning.trainer import pace_of
from laptime.optimizations.base import batches
from laptime.preflight.inspecting import inspect
from laptime.values.trees import divided

PARTS = ("        self.net = nn", "        self.micro_batch_size = 8\n        self.net = nn")
SMALL = ("batch_size=32", "batch_size=8")
# 250 samples: seven batches of 32 and one of 26, or 31 of 8 and one of 2.
FEWER = ("points[:256], labels[:256]", "points[:250], labels[:250]")
ASKING = """\
where = batch_idx, self.trainer.current_epoch, self.trainer.global_step, self.trainer.num_training_batches
        SEEN.append((*where, self.trainer.estimated_stepping_batches, self.trainer.accumulate_grad_batches))
        """
SEEN = ("class Lit(", "SEEN = []\n\n\nclass Lit(")


@pytest.mark.parametrize("changes", [(), (FEWER,)])
def test_its_trainer_counts_the_batches_that_go_through_the_net(file, changes):
    asking = (LOSS, ASKING + LOSS), SEEN, *changes
    trained(lit(file, PARTS, *asking))
    smaller = file.with_stem(f"{file.stem}_smaller")
    inspect(lit(smaller, SMALL, *asking))
    found, beside = (sys.modules[one.stem].SEEN for one in (file, smaller))
    beside.clear()
    by_lightning(sys.modules[smaller.stem], accumulate_grad_batches=4)
    assert found[-64:] == beside
    assert found[-1] == (31, 1, 15, 32, 16, 4)


def test_a_larger_batch_takes_as_many_of_them_in_fewer_steps(file):
    trained(lit(file, PARTS, (LOSS, ASKING + LOSS), SEEN), "large-batch", options={"size": 64})
    assert sys.modules[file.stem].SEEN[-1] == (31, 1, 7, 32, 8, 8)


@pytest.mark.parametrize("frequency", [1, 2, 3, 8])
@pytest.mark.parametrize("changes", [(), (FEWER,)])
def test_schedules_move_on_when_they_do_under_lightnings_trainer(file, frequency, changes):
    schedule = BY_STEP.replace("SCHEDULE", LINEAR.replace(" 5)", " 40)"))[:-1] + f', "frequency": {frequency}}}'
    made = (ADAMW, f"{MADE}return [made], [{schedule}]")
    lap, *_ = trained(lit(file, PARTS, made, *changes), seen=noted)
    smaller = file.with_stem(f"{file.stem}_smaller")
    inspect(lit(smaller, SMALL, made, *changes))
    beside = by_lightning(sys.modules[smaller.stem], accumulate_grad_batches=4)
    assert lap.seen == [pytest.approx(numbers) for numbers in beside[3::4]]
    assert lap.seen[0] != lap.seen[-1]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("loss * (1 + batch_idx)", "batch_idx"),
        ("loss / self.trainer.num_training_batches", "num_training_batches of its Trainer"),
        ("loss / self.trainer.estimated_stepping_batches", ""),
    ],
)
def test_what_counts_micro_batches_keeps_them(file, asked, named):
    refused = inspect(lit(file, PARTS, ("        return loss\n", f"        return {asked}\n"))).own.refused
    assert named == "" or refused["whole-batch"] == f"its module reads {named}, which counts micro batches"
    assert named or "whole-batch" not in refused
    plain = inspect(lit(file.with_stem(f"{file.stem}_plain"), ("        return loss\n", f"        return {asked}\n")))
    assert "counts" not in plain.own.refused["whole-batch"]


@pytest.mark.parametrize("most", [None, 8, 7, 32, 40])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 250, 256, 257])
def test_an_epochs_batches_are_counted_as_they_are_made(count, most):
    made = batches(torch.arange(count), min(32, count), 1)
    parts = [len(divided(torch.zeros(len(some)), len(some), most or len(some))) for some in made]
    pace = pace_of(count, min(32, count), most)
    assert (pace.steps, pace.batches) == (len(made), sum(parts))
    assert pace.parts == (-(-min(32, count) // most) if most else 1)
