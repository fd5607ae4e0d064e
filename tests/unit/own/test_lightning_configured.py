"""What a LightningModule configures: optimizers of its own, and what it asks a Trainer for while it does so."""

import math
import sys

import pytest
import torch
from tests.unit.own.test_lightning_module import ADAMW, STEP, lit
from tests.unit.own.test_own_pieces import trained

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.errors import LaptimeError, UsageError
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect

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
    assert (found.trainer.max_epochs, found.trainer.estimated_stepping_batches) == (epochs, asked[0])  # as in steps


@pytest.mark.parametrize(
    ("where", "asked", "said"),
    [
        ("points = torch", "assert self.trainer.world_size == 1", ""),
        ("points = torch", "self.trainer.strategy", r"Points uses self\.trainer\.strategy \(.*, line 10\), but"),
        ("return torch.optim", "self.rate(self.trainer)", r"'callback_metrics'"),
        ("inputs, labels = batch\n", "self.rate(self.trainer)", r"Lit uses self\.trainer \(.*, line 27\), but"),
        ("inputs, labels = batch\n", "self.whole()", r"Lit uses self\.trainer\.strategy \(.*, line 38\), but"),
    ],
)
def test_a_trainer_is_there_while_a_training_is_set_up_and_for_its_numbers_alone(file, where, asked, said):
    more = "    def rate(self, trainer):\n        return trainer.callback_metrics\n\n"
    more += "    def whole(self):\n        return self.trainer.strategy\n\n"
    name = lit(file, (where, f"{asked}\n        {where}"), (STEP, more + STEP))
    if not said:
        assert len(open_own(*place_of(name)).train) == 256
        return
    with pytest.raises(LaptimeError, match=said):
        open_own(*place_of(name))


LOSS = "loss = F.cross_entropy(scores, labels)"


@pytest.mark.parametrize(
    ("configured", "step", "first", "trained_parts"),
    [
        ("torch.nn.init.zeros_(self.net[2].weight), torch.nn.init.zeros_(self.net[2].bias)", LOSS, math.log(2), 4),
        ("self.share = 0 * self.trainer.estimated_stepping_batches", f"{LOSS} * self.share", 0.0, 4),
        ("self.net[0].requires_grad_(False)", LOSS, None, 2),
    ],
)
def test_what_is_configured_is_the_module_that_trains(file, configured, step, first, trained_parts):
    lap, *_, recipe = trained(lit(file, (LOSS, step), (ADAMW, f"{configured}\n        {ADAMW}")))
    assert sum(p.requires_grad for p in recipe.model.parameters()) == trained_parts
    assert first is None or lap.losses[0] == pytest.approx(first)


# Moments as a checkpoint of the optimizer has them.
MOMENTS = """\
made = torch.optim.AdamW(self.parameters(), lr=1e-3)
        state = {i: {"step": torch.tensor(50.0), "exp_avg": p.detach() / 9, "exp_avg_sq": p.detach() ** 2}
                 for i, p in enumerate(Lit.drawn().parameters())}
        made.load_state_dict({**made.state_dict(), "state": state})
        return made

    @staticmethod
    def drawn():
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return Lit()
"""


