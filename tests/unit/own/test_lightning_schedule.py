"""A LightningModule's schedule: rates and momentum step by step beside Lightning's own Trainer."""

import copy
import logging
import sys
import warnings

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from tests.unit.own.test_lightning_module import ADAMW, STEP, lit
from tests.unit.own.test_own_pieces import Lap, trained

from laptime.engine.build import build
from laptime.engine.loop import drive
from laptime.engine.reset import reset, snapshot
from laptime.engine.state import put_back, state_of
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect

MADE = """\
groups = [{"params": self.net[0].parameters()}, {"params": self.net[2].parameters(), "lr": 0.01}]
        made, lrs = torch.optim.AdamW(groups, lr=0.1, betas=(0.8, 0.99)), torch.optim.lr_scheduler
        whole = self.trainer.estimated_stepping_batches
        """
STEPS, EPOCHS = 8, 2
LINEAR = "lrs.LinearLR(made, 0.1, 1.0, 5)"
BY_STEP = '{"scheduler": SCHEDULE, "interval": "step"}'
ONE_CYCLE = BY_STEP.replace("SCHEDULE", "lrs.OneCycleLR(made, [0.2, 0.02], whole)")
WARM = "lrs.SequentialLR(made, [lrs.LinearLR(made, 0.1, 1.0, 4), lrs.CosineAnnealingLR(made, whole - 4)], [4])"
OWN = "lrs.LambdaLR(made, [lambda step: 0.9**step, lambda step: 1 / (1 + step)])"
ASKS = "lrs.LambdaLR(made, lambda _: (1 + self.global_step) / self.trainer.estimated_stepping_batches)"
FROM_ZERO = 'type("Own", (lrs.LRScheduler,), {"get_lr": lambda s: [0.1, s.last_epoch / 100]})(made)'
CHANGED = """\
    def changed(self, made):
        self.scale = 2 * getattr(self, "scale", 1)
        made.param_groups[0]["lr"] *= self.scale
        return made

"""
SCHEDULES = {
    "by epoch": f"[made], [{LINEAR}]",
    "one alone": f"[made], {LINEAR}",
    "one cycle": f'{{"optimizer": made, "lr_scheduler": {ONE_CYCLE}}}',
    "warm-up": f"[made], [{BY_STEP.replace('SCHEDULE', WARM)}]",
    "each third step": f"[made], [{BY_STEP.replace('SCHEDULE', OWN)[:-1]}, 'frequency': 3}}]",
    "each second epoch": f'{{"optimizer": made, "lr_scheduler": {{"scheduler": {LINEAR}, "frequency": 2}}}}',
    "two": f"[made], [{BY_STEP.replace('SCHEDULE', OWN)}, lrs.StepLR(made, 1)]",
    "by epoch before by step": f"[made], [lrs.StepLR(made, 1), {BY_STEP.replace('SCHEDULE', OWN)}]",
    "asks its Trainer": f"[made], [{BY_STEP.replace('SCHEDULE', ASKS)}]",
    "from what it changes": f"[self.changed(made)], [{LINEAR}]",
    "from zero": f"[made.param_groups[1].update(lr=0.0) or made], [{BY_STEP.replace('SCHEDULE', FROM_ZERO)}]",
    "in a list": f'[{{"optimizer": made, "lr_scheduler": {{"scheduler": {OWN}}}}}]',
}


class Rates(Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, *_):
        self.seen.append(noted(trainer.optimizers[0]))


def noted(optimizer):
    return [number for group in optimizer.param_groups for number in (float(group["lr"]), *group["betas"])]


def by_lightning(module, **options):
    rates = Rates()
    quiet = {f"enable_{part}": False for part in ("checkpointing", "progress_bar", "model_summary")}
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(max_epochs=EPOCHS, logger=False, accelerator="cpu", callbacks=[rates], **quiet, **options)
        trainer.fit(module.Lit(), module.Points())
    return rates.seen


@pytest.mark.parametrize("given", SCHEDULES.values(), ids=SCHEDULES)
def test_rates_are_those_of_lightnings_trainer(file, given):
    name = lit(file, (ADAMW, f"{MADE}return {given}"), (STEP, CHANGED + STEP))
    lap, _, _, recipe = trained(name, seen=noted)
    expected = by_lightning(sys.modules[file.stem])
    assert len(expected) == STEPS * EPOCHS
    assert lap.seen == [pytest.approx(numbers) for numbers in expected]
    assert expected[0] != expected[-1]
    assert recipe.notes == ()


