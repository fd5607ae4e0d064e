"""A LightningModule whose steps read the number of their batch: told what Lightning's Trainer tells."""

import sys

import pytest
from tests.unit.own.test_lightning_module import STEP, lit, opened
from tests.unit.own.test_lightning_schedule import by_lightning
from tests.unit.own.test_own_pieces import trained

from laptime.engine.check import check_one_step
from laptime.preflight.inspecting import inspect

# Reads its number in a method that others call with it, by name once.
SHARED = """\
    def shared(self, batch, number, stage):
        SEEN.append(number)
        inputs, labels = batch
        return F.cross_entropy(self.net(inputs), labels) * (number + 1)

    def handed(self, stage, batch, index):
        return self.shared(batch, number=index, stage=stage)

    def kept(self, loss, index):
        return 1 * loss

"""
SEEN = ("class Lit(", "SEEN = []\n\n\nclass Lit(")
HANDED = ("return loss\n", "return self.handed('train', batch, batch_idx)\n")


@pytest.mark.parametrize("optimization", ["no-reads", "resident", "lightning"])
def test_a_step_is_told_its_number_as_by_lightnings_trainer(file, optimization):
    *_, spec, opened_data, recipe = trained(lit(file, HANDED, (STEP, SHARED + STEP), SEEN), optimization)
    module = sys.modules[file.stem]
    found = module.SEEN[-16:]
    module.SEEN.clear()
    by_lightning(module)
    assert found == module.SEEN == 2 * list(range(8))
    assert recipe.notes == ()
    assert check_one_step(spec, opened_data, 32).passed


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (("return loss\n", "return loss * (batch_idx + 1)\n"), True),
        (HANDED, True),
        (("return loss\n", "return self.kept(loss, batch_idx)\n"), False),
        (("return loss\n", "return super().forward(batch, batch_idx)\n"), True),
        (("(self, batch, batch_idx)", "(self, batch, *rest)"), True),
        (("(self, batch, batch_idx)", "(self, batch)"), False),
        (("return loss\n", "return loss\n"), False),
    ],
)
def test_it_counts_only_where_it_is_read(file, change, read):
    data = opened(file, change, (STEP, SHARED + STEP), SEEN)
    assert (data.workload.numbered, data.workload.model().number is not None, data.notes) == (read, read, ())


def test_a_number_that_is_read_is_told_to_scripts_and_kept_out_of_graphs(file):
    own = inspect(lit(file, HANDED, (STEP, SHARED + STEP), SEEN)).own
    assert own.numbered
    assert "in each step" in own.refused["graph"]
    assert not inspect(lit(file.with_stem(f"{file.stem}_plain"))).own.numbered


def test_a_base_classes_step_reads_it_too(file):
    base = (
        "class Base(LightningModule):\n    def training_step(self, batch, batch_idx):\n        return batch_idx\n\n\n"
    )
    inherits = ("class Lit(LightningModule)", f"{base}class Lit(Base)")
    hands_on = ("return loss\n", "return super().training_step(batch, batch_idx)\n")
    assert opened(file, inherits, hands_on).workload.numbered


def test_parts_of_a_batch_are_numbered_as_batches_that_lightnings_trainer_accumulates(file):
    parts = ("        self.net = nn", "        self.micro_batch_size = 8\n        self.net = nn")
    trained(lit(file, ("return loss\n", "SEEN.append(batch_idx)\n        return loss\n"), parts, SEEN))
    assert sys.modules[file.stem].SEEN[-64:] == 2 * list(range(32))


def test_a_number_that_evaluation_reads_is_noted(file):
    said = "self.log('val_loss', torch.tensor(1.0 + batch_idx))"
    notes = opened(file, (STEP, f"    def validation_step(self, batch, batch_idx):\n        {said}\n\n{STEP}")).notes
    assert notes == (f"batch_idx is always 0 in validation_step() ({file.name}, line 33), which reads it",)
