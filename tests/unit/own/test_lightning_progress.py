"""A LightningModule that asks in its steps where its training is: told what Lightning's Trainer tells."""

import sys

import pytest
from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import STEP, lit
from tests.unit.own.test_lightning_schedule import by_lightning
from tests.unit.own.test_own_pieces import trained

from laptime.catalogue import parse_optimization
from laptime.engine.build import make_recipe, open_data
from laptime.engine.check import check_one_step
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect
from laptime.world import World

LOSS = "loss = F.cross_entropy(scores, labels)"
ASKING = f"self.note(labels)\n        {LOSS} * min(1.0, (1 + self.global_step) / 8)"
NOTE = """\
    def note(self, labels):
        SEEN.append((self.training, self.current_epoch, self.global_step))

"""
_MODULE = "class Lit(LightningModule)"


# By a function beside the class, which no look at its methods finds.
OUTSIDE = """\
def note(self, labels):
    SEEN.append((self.training, self.current_epoch, getattr(self, "global_step")))


"""
# A base class that keeps a list of those below it, and wants to know more of each.
LISTED = """\
class Base(LightningModule):
    def __init_subclass__(cls, *, known):
        assert known


class Lit(Base, known=True)"""


def asking(file, *changes):
    return lit(file, (LOSS, ASKING), (STEP, NOTE + STEP), (_MODULE, f"SEEN = []\n\n\n{_MODULE}"), *changes)


def asking_outside(file):
    return lit(
        file, (LOSS, ASKING.replace("self.note(", "note(self, ")), (_MODULE, f"SEEN = []\n\n\n{OUTSIDE}{LISTED}")
    )


# What it asks its Trainer for, in a function that no look at its methods finds as well.
OF_TRAINER = """\
def note(module, labels):
    t = module.trainer
    where = t.current_epoch, t.global_step, t.max_epochs, t.num_training_batches, t.estimated_stepping_batches
    SEEN.append((module.training, t.training, t.validating, t.sanity_checking, t.datamodule.scale, *where))


"""


def asking_trainer(file):
    loss = (
        f"note(self, labels)\n        {LOSS} * (1 + self.trainer.global_step) / self.trainer.estimated_stepping_batches"
    )
    scaled = ("    def setup(", "    scale = 3\n\n    def setup(")
    return lit(file, (LOSS, loss), (_MODULE, f"SEEN = []\n\n\n{OF_TRAINER}{_MODULE}"), scaled)


def asking_inside(file):
    """By a module that the module holds, which Lightning hands its Trainer on to."""
    inner = f"SEEN = []\n\n\nclass Inner(LightningModule):\n{NOTE}\n{_MODULE}"
    held = ("        self.net = nn", "        self.inner = Inner()\n        self.net = nn")
    return lit(file, (LOSS, ASKING.replace("self.", "self.inner.")), held, (_MODULE, inner))


@pytest.mark.parametrize(
    ("made", "optimization"),
    [
        (asking, "no-reads"),
        (asking, "resident"),
        (asking, "lightning"),
        (asking_outside, "no-reads"),
        (asking_inside, "no-reads"),
    ],
)
def test_steps_are_counted_as_by_lightnings_trainer(file, made, optimization):
    name = made(file)
    *_, spec, opened, recipe = trained(name, optimization)
    module = sys.modules[file.stem]
    found = module.SEEN[-16:]
    module.SEEN.clear()
    by_lightning(module)
    assert found == [seen for seen in module.SEEN if seen[0]]
    assert found[8] == (True, 1, 8)
    assert recipe.notes == ()
    assert check_one_step(spec, opened, 32).passed


@pytest.mark.parametrize("optimization", ["no-reads", "resident", "lightning"])
def test_steps_find_what_lightnings_trainer_says_of_the_training(file, optimization):
    *_, spec, opened, _ = trained(asking_trainer(file), optimization)
    module = sys.modules[file.stem]
    found = module.SEEN[-16:]
    module.SEEN.clear()
    by_lightning(module)
    assert found == [seen for seen in module.SEEN if seen[0]]
    assert found[8] == (True, True, False, False, 3, 1, 8, 2, 8, 16)
    assert check_one_step(spec, opened, 32).passed


def test_the_trainer_of_a_larger_batch_has_fewer_steps(file):
    trained(asking_trainer(file), "large-batch", options={"size": 64})
    assert [seen[-5:] for seen in sys.modules[file.stem].SEEN[-8:]] == [(s // 4, s, 2, 4, 8) for s in range(8)]


def test_ranks_that_each_have_a_whole_batch_keep_the_number_of_steps_that_they_take(file):
    kept = "    def setup(self, stage):\n        self.whole = self.trainer.estimated_stepping_batches\n\n"
    data = inspect(lit(file, (STEP, kept + STEP)))
    spec = make_spec(data=data, workload=data.own.name, batch_size=32, epochs=2)
    opened = open_data(spec)
    for scaling, steps in (("strong", 16), ("weak", 8), ("strong", 16)):
        recipe = make_recipe(spec, opened, (parse_optimization(f"flat-reduce:scaling={scaling}"),), World(0, 2))
        assert recipe.model.module.whole == steps


def test_what_says_how_long_the_training_is_does_not_change_within_it(file):
    constant = (LOSS, f"{LOSS} * self.trainer.max_epochs / self.trainer.num_training_batches")
    assert "graph" not in inspect(lit(file, constant)).own.refused
    assert "changes global_step" in inspect(asking_trainer(file.with_stem(f"{file.stem}_asking"))).own.refused["graph"]


def test_a_step_is_told_what_to_ask_instead_of_the_loader(file):
    with pytest.raises(
        UsageError, match=r"uses self\.trainer\.train_dataloader .*ask self\.trainer\.num_training_batches"
    ):
        inspect(lit(file, (LOSS, f"{LOSS} / len(self.trainer.train_dataloader)")))


def test_parts_of_a_batch_are_counted_as_batches_that_lightnings_trainer_accumulates(file):
    module_of = lambda name: sys.modules[name.rpartition(":")[0].removesuffix(".py").rpartition("/")[2]]  # noqa: E731
    own = asking(file, ("        self.net = nn", "        self.micro_batch_size = 8\n        self.net = nn"))
    trained(own)
    smaller = asking(file.with_stem(f"{file.stem}_smaller"), ("batch_size=32", "batch_size=8"))
    inspect(smaller)
    module_of(smaller).SEEN.clear()
    by_lightning(module_of(smaller), accumulate_grad_batches=4)
    assert module_of(own).SEEN[-64:] == [seen for seen in module_of(smaller).SEEN if seen[0]]


def test_a_larger_batch_has_fewer_steps_an_epoch(file):
    trained(asking(file), "large-batch", options={"size": 64})
    assert sys.modules[file.stem].SEEN[-8:] == [(True, step // 4, step) for step in range(8)]


@pytest.mark.parametrize("made", [asking, asking_outside])
def test_what_is_recorded_would_not_count(file, made):
    assert "changes global_step in each step" in inspect(made(file)).own.refused["graph"]