def test_rates_of_a_larger_batch_keep_the_ratio_to_its_peak_over_fewer_steps(file):
    name = lit(file, (ADAMW, f"{MADE}return {SCHEDULES['one cycle']}"))
    lap, *_ = trained(name, "large-batch", options={"size": 64}, seen=noted)
    made = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule, rates = torch.optim.lr_scheduler.OneCycleLR(made, 0.2, STEPS), []
    for _ in range(STEPS):
        made.step()
        schedule.step()
        rates.append(2**0.5 * made.param_groups[0]["lr"])
    assert [numbers[0] for numbers in lap.seen] == pytest.approx(rates)


# Moves the weight decay too, with each epoch.
DECAY = "[made.param_groups[0].update(weight_decay=0.1 * s.last_epoch) or 0.1, 0.1]"
DECAYING = f'type("Own", (lrs.LRScheduler,), {{"get_lr": lambda s: {DECAY}}})'


def test_a_run_without_a_warm_up_goes_on_in_the_middle_of_a_schedule(file):
    lap, *_, recipe = trained(lit(file, (ADAMW, f"{MADE}return {SCHEDULES['one cycle']}")), seen=noted)
    half, rest = (build(recipe, mark=lambda _: None) for _ in range(2))
    for parts in (half, rest):
        reset(parts, recipe, snapshot(parts))
    drive(half, 0, Lap(half, noted))
    put_back(rest, copy.deepcopy(state_of(half)), STEPS)
    again = Lap(rest, noted)
    drive(rest, 1, again)
    assert again.seen == lap.seen[STEPS:]


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (SCHEDULES["by epoch"], {"onecycle", "linear-decay"}),
        (SCHEDULES["one cycle"], {"onecycle", "linear-decay", "graph"}),
        (f"[made], [{DECAYING}(made)]", {"onecycle", "linear-decay", "graph"}),
        ("made", set()),
    ],
)
def test_what_goes_beside_a_schedule(file, given, refused):
    found = inspect(lit(file, (ADAMW, f"{MADE}return {given}"))).own
    assert {"onecycle", "linear-decay", "graph"} & found.refused.keys() == refused
    assert found.schedule == (given != "made")


def test_no_rate_that_falls_by_steps_is_told_of_a_module_that_says_so(file):
    given = BY_STEP.replace("SCHEDULE", "lrs.StepLR(made, 1)")
    assert "count in steps" not in inspect(lit(file, (ADAMW, f"{MADE}return [made], [{given}]"))).notice


PLATEAU = '{"optimizer": made, "lr_scheduler": {"scheduler": lrs.ReduceLROnPlateau(made), "monitor": "val_loss"}}'


def test_one_that_follows_a_metric_is_left_out_with_a_note_as_hooks_between_epochs_are(file):
    hook = "    def on_train_epoch_end(self):\n        raise ValueError\n\n"
    lap, spec, _, recipe = trained(lit(file, (ADAMW, f"{MADE}return {PLATEAU}"), (STEP, hook + STEP)), seen=noted)
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "def on_train_epoch_end" in text)
    assert {tuple(numbers) for numbers in lap.seen} == {(0.1, 0.8, 0.99, 0.01, 0.8, 0.99)}
    assert not spec.data.own.schedule
    assert recipe.notes == (
        f"not called: on_train_epoch_end ({file.name}, line {line}) of Lit",
        "its schedule (ReduceLROnPlateau) is left out: its step() wants 'metrics', and nothing is given after a batch",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('[made], [{"scheduler": lrs.StepLR(made, 1), "interval": "batch"}]', "StepLR with interval 'batch': give 'st"),
        ('[made], [{"scheduler": lrs.StepLR(made, 1), "frequency": 0}]', "StepLR with frequency 0: give a whole"),
        ("[made], [0.1]", r"gives float as a schedule, which has no step\(\)"),
    ],
)
def test_what_lightning_would_not_take_is_told_with_its_line(file, given, said):
    with pytest.raises(UsageError, match=said) as told:
        inspect(lit(file, (ADAMW, f"{MADE}return {given}")))
    assert f"configure_optimizers() ({file.name}, line " in str(told.value)
