"""What code of a user's keeps in plain values begins anew behind the warm-up, wherever it stands."""

import enum
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from tests.breaking_off import broken_off, figures
from tests.own_files import TUPLE, write

from laptime import worker
from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.engine.build import build, make_recipe
from laptime.engine.reset import reset, snapshot
from laptime.engine.state import _moved, _of_kind
from laptime.preflight.inspecting import inspect
from laptime.spec import RunSpec
from laptime.values.tallies import globals_of, numbers_of, plain_values, put_back_numbers
from laptime.variants import resolve

_STILL = TUPLE.replace("nn.Dropout(), ", "")
_LOSS = "        return F.cross_entropy(scores, y)"
_COUNTED = "        self.steps += model.training\n"
_AT_LAST = " if self.steps > 3 else "


def _of_workload(begun: str, *moved: str) -> list[tuple[str, str]]:
    """A loss whose factor is another from its fourth step on, which two steps before a ladder do not show."""
    lines = "".join(f"        {line}\n" for line in moved)
    before = f"    batch_size = 16\n\n    def __init__(self):\n        self.steps = 0\n        {begun}\n"
    return [("    batch_size = 16\n", before), (_LOSS, f"{_COUNTED}{lines}        return self.factor() * {_LOSS[15:]}")]


def _factor(value: str) -> tuple[str, str]:
    return ("    def loss(self", f"    def factor(self):\n        return {value}\n\n    def loss(self")


_WAYS = {
    "text": [
        *_of_workload('self.phase = "head"', f'self.phase = "all"{_AT_LAST}self.phase'),
        _factor('0.5 if self.phase == "all" else 1.0'),
    ],
    "none": [
        *_of_workload("self.best = None", f"self.best = 0.5{_AT_LAST}self.best"),
        _factor("1.0 if self.best is None else self.best"),
    ],
    "tuple": [
        *_of_workload("self.span = (1.0, 2)", f"self.span = (0.5, 1){_AT_LAST}self.span"),
        _factor("self.span[0]"),
    ],
    "numpy": [
        *_of_workload("self.weight = np.float32(1)", f"self.weight = np.float32(0.5){_AT_LAST}self.weight"),
        _factor("float(self.weight)"),
        ("import torch\n", "import numpy as np\nimport torch\n"),
    ],
    "enum": [
        *_of_workload("self.phase = Phase.HEAD", f"self.phase = Phase.ALL{_AT_LAST}self.phase"),
        _factor("self.phase.value"),
        ("import torch\n", "import enum\n\nimport torch\n"),
        ("\nclass Workload:\n", "\nclass Phase(enum.Enum):\n    HEAD, ALL = 1.0, 0.5\n\n\nclass Workload:\n"),
    ],
    "unset": [
        *_of_workload("pass", "self.calls = getattr(self, 'calls', 0) + model.training"),
        _factor("0.5 if self.calls > 3 else 1.0"),
    ],
    "global": [
        (
            _LOSS,
            "        global STEPS\n        STEPS += model.training\n"
            f"        return (0.5 if STEPS > 3 else 1) * {_LOSS[15:]}",
        ),
        ("\nclass Workload:\n", "\nSTEPS = 0\n\n\nclass Workload:\n"),
    ],
    "class": [
        (
            _LOSS,
            f"        Workload.steps += model.training\n        return (0.5 if self.steps > 3 else 1) * {_LOSS[15:]}",
        ),
        ("    batch_size = 16\n", "    batch_size = 16\n    steps = 0\n"),
    ],
}


def _spec(data, **changes) -> RunSpec:
    few = {"variant": "cpu-baseline", "batch_size": 16, "epochs": 2, "profile": "none", "check": False}
    return RunSpec(workload=data.own.name, data=data, **{**few, **changes})


def _run(spec, folder, *modules: str):
    """A run that imports its file anew, as that of a process of its own does."""
    for name in (Path(spec.data.path).stem, *modules):
        sys.modules.pop(name, None)
    return worker.run(spec, folder)


@pytest.mark.parametrize("way", _WAYS)
def test_the_warm_up_leaves_no_trace(way, file, tmp_path):
    data = inspect(write(file, _STILL, *_WAYS[way]))
    without, with_one = (_run(_spec(data, warmup_epochs=n), tmp_path / str(n)) for n in (0, 1))
    assert (without.error, with_one.error) == (None, None)
    assert [e.train_loss for e in with_one.epochs] == [e.train_loss for e in without.epochs]
    assert "goes on from the warm-up" not in data.notice


@pytest.mark.parametrize("way", _WAYS)
def test_a_resumed_run_goes_on_with_it(way, file, tmp_path):
    data = inspect(write(file, _STILL, *_WAYS[way]))
    whole = _run(_spec(data), tmp_path / "whole")
    spec = _spec(data, checkpoints=str(tmp_path / "kept"))
    sys.modules.pop(file.stem)
    broken_off(spec, tmp_path / "first", after=1)
    resumed = _run(spec, tmp_path / "second")
    assert (whole.error, resumed.error, len(resumed.starts)) == (None, None, 2)
    assert figures(resumed) == figures(whole)


def test_a_module_beside_the_file_counts_anew(file, tmp_path):
    (tmp_path / "ramp_beside.py").write_text("N = 0\n\n\ndef ramp(by):\n    global N\n    N += by\n    return N > 3\n")
    changed = (_LOSS, f"        return (0.5 if ramp(model.training) else 1) * {_LOSS[15:]}")
    data = inspect(write(file, f"from ramp_beside import ramp\n{_STILL}", changed))
    runs = (_run(_spec(data, warmup_epochs=n), tmp_path / str(n), "ramp_beside") for n in (0, 1))
    without, with_one = runs
    assert [e.train_loss for e in with_one.epochs] == [e.train_loss for e in without.epochs]