@pytest.mark.parametrize("optimization", [(), ("fused-optimizer",), ("lightning",)])
def test_it_begins_with_moments_that_were_loaded(file, optimization):
    lap, *_ = trained(lit(file, (ADAMW, MOMENTS)), *optimization)
    module = sys.modules[file.stem]
    points = module.Points()
    points.setup("fit")
    torch.manual_seed(0)
    own, losses = module.Lit(), []
    own.log = lambda *_, **__: None
    optimizer = own.configure_optimizers()
    for epoch in range(2):
        for chosen in permutation(256, 0, epoch).split(32):
            loss = own.training_step(tuple(t[chosen] for t in points.train.tensors), 0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert lap.losses == pytest.approx(losses, rel=1e-5)
    sys.modules.pop(file.stem)
    plain, *_ = trained(lit(file))
    assert plain.losses != pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize(
    ("kept", "read", "wrong"),
    [
        ("self.made = made", "self.made.param_groups[0]['lr']", "made"),
        ("self.many = [rates]", "self.many[0].get_last_lr()[0]", "many"),
        ("self.rates = rates", "self.rate", "rates"),
        ("self.rates = rates", "1", ""),
        ("self.rates = 2", "self.rates", ""),
    ],
)
def test_steps_that_read_what_no_run_steps_are_refused(file, kept, read, wrong):
    """The optimizer and the schedule of each run are others, so these stay where they began."""
    made = f"made = {ADAMW.removeprefix('return ')}\n        rates = torch.optim.lr_scheduler.StepLR(made, 1)"
    own = f"    @property\n    def rate(self):\n        return self.rates.get_last_lr()[0]\n\n{STEP}"
    changes = (
        (LOSS, f"{LOSS} * {read}"),
        (ADAMW, f"{made}\n        {kept}\n        return [made], [rates]"),
        (STEP, own),
    )
    if wrong:
        with pytest.raises(UsageError, match=rf"steps of Lit read self\.{wrong}, which configure_optimizers\(\) \("):
            trained(lit(file, *changes))
    else:
        assert len(trained(lit(file, *changes))[0].losses) == 16


def test_state_that_a_class_begins_with_is_not_another_modules(file):
    """A copy of the weights say, of which each run's own has others."""
    slow = """\
class Slow(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)
        for p in self.param_groups[0]["params"]:
            self.state[p]["slow"] = p.detach().clone()


"""
    name = lit(file, (ADAMW, "return Slow(self.parameters())"), (_MODULE, slow + _MODULE))
    workload = open_own(*place_of(name)).workload
    weights = list(workload.model().parameters())
    made = workload.optimizer(weights, 0.1)
    assert all(torch.equal(made.state[p]["slow"], p) for p in weights)


def test_a_rate_without_a_schedule_is_the_optimizers_whatever_a_checkpoint_has_left(file):
    """A schedule that was in use when the checkpoint was written notes where it began."""
    made = "made = torch.optim.SGD(self.parameters(), lr=1e-3)\n        made.param_groups[0]['initial_lr'] = 0.5"
    assert open_own(*place_of(lit(file, (ADAMW, f"{made}\n        return made")))).workload.learning_rate == 1e-3


@pytest.mark.parametrize("optimization", [(), ("resident",), ("lightning",)])
def test_the_bound_is_of_what_the_optimizer_steps_as_under_lightnings_trainer(file, optimization):
    """Gradients of what is in no group are never zeroed, so they would outgrow all others."""
    own = f"{ADAMW.replace('self.', 'self.net[2].').replace('AdamW', 'SGD')}".replace("1e-3", "0.5")
    bound = ("class Lit(LightningModule):\n", "class Lit(LightningModule):\n    clip_norm = 0.05\n\n")
    lap, *_ = trained(lit(file, (ADAMW, own), bound), *optimization)
    module = sys.modules[file.stem]
    points = module.Points()
    points.setup("fit")
    torch.manual_seed(0)
    net, losses = module.Lit().net, []
    optimizer = torch.optim.SGD(net[2].parameters(), lr=0.5)
    for epoch in range(2):
        for chosen in permutation(256, 0, epoch).split(32):
            inputs, labels = (t[chosen] for t in points.train.tensors)
            loss = torch.nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net[2].parameters(), 0.05)
            optimizer.step()
            losses.append(loss.item())
    assert lap.losses == pytest.approx(losses, rel=1e-5)
    assert "freeze them in __init__()" in inspect(f"{file}:Lit").notice


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("self.whole = self.trainer.estimated_stepping_batches", "whole"),
        ("self.net.share = 1 / self.trainer.num_training_batches", "net.share"),
        ("whole = self.trainer.estimated_stepping_batches", ""),
        ("self.lasting = self.trainer.max_epochs", ""),
    ],
)
def test_a_larger_batch_is_not_for_a_module_that_keeps_how_many_steps_there_are(file, where, kept):
    refused = inspect(lit(file, (ADAMW, f"{where}\n        {ADAMW}"))).own.refused
    assert refused.get("large-batch", "").startswith(f"its module keeps {kept}, by the number of steps") == bool(kept)
    assert ("large-batch" in refused) == bool(kept)
