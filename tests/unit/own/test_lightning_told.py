"""A LightningModule whose steps tell the rates of their optimizer: those of Lightning's Trainer, and no more."""

import sys

import pytest
from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import ADAMW, STEP, lit
from tests.unit.own.test_lightning_schedule import MADE, SCHEDULES, by_lightning
from tests.unit.own.test_own_pieces import trained

from laptime.engine.check import check_one_step
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec
from laptime.worker import run

LOSS = "loss = F.cross_entropy(scores, labels)"
CYCLE = (ADAMW, f"{MADE}return {SCHEDULES['one cycle']}")
HELPED = """\
    def rate(self):
        for group in self.trainer.optimizers[0].param_groups:
            return group["lr"]

    @property
    def last(self):
        return self.rate()

"""
FIRST = 'self.optimizers().param_groups[0]["lr"]'
# Each as in repositories; more than one line of a step is parted by |.
FORMS = {
    "of the trainer": 'print("lr", self.trainer.optimizers[0].param_groups[0]["lr"])',
    "by the method": f'print("lr", {FIRST})',
    "in the wrapper": 'print("lr", self.optimizers(use_pl_optimizer=False).param_groups[0].get("lr"))',
    "the wrapped": 'print("lr", self.optimizers().optimizer.param_groups[0]["lr"])',
    "in a text": f"print(f'lr {{{FIRST}}}')",
    "logged as well": f'self.log("lr", {FIRST})|self.log_dict({{"lr": {FIRST}}})|print("lr", {FIRST})',
    "of the schedule": 'print("lr", self.lr_schedulers().get_last_lr()[0])',
    "of its configuration": 'print("lr", self.trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0])',
    "by a name": 'made = self.optimizers()|lr = made.param_groups[0]["lr"]|print("lr", lr)',
    "where there is one": 's = self.lr_schedulers()|if s is not None:|    print("lr", s.get_last_lr()[0])',
    "each": 'for i, g in enumerate(self.optimizers().param_groups):|    print("lr", g["lr"])',
    "all at once": 'rates = [g["lr"] for g in self.optimizers().param_groups]|print("lr", rates[1])',
    "by a helper": 'print("lr", self.rate())',
    "by a property": 'print("lr", self.last)',
}


def telling(file, form, *changes):
    told = "".join(f"\n        {line}" for line in form.split("|"))
    return lit(file, (LOSS, f"{LOSS}{told}"), (STEP, HELPED + STEP), CYCLE, *changes)


def printed(capsys):
    return [float(line.split()[1]) for line in capsys.readouterr().out.splitlines() if line.startswith("lr ")]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_rates_that_are_told_are_those_of_lightnings_trainer(file, form, capsys):
    name = telling(file, form)
    inspect(name)
    capsys.readouterr()
    lap, *_ = trained(name, seen=lambda optimizer: [group["lr"] for group in optimizer.param_groups])
    found = printed(capsys)
    by_lightning(sys.modules[file.stem])
    expected = printed(capsys)
    count = len(expected)
    assert len(set(expected)) > 10
    assert found[-count:] == pytest.approx(expected)
    assert lap.seen[-2][form == FORMS["all at once"]] == pytest.approx(found[-2 if count == 32 else -1])


@pytest.mark.parametrize("optimization", ["resident", "fused-optimizer", "lightning", "large-batch"])
def test_rates_are_those_of_what_steps_in_a_variant(file, optimization, capsys):
    options = {"options": {"size": 64}} if optimization == "large-batch" else {}
    rates = lambda optimizer: float(optimizer.param_groups[0]["lr"])  # noqa: E731
    lap, spec, opened, _ = trained(telling(file, FORMS["by the method"]), optimization, seen=rates, **options)
    found = printed(capsys)[-len(lap.seen) :]
    assert found[1:] == pytest.approx(lap.seen[:-1])
    checked = check_one_step(spec, opened, 32)
    assert checked is None if options else checked.passed


def test_rates_that_are_told_are_no_reason_for_the_compiler_to_begin_anew(file, tmp_path):
    forms = [FORMS[name] for name in ("by a name", "of the schedule", "each", "all at once", "by a helper")]
    falling = (f"return {SCHEDULES['one cycle']}", f"return {SCHEDULES['by epoch']}")
    data = inspect(telling(file, "|".join(forms).replace('print("lr",', 'self.log("lr",'), falling))
    assert "graph" not in data.own.refused
    eager = OptimizationSpec(name="compile", options={"backend": "eager"})
    fields = {"batch_size": data.own.batch_size, "learning_rate": data.own.learning_rate}
    spec = make_spec(data=data, workload=data.own.name, optimizations=(eager,), epochs=3, profile="none", **fields)
    record = run(spec, tmp_path)
    assert record.error is None
    assert [epoch.compilations for epoch in record.epochs] == [0, 0, 0]


@pytest.mark.parametrize(
    "form",
    [
        "self.optimizers()",
        "self.optimizers().step()",
        "made = self.optimizers()|made.zero_grad()",
        f"{FIRST} = 0.1",
        f"loss = loss * {FIRST}",
        f"rate = {FIRST}|print(rate)|loss = loss * rate",
        f"if {FIRST} > 0.1:|    loss = loss * 2",
        f"if {FIRST} > 0.1:|    return loss * 2",
        f"if {FIRST} > 0.1:|    print(self.net.eval())",
        "for group in self.optimizers().param_groups:|    group['lr'] = 0.1",
        "for group in self.optimizers().param_groups:|    loss = loss * 2",
        "print([self.net.eval() for group in self.optimizers().param_groups])",
        "count = [1 for _ in self.optimizers().param_groups]|loss = loss * len(count)",
        f"self.kept = {FIRST}",
        f"torch.log(torch.tensor({FIRST}))",
        f"return loss * {FIRST}",
        "self.lr_schedulers().step()",
        "loss = loss * self.rate()",
        "loss = loss * self.last",
        "return self.rate() * loss",
    ],
)
def test_what_does_more_than_tell_is_refused_with_its_line(file, form):
    with pytest.raises(UsageError, match=rf"uses self\.\S+ \({file.name}, line \d+\), .*where it only logs"):
        inspect(telling(file, form))
