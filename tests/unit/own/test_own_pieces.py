"""A bound for the gradient and a schedule of the user's own: trained as by hand, and what goes beside them."""

import sys

import pytest
import torch
from tests.own_files import FILM, LINE, NORM, PIECES, SCHEDULE, TUPLE, WIDE, write
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.check import check_one_step
from laptime.engine.loop import drive
from laptime.engine.reset import reset, snapshot
from laptime.errors import LaptimeError
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec, RunSpec

EPOCHS = 2


class Lap:
    def __init__(self, parts, seen):
        self.parts, self.losses, self.rates, self.see, self.seen = parts, [], [], seen, []

    def begin(self): ...

    def step(self, counts):
        self.losses.append(float(counts.loss_sum) / counts.count)
        self.rates.append(float(self.parts.optimizer.param_groups[0]["lr"]))
        self.seen.append(self.see(self.parts.optimizer))

    def end(self): ...


def trained(name, *optimizations, seen=lambda _: None, **changes):
    data = inspect(name)
    chosen = tuple(OptimizationSpec(name=n, options=changes.pop("options", {})) for n in optimizations)
    fields = {"batch_size": data.own.batch_size, "learning_rate": data.own.learning_rate, "epochs": EPOCHS, **changes}
    spec = RunSpec(workload=data.own.name, variant="tried", optimizations=chosen, data=data, **fields)
    opened = open_data(spec)
    recipe = make_recipe(spec, opened, chosen)
    parts = build(recipe, mark=lambda _: None)
    reset(parts, recipe, snapshot(parts))
    lap = Lap(parts, seen)
    for epoch in range(EPOCHS):
        drive(parts, epoch, lap)
    return lap, spec, opened, recipe


def by_hand(module, norm):
    """The same two epochs in torch's own words; the norms show that most steps are clipped."""
    torch.manual_seed(0)
    net = module.Workload().model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    schedule = module.Workload().schedule(optimizer, 4, EPOCHS)
    losses, norms = [], []
    for epoch in range(EPOCHS):
        for chosen in permutation(64, 0, epoch).split(16):
            loss = F.cross_entropy(net(module.X[:64][chosen]), module.Y[:64][chosen])
            optimizer.zero_grad()
            loss.backward()
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), norm)))
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return losses, norms


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, ()) for name in ("threads", "no-reads", "resident", "fused-optimizer", "graph", "lightning")),
        *(("dead-taps", (net,)) for net in (WIDE, LINE, FILM)),
    ],
)
def test_it_trains_as_by_hand(file, name, changes):
    lap, spec, opened, recipe = trained(write(file, PIECES, *changes), name)
    assert (name == "dead-taps") == any("were dead taps" in note and note[0] != "0" for note in recipe.notes)
    losses, norms = by_hand(sys.modules[file.stem], NORM)
    assert min(norms) > NORM
    assert lap.losses == pytest.approx(losses, rel=1e-4)
    # A lap sees the rate of the step that follows.
    assert lap.rates[-1] == pytest.approx(0.0, abs=1e-7)
    assert lap.rates[2] == pytest.approx(0.1 * (1 - 3 / 8))
    assert check_one_step(spec, opened, 16).passed


def test_scaled_gradients_are_clipped_at_their_own_norm(file):
    lap, *_ = trained(write(file, PIECES), "fp16")
    losses, _ = by_hand(sys.modules[file.stem], NORM)
    assert lap.losses == pytest.approx(losses, rel=0.02)
    sys.modules.pop(file.stem)
    unclipped, *_ = trained(write(file, PIECES, (f"clip_norm = {NORM}", "clip_norm = None  # any")), "fp16")
    assert abs(unclipped.losses[-1] - losses[-1]) > 0.1 * losses[-1]


def test_a_larger_batch_keeps_the_schedule_over_fewer_steps(file):
    lap, *_, recipe = trained(write(file, PIECES), "large-batch", options={"size": 32})
    peak = 0.1 * 2**0.5
    assert lap.rates == pytest.approx([peak * (1 - step / 4) for step in (1, 2, 3, 4)])
    assert "own schedule" in recipe.notes[-1]


SCHEDULES = {"onecycle", "linear-decay"}


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (SCHEDULE, SCHEDULES),
        ("return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=whole)", {*SCHEDULES, "graph"}),
        ("return Falling(optimizer)", {*SCHEDULES, "graph"}),
    ],
)
def test_what_goes_beside_a_schedule(file, made, refused):
    own = "\n\nclass Falling:\n    def __init__(self, optimizer):\n        self.optimizer = optimizer\n"
    own += "\n    def step(self):\n        self.optimizer.param_groups[0]['lr'] *= 0.9\n"
    found = inspect(write(file, PIECES + own, (SCHEDULE, made))).own
    assert {*SCHEDULES, "graph"} & found.refused.keys() == refused
    assert (found.clip_norm, found.schedule) == (NORM, True)
    assert "own schedule" in found.refused["onecycle"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((f"clip_norm = {NORM}", "clip_norm = -1"), r"clip_norm of .* is -1: give a number above 0"),
        ((f"clip_norm = {NORM}", "clip_norm = 'l2'"), r"clip_norm of .* is 'l2': give a number above 0"),
        ((SCHEDULE, "return whole / 0"), r"schedule\(\) failed: ZeroDivisionError.*line \d+: return whole / 0"),
    ],
)
def test_a_mistake_in_them_is_told(file, change, said):
    with pytest.raises(LaptimeError, match=said):
        inspect(write(file, PIECES, change))


def test_without_them_nothing_changes(file):
    _, _, _, recipe = trained(write(file, TUPLE))
    assert recipe.clip_norm is None
    assert (inspect(f"{file}:Workload").own.schedule, inspect(f"{file}:Workload").own.clip_norm) == (False, None)
