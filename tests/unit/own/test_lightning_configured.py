"""What a LightningModule configures: optimizers of its own, and what it asks a Trainer for while it does so."""

import sys

import pytest
from tests.unit.own.test_lightning_module import ADAMW, STEP, lit

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.errors import LaptimeError, UsageError

_LOOKAHEAD = """\
class Lookahead(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer, self.param_groups, self.defaults = optimizer, optimizer.param_groups, optimizer.defaults


"""
_SAM = """\
class SAM(torch.optim.SGD):
    def __init__(self, params, base, **options):
        super().__init__(params, **options)


"""
_EVERY = """\
class Every(torch.optim.SGD):
    def __init__(self, params, lr=0.1, every=1):
        super().__init__(params, lr=lr)
        self.every = every


"""
_HOOKED = """\
def hooked(parameters):
    made = torch.optim.SGD(parameters, lr=0.1)
    made.register_step_WHEN_hook(lambda *_: None)
    return made


"""
_MODULE = "class Lit(LightningModule)"


@pytest.mark.parametrize(
    ("kind", "made", "said"),
    [
        (_LOOKAHEAD, "Lookahead(torch.optim.SGD(self.parameters(), lr=0.1))", r"gives Lookahead, .*fails \(Attribute"),
        (_SAM, "SAM(self.parameters(), torch.optim.SGD, lr=0.1)", r"gives SAM, .*fails \(TypeError: .*'base'\): give"),
        (_EVERY, "Every(self.parameters(), every=3)", "gives Every, .* which then has another every: give one"),
        (_HOOKED.replace("WHEN", "post"), "hooked(self.parameters())", "gives SGD, .* without the hooks of its steps"),
        (_HOOKED.replace("WHEN", "pre"), "hooked(self.parameters())", "gives SGD, .* without the hooks of its steps"),
        ("", "torch.optim.SGD([torch.zeros(1)])", r"of tensors \(1\) that are no parameters of the module: make"),
    ],
)
def test_an_optimizer_that_can_t_be_made_anew_as_it_is_is_refused(file, kind, made, said):
    """Each run makes its own; an option that no group holds would silently be its default again."""
    with pytest.raises(UsageError, match=said) as told:
        open_own(*place_of(lit(file, (ADAMW, f"return {made}"), (_MODULE, kind + _MODULE))))
    assert f"configure_optimizers() ({file.name}, line " in str(told.value)


_ASKED = """\
    def configure_optimizers(self):
        trainer = self.trainer
        ASKED.append((self.steps, self.count, trainer.max_epochs, trainer.num_training_batches))
        assert trainer.datamodule.train is trainer.train_dataloader.dataset
        made = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(made, 0.1, self.trainer.estimated_stepping_batches)
        return {"optimizer": made, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def setup(self, stage):
        self.steps = self.trainer.estimated_stepping_batches

    @property
    def count(self):
        return self.trainer.world_size if self.trainer.is_global_zero else None

"""


@pytest.mark.parametrize(
    ("limit", "size", "epochs", "asked"),
    [(None, 32, 3, (24, 1, 3, 8)), (65, 32, 2, (4, 1, 2, 2)), (70, 32, 1, (3, 1, 1, 3)), (5, 8, 1, (1, 1, 1, 1))],
)
def test_what_is_set_up_is_told_how_long_the_training_is(file, limit, size, epochs, asked):
    own = STEP + "\n        " + ADAMW
    name = lit(file, (own, _ASKED), ("batch_size=32", f"batch_size={size}"), (_MODULE, f"ASKED = []\n\n\n{_MODULE}"))
    data = open_own(*place_of(name), (limit, None), epochs)
    assert tuple(sys.modules[file.stem].ASKED) == (asked,)
    assert data.notes == ()
    assert data.workload.learning_rate == 0.1
    found = data.workload.model().module
    assert found.steps == asked[0]
    with pytest.raises(RuntimeError, match="not attached"):
        found.trainer  # noqa: B018 - what is looked at


@pytest.mark.parametrize(
    ("where", "asked", "said"),
    [
        ("points = torch", "assert self.trainer.world_size == 1", ""),
        ("points = torch", "self.trainer.strategy", r"Points uses self\.trainer \(.*, line 10\), but"),
        ("return torch.optim", "self.rate(self.trainer)", r"'callback_metrics'"),
        ("inputs, labels = batch\n", "self.rate(self.trainer)", r"Lit uses self\.trainer \(.*, line 27\), but"),
        ("inputs, labels = batch\n", "self.whole()", r"Lit uses self\.trainer \(.*, line 38\), but"),
    ],
)
def test_a_trainer_is_there_while_a_training_is_set_up_and_for_its_numbers_alone(file, where, asked, said):
    more = "    def rate(self, trainer):\n        return trainer.callback_metrics\n\n"
    more += "    def whole(self):\n        return self.trainer.max_epochs\n\n"
    name = lit(file, (where, f"{asked}\n        {where}"), (STEP, more + STEP))
    if not said:
        assert len(open_own(*place_of(name)).train) == 256
        return
    with pytest.raises(LaptimeError, match=said):
        open_own(*place_of(name))
