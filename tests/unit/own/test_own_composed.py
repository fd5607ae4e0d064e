"""Trainings that chance has put together train as a loop by hand does, by each exact optimization that is for them."""

import pytest
from tests.composed import by_hand, composed, text_of
from tests.composed_parts import DRAWING
from tests.own_files import own_spec
from tests.plain_loop import run
from tests.unit.script.script_runs import run_scripts

from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve

_EXACT = (
    "resident",
    "workers:count=1",
    "no-reads",
    "fused-optimizer",
    "channels-last",
    "dead-taps",
    "products:layers=all",
    "whole-batch",
)
# Where more or fewer passes are another training.
_BY_PASS = {
    *("dropout", "depth", "mean", "residual", "recurrent", "attention", "line", "circular", "checkpointed", "leaky"),
    *("counting", "drawn", "teacher", "warmed", "history"),
}


def _same(name, traits):
    """Whether a variant draws the numbers that the loop by hand does, as often."""
    if name.startswith("workers"):
        return traits["data"] not in DRAWING and not traits["mixed"]
    if name == "channels-last":  # noise for images is drawn in the order of memory
        return traits["judged"] != "drawn"
    return name != "whole-batch" or not {traits["net"], traits["loss"]} & _BY_PASS


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 60))])
def test_it_trains_as_by_hand(file, tmp_path, seed):
    traits = composed(seed)
    file.write_text(text_of(traits), encoding="utf-8")
    found = inspect(f"{file}:Workload")
    truth = by_hand(file, 2)
    tried = [name for name in _EXACT if name.partition(":")[0] not in found.own.refused and _same(name, traits)]
    together = [name for name in tried if not name.startswith(("workers", "whole-batch"))]
    variants = ["cpu-baseline", *(f"cpu-baseline+{name}" for name in tried), "+".join(["cpu-baseline", *together])]
    for variant in variants:
        done = run(own_spec(found, variant, epochs=2, learning_rate=0.01, profile="none"), tmp_path / variant[13:])
        assert done.error is None, (variant, traits, done.error)
        losses = [(e.train_loss, e.test_loss) for e in done.epochs]
        assert losses == [pytest.approx(each, rel=1e-9) for each in truth], (variant, traits)
    scripts = {name: (print_script(resolve(name), "own", found), []) for name in (variants[0], variants[-1])}
    for name, printed in run_scripts(tmp_path, scripts).items():
        assert [line[0] for line in printed] == pytest.approx([loss for loss, _ in truth], rel=1e-6), (name, traits)