def test_what_was_computed_once_stays_with_the_numbers_that_belong_to_it():
    class Lazy:
        def __init__(self):
            self.teacher = None

    lazy = Lazy()
    kept = numbers_of(lazy)
    lazy.teacher, lazy.mask, lazy.count = object(), torch.ones(3), 3
    put_back_numbers(kept)
    assert vars(lazy).keys() == {"teacher", "mask", "count"}
    assert lazy.teacher is not None


def test_a_global_that_a_step_makes_goes_again_beside_a_register_of_warnings():
    module = ModuleType("made_by_hand")
    kept = [(module, plain_values(module), frozenset(vars(module)))]
    module.STEPS, module.__warningregistry__ = 3, {}
    put_back_numbers(kept)
    assert not hasattr(module, "STEPS")


def test_flags_of_modules_and_classes_stay_with_what_was_done_once():
    module, kind = ModuleType("made_by_hand"), type("Kind", (), {"LOADED": False, "STEPS": 0})
    module.READY, module.STEPS = False, 0
    kept = [(owner, plain_values(owner), frozenset(vars(owner))) for owner in (module, kind)]
    module.READY, module.STEPS, module.LATER = True, 5, True
    kind.LOADED, kind.STEPS = True, 5
    put_back_numbers(kept)
    assert (module.READY, module.STEPS, module.LATER) == (True, 0, True)
    assert (kind.LOADED, kind.STEPS) == (True, 0)


def test_code_that_is_installed_is_none_of_the_users():
    assert globals_of(torch.nn.Linear(2, 2)) == []


class _Phase(enum.Enum):
    HEAD, ALL = 1.0, 0.5


def test_a_checkpoint_holds_what_has_moved_and_in_plain_types():
    class Own:
        def __init__(self):
            self.folder, self.phase, self.span, self.step = "/tmp/a", _Phase.HEAD, (np.float32(1), 2), np.int64(0)

    own = Own()
    ((_, begun, _),) = numbers_of(own)
    own.phase, own.span, own.step = _Phase.ALL, (np.float32(0.5), 3), np.int64(7)
    written = _moved(own, begun)
    assert written == {"phase": "ALL", "span": (0.5, 3), "step": 7}
    assert {type(value) for value in written.values()} == {str, tuple, int}
    back = {name: _of_kind(value, begun[name]) for name, value in written.items()}
    assert back == {"phase": _Phase.ALL, "span": (np.float32(0.5), 3), "step": np.int64(7)}
    assert type(back["step"]) is np.int64


_KEPT = """\
    def optimizer(self, parameters, lr):
        with torch.no_grad():
            parameters[0].mul_(0.5)
        self.made = torch.optim.Adam(parameters[1:], lr=lr)
        return self.made

"""


@pytest.mark.parametrize("chosen", ["cpu-baseline", "cpu-baseline+fused-optimizer"])
def test_an_optimizer_that_the_workload_keeps_is_the_one_that_trains(chosen, file):
    """And what optimizer() does to weights it does once; a gradient that nobody takes away does not add up."""
    data = inspect(write(file, _STILL, ("    def loss(", f"{_KEPT}    def loss(")))
    spec = _spec(data, variant=chosen, optimizations=resolve(chosen).optimizations)
    own = open_own(*place_of(f"{file}:Workload"))
    recipe = make_recipe(spec, own, spec.optimizations)
    parts = build(recipe, mark=lambda _: None)
    saved = snapshot(parts)
    for batch in parts.loader.epoch(0):
        parts.step(parts, batch)
    assert parts.model[0].weight.grad.any()
    reset(parts, recipe, saved)
    assert own.workload.made is parts.optimizer
    assert own.workload.made.param_groups[0]["fused"] is (True if "fused" in chosen else None)
    assert parts.optimizer.state
    assert not any(value.any() for state in parts.optimizer.state.values() for value in state.values())
    torch.testing.assert_close(parts.model[0].weight, saved["0.weight"], rtol=0, atol=0)
    assert not parts.model[0].weight.grad.any()


_SCHEDULED = """
    def schedule(self, optimizer, steps_per_epoch, epochs):
        SCHEDULED.append(self.net)
        return torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)

    def loss("""


def test_a_net_that_the_workload_keeps_is_the_one_that_trains(file, tmp_path):
    """Not another one, whose operations were counted before the first step."""
    nets = ("\nclass Workload:\n", "\nSCHEDULED, TRAINED = [], []\n\n\nclass Workload:\n")
    kept = ("        return nn.Sequential(", "        self.net = nn.Sequential(")
    given = ("nn.Linear(256, 2))\n", "nn.Linear(256, 2))\n        return self.net\n")
    trained = ("scores = model(x)", "TRAINED.append(model)\n        scores = model(x)")
    data = inspect(write(file, _STILL, nets, kept, given, trained, ("    def loss(", _SCHEDULED[1:])))
    record = worker.run(_spec(data), tmp_path / "run")
    assert record.error is None
    assert record.flops_per_sample
    assert sys.modules[file.stem].SCHEDULED[-1] is sys.modules[file.stem].TRAINED[-1]


def test_a_look_at_the_quality_before_the_first_step_leaves_no_trace(file, tmp_path):
    history = """
    def __init__(self):
        self.history = []

    def evaluate(self, model, batches):
        self.history.append(float(sum((model(x).argmax(1) == y).sum() for x, y in batches)) / 32)
        return sum(self.history) / len(self.history)
"""
    data = inspect(write(file, _STILL + history))
    looked, plain = (worker.run(_spec(data, check=check), tmp_path / str(check)) for check in (True, False))
    assert (looked.error, plain.error) == (None, None)
    assert [e.test_score for e in looked.epochs] == [e.test_score for e in plain.epochs]
