"""A LightningModule that asks in its steps where its training is: told what Lightning's Trainer tells."""

import sys

import pytest
from tests.unit.own.test_lightning_module import STEP, lit
from tests.unit.own.test_lightning_schedule import by_lightning
from tests.unit.own.test_own_pieces import trained

from laptime.engine.check import check_one_step
from laptime.inspecting import inspect

LOSS = "loss = F.cross_entropy(scores, labels)"
ASKING = f"self.note(labels)\n        {LOSS} * min(1.0, (1 + self.global_step) / 8)"
NOTE = """\
    def note(self, labels):
        SEEN.append((self.training, self.current_epoch, self.global_step))

"""
_MODULE = "class Lit(LightningModule)"


def asking(file):
    return lit(file, (LOSS, ASKING), (STEP, NOTE + STEP), (_MODULE, f"SEEN = []\n\n\n{_MODULE}"))


@pytest.mark.parametrize("optimization", ["no-reads", "resident", "lightning"])
def test_steps_are_counted_as_by_lightnings_trainer(file, optimization):
    name = asking(file)
    *_, spec, opened, recipe = trained(name, optimization)
    module = sys.modules[file.stem]
    found = module.SEEN[-16:]
    module.SEEN.clear()
    by_lightning(module)
    assert found == [seen for seen in module.SEEN if seen[0]]
    assert found[8] == (True, 1, 8)
    assert recipe.notes == ()
    assert check_one_step(spec, opened, 32).passed


def test_a_larger_batch_has_fewer_steps_an_epoch(file):
    trained(asking(file), "large-batch", options={"size": 64})
    assert sys.modules[file.stem].SEEN[-8:] == [(True, step // 4, step) for step in range(8)]


def test_what_is_recorded_would_not_count(file):
    assert "changes global_step in each step" in inspect(asking(file)).own.refused["graph"]
