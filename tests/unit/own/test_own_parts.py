"""Gradients added up over micro batches of a user's own training: those of the whole batch, in float64 to 1e-12."""

import sys

import pytest
from tests.own_files import DICTIONARY, ENCODED, PIECES, TUPLE, write
from tests.unit.own.test_own_pieces import trained

from laptime.engine import one_step
from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.check import TOLERANCES, Tolerance, check_one_step
from laptime.engine.evaluate import evaluate
from laptime.engine.setup import describe
from laptime.measure.inference import inference_sizes
from laptime.measure.marks import StepMarks
from laptime.optimizations import passes
from laptime.optimizations.passes import samples_of_a_pass
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec, RunSpec

_IN_DOUBLE = ("manual_seed(0))\nY", "manual_seed(0)).double()\nY")
# 61 samples in batches of 16: the last has 13. What goes through the net in training is noted.
POINTS = [
    _IN_DOUBLE,
    ("nn.Linear(256, 2))", "nn.Linear(256, 2)).double()"),
    ("TensorDataset(X[:64], Y[:64])", "TensorDataset(X[:61], Y[:61])"),
    ("        x, y = batch\n", "        x, y = batch\n        SIZES.extend([len(y)] * model.training)\n"),
    ("\nclass Workload", "\nSIZES = []\n\n\nclass Workload"),
]
ROWS = [
    _IN_DOUBLE,
    ("nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))", "nn.ReLU(), nn.Linear(8, 2)).double()"),
    ("Rows(X[:64], Y[:64])", "Rows(X[:61], Y[:61])"),
    (
        "        return model(**batch)",
        '        SIZES.extend([len(batch["labels"])] * model.training)\n        return model(**batch)',
    ),
    POINTS[-1],
]
# A name for each sample, and a number for all of them.
NAMES = [
    (
        "    def data(self):\n",
        """    def collate_fn(self, items):
        x, y = torch.utils.data.default_collate(items)
        return x, y, {"file": [f"image {int(each)}" for each in y], "share": 0.5}

    def data(self):\n""",
    ),
    (
        "        x, y = batch\n",
        """        x, y, of = batch
        assert of["file"] == [f"image {int(each)}" for each in y], of
        assert of["share"] == 0.5
""",
    ),
]
TOLD = "batches go through the net in parts of at most {} samples, except with whole-batch"
NORM = ("nn.ReLU(), ", "nn.BatchNorm2d(4), nn.ReLU(), ")


def in_parts(most):
    return ("    batch_size = 16\n", f"    batch_size = 16\n    micro_batch_size = {most}\n")


def learnt(file, text, *changes, added=()):
    """Losses and weights of two epochs, and how many samples went through the net at once."""
    sys.modules.pop(file.stem, None)
    lap, *_ = trained(write(file, text, *changes), *added)
    return lap.losses, [p.detach() for p in lap.parts.model.parameters()], sys.modules[file.stem].SIZES


@pytest.mark.parametrize(
    ("text", "changes", "most", "sizes", "added"),
    [
        (PIECES, POINTS, 8, [8] * 6 + [7, 6], ()),
        (PIECES, POINTS, 7, [6, 5, 5] * 3 + [7, 6], ("no-reads", "resident")),
        (PIECES, POINTS, 2, [2] * 30 + [1], ("fused-optimizer",)),
        (PIECES, POINTS, 5, [4] * 12 + [5, 4, 4], ("graph", "ema")),
        (DICTIONARY, ROWS, 12, [8] * 6 + [7, 6], ()),
        (PIECES, [*POINTS, *NAMES], 8, [8] * 6 + [7, 6], ()),
        (ENCODED, ROWS, 3, [3, 3, 3, 3, 2, 2] * 3 + [3, 3, 3, 2, 2], ("no-reads",)),
    ],
)
def test_they_learn_what_the_whole_batch_does(file, text, changes, most, sizes, added):
    losses, weights, _ = learnt(file, text, *changes, added=added)
    found, again, parts = learnt(file, text, *changes, in_parts(most), added=added)
    assert found == pytest.approx(losses, rel=1e-12)
    assert max(float((a - b).abs().max()) for a, b in zip(weights, again, strict=True)) < 1e-12
    if "graph" not in added:  # whose recording runs no Python
        assert parts[-2 * len(sizes) :] == 2 * sizes


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), [*("forward", "backward") * 2, "optimizer", "read"]),
        (("no-reads",), [*("forward", "backward") * 2, "optimizer"]),
        (("graph",), ["step"]),  # a recording holds no borders within
    ],
)
def test_a_step_is_marked_as_one_in_which_each_part_has_its_passes(file, names, expected):
    data, chosen = inspect(write(file, TUPLE, in_parts(8))), tuple(OptimizationSpec(name=name) for name in names)
    spec = RunSpec(workload="own", variant="tried", data=data, batch_size=16, optimizations=chosen)
    marks, named = StepMarks(), list[str]()
    parts = build(make_recipe(spec, open_data(spec), chosen), lambda part: (named.append(part), marks(part)))
    batch = next(iter(parts.loader.epoch(0)))
    named.clear()
    marks.start(1)
    assert parts.step(parts, batch).count == 16
    marks.end_step()
    marks.stop()
    assert named == expected
    assert set(marks.times().parts_s()) == {*expected, "rest"}


