"""A net of a user's own whose weights are not float32: what is timed and computed for it is of their precision."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import STEPPED, by_hand, run
from tests.unit.script.script_runs import run_scripts

from laptime.engine.build import make_recipe, open_data
from laptime.measure.layouts import measure_layouts
from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve

# Two convolutions on small maps, which products compute otherwise: one as patches, one as a block.
_NET = "nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
_SMALL = """nn.AvgPool2d(2), nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).to(torch.KIND)"""
_DOUBLE = "its weights are float64, which it leaves as they are"


def _found(file, kind):
    numbers = ("manual_seed(0))\nY", f"manual_seed(0)).to(torch.{kind})\nY")
    rate = ("    batch_size = 16\n", "    batch_size = 16\n    learning_rate = 0.1\n")
    return inspect(write(file, TUPLE, numbers, rate, (_NET, _SMALL.replace("KIND", kind)), ("    def loss(", STEPPED)))


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
def test_products_and_layouts_are_tried_in_the_weights_own(file, tmp_path, kind):
    found = _found(file, kind)
    assert ("bf16" in found.own.refused) == (kind == "float64")
    spec = own_spec(found, "cpu-baseline+products", epochs=2, learning_rate=0.1)
    done = run(spec, tmp_path / "tried")
    assert done.error is None
    assert done.notes[0].startswith("as products: ")
    recipe = make_recipe(spec, open_data(spec), ())
    assert {p.dtype for p in recipe.model.parameters()} == {getattr(torch, kind)}
    assert measure_layouts(recipe, 16) is not None


def test_of_float64_no_precision_is_tried_and_products_compute_in_it(file, tmp_path):
    found = _found(file, "float64")
    assert {found.own.refused[name] for name in ("bf16", "fp16", "tf32")} == {_DOUBLE}
    truth = by_hand(file, 2)
    # bf16 by itself is refused, so autocast is put around a step that knows nothing of it.
    for under in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=under):
            done = run(
                own_spec(found, "cpu-baseline+products:layers=all", epochs=2, learning_rate=0.1, profile="none"),
                tmp_path / f"under {under}",
            )
        assert done.error is None
        assert done.notes == ("as products: 1, 3",)
        assert [e.train_loss for e in done.epochs] == pytest.approx(truth, rel=1e-12)


def test_a_printed_script_times_them_so_too(file, tmp_path):
    found = _found(file, "float64")
    truth = by_hand(file, 2)
    text = print_script(resolve("cpu-baseline+products"), "own", found)
    (printed,) = run_scripts(tmp_path, {"products": (text, [])}).values()
    assert [loss for loss, *_ in printed] == pytest.approx(truth, rel=1e-6)