def test_gradients_that_the_compilers_graphs_write_anew_add_up_in_memory_of_their_own(file):
    losses, weights, _ = learnt(file, PIECES, *POINTS)
    sys.modules.pop(file.stem, None)
    named = write(file, PIECES, *POINTS, in_parts(5))
    lap, _, _, recipe = trained(named, "compile-graphed", options={"backend": "eager"})
    assert recipe.relaunched
    assert lap.losses == pytest.approx(losses, rel=1e-12)
    found = zip(weights, lap.parts.model.parameters(), strict=True)
    assert max(float((a - b).detach().abs().max()) for a, b in found) < 1e-12


def test_a_whole_batch_at_once_is_checked_against_the_parts(file, monkeypatch):
    spec, opened, recipe = trained(write(file, PIECES, in_parts(4)), "whole-batch")[1:]
    assert (recipe.micro_batch, recipe.notes) == (None, ())
    check = check_one_step(spec, opened, 16)
    assert (check.passed, check.klass) == (True, "exact")
    added = passes._added
    monkeypatch.setattr(passes, "_added", lambda p, part, share: added(p, part, 1.0))
    assert not check_one_step(spec, opened, 16).passed


def test_a_numeric_variant_is_checked_in_its_parts(file, monkeypatch):
    spec, opened, recipe = trained(write(file, PIECES, NORM, in_parts(4)), "bf16")[1:]
    assert recipe.notes == (TOLD.format(4),)
    setup = describe(recipe, build(recipe, lambda _: None), set())
    assert (setup.batch_size, setup.passes, inference_sizes(recipe)) == (16, 4, [1, 4, 32])
    check = check_one_step(spec, opened, 16)
    assert (check.passed, check.pieces) == (True, None)
    monkeypatch.setitem(TOLERANCES, "numeric", Tolerance(1e-9, 1e-9))
    seen, divided = list[int](), passes.divide
    monkeypatch.setattr(one_step, "divide", lambda batch, most: seen.append(most) or divided(batch, most))
    check = check_one_step(spec, opened, 16)
    assert check.passed, check
    assert check.pieces is not None
    assert set(seen) == {4}, "what is cut is one pass"


def test_a_larger_batch_has_more_parts_of_the_same_size(file):
    lap, *_, recipe = trained(write(file, PIECES, in_parts(8)), "large-batch", options={"size": 32})
    assert (len(lap.losses), recipe.batch_size, samples_of_a_pass(recipe)) == (4, 32, 8)
    assert recipe.notes[-1] == TOLD.format(8)


def test_tests_go_through_the_net_as_many_at_once(file):
    looks = ("        x, y = batch\n", "        x, y = batch\n        SIZES.append(len(y))\n")
    judged = "\n    def evaluate(self, model, batches):\n        SIZES.append([len(y) for _, y in batches])\n"
    judged += "        return 1\n"
    write(file, "SIZES = []\n" + TUPLE + judged, looks, in_parts(12))
    data = inspect(f"{file}:Workload")
    spec = RunSpec(workload="own", variant="tried", data=data, batch_size=16)
    chosen = (OptimizationSpec(name="whole-batch"),)
    recipe = make_recipe(spec, open_data(spec), chosen)
    sys.modules[file.stem].SIZES.clear()
    evaluate(build(recipe, lambda _: None), recipe, recipe.data.test)
    assert sys.modules[file.stem].SIZES == [12, 12, 8, [12, 12, 8]]
